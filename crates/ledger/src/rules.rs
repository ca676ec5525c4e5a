//! Who may use how much.

use std::{collections::BTreeMap, fmt, sync::Arc};

use chrono::NaiveDate;
use chrono_tz::Tz;
use keywheel_core::quota_day::PACIFIC;
use serde::{Deserialize, Serialize};

use crate::{AccountId, ErrorKind, LedgerError, Scope, Span, TotalKey, Unit, account::check_name};

/// What an account's output is taken for when a request does not bound it: 8,192 tokens.
pub const DEFAULT_MAX_OUTPUT: u64 = 8_192;

/// How often a limit begins anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// At midnight in the ledger's zone.
    Day,
    /// At midnight of the 1st in the ledger's zone.
    Month,
    /// Never.
    Total,
}

impl Period {
    /// The day, the month or all of time around `day`.
    #[must_use]
    pub fn around(self, day: NaiveDate) -> Span {
        match self {
            Self::Day => Span::Day(day),
            Self::Month => Span::month_of(day),
            Self::Total => Span::Ever,
        }
    }
}

/// A cap on what may be used: settled and reserved together never pass it by a reservation.
///
/// ```
/// use keywheel_ledger::{Limit, Period, Scope, Span};
///
/// let limit = Limit::tokens(Period::Month, 100_000).for_model("gemini-3.6-flash");
/// assert_eq!(limit.to_string(), "100000 tokens a month for gemini-3.6-flash");
///
/// let day = "2026-11-30".parse().expect("a day");
/// assert_eq!(limit.period.around(day), Span::Month(2026, 11));
/// let key = limit.total_key(Scope::Whole, day); // the sum that it is compared with
/// assert_eq!((key.span, key.model.as_deref()), (Span::Month(2026, 11), Some("gemini-3.6-flash")));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limit {
    /// What is counted.
    pub unit: Unit,
    /// How often it begins anew.
    pub period: Period,
    /// The one model it holds for, by the name that is asked for; `None` for all together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
    /// The most that may be used. 0 lets nothing through.
    pub cap: u64,
}

impl Limit {
    /// At most `cap` of `unit` in each `period`, over all models.
    #[must_use]
    pub const fn new(unit: Unit, period: Period, cap: u64) -> Self {
        Self { unit, period, model: None, cap }
    }

    /// At most `cap` tokens in each `period`.
    #[must_use]
    pub const fn tokens(period: Period, cap: u64) -> Self {
        Self::new(Unit::Tokens, period, cap)
    }

    /// At most `cap` calls in each `period`.
    #[must_use]
    pub const fn calls(period: Period, cap: u64) -> Self {
        Self::new(Unit::Calls, period, cap)
    }

    /// The same, for `model` alone.
    #[must_use]
    pub fn for_model(mut self, model: &str) -> Self {
        self.model = Some(model.into());
        self
    }

    /// The total that this limit of `scope` is compared with on `day`.
    #[must_use]
    pub fn total_key(&self, scope: Scope, day: NaiveDate) -> TotalKey {
        TotalKey { scope, span: self.period.around(day), model: self.model.clone() }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.cap, self.unit)?;
        f.write_str(match self.period {
            Period::Day => " a day",
            Period::Month => " a month",
            Period::Total => " in total",
        })?;
        self.model.as_ref().map_or(Ok(()), |model| write!(f, " for {model}"))
    }
}

/// What holds for one account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountRules {
    /// Its caps; none means that only the allowance limits it.
    pub limits: Vec<Limit>,
    /// What its output is taken for when a request does not bound it. Defaults to
    /// [`DEFAULT_MAX_OUTPUT`].
    pub default_max_output: Option<u64>,
}

/// Who may use how much, and when days turn. Takes effect at once; what is reserved stays reserved
/// when a cap is lowered under it.
///
/// ```
/// use keywheel_ledger::{LedgerRules, Limit, Period};
///
/// let rules = LedgerRules::new()
///     .account("triage", [Limit::tokens(Period::Day, 3_000_000), Limit::calls(Period::Day, 500)])?
///     .account("batch", [Limit::tokens(Period::Day, 4_000_000)])?
///     .allowance([Limit::tokens(Period::Day, 10_000_000)]);
/// assert!(rules.overcommitments().is_empty()); // 7 of 10 million are given out
/// # Ok::<(), keywheel_ledger::LedgerError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerRules {
    /// By account.
    pub accounts: BTreeMap<AccountId, AccountRules>,
    /// Caps on all accounts together.
    pub allowance: Vec<Limit>,
    /// Where days and months turn. Defaults to Pacific, where Google's do.
    pub zone: Tz,
    /// True lets accounts in that are not named here; the allowance alone limits them. Defaults to
    /// false: a name with a typing error must not be a budget without a cap.
    pub any_account: bool,
    /// True charges the estimate for an attempt that was sent and never answered, since the
    /// provider may have charged for it. Defaults to true.
    pub charge_timeouts: bool,
}

impl Default for LedgerRules {
    fn default() -> Self {
        Self::new()
    }
}

impl LedgerRules {
    /// No account, no limit, Pacific days.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            accounts: BTreeMap::new(),
            allowance: Vec::new(),
            zone: PACIFIC,
            any_account: false,
            charge_timeouts: true,
        }
    }

    /// With an account of this name and these limits, in the place of what was said of it before.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the name cannot be one.
    pub fn account(
        mut self,
        name: &str,
        limits: impl IntoIterator<Item = Limit>,
    ) -> Result<Self, LedgerError> {
        let rules = self.accounts.entry(AccountId::new(name)?).or_default();
        rules.limits = limits.into_iter().collect();
        Ok(self)
    }

    /// With these limits on all accounts together.
    #[must_use]
    pub fn allowance(mut self, limits: impl IntoIterator<Item = Limit>) -> Self {
        self.allowance = limits.into_iter().collect();
        self
    }

    /// With days and months that turn in `zone`. Rows stay in the day in which they were reserved.
    #[must_use]
    pub const fn zone(mut self, zone: Tz) -> Self {
        self.zone = zone;
        self
    }

    /// With accounts that are not named let in, limited by the allowance alone.
    #[must_use]
    pub const fn any_account(mut self) -> Self {
        self.any_account = true;
        self
    }

    /// The limits that hold for `account` and `model`, each with whose it is; the account's first.
    ///
    /// ```
    /// use keywheel_ledger::{AccountId, LedgerRules, Limit, Period, Scope};
    ///
    /// let rules = LedgerRules::new()
    ///     .zone(chrono_tz::UTC)
    ///     .any_account()
    ///     .account("triage", [Limit::calls(Period::Day, 500).for_model("m")])?
    ///     .allowance([Limit::tokens(Period::Day, 1_000_000)]);
    /// let (triage, guest) = (AccountId::new("triage")?, AccountId::new("guest")?);
    /// assert_eq!(rules.limits_for(&triage, "m")?.count(), 2);
    /// assert_eq!(rules.limits_for(&triage, "another model")?.count(), 1);
    /// assert!(rules.limits_for(&guest, "m")?.all(|(scope, _)| scope == Scope::Whole));
    /// assert_eq!(rules.default_max_output("triage"), 8_192);
    /// # Ok::<(), keywheel_ledger::LedgerError>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::UnknownAccount`] if the account is not named here and has to be.
    pub fn limits_for<'a>(
        &'a self,
        account: &'a AccountId,
        model: &'a str,
    ) -> Result<impl Iterator<Item = (Scope, &'a Limit)>, LedgerError> {
        let own = self.accounts.get(account);
        if own.is_none() && !self.any_account {
            return Err(self.unknown(account));
        }
        let own = own.map_or(&[][..], |rules| &rules.limits);
        let own = own.iter().map(|limit| (Scope::Account(account.clone()), limit));
        let whole = self.allowance.iter().map(|limit| (Scope::Whole, limit));
        let concerns = move |limit: &Limit| limit.model.as_deref().is_none_or(|own| own == model);
        Ok(own.chain(whole).filter(move |(_, limit)| concerns(limit)))
    }

    /// What `account`'s output is taken for when a request does not bound it.
    #[must_use]
    pub fn default_max_output(&self, account: &str) -> u64 {
        let own = self.accounts.get(account).and_then(|rules| rules.default_max_output);
        own.unwrap_or(DEFAULT_MAX_OUTPUT)
    }

    /// The limits of the allowance of which over 90 % are given out to accounts.
    ///
    /// Accounts then can meet the allowance before they meet their own caps, and one of them can
    /// take what another counts on.
    #[must_use]
    pub fn overcommitments(&self) -> Vec<Overcommitment> {
        let given = |whole: &Limit| {
            let same = |own: &&Limit| {
                (own.unit, own.period, &own.model) == (whole.unit, whole.period, &whole.model)
            };
            let own = self.accounts.values().flat_map(|rules| rules.limits.iter().filter(same));
            own.fold(0_u64, |sum, limit| sum.saturating_add(limit.cap))
        };
        let all = self
            .allowance
            .iter()
            .map(|limit| Overcommitment { limit: limit.clone(), given_out: given(limit) });
        all.filter(|found| u128::from(found.given_out) * 10 > u128::from(found.limit.cap) * 9)
            .collect()
    }

    fn unknown(&self, account: &AccountId) -> LedgerError {
        const SHOWN: usize = 10;
        let known: Vec<_> = self.accounts.keys().map(AccountId::as_str).take(SHOWN).collect();
        let known = match self.accounts.len().saturating_sub(SHOWN) {
            _ if known.is_empty() => "none".into(),
            0 => known.join(", "),
            more => format!("{} and {more} more", known.join(", ")),
        };
        LedgerError::new(
            ErrorKind::UnknownAccount,
            format!("there is no account {account}; known: {known}"),
        )
    }
}

/// Over 90 % of a limit of the allowance are given out to accounts. `Display` says it in a
/// sentence.
///
/// ```
/// use keywheel_ledger::{LedgerRules, Limit, Period};
///
/// let rules = LedgerRules::new()
///     .account("triage", [Limit::calls(Period::Day, 800)])?
///     .account("batch", [Limit::calls(Period::Day, 400)])?
///     .allowance([Limit::calls(Period::Day, 1_000)]);
/// let found = rules.overcommitments();
/// assert_eq!((found[0].given_out, found[0].percent()), (1_200, 120));
/// # Ok::<(), keywheel_ledger::LedgerError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overcommitment {
    /// The limit of the allowance.
    pub limit: Limit,
    /// The sum of the accounts' caps of the same kind.
    pub given_out: u64,
}

impl Overcommitment {
    /// How much of the limit is given out, in percent, rounded to the nearest.
    #[must_use]
    pub fn percent(&self) -> u64 {
        let cap = u128::from(self.limit.cap.max(1));
        let percent = (u128::from(self.given_out) * 100 + cap / 2) / cap;
        u64::try_from(percent).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Overcommitment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the accounts' caps add up to {} {}, which is {} % of the allowance of {}",
            self.given_out,
            self.limit.unit,
            self.percent(),
            self.limit
        )
    }
}

/// The name of a model as it is kept.
pub(crate) fn check_model(model: &str) -> Result<Arc<str>, LedgerError> {
    check_name("a model's name", model)
}
