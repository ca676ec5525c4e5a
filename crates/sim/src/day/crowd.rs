//! Many calls on one thread, run until none can go on.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use chrono::{DateTime, Utc};
use futures_util::{
    future::LocalBoxFuture,
    stream::{FuturesUnordered, Stream as _},
};

use super::Outcome;

/// How a call ended, and when it had arrived.
pub(super) type Ended = (Outcome, DateTime<Utc>);

/// Calls under way.
///
/// Not `LocalPool` of futures-executor: a restart has to drop every call at once, which a pool of spawned tasks
/// cannot do.
pub(super) struct Crowd {
    calls: FuturesUnordered<LocalBoxFuture<'static, Ended>>,
    woken: Arc<Woken>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl Crowd {
    pub(super) fn new() -> Self {
        Self { calls: FuturesUnordered::new(), woken: Arc::new(Woken(AtomicBool::new(false))) }
    }

    pub(super) fn add(&self, call: LocalBoxFuture<'static, Ended>) {
        self.calls.push(call);
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Drops every call under way, as the end of a process does, and says how many there were.
    pub(super) fn drop_all(&mut self) -> usize {
        let dropped = self.calls.len();
        self.calls = FuturesUnordered::new();
        dropped
    }

    /// Runs the calls until all of them wait; returns those that ended.
    pub(super) fn run_until_stalled(&mut self) -> Vec<Ended> {
        let waker = Waker::from(Arc::clone(&self.woken));
        let mut cx = Context::from_waker(&waker);
        let mut ended = Vec::new();
        loop {
            self.woken.0.store(false, Ordering::Release);
            match Pin::new(&mut self.calls).poll_next(&mut cx) {
                Poll::Ready(Some(call)) => ended.push(call),
                Poll::Ready(None) => return ended,
                Poll::Pending if self.woken.0.load(Ordering::Acquire) => {}
                Poll::Pending => return ended,
            }
        }
    }
}
