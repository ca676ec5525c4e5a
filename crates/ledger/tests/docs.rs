//! What `docs/ledger.md` shows can be used as it stands.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use keywheel_ledger::{Durability, LedgerConfig};

#[test]
fn the_configuration_in_the_documentation_is_one() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ledger.md");
    let page = std::fs::read_to_string(page).unwrap();
    let block = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let config = LedgerConfig::from_toml(block).unwrap();
    assert_eq!(config.durability, Some(Durability::RequireExisting));
    let triage = &config.rules.accounts["triage"];
    assert_eq!((triage.limits.len(), triage.default_max_output), (3, Some(2_048)));
    assert_eq!(config.rules.allowance.len(), 1);
}
