//! The figures of all turns.

use super::{tally::StepUse, turn::TurnReport};

/// Where turns are summed up.
#[derive(Debug, Default)]
pub(crate) struct TurnBook;

impl TurnBook {
    pub(super) fn record(&self, _report: &TurnReport) {}

    pub(super) fn record_late(&self, _reported: &TurnReport, _late: &StepUse) {}
}
