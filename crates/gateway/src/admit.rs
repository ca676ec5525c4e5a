//! Who is let through: the ladder that each request climbs, and the queues beside it.
//!
//! | rung | file |
//! |---|---|
//! | over the cap of requests a minute: refused at once | [`minute`] |
//! | what no settlement, no key and no new day can let through in time: refused at once | [`gate`] |
//! | what may fit in time: waits | [`mod@line`] says whose turn it is, [`gate`] wakes him |
//! | what fits: goes, and is told how full the budget is | [`budget`](crate::budget) |
//!
//! A request passes with the attempt that it makes when it is its turn:
//!
//! ```text
//! let passed = gate.pass(Asking { project, model, queue }, |sent| {
//!     relay.clone().patience(Duration::ZERO).on_sent(move || sent.tell()).into_future()
//! });
//! let (relayed, pass) = passed.await.map_err(|refused| refused.refusal(name, clock.now()))?;
//! // … the answer is handed on to its end, with `pass` held so long …
//! ```

mod gate;
mod line;
mod minute;
mod refused;

pub(crate) use self::{
    gate::{Asking, Gate, MinuteStanding, Pass},
    refused::Refused,
};
