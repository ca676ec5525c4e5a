//! From a file and the environment to a configuration.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    time::Duration,
};

use keywheel::{
    ConfigErrors, ConfigFault, ConfigFile, EmbeddedClient,
    ledger::{AccountId, LedgerRules, Limit, Period, Unit},
    settings::{
        Section,
        words::{DURATION, any_time},
    },
};

use super::{
    Config, Settings,
    at_start::AtStart,
    environment::{self, Surroundings},
    project::{Read, fixed_charges, projects},
    sections::{
        address, allowance, cors, degraded, host, ledger, limits, queue, stateful, upstream,
    },
    warning,
};
use crate::{
    auth::Access,
    project::{DEFAULT_PROJECT, Project, Projects},
    token::Token,
};

/// Where it listens unless it is said otherwise.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8787);

const UNGUARDED: &str = "everybody who reaches this address could spend your quota: give the projects tokens \
     (`keywheel project add`), set KEYWHEEL_TOKEN, or listen on 127.0.0.1";

const FOR_NOBODY: &str = "KEYWHEEL_TOKEN: stands for nobody, for each project of the file has a token of its own; \
     clients that show it are refused: unset it, or remove token_sha256 from the project that it is for";

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
    let upstream = upstream(file, at);
    let unknown_variables = environment::unknown(file, at);
    let allowance = at.table("allowance").map(allowance).unwrap_or_default();
    let degraded = at.table("degraded").and_then(degraded);
    let queue = at.table("queue").map(queue).unwrap_or_default();
    let (cors_at, cors) = at.table("cors").map(cors).unwrap_or_default();
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
    if !access.tokens && cors.origins.iter().any(|origin| origin == "*") {
        at.fault(
            cors_at,
            "cors.origins",
            "without tokens any page could spend your quota: name its origin",
        );
    }
    let stands = |token: &Token| found.iter().any(|it| it.project.tokens.contains(&token.hash()));
    let for_nobody = access.tokens && around.token.as_ref().is_some_and(|token| !stands(token));
    let listen = listens(at, listen, &access, around, of_environment);
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
    let mut warnings: Vec<_> = ledger.rules.overcommitments().iter().map(warning).collect();
    warnings.extend(ledger.rules.accounts.keys().filter_map(|name| small(&ledger.rules, name)));
    warnings.extend(for_nobody.then(|| FOR_NOBODY.to_owned()));
    warnings.extend(unknown_variables);
    let settings = Settings {
        file: None,
        listen,
        upstream: upstream.dialect,
        base_url: upstream.elsewhere(),
        api_version: upstream.version.clone(),
        projects: Projects::new(found.into_iter().map(|read| read.project)),
        access,
        degraded,
        queue,
        cors,
        quota_project,
        fixed_charges: charges,
        limits,
        watch: Some(watch).filter(|watch| !watch.is_zero()),
    };
    let text = at.faults().text();
    let at_start = AtStart::of(text, &settings, &upstream, builder.state_path(), &ledger);
    Config { settings, client: builder, keys, ledger, warnings, at_start }
}

/// What is told of a project whose budget has no room for one request that does not bound its answer.
fn small(rules: &LedgerRules, project: &AccountId) -> Option<String> {
    let output = rules.default_max_output(project.as_str());
    let limits = rules.accounts.get(project)?.limits.iter();
    let smallest =
        limits.filter(|limit| limit.unit == Unit::Tokens).min_by_key(|limit| limit.cap)?;
    (smallest.cap < output).then(|| {
        format!(
            "projects.{project}: its {smallest} are fewer than the {output} that are kept for the answer of a request \
             that sets no maxOutputTokens, which therefore never fits: set default_max_output"
        )
    })
}

/// Where it listens: not where everybody can spend.
fn listens(
    at: &Section<'_>,
    of_file: Option<(usize, SocketAddr)>,
    access: &Access,
    around: &Surroundings,
    of_environment: &mut Vec<ConfigFault>,
) -> SocketAddr {
    let is_open =
        |address: SocketAddr| !access.tokens && !address.ip().to_canonical().is_loopback();
    match (around.listen, of_file) {
        (Some((address, variable)), _) => {
            if is_open(address) {
                of_environment.push(ConfigFault::new(None, format!("{variable}: {UNGUARDED}")));
            }
            address
        }
        (None, Some((place, address))) => {
            if is_open(address) {
                at.fault(place, "listen", UNGUARDED);
            }
            address
        }
        (None, None) => LISTEN,
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

#[cfg(test)]
mod tests;
