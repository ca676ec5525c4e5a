//! Lists of models, for a project that may not use all of them.

use std::{future::poll_fn, pin::Pin};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Response, header};
use hyper::body::Body as _;
use serde_json::Value;

use super::Asked;
use crate::{
    project::Project,
    refusal::{Reason, Refusal},
    respond::AnswerBody,
    route::Kind,
};

/// A list is a few hundred kilobytes at most.
const LONGEST: usize = 8 << 20;

/// True if the answer is a list of models that not all are the project's to use. It must not come compressed then: see
/// [`readable`].
pub(super) fn is_for_some(asked: &Asked) -> bool {
    let route = &asked.route;
    let is_list = route.kind == Kind::Models && route.model.is_none();
    is_list && route.method == Method::GET && !asked.project.models.is_empty()
}

/// Asks for an answer that can be read here.
pub(super) fn readable(headers: &mut HeaderMap) {
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}

/// The list without the models that `project` may not use. What is no list is handed on as it is.
///
/// # Errors
/// The list broke off, or is longer than any.
pub(super) async fn of(
    project: &Project,
    answer: Response<AnswerBody>,
) -> Result<Response<AnswerBody>, Refusal> {
    let (head, mut body) = answer.into_parts();
    let mut all = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let bytes = frame.ok().and_then(|frame| frame.into_data().ok());
        let Some(bytes) = bytes.filter(|bytes| all.len() + bytes.len() <= LONGEST) else {
            let told = "the provider's list of models broke off";
            return Err(Refusal::new(Reason::UpstreamDown, told));
        };
        all.extend_from_slice(&bytes);
    }
    let all = all.freeze();
    let list = if head.status.is_success() { shortened(project, &all) } else { None };
    Ok(Response::from_parts(head, AnswerBody::whole(list.unwrap_or(all))))
}

/// Google's form has the models under `models` by `name`, OpenAI's under `data` by `id`.
fn shortened(project: &Project, list: &[u8]) -> Option<Bytes> {
    let mut list: Value = serde_json::from_slice(list).ok()?;
    for (place, name) in [("models", "name"), ("data", "id")] {
        let Some(models) = list.get_mut(place).and_then(Value::as_array_mut) else { continue };
        models.retain(|model| model[name].as_str().is_some_and(|name| project.allows(name)));
    }
    Some(list.to_string().into())
}
