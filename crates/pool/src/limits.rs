//! The limits a bucket lives under: set by the user, else learned from replies, else unknown.

use keywheel_core::{Dimension, LimitSeen};
use serde::Serialize;

/// Limits set by the user. `None` means unknown: learned from replies. Defaults to nothing set.
///
/// A limit set here is believed: it is never explored and never replaced by a learned one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Requests per rolling minute.
    pub rpm: Option<u64>,
    /// Input tokens per rolling minute.
    pub tpm: Option<u64>,
    /// Requests per quota day.
    pub rpd: Option<u64>,
    /// Tokens per quota day.
    pub tpd: Option<u64>,
}

impl Limits {
    pub(crate) const fn of(&self, dimension: Dimension) -> Option<u64> {
        match dimension {
            Dimension::Rpm => self.rpm,
            Dimension::Tpm => self.tpm,
            Dimension::Rpd => self.rpd,
            Dimension::Tpd => self.tpd,
            Dimension::Ipm => None,
        }
    }

    /// This, and what `other` says where this says nothing.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            rpm: self.rpm.or(other.rpm),
            tpm: self.tpm.or(other.tpm),
            rpd: self.rpd.or(other.rpd),
            tpd: self.tpd.or(other.tpd),
        }
    }
}

/// Whose word a limit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitSource {
    /// Set by the user.
    Set,
    /// Named by a reply.
    Learned,
}

/// What the names of buckets begin with that stand for no model: calls that draw on no model's quota, by their
/// route (`api:models`).
const ROUTE: &str = "api:";

/// Which models a user's limits are for: an exact name, `prefix*`, or `*` for any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitRule {
    pub(crate) pattern: String,
    pub(crate) limits: Limits,
}

impl LimitRule {
    fn matches(&self, model: &str) -> bool {
        match self.pattern.strip_suffix('*') {
            // What is said of models is not said of routes, which are named like no model.
            Some(prefix) => {
                model.starts_with(prefix)
                    && (prefix.starts_with(ROUTE) || !model.starts_with(ROUTE))
            }
            None => self.pattern == model,
        }
    }
}

/// What the user set for `model`: the most specific rule wins, dimension by dimension.
pub(crate) fn set_by_user(rules: &[LimitRule], model: &str) -> Limits {
    let mut matching: Vec<_> = rules.iter().filter(|rule| rule.matches(model)).collect();
    // An exact name before a pattern, a longer pattern before a shorter, a later rule before an earlier.
    matching.reverse();
    matching
        .sort_by_key(|rule| (rule.pattern.ends_with('*'), std::cmp::Reverse(rule.pattern.len())));
    matching.into_iter().fold(Limits::default(), |all, rule| all.or(rule.limits))
}

/// A limit that a reply taught, and when; `value` is `None` once an exploration found that it no longer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LearnedLimit {
    pub(crate) dimension: Dimension,
    pub(crate) value: Option<u64>,
    pub(crate) at_ms: i64,
}

/// The learned limits of one bucket: few, so a short list.
#[derive(Debug, Clone, Default)]
pub(crate) struct Learned(Box<[LearnedLimit]>);

impl Learned {
    pub(crate) fn of(&self, dimension: Dimension) -> Option<u64> {
        self.0.iter().find(|limit| limit.dimension == dimension).and_then(|limit| limit.value)
    }

    /// Takes what a reply named. A zero is no limit to live under but the absence of a quota, which is a
    /// cause of its own.
    pub(crate) fn learn(&mut self, seen: &LimitSeen, now_ms: i64) {
        if seen.value > 0 {
            self.put(LearnedLimit {
                dimension: seen.dimension,
                value: Some(seen.value),
                at_ms: now_ms,
            });
        }
    }

    /// Takes what is known since `at_ms`, unless something newer is known. True when it changed anything.
    pub(crate) fn put(&mut self, limit: LearnedLimit) -> bool {
        let Some(known) = self.0.iter_mut().find(|known| known.dimension == limit.dimension) else {
            let mut all = std::mem::take(&mut self.0).into_vec();
            all.reserve_exact(1);
            all.push(limit);
            self.0 = all.into();
            return true;
        };
        if limit.at_ms < known.at_ms || *known == limit {
            return false;
        }
        *known = limit;
        true
    }

    /// The clock went back: what was learned in its future would outweigh all that is learned now.
    pub(crate) fn rewind(&mut self, now_ms: i64) {
        for known in &mut self.0 {
            known.at_ms = known.at_ms.min(now_ms);
        }
    }

    /// What was learned about `dimension` no longer holds.
    pub(crate) fn lift(&mut self, dimension: Dimension, now_ms: i64) {
        if self.of(dimension).is_some() {
            self.put(LearnedLimit { dimension, value: None, at_ms: now_ms });
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &LearnedLimit> {
        self.0.iter()
    }
}

/// What holds in a bucket now, ready for arithmetic: [`u64::MAX`] stands for unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effective {
    pub(crate) rpm: u64,
    pub(crate) tpm: u64,
    pub(crate) rpd: u64,
    pub(crate) tpd: u64,
}

impl Effective {
    pub(crate) const UNKNOWN: u64 = u64::MAX;

    pub(crate) fn new(set: &Limits, learned: &Learned) -> Self {
        let of = |dimension| {
            set.of(dimension).or_else(|| learned.of(dimension)).unwrap_or(Self::UNKNOWN)
        };
        Self {
            rpm: of(Dimension::Rpm),
            tpm: of(Dimension::Tpm),
            rpd: of(Dimension::Rpd),
            tpd: of(Dimension::Tpd),
        }
    }

    /// Nothing is known of the day.
    pub(crate) const fn day_is_unknown(&self) -> bool {
        self.rpd == Self::UNKNOWN && self.tpd == Self::UNKNOWN
    }

    /// The rate is unknown, so only the number of calls in flight bounds a burst.
    pub(crate) const fn rate_is_unknown(&self) -> bool {
        self.rpm == Self::UNKNOWN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_rule_wins_dimension_by_dimension() {
        let rule = |pattern: &str, rpm, rpd| LimitRule {
            pattern: pattern.into(),
            limits: Limits { rpm, rpd, ..Limits::default() },
        };
        let rules = [
            rule("gemini-3.5-flash-lite", Some(15), None),
            rule("*", Some(2), Some(20)),
            rule("gemini-3.5-*", Some(10), Some(500)),
        ];
        let lite = set_by_user(&rules, "gemini-3.5-flash-lite");
        assert_eq!((lite.rpm, lite.rpd), (Some(15), Some(500)));
        assert_eq!(set_by_user(&rules, "gemini-3.5-pro").rpm, Some(10));
        assert_eq!(set_by_user(&rules, "other").rpd, Some(20));
    }

    #[test]
    fn limits_for_every_model_are_not_for_routes() {
        let rule = |pattern: &str, rpm| LimitRule {
            pattern: pattern.into(),
            limits: Limits { rpm: Some(rpm), ..Limits::default() },
        };
        let of_models = [rule("*", 2), rule("a*", 3)];
        assert_eq!(set_by_user(&of_models, "api:countTokens"), Limits::default());
        assert_eq!(set_by_user(&of_models, "apiary").rpm, Some(3));
        let of_routes = [rule("*", 2), rule("api:*", 60), rule("api:files", 9)];
        assert_eq!(set_by_user(&of_routes, "api:countTokens").rpm, Some(60));
        assert_eq!(set_by_user(&of_routes, "api:files").rpm, Some(9));
    }

    #[test]
    fn a_users_limit_stands_before_a_learned_one() {
        let mut learned = Learned::default();
        learned.learn(&LimitSeen::new(Dimension::Rpd, 500), 10);
        learned.learn(&LimitSeen::new(Dimension::Rpm, 15), 10);
        let set = Limits { rpd: Some(50), ..Limits::default() };
        let holds = Effective::new(&set, &learned);
        assert_eq!((holds.rpd, holds.rpm, holds.tpm), (50, 15, Effective::UNKNOWN));
    }

    #[test]
    fn a_zero_teaches_no_limit_and_old_news_replaces_nothing() {
        let mut learned = Learned::default();
        learned.learn(&LimitSeen::new(Dimension::Rpd, 0), 10);
        assert_eq!(learned.of(Dimension::Rpd), None);
        let limit = |value, at_ms| LearnedLimit { dimension: Dimension::Rpd, value, at_ms };
        assert!(learned.put(limit(Some(500), 20)));
        assert!(!learned.put(limit(Some(20), 10)));
        assert_eq!(learned.of(Dimension::Rpd), Some(500));
        learned.lift(Dimension::Rpd, 30);
        assert!(
            !learned.put(limit(Some(500), 20)),
            "a lifted limit does not come back from an old copy"
        );
        assert_eq!(learned.of(Dimension::Rpd), None);
    }
}
