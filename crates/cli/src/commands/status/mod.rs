//! `keywheel status`: keys, quotas, and when they come back. Reads the state file; starts and changes nothing.

mod text;
mod view;

use std::time::Duration;

use crate::{
    exit::Exit,
    fault::Fault,
    given, moment,
    output::{self, Paint},
    settings::Settings,
    sources::Snapshot,
};

use self::view::View;

/// What `status` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show it again and again, until Ctrl-C.
    #[arg(long, short)]
    watch: bool,
    /// With --watch: how often, in seconds.
    #[arg(long, default_value_t = 2, value_name = "SECONDS", requires = "watch", value_parser = given::seconds)]
    every: u64,
    /// Only this model.
    #[arg(long)]
    model: Option<String>,
    /// Print JSON; with --watch one document a line.
    #[arg(long)]
    json: bool,
}

/// Shows the state. Ends with [`Exit::DeadKey`] when every key is dead, and with [`Exit::NotNow`] when each of the
/// others is spent for every model that was used.
///
/// # Errors
/// The state file cannot be read, settings or keys are at fault.
pub(crate) async fn run(args: &Args, settings: &Settings) -> Result<Exit, Fault> {
    if !args.watch {
        let view = look(args, settings).await?;
        if args.json {
            output::json("status", &view)?;
        } else {
            output::write(&text::text(&view, moment::now(), Paint::stdout()))?;
        }
        return Ok(view.exit());
    }
    loop {
        let view = look(args, settings).await?;
        if args.json {
            output::json_line("status", &view)?;
        } else {
            if output::stdout_is_terminal() {
                // To the top, and what was there before is gone.
                output::write("\u{1b}[H\u{1b}[2J")?;
            }
            output::write(&text::text(&view, moment::now(), Paint::stdout()))?;
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(args.every)) => {}
            _ = tokio::signal::ctrl_c() => return Ok(view.exit()),
        }
    }
}

async fn look(args: &Args, settings: &Settings) -> Result<View, Fault> {
    let snapshot = Snapshot::take(settings)?;
    let pool = snapshot.pool(settings).await?;
    let mut view = View::new(&snapshot, pool, moment::now());
    if let Some(model) = &args.model {
        let model = model.strip_prefix("models/").unwrap_or(model);
        view.buckets.retain(|bucket| bucket.model == model);
    }
    Ok(view)
}
