//! How much: tokens and calls, always together.

use serde::{Deserialize, Serialize};

/// The largest number of tokens or calls that one reservation or settlement may name: 10^12.
///
/// No call uses as much. It keeps a broken figure from making a total overflow: nine million rows
/// of this size fit into one.
pub const LARGEST: u64 = 1_000_000_000_000;

/// Tokens and logical calls.
///
/// ```
/// use keywheel_ledger::{Amount, Unit};
///
/// let one = Amount::new(800, 1);
/// assert_eq!((one.of(Unit::Tokens), one.of(Unit::Calls)), (800, 1));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Amount {
    /// Tokens.
    pub tokens: u64,
    /// Logical calls: what the app asked for once, however many attempts it takes.
    pub calls: u64,
}

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self { tokens: 0, calls: 0 };

    /// `tokens` tokens and `calls` calls.
    #[must_use]
    pub const fn new(tokens: u64, calls: u64) -> Self {
        Self { tokens, calls }
    }

    /// How much of `unit` it is.
    #[must_use]
    pub const fn of(self, unit: Unit) -> u64 {
        match unit {
            Unit::Tokens => self.tokens,
            Unit::Calls => self.calls,
        }
    }

    /// The same, with nothing above [`LARGEST`].
    #[must_use]
    pub(crate) fn bounded(self) -> Self {
        Self { tokens: self.tokens.min(LARGEST), calls: self.calls.min(LARGEST) }
    }
}

/// What a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Tokens: input, output and thinking.
    Tokens,
    /// Logical calls.
    Calls,
}

impl std::fmt::Display for Unit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tokens => "tokens",
            Self::Calls => "calls",
        })
    }
}
