//! The simulator on a port of this machine.

use std::{io, net::SocketAddr, sync::Arc};

use axum::body::{Body, to_bytes};
use futures_util::StreamExt as _;
use http::{Request, Response, StatusCode};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use keywheel_core::Clock;
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

use crate::{
    config::{ConfigErrors, SimConfig},
    reply::{HttpReply, JSON},
    request::SimRequest,
    shared::{Broken, SharedWorld},
    world::World,
};

/// The largest body taken; Google takes 100 MB.
const MAX_BODY: usize = 128 << 20;

/// Where the server tells what it counted, as JSON. Google has no such route, and no key is asked for.
const STATS: &str = "/stats";

/// A simulator that listens on this machine. Stops when dropped, and breaks off what is under way.
///
/// `GET /stats` tells what it counted, to programs in any language.
///
/// ```
/// use std::{net::SocketAddr, sync::Arc};
/// use keywheel_core::SystemClock;
/// use keywheel_sim::{Limits, ModelConfig, SimConfig, SimServer};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
/// let config = SimConfig::new().with_model("gemini-x", ModelConfig::free(Limits::new()));
/// let sim = SimServer::start_on(any_port, config, Arc::new(SystemClock)).await.unwrap();
/// assert_eq!(sim.base_url(), format!("http://127.0.0.1:{}", sim.addr().port()));
/// let models = reqwest::get(format!("{}/v1beta/models", sim.base_url())).await.unwrap();
/// assert_eq!(models.status(), 403); // no key
/// assert_eq!(sim.world().stats().strangers, 1);
/// # }
/// ```
#[derive(Debug)]
pub struct SimServer {
    addr: SocketAddr,
    world: SharedWorld,
    task: JoinHandle<()>,
}

/// Why a simulator does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration has faults.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The port cannot be had.
    #[error("cannot listen on {addr}")]
    Listen {
        /// Where.
        addr: SocketAddr,
        /// Why not.
        source: io::Error,
    },
}

impl SimServer {
    /// Starts on a free port of the loopback interface.
    ///
    /// # Errors
    /// All that is wrong with the configuration, or no port.
    pub async fn start(config: SimConfig, clock: Arc<dyn Clock>) -> Result<Self, StartError> {
        Self::start_on(SocketAddr::from(([127, 0, 0, 1], 0)), config, clock).await
    }

    /// Starts on a given address; port 0 takes a free one.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_on(
        addr: SocketAddr,
        config: SimConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StartError> {
        let world = SharedWorld::new(World::new(config)?, clock);
        let listen_error = |source| StartError::Listen { addr, source };
        let listener = TcpListener::bind(addr).await.map_err(listen_error)?;
        let addr = listener.local_addr().map_err(listen_error)?;
        let task = tokio::spawn(accept(listener, world.clone()));
        Ok(Self { addr, world, task })
    }

    /// Where it listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What clients are pointed at, without a version and without a slash at the end.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The world behind it.
    #[must_use]
    pub const fn world(&self) -> &SharedWorld {
        &self.world
    }
}

impl Drop for SimServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, world: SharedWorld) {
    // Dropped with this task, and with it every connection.
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(serve(stream, world.clone()));
            }
            // Out of file handles, or the client was gone already: go on, but not in a tight loop.
            Err(error) => {
                tracing::warn!(%error, "the simulator could not accept a connection");
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

/// Serves one connection. Without axum's router, for it has no way to end a connection without a reply.
async fn serve(stream: TcpStream, world: SharedWorld) {
    let service = hyper::service::service_fn(move |request| answer(request, world.clone()));
    let builder = Builder::new(TokioExecutor::new());
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection of the simulator ended early");
    }
}

/// The reply; an error ends the connection without one.
async fn answer(
    request: Request<hyper::body::Incoming>,
    world: SharedWorld,
) -> Result<Response<Body>, Broken> {
    let (head, body) = request.into_parts();
    if head.uri.path() == STATS {
        let counted = world.with(|world| world.stats().to_json());
        return Ok(reply_of(&world, HttpReply::whole(200, JSON, counted.to_string())));
    }
    let Ok(body) = to_bytes(Body::new(body), MAX_BODY).await else {
        return Ok(response(StatusCode::PAYLOAD_TOO_LARGE.as_u16(), Body::empty()));
    };
    let target = head.uri.to_string();
    let request = SimRequest::new(head.method, &target, head.headers, body);
    let reply = world.play(&request).await.http.ok_or(Broken)?;
    Ok(reply_of(&world, reply))
}

fn reply_of(world: &SharedWorld, reply: HttpReply) -> Response<Body> {
    let headers = reply.headers.clone();
    let status = reply.status;
    let pieces = world.pieces(reply).then(|piece| async {
        // A break discards what was not sent yet: let that go out first, or not even the head would.
        if piece.is_err() {
            tokio::task::yield_now().await;
        }
        piece
    });
    let mut response = response(status, Body::from_stream(pieces));
    *response.headers_mut() = headers;
    response
}

fn response(status: u16, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}
