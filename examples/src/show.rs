//! How the examples print moments, attempts and answers.

use std::{error::Error, process::ExitCode};

use chrono::{DateTime, DurationRound as _, Local, TimeDelta, Utc};
use keywheel::{Attempt, Cause, GeminiStream, Kind, Reply};
use keywheel_core::{Dimension, quota_day::PACIFIC};

use crate::demo::Failure;

/// A moment in Pacific time, where quota days turn, and in the machine's own zone; up to the next full second, so
/// that nobody comes too early.
#[must_use]
pub fn moment(at: DateTime<Utc>) -> String {
    let at = at.duration_round_up(TimeDelta::seconds(1)).unwrap_or(at);
    let pacific = at.with_timezone(&PACIFIC).format("%a %H:%M:%S Pacific");
    format!("{pacific} ({})", at.with_timezone(&Local).format("%a %H:%M:%S here, UTC%:z"))
}

/// A limit in words: `3 requests a day`.
#[must_use]
pub fn limit(value: u64, of: Dimension) -> String {
    let (what, span) = match of {
        Dimension::Rpm => ("request", "minute"),
        Dimension::Tpm => ("input token", "minute"),
        Dimension::Rpd => ("request", "day"),
        Dimension::Tpd => ("input token", "day"),
        Dimension::Ipm => ("image", "minute"),
    };
    let plural = if value == 1 { "" } else { "s" };
    format!("{} {what}{plural} a {span}", grouped(value))
}

/// A number with its thousands apart.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push('_');
        }
        out.push(digit);
    }
    out
}

/// One attempt in a line: who served, or what was refused, why and until when.
#[must_use]
pub fn attempt(attempt: &Attempt) -> String {
    let label = &attempt.label;
    match (attempt.kind, attempt.available_at) {
        (Some(Kind::Served), _) => format!("{label} served"),
        (Some(Kind::Refused(cause)), Some(until)) => {
            format!("{label} refused: {cause}, until {}", moment(until))
        }
        (Some(Kind::Refused(cause)), None) => {
            let fix = attempt.fix.filter(|_| cause != Cause::FreeTierNotAvailable);
            let fix = fix.map(|fix| format!("\n    ({fix})")).unwrap_or_default();
            format!("{label} refused: {cause}, {}{fix}", lasting(cause))
        }
        (None, _) => format!("{label} did not answer: {}", attempt.message),
    }
}

/// What follows from a refusal that no wait ends.
#[must_use]
pub const fn lasting(cause: Cause) -> &'static str {
    match cause {
        Cause::FreeTierNotAvailable => "this project has no quota for the model",
        _ => "out of use until somebody mends it",
    }
}

/// Prints how an answer came about; true if no model gave it.
pub fn reply(reply: &Reply) -> bool {
    reply.attempts().iter().for_each(|made| println!("  {}", attempt(made)));
    if reply.degraded().is_some() {
        println!("  no key can serve; the callback answered: {}", reply.text());
    }
    reply.degraded().is_some()
}

/// The same for a stream, which is read to its end.
///
/// # Errors
/// The stream broke.
pub async fn stream(mut stream: GeminiStream) -> Result<bool, Failure> {
    stream.attempts().iter().for_each(|made| println!("  {}", attempt(made)));
    let (mut parts, mut text) = (0, String::new());
    while let Some(part) = stream.next().await {
        text.push_str(&part?.text());
        parts += 1;
    }
    match stream.degraded() {
        None => println!("    in {parts} parts: {}", text.trim()),
        Some(_) => println!("  no key can serve; the callback answered: {text}"),
    }
    Ok(stream.degraded().is_some())
}

/// Prints a failure in words, its causes included, and says so in the exit code.
#[must_use]
pub fn exit_code(done: Result<(), Failure>) -> ExitCode {
    let Err(failure) = done else { return ExitCode::SUCCESS };
    eprint!("error: {failure}");
    let mut cause = failure.source();
    while let Some(next) = cause {
        eprint!(": {next}");
        cause = Error::source(next);
    }
    eprintln!();
    ExitCode::FAILURE
}
