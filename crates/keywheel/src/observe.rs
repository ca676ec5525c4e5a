//! What can be seen from outside: spans for each call and attempt, and counters that need no registry.
//!
//! A call is one span with the names of OpenTelemetry's conventions for generative AI
//! (<https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/>, in development there): `otel.name` is
//! `{operation} {model}`, as `tracing-opentelemetry` understands it. Each attempt is a span inside. Neither prompts nor
//! keys are in them: a key is its fingerprint and its label.

mod counters;

use std::future::Future;

use keywheel_core::Usage;
use keywheel_pool::Lease;
use keywheel_provider::api::GenerateResponse;
use tracing::{Instrument as _, Span, field::Empty};

pub(crate) use self::counters::Counting;
pub use self::counters::{Counters, ModelCounters};
use crate::{Error, gemini::Inner};

/// The span of one call. Clones are the same span.
#[derive(Debug, Clone)]
pub(crate) struct CallSpan(Span);

impl CallSpan {
    /// `operation` is OpenTelemetry's `gen_ai.operation.name`, or the route's name where no model is asked.
    pub(crate) fn new(inner: &Inner, operation: &str, model: &str) -> Self {
        let (host, port) = host_and_port(inner.upstream.base_url());
        Self(tracing::info_span!(
            "call",
            otel.name = format_args!("{operation} {model}"),
            otel.kind = "client",
            otel.status_code = Empty,
            gen_ai.operation.name = operation,
            gen_ai.provider.name = inner.upstream.provider().name(),
            gen_ai.request.model = model,
            gen_ai.response.model = Empty,
            gen_ai.response.id = Empty,
            gen_ai.response.finish_reasons = Empty,
            gen_ai.usage.input_tokens = Empty,
            gen_ai.usage.output_tokens = Empty,
            server.address = host,
            server.port = port,
            error.type = Empty,
            request_id = Empty,
        ))
    }

    /// The call's name in the ledger, if it has one.
    pub(crate) fn is_called(&self, request_id: Option<&str>) {
        if let Some(id) = request_id {
            self.0.record("request_id", id);
        }
    }

    /// Runs `future` inside.
    pub(crate) fn enter<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        future.instrument(self.0.clone())
    }

    /// What the model said of itself; of a stream, its last part.
    pub(crate) fn said(&self, response: &GenerateResponse) {
        if let Some(model) = &response.model_version {
            self.0.record("gen_ai.response.model", model);
        }
        if let Some(id) = &response.response_id {
            self.0.record("gen_ai.response.id", id);
        }
        let reasons = response.candidates.iter().filter_map(|said| said.finish_reason.as_ref());
        let reasons: Vec<_> = reasons.map(|reason| reason.as_str().to_owned()).collect();
        if !reasons.is_empty() {
            self.0.record("gen_ai.response.finish_reasons", tracing::field::debug(&reasons));
        }
    }

    /// How the call ended. Tokens of thinking are output tokens, those of tool results input.
    pub(crate) fn ended(&self, ended: Result<Option<Usage>, &Error>) {
        match ended {
            Ok(usage) => {
                let Some(usage) = usage else { return };
                let input = usage.input.saturating_add(usage.tool);
                let output = usage.output.saturating_add(usage.thinking);
                self.0.record("gen_ai.usage.input_tokens", input);
                self.0.record("gen_ai.usage.output_tokens", output);
            }
            Err(error) => {
                self.0.record("error.type", error.kind());
                self.0.record("otel.status_code", "ERROR");
            }
        }
    }
}

/// The span of one attempt of a call.
#[derive(Debug, Clone)]
pub(crate) struct AttemptSpan(Span);

impl AttemptSpan {
    /// None yet.
    pub(crate) fn none() -> Self {
        Self(Span::none())
    }

    pub(crate) fn new(lease: &Lease, model: &str, waited_ms: u64) -> Self {
        Self(tracing::info_span!(
            "attempt",
            gen_ai.request.model = model,
            key = %lease.fingerprint(),
            label = lease.label(),
            waited_ms,
            http.response.status_code = Empty,
            kind = Empty,
        ))
    }

    /// Runs `future` inside.
    pub(crate) fn enter<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        future.instrument(self.0.clone())
    }

    /// What came back, in the classifier's words.
    pub(crate) fn replied(&self, status: Option<u16>, kind: &str) {
        if let Some(status) = status {
            self.0.record("http.response.status_code", status);
        }
        self.0.record("kind", kind);
    }
}

fn host_and_port(base_url: &str) -> (&str, u16) {
    let (scheme, rest) = base_url.split_once("://").unwrap_or(("https", base_url));
    let authority = rest.split('/').next().unwrap_or(rest);
    let usual = if scheme == "http" { 80 } else { 443 };
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().unwrap_or(usual)),
        _ => (authority, usual),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_every_kind_of_base_url_is_told() {
        for (url, expected) in [
            (
                "https://generativelanguage.googleapis.com",
                ("generativelanguage.googleapis.com", 443),
            ),
            ("http://127.0.0.1:8080/v1beta", ("127.0.0.1", 8080)),
            ("http://localhost/x:y", ("localhost", 80)),
            ("https://[::1]:9/x", ("[::1]", 9)),
            ("https://[::1]", ("[::1]", 443)),
        ] {
            assert_eq!(host_and_port(url), expected, "{url}");
        }
    }
}
