//! The simulator without a network: a [`Transport`] in process.

use std::{io, sync::Arc};

use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture};
use keywheel_core::Clock;
use keywheel_provider::{
    Sent, Transport, TransportError, TransportKind, WireRequest, WireResponse,
};

use crate::{
    config::{ConfigErrors, SimConfig},
    fault::Fault,
    reply::{Outcome, SimReply},
    request::SimRequest,
    shared::SharedWorld,
    world::World,
};

/// Sends requests to a [`World`] in the same process, whatever host they name.
///
/// With a `ManualClock` no real time passes, and a day of traffic takes milliseconds.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use keywheel_core::{Clock, ManualClock};
/// use keywheel_sim::{Limits, ModelConfig, SharedWorld, SimConfig, SimTransport, World};
///
/// let clock = ManualClock::at("2026-11-30T12:00:00Z".parse().unwrap());
/// let config = SimConfig::new().with_model("gemini-x", ModelConfig::free(Limits::new()));
/// let world = SharedWorld::new(World::new(config).unwrap(), Arc::new(clock.clone()));
/// let transport = SimTransport::to(world.clone()); // for the client under test
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(world.clock().now(), clock.now());
/// assert_eq!(transport.world().stats(), world.stats()); // they share one world
/// ```
///
/// # Cancel safety
/// As with a network: a request that was sent is counted, also when nobody waits for the answer any more.
#[derive(Debug, Clone)]
pub struct SimTransport {
    world: SharedWorld,
}

impl SimTransport {
    /// A transport to a new world.
    ///
    /// # Errors
    /// All that is wrong with the configuration.
    pub fn new(config: SimConfig, clock: Arc<dyn Clock>) -> Result<Self, ConfigErrors> {
        Ok(Self::to(SharedWorld::new(World::new(config)?, clock)))
    }

    /// A transport to a world that exists.
    #[must_use]
    pub const fn to(world: SharedWorld) -> Self {
        Self { world }
    }

    /// The world behind it.
    #[must_use]
    pub const fn world(&self) -> &SharedWorld {
        &self.world
    }
}

impl Transport for SimTransport {
    fn send(
        &self,
        request: WireRequest,
    ) -> BoxFuture<'static, Result<WireResponse, TransportError>> {
        let world = self.world.clone();
        async move {
            let request = SimRequest::sent(request).await.map_err(unread)?;
            let SimReply { http, outcome, .. } = world.play(&request).await;
            let Some(http) = http else { return Err(no_reply(&outcome)) };
            let (status, headers) = (http.status, http.headers.clone());
            let body = world.pieces(http).map(|piece| piece.map_err(|_| interrupted())).boxed();
            Ok(WireResponse { status, headers, body })
        }
        .boxed()
    }
}

fn unread(error: io::Error) -> TransportError {
    let message = "the request's body cannot be read";
    TransportError::new(TransportKind::Request, Sent::No, message).with_source(error)
}

fn no_reply(outcome: &Outcome) -> TransportError {
    if *outcome == Outcome::Faulted(Fault::Unreachable) {
        let message = "the simulated host is unreachable";
        return TransportError::new(TransportKind::Connect, Sent::No, message);
    }
    interrupted()
}

fn interrupted() -> TransportError {
    let message = "the simulated connection was reset";
    TransportError::new(TransportKind::Interrupted, Sent::Maybe, message)
}
