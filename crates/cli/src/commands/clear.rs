//! `keywheel clear`: takes cooldowns and quarantines away. Gateways that run see it within 250 ms.

use keywheel::{PoolStatus, Selector};
use serde::Serialize;

use crate::{exit::Exit, fault::Fault, output, settings::Settings};

/// What `clear` takes.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub(crate) struct Args {
    /// Everything: all cooldowns and quarantines, and the limits that were learned.
    #[arg(long, group = "what", conflicts_with_all = ["key", "quota_project", "model"])]
    all: bool,
    /// One key by its label or fingerprint: its quarantine, and all models of its quota project.
    #[arg(long, group = "what", value_name = "LABEL", conflicts_with_all = ["quota_project", "model"])]
    key: Option<String>,
    /// One quota project, in Google's sense; `keywheel status` shows their names.
    #[arg(long, group = "what", value_name = "NAME")]
    quota_project: Option<String>,
    /// One model in all quota projects, or in the one of --quota-project.
    #[arg(long, group = "what")]
    model: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The document of `clear`.
#[derive(Debug, Serialize)]
struct Cleared {
    /// Buckets, keys and quota projects that were held back, and are not any more.
    cleared: usize,
}

/// Clears what was named.
///
/// # Errors
/// The state file cannot be written, nothing has that name, or settings and keys are at fault: only keys that are
/// here can be cleared.
pub(crate) async fn run(args: Args, settings: &Settings) -> Result<Exit, Fault> {
    let gemini = settings.client()?.build().await?;
    let json = args.json;
    let selector = args.selector(&gemini.status())?;
    let cleared = gemini.pool().clear(selector).await;
    let written = gemini.flush().await;
    written.map_err(|fault| {
        let what = format!("the state file could not be written: {fault}");
        Fault::new(Exit::Fault, what)
    })?;
    if json {
        output::json("clear", &Cleared { cleared })?;
    } else {
        output::print(match cleared {
            0 => "nothing was held back".to_owned(),
            1 => "1 was held back, and can be used again".to_owned(),
            more => format!("{more} were held back, and can be used again"),
        })?;
    }
    Ok(Exit::Fine)
}

impl Args {
    /// What is meant, if it is there.
    fn selector(self, status: &PoolStatus) -> Result<Selector, Fault> {
        if let Some(name) = self.key {
            let known = status.keys.iter();
            let mut known =
                known.filter(|key| key.label == name || key.fingerprint.to_string() == name);
            // What was named is not repeated: it may be the key itself.
            let Some(key) = known.next() else {
                let labels = status.keys.iter().map(|key| key.label.clone());
                return Err(nothing("no key", labels.collect()));
            };
            return Ok(Selector::Key(key.fingerprint));
        }
        if let Some(name) = &self.quota_project
            && !status.keys.iter().any(|key| key.quota_project == *name)
        {
            let names = status.keys.iter().map(|key| key.quota_project.clone());
            return Err(nothing("no quota project", names.collect()));
        }
        let model = self.model.map(|name| name.strip_prefix("models/").unwrap_or(&name).to_owned());
        Ok(match (self.quota_project, model) {
            (Some(quota_project), Some(model)) => Selector::Bucket { quota_project, model },
            (Some(quota_project), None) => Selector::QuotaProject(quota_project),
            (None, Some(model)) => Selector::Model(model),
            (None, None) => Selector::All,
        })
    }
}

fn nothing(what: &str, mut names: Vec<String>) -> Fault {
    names.dedup();
    Fault::usage(format!("{what} has that name; there is {}", names.join(", ")))
}
