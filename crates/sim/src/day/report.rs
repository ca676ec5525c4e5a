//! What a virtual day came to.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use keywheel_core::QuotaDay;

use super::{Outcome, Plan, Strategy, crowd::Crowd};
use crate::{shared::SharedWorld, stats::Stats};

/// What one strategy made of a [`Plan`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The strategy's name in tables.
    pub name: &'static str,
    /// The strategy's name in `FIGURE` lines.
    pub suffix: &'static str,
    /// Calls that arrived.
    pub calls: u64,
    /// Calls that got their answer.
    pub delivered: u64,
    /// Answers that the quotas allowed: every request of every key and quota day, without those that
    /// the provider's failures ate, and not more than arrived on that day.
    pub capacity: u64,
    /// Requests that the provider answered with 429.
    pub refused: u64,
    /// The most of them by one key's bucket.
    pub refused_per_bucket_max: u64,
    /// Requests that failed with 5xx. Those count against the quota.
    pub faulted: u64,
    /// Calls that failed while some key still had quota for the day.
    pub client_failures_before_exhaustion: u64,
    /// Calls that failed.
    pub failed: u64,
    /// How long those calls took to fail, all together, in milliseconds.
    pub failing_ms: i64,
    /// Calls under way when the app was restarted.
    pub cut_by_restart: usize,
    /// Calls under way at the end.
    pub unfinished: usize,
    model: String,
}

impl Report {
    pub(super) fn new(strategy: &dyn Strategy, plan: &Plan, world: &SharedWorld) -> Self {
        Self {
            name: strategy.name(),
            suffix: strategy.suffix(),
            calls: plan.arrivals().len() as u64,
            delivered: 0,
            capacity: capacity(plan, world),
            refused: 0,
            refused_per_bucket_max: 0,
            faulted: 0,
            client_failures_before_exhaustion: 0,
            failed: 0,
            failing_ms: 0,
            cut_by_restart: 0,
            unfinished: 0,
            model: plan.model.clone(),
        }
    }

    pub(super) fn ended(
        &mut self,
        outcome: Outcome,
        arrived_at: DateTime<Utc>,
        world: &SharedWorld,
        now: DateTime<Utc>,
    ) {
        match outcome {
            Outcome::Delivered => self.delivered += 1,
            Outcome::Failed => {
                self.failed += 1;
                self.failing_ms += (now - arrived_at).num_milliseconds();
                let before = world.with(|world| world.any_left_today(&self.model, now));
                self.client_failures_before_exhaustion += u64::from(before);
            }
        }
    }

    pub(super) fn finish(&mut self, crowd: &Crowd, stats: &Stats) {
        self.unfinished = crowd.len();
        self.refused = stats.refused();
        self.refused_per_bucket_max = stats.refused_per_bucket_max();
        self.faulted = stats.faulted();
    }

    /// The share of the capacity that was delivered.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.delivered as f64 / self.capacity.max(1) as f64
    }

    /// How long a caller waited on average to be told that there is no answer, in seconds.
    #[must_use]
    pub fn seconds_to_failure(&self) -> f64 {
        self.failing_ms as f64 / 1_000.0 / self.failed.max(1) as f64
    }
}

/// The figures of a report, one `FIGURE name=value` a line.
#[must_use]
pub fn figures(report: &Report) -> String {
    let Report { suffix, .. } = report;
    let figures = [
        ("delivered", report.delivered.to_string()),
        ("capacity", report.capacity.to_string()),
        ("delivered_share", format!("{:.5}", report.share())),
        ("refused", report.refused.to_string()),
        ("refused_per_bucket_max", report.refused_per_bucket_max.to_string()),
        ("client_failures_before_exhaustion", report.client_failures_before_exhaustion.to_string()),
    ];
    let mut out = String::new();
    for (name, value) in figures {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "FIGURE {name}{suffix}={value}");
    }
    out
}

/// The reports side by side, in aligned columns.
#[must_use]
pub fn table(reports: &[Report]) -> String {
    let mut rows = vec![
        [
            "strategy",
            "delivered",
            "of capacity",
            "refused",
            "worst bucket",
            "failed too early",
            "time to a no",
        ]
        .map(str::to_owned),
    ];
    rows.extend(reports.iter().map(|report| {
        [
            report.name.to_owned(),
            report.delivered.to_string(),
            format!("{:.2} %", 100.0 * report.share()),
            report.refused.to_string(),
            report.refused_per_bucket_max.to_string(),
            report.client_failures_before_exhaustion.to_string(),
            format!("{:.1} s", report.seconds_to_failure()),
        ]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<_> = (0..rows[0].len()).map(width).collect();
    let mut out = String::new();
    for row in &rows {
        let _ = write!(out, "{:<width$}", row[0], width = widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            let _ = write!(out, "  {cell:>width$}");
        }
        out.push('\n');
    }
    out
}

/// The difference in one sentence: the first report against the second.
#[must_use]
pub fn headline(reports: &[Report]) -> Option<String> {
    let [first, second, ..] = reports else { return None };
    let said = |report: &Report| {
        format!(
            "{}: {:.2} % of what the keys allow, {} refused requests, a no after {:.1} s",
            report.name,
            100.0 * report.share(),
            report.refused,
            report.seconds_to_failure()
        )
    };
    Some(format!("{}; {}.", said(first), said(second)))
}

/// An upper bound that a perfect strategy reaches: on every day what the quotas allow, but not more than the
/// calls there were for it. A call may wait over midnight, as long as its deadline lets it.
fn capacity(plan: &Plan, world: &SharedWorld) -> u64 {
    let arrivals = plan.arrivals();
    let between = |from: DateTime<Utc>, to: DateTime<Utc>| {
        arrivals.iter().filter(|at| **at >= from && **at < to).count() as u64
    };
    let mut sum = 0;
    let mut waiting = 0;
    let mut day = QuotaDay::containing(plan.starts_at);
    while day.starts_at() < plan.ends_at() {
        let allowed: u64 = world.with(|world| {
            let names = world.config().projects.iter().map(|project| &project.name);
            names.filter_map(|name| world.day_capacity(name, &plan.model, day.date())).sum()
        });
        let wanted = waiting + between(day.starts_at(), day.ends_at());
        let served = allowed.min(wanted);
        let late = between(day.ends_at() - plan.deadline, day.ends_at());
        waiting = late.min(wanted - served);
        sum += served;
        day = day.next();
    }
    sum
}
