//! Any bytes get a verdict whose waits are bounded. Seeds: the published corpus, `corpus/`.
#![no_main]

use std::time::Duration;

use chrono::{DateTime, Utc};
use http::HeaderMap;
use keywheel_core::Wait;
use keywheel_provider::{Asked, Dialect, Reply, classify, explain};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    let now = DateTime::<Utc>::from_timestamp_nanos(1_790_000_000_000_000_000);
    // A whole case, as `explain` reads it: status and headers are fuzzed too.
    if let Ok(Value::Object(case)) = serde_json::from_slice(data) {
        let verdict = explain(&case, now);
        assert!(verdict["evidence"].is_array());
    }
    for status in [0, 200, 400, 403, 429, 503] {
        for dialect in [Dialect::Gemini, Dialect::OpenAi] {
            let reply = Reply { status, headers: &HeaderMap::new(), body: data };
            let verdict = classify(dialect, &reply, &Asked::default(), now);
            assert!(!verdict.evidence.is_empty());
            for effect in &verdict.effects {
                if let Wait::Stated(wait) = effect.wait {
                    assert!(!wait.is_zero() && wait <= Duration::from_hours(25));
                }
            }
        }
    }
});
