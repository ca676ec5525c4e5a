//! Calls that draw on no model's quota: one request, one answer in JSON.

use std::sync::Arc;

use keywheel_pool::Ask;
use keywheel_provider::{
    Dialect, Provider, WireResponse,
    upstream::{Call, CallError, Upstream},
};
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::{
    Error,
    attempt::work::{Brought, Sight, Work, route},
    gemini::Inner,
};

/// How an answer is read.
pub(super) type Parse<T> = fn(&dyn Provider, &[u8]) -> serde_json::Result<T>;

/// One request of its own bucket.
pub(super) struct Simple<T> {
    call: Call,
    bucket: Arc<str>,
    parse: Parse<T>,
    repeatable: bool,
}

impl<T> Simple<T> {
    /// `call`, under the quota of the route `name`, its answer read by `parse`.
    pub(super) fn new(name: &str, call: Call, parse: Parse<T>) -> Self {
        Self { call, bucket: route(name), parse, repeatable: true }
    }

    /// The same, not to be done twice: it makes something new each time.
    pub(super) fn once(self) -> Self {
        Self { repeatable: false, ..self }
    }
}

impl<T: Send> Work for Simple<T> {
    type Answer = T;

    fn ask(&self, _model: &Arc<str>) -> Ask {
        Ask::new(Arc::clone(&self.bucket))
    }

    fn call(&self, _upstream: &Upstream, _model: &str) -> Result<Call, CallError> {
        Ok(self.call.clone())
    }

    async fn read(&self, sight: &Sight<'_>, response: WireResponse) -> Brought<T> {
        let provider = sight.upstream.provider();
        let parse = |body: &[u8]| Ok(((self.parse)(provider, body)?, !is_error(body)));
        match sight.whole(response, parse, |(_, is_answer)| *is_answer).await {
            Brought::Answer((answer, _)) => Brought::Answer(answer),
            Brought::Refused { status, body, refused } => {
                Brought::Refused { status, body, refused }
            }
            Brought::Nothing { sent, status, reason } => Brought::Nothing { sent, status, reason },
            Brought::Unreadable { status, reason } => Brought::Unreadable { status, reason },
            Brought::Unsendable(reason) => Brought::Unsendable(reason),
        }
    }

    fn is_repeatable(&self) -> bool {
        self.repeatable
    }
}

/// Reads any JSON that is a `T`.
pub(super) fn json<T: DeserializeOwned>(_: &dyn Provider, body: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(body)
}

/// Reads an answer that says nothing but that it was done.
#[expect(clippy::unnecessary_wraps, reason = "one of several readers")]
pub(super) fn nothing(_: &dyn Provider, _: &[u8]) -> serde_json::Result<()> {
    Ok(())
}

/// True for an error under a status that claims success: nothing but a field `error`.
pub(super) fn is_error(body: &[u8]) -> bool {
    let fields: Result<std::collections::BTreeMap<String, IgnoredAny>, _> =
        serde_json::from_slice(body);
    fields.is_ok_and(|fields| fields.len() == 1 && fields.contains_key("error"))
}

/// An error for what only Gemini's own API has.
pub(super) fn only_gemini(inner: &Inner, what: &str) -> Result<(), Error> {
    match inner.upstream.dialect() {
        Dialect::Gemini => Ok(()),
        _ => Err(absent(inner, what)),
    }
}

/// This provider has no `what`.
pub(super) fn absent(inner: &Inner, what: &str) -> Error {
    Error::Setting(format!("{} has no {what}", inner.upstream.provider().name()))
}

/// A fault of a call, before it is sent.
pub(super) fn setting(fault: impl std::fmt::Display) -> Error {
    Error::Setting(fault.to_string())
}
