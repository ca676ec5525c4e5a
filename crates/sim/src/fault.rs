//! One fault, and which request meets it.

use std::collections::BTreeMap;

use crate::{answer::AnswerKind, config::Faults, random};

/// What goes wrong with a request. The rates stand in [`Faults`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// 503 "high demand".
    Overloaded,
    /// 500 "Internal error encountered."
    Internal,
    /// 502 with an HTML page.
    Html,
    /// 504 "Deadline expired".
    Deadline,
    /// The connection ends without a reply. The request was counted.
    Reset,
    /// The head of the reply comes, its body never does.
    Stall,
    /// The connection breaks in the middle of the body.
    Broken,
    /// A stream ends without a `finishReason`. Other replies are not touched.
    Cut,
    /// A stream has an error as its first event. Other replies are not touched.
    ErrorFirst,
    /// A stream has an error after some text. Other replies are not touched.
    ErrorMidway,
    /// A 200 with no body at all.
    EmptyBody,
    /// A 200 with a candidate that has neither content nor fault.
    NoContent,
    /// A 200 with thoughts and no answer. A success.
    ThoughtOnly,
    /// A 200 without candidates: the prompt was blocked. A success.
    Blocked,
    /// A stream ends in the middle of a function call, or of its last event when it has none. Other replies
    /// are not touched.
    CutCall,
    /// A 429 without details, though no limit was met. Not counted.
    Spurious429,
    /// No connection. Not counted.
    Unreachable,
}

impl Fault {
    /// True when the request never gets as far as the quota.
    pub(crate) const fn before_quota(self) -> bool {
        matches!(self, Self::Spurious429 | Self::Unreachable)
    }

    /// True when nobody gets a whole answer, streamed or not.
    pub(crate) fn spoils_unary(&self) -> bool {
        let of_streams = [Self::Cut, Self::CutCall, Self::ErrorFirst, Self::ErrorMidway];
        let successes = [Self::ThoughtOnly, Self::Blocked];
        let mut harmless = of_streams.iter().chain(&successes);
        !harmless.any(|fault| fault == self)
    }

    /// The answer that it makes of the usual one; a success, but for [`NoContent`](Self::NoContent).
    pub(crate) const fn answer(self) -> AnswerKind {
        match self {
            Self::ThoughtOnly => AnswerKind::ThoughtOnly,
            Self::Blocked => AnswerKind::Blocked,
            Self::NoContent => AnswerKind::NoContent,
            _ => AnswerKind::Usual,
        }
    }
}

/// Draws faults; see [`random`] for what a draw depends on.
#[derive(Debug, Clone)]
pub(crate) struct Draws {
    seed: u64,
    faults: Faults,
    /// Of the models that have rates of their own.
    of_models: BTreeMap<String, Faults>,
}

/// Which request of which bucket and day a draw is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DrawFor<'a> {
    pub(crate) project: &'a str,
    pub(crate) model: &'a str,
    /// Days since the common era.
    pub(crate) day: i32,
    /// The number of the request in its bucket and day.
    pub(crate) number: u64,
}

impl Draws {
    pub(crate) const fn new(
        seed: u64,
        faults: Faults,
        of_models: BTreeMap<String, Faults>,
    ) -> Self {
        Self { seed, faults, of_models }
    }

    pub(crate) fn faults(&self, model: &str) -> &Faults {
        self.of_models.get(model).unwrap_or(&self.faults)
    }

    pub(crate) fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// The fault that an arriving request meets before any quota is looked at. `what.number` counts
    /// arrivals.
    pub(crate) fn on_arrival(&self, what: DrawFor<'_>) -> Option<Fault> {
        self.exclusive(what, b"arrival", true)
    }

    /// The fault that a counted request meets. `what.number` counts counted requests.
    pub(crate) fn on_counted(&self, what: DrawFor<'_>) -> Option<Fault> {
        self.exclusive(what, b"counted", false)
    }

    /// Whether a refusal comes without details, and whether it names every quota. `what.number` counts
    /// refusals.
    pub(crate) fn on_refusal(&self, what: DrawFor<'_>) -> (bool, bool) {
        let mut rng = self.generator(what, b"refusal");
        let faults = self.faults(what.model);
        (rng.f64() < faults.bare_429, rng.f64() < faults.several_violations)
    }

    /// A generator for choices that only decorate.
    pub(crate) fn generator(&self, what: DrawFor<'_>, purpose: &[u8]) -> fastrand::Rng {
        let parts = [
            purpose,
            what.project.as_bytes(),
            what.model.as_bytes(),
            &what.day.to_le_bytes(),
            &what.number.to_le_bytes(),
        ];
        random::generator(self.seed, &parts)
    }

    fn exclusive(&self, what: DrawFor<'_>, purpose: &[u8], before_quota: bool) -> Option<Fault> {
        let drawn = self.generator(what, purpose).f64();
        let mut edge = 0.0;
        for (fault, rate) in self.faults(what.model).exclusive() {
            if fault.before_quota() != before_quota {
                continue;
            }
            edge += rate;
            if drawn < edge {
                return Some(fault);
            }
        }
        None
    }
}
