//! `[ledger]` and `account`: the budget that the client's calls are charged to.

use keywheel_settings::Section;

use super::read::Source;
use crate::GeminiBuilder;

/// Reads both. What is wrong is noted in the section's faults.
pub(super) fn ledger(at: &mut Section<'_>, source: &Source, to: GeminiBuilder) -> GeminiBuilder {
    let account = at.text_at("account", "an account's name", |name| Ok(name.to_owned()));
    let Some(section) = at.table("ledger") else {
        if let Some((place, _)) = account {
            at.fault(place, "account", "needs a section [ledger] that knows it");
        }
        return to;
    };
    join(&section, account, source, to)
}

#[cfg(feature = "ledger")]
fn join(
    section: &Section<'_>,
    account: Option<(usize, String)>,
    source: &Source,
    to: GeminiBuilder,
) -> GeminiBuilder {
    // It finds its section in the whole text, and tells each fault with its place.
    let mut config = match keywheel_ledger::LedgerConfig::parse(section.faults().text()) {
        Ok(config) => config,
        Err(faults) => {
            faults.into_iter().for_each(|fault| section.faults().add(fault.at, fault.what));
            return to;
        }
    };
    config.path = config.path.map(|path| source.path(&path.to_string_lossy()));
    let mut known = config.rules.accounts.keys();
    let account = match (account, known.next(), known.next()) {
        (Some((_, account)), ..) => account,
        (None, Some(only), None) => only.as_str().to_owned(),
        (None, ..) => {
            section.own_fault("whose budget is it? Set `account`, above the first section");
            return to;
        }
    };
    to.ledger_of(config, account.into())
}

/// A budget that nobody keeps must not pass for one.
#[cfg(not(feature = "ledger"))]
fn join(
    section: &Section<'_>,
    _: Option<(usize, String)>,
    _: &Source,
    to: GeminiBuilder,
) -> GeminiBuilder {
    section.own_fault("this program was built without ledgers (keywheel's feature `ledger`)");
    to
}
