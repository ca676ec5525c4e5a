//! One world for many users, and playing its replies in time.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::{Stream, stream};
use keywheel_core::{
    Clock,
    clock::{after_ms, sleep_until},
};

use crate::{
    reply::{HttpReply, Piece, SimReply},
    request::SimRequest,
    stats::Stats,
    world::World,
};

/// A [`World`] and the [`Clock`] it lives by, behind a handle that is cheap to clone.
#[derive(Debug, Clone)]
pub struct SharedWorld {
    world: Arc<Mutex<World>>,
    clock: Arc<dyn Clock>,
}

impl SharedWorld {
    /// Shares `world`.
    #[must_use]
    pub fn new(world: World, clock: Arc<dyn Clock>) -> Self {
        Self { world: Arc::new(Mutex::new(world)), clock }
    }

    /// Reads or changes the world. Not while a request is being decided; replies under way go on as
    /// they were decided.
    pub fn with<T>(&self, f: impl FnOnce(&mut World) -> T) -> T {
        // A panic of `f` leaves the world in a whole state at worst a step behind: a simulator goes on.
        f(&mut self.world.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A copy of what was counted so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.with(|world| world.stats().clone())
    }

    /// The clock it lives by.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Decides now, then waits for the reply's latency. The request is counted before the wait, so dropping
    /// the future takes nothing back.
    pub(crate) async fn play(&self, request: &SimRequest) -> SimReply {
        let now = self.clock.now();
        let reply = self.with(|world| world.handle(request, now));
        if !reply.latency.is_zero() {
            let at_ms = after_ms(now.timestamp_millis(), reply.latency);
            sleep_until(self.clock.as_ref(), at_ms, tokio::time::sleep).await;
        }
        reply
    }

    /// The pieces of a body in time. Ends with [`Broken`] where the connection breaks.
    pub(crate) fn pieces(
        &self,
        reply: HttpReply,
    ) -> impl Stream<Item = Result<Bytes, Broken>> + Send + use<> {
        let clock = Arc::clone(&self.clock);
        stream::unfold(reply.body.into_iter(), move |mut pieces| {
            let clock = Arc::clone(&clock);
            async move {
                loop {
                    match pieces.next()? {
                        Piece::Bytes(bytes) => return Some((Ok(bytes), pieces)),
                        Piece::Break => return Some((Err(Broken), Vec::new().into_iter())),
                        Piece::Stall => std::future::pending::<()>().await,
                        Piece::Pause(pause) => {
                            let at_ms = after_ms(clock.unix_ms(), pause);
                            sleep_until(clock.as_ref(), at_ms, tokio::time::sleep).await;
                        }
                    }
                }
            }
        })
    }
}

/// The connection breaks here.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the simulated connection broke")]
pub(crate) struct Broken;
