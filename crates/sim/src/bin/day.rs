//! A virtual day through the real pool and client, and through what other tools do instead.
//!
//! `cargo run --release --example day`

use std::{
    io::{self, Write as _},
    time::Duration,
};

use clap::Parser;
use keywheel_sim::day::{self, Keywheel, Plan, Simple, Strategy};

/// Plays a virtual day of traffic against simulated quotas and prints what came of it.
///
/// "5 % bare 429 bodies" is read as: of the replies that refuse a request for a quota, 5 % come without
/// details. `--spurious-429 0.05` plays the other reading: 5 % of all requests are refused without
/// details though no limit was met.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Keys, each of a quota project of its own.
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    keys: u32,
    /// Requests a key may make on a quota day.
    #[arg(long, default_value_t = 500)]
    per_day: u64,
    /// Requests a key may make in any minute.
    #[arg(long, default_value_t = 15)]
    per_minute: u64,
    /// Calls a second, on average.
    #[arg(long, default_value_t = 0.5, value_parser = rate)]
    rate: f64,
    /// Hours, from 08:00 Pacific.
    #[arg(long, default_value_t = 26, value_parser = clap::value_parser!(u32).range(1..=240))]
    hours: u32,
    /// The share of counted requests that fail with 503.
    #[arg(long, default_value_t = 0.01, value_parser = share)]
    overloaded: f64,
    /// The share of refusals that come without details.
    #[arg(long, default_value_t = 0.05, value_parser = share)]
    bare_429: f64,
    /// The share of requests refused without details though no limit was met.
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    spurious_429: f64,
    /// Seconds a call may take.
    #[arg(long, default_value_t = 60)]
    deadline: u64,
    /// Seeds arrivals and faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    let plan = Plan {
        keys: args.keys as usize,
        per_day: args.per_day,
        per_minute: args.per_minute,
        rate: args.rate,
        length: Duration::from_secs(3_600 * u64::from(args.hours)),
        overloaded: args.overloaded,
        bare_429: args.bare_429,
        spurious_429: args.spurious_429,
        deadline: Duration::from_secs(args.deadline),
        seed: args.seed,
        ..Plan::default()
    };
    let mut strategies: Vec<Box<dyn Strategy>> = vec![
        Box::<Keywheel>::default(),
        Box::new(Simple::flat_60s()),
        Box::new(Simple::flat_5s()),
        Box::new(Simple::three_strikes()),
        Box::new(Simple::three_strikes_hourly()),
    ];
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{} keys × {} a day × {} a minute, {} calls a second for {} h from {}, seed {}",
        plan.keys, plan.per_day, plan.per_minute, plan.rate, args.hours, plan.starts_at, plan.seed
    )?;
    writeln!(
        out,
        "{:.1} % 503 (counted), {:.1} % of refusals bare, {:.1} % of requests refused without cause, \
         restart at {}\n",
        100.0 * plan.overloaded,
        100.0 * plan.bare_429,
        100.0 * plan.spurious_429,
        plan.restarts_at()
    )?;
    let reports: Vec<_> = strategies.iter_mut().map(|it| day::play(&plan, it.as_mut())).collect();
    writeln!(out, "{}", day::table(&reports))?;
    if let Some(headline) = day::headline(&reports) {
        writeln!(out, "{headline}\n")?;
    }
    for report in &reports {
        write!(out, "{}", day::figures(report))?;
    }
    Ok(())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "is no number".to_owned())?;
    if rate.is_finite() && rate > 0.0 && rate <= 1_000.0 {
        return Ok(rate);
    }
    Err("is not between 0 and 1000".into())
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "is no number".to_owned())?;
    if (0.0..=1.0).contains(&share) {
        return Ok(share);
    }
    Err("is not between 0 and 1".into())
}
