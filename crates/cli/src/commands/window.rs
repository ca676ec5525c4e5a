//! `keywheel window`: the quota day, here and where Google counts it.

use chrono::{DateTime, Local, SecondsFormat, Utc};
use keywheel::QuotaDay;
use serde::Serialize;

use crate::{exit::Exit, fault::Fault, moment, output};

/// What `window` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = moment::FORMS)]
pub(crate) struct Args {
    /// Show the quota day of this time, in place of today.
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    at: Option<DateTime<Utc>>,
    /// When a run begins; with --to, to see whether it crosses a reset.
    #[arg(long, value_name = "TIME", value_parser = moment::parse, requires = "to")]
    from: Option<DateTime<Utc>>,
    /// When the run ends.
    #[arg(long, value_name = "TIME", value_parser = moment::parse, requires = "from")]
    to: Option<DateTime<Utc>>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The quota day, and a run in it or across it.
#[derive(Debug, Serialize)]
struct Window {
    at: String,
    date: String,
    zone: &'static str,
    hours: i64,
    starts_at: Moment,
    ends_at: Moment,
    ends_in_seconds: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<Run>,
}

/// One moment on three clocks.
#[derive(Debug, Serialize)]
struct Moment {
    utc: String,
    pacific: String,
    local: String,
}

/// A run from one moment to another.
#[derive(Debug, Serialize)]
struct Run {
    from: String,
    to: String,
    straddles: bool,
    /// Every reset in it, in UTC; the first hundred.
    resets: Vec<String>,
}

/// More resets than anybody reads.
const MOST_RESETS: usize = 100;

/// Shows the day.
///
/// # Errors
/// Standard output cannot be written; a run that ends before it begins.
pub(crate) fn run(args: &Args) -> Result<Exit, Fault> {
    let now = args.at.unwrap_or_else(moment::now);
    let run = match (args.from, args.to) {
        (Some(from), Some(to)) if to < from => {
            return Err(Fault::usage("the run ends before it begins"));
        }
        (Some(from), Some(to)) => Some(Run::new(from, to)),
        _ => None,
    };
    let window = Window::new(QuotaDay::containing(now), now, run);
    if args.json {
        output::json("window", &window)?;
    } else {
        output::write(&window.text(now))?;
    }
    Ok(Exit::Fine)
}

impl Window {
    fn new(day: QuotaDay, now: DateTime<Utc>, run: Option<Run>) -> Self {
        Self {
            at: moment::rfc3339(now),
            date: day.date().to_string(),
            zone: day.zone().name(),
            hours: day.length().num_hours(),
            starts_at: Moment::new(day, day.starts_at()),
            ends_at: Moment::new(day, day.ends_at()),
            ends_in_seconds: (day.ends_at() - now).num_seconds(),
            run,
        }
    }

    fn text(&self, now: DateTime<Utc>) -> String {
        let ends = now + chrono::TimeDelta::seconds(self.ends_in_seconds);
        let mut text = format!(
            "quota day   {} by the clocks of California, {} hours long\n",
            self.date, self.hours
        );
        for (name, begin, end) in [
            ("Pacific", &self.starts_at.pacific, &self.ends_at.pacific),
            ("here", &self.starts_at.local, &self.ends_at.local),
            ("UTC", &self.starts_at.utc, &self.ends_at.utc),
        ] {
            text += &format!("  {name:<9} {begin}  to  {end}\n");
        }
        text += &format!("comes back  in {}\n", moment::left(ends, now));
        let Some(run) = &self.run else { return text };
        text += &match run.resets.as_slice() {
            [] => "the run     lies within one quota day\n".to_owned(),
            [reset] => format!(
                "the run     crosses the reset at {reset}: its figures mix two days, and with it came new quota\n"
            ),
            [first, ..] => format!(
                "the run     crosses {} resets, the first at {first}: its figures mix several days\n",
                run.resets.len()
            ),
        };
        text
    }
}

impl Moment {
    fn new(day: QuotaDay, moment: DateTime<Utc>) -> Self {
        let seconds = SecondsFormat::Secs;
        Self {
            utc: moment.to_rfc3339_opts(seconds, true),
            pacific: moment.with_timezone(&day.zone()).to_rfc3339_opts(seconds, true),
            local: moment.with_timezone(&Local).to_rfc3339_opts(seconds, true),
        }
    }
}

impl Run {
    fn new(from: DateTime<Utc>, to: DateTime<Utc>) -> Self {
        let days = std::iter::successors(Some(QuotaDay::containing(from)), |day| Some(day.next()));
        let resets = days.map(QuotaDay::ends_at).take_while(|reset| *reset <= to).take(MOST_RESETS);
        Self {
            from: moment::rfc3339(from),
            to: moment::rfc3339(to),
            straddles: QuotaDay::straddles(from, to),
            resets: resets.map(moment::rfc3339).collect(),
        }
    }
}
