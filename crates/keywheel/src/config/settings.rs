//! From the file's settings to the builder's. Each has its row in docs/configuration.md.

use keywheel_pool::{LimitKind, Limits, Selection};
use keywheel_provider::{GeminiApi, OpenAiApi, Provider as _, http::Timeouts, upstream::Upstream};
use keywheel_settings::{
    Section,
    words::{DURATION, any_time, path, some_time},
};

use super::{
    embed_cache::embed_cache,
    keys::{Keys, PREFIX, keys, variable_name},
    ledger::ledger,
    read::Source,
    words::{self, RESET, Reset},
};
use crate::{GeminiBuilder, ModelFacts, RetryConfig};

/// The settings of the whole file, which are in no section.
pub(super) const WHOLE: [&str; 14] = [
    "account",
    "state",
    "provider",
    "base_url",
    "api_version",
    "selection",
    "deadline",
    "stream_deadline",
    "overflow_after",
    "exploration",
    "daily_checks",
    "fallback",
    "fallback_after",
    "watch_keys",
];

/// What a file says.
pub(super) struct Read {
    pub(super) client: GeminiBuilder,
    /// At least one key stands in the file itself.
    pub(super) holds_keys: bool,
}

/// Reads the whole file. What is wrong is noted in the section's faults.
pub(super) fn client(at: &mut Section<'_>, mut source: Source) -> Read {
    let keys = keys(at, &mut source, None);
    let mut to = GeminiBuilder::default().key_loader(keys.loader);
    to = place(at, &source, "provider", keys.are_named, to);
    to = state(at, &source, to);
    to = behaviour(at, to);
    to = ledger(at, &source, to);
    if let Some(interval) = at.text("watch_keys", DURATION, some_time) {
        to = to.watch_keys(interval);
    }
    to = sections(at, to);
    if let Some(section) = at.table("embed_cache") {
        to = embed_cache(section, &source, to);
    }
    Read { client: to, holds_keys: keys.in_the_file }
}

/// Reads what a client's own file and a gateway's have in common: `state`, `[upstream]`, and all but keys, a ledger and
/// the place of a client's own file. Unknown settings are left to the caller.
pub(super) fn embedded(at: &mut Section<'_>, mut source: Source) -> (GeminiBuilder, Keys) {
    let mut upstream = at.table("upstream");
    let prefix = upstream.as_mut().and_then(key_prefix);
    let keys = keys(at, &mut source, prefix);
    let mut to = GeminiBuilder::default().key_loader(keys.loader.clone());
    if let Some(mut upstream) = upstream {
        to = place(&mut upstream, &source, "kind", keys.are_named, to);
        upstream.end();
    } else if let Some(url) = source.base_url() {
        to = to.base_url(url);
    }
    to = state(at, &source, to);
    to = behaviour(at, to);
    (sections(at, to), keys)
}

fn key_prefix(upstream: &mut Section<'_>) -> Option<(usize, String)> {
    let prefix = upstream.text_at("key_prefix", PREFIX, variable_name)?;
    // `GEMINI_API_KEY_` and `GEMINI_API_KEY` are the same to everybody but a program.
    Some((prefix.0, prefix.1.trim_end_matches('_').to_owned()))
}

fn state(at: &mut Section<'_>, source: &Source, to: GeminiBuilder) -> GeminiBuilder {
    let state = at.text("state", "a path", path).map(|path| source.path(&path));
    match state.or_else(|| source.state()) {
        Some(state) => to.state_file(state),
        None => to,
    }
}

fn sections(at: &mut Section<'_>, mut to: GeminiBuilder) -> GeminiBuilder {
    if let Some(section) = at.table("limits") {
        to = limits(section, to);
    }
    if let Some(section) = at.table("reset") {
        to = resets(section, to);
    }
    if let Some(section) = at.table("model_facts") {
        to = model_facts(section, to);
    }
    if let Some(section) = at.table("timeouts") {
        to = timeouts(section, to);
    }
    if let Some(section) = at.table("retry") {
        to = retry(section, to);
    }
    to
}

/// Where it is, and what is spoken there: the setting `speaks`.
fn place(
    at: &mut Section<'_>,
    source: &Source,
    speaks: &'static str,
    keys_are_named: bool,
    mut to: GeminiBuilder,
) -> GeminiBuilder {
    let has_url = at.has("base_url");
    let provider = at.text_at(speaks, "one of \"gemini\", \"openai\"", provider);
    let url = at.text("base_url", "a URL", |url| {
        Upstream::check_base_url(url).map(|()| url.to_owned()).map_err(|fault| fault.to_string())
    });
    let other = provider.is_some_and(|(place, spoken)| match spoken {
        Speaks::Gemini => false,
        Speaks::OpenAi => {
            if !has_url {
                at.fault(place, speaks, "needs a base_url: nobody can guess it");
            }
            if !keys_are_named {
                let fault =
                    "needs keys of its own: set a prefix or a file in [keys], or add a [[key]]";
                at.fault(place, speaks, fault);
            }
            true
        }
    });
    if other {
        to = to.provider(OpenAiApi::new());
    }
    // What the environment says is where Gemini is spoken.
    if let Some(url) = url.or_else(|| source.base_url().filter(|_| !other)) {
        to = to.base_url(url);
    }
    let version = at.text("api_version", "a version such as \"v1beta\"", |version| {
        let checked = Upstream::check_version(version);
        checked.map(|()| version.to_owned()).map_err(|fault| fault.to_string())
    });
    if let Some(version) = version {
        to = to.api_version(version);
    }
    to
}

fn behaviour(at: &mut Section<'_>, mut to: GeminiBuilder) -> GeminiBuilder {
    let selections = [
        ("round_robin", Selection::RoundRobin),
        ("most_remaining", Selection::MostRemaining),
        ("failover", Selection::Failover),
    ];
    if let Some(selection) = at.choice("selection", &selections) {
        to = to.selection(selection);
    }
    let deadline = at.text("deadline", DURATION, |text| match text.trim() {
        "none" => Ok(None),
        text => some_time(text).map(Some).map_err(|fault| fault + ", or \"none\""),
    });
    to = match deadline {
        Some(Some(deadline)) => to.deadline(deadline),
        Some(None) => to.no_deadline(),
        None => to,
    };
    if let Some(deadline) = at.text("stream_deadline", DURATION, some_time) {
        to = to.stream_deadline(deadline);
    }
    let patience = at.text("overflow_after", DURATION, any_time);
    if let Some(patience) = patience {
        to = to.overflow_after(patience);
    }
    if let Some(models) = at.texts("fallback", "models", model) {
        to = to.fallback(models);
    }
    if let Some(patience) = at.text("fallback_after", DURATION, any_time) {
        to = to.fallback_after(patience);
    }
    if let Some(on) = at.boolean("exploration") {
        to = to.exploration(on);
    }
    if at.boolean("daily_checks") == Some(false) {
        to = to.without_daily_checks();
    }
    to
}

/// `[limits."<model>"]`: the names inside are the user's.
fn limits(at: Section<'_>, mut to: GeminiBuilder) -> GeminiBuilder {
    for (model, mut section) in at.named("model") {
        if is_cut_at_a_dot(&section, "limits") {
            continue;
        }
        if model.is_empty() || model.strip_suffix('*').unwrap_or(&model).contains('*') {
            section.own_fault("must be a model, a beginning such as \"gemini-3.5-*\", or \"*\"");
        }
        let limits = Limits {
            rpm: section.number("rpm", 1),
            tpm: section.number("tpm", 1),
            rpd: section.number("rpd", 1),
            tpd: section.number("tpd", 1),
        };
        section.end();
        to = to.limits(&model, limits);
    }
    to
}

/// `[model_facts."<model>"]`: the names inside are the user's.
fn model_facts(at: Section<'_>, mut to: GeminiBuilder) -> GeminiBuilder {
    for (name, mut section) in at.named("model") {
        if is_cut_at_a_dot(&section, "model_facts") {
            continue;
        }
        if let Err(fault) = model(&name) {
            section.own_fault(&fault);
        }
        let facts = ModelFacts {
            input_token_limit: section.number("input_token_limit", 1),
            output_token_limit: section.number("output_token_limit", 1),
        };
        section.end();
        to = to.model_facts(name, facts);
    }
    to
}

/// [limits.gemini-3.5-flash] is, in TOML, a section `5-flash` in a section `gemini-3`. Noted as a fault.
fn is_cut_at_a_dot(section: &Section<'_>, of: &str) -> bool {
    let is_cut = section.has_tables();
    if is_cut {
        section.own_fault(&format!("a model's name with a dot needs quotes: [{of}.\"<model>\"]"));
    }
    is_cut
}

fn resets(mut at: Section<'_>, mut to: GeminiBuilder) -> GeminiBuilder {
    for (name, kind) in [
        ("requests_per_minute", LimitKind::RequestsPerMinute),
        ("tokens_per_minute", LimitKind::TokensPerMinute),
        ("requests_per_day", LimitKind::RequestsPerDay),
        ("tokens_per_day", LimitKind::TokensPerDay),
        ("tool", LimitKind::Tool),
        ("billing", LimitKind::Billing),
        ("unspecified", LimitKind::Unspecified),
    ] {
        match at.text(name, RESET, words::reset) {
            // The pool's own default knows more than a strategy can tell: the day's date.
            Some(Reset::PacificMidnight) if kind == LimitKind::RequestsPerDay => {}
            Some(reset) => to = to.reset_strategy(kind, reset),
            None => {}
        }
    }
    at.end();
    to
}

fn timeouts(mut at: Section<'_>, to: GeminiBuilder) -> GeminiBuilder {
    let default = Timeouts::default();
    let mut read = |name, default| at.text(name, DURATION, some_time).unwrap_or(default);
    let timeouts = Timeouts {
        connect: read("connect", default.connect),
        first_byte: read("first_byte", default.first_byte),
        idle: read("idle", default.idle),
    };
    at.end();
    to.timeouts(timeouts)
}

fn retry(mut at: Section<'_>, to: GeminiBuilder) -> GeminiBuilder {
    let mut retry = RetryConfig::default();
    if let Some(most) = at.number("max_retries", 0) {
        retry.max_retries = usize::try_from(most).unwrap_or(usize::MAX);
    }
    if let Some(pause) = at.text("first_pause", DURATION, any_time) {
        retry.first_pause = pause;
    }
    if let Some(pause) = at.text("max_pause", DURATION, any_time) {
        retry.max_pause = pause;
    }
    let mut number = |name, to: &mut u32| {
        if let Some(number) = at.number(name, 0) {
            *to = u32::try_from(number).unwrap_or(u32::MAX);
        }
    };
    number("budget_percent", &mut retry.budget_percent);
    number("budget_reserve", &mut retry.budget_reserve);
    number("breaker_after", &mut retry.breaker_after);
    at.end();
    to.retry(retry)
}

#[derive(Debug, Clone, Copy)]
enum Speaks {
    Gemini,
    OpenAi,
}

fn provider(text: &str) -> Result<Speaks, String> {
    match text.trim() {
        "gemini" => Ok(Speaks::Gemini),
        "openai" => Ok(Speaks::OpenAi),
        _ => Err("must be \"gemini\" or \"openai\" (for every API of its form)".to_owned()),
    }
}

/// A model's name, or what is wrong with it.
fn model(text: &str) -> Result<String, String> {
    let name = text.trim();
    match GeminiApi.model(name) {
        Ok(_) => Ok(name.to_owned()),
        Err(_) => Err("must be the name of a model".to_owned()),
    }
}
