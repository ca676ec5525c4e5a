//! hyper's client once for each runtime.

use std::{
    fmt,
    sync::{PoisonError, RwLock},
    time::Duration,
};

use http::Request;
use hyper_util::{
    client::legacy::{Client, ResponseFuture},
    rt::{TokioExecutor, TokioTimer},
};
use tokio::runtime::{Handle, Id};

use super::{Outgoing, connector::Connector};

/// How long a connection is kept for the next request.
const KEPT: Duration = Duration::from_secs(90);

/// Runtimes whose connections are kept; those of the oldest are let go for one more. Nothing says when a runtime ended.
const MAX_RUNTIMES: usize = 1_024;

/// A client with connections of its own for each runtime that asks.
///
/// A connection is driven by a task of the runtime that made it. Used from another, each piece would wait for two
/// threads to wake, and for ever while nobody runs the first runtime.
pub(super) struct Clients {
    connector: Connector,
    made: RwLock<Vec<OfRuntime>>,
}

/// A runtime, or none, and what it has.
type OfRuntime = (Option<Id>, Client<Connector, Outgoing>);

impl Clients {
    pub(super) const fn new(connector: Connector) -> Self {
        Self { connector, made: RwLock::new(Vec::new()) }
    }

    /// Sends `request` over a connection of the runtime that this is called in.
    pub(super) fn request(&self, request: Request<Outgoing>) -> ResponseFuture {
        // Without a runtime the sending will say so.
        let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
        let is_its_own = |made: &&OfRuntime| made.0 == runtime;
        {
            let made = self.made.read().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, client)) = made.iter().find(is_its_own) {
                return client.request(request);
            }
        }
        let mut made = self.made.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread of the same runtime may have been faster.
        let at = made.iter().position(|made| is_its_own(&made)).unwrap_or_else(|| {
            if made.len() == MAX_RUNTIMES {
                made.remove(0);
            }
            made.push((runtime, self.client()));
            made.len() - 1
        });
        made[at].1.request(request)
    }

    fn client(&self) -> Client<Connector, Outgoing> {
        Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(KEPT)
            .build(self.connector.clone())
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}
