//! What the pool and the ledger say of themselves at the moment they are asked.

use std::cmp::Reverse;

use keywheel::{Counters, ModelCounters, PoolStatus, ledger::AccountId};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::Name;
use crate::health::Keys;

/// The most projects whose budgets are told; a scrape is no report.
pub(crate) const MOST_PROJECTS: usize = 100;

/// The most models whose tokens are told by name. An upstream may answer whatever name it is asked for, and the names are
/// the clients'.
const MOST_MODELS: usize = 100;

/// What the tokens of all further models are told under.
const OTHER: &str = "other";

/// What is known at one moment.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) counters: Counters,
    pub(crate) keys: Keys,
    /// Who waits in the pool.
    pub(crate) waiting: u64,
    /// Who waits in the projects' queues.
    pub(crate) queued: u64,
    /// Tokens of the ledger's day: project, charged, reserved.
    pub(crate) budgets: Vec<(AccountId, u64, u64)>,
    pub(crate) ledger_rows: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByState {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByCause {
    cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByModel {
    model: String,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByProject {
    project: Name,
    state: &'static str,
}

impl Snapshot {
    pub(crate) fn of(counters: Counters, status: &PoolStatus, queued: usize) -> Self {
        let waiting = status.waiting.iter().map(|model| model.waiters as u64).sum();
        let keys = Keys::of(status);
        Self { counters, keys, waiting, queued: queued as u64, ..Self::default() }
    }

    pub(super) fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix("keywheel");
        self.pool(&mut registry);
        self.calls(&mut registry);
        self.ledger(&mut registry);
        registry
    }

    fn pool(&self, registry: &mut Registry) {
        let keys = Family::<ByState, Gauge>::default();
        let Keys { ready, cooling, quarantined, .. } = self.keys;
        for (state, count) in [("ready", ready), ("cooling", cooling), ("quarantined", quarantined)]
        {
            set(&keys.get_or_create(&ByState { state }), count as u64);
        }
        registry.register("keys", "Keys by state", keys);
        let waiting = Family::<ByState, Gauge>::default();
        set(&waiting.get_or_create(&ByState { state: "pool" }), self.waiting);
        set(&waiting.get_or_create(&ByState { state: "queue" }), self.queued);
        registry.register("waiting", "Requests that wait for a key or for budget", waiting);
    }

    fn calls(&self, registry: &mut Registry) {
        let counters = &self.counters;
        let mut count = |name: &str, help: &str, value: u64| {
            let counter = Counter::<u64>::default();
            counter.inc_by(value);
            registry.register(name, help, counter);
        };
        count("upstream_requests", "Requests sent to the provider", counters.attempts);
        count("upstream_served", "Requests that the provider answered", counters.served);
        count("upstream_failed", "Requests that brought no whole answer", counters.failed);
        count("upstream_retries", "Requests that repeated a failed one", counters.retries);
        count("fallbacks", "Calls that another model served", counters.fallbacks);
        let refused = Family::<ByCause, Counter>::default();
        for (cause, value) in &counters.refused {
            refused.get_or_create(&ByCause { cause }).inc_by(*value);
        }
        registry.register("upstream_refused", "Requests that the provider refused", refused);
        let tokens = Family::<ByModel, Counter>::default();
        // Nobody can fill the page with names that no model has, nor with those that an upstream takes for one.
        let answered = counters.models.iter().filter(|(_, of_it)| of_it.served > 0);
        let mut answered: Vec<_> = answered.map(|(model, of_it)| (&**model, of_it)).collect();
        if answered.len() > MOST_MODELS {
            let used =
                |of_it: &ModelCounters| of_it.input_tokens.saturating_add(of_it.output_tokens);
            answered.sort_by_key(|(_, of_it)| Reverse(used(of_it)));
        }
        for (place, (model, of_it)) in answered.into_iter().enumerate() {
            let model = if place < MOST_MODELS { model } else { OTHER };
            for (kind, value) in [("input", of_it.input_tokens), ("output", of_it.output_tokens)] {
                let model = model.to_owned();
                tokens.get_or_create(&ByModel { model, kind }).inc_by(value);
            }
        }
        registry.register("tokens", "Tokens by model", tokens);
    }

    fn ledger(&self, registry: &mut Registry) {
        let budget = Family::<ByProject, Gauge>::default();
        for (project, charged, reserved) in self.budgets.iter().take(MOST_PROJECTS) {
            for (state, value) in [("charged", *charged), ("reserved", *reserved)] {
                let project = Name(Some(project.clone()));
                set(&budget.get_or_create(&ByProject { project, state }), value);
            }
        }
        registry.register("day_tokens", "Tokens of the ledger's day by project", budget);
        if let Some(rows) = self.ledger_rows {
            let gauge = Gauge::<i64>::default();
            set(&gauge, rows);
            registry.register("ledger_rows", "Rows in the ledger", gauge);
        }
    }
}

fn set(gauge: &Gauge, value: u64) {
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(models: impl IntoIterator<Item = (String, u64, u64)>) -> String {
        let mut snapshot = Snapshot::default();
        for (name, served, input_tokens) in models {
            let mut counters = ModelCounters::default();
            (counters.served, counters.input_tokens) = (served, input_tokens);
            snapshot.counters.models.insert(name, counters);
        }
        super::super::Metrics::new().text(&snapshot)
    }

    #[test]
    fn models_that_never_answered_are_not_named() {
        let text = snapshot([("gemini-3.6-flash".into(), 1, 8), ("made-up".into(), 0, 0)]);
        assert!(
            text.contains("keywheel_tokens_total{model=\"gemini-3.6-flash\",kind=\"input\"} 8")
        );
        assert!(!text.contains("made-up"), "{text}");
    }
    /// An upstream that takes any name for the model that it has.
    #[test]
    fn of_a_thousand_models_the_most_used_are_named_and_the_rest_is_one_number() {
        let names = (1..=1_000).map(|number| (format!("m{number:04}"), 1, number));
        let text = snapshot(names);
        let input: Vec<_> =
            text.lines().filter(|line| line.contains(r#",kind="input"}"#)).collect();
        assert_eq!(input.len(), MOST_MODELS + 1, "{text}");
        let says = |line: &str| assert!(input.contains(&line), "{line} is not in\n{text}");
        says(r#"keywheel_tokens_total{model="m1000",kind="input"} 1000"#);
        says(r#"keywheel_tokens_total{model="m0901",kind="input"} 901"#);
        says(&format!(r#"keywheel_tokens_total{{model="other",kind="input"}} {}"#, 900 * 901 / 2));
    }
}
