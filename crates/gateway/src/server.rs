//! The port: connections with limits on all that a client can be slow or large with, and a stop that lets requests end.

mod connection;
mod lanes;
mod limits;
mod phase;
mod stall;

use std::{future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};

pub(crate) use self::{
    lanes::Lanes,
    limits::{MAX_HEADERS, ServerLimits},
    phase::{Phase, Phases, Stage},
};
use crate::respond::AnswerBody;

/// How long streams that were told to end have to say so to their clients.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long the accept loop rests after a failure, so that want of file handles is no busy loop.
const REST: Duration = Duration::from_millis(20);

/// What answers requests. Infallible: a fault is an answer, too.
pub(crate) trait Service: Send + Sync + 'static {
    /// Answers one request. Dropped when the client goes away.
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> impl Future<Output = Response<AnswerBody>> + Send;
}

/// Serves `listener` on `lanes` until `phase` says otherwise; ends when every connection has.
///
/// In [`Phase::Draining`] nothing new is accepted, connections without a request close, the others after it. After the
/// drain's time it is [`Phase::Ending`]: streams end with an error their client notices. What is left after two
/// seconds more is cut off.
pub(crate) async fn serve<S: Service>(
    listener: TcpListener,
    service: Arc<S>,
    limits: ServerLimits,
    mut stage: Stage,
    lanes: &Lanes,
) {
    let mut connections = JoinSet::new();
    let free = Arc::new(Semaphore::new(limits.connections));
    let rules = Arc::new(connection::Rules::new(limits));
    loop {
        // A permit first: at the cap newcomers wait in the kernel's queue.
        let permit = tokio::select! {
            permit = Arc::clone(&free).acquire_owned() => permit.expect("it is never closed"),
            () = stage.left(Phase::Serving) => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stage.left(Phase::Serving) => break,
        };
        // Taken out of this runtime, since another will wait for it.
        match accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
            Ok((stream, peer)) => {
                let (service, rules, stage) =
                    (Arc::clone(&service), Arc::clone(&rules), stage.clone());
                let lane = lanes.freest();
                let handle = lane.handle().clone();
                let served = async move {
                    match TcpStream::from_std(stream) {
                        Ok(stream) => {
                            connection::serve(stream, peer, service, &rules, stage).await;
                        }
                        Err(error) => tracing::warn!(%error, "a connection could not be served"),
                    }
                    drop((permit, lane));
                };
                connections.spawn_on(served, &handle);
            }
            // The client was gone already, or there are no file handles.
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(REST).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    drain(&mut connections, &mut stage).await;
}

async fn drain(connections: &mut JoinSet<()>, stage: &mut Stage) {
    tokio::select! {
        () = all_of(connections) => return,
        () = stage.left(Phase::Draining) => {}
    }
    let left = connections.len();
    if timeout(LAST_WORDS, all_of(connections)).await.is_ok() {
        tracing::warn!(
            left,
            "answers were broken off at the end of the drain; their clients were told"
        );
        return;
    }
    let left = connections.len();
    connections.shutdown().await;
    tracing::warn!(left, "connections were cut off at the end of the drain");
}

async fn all_of(connections: &mut JoinSet<()>) {
    while connections.join_next().await.is_some() {}
}

/// Listens on `address`; port 0 takes a free one.
///
/// # Errors
/// The port cannot be had.
pub(crate) async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

#[cfg(test)]
mod tests;
