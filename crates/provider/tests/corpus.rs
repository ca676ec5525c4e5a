//! Every case of the published corpus, as it stands and in every wrapping it may come in.
//!
//! Assertions name the case and the field, never the body: some bodies repeat a (made-up) key.
#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod support;

use std::{collections::BTreeSet, fs};

use chrono::DateTime;
use serde_json::{Value, json};
use support::{Case, corpus, corpus_folder, now, read};

#[test]
fn every_case_gets_the_verdict_that_the_corpus_expects() {
    let cases = corpus();
    assert!(cases.len() >= 115, "{} cases", cases.len());
    for case in &cases {
        let verdict = keywheel_provider::explain(&case.json, now());
        let expected = case.expected();
        for field in ["kind", "scope", "retry", "key_is_dead"] {
            assert_eq!(verdict[field], expected[field], "{}: {field}", case.id);
        }
        check_wait(case, &verdict);
        check_limits(case, &verdict);
    }
}

fn check_wait(case: &Case, verdict: &Value) {
    let expected = case.expected();
    if let Some(until) = expected["until"].as_str() {
        let until = DateTime::parse_from_rfc3339(until).unwrap();
        let given = DateTime::parse_from_rfc3339(verdict["until"].as_str().unwrap()).unwrap();
        assert_eq!(given, until, "{}: until", case.id);
        return;
    }
    match expected["delay_s"].as_f64() {
        None => assert_eq!(verdict["delay_s"], Value::Null, "{}: delay_s", case.id),
        Some(delay) => {
            let given = verdict["delay_s"].as_f64().unwrap_or(-1.0);
            assert!((given - delay).abs() < 0.002, "{}: {given} s, not {delay} s", case.id);
        }
    }
}

fn check_limits(case: &Case, verdict: &Value) {
    let all = |value: &Value| value.as_array().unwrap().clone();
    let expected = all(&case.expected()["limits"]);
    let given = all(&verdict["limits"]);
    assert_eq!(given.len(), expected.len(), "{}: number of limits", case.id);
    for (given, expected) in given.iter().zip(&expected) {
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(&given[field], value, "{}: {field} of a limit", case.id);
        }
    }
}

#[test]
fn the_evidence_names_the_tell() {
    for case in corpus() {
        let verdict = keywheel_provider::explain(&case.json, now());
        let evidence = verdict["evidence"].to_string();
        assert!(verdict["evidence"][0].as_str().is_some_and(|tell| tell.len() > 10), "{}", case.id);
        let text = case.text("body");
        let ids = case.expected()["quota_ids"].as_array().unwrap();
        if case.kind().starts_with("per_") && !ids.is_empty() {
            let named = ids.iter().any(|id| evidence.contains(id.as_str().unwrap()));
            assert!(named, "{}: no quota id in the evidence", case.id);
        }
        for reason in ["API_KEY_INVALID", "CONSUMER_SUSPENDED", "SERVICE_DISABLED", "_BLOCKED"] {
            if text.contains(reason) && case.kind() != "expired_key" {
                assert!(evidence.contains(reason), "{}: {reason} is not named", case.id);
            }
        }
    }
}

/// Cases whose kind comes from the body and says so itself, so that another status changes nothing.
fn says_its_own_status(case: &Case) -> bool {
    let body: Value = serde_json::from_str(case.text("body")).unwrap_or_default();
    let error = body.get(0).unwrap_or(&body).get("error").cloned().unwrap_or_default();
    error.get("code").is_some_and(|code| code.as_u64() == Some(case.status()))
}

#[test]
fn a_wrapping_changes_no_verdict() {
    let mut wrapped = 0;
    for case in corpus().iter().filter(|case| case.text("body").starts_with(['{', '['])) {
        let (body, kind) = (case.text("body"), case.kind());
        let nested =
            json!({ "error": { "message": body, "code": 418, "status": "Teapot" } }).to_string();
        let raw = json!({ "error": { "message": "Provider returned error", "code": case.status(),
            "metadata": { "raw": body, "provider_name": "x" } } });
        let twice = json!({ "error": { "message": nested, "code": case.status() } });
        let variants = [
            ("in an array", format!("[{body}]")),
            ("in a string", nested.clone()),
            ("in a string in a string", twice.to_string()),
            ("in metadata.raw", raw.to_string()),
            ("with white space around", format!("\r\n\t {body} \n\n")),
            ("with a byte order mark", format!("\u{feff}{body}")),
            ("behind an SDK's words", format!("ApiError: got an error. {body}")),
        ];
        for (how, variant) in variants {
            // What a body without any word of its own means is left to the outer reply's status.
            if how.starts_with("in a string") && !says_its_own_status(case) {
                continue;
            }
            assert_eq!(case.judge(variant)["kind"], kind, "{} {how}", case.id);
            wrapped += 1;
        }
    }
    assert!(wrapped > 600, "{wrapped} variants");
}

#[test]
fn an_error_inside_a_successful_stream_means_the_same() {
    let good = r#"data: {"candidates":[{"content":{"parts":[{"text":"error: {\"error\":1}"}]}}]}"#;
    let mut streamed = 0;
    for case in corpus().iter().filter(|case| says_its_own_status(case)) {
        let body: Value = serde_json::from_str(case.text("body")).unwrap();
        let error = body.get(0).unwrap_or(&body);
        let pretty = serde_json::to_string_pretty(error).unwrap();
        let answer = json!({ "candidates": [{ "content": { "parts": [{ "text": "x" }] } }] });
        let streams = [
            ("first event", format!("data: {error}\r\n\r\n")),
            ("after good events", format!("{good}\r\n\r\n{good}\r\n\r\ndata: {error}\r\n\r\n")),
            ("raw tail", format!("{good}\r\n\r\n{pretty}\n")),
            ("streamed array", format!("[{answer}\n,\n{error}\n]\n")),
        ];
        for (how, stream) in streams {
            let mut json = case.with_body(stream);
            json.insert("status".into(), 200.into());
            let verdict = keywheel_provider::explain(&json, now());
            assert_eq!(verdict["kind"], case.kind(), "{} {how}", case.id);
            streamed += 1;
        }
    }
    assert!(streamed > 250, "{streamed} streams");
}

#[test]
fn header_names_in_any_case_mean_the_same() {
    let mut with_headers = 0;
    for case in corpus() {
        let Value::Object(headers) = &case.json["headers"] else { continue };
        let upper: serde_json::Map<_, _> = headers
            .iter()
            .map(|(name, value)| (name.to_ascii_uppercase(), value.clone()))
            .collect();
        with_headers += usize::from(!upper.is_empty());
        let mut json = case.json.clone();
        json.insert("headers".into(), Value::Object(upper));
        let verdict = keywheel_provider::explain(&json, now());
        assert_eq!(verdict, keywheel_provider::explain(&case.json, now()), "{}", case.id);
    }
    assert!(with_headers > 5);
}

#[test]
fn a_body_cut_anywhere_gets_a_verdict_and_keeps_its_kind_once_the_tell_is_in() {
    for case in corpus() {
        let body = case.text("body");
        let mut last_other = None;
        for (cut, _) in body.char_indices() {
            let verdict = case.judge(&body[..cut]);
            assert!(verdict["evidence"][0].is_string(), "{} cut at {cut}", case.id);
            if verdict["kind"] != case.kind() {
                last_other = Some(cut);
            }
        }
        let settled = last_other.is_none_or(|cut| cut < tell_ends(&case));
        assert!(settled, "{}: not settled at byte {last_other:?}", case.id);
    }
}

/// Where the last thing ends that the verdict may depend on.
fn tell_ends(case: &Case) -> usize {
    let body = case.text("body");
    let closed = body.trim_end_matches(|c: char| "}]\"' \r\n\\".contains(c) || c == 'n').len() + 1;
    let ids = case.expected()["quota_ids"].as_array().unwrap();
    // A stated wait behind the id is not needed for the kind.
    let named = ids.iter().filter_map(|id| {
        let id = id.as_str().unwrap();
        Some(body.rfind(id)? + id.len() + 1)
    });
    let zero = body.rfind("quota_limit_value").map_or(0, |at| at + 30);
    named.max().map_or(closed, |end| end.max(zero)).min(body.len())
}

// https://github.com/diegosouzapw/OmniRoute/pull/3686: minute and day share everything but the id.
#[test]
fn the_id_alone_decides_between_a_minute_and_a_day() {
    let mut flipped = 0;
    for case in corpus() {
        let ids = case.expected()["quota_ids"].to_string();
        let (from, to, expected) = match case.kind() {
            "per_day_requests" if ids.contains("PerDay") => {
                ("PerDay", "PerMinute", "per_minute_requests")
            }
            "per_minute_requests" if ids.contains("PerMinute") => {
                ("PerMinute", "PerDay", "per_day_requests")
            }
            "per_minute_tokens" if ids.contains("PerMinute") => {
                ("PerMinute", "PerDay", "per_day_tokens")
            }
            _ => continue,
        };
        assert_eq!(
            case.judge(case.text("body").replace(from, to))["kind"],
            expected,
            "{}",
            case.id
        );
        flipped += 1;
    }
    assert!(flipped > 20, "{flipped} flips");
}

#[test]
fn nothing_in_a_verdict_repeats_a_key_that_the_body_repeats() {
    let mut echoing = 0;
    for case in corpus() {
        let verdict = keywheel_provider::explain(&case.json, now()).to_string();
        assert!(!verdict.contains("AIzaSy"), "{}", case.id);
        echoing += usize::from(case.text("body").contains("AIzaSy"));
    }
    assert!(echoing >= 3);
}

#[test]
fn every_case_has_the_shape_of_the_schema_and_a_source() {
    let schema = read("schema.json");
    let properties = schema["properties"].as_object().unwrap();
    let expected_schema = &properties["expected"];
    let mut ids = BTreeSet::new();
    for case in corpus() {
        check_object(&case.id, &Value::Object(case.json.clone()), &schema);
        check_object(&case.id, case.expected(), expected_schema);
        let kinds = expected_schema["properties"]["kind"]["enum"].as_array().unwrap();
        assert!(kinds.iter().any(|kind| kind == case.kind()), "{}: kind", case.id);
        let source = case.text("source");
        assert!(
            source.starts_with("https://")
                || source.starts_with("public ")
                || case.flagged("synthetic")
        );
        let waits = ["delay_s", "until"].map(|field| case.expected()[field].is_null());
        assert_ne!(waits, [false, false], "{}: two waits", case.id);
        assert!(ids.insert(case.id.clone()), "{} twice", case.id);
    }
    // Each file is in the index, and the other way round.
    let files = ["gemini", "other"].into_iter().flat_map(|folder| {
        fs::read_dir(corpus_folder().join(folder)).unwrap().map(|entry| entry.unwrap().path())
    });
    let names = files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned());
    assert_eq!(names.collect::<BTreeSet<_>>(), ids);
}

/// Required fields are there, and no field that the schema does not know.
fn check_object(id: &str, value: &Value, schema: &Value) {
    let value = value.as_object().unwrap();
    for field in schema["required"].as_array().unwrap() {
        assert!(value.contains_key(field.as_str().unwrap()), "{id}: {field} is missing");
    }
    for field in value.keys() {
        assert!(schema["properties"].get(field).is_some(), "{id}: {field} is not in the schema");
    }
}
