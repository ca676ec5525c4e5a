//! What is known of one request: a line for the log, the numbers, and the headers that say who answered.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, request::Parts};
use keywheel::{Attempt, Error, ledger::AccountId};
use tokio::time::Instant;

use super::Form;
use crate::{
    admit::{MinuteStanding, Pass},
    gateway::App,
    metrics::{Labels, Name},
    project::Project,
    refusal::{Reason, Refusal},
    route::Route,
    server::Phase,
    stream_end::Fault,
};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-keywheel-request-id");

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The client has all of the provider's answer.
    Whole,
    /// The client has an answer that was made here.
    Degraded,
    /// The client was told why there is none.
    Refused(Reason),
    /// The provider's answer broke off, and the client was told.
    Broken,
    /// The gateway stopped: the client was told, or cut off in the middle of what can say nothing.
    Stopped,
    /// The client went away.
    ClientGone,
}

impl End {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "ok",
            Self::Degraded => "degraded",
            Self::Refused(reason) => reason.as_str(),
            Self::Broken => "broken",
            Self::Stopped => "stopped",
            Self::ClientGone => "client_gone",
        }
    }
}

/// What is known of one request. Written down when it ends, and as the client's going away if it is dropped before.
pub(crate) struct Record {
    app: Arc<App>,
    began: Instant,
    method: Method,
    /// The path as it was understood; empty for one that was not, which could hold anything.
    path: String,
    route: &'static str,
    project: Option<AccountId>,
    /// In which form an answer made here would be understood.
    pub(crate) form: Option<Form>,
    /// What the answer says of the limit that stood in the way.
    pub(crate) limits: HeaderMap,
    request_id: Option<String>,
    status: Option<StatusCode>,
    key: String,
    model: String,
    attempts: usize,
    bytes: u64,
    /// Its place among those in flight, until the answer is at its end.
    pass: Option<Pass>,
    ended: bool,
}

impl Record {
    pub(crate) fn begin(app: Arc<App>, head: &Parts) -> Self {
        app.metrics.begun();
        Self {
            app,
            began: Instant::now(),
            method: head.method.clone(),
            path: String::new(),
            route: "none",
            project: None,
            form: None,
            limits: HeaderMap::new(),
            request_id: None,
            status: None,
            key: String::new(),
            model: String::new(),
            attempts: 0,
            bytes: 0,
            pass: None,
            ended: false,
        }
    }

    pub(crate) fn goes_to(&mut self, route: &Route) {
        self.path.clone_from(&route.path);
        self.route = route.kind.as_str();
    }

    pub(crate) fn is_of(&mut self, project: &Project) {
        self.project = Some(project.name.clone());
    }

    pub(crate) fn holds(&mut self, pass: Pass) {
        self.pass = Some(pass);
    }

    /// How full the minute of its project is.
    pub(crate) fn minute(&self) -> Option<MinuteStanding> {
        self.pass.as_ref().and_then(|pass| pass.minute)
    }

    pub(crate) fn answered_by(&mut self, key: String, model: Option<&str>, attempts: usize) {
        self.key = key;
        self.model = model.unwrap_or_default().to_owned();
        self.attempts = attempts;
    }

    /// What was tried before it was given up.
    pub(crate) fn tried(&mut self, attempts: &[Attempt]) {
        self.attempts = attempts.len();
        if let Some(Attempt { label, model, .. }) = attempts.last() {
            (self.key, self.model) = (label.clone(), model.clone());
        }
    }

    /// The name under which the ledger has it; without one it gets one of its own.
    pub(crate) fn is_called(&mut self, request_id: Option<String>) {
        self.request_id = request_id;
    }

    /// The head of the answer is on its way.
    pub(crate) fn answers(&mut self, status: StatusCode) {
        self.status = Some(status);
        self.app.metrics.answering(self.route, self.began.elapsed());
    }

    pub(crate) const fn sent(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Names the request in its answer, so that both can be found together.
    pub(crate) fn mark(&mut self, headers: &mut HeaderMap) {
        headers.extend(std::mem::take(&mut self.limits));
        let id = self.request_id.get_or_insert_with(|| format!("call-{:016x}", fastrand::u64(..)));
        if let Ok(id) = HeaderValue::from_str(id) {
            headers.insert(REQUEST_ID, id);
        }
    }

    /// What a client is told of `error` in the middle of an answer.
    pub(crate) fn fault(&self, error: &Error) -> Fault {
        let project = self.project.as_ref().map_or("", AccountId::as_str);
        let refusal = Refusal::of(error, project, self.app.clock.now());
        let status = match refusal.status.as_u16() {
            429 => 429,
            504 => 504,
            _ => 503,
        };
        let name = match status {
            429 => "RESOURCE_EXHAUSTED",
            504 => "DEADLINE_EXCEEDED",
            _ => "UNAVAILABLE",
        };
        Fault { status, name, message: refusal.message }
    }

    pub(crate) fn end(mut self, end: End) {
        self.ends(end);
    }

    /// Writes it down. What is said of the end later does not count.
    pub(crate) fn ends(&mut self, end: End) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        // What the gateway cuts off at its own end, no client has left.
        let is_cut = end == End::ClientGone && self.app.stage.now() > Phase::Draining;
        let end = if is_cut { End::Stopped } else { end };
        let after = self.began.elapsed();
        let labels = Labels {
            project: Name(self.project.clone()),
            route: self.route,
            outcome: end.as_str(),
        };
        self.app.metrics.ended(&labels, after, self.bytes);
        self.log(end, after);
    }

    /// One line: no query, which may hold a credential, and nothing of any body.
    fn log(&self, end: End, after: Duration) {
        tracing::info!(
            target: "keywheel::access",
            project = self.project.as_ref().map_or("", AccountId::as_str),
            method = %self.method,
            path = self.path,
            status = self.status.map_or(0, |status| status.as_u16()),
            end = end.as_str(),
            ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
            bytes = self.bytes,
            model = self.model,
            key = self.key,
            attempts = self.attempts,
            queued_ms = self.pass.as_ref().map_or(0, |pass| pass.waited.as_millis()),
            id = self.request_id.as_deref().unwrap_or_default(),
            "request"
        );
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.ends(End::ClientGone);
    }
}
