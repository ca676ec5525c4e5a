-- A ledger as the first version of the schema wrote it: one row settled at 120 of 800 tokens, one of
-- 600 open. Never change it.
CREATE TABLE rows (
    seq               INTEGER PRIMARY KEY,
    nonce             BLOB NOT NULL,
    state             TEXT NOT NULL,
    account           TEXT NOT NULL,
    model             TEXT NOT NULL,
    key               TEXT,
    request_id        TEXT NOT NULL,
    day               TEXT NOT NULL,
    estimate_guess    INTEGER NOT NULL,
    estimate_input    INTEGER NOT NULL,
    estimate_output   INTEGER NOT NULL,
    calls             INTEGER NOT NULL,
    charged_tokens    INTEGER,
    charged_calls     INTEGER,
    usage_input       INTEGER,
    usage_cached      INTEGER,
    usage_output      INTEGER,
    usage_thinking    INTEGER,
    usage_tool        INTEGER,
    usage_total       INTEGER,
    outcome           TEXT,
    reserved_at       INTEGER NOT NULL,
    renewed_at        INTEGER,
    swept_at          INTEGER,
    settled_at        INTEGER,
    note              TEXT NOT NULL,
    idempotency_key   TEXT,
    idempotency_hash  INTEGER
);
-- Each index costs every reservation: only those without which something would read all rows.
CREATE INDEX open_rows ON rows (COALESCE(renewed_at, reserved_at)) WHERE state = 'reserved';
CREATE INDEX idempotency ON rows (account, idempotency_key) WHERE idempotency_key IS NOT NULL;
-- The whole allowance has the account '', all models together the model ''.
CREATE TABLE totals (
    account           TEXT NOT NULL,
    span              TEXT NOT NULL,
    model             TEXT NOT NULL,
    tokens_settled    INTEGER NOT NULL,
    tokens_reserved   INTEGER NOT NULL,
    tokens_pruned     INTEGER NOT NULL,
    calls_settled     INTEGER NOT NULL,
    calls_reserved    INTEGER NOT NULL,
    calls_pruned      INTEGER NOT NULL,
    PRIMARY KEY (account, span, model)
) WITHOUT ROWID;
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO rows VALUES (1, X'00112233445566778899aabbccddee01', 'settled', 'triage', 'gemini-3.5-flash-lite', NULL, '', '2026-11-29', 0, 0, 800, 1, 120, 1, 0, 0, 120, 0, 0, 120, 'answered', 1795989600000, NULL, NULL, 1795989600000, '', NULL, NULL);
INSERT INTO rows VALUES (2, X'00112233445566778899aabbccddee02', 'reserved', 'triage', 'gemini-3.5-flash-lite', '3fa1c09be2d4', 'req-2', '2026-11-29', 0, 0, 600, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1795989600000, NULL, NULL, NULL, 'a note', 'key-2', 7);
INSERT INTO totals VALUES ('', '2026-11', '', 120, 600, 0, 1, 1, 0);
INSERT INTO totals VALUES ('', '2026-11', 'gemini-3.5-flash-lite', 120, 600, 0, 1, 1, 0);
INSERT INTO totals VALUES ('', '2026-11-29', '', 120, 600, 0, 1, 1, 0);
INSERT INTO totals VALUES ('', '2026-11-29', 'gemini-3.5-flash-lite', 120, 600, 0, 1, 1, 0);
INSERT INTO totals VALUES ('', 'ever', '', 120, 600, 0, 1, 1, 0);
INSERT INTO totals VALUES ('', 'ever', 'gemini-3.5-flash-lite', 120, 600, 0, 1, 1, 0);
INSERT INTO totals VALUES ('triage', '2026-11', '', 120, 600, 0, 1, 1, 0);
INSERT INTO totals VALUES ('triage', '2026-11', 'gemini-3.5-flash-lite', 120, 600, 0, 1, 1, 0);
INSERT INTO totals VALUES ('triage', '2026-11-29', '', 120, 600, 0, 1, 1, 0);
INSERT INTO totals VALUES ('triage', '2026-11-29', 'gemini-3.5-flash-lite', 120, 600, 0, 1, 1, 0);
INSERT INTO totals VALUES ('triage', 'ever', '', 120, 600, 0, 1, 1, 0);
INSERT INTO totals VALUES ('triage', 'ever', 'gemini-3.5-flash-lite', 120, 600, 0, 1, 1, 0);
INSERT INTO meta VALUES ('ledger_id', '00112233445566778899aabbccddeeff'), ('created_at', 1795989600000), ('closed_in_order', 1);
PRAGMA application_id = 1802980452;
PRAGMA user_version = 1;
