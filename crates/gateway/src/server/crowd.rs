//! What happens when there are as many connections as there may be.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use super::ServerLimits;

/// How long after somebody waited another is expected to. The kernel's queue cannot be looked into, and those who keep a
/// connection between two newcomers would be all that there is in the end.
const LATELY: Duration = Duration::from_secs(1);

/// How often somebody is warned.
const SELDOM: Duration = Duration::from_secs(60);

/// Places for connections and requests.
///
/// While a newcomer waits for a place, those who have one give it up where nobody misses it: a connection of HTTP/1 is
/// told with its next answer that it was the last, and one without requests ends. Else those who came first would keep
/// all others out for as long as they go on asking. Over HTTP/2 an answer may stay unread for ever, so that is waited for
/// no longer than for a reader that stands still.
#[derive(Debug)]
pub(super) struct Crowd {
    connections: Arc<Semaphore>,
    requests: Arc<Semaphore>,
    began: Instant,
    /// When somebody waited last, in milliseconds since `began`. 0: never; [`NOW`]: somebody waits.
    waited: AtomicU64,
}

/// Of [`Crowd::waited`].
const NOW: u64 = u64::MAX;

impl Crowd {
    pub(super) fn new(limits: &ServerLimits) -> Self {
        Self {
            connections: Arc::new(Semaphore::new(limits.connections)),
            requests: Arc::new(Semaphore::new(limits.requests)),
            began: Instant::now(),
            waited: AtomicU64::new(0),
        }
    }

    /// A place for a connection, if there is one now.
    pub(super) fn place_now(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.connections).try_acquire_owned().ok()
    }

    /// A place for a connection, once there is one.
    ///
    /// # Cancel safety
    /// Dropped, nobody waits any more.
    pub(super) async fn place(&self) -> OwnedSemaphorePermit {
        let _waiting = Waiting::begin(self);
        taken(&self.connections).await
    }

    /// A place for a request, which counts among those `under_way` on its connection.
    pub(super) async fn request(&self, under_way: &Arc<AtomicUsize>) -> RequestPlace {
        let permit = taken(&self.requests).await;
        under_way.fetch_add(1, Ordering::Relaxed);
        RequestPlace { _permit: permit, under_way: Arc::clone(under_way) }
    }

    /// Whether somebody waits for a connection to end, or did a moment ago.
    pub(super) fn somebody_waits(&self) -> bool {
        match self.waited.load(Ordering::Relaxed) {
            0 => false,
            NOW => true,
            last => self.began.elapsed() < Duration::from_millis(last) + LATELY,
        }
    }
}

/// A request's place. Dropped, it is free again.
#[derive(Debug)]
pub(crate) struct RequestPlace {
    _permit: OwnedSemaphorePermit,
    under_way: Arc<AtomicUsize>,
}

impl Drop for RequestPlace {
    fn drop(&mut self) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn taken(places: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    Arc::clone(places).acquire_owned().await.expect("it is never closed")
}

/// While it lives, somebody waits.
struct Waiting<'a>(&'a Crowd);

impl<'a> Waiting<'a> {
    fn begin(crowd: &'a Crowd) -> Self {
        crowd.waited.store(NOW, Ordering::Relaxed);
        Self(crowd)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let now = u64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(NOW - 1);
        self.0.waited.store(now.max(1), Ordering::Relaxed);
    }
}

/// Lets what may happen a thousand times a second be said now and then.
#[derive(Debug, Default)]
pub(super) struct Seldom(Option<Instant>);

impl Seldom {
    /// Whether it is time to say it again.
    pub(super) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.0.is_none_or(|last| now.duration_since(last) >= SELDOM);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_waited_a_moment_ago_may_not_have_been_the_last() {
        let limits = ServerLimits { connections: 1, ..ServerLimits::default() };
        let crowd = Crowd::new(&limits);
        let first = crowd.place_now().unwrap();
        assert!(!crowd.somebody_waits() && crowd.place_now().is_none());
        let mut waiting = Box::pin(crowd.place());
        assert!((&mut waiting).now_or_never().is_none() && crowd.somebody_waits());
        drop(first);
        let _second = waiting.await;
        advance(LATELY / 2).await;
        assert!(crowd.somebody_waits());
        advance(LATELY).await;
        assert!(!crowd.somebody_waits());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_said_seldom_is_said_at_once_and_then_every_minute() {
        let mut seldom = Seldom::default();
        assert!(seldom.is_due() && !seldom.is_due());
        advance(SELDOM - Duration::from_millis(1)).await;
        assert!(!seldom.is_due());
        advance(Duration::from_millis(1)).await;
        assert!(seldom.is_due());
    }
}
