//! A turn on its way, and what came of it.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use chrono::{DateTime, Utc};
use keywheel_core::{Clock, QuotaDay, scrub::scrub};
use serde::{Deserialize, Serialize};

use super::{
    book::TurnBook,
    recorder::{StepCounts, StepRecorder},
    summary::{MOST_NAMES, OTHER},
    table::{Table, printable},
    tally::{ModelUse, StepUse},
};
use crate::Gemini;

/// The most characters of a name that are kept.
const LONGEST_NAME: usize = 64;

/// One unit of the app's own work: see [`Gemini::turn`]. Ends when it is dropped, or by [`finish`](Self::finish).
///
/// Keep it until the work is done: what its steps send afterwards is counted as late, and missing in the figures
/// by turn. Dropping futures, or the turn itself, loses no count: each is taken when a request is sent.
#[must_use = "a turn ends when it is dropped"]
pub struct Turn {
    gemini: Gemini,
    state: Arc<TurnState>,
}

impl Turn {
    pub(super) fn new(gemini: Gemini, kind: &str, book: Arc<TurnBook>) -> Self {
        let pool = gemini.pool();
        let clock = Arc::clone(pool.clock());
        let spent = pool.day_counts();
        let state = TurnState {
            kind: shortened(kind),
            started_at: clock.now(),
            spent,
            clock,
            steps: Mutex::default(),
            book,
            ended: OnceLock::new(),
        };
        Self { gemini, state: Arc::new(state) }
    }

    /// A client whose calls are counted as the step `name` of this turn: all that a [`Gemini`] can do. Steps of one
    /// name are counted together.
    #[must_use]
    pub fn step(&self, name: &str) -> Gemini {
        let counts = self.state.step(name);
        let recorder = StepRecorder::new(Arc::clone(&self.state), counts);
        self.gemini.recording(Arc::new(recorder))
    }

    /// What was counted up to now.
    #[must_use]
    pub fn report(&self) -> TurnReport {
        self.state.report()
    }

    /// Ends the turn, and says what it took.
    #[must_use = "dropping the turn ends it, too"]
    pub fn finish(self) -> TurnReport {
        self.state.end()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.state.end();
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("kind", &self.state.kind).finish_non_exhaustive()
    }
}

/// What a turn and the clients of its steps share.
pub(super) struct TurnState {
    kind: String,
    started_at: DateTime<Utc>,
    /// The day's counts when it began, by model.
    spent: Vec<(Arc<str>, u64)>,
    clock: Arc<dyn Clock>,
    steps: Mutex<Vec<Arc<StepCounts>>>,
    book: Arc<TurnBook>,
    /// What was reported when it ended.
    ended: OnceLock<TurnReport>,
}

impl TurnState {
    fn step(&self, name: &str) -> Arc<StepCounts> {
        let mut name = shortened(name);
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        if steps.len() >= MOST_NAMES && steps.iter().all(|known| known.step() != name) {
            name = OTHER.to_owned();
        }
        if let Some(known) = steps.iter().find(|known| known.step() == name) {
            return Arc::clone(known);
        }
        let made = Arc::new(StepCounts::new(&name));
        steps.push(Arc::clone(&made));
        made
    }

    fn end(&self) -> TurnReport {
        let mut first = false;
        let report = self.ended.get_or_init(|| {
            first = true;
            self.report()
        });
        if first {
            self.book.record(report);
        }
        report.clone()
    }

    fn report(&self) -> TurnReport {
        let steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let steps: Vec<_> = steps
            .iter()
            .map(|counts| StepReport { step: counts.step().to_owned(), used: counts.read() })
            .collect();
        let ended_at = self.clock.now();
        let asked = |model: &str| steps.iter().any(|step| step.used.models.contains_key(model));
        let spent = self.spent.iter().filter(|(model, _)| asked(model));
        TurnReport {
            kind: self.kind.clone(),
            started_at: self.started_at,
            ended_at,
            straddled_reset: QuotaDay::straddles(self.started_at, ended_at),
            spent_at_start: spent.map(|(model, count)| (model.as_ref().into(), *count)).collect(),
            steps,
        }
    }
}

/// Nobody can count for the turn any more: what came after its end is told.
impl Drop for TurnState {
    fn drop(&mut self) {
        let Some(reported) = self.ended.take() else { return };
        let steps = std::mem::take(&mut self.steps);
        let mut late = StepUse::default();
        for counts in steps.into_inner().unwrap_or_else(PoisonError::into_inner) {
            let before = reported.steps.iter().find(|step| step.step == counts.step());
            late.add(&before.map_or_else(|| counts.read(), |step| counts.read().since(&step.used)));
        }
        if late.total().attempts > 0 {
            self.book.record_late(&reported, &late);
        }
    }
}

/// What a turn took. `Display` makes a small table of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TurnReport {
    /// What kind of turn it was: the name given to [`Gemini::turn`].
    pub kind: String,
    /// When it began.
    pub started_at: DateTime<Utc>,
    /// When it ended; of a turn that goes on, now.
    pub ended_at: DateTime<Utc>,
    /// A reset of the daily quotas (midnight Pacific) fell into it: what it took was drawn from two days.
    #[serde(default)]
    pub straddled_reset: bool,
    /// What the pool had counted of the quota day when the turn began, all quota projects together, by model.
    #[serde(default)]
    pub spent_at_start: BTreeMap<String, u64>,
    /// Its steps, in the order in which they began.
    #[serde(default)]
    pub steps: Vec<StepReport>,
}

/// What a step of a turn took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StepReport {
    /// The name given to [`Turn::step`].
    pub step: String,
    /// What was counted.
    #[serde(flatten)]
    pub used: StepUse,
}

impl TurnReport {
    /// All steps together.
    #[must_use]
    pub fn used(&self) -> StepUse {
        let mut used = StepUse::default();
        self.steps.iter().for_each(|step| used.add(&step.used));
        used
    }

    /// All steps and models together.
    #[must_use]
    pub fn total(&self) -> ModelUse {
        self.used().total()
    }
}

impl fmt::Display for TurnReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let took = (self.ended_at - self.started_at).max(chrono::Duration::zero());
        let seconds = took.num_milliseconds() as f64 / 1_000.0;
        writeln!(f, "turn {}, {seconds:.1} s", printable(&self.kind))?;
        let mut table = Table::new(STEP_HEAD);
        for StepReport { step, used } in &self.steps {
            table.row(step_row(step, used));
        }
        if self.steps.len() > 1 {
            table.row(step_row("all", &self.used()));
        }
        write!(f, "{table}")?;
        if self.straddled_reset {
            writeln!(
                f,
                "straddled a reset of the daily quotas; the day before had been spent up to:"
            )?;
            for (model, count) in &self.spent_at_start {
                writeln!(f, "  {}: {count} requests", printable(model))?;
            }
        }
        Ok(())
    }
}

/// The columns of [`step_row`].
pub(super) const STEP_HEAD: [&str; 7] =
    ["step", "calls", "attempts", "retries", "requests", "embedded", "cache hits"];

fn step_row(step: &str, used: &StepUse) -> [String; 7] {
    let ModelUse { attempts, retries, requests } = used.total();
    let counts = [used.calls, attempts, retries, requests, used.embedded, used.cache_hits];
    let [calls, attempts, retries, requests, embedded, hits] =
        counts.map(|count| count.to_string());
    [step.to_owned(), calls, attempts, retries, requests, embedded, hits]
}

/// Names stand in a file of bounded size, which everybody may read: no key gets into it.
fn shortened(name: &str) -> String {
    scrub(name, &[]).chars().take(LONGEST_NAME).collect()
}
