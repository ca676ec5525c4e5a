//! The faults of a configuration that its types cannot exclude.

use std::collections::BTreeSet;

use super::{Faults, ProjectConfig, SimConfig};

pub(super) fn faults(config: &SimConfig) -> Vec<String> {
    let mut faults = Vec::new();
    if config.models.is_empty() {
        faults.push("models: there is none".into());
    }
    if config.latency.0 > config.latency.1 {
        faults.push("latency_ms: begins after its end".into());
    }
    rates(&config.faults, "faults", &mut faults);
    for (name, model) in &config.models {
        if model.latency.is_some_and(|(from, to)| from > to) {
            faults.push(format!("models.{name}.latency_ms: begins after its end"));
        }
        if let Some(own) = &model.faults {
            rates(own, &format!("models.{name}.faults"), &mut faults);
        }
    }
    for (i, outage) in config.outages.iter().enumerate() {
        let place = format!("outages[{}]", i + 1);
        if !config.models.contains_key(&outage.model) {
            faults.push(format!("{place}.model: there is no model {:?}", outage.model));
        }
        if outage.from >= outage.until {
            faults.push(format!("{place}.until: is not after its beginning"));
        }
    }
    let mut names = BTreeSet::new();
    let mut keys = BTreeSet::new();
    for (i, project) in config.projects.iter().enumerate() {
        let place = format!("projects[{}]", i + 1);
        if !names.insert(project.name.as_str()) {
            faults.push(format!("{place}.name: {:?} is there twice", project.name));
        }
        models(config, project, &place, &mut faults);
        for key in &project.keys {
            let fingerprint = key.key.fingerprint();
            if !keys.insert(fingerprint) {
                faults.push(format!("{place}.keys: the key {fingerprint} is there twice"));
            }
        }
    }
    faults
}

fn rates(rates: &Faults, place: &str, faults: &mut Vec<String>) {
    for (name, rate) in rates.rates() {
        if !(0.0..=1.0).contains(&rate) {
            faults.push(format!("{place}.{name}: {rate} is not between 0 and 1"));
        }
    }
    let sum: f64 = rates.exclusive().iter().map(|(_, rate)| rate).sum();
    // A little over 1 is the rounding of rates that add up to it.
    if sum > 1.0 + 1e-9 {
        faults
            .push(format!("{place}: the rates of faults that exclude each other add up to {sum}"));
    }
}

fn models(config: &SimConfig, project: &ProjectConfig, place: &str, faults: &mut Vec<String>) {
    let limited = project.limits.keys().map(|model| ("limits", model));
    let closed = project.closed_models.iter().map(|model| ("closed_models", model));
    for (setting, model) in limited.chain(closed) {
        if !config.models.contains_key(model) {
            faults.push(format!("{place}.{setting}: there is no model {model:?}"));
        }
    }
}
