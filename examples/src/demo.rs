//! The demo world: three good keys with small limits, one whose day is spent, one that is not valid, and one
//! whose quota project has no free tier for the model.

use std::{
    error::Error,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::show;
use keywheel::{Gemini, KeyLoader, KeySpec, SystemClock};
use keywheel_core::ApiKey;
use keywheel_provider::{
    http::{HttpTransport, Timeouts},
    upstream::{Call, Upstream},
};
use keywheel_sim::{Limits, ModelConfig, ProjectConfig, SimConfig, SimServer};

/// The model that the demo asks for.
pub const MODEL: &str = "gemini-3.5-flash-lite";

/// The demo's environment. Its keys work nowhere but in the simulator.
const ENVIRONMENT: [(&str, &str); 6] = [
    ("GEMINI_API_KEY_1", "AQ.EXAMPLE-good-one"),
    ("GEMINI_API_KEY_2", "AQ.EXAMPLE-day-spent"),
    ("GEMINI_API_KEY_3", "AQ.EXAMPLE-mistyped"),
    ("GEMINI_API_KEY_4", "AQ.EXAMPLE-good-two"),
    ("GEMINI_API_KEY_5", "AQ.EXAMPLE-no-free-tier"),
    ("GEMINI_API_KEY_6", "AQ.EXAMPLE-good-three"),
];

/// A failure of any kind: examples hand everything to `main`.
pub type Failure = Box<dyn Error + Send + Sync>;

/// The demo's keys, loaded as from an environment.
///
/// # Errors
/// None in practice: the keys are written above.
pub fn keys() -> Result<Vec<KeySpec>, Failure> {
    Ok(KeyLoader::new().environment(ENVIRONMENT).load()?.keys)
}

/// Starts the demo world on a free port of this machine, the day of one key already spent.
///
/// # Errors
/// No port is to be had.
pub async fn start() -> Result<SimServer, Failure> {
    let key = |at: usize| ApiKey::new(ENVIRONMENT[at].1);
    let project = |name: &str, limits: Limits| ProjectConfig::new(name).with_limits(MODEL, limits);
    let config = SimConfig::new()
        .with_model(MODEL, ModelConfig::free(Limits::new().rpm(15).rpd(500)))
        .with_project(project("one", Limits::new().rpd(3)).with_key(key(0)?))
        .with_project(project("spent", Limits::new().rpd(1)).with_key(key(1)?))
        .with_project(project("two", Limits::new().rpd(2)).with_key(key(3)?))
        .with_project(project("no-free-tier", Limits::nothing()).with_key(key(4)?))
        .with_project(project("three", Limits::new().rpd(3)).with_key(key(5)?));
    let server = SimServer::start(config, Arc::new(SystemClock)).await?;

    let transport = Arc::new(HttpTransport::new(&Timeouts::default())?);
    let upstream = Upstream::new(&server.base_url(), transport)?;
    let reply = upstream.call(&key(1)?, &Call::generate(MODEL, &"spend the day".into())?).await?;
    reply.bytes(1 << 20).await?;
    Ok(server)
}

/// Where the demo keeps its state between runs.
#[must_use]
pub fn state_folder() -> PathBuf {
    let folders = directories::ProjectDirs::from("", "", "keywheel");
    let state = folders
        .as_ref()
        .map(|folders| folders.state_dir().unwrap_or_else(|| folders.data_local_dir()));
    state.map_or_else(std::env::temp_dir, Path::to_path_buf).join("quickstart")
}

/// Prints what the state file already tells, and which calls that saves.
pub fn print_known(gemini: &Gemini) {
    let status = gemini.status();
    // A folder that cannot be written, a file that was kept aside.
    status.state.notes.iter().for_each(|note| println!("Note: {note}."));
    let mut known = Vec::new();
    for key in &status.keys {
        if let Some(quarantine) = &key.quarantine {
            known.push(format!(
                "{}: {}, {}",
                key.label,
                quarantine.cause,
                show::lasting(quarantine.cause)
            ));
        }
    }
    for bucket in status.buckets.iter().filter(|bucket| bucket.model == MODEL) {
        for cooldown in &bucket.cooldowns {
            let cause = cooldown.cause;
            // The bucket's own moment: a day that is full by count may hold a second or two longer.
            let until = cooldown.until.and(bucket.available_at.or(cooldown.until));
            let until = until.map(|at| format!("until {}", show::moment(at)));
            let until = until.unwrap_or_else(|| show::lasting(cause).to_owned());
            known.push(format!("{}: {cause}, {until}", bucket.labels.join(", ")));
        }
    }
    if known.is_empty() {
        println!("Nothing is known of these keys yet.");
        return;
    }
    println!("Known from the state file, so {} calls need not be tried:", known.len());
    known.iter().for_each(|line| println!("  {line}"));
}

/// Prints the limits that replies taught.
pub fn print_learned(gemini: &Gemini) {
    println!("\nLearned from the replies:");
    for bucket in gemini.status().buckets.iter().filter(|bucket| bucket.model == MODEL) {
        for limit in &bucket.limits {
            let labels = bucket.labels.join(", ");
            println!("  {labels}: {}", show::limit(limit.value, limit.dimension));
        }
    }
}

/// What the simulator served to the client: all but the call that spent a day beforehand.
#[must_use]
pub fn served(server: &SimServer) -> u64 {
    server.world().stats().served().saturating_sub(1)
}

/// What the simulator answered with anything but an answer.
#[must_use]
pub fn refused(server: &SimServer) -> u64 {
    let stats = server.world().stats();
    let of_keys = stats.keys.values().map(|tally| tally.refused + tally.rejected).sum::<u64>();
    of_keys + stats.strangers
}

/// What the state file counts as sent on this quota day, all writers together.
///
/// # Errors
/// The file cannot be read.
pub fn counted_in(state: &Path) -> Result<u64, Failure> {
    let file: serde_json::Value = serde_json::from_slice(&std::fs::read(state)?)?;
    let buckets = file["buckets"].as_object().ok_or("no buckets in the state file")?;
    let writers = buckets.values().filter_map(|bucket| bucket["day"]["by"].as_object());
    let counts = writers.flat_map(|by| by.values()).filter_map(|count| count["requests"].as_u64());
    Ok(counts.sum())
}
