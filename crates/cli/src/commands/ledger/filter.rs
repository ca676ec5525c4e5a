//! Which rows are meant.

use chrono::{DateTime, Utc};
use keywheel::{
    Fingerprint,
    ledger::{AccountId, LedgerError, RowQuery, RowState},
};

use crate::moment;

/// Arguments that choose rows.
#[derive(Debug, clap::Args)]
pub(super) struct Filter {
    /// Only rows of this account: a project of the gateway.
    #[arg(long)]
    account: Option<String>,
    /// Only rows of this model.
    #[arg(long)]
    model: Option<String>,
    /// Only rows of the key with this fingerprint.
    #[arg(long, value_name = "FINGERPRINT", value_parser = fingerprint)]
    key: Option<Fingerprint>,
    /// Only rows in this state: reserved, settled, released or swept.
    #[arg(long, value_parser = state)]
    state: Option<RowState>,
    /// Only rows of this request.
    #[arg(long, value_name = "ID")]
    request: Option<String>,
    /// Only rows that were reserved at this time or later.
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    from: Option<DateTime<Utc>>,
    /// Only rows that were reserved before this time.
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    until: Option<DateTime<Utc>>,
}

impl Filter {
    /// True if it goes by more than the account.
    pub(super) const fn is_by_rows(&self) -> bool {
        let Self { account: _, model, key, state, request, from, until } = self;
        model.is_some()
            || key.is_some()
            || state.is_some()
            || request.is_some()
            || from.is_some()
            || until.is_some()
    }

    /// The same for the ledger.
    ///
    /// # Errors
    /// The account's name cannot be one.
    pub(super) fn query(&self) -> Result<RowQuery, LedgerError> {
        Ok(RowQuery {
            account: self.account.as_deref().map(AccountId::new).transpose()?,
            model: self.model.clone(),
            key: self.key,
            state: self.state,
            request_id: self.request.clone(),
            from: self.from,
            until: self.until,
            ..RowQuery::default()
        })
    }
}

/// Not repeated when it is none: people have been seen to give the key itself.
fn fingerprint(text: &str) -> Result<Fingerprint, String> {
    let wanted = "a fingerprint has 12 hexadecimal digits; `keywheel status` shows each key's";
    text.parse().map_err(|_| wanted.to_owned())
}

fn state(text: &str) -> Result<RowState, String> {
    text.parse().map_err(|_| "there are reserved, settled, released and swept".to_owned())
}
