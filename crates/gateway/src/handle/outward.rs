//! From a request in hand to the provider and back.

use std::{future::IntoFuture as _, sync::Arc, time::Duration};

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version, header,
    request::Parts,
};
use hyper::body::Incoming;
use keywheel::{
    raw::{Call, Relay, Relayed},
    sketch::Sketch,
};

use super::{Asked, Form, Record, allowed, inward};
use crate::{
    admit::{Asking, Refused},
    budget,
    config::Queue,
    gateway::{App, Current},
    headers, pinned,
    project::{Project, Unbounded},
    refusal::{Parts as Weights, Reason, Refusal},
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
    let limits = &now.settings.limits;
    let most = if asked.route.is_upload { limits.upload } else { limits.body };
    let body = inward::take(app, body, most).await?;
    let has_body = !body.is_empty();
    let mut headers = headers::to_upstream(&head.headers);
    if let Some(credential) = &asked.credential {
        headers::forget(credential.expose(), &mut headers);
    }
    let call = Call {
        method: asked.route.method.clone(),
        path: asked.route.call_path(&now.settings.api_version),
        query: std::mem::take(&mut asked.route.query),
        headers,
        body,
    };
    record.form = form(&asked.route, &call);
    let Asked { route, project, .. } = &asked;
    // Whoever has to wait for a key or for budget waits in his project's line, not in the pool's.
    let relay = app.gemini.relay(call).account(project.name.as_str()).patience(Duration::ZERO);
    let sketch = relay.sketch().await.map_err(|error| {
        tracing::error!(%error, "a body cannot be read again");
        Refusal::new(Reason::Internal, "the gateway lost the request's body").scope("gateway")
    })?;
    let names_model = matches!(route.kind, Kind::Chat | Kind::Embeddings | Kind::Interactions);
    // Servers that read more than JSON may find a model in it that is not seen here.
    if names_model && has_body && !sketch.is_json {
        let told = "the body is no JSON, so nobody can tell which model it asks";
        return Err(Refusal::new(Reason::BadBody, told));
    }
    // It would be charged to no model, and no list of models would hold for it.
    if sketch.model.is_none() && has_model_in_body(route) {
        let told = "the body names no model";
        return Err(Refusal::new(Reason::BadBody, told).should_retry(false));
    }
    let model = route.model.as_deref().or(sketch.model.as_deref()).map(bare);
    if let Some(model) = model {
        allowed(project, model)?;
    }
    if let Some(form) = &mut record.form {
        form.is_asked_by(&sketch);
    }
    let owner = pinned::owner(app, now, &asked, &sketch);
    let relay = set_up(app, relay, route, project, &sketch, model)?;
    let mut relay = match &owner {
        Some(owner) => relay.owner(owner.as_str()),
        None => relay,
    };
    record.is_called(relay.request_id().map(str::to_owned));
    let queue = within_patience(now.settings.queue, &head.headers);
    let asking = Asking { project, model: model.unwrap_or_default(), queue };
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
        let refusal = refused.refusal(project.name.as_str(), now);
        let refusal = match parts(app, route, project, &sketch, model) {
            Some(parts) => refusal.with_parts(parts, route.dialect),
            None => refusal,
        };
        pinned::explained(refusal, owner.as_deref())
    })?;
    record.holds(pass);
    Ok(Handing { asked, relayed })
}

/// Nobody waits in line for longer than the client waits for its answer: told a second before, it learns when there is
/// room again. It never waits longer for what it says.
fn within_patience(queue: Queue, headers: &HeaderMap) -> Queue {
    const TO_TELL: Duration = Duration::from_secs(1);
    let wait = headers::patience(headers)
        .map_or(queue.wait, |patience| queue.wait.min(patience.saturating_sub(TO_TELL)));
    Queue { wait, ..queue }
}

/// Sets what the project's settings say of such a call.
fn set_up(
    app: &App,
    mut relay: Relay,
    route: &Route,
    project: &Project,
    sketch: &Sketch,
    model: Option<&str>,
) -> Result<Relay, Refusal> {
    if let Some(tokens) = fixed_charge(app, route, project, sketch)? {
        relay = relay.fixed_charge(tokens);
    }
    if project.allow_paid {
        relay = relay.allow_paid();
    }
    if let Some(model) = model.filter(|_| !project.models.is_empty()) {
        relay = relay.fallback(project.instead_of(model).iter().map(String::as_str));
    }
    Ok(relay)
}

/// What is reserved for such a request, by its parts. `None` where they cannot be told from it alone: files and caches
/// are weighed by the provider.
fn parts(
    app: &App,
    route: &Route,
    project: &Project,
    sketch: &Sketch,
    model: Option<&str>,
) -> Option<Weights> {
    let answers = matches!(route.kind, Kind::Generate | Kind::Stream | Kind::Chat);
    let reads = sketch.reads || sketch.cached_content.is_some() || !sketch.names.is_empty();
    if !answers || reads {
        return None;
    }
    let account = project.name.as_str();
    let input = app.ledger.estimate(account, model?, sketch.input_tokens, Some(0), 1).input;
    Some(Weights { input, max_output: sketch.max_output, candidates: sketch.candidates })
}

/// True for what is asked of a model that the body alone names; of an interaction, an agent is one.
fn has_model_in_body(route: &Route) -> bool {
    const ROUTES: [&str; 5] =
        ["chat/completions", "completions", "responses", "embeddings", "interactions"];
    let path = route.path.strip_prefix("openai/").unwrap_or(&route.path);
    route.method == Method::POST && ROUTES.contains(&path)
}

/// `x` and `models/x` are the same model.
fn bare(model: &str) -> &str {
    model.strip_prefix("models/").unwrap_or(model)
}

/// What a call is charged whose tokens nobody can tell beforehand.
///
/// # Errors
/// Nothing is set for it, and there is a budget that it would go past.
fn fixed_charge(
    app: &App,
    route: &Route,
    project: &Project,
    sketch: &Sketch,
) -> Result<Option<u64>, Refusal> {
    // What a collection costs that is not known here, nobody knows.
    let unknown = route.kind == Kind::Other && route.method == Method::POST;
    let unbounded = route.unbounded(sketch.background).or(unknown.then_some(Unbounded::Other));
    let Some(unbounded) = unbounded else { return Ok(None) };
    if let Some(charge) = project.fixed_charges.get(&unbounded) {
        return Ok(Some(*charge));
    }
    let rules = app.ledger.rules();
    let has_budget = rules
        .limits_for(&project.name, route.model.as_deref().unwrap_or_default())
        .is_ok_and(|mut limits| limits.next().is_some());
    if !has_budget {
        return Ok(None);
    }
    let name = unbounded.as_str();
    let fault = format!(
        "nobody can tell beforehand what this costs ({name}), and the project {} has a budget; \
         the operator can allow it at a fixed charge: [unbounded] {name} = <tokens>",
        project.name.as_str()
    );
    let refusal = Refusal::new(Reason::UnboundedRoute, fault);
    Err(refusal.scope(format!("project {}", project.name.as_str())).should_retry(false))
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
