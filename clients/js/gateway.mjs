// What holds for every client against the gateway; `testsOf` an adapter, which says how a client is spoken to.
//
// Programs are run as `NAME.mjs GATEWAY_URL DEGRADED_URL UPSTREAM_URL`; the configurations are of ../gateway/configs.py.

import assert from "node:assert/strict";
import { rejection } from "./harness.mjs";

export const MODEL = "gemini-3.5-flash-lite";
export const EMBEDDER = "gemini-embedding-001";
const SPENT = "gemini-3.8-flash";
// What the gateway tries at most for one request.
const ATTEMPTS = 3;

/** Where the gateway is, and what it and the simulator behind it have counted. */
export class Gateway {
  constructor(client) {
    this.client = client;
    [this.url, this.degraded, this.upstream] = process.argv.slice(2);
  }

  token(project = "free") {
    return `EXAMPLE-token-of-${this.client}-${project}`;
  }

  /** The model of this client that always fails in this way. */
  failing(fault) {
    return `gemini-${fault}-${this.client}`;
  }

  /** How many of the project's requests ended so. */
  async requests(project, outcome) {
    const headers = { "x-goog-api-key": this.token() };
    const text = await (await fetch(`${this.url}/metrics`, { headers })).text();
    const mine = text
      .split("\n")
      .filter((line) => line.startsWith("keywheel_requests_total{"))
      .filter((line) => line.includes(`project="${this.client}-${project}"`))
      .filter((line) => line.includes(`outcome="${outcome}"`));
    return mine.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" "))), 0);
  }

  /** How many requests for the model arrived upstream. */
  async sentOn(model) {
    const { buckets } = await (await fetch(`${this.upstream}/stats`)).json();
    return buckets
      .filter((bucket) => bucket.model === model)
      .reduce((sum, of) => sum + of.served + of.refused + of.faulted + of.rejected, 0);
  }
}

/**
 * The tests of a client: `it` has `name`, `gateway`, `generate(text, {model, project, path, token})`,
 * `stream(text, model)`, `embed(texts)`, `listModels()`, `countTokens(text)` or none, `kind(error, status)`, which
 * asserts that an error is the client's own for a status, `broken(error)`, the same for a stream that broke, and how
 * many requests it makes: `attemptsAtRefusal`, `attemptsAtFailure`.
 */
export function testsOf(it) {
  const { gateway } = it;
  const says = (error, word) => {
    const said = `${error.message} ${JSON.stringify(error.error ?? {})}`.toUpperCase();
    assert.ok(said.includes(word.toUpperCase()), said);
  };

  /** `ask` fails as `status` does, says why, and is not made more of than it has to be. */
  const refused = async (status, reason, project, ask) => {
    const before = await gateway.requests(project, reason);
    const error = await rejection(ask);
    it.kind(error, status);
    says(error, reason);
    assert.equal((await gateway.requests(project, reason)) - before, it.attemptsAtRefusal, "requests");
  };

  const notices = (fault) => async () => {
    let said = "";
    const model = gateway.failing(fault);
    const error = await rejection(async () => {
      for await (const text of it.stream("Say hello, and then some more", model)) said += text;
    });
    it.broken(error);
    assert.match(said, /^Simulated/);
    // Nobody begins again behind a text that was shown.
    assert.equal(await gateway.sentOn(model), 1);
  };

  const tests = {
    async "generates a text"() {
      assert.match(await it.generate("Say hello"), /^Simulated answer .* to: Say hello$/);
    },

    async "streams the same text"() {
      const whole = await it.generate("Say hello");
      const chunks = [];
      for await (const text of it.stream("Say hello", MODEL)) chunks.push(text);
      assert.ok(chunks.length > 2, chunks.join("|"));
      assert.equal(chunks.join(""), whole);
    },

    async "embeds one and many"() {
      const [one] = await it.embed(["two"]);
      const many = await it.embed(["one", "two"]);
      assert.equal(many.length, 2);
      assert.equal(one.length, 3072);
      assert.deepEqual(one, many[1]);
    },

    async "lists models"() {
      const names = (await it.listModels()).map((name) => name.replace(/^models\//, ""));
      for (const name of [MODEL, EMBEDDER, gateway.failing("cut")]) {
        assert.ok(names.includes(name), `${name} is not among ${names}`);
      }
    },

    async "reaches its project by path"() {
      assert.ok(await it.generate("Say hello", { path: `/p/${gateway.client}-free` }));
    },

    async "is refused without a known token"() {
      const error = await rejection(() => it.generate("Hi", { token: "EXAMPLE-stranger-token" }));
      it.kind(error, 401);
      says(error, "unknown_token");
    },

    async "is refused a project that is not its own"() {
      const error = await rejection(() => it.generate("Hi", { path: "/p/docs-free" }));
      it.kind(error, 404);
      says(error, "unknown_project");
    },

    async "is refused a model that the project may not use"() {
      const ask = () => it.generate("Hi", { model: SPENT, project: "choosy" });
      await refused(403, "model_not_allowed", "choosy", ask);
    },

    async "is refused what the whole budget cannot pay"() {
      await refused(400, "never_fits", "small", () => it.generate("Hi", { project: "small" }));
    },

    async "is refused over requests per minute"() {
      // This one is worth a retry, and those who heed Retry-After wait for it: for most of a minute.
      const ask = () => it.generate("Hi", { project: "minute", retries: 0 });
      await ask();
      await refused(429, "requests_per_minute", "minute", ask);
    },

    async "is refused over its budget"() {
      const ask = () => it.generate("Hi", { project: "spent" });
      await ask();
      await refused(429, "over_budget", "spent", ask);
      assert.equal(await gateway.requests("spent", "ok"), 1);
    },

    async "is told when no key can serve"() {
      const error = await rejection(async () => {
        // One of the clients gets the day's only answer of each quota project.
        for (let i = 0; i < 3; i += 1) await it.generate("Hi", { model: SPENT });
      });
      it.kind(error, 503);
      says(error, "exhausted");
    },

    async "is answered in the provider's place"() {
      const ours = gateway.url;
      gateway.url = gateway.degraded;
      try {
        // The day's answers are spent, or are now.
        for (let i = 0; i < 2; i += 1) await it.generate("Hi", { model: SPENT });
        const resting = /^The assistant is resting until 20/;
        assert.match(await it.generate("Hi", { model: SPENT }), resting);
        let streamed = "";
        for await (const text of it.stream("Hi", SPENT)) streamed += text;
        assert.match(streamed, resting);
      } finally {
        gateway.url = ours;
      }
    },

    async "gets the provider's own refusal"() {
      const error = await rejection(() => it.generate("Hi", { model: "gemini-1.0" }));
      it.kind(error, 404);
    },

    async "does not multiply requests to a failing provider"() {
      const model = gateway.failing("down");
      it.kind(await rejection(() => it.generate("Hi", { model })), 503);
      const made = await gateway.requests("free", "upstream_down");
      const sent = await gateway.sentOn(model);
      console.log(`       ${it.name}: ${made} requests became ${sent} upstream`);
      assert.equal(made, it.attemptsAtFailure);
      assert.ok(sent >= 1 && sent <= ATTEMPTS * it.attemptsAtFailure, `${sent} requests upstream`);
    },

    "notices a stream that is cut": notices("cut"),
    "notices a stream that is broken": notices("broken"),
    "notices a stream that is midway": notices("midway"),
  };
  if (it.countTokens) {
    tests["counts tokens"] = async () => assert.equal(await it.countTokens("Say hello"), 3);
  }
  return tests;
}
