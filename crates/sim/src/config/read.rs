//! Reads a [`SimConfig`] from TOML and reports everything that is wrong with it at once.

use std::{collections::BTreeMap, fmt, time::Duration};

use chrono::{DateTime, Utc};
use keywheel_core::{ApiKey, Tier, scrub::scrub};
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::{
    Faults, FilesConfig, KeyConfig, KeyState, Limits, ModelConfig, Outage, ProjectConfig,
    SimConfig, check,
};

/// All that is wrong with a configuration, each fault with its place. Never holds a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<String>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => write!(f, "the simulator's configuration has a fault: {one}"),
            all => {
                write!(f, "the simulator's configuration has {} faults:", all.len())?;
                all.iter().try_for_each(|fault| write!(f, "\n  - {fault}"))
            }
        }
    }
}

impl std::error::Error for ConfigErrors {}

pub(super) fn from_toml(text: &str) -> Result<SimConfig, ConfigErrors> {
    let table = text.parse::<Table>().map_err(|error| {
        // Not the error's own Display: it quotes the line, which may hold a key.
        let line = error.span().map_or(0, |span| text[..span.start].lines().count().max(1));
        ConfigErrors(vec![scrub(&format!("line {line}: {}", error.message()), &[]).into_owned()])
    })?;
    let mut faults = Vec::new();
    let config = config(Section::new(table, String::new(), &mut faults));
    faults.extend(check::faults(&config));
    if faults.is_empty() { Ok(config) } else { Err(ConfigErrors(faults)) }
}

fn config(mut at: Section<'_>) -> SimConfig {
    let mut config = SimConfig::default();
    at.set("face", &mut config.face);
    at.set("seed", &mut config.seed);
    at.set("windows", &mut config.windows);
    at.set("day_hint", &mut config.day_hint);
    at.set("unknown_keys", &mut config.unknown_keys);
    if let Some(latency) = at.take::<Latency>("latency_ms") {
        config.latency = latency.range();
    }
    if let Some(ms) = at.take("chunk_pause_ms") {
        config.chunk_pause = Duration::from_millis(ms);
    }
    for (name, section) in at.named_sections("models") {
        let model = model(at.open(section, &format!("models.{name}")));
        config.models.insert(name, model);
    }
    for (i, section) in at.listed("projects").into_iter().enumerate() {
        let project = project(at.open(section, &format!("projects[{}]", i + 1)));
        config.projects.push(project);
    }
    if let Some(section) = at.section("faults") {
        config.faults = rates(at.open(section, "faults"));
    }
    for (i, section) in at.listed("outages").into_iter().enumerate() {
        let outage = outage(at.open(section, &format!("outages[{}]", i + 1)));
        config.outages.extend(outage);
    }
    at.set("cache_min_tokens", &mut config.cache_min_tokens);
    at.set("gzip", &mut config.gzip);
    if let Some(section) = at.section("files") {
        config.files = files(at.open(section, "files"));
    }
    at.end();
    config
}

fn outage(mut at: Section<'_>) -> Option<Outage> {
    let model = at.take::<String>("model");
    if model.is_none() {
        at.fault("model", "is missing");
    }
    let (from, until) = (at.moment("from"), at.moment("until"));
    at.end();
    Some(Outage { model: model?, from: from?, until: until? })
}

fn files(mut at: Section<'_>) -> FilesConfig {
    let mut files = FilesConfig::default();
    if let Some(hours) = at.take::<u32>("lifetime_hours") {
        files.lifetime = Duration::from_secs(u64::from(hours) * 3_600);
    }
    if let Some(ms) = at.take("processing_ms") {
        files.processing = Duration::from_millis(ms);
    }
    at.set("chunk_bytes", &mut files.chunk_bytes);
    at.end();
    files
}

#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "expected milliseconds, or [from, to]")]
enum Latency {
    Always(u64),
    Between([u64; 2]),
}

impl Latency {
    fn range(self) -> (Duration, Duration) {
        let (from, to) = match self {
            Self::Always(ms) => (ms, ms),
            Self::Between([from, to]) => (from, to),
        };
        (Duration::from_millis(from), Duration::from_millis(to))
    }
}

fn model(mut at: Section<'_>) -> ModelConfig {
    let mut model = ModelConfig::free(Limits::new());
    at.set("embeds", &mut model.embeds);
    if model.embeds {
        model.input_token_limit = ModelConfig::embedding(Limits::new()).input_token_limit;
    }
    model.internal_name = at.take("internal_name");
    at.set("input_token_limit", &mut model.input_token_limit);
    at.set("output_token_limit", &mut model.output_token_limit);
    at.set("dimensions", &mut model.dimensions);
    model.continue_after = at.take("continue_after");
    at.set("signatures", &mut model.signatures);
    model.latency = at.take::<Latency>("latency_ms").map(Latency::range);
    if let Some(section) = at.section("faults") {
        model.faults = Some(rates(at.open(section, "faults")));
    }
    for (name, target) in [("free", &mut model.free), ("paid", &mut model.paid)] {
        if let Some(section) = at.section(name) {
            *target = limits(at.open(section, name));
        }
    }
    at.end();
    model
}

fn limits(mut at: Section<'_>) -> Limits {
    let limits = Limits {
        rpm: at.take("rpm"),
        tpm: at.take("tpm"),
        rpd: at.take("rpd"),
        tpd: at.take("tpd"),
    };
    at.end();
    limits
}

fn project(mut at: Section<'_>) -> ProjectConfig {
    let name = at.take::<String>("name");
    if name.is_none() {
        at.fault("name", "is missing");
    }
    let mut project = ProjectConfig::new(name.unwrap_or_default());
    at.set("number", &mut project.number);
    at.set::<Tier>("tier", &mut project.tier);
    at.set("state", &mut project.state);
    at.set("reset_late_s", &mut project.reset_late_s);
    at.set("refuses_tools", &mut project.refuses_tools);
    at.set("refuses_caches", &mut project.refuses_caches);
    at.set("closed_models", &mut project.closed_models);
    if let Some(zone) = at.take::<String>("reset_zone") {
        match zone.parse() {
            Ok(zone) => project.reset_zone = zone,
            Err(_) => at.fault("reset_zone", "is no time zone such as \"America/Los_Angeles\""),
        }
    }
    project.limits = at
        .named_sections("limits")
        .into_iter()
        .map(|(model, section)| {
            let limits = limits(at.open(section, &format!("limits.{model}")));
            (model, limits)
        })
        .collect::<BTreeMap<_, _>>();
    for (i, value) in at.list("keys").into_iter().enumerate() {
        let place = format!("keys[{}]", i + 1);
        project.keys.extend(key(&mut at, value, &place));
    }
    at.end();
    project
}

/// A key is a string, or a table `{ key = "…", state = "expired" }`. What it says is never repeated.
fn key(at: &mut Section<'_>, value: Value, place: &str) -> Option<KeyConfig> {
    let (text, state) = match value {
        Value::String(text) => (text, KeyState::Ok),
        Value::Table(table) => {
            let mut inner = at.open(table, place);
            let state = inner.take("state").unwrap_or_default();
            let text = inner.take_silently("key");
            inner.end();
            (text?, state)
        }
        _ => {
            at.fault(place, "is neither a string nor a table with `key` and `state`");
            return None;
        }
    };
    match ApiKey::new(text) {
        Ok(key) => Some(KeyConfig { key, state }),
        Err(error) => {
            at.fault(place, &error.to_string());
            None
        }
    }
}

fn rates(mut at: Section<'_>) -> Faults {
    let mut faults = Faults::default();
    for (name, rate) in faults.named() {
        at.set(name, rate);
    }
    at.end();
    faults
}

/// A table being read: entries are taken out one by one, faults are noted, and what is left at the end is
/// unknown.
struct Section<'a> {
    table: Table,
    place: String,
    faults: &'a mut Vec<String>,
}

impl<'a> Section<'a> {
    const fn new(table: Table, place: String, faults: &'a mut Vec<String>) -> Self {
        Self { table, place, faults }
    }

    /// A table inside this one.
    fn open(&mut self, table: Table, name: &str) -> Section<'_> {
        let place = self.path(name);
        Section { table, place, faults: self.faults }
    }

    fn take<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let value = self.table.remove(name)?;
        match value.try_into() {
            Ok(value) => Some(value),
            Err(error) => {
                self.fault(name, error.message());
                None
            }
        }
    }

    /// Like [`take`](Self::take) for a secret string.
    fn take_silently(&mut self, name: &str) -> Option<String> {
        match self.table.remove(name) {
            Some(Value::String(text)) => Some(text),
            Some(_) => {
                self.fault(name, "is not a string");
                None
            }
            None => {
                self.fault(name, "is missing");
                None
            }
        }
    }

    /// A moment: a date-time of TOML, or a string of the same form.
    fn moment(&mut self, name: &str) -> Option<DateTime<Utc>> {
        let text = match self.table.remove(name) {
            Some(Value::Datetime(at)) => at.to_string(),
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        let moment = text.parse().ok();
        if moment.is_none() {
            self.fault(name, "is no moment such as 2026-11-30T07:00:00Z");
        }
        moment
    }

    fn set<T: DeserializeOwned>(&mut self, name: &str, target: &mut T) {
        if let Some(value) = self.take(name) {
            *target = value;
        }
    }

    fn section(&mut self, name: &str) -> Option<Table> {
        match self.table.remove(name)? {
            Value::Table(table) => Some(table),
            _ => {
                self.fault(name, "is not a table");
                None
            }
        }
    }

    /// The tables in the table `name`.
    fn named_sections(&mut self, name: &str) -> Vec<(String, Table)> {
        let mut out = Vec::new();
        for (inner, value) in self.section(name).unwrap_or_default() {
            match value {
                Value::Table(table) => out.push((inner, table)),
                _ => self.fault(&format!("{name}.{inner}"), "is not a table"),
            }
        }
        out
    }

    fn list(&mut self, name: &str) -> Vec<Value> {
        match self.table.remove(name) {
            None => Vec::new(),
            Some(Value::Array(values)) => values,
            Some(_) => {
                self.fault(name, "is not a list");
                Vec::new()
            }
        }
    }

    /// The tables in the list `name`.
    fn listed(&mut self, name: &str) -> Vec<Table> {
        let mut out = Vec::new();
        for (i, value) in self.list(name).into_iter().enumerate() {
            match value {
                Value::Table(table) => out.push(table),
                _ => self.fault(&format!("{name}[{}]", i + 1), "is not a table"),
            }
        }
        out
    }

    fn end(mut self) {
        let unknown: Vec<_> = std::mem::take(&mut self.table).into_iter().collect();
        for (name, _) in unknown {
            self.fault(&name, "is not a setting");
        }
    }

    fn fault(&mut self, name: &str, what: &str) {
        let place = self.path(name);
        self.faults.push(scrub(&format!("{place}: {}", what.trim_end()), &[]).into_owned());
    }

    fn path(&self, name: &str) -> String {
        if self.place.is_empty() { name.to_owned() } else { format!("{}.{name}", self.place) }
    }
}
