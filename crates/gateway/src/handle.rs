//! One request, from its head to its answer.
//!
//! | step | where |
//! |---|---|
//! | the gateway's own pages, and browsers that ask whether they may ask | `pages`, `cors` |
//! | what is asked for, by whom: the head alone decides | here |
//! | its body, taken in | `inward` |
//! | its body, looked into: the model, the project's settings | `looked` |
//! | the budget, the queue, the provider | `outward` |
//! | the answer, handed on; or one made here | `outward`, `degraded` |
//! | a list of models, without those that the project may not use | `models` |
//! | one line for the log, and the numbers | `record` |

mod degraded;
mod inward;
mod looked;
mod models;
mod outward;
mod pages;
mod record;

use std::{net::SocketAddr, sync::Arc};

use http::{Request, Response, request::Parts};
use hyper::body::Incoming;

pub(crate) use self::{
    degraded::Form,
    record::{End, Record},
};
use crate::{
    admit::Refused,
    auth::{self, Asker, Credential},
    cors,
    gateway::{App, Current},
    project::Project,
    refusal::{Reason, Refusal},
    respond::{self, AnswerBody},
    route::{self, Dialect, Kind, Route},
    server::{MAX_HEADERS, Phase, Service},
    upload::{self, Begun},
};

impl Service for App {
    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> Response<AnswerBody> {
        let (head, body) = request.into_parts();
        if let Some(page) = pages::page(&self, &head, peer).await {
            return page;
        }
        let now = self.current();
        if let Some(answer) = now.origins.preflight(&head) {
            return answer;
        }
        let origin = now.origins.allowed(&head.headers);
        let mut answer = api(&self, &now, head, body, peer).await;
        if let Some(origin) = origin {
            cors::mark(answer.headers_mut(), origin);
        }
        answer
    }
}

/// A request whose head is in order: what it asks for, and on whose account.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) route: Route,
    pub(crate) project: Arc<Project>,
    /// What the client showed for it, to be kept from the provider.
    pub(crate) credential: Option<Credential>,
    /// It goes on with an upload that was begun, by its signed address.
    pub(crate) begun: Option<Begun>,
}

async fn api(
    app: &Arc<App>,
    now: &Arc<Current>,
    mut head: Parts,
    body: Incoming,
    peer: SocketAddr,
) -> Response<AnswerBody> {
    let mut record = Record::begin(Arc::clone(app), &head);
    let asked = match asked(app, now, &head, peer, &mut record) {
        Ok(asked) => asked,
        Err(refusal) => return refuse(app, &refusal, guessed(&head), record),
    };
    let dialect = asked.route.dialect;
    let project = Arc::clone(&asked.project);
    let is_list = models::is_for_some(&asked);
    if is_list {
        models::readable(&mut head.headers);
    }
    let mut stage = app.stage.clone();
    let handing = tokio::select! {
        biased;
        handing = outward::ask(app, now, &head, asked, body, &mut record) => handing,
        // Nothing of an answer is there to break off, so its client can be told in so many words.
        () = stage.left(Phase::Draining) => {
            let refusal = Refused::Stopping.refusal(project.name.as_str(), app.clock.now());
            return refuse_as(app, &refusal, dialect, record, End::Stopped);
        }
    };
    match handing {
        Ok(handing) if is_list => {
            let listed = models::of(&project, handing.answer(app, now, &head, record)).await;
            listed.unwrap_or_else(|refusal| {
                respond::whole(refusal.response(dialect, app.clock.now()))
            })
        }
        Ok(handing) => handing.answer(app, now, &head, record),
        Err(refusal) => match degraded::answer(app, now, &refusal, &mut record) {
            Some(answer) => answer,
            None => refuse(app, &refusal, dialect, record),
        },
    }
}

/// What is asked for and by whom, by the head alone: nothing of a stranger's body is read.
fn asked(
    app: &App,
    now: &Current,
    head: &Parts,
    peer: SocketAddr,
    record: &mut Record,
) -> Result<Asked, Refusal> {
    if head.headers.len() > MAX_HEADERS {
        return Err(Refusal::new(Reason::BadBody, "the request has too many headers"));
    }
    let mut route = route::of(head, now.settings.upstream)?;
    record.goes_to(&route);
    let begun = begun(app, head, &mut route)?;
    let asker =
        match auth::identify(head, peer, &route, &now.settings.projects, &now.settings.access) {
            // The second request of an upload brings no key: its address is one.
            Err(refusal) if refusal.reason == Reason::NoToken => {
                let named =
                    begun.as_ref().and_then(|begun| now.settings.projects.named(&begun.project));
                Asker { project: named.cloned().ok_or(refusal)?, credential: None }
            }
            other => other?,
        };
    let Asker { project, credential } = asker;
    record.is_of(&project);
    if let Some(model) = &route.model {
        allowed(&project, model)?;
    }
    if route.kind == Kind::Live {
        let fault = "conversations over web sockets are not handed on; point the client at the provider for them";
        return Err(Refusal::new(Reason::UnboundedRoute, fault).should_retry(false));
    }
    Ok(Asked { route, project, credential, begun })
}

/// The upload that this request goes on with, by the address that the gateway signed for it.
///
/// # Errors
/// It goes on with one, and the address is not signed, or is another project's, or its time is over.
fn begun(app: &App, head: &Parts, route: &mut Route) -> Result<Option<Begun>, Refusal> {
    let goes_on = |name: &str| name == "upload_id" || name == upload::TOKEN;
    if !route.is_upload || !route.query.iter().any(|(name, _)| goes_on(name)) {
        return Ok(None);
    }
    let query = head.uri.query().unwrap_or_default();
    let read = upload::token_of(query)
        .and_then(|(token, rest)| app.signer.read(token, head.uri.path(), &rest, app.clock.now()));
    let Some(begun) = read else {
        let fault = "this is no upload address of this gateway's, or its time is over; begin the upload anew";
        return Err(Refusal::new(Reason::UnknownToken, fault).scope("token").should_retry(false));
    };
    route.query.retain(|(name, _)| name != upload::TOKEN);
    // Whoever brings a token nevertheless has to be of that project.
    route.project = Some(begun.project.clone());
    Ok(Some(begun))
}

/// As many of a project's models are named where it asks for another.
const MOST_MODELS: usize = 5;

fn allowed(project: &Project, model: &str) -> Result<(), Refusal> {
    if project.allows(model) {
        return Ok(());
    }
    let shown: Vec<_> = project.models.iter().take(MOST_MODELS).map(String::as_str).collect();
    let models = shown.join(", ");
    let more = match project.models.len().saturating_sub(MOST_MODELS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let name = project.name.as_str();
    let fault = format!("the project {name} may not use {model}; it may use {models}{more}");
    let refusal = Refusal::new(Reason::ModelNotAllowed, fault);
    Err(refusal.scope(format!("project {}", project.name.as_str())).should_retry(false))
}

fn refuse(app: &App, refusal: &Refusal, dialect: Dialect, record: Record) -> Response<AnswerBody> {
    refuse_as(app, refusal, dialect, record, End::Refused(refusal.reason))
}

fn refuse_as(
    app: &App,
    refusal: &Refusal,
    dialect: Dialect,
    mut record: Record,
    end: End,
) -> Response<AnswerBody> {
    if refusal.reason == Reason::LedgerDown {
        app.ledger_failure.note(app.clock.unix_ms());
    }
    let mut answer = refusal.response(dialect, app.clock.now());
    record.answers(answer.status());
    record.mark(answer.headers_mut());
    record.sent(answer.body().len() as u64);
    record.end(end);
    respond::whole(answer)
}

/// In which dialect somebody is refused whose path nobody understands.
fn guessed(head: &Parts) -> Dialect {
    let openai = ["/openai/", "/chat/", "/embeddings", "/responses"];
    let is_openai = openai.iter().any(|word| head.uri.path().contains(word));
    if is_openai { Dialect::OpenAi } else { Dialect::Native }
}
