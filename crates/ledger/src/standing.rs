//! How full the limits are.

use chrono::{DateTime, Utc};
use keywheel_core::QuotaDay;

use crate::{
    AccountId, Ledger, LedgerError, LedgerRules, Limit, Scope, Span, Sum, Total, TotalKey, decide,
};

/// What an account, or all of them together, has used, and how full its limits are.
///
/// ```
/// # use keywheel_ledger::{Ask, Ledger, LedgerError, Limit, Period};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LedgerError> {
/// let ledger = Ledger::builder()
///     .account("triage", [Limit::tokens(Period::Day, 1_000)])
///     .allowance([Limit::calls(Period::Month, 100)])
///     .in_memory()
///     .open()
///     .await?;
/// ledger.reserve("triage", Ask::new("m", 800)).await?.held().expect("it fits").settle(120).await?;
/// let triage = ledger.usage("triage").await?;
/// let left: Vec<_> = triage.limits.iter().map(|limit| limit.left()).collect();
/// assert_eq!(left, [880, 99]); // tokens of its day, calls of everybody's month
/// assert_eq!(ledger.usage_of_all().await?.month.tokens.used(), 120);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Whose.
    pub scope: Scope,
    /// Today, in the ledger's zone.
    pub day: Total,
    /// This month.
    pub month: Total,
    /// Since the ledger was made.
    pub ever: Total,
    /// Limit by limit, in the order of the rules: an account's own, then the allowance's.
    pub limits: Vec<LimitStanding>,
}

/// How full one limit is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitStanding {
    /// Whose limit.
    pub scope: Scope,
    /// The limit.
    pub limit: Limit,
    /// What counts against it: settled and reserved, apart.
    pub sum: Sum,
    /// When it begins anew; `None` for a limit in total.
    pub begins_anew: Option<DateTime<Utc>>,
}

impl LimitStanding {
    /// What is left; 0 if a lowered cap or an overrun left less than nothing.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.limit.cap.saturating_sub(self.sum.used())
    }

    /// How much of it is used, settled and reserved, in whole percent, rounded down; 100 for a cap of
    /// 0.
    #[must_use]
    pub fn percent(&self) -> u64 {
        let used = u128::from(self.sum.used()) * 100;
        let percent = used.checked_div(u128::from(self.limit.cap)).unwrap_or(100);
        u64::try_from(percent).unwrap_or(u64::MAX)
    }
}

impl Ledger {
    /// What `account` has used, and how full the limits are that hold for it. An account that never
    /// asked for anything has used nothing.
    ///
    /// # Errors
    /// A name that cannot be one, and whatever keeps the store from reading.
    pub async fn usage(&self, account: &str) -> Result<Standing, LedgerError> {
        let account = AccountId::new(account)?;
        let rules = self.rules();
        let own = rules.accounts.get(&account).map_or(&[][..], |own| &own.limits);
        let own = own.iter().map(|limit| (Scope::Account(account.clone()), limit));
        let all = own.chain(allowance(&rules));
        self.standing(Scope::Account(account.clone()), all.collect(), &rules).await
    }

    /// What all accounts together have used, and how full the allowance is.
    ///
    /// # Errors
    /// Whatever keeps the store from reading.
    pub async fn usage_of_all(&self) -> Result<Standing, LedgerError> {
        let rules = self.rules();
        self.standing(Scope::Whole, allowance(&rules).collect(), &rules).await
    }

    async fn standing(
        &self,
        scope: Scope,
        limits: Vec<(Scope, &Limit)>,
        rules: &LedgerRules,
    ) -> Result<Standing, LedgerError> {
        let now = self.clock().now();
        let today = QuotaDay::containing_in(now, rules.zone).date();
        let spans = Span::all_of(today);
        let spans = spans.map(|span| TotalKey { scope: scope.clone(), span, model: None });
        let mut keys = spans.to_vec();
        keys.extend(limits.iter().map(|(scope, limit)| limit.total_key(scope.clone(), today)));
        let totals = self.store().totals(keys).await?;
        let mut totals = totals.into_iter();
        let mut next = || totals.next().unwrap_or_default();
        let [day, month, ever] = [next(), next(), next()];
        let limits = limits.into_iter().map(|(scope, limit)| LimitStanding {
            scope,
            sum: next().of(limit.unit),
            begins_anew: decide::begins_anew(limit.period, now, rules.zone),
            limit: limit.clone(),
        });
        Ok(Standing { limits: limits.collect(), scope, day, month, ever })
    }
}

fn allowance(rules: &LedgerRules) -> impl Iterator<Item = (Scope, &Limit)> {
    rules.allowance.iter().map(|limit| (Scope::Whole, limit))
}
