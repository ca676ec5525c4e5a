//! What an attempt is charged: the one table, as one pure function. `docs/ledger.md` of
//! the repository gives the reasons.

use std::{fmt, str::FromStr};

use keywheel_core::Usage;
use serde::{Deserialize, Serialize};

use crate::{Amount, ErrorKind, LedgerError};

/// What became of one attempt, as far as its price goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It never reached the provider: no address, connection refused, TLS failed.
    NotSent,
    /// Refused before anything was generated: a 4xx, 429 among them.
    Refused,
    /// The provider failed: a 5xx.
    ServerError,
    /// It was sent, and no answer came: a timeout, or the connection was cut.
    Lost,
    /// Answered: a 2xx, to its end.
    Answered,
    /// The answer began and did not end: cut, an error inside it, or dropped by the caller.
    CutShort,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 6] = [
        Self::NotSent,
        Self::Refused,
        Self::ServerError,
        Self::Lost,
        Self::Answered,
        Self::CutShort,
    ];

    /// The name used in stores, reports and exports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotSent => "not_sent",
            Self::Refused => "refused",
            Self::ServerError => "server_error",
            Self::Lost => "lost",
            Self::Answered => "answered",
            Self::CutShort => "cut_short",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Outcome {
    type Err = LedgerError;

    fn from_str(text: &str) -> Result<Self, LedgerError> {
        let found = Self::ALL.into_iter().find(|outcome| outcome.as_str() == text);
        found.ok_or_else(|| {
            LedgerError::new(ErrorKind::Corrupt, format!("no outcome is called {text:?}"))
        })
    }
}

/// What an attempt with this `outcome` is charged, given what was `reserved` for it and the usage
/// that was `seen`.
///
/// | outcome | tokens | calls |
/// |---|---|---|
/// | not sent | 0 | 0 |
/// | refused (4xx, 429) | 0 | 0 |
/// | server error (5xx) | 0 | as reserved |
/// | lost (timeout or cut after sending) | the estimate, or what was seen if more; without `charge_timeouts` what was seen | as reserved |
/// | answered, with usage | the usage, as [`Usage::charged`] sums it up | as reserved |
/// | answered, without usage | the estimate | as reserved |
/// | cut short | the estimate, or what was seen if more | as reserved |
///
/// A process that dies settles nothing: the sweep charges the estimate. A usage that is beyond
/// belief, over 16 times what was reserved and over 4 million tokens, is none: it costs the estimate
/// wherever the table says usage.
///
/// ```
/// use keywheel_core::Usage;
/// use keywheel_ledger::{Amount, Outcome, charge::charge};
///
/// let reserved = Amount::new(800, 1);
/// let usage = Usage::new(100, 20);
/// assert_eq!(charge(Outcome::Answered, reserved, Some(&usage), true), Amount::new(120, 1));
/// assert_eq!(charge(Outcome::CutShort, reserved, Some(&usage), true), reserved);
/// ```
#[must_use]
pub fn charge(
    outcome: Outcome,
    reserved: Amount,
    seen: Option<&Usage>,
    charge_timeouts: bool,
) -> Amount {
    let used = match seen {
        Some(usage) if is_beyond_belief(usage, reserved) => reserved.tokens,
        _ => seen.map_or(0, Usage::charged),
    };
    let tokens = match outcome {
        Outcome::NotSent | Outcome::Refused => return Amount::ZERO,
        Outcome::ServerError => 0,
        Outcome::Lost if !charge_timeouts => used,
        Outcome::Answered if seen.is_some() => used,
        Outcome::Lost | Outcome::Answered | Outcome::CutShort => used.max(reserved.tokens),
    };
    Amount { tokens, calls: reserved.calls }.bounded()
}

/// Whether `usage` cannot be that of one request for which so much was `reserved`: one such figure
/// would spend a whole budget.
///
/// No model reads or writes more than [`BELIEVED`] in one request, and what was reserved knows better
/// where one does.
pub(crate) fn is_beyond_belief(usage: &Usage, reserved: Amount) -> bool {
    usage.charged() > reserved.tokens.saturating_mul(WRONG_BY).max(BELIEVED)
}

/// How many tokens are believed of any request. The largest input of a Gemini model is 1 to 2
/// million, and its output is under a tenth of that.
const BELIEVED: u64 = 4_000_000;
/// How many times the estimate is believed where that is more.
const WRONG_BY: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const RESERVED: Amount = Amount::new(800, 1);

    fn usage(total: u64) -> Usage {
        Usage { output: total, total, ..Usage::default() }
    }

    fn charged(outcome: Outcome, seen: Option<u64>) -> Amount {
        charge(outcome, RESERVED, seen.map(usage).as_ref(), true)
    }

    #[test]
    fn what_was_never_sent_costs_nothing() {
        assert_eq!(charged(Outcome::NotSent, None), Amount::ZERO);
    }

    #[test]
    fn what_was_refused_before_generation_costs_nothing() {
        assert_eq!(charged(Outcome::Refused, None), Amount::ZERO);
    }

    #[test]
    fn a_5xx_costs_no_tokens_but_is_a_call() {
        assert_eq!(charged(Outcome::ServerError, None), Amount::new(0, 1));
    }

    #[test]
    fn a_timeout_after_sending_costs_the_estimate() {
        assert_eq!(charged(Outcome::Lost, None), RESERVED);
        assert_eq!(charged(Outcome::Lost, Some(900)), Amount::new(900, 1));
    }

    #[test]
    fn a_timeout_costs_what_was_seen_where_its_owner_wants_that() {
        assert_eq!(charge(Outcome::Lost, RESERVED, None, false), Amount::new(0, 1));
        assert_eq!(charge(Outcome::Lost, RESERVED, Some(&usage(40)), false), Amount::new(40, 1));
        // The setting is about timeouts alone.
        assert_eq!(charge(Outcome::CutShort, RESERVED, None, false), RESERVED);
    }

    #[test]
    fn an_answer_with_usage_costs_the_usage_thinking_included() {
        let usage = Usage { input: 100, output: 20, thinking: 900, total: 1_020, ..usage(0) };
        let charged = charge(Outcome::Answered, RESERVED, Some(&usage), true);
        assert_eq!(charged, Amount::new(1_020, 1));
    }

    #[test]
    fn a_usage_without_its_total_costs_what_its_parts_are() {
        let usage = Usage { input: 90, output: 10, ..Usage::default() };
        assert_eq!(charge(Outcome::Answered, RESERVED, Some(&usage), true), Amount::new(100, 1));
        assert_eq!(charge(Outcome::Lost, RESERVED, Some(&usage), false), Amount::new(100, 1));
    }

    #[test]
    fn an_answer_that_reports_zero_costs_zero() {
        assert_eq!(charged(Outcome::Answered, Some(0)), Amount::new(0, 1));
    }

    #[test]
    fn an_answer_without_usage_costs_the_estimate() {
        assert_eq!(charged(Outcome::Answered, None), RESERVED);
    }

    #[test]
    fn an_answer_cut_short_costs_the_estimate_or_what_was_seen_if_more() {
        assert_eq!(charged(Outcome::CutShort, None), RESERVED);
        assert_eq!(charged(Outcome::CutShort, Some(300)), RESERVED);
        assert_eq!(charged(Outcome::CutShort, Some(801)), Amount::new(801, 1));
    }

    #[test]
    fn a_usage_that_no_request_can_have_costs_the_estimate() {
        assert_eq!(charged(Outcome::Answered, Some(4_000_000)), Amount::new(4_000_000, 1));
        for absurd in [4_000_001, 1 << 53, u64::MAX] {
            assert_eq!(charged(Outcome::Answered, Some(absurd)), RESERVED);
            assert_eq!(charged(Outcome::CutShort, Some(absurd)), RESERVED);
            // Something was used, so it is not for nothing either.
            let lost = charge(Outcome::Lost, RESERVED, Some(&usage(absurd)), false);
            assert_eq!(lost, RESERVED);
            assert_eq!(charged(Outcome::ServerError, Some(absurd)), Amount::new(0, 1));
        }
        let parts = Usage { input: u64::MAX, output: 1, ..Usage::default() };
        assert_eq!(charge(Outcome::Answered, RESERVED, Some(&parts), true), RESERVED);
    }

    #[test]
    fn a_large_estimate_lets_a_larger_usage_be_believed() {
        let reserved = Amount::new(1_000_000, 1);
        let costs = |total| charge(Outcome::Answered, reserved, Some(&usage(total)), true);
        assert_eq!(costs(16_000_000), Amount::new(16_000_000, 1));
        assert_eq!(costs(16_000_001), reserved);
    }

    #[test]
    fn what_is_believed_is_bounded() {
        let reserved = Amount::new(crate::LARGEST, 1);
        let charged = charge(Outcome::Answered, reserved, Some(&usage(2 * crate::LARGEST)), true);
        assert_eq!(charged, reserved);
    }

    #[test]
    fn every_outcome_is_read_as_it_is_written() {
        for outcome in Outcome::ALL {
            assert_eq!(outcome.to_string().parse::<Outcome>().unwrap(), outcome);
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.as_str());
        }
    }
}
