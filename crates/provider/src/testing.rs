//! A stand-in for the network, for your own tests: replies come from a script, and requests are kept to be
//! looked at. No socket, no key, no waiting. `keywheel::testing` shows a whole client in a test; this is one
//! request below it.
//!
//! | to | use |
//! |---|---|
//! | put replies into a queue, or compute each | [`Script::reply`], [`Script::otherwise`] |
//! | answer as Gemini does | [`Scripted::text`], [`stream`](Scripted::stream), [`function_call`](Scripted::function_call), [`embeddings`](Scripted::embeddings), [`token_count`](Scripted::token_count) |
//! | refuse as Gemini does | [`Scripted::day_spent`], [`minute_full`](Scripted::minute_full), [`overloaded`](Scripted::overloaded), [`invalid_key`](Scripted::invalid_key) |
//! | answer and refuse as OpenAI-compatible providers do | [`Scripted::openai_text`], [`openai_stream`](Scripted::openai_stream), [`openai_embeddings`](Scripted::openai_embeddings), [`openai_rate_limited`](Scripted::openai_rate_limited) |
//! | say it in your own words | [`Scripted::json`], [`events`](Scripted::events), [`status`](Scripted::status) |
//! | break the connection, or be slow | [`Scripted::failure`], [`fail`](Scripted::fail), [`after`](Scripted::after), [`pause`](Scripted::pause), [`hang`](Scripted::hang) |
//! | see what was sent | [`Script::requests`] |
//!
//! A [`Script`] is a [`Transport`], so whatever sends requests takes it in the place of
//! [`HttpTransport`](crate::http::HttpTransport). Pauses pass on a [`ManualClock`](keywheel_core::ManualClock)
//! that the test moves, if [`Script::with_clock`] gives it one.
//!
//! ```
//! use std::sync::Arc;
//! use keywheel_core::ApiKey;
//! use keywheel_provider::testing::{Script, Scripted};
//! use keywheel_provider::upstream::Upstream;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let script = Script::new();
//! script.reply(Scripted::day_spent(20));
//! script.reply(Scripted::text("Hello"));
//!
//! let upstream = Upstream::google(Arc::new(script.clone()));
//! let key = ApiKey::new("AQ.EXAMPLE-key")?;
//! let call = upstream.provider().generate("gemini-3.5-flash", &"Say hello".into())?;
//! assert_eq!(upstream.call(&key, &call).await?.status, 429);
//! let answer = upstream.call(&key, &call).await?.bytes(1 << 20).await?;
//! assert_eq!(upstream.provider().read_answer(&answer)?.text(), "Hello");
//!
//! let sent = script.requests();
//! assert_eq!(sent[0].model().as_deref(), Some("gemini-3.5-flash"));
//! assert_eq!(sent[0].json()["contents"][0]["parts"][0]["text"], "Say hello");
//! # Ok(())
//! # }
//! ```

mod replies;

use std::{
    collections::VecDeque,
    fmt,
    io::Read as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use keywheel_core::{Clock, Fingerprint, SystemClock, clock::after_ms};

use crate::{Body, Sent, Transport, TransportError, TransportKind, WireRequest, WireResponse};

/// A transport that answers each request with the next scripted reply, and remembers the requests.
///
/// Clones share one script. Without replies left, requests fail with [`TransportKind::Request`].
#[derive(Clone)]
pub struct Script {
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    replies: VecDeque<Scripted>,
    otherwise: Option<Arc<Answer>>,
    requests: Vec<Recorded>,
    open: usize,
}

type Answer = dyn Fn(&Recorded) -> Scripted + Send + Sync;

impl Script {
    /// An empty script. Pauses are slept in real time; see [`with_clock`](Self::with_clock).
    #[must_use]
    pub fn new() -> Self {
        Self { clock: Arc::new(SystemClock), state: Arc::default() }
    }

    /// Takes the time of pauses from `clock`, which tests move by hand.
    ///
    /// ```
    /// use std::{sync::Arc, time::Duration};
    /// use keywheel_core::{ApiKey, ManualClock};
    /// use keywheel_provider::testing::{Script, Scripted};
    /// use keywheel_provider::upstream::{Call, Upstream};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let clock = ManualClock::at("2026-11-30T07:00:00Z".parse()?);
    /// let script = Script::new().with_clock(Arc::new(clock.clone()));
    /// let wait = Duration::from_secs(30);
    /// script.reply(Scripted::status(200).after(wait).piece("slow, ").pause(wait).piece("and slower"));
    ///
    /// let upstream = Upstream::google(Arc::new(script));
    /// let sent = upstream.call(&ApiKey::new("AQ.EXAMPLE-key")?, &Call::models());
    /// let reply = tokio::spawn(async { sent.await?.bytes(100).await });
    /// for _ in 0..2 {
    ///     tokio::task::yield_now().await;
    ///     assert!(!reply.is_finished());
    ///     clock.advance(wait);
    /// }
    /// assert_eq!(reply.await??, "slow, and slower");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Adds a reply to the end of the queue.
    pub fn reply(&self, reply: Scripted) {
        self.lock().replies.push_back(reply);
    }

    /// Answers by a function whenever the queue is empty.
    ///
    /// ```
    /// use keywheel_provider::testing::{Script, Scripted};
    ///
    /// let script = Script::new();
    /// script.otherwise(|request| match request.model().as_deref() {
    ///     Some("gemini-3.5-flash") => Scripted::overloaded(),
    ///     _ => Scripted::text("Hello"),
    /// });
    /// ```
    pub fn otherwise(&self, answer: impl Fn(&Recorded) -> Scripted + Send + Sync + 'static) {
        self.lock().otherwise = Some(Arc::new(answer));
    }

    /// The requests so far, the oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.lock().requests.clone()
    }

    /// How many requests are under way: their replies have neither ended nor been dropped.
    #[must_use]
    pub fn open(&self) -> usize {
        self.lock().open
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No user code runs under this lock, so a poisoned one still holds whole data.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self, request: &Recorded) -> Option<Scripted> {
        let otherwise = {
            let mut state = self.lock();
            state.requests.push(request.clone());
            if let Some(reply) = state.replies.pop_front() {
                return Some(reply);
            }
            state.otherwise.clone()?
        };
        Some(otherwise(request))
    }

    fn begin(&self) -> Open {
        self.lock().open += 1;
        Open(self.clone())
    }

    async fn pause(&self, length: Duration) {
        match self.clock.manual_sleep(after_ms(self.clock.unix_ms(), length)) {
            Some(sleep) => sleep.await,
            None => tokio::time::sleep(length).await,
        }
    }
}

impl Default for Script {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Script")
            .field("replies_left", &state.replies.len())
            .field("requests", &state.requests.len())
            .field("open", &state.open)
            .finish_non_exhaustive()
    }
}

impl Transport for Script {
    fn send(
        &self,
        request: WireRequest,
    ) -> BoxFuture<'static, Result<WireResponse, TransportError>> {
        let reply = self.next(&Recorded::of(request));
        let open = self.begin();
        let script = self.clone();
        async move {
            let Some(reply) = reply else {
                let message = "the script has no reply left";
                return Err(TransportError::new(TransportKind::Request, Sent::No, message));
            };
            script.pause(reply.delay).await;
            if let Some((kind, sent)) = reply.failure {
                return Err(TransportError::new(kind, sent, "scripted failure"));
            }
            let pieces = (reply.body, open);
            let body = stream::unfold(pieces, move |(mut pieces, open)| {
                let script = script.clone();
                async move {
                    loop {
                        match pieces.pop_front()? {
                            Piece::Bytes(bytes) => return Some((Ok(bytes), (pieces, open))),
                            Piece::Pause(length) => script.pause(length).await,
                            Piece::Hang => std::future::pending().await,
                            Piece::Fail(kind) => {
                                let error =
                                    TransportError::new(kind, Sent::Maybe, "scripted failure");
                                return Some((Err(error), (VecDeque::new(), open)));
                            }
                        }
                    }
                }
            });
            Ok(WireResponse { status: reply.status, headers: reply.headers, body: body.boxed() })
        }
        .boxed()
    }
}

/// One scripted reply.
///
/// A reply may come in pieces, break, or never come:
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use futures_util::FutureExt as _;
/// use keywheel_core::ApiKey;
/// use keywheel_provider::testing::{Script, Scripted};
/// use keywheel_provider::upstream::{Call, Upstream};
/// use keywheel_provider::{Sent, TransportKind};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let script = Script::new();
/// script.reply(Scripted::failure(TransportKind::Connect, Sent::No));
/// script.reply(Scripted::json(200, r#"{"mod"#).fail(TransportKind::Interrupted));
/// script.reply(Scripted::events([r#"{"candidates": []}"#]).hang());
///
/// let upstream = Upstream::google(Arc::new(script));
/// let key = ApiKey::new("AQ.EXAMPLE-key")?;
/// let call = || upstream.call(&key, &Call::models());
/// assert_eq!(call().await.unwrap_err().kind, TransportKind::Connect);
/// let cut = call().await?.bytes(100).await.unwrap_err();
/// assert_eq!((cut.kind, cut.sent), (TransportKind::Interrupted, Sent::Maybe));
/// assert!(call().await?.bytes(100).now_or_never().is_none(), "it never ends");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Scripted {
    delay: Duration,
    failure: Option<(TransportKind, Sent)>,
    status: u16,
    headers: HeaderMap,
    body: VecDeque<Piece>,
}

#[derive(Clone)]
enum Piece {
    Bytes(Bytes),
    Pause(Duration),
    Fail(TransportKind),
    Hang,
}

impl Scripted {
    /// A reply with this status and, so far, no body.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self {
            delay: Duration::ZERO,
            failure: None,
            status,
            headers: HeaderMap::new(),
            body: VecDeque::new(),
        }
    }

    /// A reply with a JSON body, given as text: it need not be good JSON.
    #[must_use]
    pub fn json(status: u16, body: impl Into<Bytes>) -> Self {
        Self::status(status)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=UTF-8"))
            .piece(body)
    }

    /// A stream of server-sent events with this data.
    #[must_use]
    pub fn events(data: impl IntoIterator<Item = impl fmt::Display>) -> Self {
        let reply =
            Self::status(200).header(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        data.into_iter().fold(reply, |reply, data| reply.piece(format!("data: {data}\r\n\r\n")))
    }

    /// No reply at all.
    #[must_use]
    pub fn failure(kind: TransportKind, sent: Sent) -> Self {
        Self { failure: Some((kind, sent)), ..Self::status(0) }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// Waits before the head of the reply comes.
    #[must_use]
    pub const fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Adds a piece to the body.
    #[must_use]
    pub fn piece(self, bytes: impl Into<Bytes>) -> Self {
        self.with(Piece::Bytes(bytes.into()))
    }

    /// Waits before the next piece of the body.
    #[must_use]
    pub fn pause(self, length: Duration) -> Self {
        self.with(Piece::Pause(length))
    }

    /// Breaks the body off here.
    #[must_use]
    pub fn fail(self, kind: TransportKind) -> Self {
        self.with(Piece::Fail(kind))
    }

    /// Never goes on from here.
    #[must_use]
    pub fn hang(self) -> Self {
        self.with(Piece::Hang)
    }

    fn with(mut self, piece: Piece) -> Self {
        self.body.push_back(piece);
        self
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted")
            .field("status", &self.status)
            .field("failure", &self.failure)
            .field("pieces", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// A request that a [`Script`] was sent. Holds the key's fingerprint, not the key.
#[derive(Clone)]
pub struct Recorded {
    /// The method.
    pub method: Method,
    /// The whole URL.
    pub url: String,
    /// The headers, but for the credential.
    pub headers: HeaderMap,
    /// Which key was used.
    pub key: Option<Fingerprint>,
    /// The whole body, also where it was in a file.
    pub body: Bytes,
}

impl Recorded {
    /// What is remembered of `request`: everything but its credential. For transports of one's own.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use keywheel_core::{ApiKey, Fingerprint};
    /// use keywheel_provider::testing::{Recorded, Script};
    /// use keywheel_provider::upstream::{Call, Upstream};
    ///
    /// let upstream = Upstream::google(Arc::new(Script::new()));
    /// let request = upstream.request(&ApiKey::new("AQ.EXAMPLE-key").unwrap(), &Call::models()).unwrap();
    /// let recorded = Recorded::of(request);
    /// assert_eq!(recorded.key, Some(Fingerprint::of("AQ.EXAMPLE-key")));
    /// assert!(!recorded.headers.contains_key("x-goog-api-key"));
    /// ```
    ///
    /// # Panics
    /// Its body is in a file that cannot be read.
    #[must_use]
    pub fn of(request: WireRequest) -> Self {
        let WireRequest { method, url, mut headers, body } = request;
        let body = whole(&body);
        let google = headers.remove("x-goog-api-key");
        let bearer = headers.remove(AUTHORIZATION);
        let credential = google.or(bearer);
        let key = credential
            .as_ref()
            .and_then(|value| value.to_str().ok())
            .map(|value| Fingerprint::of(value.strip_prefix("Bearer ").unwrap_or(value)));
        Self { method, url, headers, key, body }
    }

    /// The model that was asked, as the path or the body names it: without `models/`. `None` for calls that
    /// ask no model.
    #[must_use]
    pub fn model(&self) -> Option<String> {
        let path = self.url.split('?').next().unwrap_or_default();
        let of_path = path.rsplit_once("/models/").map(|(_, model)| model);
        match of_path {
            Some(model) => Some(model.split(':').next().unwrap_or(model).to_owned()),
            None => self.json()["model"].as_str().map(str::to_owned),
        }
    }

    /// The body as JSON; `null` if it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded")
            .field("method", &self.method)
            .field("url", &self.url)
            .field("key", &self.key)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// All of `body`. Tests may wait for a file.
fn whole(body: &Body) -> Bytes {
    if let Some(bytes) = body.bytes() {
        return bytes.clone();
    }
    let mut bytes = Vec::new();
    body.reader().read_to_end(&mut bytes).expect("a test's file can be read");
    bytes.into()
}

/// Counts a request as under way for as long as it lives.
struct Open(Script);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.lock().open -= 1;
    }
}

#[cfg(test)]
mod tests;
