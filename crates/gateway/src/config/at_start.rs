//! What a configuration says to a gateway that starts, and to none that runs.

use std::{collections::BTreeMap, fmt::Debug, path::PathBuf};

use keywheel::{
    ledger::{KEEP_ROWS, LedgerConfig, SWEEP_AFTER},
    settings::words::{duration, shown},
};
use toml::de::{DeTable, DeValue};

use super::{Settings, sections::Upstream};

/// The client's settings that have a default. All of them are built into it once.
const DEFAULTS: &str = r#"
selection = "round_robin"
deadline = "2m"
stream_deadline = "20m"
overflow_after = "30s"
fallback_after = "2s"
exploration = true
daily_checks = true
[timeouts]
connect = "10s"
first_byte = "90s"
idle = "90s"
[retry]
max_retries = 2
first_pause = "1s"
max_pause = "20s"
budget_percent = 10
budget_reserve = 10
breaker_after = 5
"#;

/// Those that have none, and the sections of those.
const WITHOUT_DEFAULT: [&str; 4] = ["fallback", "limits", "model_facts", "reset"];

/// The settings that only a start looks at, by the names that faults call them, and what each says. Those that say the
/// same in other words (`2m`, `120s`), or nothing and the default, are the same here. Holds no key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AtStart(BTreeMap<String, String>);

impl AtStart {
    /// Those of the text of a configuration, and those that were read of it already.
    pub(super) fn of(
        text: &str,
        settings: &Settings,
        upstream: &Upstream,
        state: Option<PathBuf>,
        ledger: &LedgerConfig,
    ) -> Self {
        let mut all = Self::default();
        all.insert("listen", settings.listen);
        all.insert("watch", settings.watch);
        all.insert("state", state);
        all.insert("upstream.kind", upstream.dialect);
        all.insert("upstream.base_url", &upstream.base_url);
        all.insert("upstream.api_version", &upstream.version);
        let limits = settings.limits;
        all.insert("serve.head_time", limits.head_time);
        all.insert("serve.idle_time", limits.idle_time);
        all.insert("serve.connections", limits.connections);
        all.insert("serve.threads", limits.threads);
        all.insert("ledger.path", &ledger.path);
        all.insert("ledger.storage", ledger.durability.unwrap_or_default());
        all.insert("ledger.sweep_after_seconds", ledger.sweep_after.unwrap_or(SWEEP_AFTER));
        all.insert("ledger.keep_days", ledger.keep_rows.unwrap_or(KEEP_ROWS));
        let defaults = DeTable::parse(DEFAULTS).expect("it is TOML").into_inner();
        // What is no TOML is a fault already.
        let said = DeTable::parse(text).map(|table| table.into_inner()).unwrap_or_default();
        let with_default = defaults.keys().map(|name| &**name.get_ref());
        for name in with_default.chain(WITHOUT_DEFAULT) {
            for table in [&defaults, &said] {
                if let Some(value) = table.get(name) {
                    all.insert_all(name, value.get_ref());
                }
            }
        }
        all
    }

    /// The names of those that `now` says something else of.
    pub(crate) fn changed(&self, now: &Self) -> Vec<String> {
        let names = self.0.keys().chain(now.0.keys().filter(|name| !self.0.contains_key(*name)));
        let changed = names.filter(|name| self.0.get(*name) != now.0.get(*name));
        let mut changed: Vec<_> = changed.cloned().collect();
        changed.sort_unstable();
        changed
    }

    fn insert(&mut self, name: &str, said: impl Debug) {
        self.0.insert(name.to_owned(), format!("{said:?}"));
    }

    /// A setting, or all within a section.
    fn insert_all(&mut self, name: &str, said: &DeValue<'_>) {
        let DeValue::Table(section) = said else {
            self.0.insert(name.to_owned(), in_one_form(said));
            return;
        };
        for (own, said) in section {
            self.insert_all(&format!("{name}.{}", shown(own.get_ref())), said.get_ref());
        }
    }
}

/// The same text for values that are the same.
fn in_one_form(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => match duration(text) {
            Some(time) => format!("{time:?}"),
            None => text.trim().to_owned(),
        },
        DeValue::Integer(digits) => {
            let number = u64::from_str_radix(digits.as_str(), digits.radix());
            number.map_or_else(|_| digits.to_string(), |number| number.to_string())
        }
        DeValue::Array(all) => {
            let all = all.iter().map(|one| in_one_form(one.get_ref()));
            all.collect::<Vec<_>>().join(", ")
        }
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests;
