//! What many turns took, as sums and a histogram: small, and the same however the turns are put together.

use std::collections::BTreeMap;

use chrono::NaiveDate;
use keywheel_core::QuotaDay;
use keywheel_pool::durable::Version;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    tally::{ModelUse, StepUse},
    turn::TurnReport,
};

/// Stands for all names beyond the most that are kept.
pub(super) const OTHER: &str = "(other)";
/// So many names of each kind are kept; what comes beyond is summed up as [`OTHER`].
pub(super) const MOST_NAMES: usize = 20;
/// So many quota days are kept.
const MOST_DAYS: usize = 14;
/// So many turns are kept one by one.
const MOST_RECENT: usize = 20;
/// Histograms are exact up to here, and round up by a sixteenth at most above.
const EXACT: u64 = 128;

/// All figures, as they stand in the file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Figures {
    pub(super) version: Version<1>,
    /// By the Pacific date on which the turns began.
    #[serde(default)]
    pub(super) days: BTreeMap<NaiveDate, Kinds>,
    /// The last turns, oldest first.
    #[serde(default)]
    pub(super) recent: Vec<TurnReport>,
    /// Fields of later versions.
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// Figures by kind of turn.
pub(super) type Kinds = BTreeMap<String, KindSummary>;

/// What the turns of one kind took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct KindSummary {
    /// Turns within one quota day. All figures but the next three are theirs.
    pub(super) turns: u64,
    /// Turns that straddled a reset.
    pub(super) straddled: u64,
    /// What those took.
    pub(super) straddled_use: StepUse,
    /// What was sent for turns that had ended.
    pub(super) late: StepUse,
    pub(super) models: BTreeMap<String, ModelSummary>,
    pub(super) steps: BTreeMap<String, StepSummary>,
    /// Fields of later versions.
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// What was asked of one model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ModelSummary {
    #[serde(flatten)]
    pub(super) used: ModelUse,
    /// The most requests of one turn.
    pub(super) most: u64,
    /// How many turns took so many requests. Those that took none are not in it.
    pub(super) turns_by_requests: BTreeMap<u64, u64>,
}

/// What was done in one step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct StepSummary {
    /// Turns that had the step.
    pub(super) turns: u64,
    #[serde(flatten)]
    pub(super) used: StepUse,
}

impl Figures {
    /// True when there is nothing in it.
    pub(super) fn is_empty(&self) -> bool {
        self.days.is_empty() && self.recent.is_empty()
    }

    /// Adds a turn that has ended.
    pub(super) fn record(&mut self, turn: &TurnReport, today: NaiveDate) {
        self.kind_of(turn).add(&KindSummary::of(turn));
        self.recent.push(turn.clone());
        self.tidy(today);
    }

    /// Adds what was sent for a turn that had ended.
    pub(super) fn record_late(&mut self, turn: &TurnReport, late: &StepUse, today: NaiveDate) {
        self.kind_of(turn).late.add(late);
        self.tidy(today);
    }

    /// Adds what another has.
    pub(super) fn add(&mut self, other: &Self, today: NaiveDate) {
        for (date, kinds) in &other.days {
            let day = self.days.entry(*date).or_default();
            kinds.iter().for_each(|(kind, summary)| slot(day, kind).add(summary));
        }
        self.recent.extend_from_slice(&other.recent);
        self.tidy(today);
    }

    /// All days together.
    pub(super) fn kinds(&self) -> Kinds {
        let mut all = Kinds::new();
        for (kind, summary) in self.days.values().flatten() {
            slot(&mut all, kind).add(summary);
        }
        all
    }

    fn kind_of(&mut self, turn: &TurnReport) -> &mut KindSummary {
        let date = QuotaDay::containing(turn.started_at).date();
        slot(self.days.entry(date).or_default(), &turn.kind)
    }

    fn tidy(&mut self, today: NaiveDate) {
        // The days farthest from today go, on either side: a clock that was ahead for a while pushes no true day out.
        while self.days.len() > MOST_DAYS {
            let ends = [self.days.first_key_value(), self.days.last_key_value()];
            let dates = ends.into_iter().flatten().map(|(date, _)| *date);
            let Some(farthest) = dates.max_by_key(|date| (*date - today).abs()) else { break };
            self.days.remove(&farthest);
        }
        let surplus = self.recent.len().saturating_sub(MOST_RECENT);
        self.recent.drain(..surplus);
    }
}

impl KindSummary {
    fn of(turn: &TurnReport) -> Self {
        let mut summary = Self::default();
        let used = turn.used();
        if turn.straddled_reset {
            summary.straddled = 1;
            summary.straddled_use.add(&used);
            return summary;
        }
        summary.turns = 1;
        for (model, used) in &used.models {
            let of_model = slot(&mut summary.models, model);
            of_model.used.add(used);
            of_model.most = of_model.most.max(used.requests);
            *of_model.turns_by_requests.entry(rounded(used.requests)).or_default() += 1;
        }
        for step in &turn.steps {
            let of_step = slot(&mut summary.steps, &step.step);
            of_step.turns = 1;
            of_step.used.add(&step.used);
        }
        summary
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.turns = self.turns.saturating_add(other.turns);
        self.straddled = self.straddled.saturating_add(other.straddled);
        self.straddled_use.add(&other.straddled_use);
        self.late.add(&other.late);
        for (model, summary) in &other.models {
            slot(&mut self.models, model).add(summary);
        }
        for (step, summary) in &other.steps {
            let of_step = slot(&mut self.steps, step);
            of_step.turns = of_step.turns.saturating_add(summary.turns);
            of_step.used.add(&summary.used);
        }
    }
}

impl ModelSummary {
    fn add(&mut self, other: &Self) {
        self.used.add(&other.used);
        self.most = self.most.max(other.most);
        for (requests, turns) in &other.turns_by_requests {
            let known = self.turns_by_requests.entry(rounded(*requests)).or_default();
            *known = known.saturating_add(*turns);
        }
    }

    /// The least number of requests that so many of every hundred of `turns` turns did not exceed. Exact up to 128,
    /// above it up to a sixteenth too high.
    pub(super) fn percentile(&self, turns: u64, percent: u64) -> u64 {
        let with =
            self.turns_by_requests.values().fold(0_u64, |sum, turns| sum.saturating_add(*turns));
        let rank = (u128::from(turns) * u128::from(percent)).div_ceil(100);
        let mut seen = u128::from(turns.saturating_sub(with));
        if seen >= rank {
            return 0;
        }
        for (requests, turns) in &self.turns_by_requests {
            seen += u128::from(*turns);
            if seen >= rank {
                return (*requests).min(self.most);
            }
        }
        self.most
    }
}

/// The value under which a histogram counts `value`: one of a few hundred.
fn rounded(value: u64) -> u64 {
    if value <= EXACT {
        return value;
    }
    // Five leading bits are kept.
    let step = 1 << (value.ilog2() - 4);
    value.div_ceil(step).saturating_mul(step)
}

/// The entry called `name`, made if need be; where there are too many, the one for all others.
pub(super) fn slot<'a, V: Default>(map: &'a mut BTreeMap<String, V>, name: &str) -> &'a mut V {
    let names = map.len() - usize::from(map.contains_key(OTHER));
    let known = map.contains_key(name) || names < MOST_NAMES;
    map.entry(if known { name } else { OTHER }.to_owned()).or_default()
}

#[cfg(test)]
mod tests;
