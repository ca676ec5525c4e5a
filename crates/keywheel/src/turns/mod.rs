//! Turns: what one unit of the app's own work takes of the quotas, and how many fit into a day.
//!
//! | to know | look in |
//! |---|---|
//! | a turn and its report | [`turn`] |
//! | how its steps are counted | [`recorder`], [`tally`] |
//! | where the figures are kept | [`book`] |
//! | how a report looks | [`table`] |

mod book;
mod recorder;
mod table;
mod tally;
mod turn;

use std::sync::Arc;

pub(crate) use self::{book::TurnBook, recorder::StepRecorder};
pub use self::{
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
}
