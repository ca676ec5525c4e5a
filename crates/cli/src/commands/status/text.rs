//! `status` for people.

use std::fmt::Write as _;

use chrono::{DateTime, TimeDelta, Utc};
use keywheel::Tier;

use super::view::{Bucket, Key, View};
use crate::{
    moment,
    output::{Paint, Table, bar},
};

/// The whole page.
pub(super) fn text(view: &View, now: DateTime<Utc>, paint: Paint) -> String {
    let mut text = String::new();
    if view.keys.is_empty() {
        text +=
            "no keys: put one into the environment, GEMINI_API_KEY_1=…, or name a configuration\n";
    } else {
        text += &keys(&view.keys, now, paint).to_string();
    }
    if !view.buckets.is_empty() {
        let _ = write!(text, "\n{}", buckets(&view.buckets, now, paint));
    }
    for same in &view.same_project {
        let sure = if same.proven { "share" } else { "probably share" };
        let _ = writeln!(
            text,
            "{} {sure} one quota: {}. GEMINI_PROJECT_<SUFFIX> says so to keywheel.",
            same.keys.join(", "),
            same.evidence
        );
    }
    for note in &view.notes {
        let _ = writeln!(text, "{}", paint.faint(note));
    }
    for gateway in &view.gateways {
        let _ = writeln!(
            text,
            "{}",
            paint.faint(&format!("gateway on {}, process {}", gateway.address, gateway.pid))
        );
    }
    let path = view.state.path.as_deref().unwrap_or("nowhere");
    let saved = view.state.saved_at.as_ref().and_then(|at| moment::parse(at).ok());
    let saved = match saved {
        Some(at) => format!("saved {} ago", moment::left(now, at)),
        None if view.state.exists => "never saved".to_owned(),
        None => "not there yet".to_owned(),
    };
    let _ = writeln!(text, "{}", paint.faint(&format!("state {path}, {saved}")));
    text
}

fn keys(keys: &[Key], now: DateTime<Utc>, paint: Paint) -> Table {
    let mut table = Table::new(["key", "fingerprint", "project", "state", ""]);
    for key in keys {
        let state = match key.state {
            "ready" => paint.good("ready"),
            "cooling" => paint.waiting("cooling"),
            dead => paint.bad(dead),
        };
        let mut more = match (&key.quarantine, &key.available_at) {
            (Some(why), _) => format!("{} {}", why.cause, why.detail),
            (None, Some(at)) => until(at, now),
            (None, None) => String::new(),
        };
        if key.tier == Some(Tier::Paid) {
            more = format!("paid {more}");
        }
        if !key.here {
            more = format!("{more} (only in the state file)");
        }
        let project = match key.quota_project.strip_prefix("key:") {
            Some(_) => "its own".to_owned(),
            None => key.quota_project.clone(),
        };
        let more = more.trim().to_owned();
        table.row([key.label.clone(), key.fingerprint.clone(), project, state, more]);
    }
    table
}

fn buckets(buckets: &[Bucket], now: DateTime<Utc>, paint: Paint) -> Table {
    let mut table = Table::new(["model", "key", "today", "", "limits", "comes back", ""]);
    for bucket in buckets {
        let (used, of) = (bucket.day_requests, bucket.requests_a_day());
        let today = match of {
            Some(limit) => format!("{used} of {limit}"),
            None => used.to_string(),
        };
        let filled = of.map_or_else(String::new, |limit| bar(used, limit));
        let limits = bucket
            .limits
            .iter()
            .map(|limit| format!("{} {} ({})", limit.dimension, limit.value, limit.source));
        let causes: Vec<_> = bucket.cooldowns.iter().map(|one| one.cause.as_str()).collect();
        let back = match (&bucket.available_at, bucket.ready) {
            (_, true) => paint.good("now"),
            (Some(at), false) => paint.waiting(&until(at, now)),
            (None, false) => paint.bad("not by waiting"),
        };
        table.row([
            bucket.model.clone(),
            bucket.keys.join(" "),
            today,
            filled,
            limits.collect::<Vec<_>>().join(", "),
            format!("{back} {}", causes.join(" ")).trim().to_owned(),
            time_left(bucket, now),
        ]);
    }
    table
}

/// The wait as a bar that empties, from when it began.
fn time_left(bucket: &Bucket, now: DateTime<Utc>) -> String {
    if bucket.ready {
        return String::new();
    }
    let parsed = |at: &Option<String>| at.as_ref().and_then(|at| moment::parse(at).ok());
    let Some(until) = parsed(&bucket.available_at) else { return String::new() };
    let begun = bucket.cooldowns.iter().filter_map(|one| parsed(&one.since)).min();
    let whole = until - begun.unwrap_or(now);
    let ms = |delta: TimeDelta| u64::try_from(delta.num_milliseconds()).unwrap_or(0);
    bar(ms(until - now), ms(whole))
}

fn until(at: &str, now: DateTime<Utc>) -> String {
    match moment::parse(at) {
        Ok(at) => format!("in {} ({})", moment::left(at, now), moment::here(at, now)),
        Err(_) => at.to_owned(),
    }
}
