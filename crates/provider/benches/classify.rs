//! `cargo bench -p keywheel-provider --bench classify`: what a verdict costs, beside plain JSON
//! parsing.
//!
//! Both figures are the best of many rounds over the same body of 1.4 KB, a per-day refusal as
//! Gemini sends it. The goal is a classifier that is no slower than parsing the body to a
//! `serde_json::Value`.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the machine's clock")]

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use http::HeaderMap;
use keywheel_provider::{Asked, Dialect, Kind, Reply, classify};
use serde_json::Value;

const BODY: &str = r#"{
  "error": {
    "code": 429,
    "message": "You exceeded your current quota, please check your plan and billing details. For more information on this error, head to: https://ai.google.dev/gemini-api/docs/rate-limits. To monitor your current usage, head to: https://ai.dev/rate-limit. \n* Quota exceeded for metric: generativelanguage.googleapis.com/generate_content_free_tier_requests, limit: 20, model: gemini-3.7-flash\nPlease retry in 39.078576ms.",
    "status": "RESOURCE_EXHAUSTED",
    "details": [
      {
        "@type": "type.googleapis.com/google.rpc.Help",
        "links": [
          {
            "description": "Learn more about Gemini API quotas",
            "url": "https://ai.google.dev/gemini-api/docs/rate-limits"
          }
        ]
      },
      {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [
          {
            "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
            "quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier",
            "quotaDimensions": {
              "location": "global",
              "model": "gemini-3.7-flash"
            },
            "quotaValue": "20"
          }
        ]
      },
      {
        "@type": "type.googleapis.com/google.rpc.RetryInfo",
        "retryDelay": "0s"
      }
    ]
  }
}
"#;

fn main() {
    let headers: HeaderMap = [
        ("content-type", "application/json; charset=UTF-8"),
        ("server", "ESF"),
        ("server-timing", "gfet4t7; dur=733"),
        ("vary", "Origin, X-Origin, Referer"),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "SAMEORIGIN"),
    ]
    .map(|(name, value)| {
        (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
    })
    .into_iter()
    .collect();
    let now: DateTime<Utc> = "2026-11-30T07:12:03Z".parse().expect("a date");
    let asked = Asked { model: Some("gemini-3.7-flash"), ..Asked::default() };
    let judge = || {
        let reply = Reply { status: 429, headers: &headers, body: black_box(BODY.as_bytes()) };
        let verdict = classify(Dialect::Gemini, &reply, &asked, now);
        assert!(matches!(verdict.kind, Kind::Refused(cause) if cause.is_per_day()));
        verdict
    };
    let parse = || serde_json::from_slice::<Value>(black_box(BODY.as_bytes())).expect("JSON");
    // Alternating, so that a busy machine slows both.
    let (mut classify_ns, mut value_ns) = (f64::MAX, f64::MAX);
    for _ in 0..40 {
        classify_ns = classify_ns.min(nanoseconds(&judge));
        value_ns = value_ns.min(nanoseconds(&parse));
    }
    println!("FIGURE body_bytes={}", BODY.len());
    println!("FIGURE classify_ns={classify_ns:.0}");
    println!("FIGURE serde_value_ns={value_ns:.0}");
    println!("FIGURE classify_per_serde_value={:.2}", classify_ns / value_ns);
}

fn nanoseconds<T>(work: &impl Fn() -> T) -> f64 {
    let (mut runs, started) = (0_u32, Instant::now());
    while started.elapsed() < Duration::from_millis(20) {
        for _ in 0..100 {
            black_box(work());
        }
        runs += 100;
    }
    started.elapsed().as_secs_f64() * 1e9 / f64::from(runs)
}
