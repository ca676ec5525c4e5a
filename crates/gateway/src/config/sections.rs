//! The sections of the file, one by one. What is wrong is noted in them.

use std::{
    net::{Ipv4Addr, SocketAddr},
    num::NonZero,
};

use keywheel::{
    ConfigFile,
    ledger::{LedgerConfig, Limit, Period},
    settings::{
        Section,
        words::{DURATION, any_time, meant, shown, some_time},
    },
};

use super::{Cors, Limits, Queue};
use crate::route::Dialect;

/// Where requests go unless it is said otherwise.
const GOOGLE: &str = "https://generativelanguage.googleapis.com";

/// What a degraded answer says in braces.
const MOMENT: &str = "next_available_at";

/// Where requests go, for the gateway's own use.
#[derive(Debug)]
pub(super) struct Upstream {
    /// What is spoken there.
    pub(super) dialect: Dialect,
    /// The version of paths that name none.
    pub(super) version: String,
    pub(super) base_url: String,
}

impl Upstream {
    /// Where requests go if not to Google.
    pub(super) fn elsewhere(&self) -> Option<String> {
        Some(self.base_url.clone()).filter(|url| url.trim_end_matches('/') != GOOGLE)
    }
}

/// `[upstream]`, of which the client reads all.
pub(super) fn upstream(file: &ConfigFile, at: &Section<'_>) -> Upstream {
    let said = |name| at.peek_text("upstream", name).map(|text| text.trim().to_owned());
    let of_environment = || {
        let variables = ["GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"];
        variables.into_iter().find_map(|name| file.variable(name))
    };
    let base_url = said("base_url").or_else(of_environment).unwrap_or_else(|| GOOGLE.to_owned());
    let in_base = || {
        let last = base_url.trim_end_matches('/').rsplit('/').next()?;
        ["v1", "v1beta", "v1alpha"].contains(&last).then(|| last.to_owned())
    };
    let dialect = match said("kind").as_deref() {
        Some("openai") => Dialect::OpenAi,
        _ => Dialect::Native,
    };
    let version = said("api_version").or_else(in_base).unwrap_or_else(|| "v1beta".to_owned());
    Upstream { dialect, version, base_url }
}

/// `[allowance]`: the caps of all projects together.
pub(super) fn allowance(mut at: Section<'_>) -> Vec<Limit> {
    let periods = [("day", Period::Day), ("month", Period::Month), ("total", Period::Total)];
    let of_period = at.has("tokens") || at.has("calls");
    let (tokens, calls) = (at.number("tokens", 0), at.number("calls", 0));
    let has_period = at.has("period");
    let period = at.choice("period", &periods);
    if of_period && !has_period {
        at.own_fault("of which period is it? Set period = \"day\", \"month\" or \"total\"");
    }
    if has_period && !of_period {
        at.own_fault("a period of what? Set tokens or calls");
    }
    let period = period.unwrap_or(Period::Day);
    let mut limits: Vec<_> = tokens.map(|cap| Limit::tokens(period, cap)).into_iter().collect();
    limits.extend(calls.map(|cap| Limit::calls(period, cap)));
    limits.extend(Limit::all_in(&mut at, "per_model"));
    at.end();
    limits
}

/// `[degraded]`: an answer for when no key can serve.
pub(super) fn degraded(mut at: Section<'_>) -> Option<String> {
    let text = at.text("text", "an answer", |text| match text.trim() {
        "" => Err("must not be empty".to_owned()),
        _ => placeholders(text).map(|()| text.to_owned()),
    });
    at.end();
    text
}

/// What is in braces is either the moment or meant as it stands; but a slip of the pen is neither.
fn placeholders(text: &str) -> Result<(), String> {
    let words = text.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0));
    for word in words.filter(|word| *word != MOMENT) {
        if meant(word, &[MOMENT]).is_some() {
            return Err(format!(
                "{{{}}} is replaced by nothing; did you mean {{{MOMENT}}}?",
                shown(word)
            ));
        }
    }
    Ok(())
}

/// `[queue]`.
pub(super) fn queue(mut at: Section<'_>) -> Queue {
    let mut queue = Queue::default();
    queue.wait = at.text("wait", DURATION, any_time).unwrap_or(queue.wait);
    if let Some(depth) = at.number("depth", 0) {
        queue.depth = usize::try_from(depth).unwrap_or(usize::MAX);
    }
    at.end();
    queue
}

/// `[cors]`, and where it stands.
pub(super) fn cors(mut at: Section<'_>) -> (usize, Cors) {
    let place = at.place_of("origins").unwrap_or_else(|| at.at());
    let origins = at.texts("origins", "origins", origin).unwrap_or_default();
    at.end();
    (place, Cors { origins })
}

/// `[stateful]`.
pub(super) fn stateful(mut at: Section<'_>) -> Option<String> {
    let project = at.text("quota_project", "a quota project", |text| match text.trim() {
        "" => Err("must not be empty".to_owned()),
        name => Ok(name.to_owned()),
    });
    at.end();
    project
}

/// `[serve]`: limits on what clients may send.
pub(super) fn limits(mut at: Section<'_>) -> Limits {
    let mut limits = Limits::default();
    limits.body = at.text("largest_body", SIZE, size).unwrap_or(limits.body);
    limits.upload = at.text("largest_upload", SIZE, size).unwrap_or(limits.upload);
    limits.head_time = at.text("head_time", DURATION, some_time).unwrap_or(limits.head_time);
    limits.idle_time = at.text("idle_time", DURATION, some_time).unwrap_or(limits.idle_time);
    limits.drain_time = at.text("drain_time", DURATION, any_time).unwrap_or(limits.drain_time);
    if let Some(most) = at.number("connections", 1) {
        limits.connections = usize::try_from(most).unwrap_or(usize::MAX);
    }
    if let Some(threads) = at.number("threads", 1) {
        limits.threads = NonZero::new(usize::try_from(threads).unwrap_or(usize::MAX));
    }
    at.end();
    limits
}

/// `[ledger]`, but for what stands in other sections here.
pub(super) fn ledger(file: &ConfigFile, mut section: Section<'_>) -> LedgerConfig {
    for (name, place) in [
        ("allowance", "[allowance]"),
        ("accounts", "[projects.<name>]"),
        ("any_account", "[projects.<name>]"),
    ] {
        section.refuse(name, &format!("in this file it is {place}"));
    }
    let mut ledger = LedgerConfig::from_section(section);
    ledger.path = ledger.path.map(|path| file.path(&path.to_string_lossy()));
    ledger
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let text = text.trim();
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let port = text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':'));
    if let Some(Ok(port)) = port.map(str::parse) {
        let ip = if text.starts_with(':') { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
        return Ok(SocketAddr::new(ip.into(), port));
    }
    Err("must be an address and a port, such as \"127.0.0.1:8787\", \"[::1]:8787\" or \"0.0.0.0:8787\"".to_owned())
}

pub(super) fn host(text: &str) -> Result<String, String> {
    let name = text.trim().to_ascii_lowercase();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if name.is_empty() || !name.chars().all(plain) {
        return Err("must be a name without a port, such as \"gateway.internal\"".to_owned());
    }
    Ok(name)
}

fn origin(text: &str) -> Result<String, String> {
    let origin = text.trim();
    if origin == "*" {
        return Ok(origin.to_owned());
    }
    let is_origin = origin.parse::<http::Uri>().is_ok_and(|uri| {
        uri.scheme().is_some()
            && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
            && uri.path_and_query().is_none_or(|path| path.as_str() == "/")
    });
    if !is_origin || origin.ends_with('/') {
        return Err("must be an origin such as \"https://app.example\", or \"*\"".to_owned());
    }
    Ok(origin.to_ascii_lowercase())
}

/// What a size looks like.
const SIZE: &str = "a size such as \"128 MB\" or \"2 GB\"";

pub(super) fn size(text: &str) -> Result<u64, String> {
    let fault = || format!("must be {SIZE}");
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..end].parse().map_err(|_| fault())?;
    let unit = match text[end..].trim().to_ascii_lowercase().as_str() {
        "b" => 1,
        "kb" => 1 << 10,
        "mb" => 1 << 20,
        "gb" => 1 << 30,
        _ => return Err(fault()),
    };
    number.checked_mul(unit).filter(|size| *size > 0).ok_or_else(fault)
}
