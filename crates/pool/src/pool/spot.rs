//! Waiting in the line, by the pool's clock.

use std::{sync::Arc, time::Duration};

use keywheel_core::Clock;
use tokio::sync::Notify;

use crate::{Ask, state::model::ModelPool, wait::Ticket};

/// A place in the line; dropping it leaves the line.
pub(super) struct Spot<'a> {
    model: &'a ModelPool,
    ask: &'a Ask,
    pub(super) ticket: Ticket,
    bell: Arc<Notify>,
}

/// Whether it takes nothing when its turn comes.
pub(super) struct OnlyLooks(pub(super) bool);

impl<'a> Spot<'a> {
    pub(super) fn join(model: &'a ModelPool, ask: &'a Ask, only_looks: OnlyLooks) -> Self {
        let (ticket, bell) = model.lock().line.join(ask, only_looks.0);
        Self { model, ask, ticket, bell }
    }

    /// Until the bell rings, or the clock shows `until_ms`, or it goes back.
    pub(super) async fn wait(&self, clock: &Arc<dyn Clock>, until_ms: Option<i64>) {
        let Some(until_ms) = until_ms else { return self.bell.notified().await };
        tokio::select! {
            () = self.bell.notified() => {}
            () = sleep_until_or_set_back(&**clock, until_ms) => {}
        }
    }
}

impl Drop for Spot<'_> {
    fn drop(&mut self) {
        self.model.lock().line.leave(self.ask, self.ticket);
    }
}

/// Ends once `clock` reads `until_ms`, or is seen to go back: then the caller has to look again, since what it waits for may
/// be nearer. A deadline is another matter, see [`keywheel_core::clock::sleep_until`].
///
/// Real sleeps are cut into pieces of a second: a runtime's timer does not notice that the wall clock steps.
async fn sleep_until_or_set_back(clock: &dyn Clock, until_ms: i64) {
    const PIECE_MS: i64 = 1_000;
    if let Some(sleep) = clock.manual_sleep(until_ms) {
        return sleep.await;
    }
    let mut before_ms = clock.unix_ms();
    while before_ms < until_ms {
        let piece_ms = until_ms.saturating_sub(before_ms).min(PIECE_MS);
        let piece = Duration::from_millis(u64::try_from(piece_ms).unwrap_or(0));
        tokio::time::sleep(piece).await;
        let now_ms = clock.unix_ms();
        if now_ms < before_ms {
            return;
        }
        before_ms = now_ms;
    }
}
