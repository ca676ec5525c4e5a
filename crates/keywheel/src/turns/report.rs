//! What turns cost on the whole, and how many fit into a day.

use std::fmt;

use chrono::NaiveDate;
use keywheel_core::Tier;
use keywheel_pool::Pool;
use serde::Serialize;

use super::{
    capacity::{Capacity, ModelCapacity},
    summary::{Figures, KindSummary},
    table::{Table, printable},
    tally::{ModelUse, StepUse},
    turn::TurnReport,
};
use crate::attempt::work::is_route;

/// What turns took, by kind, over the last two weeks in which there were any. `Display` makes tables of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Turns {
    /// The first of the days, by Pacific date; `None` when there was no turn.
    pub since: Option<NaiveDate>,
    /// By kind, in the order of their names. What comes beyond twenty kinds is summed up as `(other)`; the same goes
    /// for steps and models.
    pub kinds: Vec<KindTurns>,
    /// The last turns, oldest first.
    pub recent: Vec<TurnReport>,
}

/// What the turns of one kind took.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct KindTurns {
    /// The name given to [`Gemini::turn`](crate::Gemini::turn).
    pub kind: String,
    /// Turns that ended, and did not straddle a reset. The figures by model and by step are theirs.
    pub turns: u64,
    /// Turns that straddled a reset of the daily quotas: they drew on two days, met limits that others did not meet,
    /// and are left out of the figures.
    pub straddled: u64,
    /// What those took.
    pub straddled_use: StepUse,
    /// What was sent for turns that had ended by then: figures by turn are too low by that.
    pub late: StepUse,
    /// What was asked of each model.
    pub models: Vec<ModelTurns>,
    /// What was done in each step.
    pub steps: Vec<StepTurns>,
    /// How many such turns fit into a day.
    pub capacity: Capacity,
}

/// What turns of one kind asked of one model.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ModelTurns {
    /// The model, or the route of calls that draw on no model's quota (`api:countTokens`).
    pub model: String,
    /// All turns together.
    pub used: ModelUse,
    /// Requests a turn. A batch of embeddings counts as many as it has texts, as the provider counts.
    pub per_turn: PerTurn,
    /// What its limits allow; `None` for a route.
    pub capacity: Option<ModelCapacity>,
}

/// How a count is spread over turns.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PerTurn {
    /// The mean.
    pub mean: f64,
    /// Half of the turns took no more. Exact up to 128; above, up to a sixteenth too high.
    pub p50: u64,
    /// 95 of 100 turns took no more. As exact.
    pub p95: u64,
    /// The most that a turn took.
    pub max: u64,
}

/// What was done in one step of the turns of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StepTurns {
    /// The name given to [`Turn::step`](super::Turn::step).
    pub step: String,
    /// Turns that had the step.
    pub turns: u64,
    /// All turns together.
    pub used: StepUse,
}

impl Turns {
    pub(super) fn new(figures: Figures, pool: &Pool) -> Self {
        let kinds = figures.kinds();
        let kinds = kinds.into_iter().map(|(kind, summary)| KindTurns::new(kind, summary, pool));
        Self {
            since: figures.days.first_key_value().map(|(date, _)| *date),
            kinds: kinds.collect(),
            recent: figures.recent,
        }
    }

    /// The turns of one kind.
    #[must_use]
    pub fn kind(&self, kind: &str) -> Option<&KindTurns> {
        self.kinds.iter().find(|known| known.kind == kind)
    }
}

impl KindTurns {
    fn new(kind: String, summary: KindSummary, pool: &Pool) -> Self {
        let turns = summary.turns;
        let models: Vec<_> = summary
            .models
            .into_iter()
            .map(|(model, summary)| {
                let per_turn = PerTurn {
                    mean: summary.used.requests as f64 / turns.max(1) as f64,
                    p50: summary.percentile(turns, 50),
                    p95: summary.percentile(turns, 95),
                    max: summary.most,
                };
                let drawn = summary.used.requests > 0 && !is_route(&model);
                let capacity = drawn.then(|| {
                    ModelCapacity::new(summary.used.requests, turns, &requests_a_day(pool, &model))
                });
                ModelTurns { model, used: summary.used, per_turn, capacity }
            })
            .collect();
        let capacity = Capacity::new(
            models.iter().filter_map(|model| Some((model.model.as_str(), model.capacity?))),
        );
        let steps = summary.steps.into_iter();
        Self {
            kind,
            turns,
            straddled: summary.straddled,
            straddled_use: summary.straddled_use,
            late: summary.late,
            models,
            steps: steps
                .map(|(step, summary)| StepTurns { step, turns: summary.turns, used: summary.used })
                .collect(),
            capacity,
        }
    }

    /// What was asked of `model`.
    #[must_use]
    pub fn model(&self, model: &str) -> Option<&ModelTurns> {
        self.models.iter().find(|known| known.model == model)
    }
}

/// The limits of the free quota projects; where there are none, of the paid ones.
fn requests_a_day(pool: &Pool, model: &str) -> Vec<Option<u64>> {
    let limits = pool.limits(model);
    let of = |tier| {
        let those = limits.iter().filter(|project| project.tier == tier);
        those.map(|project| project.believed().rpd).collect::<Vec<_>>()
    };
    let free = of(Tier::Free);
    if free.is_empty() { of(Tier::Paid) } else { free }
}

impl fmt::Display for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(since) = self.since else { return writeln!(f, "no turns yet") };
        writeln!(f, "turns since {since} (Pacific)")?;
        self.kinds.iter().try_for_each(|kind| write!(f, "\n{kind}"))
    }
}

impl fmt::Display for KindTurns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} turns", printable(&self.kind), grouped(self.turns))?;
        if self.straddled > 0 {
            write!(f, ", and {} that straddled a reset, left out", grouped(self.straddled))?;
        }
        writeln!(f)?;
        let mut table = Table::new(["model", "requests/turn", "p50", "p95", "max", "turns/day"]);
        for ModelTurns { model, per_turn, capacity, .. } in &self.models {
            let PerTurn { mean, p50, p95, max } = *per_turn;
            let [p50, p95, max] = [p50, p95, max].map(grouped);
            table.row([model.clone(), format!("{mean:.1}"), p50, p95, max, fits(*capacity)]);
        }
        write!(f, "{table}")?;
        let head = ["step (per turn)", "calls", "attempts", "retries", "embedded", "cache hits"];
        let mut table = Table::new(head);
        for StepTurns { step, used, .. } in &self.steps {
            let ModelUse { attempts, retries, .. } = used.total();
            let counts = [used.calls, attempts, retries, used.embedded, used.cache_hits];
            let mean = |count: u64| format!("{:.1}", count as f64 / self.turns.max(1) as f64);
            let [calls, attempts, retries, embedded, hits] = counts.map(mean);
            table.row([step.clone(), calls, attempts, retries, embedded, hits]);
        }
        write!(f, "{table}")?;
        let Capacity { turns_a_day, bound_by, unknown } = &self.capacity;
        if let (Some(turns), Some(model)) = (turns_a_day, bound_by) {
            writeln!(
                f,
                "  at most {} turns a day, bound by {}",
                grouped(*turns),
                printable(model)
            )?;
        }
        if !unknown.is_empty() {
            writeln!(f, "  limits not known: {}", printable(&unknown.join(", ")))?;
        }
        let late = self.late.total().attempts;
        if late > 0 {
            writeln!(f, "  {} attempts came after their turn had ended", grouped(late))?;
        }
        Ok(())
    }
}

fn fits(capacity: Option<ModelCapacity>) -> String {
    let Some(capacity) = capacity else { return "-".to_owned() };
    match capacity.turns_a_day {
        None => "unknown".to_owned(),
        Some(turns) if capacity.is_known() => grouped(turns),
        Some(turns) => format!("{} or more", grouped(turns)),
    }
}

/// 1344 as `1,344`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
