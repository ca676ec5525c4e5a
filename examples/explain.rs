//! What does this reply mean? Reads one case as JSON on standard input, prints the verdict as JSON.
//!
//! ```sh
//! cargo run --example explain < corpus/gemini/003-rpd-free20-retry-39ms-after-waiting.json
//! ```
//!
//! A case has `status`, `headers` and `body`, and optionally `asked {model, tokens, tools}`,
//! `provider` and `now`. An object without `status` and `body` is taken for a body itself, as it
//! stands in a log. Input that is no object at all is explained as a body, too; that is said on
//! standard error, and the exit code is 2.

use std::{
    io::{Read as _, Write as _},
    process::ExitCode,
};

use keywheel_core::{Clock as _, SystemClock};
use keywheel_provider::{explain, explain_bytes};
use serde_json::{Value, json};

const HELP: &str = r#"Reads one reply as JSON on standard input and prints what it means:
  {"status": 429, "headers": {}, "body": "…", "asked": {"model": "…", "tokens": 1, "tools": false},
   "provider": "gemini", "now": "2026-11-30T07:12:03Z"}
Only `status` and `body` are needed; a body alone will do."#;

fn main() -> Result<ExitCode, std::io::Error> {
    if std::env::args().len() > 1 {
        println!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    }
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input)?;
    let now = SystemClock.now();
    let (verdict, code) = match serde_json::from_slice(&input) {
        Ok(Value::Object(case)) => (explain(&case, now), ExitCode::SUCCESS),
        Ok(_) => (explain_bytes(&input, now), not_a_case("not a JSON object")),
        Err(error) => (explain_bytes(&input, now), not_a_case(&error.to_string())),
    };
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &verdict)?;
    out.write_all(b"\n")?;
    Ok(code)
}

fn not_a_case(why: &str) -> ExitCode {
    let hint =
        "expected {\"status\": 429, \"headers\": {}, \"body\": \"…\"}; explained as a bare body";
    eprintln!("{}", json!({ "error": why, "hint": hint }));
    ExitCode::from(2)
}
