//! The port: connections with limits on all that a client can be slow or large with, and a stop that lets requests end.

mod connection;
mod crowd;
mod handles;
mod lanes;
mod limits;
mod phase;
mod stall;

use std::{future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};

use self::crowd::{Crowd, Seldom};
pub(crate) use self::{
    crowd::RequestPlace,
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
    let crowd = Arc::new(Crowd::new(&limits));
    let rules = Arc::new(connection::Rules::new(limits));
    let (mut full, mut failed) = (Seldom::default(), Seldom::default());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stage.left(Phase::Serving) => break,
        };
        // Taken out of this runtime, since another will wait for it.
        match accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
            Ok((stream, peer)) => {
                // One waits here, so that those who have a place hear of it; all others in the kernel's queue.
                let place = match crowd.place_now() {
                    Some(place) => place,
                    None => {
                        if full.is_due() {
                            warn_of_crowd(&limits);
                        }
                        tokio::select! {
                            place = crowd.place() => place,
                            () = stage.left(Phase::Serving) => break,
                        }
                    }
                };
                let (service, rules) = (Arc::clone(&service), Arc::clone(&rules));
                let (crowd, stage) = (Arc::clone(&crowd), stage.clone());
                let lane = lanes.freest();
                let handle = lane.handle().clone();
                let served = async move {
                    match TcpStream::from_std(stream) {
                        Ok(stream) => {
                            connection::serve(stream, peer, service, &rules, crowd, stage).await;
                        }
                        Err(error) => tracing::warn!(%error, "a connection could not be served"),
                    }
                    drop((place, lane));
                };
                connections.spawn_on(served, &handle);
            }
            // The client was gone already, or there are no file handles.
            Err(error) => {
                if failed.is_due() {
                    tracing::warn!(%error, "a connection could not be accepted");
                }
                tokio::time::sleep(REST).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    drain(&mut connections, &mut stage).await;
}

fn warn_of_crowd(limits: &ServerLimits) {
    let connections = limits.connections;
    match limits.short_of_files {
        Some(limit) => tracing::warn!(
            connections,
            open_files = limit,
            "newcomers wait: there are as many connections as the limit of open files allows. Raise it: \
             `ulimit -n` in a shell, `LimitNOFILE=` of systemd, `--ulimit nofile=` of a container"
        ),
        None => tracing::warn!(
            connections,
            "newcomers wait: there are as many connections as `[serve] connections` allows"
        ),
    }
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
