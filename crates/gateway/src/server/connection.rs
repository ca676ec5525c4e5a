//! One connection: HTTP/1.1, or HTTP/2 for a client that begins with its preface.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{HeaderValue, header};
use hyper::{
    body::Body,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    net::TcpStream,
    time::{Instant, sleep_until, timeout, timeout_at},
};

use super::{Phase, ServerLimits, Service, Stage, crowd::Crowd, stall::Stalling};

/// What an HTTP/2 connection without news is asked after, so that dead ones are noticed.
const PING_AFTER: Duration = Duration::from_secs(30);

/// How long a connection is kept without a request while somebody waits for its place.
const QUIET: Duration = Duration::from_secs(5);

/// How all connections are spoken with.
#[derive(Debug)]
pub(crate) struct Rules {
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    limits: ServerLimits,
}

impl Rules {
    pub(crate) fn new(limits: ServerLimits) -> Self {
        let mut http1 = http1::Builder::new();
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(limits.idle)
            .max_buf_size(limits.head_bytes);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(limits.idle)
            .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
            .max_concurrent_streams(limits.streams)
            .max_send_buf_size(64 << 10);
        Self { http1, http2, limits }
    }
}

/// Serves one connection to its end.
pub(crate) async fn serve<S: Service>(
    stream: TcpStream,
    peer: SocketAddr,
    service: Arc<S>,
    rules: &Rules,
    crowd: Arc<Crowd>,
    mut stage: Stage,
) {
    let limit = Instant::now() + rules.limits.head;
    let speaks_http2 = tokio::select! {
        begun = timeout_at(limit, begins_as_http2(&stream)) => match begun {
            Ok(Ok(speaks_http2)) => speaks_http2,
            // Gone, or silent for too long.
            Ok(Err(_)) | Err(_) => return,
        },
        // Nothing was asked yet.
        () = stage.left(Phase::Serving) => return,
    };
    // Answers are written whole, so there is nothing to gather.
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(Stalling::new(stream, rules.limits.stall));
    let talk = Talk { asked: Arc::default(), under_way: Arc::default(), crowd };
    let (asked, crowd) = (Arc::clone(&talk.asked), Arc::clone(&talk.crowd));
    let under_way = Arc::clone(&talk.under_way);
    let ended = if speaks_http2 {
        let service = service_fn(move |request| {
            asked.store(true, Ordering::Relaxed);
            let (service, crowd) = (Arc::clone(&service), Arc::clone(&crowd));
            let under_way = Arc::clone(&under_way);
            async move {
                let place = crowd.request(&under_way).await;
                let answer = service.answer(request, peer).await;
                answer.body().keep(place);
                Ok::<_, Infallible>(answer)
            }
        });
        run(rules.http2.serve_connection(io, service), limit, rules, &talk, &mut stage).await
    } else {
        let came = Instant::now();
        // One request after the other: the place is the connection's.
        let _place = tokio::select! {
            place = crowd.request(&under_way) => place,
            () = stage.left(Phase::Serving) => return,
        };
        // That was not the client's time.
        let limit = limit + came.elapsed();
        let service = service_fn(move |request| {
            asked.store(true, Ordering::Relaxed);
            let (service, crowd) = (Arc::clone(&service), Arc::clone(&crowd));
            async move {
                let mut answer = service.answer(request, peer).await;
                if crowd.somebody_waits() {
                    let close = HeaderValue::from_static("close");
                    answer.headers_mut().insert(header::CONNECTION, close);
                }
                Ok::<_, Infallible>(answer)
            }
        });
        run(rules.http1.serve_connection(io, service), limit, rules, &talk, &mut stage).await
    };
    if let Err(error) = ended {
        tracing::debug!(%error, %peer, "a connection ended early");
    }
}

/// What is seen of a connection from outside.
struct Talk {
    /// Something was asked since the last look.
    asked: Arc<AtomicBool>,
    /// How many requests have a place. Of HTTP/1, the connection has it.
    under_way: Arc<AtomicUsize>,
    crowd: Arc<Crowd>,
}

impl Talk {
    /// True if nothing was asked since the last look.
    fn is_quiet(&self) -> bool {
        !self.asked.swap(false, Ordering::Relaxed)
    }
}

/// Whether the first bytes are those of HTTP/2, which no HTTP/1 method begins with. Takes none of them.
async fn begins_as_http2(stream: &TcpStream) -> io::Result<bool> {
    const PREFACE: &[u8] = b"PRI ";
    loop {
        let mut head = [0; PREFACE.len()];
        let seen = stream.peek(&mut head).await?;
        if seen == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if !PREFACE.starts_with(&head[..seen]) {
            return Ok(false);
        }
        if seen == PREFACE.len() {
            return Ok(true);
        }
        // The socket is readable all the while, so its readiness would be a busy loop.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A connection that can be asked to end after the request under way.
trait Graceful: Future<Output = hyper::Result<()>> {
    fn finish(self: Pin<&mut Self>);
}

impl<I, B, S> Graceful for http1::Connection<I, S>
where
    S: hyper::service::HttpService<hyper::body::Incoming, ResBody = B>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    B: Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn finish(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<I, B, S> Graceful for http2::Connection<I, S, TokioExecutor>
where
    S: hyper::service::HttpService<hyper::body::Incoming, ResBody = B>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    B: Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    TokioExecutor: hyper::rt::bounds::Http2ServerConnExec<S::Future, B>,
{
    fn finish(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Runs a connection to its end, or to `limit` if nothing was asked by then: half a head, byte by byte, is no reason
/// to keep it. While somebody waits for its place, so is nothing for some seconds, and an answer that nobody reads.
async fn run(
    connection: impl Graceful,
    limit: Instant,
    rules: &Rules,
    talk: &Talk,
    stage: &mut Stage,
) -> hyper::Result<()> {
    let mut connection = pin!(connection);
    let mut look = pin!(sleep_until(limit));
    let mut is_new = true;
    let mut gives_way = false;
    while !gives_way {
        tokio::select! {
            ended = &mut connection => return ended,
            () = &mut look => {
                let is_quiet = talk.is_quiet();
                if is_quiet && is_new {
                    return Ok(());
                }
                // What was asked long ago and is still under way comes to its end first.
                gives_way = is_quiet && talk.crowd.somebody_waits();
                is_new = false;
                look.as_mut().reset(Instant::now() + QUIET);
            }
            () = stage.left(Phase::Serving) => break,
        }
    }
    connection.as_mut().finish();
    if !gives_way {
        return connection.await;
    }
    let mut was_idle = false;
    loop {
        if let Ok(ended) = timeout(rules.limits.stall, &mut connection).await {
            return ended;
        }
        // A request may have come before the client heard of it.
        let is_idle = talk.is_quiet() && talk.under_way.load(Ordering::Relaxed) == 0;
        if is_idle && was_idle {
            return Ok(());
        }
        was_idle = is_idle;
    }
}
