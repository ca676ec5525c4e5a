//! From a refusal to a moment: until when a bucket is out, and how that is known.
//!
//! Pure: [`decide`] is a function of the effect, the facts and what the bucket remembers of its troubles.
//! `docs/cooldowns.md` has the table with its evidence.

use std::time::Duration;

use chrono::Datelike as _;
use keywheel_core::{Cause, Effect, QuotaDay, Wait, Window};

use crate::{
    Source,
    reset::{DaySpan, LimitKind, Strategies},
};

/// The end of a cooldown that has none: waiting is no answer (a model without a free tier).
pub(crate) const FOREVER: i64 = i64::MAX;

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// The ladder of guesses; after its last step comes the end of the quota day.
const LADDER: [i64; 4] = [MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR];

/// Around a reset a "day" refusal is doubted this long, and waits these.
const AROUND_RESET_MS: i64 = 15 * MINUTE;
const AROUND_RESET: [i64; 3] = [MINUTE, 5 * MINUTE, 30 * MINUTE];

/// A stated wait of a day's quota beyond this is where that bucket's day turns.
const BOUNDARY_FROM_MS: i64 = 10 * MINUTE;

/// How soon after a minute's wait another refusal counts as "right after".
const RIGHT_AFTER_MS: i64 = 2 * MINUTE;

/// One reason why a bucket, or a whole quota project, is out, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cooldown {
    pub(crate) cause: Cause,
    /// [`FOREVER`]: no moment is known.
    pub(crate) until_ms: i64,
    pub(crate) source: Source,
    pub(crate) since_ms: i64,
    /// The step of the ladder, from 1; 0 when it is no guess.
    pub(crate) step: u8,
    /// Not yet handed to the state file.
    pub(crate) unsaved: bool,
}

impl Cooldown {
    pub(crate) const fn is_active(&self, now_ms: i64) -> bool {
        now_ms < self.until_ms
    }

    /// True for reasons that only concern requests with tools.
    pub(crate) const fn only_tools(&self) -> bool {
        matches!(self.cause, Cause::ToolQuota)
    }
}

/// Puts `new` in place of any other for the same cause, unless that one holds for longer: within a generation a
/// cooldown is never shortened, neither here nor in the state file.
pub(crate) fn put(cooldowns: &mut Vec<Cooldown>, new: Cooldown) {
    let Some(known) = cooldowns.iter_mut().find(|known| known.cause == new.cause) else {
        cooldowns.reserve_exact(1);
        cooldowns.push(new);
        return;
    };
    if known.until_ms <= new.until_ms || !known.is_active(new.since_ms) {
        *known = new;
    }
}

/// The longest a cooldown for `cause` may last from now, whatever a server or a file says.
pub(crate) const fn longest_ms(cause: Cause) -> i64 {
    match cause {
        Cause::PerMinuteRequests | Cause::PerMinuteTokens => 10 * MINUTE,
        Cause::IpBlock => 30 * MINUTE,
        Cause::Billing => 31 * 24 * HOUR,
        _ => 25 * HOUR,
    }
}

/// What a bucket remembers of its refusals, beyond its cooldowns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// The step of the ladder last taken, from 1; 0: at its foot.
    pub(crate) step: u8,
    /// When the last guessed cooldown ends or ended.
    pub(crate) guess_until_ms: i64,
    /// When the last refusal came.
    pub(crate) failed_ms: i64,
    /// When the last cooldown for a minute that no quota id named ends or ended.
    unnamed_until_ms: i64,
    /// How many waits around the reset at `near_from_ms` were taken, and until when the last lasts.
    near: u8,
    near_from_ms: i64,
    near_until_ms: i64,
}

impl Trouble {
    /// A request sent at `sent_ms` was served: whatever was guessed before it is disproved.
    pub(crate) fn served(&mut self, sent_ms: i64) {
        if sent_ms > self.failed_ms {
            *self = Self { failed_ms: self.failed_ms, ..Self::default() };
        }
    }

    /// The clock went back: a refusal of the future would hide the next success, and the end of a guess in the
    /// future the next step.
    pub(crate) fn rewind(&mut self, now_ms: i64) {
        *self = Self { step: self.step, failed_ms: now_ms, ..Self::default() };
    }
}

/// What is known when a refusal comes in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) now_ms: i64,
    /// When the refused request was sent.
    pub(crate) sent_ms: i64,
    /// The reply named a quota by id.
    pub(crate) named_quota: bool,
    /// The bucket's day.
    pub(crate) day: DaySpan,
    /// Our counts reach the day's limit, as believed or as this reply states it: a spent day is no surprise.
    pub(crate) day_is_spent: bool,
    /// 1–5 s, so that replicas do not wake together.
    pub(crate) jitter_ms: i64,
    pub(crate) strategies: &'a Strategies,
}

/// A cooldown to be set, and what the reply says about where the bucket's day turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) cooldown: Cooldown,
    pub(crate) turns: Turns,
}

/// What a refusal says about where a bucket's day turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turns {
    /// Nothing new.
    AsKnown,
    /// At a moment of its own.
    At(i64),
    /// Where everybody's does: a boundary of its own, if it has one, is wrong.
    WithThePool,
}

/// What `effect` means for a bucket whose cooldown for the same cause, if any, is `current`.
///
/// `None`: nothing new. The request was sent before that cooldown began, so it is one of several that were
/// in flight, and tells what is known.
pub(crate) fn decide(
    effect: &Effect,
    current: Option<&Cooldown>,
    trouble: &mut Trouble,
    facts: &Facts<'_>,
) -> Option<Decision> {
    let Facts { now_ms, sent_ms, .. } = *facts;
    if current.is_some_and(|current| sent_ms <= current.since_ms && now_ms >= current.since_ms) {
        return None;
    }
    let mut cause = effect.cause;
    let mut step = 0;
    let mut turns = Turns::AsKnown;
    // A boundary of the bucket's own may be wrong: a day that is spent ends with the pool's at the latest.
    let pools_end_ms = facts.strategies.day(now_ms).end_ms;
    let day_end_ms = facts.day.end_ms.min(pools_end_ms).max(now_ms.saturating_add(SECOND));

    let (mut until_ms, source) = match effect.wait {
        Wait::Stated(wait) => {
            let wait_ms = millis(wait).clamp(SECOND, longest_ms(cause));
            let stated_ms = now_ms.saturating_add(wait_ms);
            if cause == Cause::UnspecifiedQuota {
                // A stated wait that proves wrong again and again is a guess like any other.
                let climbed = climb(trouble, facts, day_end_ms);
                step = climbed.0;
                let again = step > 1 && climbed.1 > stated_ms;
                if again { (climbed.1, Source::Guessed) } else { (stated_ms, Source::Stated) }
            } else if minute_met_again(cause, trouble, facts) {
                cause = Cause::PerDayRequests;
                (day_end_ms.saturating_add(facts.jitter_ms), Source::Guessed)
            } else if cause.is_per_day() && wait_ms > BOUNDARY_FROM_MS {
                // A wait without a quota's name may be anybody's, such as a gateway's.
                if facts.named_quota {
                    turns = turned_by(stated_ms, pools_end_ms, &facts.day);
                }
                (stated_ms.saturating_add(facts.jitter_ms), Source::Stated)
            } else {
                (stated_ms, Source::Stated)
            }
        }
        Wait::Reset(Window::Day) if doubted(cause, facts) => {
            turns = Turns::WithThePool;
            (around_reset(trouble, facts) + facts.jitter_ms, Source::Guessed)
        }
        Wait::Reset(Window::Day) => {
            let tokens = cause == Cause::PerDayTokens && facts.strategies.token_days_differ();
            let end_ms =
                if tokens { by_strategy(LimitKind::TokensPerDay, facts) } else { day_end_ms };
            (end_ms.saturating_add(facts.jitter_ms), Source::Derived)
        }
        Wait::Reset(Window::Minute) if minute_met_again(cause, trouble, facts) => {
            cause = Cause::PerDayRequests;
            (day_end_ms.saturating_add(facts.jitter_ms), Source::Guessed)
        }
        Wait::Reset(Window::Minute) => {
            let kind = match LimitKind::of(cause) {
                LimitKind::TokensPerMinute => LimitKind::TokensPerMinute,
                _ => LimitKind::RequestsPerMinute,
            };
            (by_strategy(kind, facts), Source::Derived)
        }
        Wait::Reset(Window::Hour) => {
            let kind = match cause {
                Cause::ToolQuota => LimitKind::Tool,
                _ => LimitKind::Billing,
            };
            let mut at_ms = by_strategy(kind, facts);
            if kind == LimitKind::Billing {
                at_ms = at_ms.min(next_month_ms(now_ms));
            }
            (at_ms.saturating_add(facts.jitter_ms), Source::Derived)
        }
        Wait::Ladder => match facts.strategies.wait_ms(LimitKind::of(cause), now_ms) {
            Some(wait) => (now_ms.saturating_add(wait), Source::Derived),
            None => {
                let climbed = climb(trouble, facts, day_end_ms);
                step = climbed.0;
                (climbed.1, Source::Guessed)
            }
        },
        Wait::None if waits_for_nothing(cause) => (FOREVER, Source::Derived),
        Wait::None => return None,
    };
    let users_own =
        source == Source::Derived && facts.strategies.is_users_own(LimitKind::of(cause));
    if until_ms != FOREVER && !users_own {
        until_ms = until_ms.min(now_ms.saturating_add(longest_ms(cause)));
    }
    if effect.cause.is_per_minute() && cause.is_per_minute() && !facts.named_quota {
        trouble.unnamed_until_ms = until_ms;
    }
    trouble.failed_ms = trouble.failed_ms.max(now_ms);
    let cooldown = Cooldown { cause, until_ms, source, since_ms: now_ms, step, unsaved: true };
    Some(Decision { cooldown, turns })
}

/// The clock went back behind the beginning of `cooldown`: it then lasts no longer than it was meant to, and
/// no longer than the day it stands for.
pub(crate) fn rewound(cooldown: &Cooldown, now_ms: i64, strategies: &Strategies) -> Cooldown {
    if cooldown.since_ms <= now_ms || cooldown.until_ms == FOREVER {
        return Cooldown { since_ms: cooldown.since_ms.min(now_ms), ..*cooldown };
    }
    let meant_ms = cooldown.until_ms.saturating_sub(cooldown.since_ms);
    let end_ms = match (cooldown.source, LimitKind::of(cooldown.cause)) {
        (Source::Derived, kind @ (LimitKind::RequestsPerDay | LimitKind::TokensPerDay)) => {
            let wait = strategies.wait_ms(kind, now_ms).unwrap_or(meant_ms);
            now_ms.saturating_add(wait).saturating_add(5 * SECOND)
        }
        _ => now_ms.saturating_add(meant_ms),
    };
    Cooldown { until_ms: cooldown.until_ms.min(end_ms), since_ms: now_ms, ..*cooldown }
}

fn millis(wait: Duration) -> i64 {
    i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)
}

/// What a stated wait of a day's quota, one that named its quota, says about the bucket's `day`.
fn turned_by(stated_ms: i64, pools_end_ms: i64, day: &DaySpan) -> Turns {
    let is_about = |end_ms: i64| (stated_ms - end_ms).abs() <= AROUND_RESET_MS;
    if is_about(pools_end_ms) {
        // It is the known reset, and follows its zone's rules.
        Turns::WithThePool
    } else if is_about(day.end_ms) {
        Turns::AsKnown
    } else {
        Turns::At(stated_ms)
    }
}

/// The first of the next month in California, when Google's monthly caps begin anew.
fn next_month_ms(now_ms: i64) -> i64 {
    let mut day = QuotaDay::containing(keywheel_core::clock::from_unix_ms(now_ms));
    for _ in 0..31 {
        day = day.next();
        if day.date().day() == 1 {
            break;
        }
    }
    // Only at the end of the calendar is it not in the future.
    day.starts_at().timestamp_millis().max(now_ms.saturating_add(SECOND))
}

fn by_strategy(kind: LimitKind, facts: &Facts<'_>) -> i64 {
    let wait = facts.strategies.wait_ms(kind, facts.now_ms).unwrap_or(MINUTE);
    facts.now_ms.saturating_add(wait)
}

/// Waiting never helps; the bucket's exploratory request looks again, once a day.
pub(crate) const fn waits_for_nothing(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::FreeTierNotAvailable
            | Cause::ModelNotFound
            | Cause::PermissionOrServiceDisabled
            | Cause::LocationUnsupported
    )
}

/// A step up only for a request that was sent after the last guess had ended: fifty in flight are one step.
fn climb(trouble: &mut Trouble, facts: &Facts<'_>, day_end_ms: i64) -> (u8, i64) {
    let top = u8::try_from(LADDER.len() + 1).unwrap_or(u8::MAX);
    if trouble.step == 0 || facts.sent_ms >= trouble.guess_until_ms {
        trouble.step = (trouble.step + 1).min(top);
    }
    let until_ms = match LADDER.get(usize::from(trouble.step) - 1) {
        Some(wait) => facts.now_ms.saturating_add(*wait),
        None => i64::MAX,
    };
    // Whatever quota it is, the new day brings it back.
    let until_ms = until_ms.min(day_end_ms.saturating_add(facts.jitter_ms));
    trouble.guess_until_ms = until_ms;
    (trouble.step, until_ms)
}

/// A minute's refusal met again right after its delay, by no quota id: such bodies come for spent days, too.
fn minute_met_again(cause: Cause, trouble: &Trouble, facts: &Facts<'_>) -> bool {
    let ended_ms = trouble.unnamed_until_ms;
    cause.is_per_minute()
        && !facts.named_quota
        && ended_ms > 0
        && (ended_ms..ended_ms.saturating_add(RIGHT_AFTER_MS)).contains(&facts.sent_ms)
}

/// A refused day right after the reset: the provider's clock, or its reset, may be late.
fn doubted(cause: Cause, facts: &Facts<'_>) -> bool {
    let since_reset = facts.now_ms.saturating_sub(facts.day.from_ms);
    cause.is_per_day() && !facts.day_is_spent && (0..AROUND_RESET_MS).contains(&since_reset)
}

fn around_reset(trouble: &mut Trouble, facts: &Facts<'_>) -> i64 {
    if trouble.near_from_ms != facts.day.from_ms {
        trouble.near = 0;
        trouble.near_from_ms = facts.day.from_ms;
    }
    if trouble.near == 0 || facts.sent_ms >= trouble.near_until_ms {
        trouble.near += 1;
    }
    let step = usize::from(trouble.near).clamp(1, AROUND_RESET.len()) - 1;
    trouble.near_until_ms = facts.now_ms.saturating_add(AROUND_RESET[step]);
    trouble.near_until_ms
}

#[cfg(test)]
mod tests;
