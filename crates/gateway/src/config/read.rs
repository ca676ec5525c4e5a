//! From a file and the environment to a configuration.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    time::Duration,
};

use keywheel::{
    ApiKey, ConfigErrors, ConfigFault, ConfigFile, EmbeddedClient,
    ledger::{AccountId, LedgerConfig, Limit, Period},
    settings::{
        Section,
        words::{DURATION, any_time, some_time},
    },
};

use super::{
    Config, Cors, Limits, Queue, Settings,
    project::{Read, fixed_charges, projects},
    warning,
};
use crate::{
    auth::Access,
    project::{DEFAULT_PROJECT, Project, Projects},
    route::Dialect,
    token::Token,
};

/// Where it listens unless it is said otherwise.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8787);

const UNGUARDED: &str = "everybody who reaches this address could spend your quota: give the projects tokens \
     (`keywheel project add`), set KEYWHEEL_TOKEN, or listen on 127.0.0.1";

/// The settings of the whole file, which are in no section.
const WHOLE: [&str; 13] = [
    "listen",
    "auth",
    "hosts",
    "watch",
    "state",
    "selection",
    "deadline",
    "stream_deadline",
    "overflow_after",
    "fallback",
    "fallback_after",
    "exploration",
    "daily_checks",
];

/// Reads `file`; `is_file` if there is one in truth.
pub(super) fn config(file: &ConfigFile, is_file: bool) -> Result<Config, ConfigErrors> {
    let mut of_environment = Vec::new();
    let surroundings = Surroundings::read(file, &mut of_environment);
    let read = file.read(&WHOLE, |whole| read(file, whole, &surroundings, &mut of_environment));
    let mut config = match (read, of_environment.is_empty()) {
        (Ok(config), true) => config,
        (read, _) => {
            let of_file = read.err().map(|errors| errors.faults().to_vec()).unwrap_or_default();
            let faults = of_environment.into_iter().chain(of_file);
            let place = if is_file { file.location() } else { Path::new("environment") };
            return Err(ConfigErrors::new(place, faults));
        }
    };
    config.settings.file = is_file.then(|| file.location().to_owned());
    Ok(config)
}

/// What variables say, besides keys.
#[derive(Debug, Default)]
struct Surroundings {
    /// The address, and the variable that says it.
    listen: Option<(SocketAddr, &'static str)>,
    token: Option<Token>,
    tokens_per_day: Option<u64>,
    ledger: Option<String>,
}

impl Surroundings {
    fn read(file: &ConfigFile, faults: &mut Vec<ConfigFault>) -> Self {
        let mut fault = |name: &str, what: &str| {
            faults.push(ConfigFault::new(None, format!("{name}: {what}")));
        };
        let ledger = file.variable("KEYWHEEL_LEDGER").or_else(|| file.variable("LEDGER_DB"));
        let mut read = Self { ledger, ..Self::default() };
        if let Some(port) = file.variable("PORT") {
            match port.parse() {
                Ok(port) => {
                    read.listen =
                        Some((SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port), "PORT"));
                }
                Err(_) => fault("PORT", "must be a port, a number from 0 to 65535"),
            }
        }
        if let Some(listen) = file.variable("KEYWHEEL_LISTEN") {
            match address(&listen) {
                Ok(listen) => read.listen = Some((listen, "KEYWHEEL_LISTEN")),
                Err(what) => fault("KEYWHEEL_LISTEN", &what),
            }
        }
        match file.secret("KEYWHEEL_TOKEN").map(|token| token.as_ref().map(chosen)) {
            Ok(None) => {}
            Ok(Some(Ok(token))) => read.token = Some(token),
            Ok(Some(Err(what))) | Err(what) => fault("KEYWHEEL_TOKEN", &what),
        }
        if let Some(tokens) = file.variable("KEYWHEEL_TOKENS_PER_DAY") {
            match tokens.replace('_', "").parse() {
                Ok(tokens) => read.tokens_per_day = Some(tokens),
                Err(_) => fault("KEYWHEEL_TOKENS_PER_DAY", "must be a whole number"),
            }
        }
        read
    }
}

fn chosen(token: &ApiKey) -> Result<Token, String> {
    Token::chosen(token.expose())
}

fn read(
    file: &ConfigFile,
    at: &mut Section<'_>,
    around: &Surroundings,
    of_environment: &mut Vec<ConfigFault>,
) -> Config {
    let listen = at.text_at("listen", "an address such as \"127.0.0.1:8787\"", address);
    let auth = at.choice("auth", &[("tokens", true), ("off", false)]);
    let hosts = at.texts("hosts", "host names", host).unwrap_or_default();
    let watch = at.text("watch", DURATION, any_time).unwrap_or(Duration::from_secs(5));
    let (upstream, api_version) = upstream(at);
    let allowance = at.table("allowance").map(allowance).unwrap_or_default();
    let degraded = at.table("degraded").and_then(degraded);
    let queue = at.table("queue").map(queue).unwrap_or_default();
    let cors = at.table("cors").map(cors).unwrap_or_default();
    let quota_project = at.table("stateful").and_then(stateful);
    let charges = at.table("unbounded").map(fixed_charges).unwrap_or_default();
    let limits = at.table("serve").map(limits).unwrap_or_default();
    let mut found = at.table("projects").map(projects).unwrap_or_default();
    if found.is_empty() {
        let name = AccountId::new(DEFAULT_PROJECT).expect("it is a name");
        found.push(Read { project: Project::new(name), at: 0 });
    }
    for Read { project, .. } in &mut found {
        for (route, charge) in &charges {
            project.fixed_charges.entry(*route).or_insert(*charge);
        }
    }
    let access = Access {
        tokens: tokens(at, auth, &mut found, around),
        origins: cors.origins.clone(),
        hosts,
    };
    let is_public = |address: SocketAddr| !address.ip().to_canonical().is_loopback();
    let listen = match (around.listen, listen) {
        (Some((address, variable)), _) => {
            if !access.tokens && is_public(address) {
                of_environment.push(ConfigFault::new(None, format!("{variable}: {UNGUARDED}")));
            }
            address
        }
        (None, Some((place, address))) => {
            if !access.tokens && is_public(address) {
                at.fault(place, "listen", UNGUARDED);
            }
            address
        }
        (None, None) => LISTEN,
    };
    let mut ledger = at.table("ledger").map(|section| ledger(file, section)).unwrap_or_default();
    ledger.path = ledger.path.or_else(|| around.ledger.as_ref().map(Into::into));
    ledger.rules.allowance = allowance;
    if let Some(tokens) = around.tokens_per_day {
        ledger.rules.allowance.push(Limit::tokens(Period::Day, tokens));
    }
    for Read { project, .. } in &found {
        ledger.rules.accounts.insert(project.name.clone(), project.rules());
    }
    let EmbeddedClient { builder, keys, .. } = file.client(at);
    let warnings = ledger.rules.overcommitments().iter().map(warning).collect();
    Config {
        settings: Settings {
            file: None,
            listen,
            upstream,
            api_version,
            projects: Projects::new(found.into_iter().map(|read| read.project)),
            access,
            degraded,
            queue,
            cors,
            quota_project,
            fixed_charges: charges,
            limits,
            watch: Some(watch).filter(|watch| !watch.is_zero()),
        },
        client: builder,
        keys,
        ledger,
        warnings,
    }
}

/// Whether tokens have to be shown. Tokens of the environment are given to the projects that have none.
fn tokens(
    at: &Section<'_>,
    asked_for: Option<bool>,
    projects: &mut [Read],
    around: &Surroundings,
) -> bool {
    if let Some(token) = &around.token {
        for Read { project, .. } in projects.iter_mut().filter(|it| it.project.tokens.is_empty()) {
            project.tokens.push(token.hash());
        }
    }
    let some_have = projects.iter().any(|it| !it.project.tokens.is_empty());
    let wanted = asked_for.unwrap_or(some_have);
    if wanted {
        for Read { project, at: place } in projects.iter().filter(|it| it.project.tokens.is_empty())
        {
            at.faults().add(*place, format!(
                "projects.{}: has no token, so nobody could use it: `keywheel project rotate {0}` makes one",
                project.name,
            ));
        }
    }
    wanted
}

/// `[upstream]`, of which the client reads the rest.
fn upstream(at: &mut Section<'_>) -> (Dialect, String) {
    let kind = at.peek_text("upstream", "kind");
    let version = at.peek_text("upstream", "api_version");
    let dialect = if kind.as_deref().map(str::trim) == Some("openai") {
        Dialect::OpenAi
    } else {
        Dialect::Native
    };
    (dialect, version.unwrap_or_else(|| "v1beta".to_owned()))
}

/// `[allowance]`: the caps of all projects together.
fn allowance(mut at: Section<'_>) -> Vec<Limit> {
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
fn degraded(mut at: Section<'_>) -> Option<String> {
    let text = at.text("text", "an answer", |text| match text.trim() {
        "" => Err("must not be empty".to_owned()),
        _ => Ok(text.to_owned()),
    });
    at.end();
    text
}

/// `[queue]`.
fn queue(mut at: Section<'_>) -> Queue {
    let mut queue = Queue::default();
    queue.wait = at.text("wait", DURATION, any_time).unwrap_or(queue.wait);
    if let Some(depth) = at.number("depth", 0) {
        queue.depth = usize::try_from(depth).unwrap_or(usize::MAX);
    }
    at.end();
    queue
}

/// `[cors]`.
fn cors(mut at: Section<'_>) -> Cors {
    let origins = at.texts("origins", "origins", origin).unwrap_or_default();
    at.end();
    Cors { origins }
}

/// `[stateful]`.
fn stateful(mut at: Section<'_>) -> Option<String> {
    let project = at.text("quota_project", "a quota project", |text| match text.trim() {
        "" => Err("must not be empty".to_owned()),
        name => Ok(name.to_owned()),
    });
    at.end();
    project
}

/// `[serve]`: limits on what clients may send.
fn limits(mut at: Section<'_>) -> Limits {
    let mut limits = Limits::default();
    limits.body = at.text("largest_body", SIZE, size).unwrap_or(limits.body);
    limits.upload = at.text("largest_upload", SIZE, size).unwrap_or(limits.upload);
    limits.head_time = at.text("head_time", DURATION, some_time).unwrap_or(limits.head_time);
    limits.idle_time = at.text("idle_time", DURATION, some_time).unwrap_or(limits.idle_time);
    limits.drain_time = at.text("drain_time", DURATION, any_time).unwrap_or(limits.drain_time);
    if let Some(most) = at.number("connections", 1) {
        limits.connections = usize::try_from(most).unwrap_or(usize::MAX);
    }
    at.end();
    limits
}

/// `[ledger]`, but for what stands in other sections here.
fn ledger(file: &ConfigFile, mut section: Section<'_>) -> LedgerConfig {
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

fn address(text: &str) -> Result<SocketAddr, String> {
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

fn host(text: &str) -> Result<String, String> {
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

fn size(text: &str) -> Result<u64, String> {
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

#[cfg(test)]
mod tests;
