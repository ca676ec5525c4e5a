//! The gateway's own pages. Places are kept for a dashboard and an admin's pages beside them, behind a token of their
//! own: `dashboard.rs` and `admin.rs`.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};
use serde_json::json;

use crate::{
    auth,
    gateway::{App, Current},
    health::{self, Situation},
    metrics::{MOST_PROJECTS, Snapshot},
    refusal::Refusal,
    respond::AnswerBody,
    route::{self, Dialect},
};

const JSON: &str = "application/json; charset=UTF-8";
const TEXT: &str = "text/plain; charset=UTF-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The page that is asked for; `None` if it is none of the gateway's own.
pub(super) async fn page(
    app: &Arc<App>,
    head: &Parts,
    peer: SocketAddr,
) -> Option<Response<AnswerBody>> {
    let path = head.uri.path();
    if !matches!(path, "/healthz" | "/readyz" | "/health" | "/metrics") {
        return None;
    }
    if !matches!(head.method, Method::GET | Method::HEAD) {
        return Some(text(StatusCode::METHOD_NOT_ALLOWED, TEXT, "GET it\n"));
    }
    Some(match path {
        "/healthz" => text(StatusCode::OK, TEXT, "ok\n"),
        "/readyz" => ready(app).await,
        "/health" => report(app).await,
        _ => metrics(app, head, peer).await,
    })
}

async fn ready(app: &App) -> Response<AnswerBody> {
    match health::unready(&situation(app), &app.ledger).await {
        None => text(StatusCode::OK, TEXT, "ready\n"),
        Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{why}\n")),
    }
}

fn situation(app: &App) -> Situation {
    Situation {
        phase: app.stage.now(),
        status: app.gemini.status(),
        ledger_fails: app.ledger_failure.is_recent(app.clock.unix_ms()),
    }
}

async fn report(app: &App) -> Response<AnswerBody> {
    match health::report(&situation(app), &app.ledger).await {
        Ok(page) => text(StatusCode::OK, JSON, page.to_string()),
        Err(error) => {
            tracing::error!(%error, "the ledger cannot be read");
            let page = json!({ "status": "ledger_down" }).to_string();
            text(StatusCode::SERVICE_UNAVAILABLE, JSON, page)
        }
    }
}

/// For whoever may ask a model, since the names of all projects are in it.
async fn metrics(app: &App, head: &Parts, peer: SocketAddr) -> Response<AnswerBody> {
    let now = app.current();
    if let Err(refusal) = may_read(head, peer, &now) {
        let answer = refusal.response(Dialect::Native, app.clock.now());
        return crate::respond::whole(answer);
    }
    let mut snapshot = Snapshot::of(app.gemini.counters(), &app.gemini.status(), app.gate.queued());
    snapshot.ledger_rows = app.ledger.info().await.ok().map(|info| info.rows);
    for project in now.settings.projects.iter().take(MOST_PROJECTS) {
        if let Ok(used) = app.ledger.usage(project.name.as_str()).await {
            let tokens = used.day.tokens;
            snapshot.budgets.push((project.name.clone(), tokens.settled, tokens.reserved));
        }
    }
    text(StatusCode::OK, OPEN_METRICS, app.metrics.text(&snapshot))
}

fn may_read(head: &Parts, peer: SocketAddr, now: &Current) -> Result<(), Refusal> {
    let models = http::Uri::from_static("/v1beta/models");
    let any = route::parse(&Method::GET, &models, now.settings.upstream)?;
    auth::identify(head, peer, &any, &now.settings.projects, &now.settings.access).map(drop)
}

fn text(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<AnswerBody> {
    let mut answer = Response::new(AnswerBody::whole(body));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
