//! Turns: what one unit of the app's own work takes of the quotas, and how many fit into a day.
//!
//! | to know | look in |
//! |---|---|
//! | a turn and its report | [`turn`] |
//! | how its steps are counted | [`recorder`], [`tally`] |
//! | what many of them come to | [`summary`] |
//! | where that is kept | [`book`] |
//! | how many fit into a day | [`capacity`] |
//! | what is told of all that | [`report`], [`table`] |

mod book;
mod capacity;
mod recorder;
mod report;
mod summary;
mod table;
mod tally;
mod turn;

use std::sync::Arc;

pub(crate) use self::{book::TurnBook, recorder::StepRecorder};
pub use self::{
    capacity::{Capacity, ModelCapacity},
    report::{KindTurns, ModelTurns, PerTurn, StepTurns, Turns},
    tally::{ModelUse, StepUse},
    turn::{StepReport, Turn, TurnReport},
};
use crate::Gemini;

impl Gemini {
    /// Begins a turn: one unit of the app's own work, of the kind called `kind`, which makes several calls.
    ///
    /// ```no_run
    /// # async fn run(gemini: keywheel::Gemini) -> Result<(), keywheel::Error> {
    /// let turn = gemini.turn("chat");
    /// turn.step("recall").generate("gemini-3.5-flash-lite", "What do we know?").await?;
    /// turn.step("answer").generate("gemini-3.5-flash-lite", "Say hello").await?;
    /// println!("{}", turn.finish());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Costs a look at the counts of every bucket.
    pub fn turn(&self, kind: &str) -> Turn {
        Turn::new(self.clone(), kind, Arc::clone(self.turn_book()))
    }

    /// What turns took so far, by kind, model and step, and how many fit into a day by the limits that are known.
    ///
    /// The figures outlive the process, in `<stem>.turns.json` beside the pool's state file, and are those of all
    /// processes that share it. Reads that file, which blocks for a moment.
    #[must_use]
    pub fn turns(&self) -> Turns {
        Turns::new(self.turn_book().figures(), self.pool())
    }
}
