//! Turns: what one unit of the app's own work takes of the quotas, and how many fit into a day.
//!
//! [`Gemini::turn`] begins one, [`Turn::step`] gives a client that counts, [`Gemini::turns`] sums them all up. How to
//! read the figures is in `docs/turns.md` of the repository.

// A turn and its report are in `turn`, counting in `recorder` and `tally`, the sums of many in `summary`, their file
// in `book`, how many fit into a day in `capacity`, and how all that is told in `report` and `table`.
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
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, Limits, StateLocation, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # script.otherwise(|_| Scripted::text("Hello"));
    /// # let gemini = Gemini::builder()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script))
    /// #     .limits("*", Limits { rpd: Some(500), ..Limits::default() })
    /// #     .build()
    /// #     .await?;
    /// let turn = gemini.turn("chat");
    /// turn.step("recall").generate("gemini-3.5-flash-lite", "What do we know?").await?;
    /// turn.step("answer").generate("gemini-3.5-flash-lite", "Say hello").await?;
    /// let report = turn.finish();
    /// assert_eq!(report.total().attempts, 2);
    /// println!("{report}");
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
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, Limits, StateLocation, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # script.otherwise(|_| Scripted::text("Hello"));
    /// # let gemini = Gemini::builder()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script))
    /// #     .limits("*", Limits { rpd: Some(500), ..Limits::default() })
    /// #     .build()
    /// #     .await?;
    /// for _ in 0..10 {
    ///     let turn = gemini.turn("chat");
    ///     turn.step("plan").generate("gemini-3.5-flash-lite", "Plan").await?;
    ///     turn.step("answer").generate("gemini-3.5-flash-lite", "Answer").await?;
    /// }
    /// let turns = gemini.turns();
    /// let chat = turns.kind("chat").expect("there were some");
    /// assert_eq!(chat.turns, 10);
    /// assert_eq!(chat.capacity.turns_a_day, Some(250)); // one key of 500 a day, two requests a turn
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn turns(&self) -> Turns {
        Turns::new(self.turn_book().figures(), self.pool())
    }
}
