//! `keywheel capacity`: what the keys allow a day, in requests and in turns of your app.

use std::collections::BTreeMap;

use keywheel::Turns;
use serde::Serialize;

use crate::{
    exit::Exit,
    fault::Fault,
    given,
    output::{self, Table, bar},
    settings::Settings,
    sources::Snapshot,
};

/// What `capacity` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Say how many turns of your app fit into a day if each takes so many requests to one model.
    #[arg(long, value_name = "REQUESTS", value_parser = given::from_one::<u64>)]
    per_turn: Option<u64>,
    /// Only this model; may be given several times. One that was never asked is known by the limits you set.
    #[arg(long = "model", value_name = "MODEL")]
    models: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The document of `capacity`.
#[derive(Debug, Serialize)]
struct Capacity {
    models: Vec<Model>,
    /// What turns took so far (`Gemini::turn`), and how many fit into a day.
    turns: Turns,
}

/// One model.
#[derive(Debug, Serialize)]
struct Model {
    model: String,
    /// Quota projects that may serve it.
    quota_projects: usize,
    /// Those among them whose limit of requests per day is not known yet.
    unknown: usize,
    /// The sum of the limits that are known; `null`: none is.
    requests_a_day: Option<u64>,
    used_today: u64,
    /// With `--per-turn`: the sum over quota projects of their limit divided by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    turns_a_day: Option<u64>,
}

/// Shows what fits into a day.
///
/// # Errors
/// No keys, faulty settings, or a state file that cannot be read.
pub(crate) async fn run(args: &Args, settings: &Settings) -> Result<Exit, Fault> {
    let snapshot = Snapshot::take(settings)?;
    let (gemini, folder) = snapshot.client(settings).await?;
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for (model, used) in gemini.pool().day_counts() {
        counts.insert((*model).to_owned(), used);
    }
    for bucket in gemini.status().buckets {
        counts.entry(bucket.model).or_default();
    }
    if !args.models.is_empty() {
        let wanted = args.models.iter().map(|name| name.strip_prefix("models/").unwrap_or(name));
        let found = wanted.map(|name| (name.to_owned(), counts.get(name).copied().unwrap_or(0)));
        counts = found.collect();
    }
    // Routes draw on no model's quota.
    counts.retain(|model, _| !model.starts_with("api:"));
    let models = counts.into_iter().map(|(model, used_today)| {
        let limits = gemini.pool().limits(&model);
        let known = limits.iter().filter_map(|limits| limits.believed().rpd);
        let known: Vec<u64> = known.collect();
        let sum = |each: &dyn Fn(u64) -> u64| {
            let sum = known.iter().fold(0_u64, |sum, limit| sum.saturating_add(each(*limit)));
            (!known.is_empty()).then_some(sum)
        };
        Model {
            quota_projects: limits.len(),
            unknown: limits.len() - known.len(),
            requests_a_day: sum(&|limit| limit),
            used_today,
            turns_a_day: args.per_turn.and_then(|per_turn| sum(&|limit| limit / per_turn)),
            model,
        }
    });
    let capacity = Capacity { models: models.collect(), turns: gemini.turns() };
    drop(gemini);
    drop(folder);
    if args.json {
        output::json("capacity", &capacity)?;
    } else {
        output::write(&capacity.text(args.per_turn))?;
    }
    Ok(Exit::Fine)
}

impl Capacity {
    fn text(&self, per_turn: Option<u64>) -> String {
        let mut text = String::new();
        if self.models.is_empty() {
            text += "no model was asked yet; name one with --model, and its limits in the configuration\n";
        } else {
            let mut table =
                Table::new(["model", "today", "", "requests a day", "of projects", "turns a day"]);
            for model in &self.models {
                let (used, of) = (model.used_today, model.requests_a_day);
                let asked_for = per_turn.and(Some(model.turns_a_day));
                table.row([
                    model.model.clone(),
                    used.to_string(),
                    of.map_or_else(String::new, |of| bar(used, of)),
                    of.map_or_else(|| "not known yet".into(), |of| of.to_string()),
                    match model.unknown {
                        0 => model.quota_projects.to_string(),
                        unknown => format!("{}, {unknown} not known", model.quota_projects),
                    },
                    match asked_for {
                        None => String::new(),
                        Some(None) => "not known yet".into(),
                        Some(Some(turns)) => turns.to_string(),
                    },
                ]);
            }
            text += &table.to_string();
        }
        if self.turns.kinds.is_empty() {
            text += "\nno turns were measured: Gemini::turn in a program of yours does (docs/turns.md)\n";
        } else {
            text += &format!("\n{}\n", self.turns);
        }
        text
    }
}
