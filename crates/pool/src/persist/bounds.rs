//! How long a cooldown that comes from a file may last.

use std::collections::BTreeMap;

use keywheel_core::Cause;

use crate::cooldown::waits_for_nothing;

use super::{
    format::CooldownEntry,
    time::At,
    words::{Vocabulary, Word},
};

/// How far two clocks may differ before a moment in the future is taken for a mistake.
pub(crate) const SKEW_MS: i64 = 5 * MINUTE_MS;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;

/// The longest legal wait of each cause.
///
/// A clock that once stood in the wrong year, or a person with an editor, can put any moment into
/// the file. No cooldown read from it lasts longer than its cause ever does.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waits {
    /// Raised above the defaults, for reset strategies of the user's own.
    raised: BTreeMap<&'static str, i64>,
}

impl Waits {
    /// Lets cooldowns for `cause` last up to `longest_ms`, if that is more than by default.
    pub(crate) fn raise(&mut self, cause: Cause, longest_ms: i64) {
        let longest = self.longest_ms(cause).max(longest_ms);
        self.raised.insert(cause.word(), longest);
    }

    /// The longest legal wait of `cause`, in milliseconds.
    #[must_use]
    pub(crate) fn longest_ms(&self, cause: Cause) -> i64 {
        self.raised.get(cause.word()).copied().unwrap_or_else(|| longest_legal_ms(cause))
    }

    /// Cuts `entry` to what may be believed at `now_ms`: never longer than its cause's longest legal
    /// wait.
    ///
    /// An entry made under a clock that was ahead is first moved back by as much, so that ten seconds
    /// stay ten seconds. No end at all is believed of causes for which waiting does not help.
    pub(crate) fn bound(&self, cause: &Word<Cause>, entry: &mut CooldownEntry, now_ms: i64) {
        let ahead = entry.since.ms().saturating_sub(now_ms);
        let shift = if ahead > SKEW_MS { ahead } else { 0 };
        if shift > 0 {
            entry.since = At(now_ms);
        }
        let longest = cause.known().map_or(UNKNOWN_MS, |cause| self.longest_ms(cause));
        let latest = now_ms.saturating_add(longest);
        let available = match entry.available_at {
            Some(At(available)) => available.saturating_sub(shift),
            // Of a later version's causes it is not known whether they end, nor are they acted on.
            None if cause.known().is_none_or(waits_for_nothing) => return,
            None => entry.since.ms().saturating_add(longest),
        };
        entry.available_at = Some(At(available.min(latest)));
    }
}

/// For causes of a later version.
const UNKNOWN_MS: i64 = 25 * HOUR_MS + MINUTE_MS;

/// The waits of docs/cooldowns.md at their longest, with a minute for jitter and rounding.
const fn longest_legal_ms(cause: Cause) -> i64 {
    let longest = match cause {
        // A stated delay over 10 minutes is no minute any more.
        Cause::PerMinuteRequests | Cause::PerMinuteTokens => 10 * MINUTE_MS,
        Cause::ToolQuota => HOUR_MS,
        Cause::IpBlock => 30 * MINUTE_MS,
        // The longest quota day has 25 hours, and stated waits are cut there too.
        _ => 25 * HOUR_MS,
    };
    longest + MINUTE_MS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::words::WaitSource, *};

    const NOW: i64 = 1_800_000_000_000;

    fn bounded(
        waits: &Waits,
        cause: Cause,
        mut entry: CooldownEntry,
        now_ms: i64,
    ) -> CooldownEntry {
        waits.bound(&cause.into(), &mut entry, now_ms);
        entry
    }

    fn cooldown(since: i64, available_at: i64) -> CooldownEntry {
        CooldownEntry {
            available_at: Some(At(available_at)),
            source: WaitSource::Derived.into(),
            since: At(since),
            ..CooldownEntry::default()
        }
    }

    #[test]
    fn a_cooldown_written_in_the_wrong_year_keeps_its_length() {
        let year = 365 * 24 * HOUR_MS;
        let wrong = cooldown(NOW + year, NOW + year + 40_000);
        let right = bounded(&Waits::default(), Cause::PerMinuteRequests, wrong, NOW);
        assert_eq!(right, cooldown(NOW, NOW + 40_000));
    }

    #[test]
    fn a_cooldown_until_the_year_2999_ends_with_the_longest_day() {
        let absurd = cooldown(NOW, 32_500_000_000_000);
        let bounded = bounded(&Waits::default(), Cause::PerDayRequests, absurd, NOW);
        assert_eq!(bounded.available_at, Some(At(NOW + 25 * HOUR_MS + MINUTE_MS)));
    }

    #[test]
    fn only_what_waits_for_nothing_may_last_for_ever() {
        let since = NOW - 3 * MINUTE_MS;
        for cause in Cause::ALL {
            let entry = CooldownEntry { available_at: None, ..cooldown(since, 0) };
            let bounded = bounded(&Waits::default(), cause, entry, NOW);
            let longest = At(since + Waits::default().longest_ms(cause));
            let wanted = (!waits_for_nothing(cause)).then_some(longest);
            assert_eq!(bounded.available_at, wanted, "{cause}");
        }
    }

    #[test]
    fn a_strategy_of_the_users_own_may_wait_longer() {
        let week = 7 * 24 * HOUR_MS;
        let mut waits = Waits::default();
        waits.raise(Cause::PerDayRequests, week);
        let entry = cooldown(NOW, NOW + week);
        assert_eq!(bounded(&waits, Cause::PerDayRequests, entry.clone(), NOW), entry);
    }

    proptest! {
        #[test]
        fn no_number_in_a_file_leaves_a_key_out_longer_than_is_legal(
            since: i64,
            available_at: i64,
            now: i64,
            cause in proptest::sample::select(&Cause::ALL[..]),
        ) {
            let waits = Waits::default();
            let bounded = bounded(&waits, cause, cooldown(since, available_at), now);
            let At(until) = bounded.available_at.unwrap();
            prop_assert!(until <= now.saturating_add(waits.longest_ms(cause)));
            // What is legal stays as it is.
            if since <= now && available_at <= now.saturating_add(waits.longest_ms(cause)) {
                prop_assert_eq!(bounded, cooldown(since, available_at));
            }
        }
    }
}
