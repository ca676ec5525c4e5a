//! A request's body, taken in.

use http::StatusCode;
use hyper::body::{Body as _, Incoming};
use keywheel::raw::Body;

use crate::{
    gateway::App,
    refusal::{Reason, Refusal},
    spool::SpoolError,
};

/// Takes the body in.
///
/// # Errors
/// It is too large, or too slow, or broke off, or there is no room for it.
pub(super) async fn take(app: &App, body: Incoming, most: u64) -> Result<Body, Refusal> {
    if body.is_end_stream() {
        return Ok(Body::empty());
    }
    let body = app.spool.take(body, most).await.map_err(|error| refused(&error))?;
    app.metrics.received(body.len());
    Ok(body)
}

fn refused(error: &SpoolError) -> Refusal {
    let told = error.to_string();
    let with = |status, reason| {
        let mut refusal = Refusal::new(reason, told.clone());
        refusal.status = status;
        refusal
    };
    match error {
        SpoolError::TooLarge { .. } => Refusal::new(Reason::BodyTooLarge, told).should_retry(false),
        SpoolError::Slow => with(StatusCode::REQUEST_TIMEOUT, Reason::BadBody),
        SpoolError::Broken(_) => Refusal::new(Reason::BadBody, told),
        SpoolError::DiskFull => {
            with(StatusCode::INSUFFICIENT_STORAGE, Reason::Internal).scope("gateway")
        }
        SpoolError::Disk(error) => {
            tracing::error!(%error, "a body cannot be kept in a file");
            let told = "the gateway has no place for a body of this size; its log says why";
            Refusal::new(Reason::Internal, told).scope("gateway")
        }
    }
}
