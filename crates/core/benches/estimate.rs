//! Speed of the token estimate, which runs on every request: `FIGURE estimate_mb_s=…`.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures the machine's own time")]

use std::{hint::black_box, time::Instant};

use keywheel_core::estimate;

/// Best of these, since everything that disturbs a run makes it slower.
const ROUNDS: usize = 15;

fn main() {
    let samples: serde_json::Value =
        serde_json::from_str(include_str!("../tests/data/estimate.json"))
            .expect("the file is JSON");
    let samples = samples.as_array().expect("the file is a list");
    let of = |name: Option<&str>| {
        let wanted = samples.iter().filter(|s| name.is_none_or(|name| s["name"] == name));
        let text: String = wanted.filter_map(|s| s["text"].as_str()).collect();
        text.repeat(4_000_000 / text.len())
    };
    println!("FIGURE estimate_mb_s={:.0}", mb_s(&of(None)));
    println!("FIGURE estimate_english_mb_s={:.0}", mb_s(&of(Some("english_prose"))));
    println!("FIGURE estimate_json_mb_s={:.0}", mb_s(&of(Some("json_compact"))));
}

fn mb_s(text: &str) -> f64 {
    let run = || {
        let start = Instant::now();
        black_box(estimate::tokens(black_box(text)));
        start.elapsed().as_secs_f64()
    };
    let best = (0..ROUNDS).map(|_| run()).fold(f64::INFINITY, f64::min);
    text.len() as f64 / 1e6 / best
}
