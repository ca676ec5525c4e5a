//! From a request in hand to the provider and back.

use std::{future::IntoFuture as _, sync::Arc, time::Duration};

use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Version, header, request::Parts,
};
use hyper::body::Incoming;
use keywheel::raw::{Call, Relayed};

use super::{Asked, Form, Record, inward, looked::Looked};
use crate::{
    admit::{Asking, Refused},
    budget,
    config::Queue,
    gateway::{App, Current},
    headers, pinned,
    refusal::{Reason, Refusal},
    respond::{AnswerBody, Flow, Handed},
    route::{self, Dialect, Kind, Route},
    stream_end::{Elements, Framing, Tail},
    upload,
};

const KEY: HeaderName = HeaderName::from_static("x-keywheel-key");
const MODEL: HeaderName = HeaderName::from_static("x-keywheel-model");
const MAX_OUTPUT: HeaderName = HeaderName::from_static("x-keywheel-max-output");
/// Where an upload goes on, and where it is asked about.
const UPLOAD_URLS: [HeaderName; 2] = [
    HeaderName::from_static("x-goog-upload-url"),
    HeaderName::from_static("x-goog-upload-control-url"),
];

/// The provider's answer, about to be handed on.
pub(super) struct Handing {
    asked: Asked,
    relayed: Relayed,
}

/// Takes the body in and asks the provider, once there is budget and a key.
///
/// # Errors
/// What the client is told: the body is none, the project may not, nothing has room, the provider did not answer.
pub(super) async fn ask(
    app: &Arc<App>,
    now: &Current,
    head: &Parts,
    mut asked: Asked,
    body: Incoming,
    record: &mut Record,
) -> Result<Handing, Refusal> {
    let call = call(app, now, head, &mut asked, body).await?;
    record.form = form(&asked.route, &call);
    let has_body = !call.body.is_empty();
    let project = &asked.project;
    // Whoever has to wait for a key or for budget waits in his project's line, not in the pool's.
    let relay = app.gemini.relay(call).account(project.name.as_str()).patience(Duration::ZERO);
    let sketch = relay.sketch().await.map_err(|error| {
        tracing::error!(%error, "a body cannot be read again");
        Refusal::new(Reason::Internal, "the gateway lost the request's body").scope("gateway")
    })?;
    let looked = Looked::of(app, &asked, &sketch, has_body)?;
    if let Some(form) = &mut record.form {
        form.is_asked_by(&sketch);
    }
    let owner = pinned::owner(app, now, &asked, &sketch);
    let mut relay = looked.set_up(relay)?;
    if let Some(owner) = &owner {
        relay = relay.owner(owner.as_str());
    }
    record.is_called(relay.request_id().map(str::to_owned));
    let queue = within_patience(now.settings.queue, &head.headers);
    let asking = Asking { project, model: looked.model.unwrap_or_default(), queue };
    let passed = app
        .gate
        .pass(asking, |sent| relay.clone().on_sent(move || sent.tell()).into_future())
        .await;
    let (relayed, pass) = passed.map_err(|refused| {
        let now = app.clock.now();
        if let Refused::Ended(error) = &refused {
            record.tried(error.attempts());
        }
        refused.mark(&mut record.limits, now);
        let refusal = looked.with_parts(refused.refusal(project.name.as_str(), now));
        pinned::explained(refusal, owner.as_deref())
    })?;
    record.holds(pass);
    Ok(Handing { asked, relayed })
}

/// What the provider is to be sent, with the body taken in.
///
/// # Errors
/// As of [`inward::take`].
async fn call(
    app: &App,
    now: &Current,
    head: &Parts,
    asked: &mut Asked,
    body: Incoming,
) -> Result<Call, Refusal> {
    let limits = &now.settings.limits;
    let most = if asked.route.is_upload { limits.upload } else { limits.body };
    let body = inward::take(app, body, most).await?;
    let mut headers = headers::to_upstream(&head.headers);
    if let Some(credential) = &asked.credential {
        headers::forget(credential.expose(), &mut headers);
    }
    let route = &mut asked.route;
    Ok(Call {
        method: route.method.clone(),
        path: route.call_path(&now.settings.api_version),
        query: std::mem::take(&mut route.query),
        headers,
        body,
    })
}

/// Nobody waits in line for longer than the client waits for its answer: told a second before, it learns when there is
/// room again. It never waits longer for what it says.
fn within_patience(queue: Queue, headers: &HeaderMap) -> Queue {
    const TO_TELL: Duration = Duration::from_secs(1);
    let wait = headers::patience(headers)
        .map_or(queue.wait, |patience| queue.wait.min(patience.saturating_sub(TO_TELL)));
    Queue { wait, ..queue }
}

/// In which form a degraded answer would be read. `None`: the route has none.
fn form(route: &Route, call: &Call) -> Option<Form> {
    let is_sse = || call.query.iter().any(|(name, value)| name == "alt" && value == "sse");
    match route.kind {
        Kind::Generate => Some(Form::Whole),
        Kind::Stream if is_sse() => Some(Form::Events),
        Kind::Stream => Some(Form::Array),
        Kind::Chat => Some(Form::Chat { model: String::new(), stream: false }),
        _ => None,
    }
}

impl Handing {
    /// The head of the answer, and its body to be handed on.
    pub(super) fn answer(
        self,
        app: &Arc<App>,
        now: &Current,
        head: &Parts,
        mut record: Record,
    ) -> Response<AnswerBody> {
        let Self { asked, relayed } = self;
        let status = StatusCode::from_u16(relayed.status).unwrap_or(StatusCode::OK);
        let mut headers = headers::to_client(&relayed.headers);
        say(&mut headers, KEY, &relayed.key_label);
        if let Some(model) = &relayed.model {
            say(&mut headers, MODEL, model);
        }
        if let Some(tokens) = relayed.output_cap {
            headers.insert(MAX_OUTPUT, HeaderValue::from(tokens));
        }
        budget::mark(&mut headers, relayed.standing.as_ref(), record.minute(), app.clock.now());
        if let Some(standing) = &relayed.standing {
            app.warned.note(&asked.project.name, standing);
        }
        if asked.route.is_upload {
            lead_here(app, head, &asked, &relayed.quota_project, &mut headers);
        } else {
            // Only there is the key taken out of them.
            for name in UPLOAD_URLS {
                headers.remove(name);
            }
        }
        record.answered_by(relayed.key_label, relayed.model.as_deref(), relayed.attempts.len());
        record.answers(status);
        record.mark(&mut headers);
        let framing = framing(&asked.route, &relayed.headers);
        let here = relayed.body.remaining();
        let length = here.or_else(|| length(&relayed.headers));
        let flow = Flow::new(relayed.body, framing, length, app.stage.clone(), record);
        let mut handed = Handed::new(flow);
        if head.version == Version::HTTP_2 && here.is_none() {
            handed = handed.watched(now.settings.limits.idle_time);
        }
        let mut answer = Response::new(AnswerBody::Handed(handed));
        *answer.status_mut() = status;
        *answer.headers_mut() = headers;
        answer
    }
}

/// Lets the addresses of an upload lead to the gateway.
fn lead_here(app: &App, head: &Parts, asked: &Asked, owner: &str, headers: &mut HeaderMap) {
    let project = asked.project.name.as_str().to_owned();
    let begun = upload::Begun { project, owner: owner.to_owned() };
    for name in UPLOAD_URLS {
        let Some(url) = headers.remove(&name) else { continue };
        let address = url.to_str().ok().and_then(upload::Address::of);
        let (Some(address), Some(base)) = (address, route::address(head)) else {
            tracing::error!(header = %name, "the provider named an upload address that cannot be stood for");
            continue;
        };
        let now = app.clock.now();
        let token = app.signer.sign(&begun, &address.path, &address.query, now);
        say(headers, name, &address.on(&base, &token));
    }
}

/// How the provider's answer is framed.
fn framing(route: &Route, headers: &HeaderMap) -> Framing {
    let kind = headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    // Nothing can be put behind what is compressed.
    let is_plain =
        headers.get(header::CONTENT_ENCODING).is_none_or(|encoding| encoding == "identity");
    if !is_plain {
        return Framing::Whole;
    }
    match (kind.starts_with(b"text/event-stream"), route.kind) {
        (true, Kind::Interactions) => Framing::Interaction(Tail::default()),
        (true, _) if route.dialect == Dialect::OpenAi => Framing::OpenAiEvents(Tail::default()),
        (true, _) => Framing::Events(Tail::default()),
        (false, Kind::Stream) => Framing::Array(Elements::default()),
        (false, _) => Framing::Whole,
    }
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn say(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // Labels are people's own words, and not all of them can stand in a header.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
