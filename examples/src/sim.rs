//! What the simulator tells people when it starts: how to reach it, what it allows, and what it does wrong on purpose.

use std::fmt::Write as _;

use keywheel_core::{Dimension, Tier};
use keywheel_sim::{Face, KeyState, Limits, ProjectState, SimConfig};
use serde::Serialize;

use crate::show;

/// Lines to paste into a shell. What is learned of the simulator is not true of Google, nor of the next run, whose
/// counters begin anew: so each run, told apart by `run`, has files of its own.
#[must_use]
pub fn exports(url: &str, config: &SimConfig, run: &str) -> String {
    let mut out = String::from("Point clients at it:\n\n");
    let at: &[_] = match config.face {
        Face::Gemini => &[
            ("GEMINI_BASE_URL", "", "keywheel"),
            ("GOOGLE_GEMINI_BASE_URL", "", "Google's SDKs and the Gemini CLI"),
        ],
        Face::OpenAi => &[("OPENAI_BASE_URL", "/v1", "OpenAI's SDKs; keywheel's is set in code")],
    };
    for (variable, path, whose) in at {
        let _ = writeln!(out, "  export {variable}={url}{path}  # {whose}");
    }
    let folder = std::env::temp_dir();
    for (variable, ending) in [("KEYWHEEL_STATE", "json"), ("KEYWHEEL_LEDGER", "db")] {
        let file = folder.join(format!("keywheel-sim-{run}.{ending}"));
        let _ = writeln!(out, "  export {variable}={}  # of this run alone", file.display());
    }
    let keys = config.projects.iter().flat_map(|of| of.keys.iter().map(move |key| (of, key)));
    for (number, (project, key)) in (1..).zip(keys) {
        let paid = if project.tier == Tier::Paid { "PAID_" } else { "" };
        // These keys open nothing: they are written in the simulator's configuration.
        let (name, secret) = (&project.name, key.key.expose());
        let _ = write!(out, "  export GEMINI_{paid}API_KEY_{number}={secret}");
        let _ = write!(out, " GEMINI_PROJECT_{number}={name}");
        let _ = writeln!(out, "  # key {}, project {}", word(&key.state), word(&project.state));
    }
    out
}

/// One request by hand, and where OpenAI's SDKs find the simulator.
#[must_use]
pub fn by_hand(url: &str, config: &SimConfig) -> String {
    let mut models = config.models.iter();
    let model = models.find(|(_, model)| !model.embeds && model.free != Limits::nothing());
    let model = model.map_or("MODEL", |(name, _)| name);
    let good = config.projects.iter().filter(|of| of.state == ProjectState::Ok);
    let key = good.flat_map(|of| &of.keys).find(|key| key.state == KeyState::Ok);
    let key = key.map_or("KEY", |key| key.key.expose());
    let (route, header, body) = match config.face {
        Face::Gemini => (
            format!("v1beta/models/{model}:generateContent"),
            format!("x-goog-api-key: {key}"),
            r#"{"contents":[{"parts":[{"text":"Say hello"}]}]}"#.to_owned(),
        ),
        Face::OpenAi => (
            "v1/chat/completions".to_owned(),
            format!("Authorization: Bearer {key}"),
            format!(
                r#"{{"model":"{model}","messages":[{{"role":"user","content":"Say hello"}}]}}"#
            ),
        ),
    };
    let style = if config.face == Face::OpenAi { "v1" } else { "v1beta/openai" };
    format!(
        "Or by hand:\n\n  curl -s {url}/{route} -H '{header}' \\\n    -H 'Content-Type: application/json' -d '{body}'\n\n\
         OpenAI-style base URL, any of the keys: {url}/{style}\n"
    )
}

/// What a quota project may spend on each model, and what goes wrong.
#[must_use]
pub fn rules(config: &SimConfig) -> String {
    let mut out = String::from("What a project may spend:\n\n");
    for (name, model) in &config.models {
        let (free, paid) = (limits(&model.free), limits(&model.paid));
        let _ = writeln!(out, "  {name}: free {free}; paid {paid}");
    }
    for project in &config.projects {
        for (name, own) in &project.limits {
            let _ = writeln!(out, "  {name} in {}: {}", project.name, limits(own));
        }
    }
    let rates = config.faults.rates().filter(|(_, rate)| *rate > 0.0);
    let rates: Vec<_> = rates.map(|(name, rate)| format!("{name} {:.1} %", rate * 100.0)).collect();
    if rates.is_empty() {
        out.push_str("\nNothing fails on purpose: [faults] is empty.\n");
    } else {
        let _ = writeln!(out, "\nFails on purpose, as [faults] says: {}.", rates.join(", "));
    }
    out
}

fn limits(limits: &Limits) -> String {
    if *limits == Limits::nothing() {
        return "nothing".to_owned();
    }
    let all = [
        (limits.rpm, Dimension::Rpm),
        (limits.tpm, Dimension::Tpm),
        (limits.rpd, Dimension::Rpd),
        (limits.tpd, Dimension::Tpd),
    ];
    let set = all.into_iter().filter_map(|(value, of)| Some(show::limit(value?, of)));
    let set: Vec<_> = set.collect();
    if set.is_empty() { "without limit".to_owned() } else { set.join(", ") }
}

/// A state as it is written in the configuration.
fn word(state: &impl Serialize) -> String {
    let state = serde_json::to_value(state).unwrap_or_default();
    state.as_str().unwrap_or("?").to_owned()
}
