//! The day of a bucket: what is counted in it, and when it turns.

use super::Bucket;
use crate::{
    reset::DaySpan,
    state::boundary::Boundary,
    window::{Amount, fits},
};

/// A clock that goes back this little over a reset does not bring the old day back: its counts are gone, and
/// those of the new day are true.
pub(super) const BACK_MS: i64 = 3_600_000;

/// A counted day.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Day {
    pub(crate) span: DaySpan,
    /// The span is the bucket's own, from a stated wait.
    pub(crate) own_span: bool,
    pub(crate) own: Amount,
    pub(crate) others: Amount,
    pub(crate) explored: Explored,
}

impl Day {
    pub(crate) const fn used(&self) -> Amount {
        self.own.plus(self.others)
    }
}

/// Whether the day's one request beyond what is believed was spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Explored {
    /// Not yet.
    No,
    /// This pool wants it and waits for the state file's word.
    Claimed,
    /// By this pool, or not needed any more: a refusal answered the question.
    Ours,
    /// By another process.
    Others,
}

impl Bucket {
    /// Lets the window and the day move on to `now_ms`. `span` is the pool's day now.
    #[inline]
    pub(crate) fn advance(&mut self, now_ms: i64, span: &DaySpan) {
        self.window.expire(now_ms);
        let DaySpan { from_ms, end_ms, .. } = self.day.span;
        if now_ms >= end_ms || now_ms < from_ms.saturating_sub(BACK_MS) {
            self.turn_day(now_ms, *span);
        }
    }

    #[inline]
    pub(crate) fn day_is_full(&self, need: Amount) -> bool {
        if self.limits.day_is_unknown() {
            return false;
        }
        let used = self.day.used().plus(self.held);
        !fits(used.requests, need.requests, self.limits.rpd)
            || !fits(used.tokens, need.tokens.max(1), self.limits.tpd)
    }

    /// The bucket's day turns at a moment of its own from now on, or with the pool's day again. Counts stay:
    /// they are of the day that ends then.
    pub(crate) fn set_boundary(&mut self, boundary: Boundary, pools_day: &DaySpan) {
        self.day.own_span = !boundary.is_given_up();
        self.day.span = if boundary.is_given_up() {
            *pools_day
        } else {
            DaySpan::ending_at(boundary.turns_at_ms, boundary.stated_ms)
        };
        self.change_rare(|rare| rare.boundary = Some(boundary));
    }

    /// The day boundary of its own that a reply stated, if one did.
    pub(crate) fn boundary(&self) -> Option<Boundary> {
        self.rare.as_ref().and_then(|rare| rare.boundary)
    }

    pub(super) fn has_boundary(&self) -> bool {
        self.boundary().is_some_and(|boundary| !boundary.is_given_up())
    }

    fn turn_day(&mut self, now_ms: i64, span: DaySpan) {
        let own_span = self.has_boundary();
        let span = match self.boundary() {
            Some(boundary) if own_span => boundary.day(now_ms),
            _ => span,
        };
        if span.from_ms == self.day.span.from_ms && span.date == self.day.span.date {
            self.day.span = span;
            return;
        }
        let same = |day: &Day| day.span.end_ms == span.end_ms && day.span.date == span.date;
        let returns = self.day_before.take().filter(|day| same(day));
        let (own, others) = (Amount::default(), Amount::default());
        let fresh = Day { span, own_span, own, others, explored: Explored::No };
        let ended = std::mem::replace(&mut self.day, returns.map_or(fresh, |day| *day));
        // What a clock that was ahead counted for tomorrow is not tomorrow's.
        let is_over = ended.span.end_ms <= self.day.span.end_ms;
        if is_over && (ended.used() != Amount::default() || ended.explored != Explored::No) {
            self.day_before = Some(Box::new(ended));
        }
    }
}
