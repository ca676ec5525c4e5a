//! Numbers for Prometheus. Labels are names of projects, routes, reasons and models: few, and none a secret.

mod snapshot;

use std::{fmt, time::Duration};

use keywheel::ledger::AccountId;
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

pub(crate) use self::snapshot::{MOST_PROJECTS, Snapshot};

/// What is counted while requests are answered.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Labels, Counter>,
    seconds: Family<RouteLabel, Histogram, fn() -> Histogram>,
    first_byte: Family<RouteLabel, Histogram, fn() -> Histogram>,
    in_flight: Gauge,
    bytes_in: Counter,
    bytes_out: Counter,
}

/// Whose request, to what, and with what end.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Labels {
    pub(crate) project: Name,
    pub(crate) route: &'static str,
    /// `ok`, `degraded`, `client_gone`, `broken`, or the reason of a refusal.
    pub(crate) outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabel {
    route: &'static str,
}

/// A project's name; none for requests of strangers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Name(pub(crate) Option<AccountId>);

impl EncodeLabelValue for Name {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.as_ref().map_or("", AccountId::as_str).encode(encoder)
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("keywheel");
        let requests = Family::default();
        registry.register("requests", "Requests by project, route and end", requests.clone());
        let seconds = Family::new_with_constructor(times as fn() -> Histogram);
        let help = "Seconds from a request's head to the end of its answer";
        registry.register("request_seconds", help, seconds.clone());
        let first_byte = Family::new_with_constructor(times as fn() -> Histogram);
        let help = "Seconds from a request's head to the head of its answer";
        registry.register("first_byte_seconds", help, first_byte.clone());
        let in_flight = Gauge::default();
        let help = "Requests that are not answered to their end";
        registry.register("requests_in_flight", help, in_flight.clone());
        let (bytes_in, bytes_out) = (Counter::default(), Counter::default());
        registry.register("received_bytes", "Bytes of requests' bodies", bytes_in.clone());
        registry.register("sent_bytes", "Bytes of answers' bodies", bytes_out.clone());
        Self { registry, requests, seconds, first_byte, in_flight, bytes_in, bytes_out }
    }

    /// How many requests are under way.
    pub(crate) fn in_flight(&self) -> i64 {
        self.in_flight.get()
    }

    pub(crate) fn begun(&self) {
        self.in_flight.inc();
    }

    pub(crate) fn received(&self, bytes: u64) {
        self.bytes_in.inc_by(bytes);
    }

    pub(crate) fn answering(&self, route: &'static str, after: Duration) {
        self.first_byte.get_or_create(&RouteLabel { route }).observe(after.as_secs_f64());
    }

    pub(crate) fn ended(&self, labels: &Labels, after: Duration, bytes: u64) {
        self.in_flight.dec();
        self.requests.get_or_create(labels).inc();
        let route = RouteLabel { route: labels.route };
        self.seconds.get_or_create(&route).observe(after.as_secs_f64());
        self.bytes_out.inc_by(bytes);
    }

    /// All of it as text, with what the pool and the ledger say of themselves now.
    pub(crate) fn text(&self, snapshot: &Snapshot) -> String {
        let mut out = String::with_capacity(8 << 10);
        let written = text::encode_registry(&mut out, &self.registry)
            .and_then(|()| text::encode_registry(&mut out, &snapshot.registry()))
            .and_then(|()| text::encode_eof(&mut out));
        written.expect("a String takes all that is written");
        out
    }
}

/// From 1 ms, which is a refusal, to the minutes that long answers take.
fn times() -> Histogram {
    const BOUNDS: [f64; 15] = [
        0.001, 0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 1_200.0,
    ];
    Histogram::new(BOUNDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_project_route_and_end() {
        let metrics = Metrics::new();
        let project = Name(Some(AccountId::new("triage").unwrap()));
        let labels = Labels { project, route: "generate", outcome: "ok" };
        for _ in 0..2 {
            metrics.begun();
            metrics.answering("generate", Duration::from_millis(30));
            metrics.ended(&labels, Duration::from_millis(40), 100);
        }
        metrics.begun();
        let text = metrics.text(&Snapshot::default());
        for line in [
            r#"keywheel_requests_total{project="triage",route="generate",outcome="ok"} 2"#,
            "keywheel_requests_in_flight 1",
            "keywheel_sent_bytes_total 200",
            r#"keywheel_request_seconds_bucket{le="0.1",route="generate"} 2"#,
        ] {
            assert!(text.lines().any(|own| own == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        assert_eq!(text.matches("# EOF").count(), 1);
    }
}
