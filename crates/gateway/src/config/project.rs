//! `[projects.<name>]`.

use std::collections::BTreeMap;

use keywheel::{ledger::Limit, settings::Section};

use crate::{
    project::{Project, Unbounded},
    token::TokenHash,
};

/// A project, and where its section stands.
pub(super) struct Read {
    pub(super) project: Project,
    pub(super) at: usize,
}

/// Reads all of them, in the order of the file.
pub(super) fn projects(section: Section<'_>) -> Vec<Read> {
    section.named("project").into_iter().filter_map(|(name, own)| project(&name, own)).collect()
}

fn project(name: &str, mut at: Section<'_>) -> Option<Read> {
    let place = at.at();
    let id = Project::check_name(name).map_err(|fault| at.own_fault(&fault)).ok();
    at.refuse(
        "token",
        "a token does not belong into a file; its SHA-256 does (token_sha256), and `keywheel project rotate` makes \
         both anew",
    );
    let tokens =
        at.one_or_more("token_sha256", "the SHA-256 of a token", |text| text.parse::<TokenHash>());
    let limits = Limit::all_in(&mut at, "per_model");
    let requests_per_minute = at.number("requests_per_minute", 1);
    let in_flight = at.number("in_flight", 1);
    let priority = at.number("priority", 0);
    if priority.is_some_and(|priority| priority > 100) {
        at.own_fault("its priority is a number from 0 to 100");
    }
    let models = at.texts("models", "models", model).unwrap_or_default();
    let default_max_output = at.number("default_max_output", 1);
    let allow_paid = at.boolean("allow_paid").unwrap_or(false);
    let fixed_charges = at.table("unbounded").map(fixed_charges).unwrap_or_default();
    at.end();
    let project = Project {
        tokens: tokens.unwrap_or_default(),
        limits,
        requests_per_minute: requests_per_minute
            .map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
        in_flight: in_flight.map(|most| usize::try_from(most).unwrap_or(usize::MAX)),
        priority: priority.and_then(|priority| u8::try_from(priority).ok()).unwrap_or(0),
        models,
        default_max_output,
        allow_paid,
        fixed_charges,
        ..Project::new(id?)
    };
    Some(Read { project, at: place })
}

/// `[unbounded]`, and that of a project: what one call of a route costs.
pub(super) fn fixed_charges(mut at: Section<'_>) -> BTreeMap<Unbounded, u64> {
    let charge = |(name, route)| Some((route, at.number(name, 0)?));
    let charges = Unbounded::ALL.into_iter().filter_map(charge).collect();
    at.end();
    charges
}

/// A model's name: that of an OpenAI-compatible provider may have a slash.
fn model(text: &str) -> Result<String, String> {
    let name = text.trim();
    let name = name.strip_prefix("models/").unwrap_or(name);
    let plain = |c: char| c.is_ascii_graphic() && !"\"'\\*?#".contains(c);
    if name.is_empty() || name.len() > 200 || !name.chars().all(plain) {
        return Err("must be the name of a model".to_owned());
    }
    Ok(name.to_owned())
}
