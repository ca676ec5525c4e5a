//! One quota project for one model: what was used, what is believed, what holds it back.
//!
//! No locks, no clock: every method is told what time it is.

use std::sync::Arc;

use keywheel_core::{Cause, Dimension, Effect, Fingerprint, LimitSeen, Scope, Wait};

use super::{
    boundary::{Boundary, LONGEST_DAY_MS, NO_BOUNDARY},
    keys::{Key, Project},
};
use crate::{
    Refusal, Source,
    cooldown::{self, Cooldown, FOREVER, Facts, Trouble, Turns},
    limits::{Effective, Learned, Limits},
    reset::{DaySpan, Strategies},
    window::{Amount, NOW, Window, fits},
};

/// While the rate limit is unknown: how many calls may be in flight at first.
pub(crate) const FIRST_CAP: u32 = 2;

/// A clock that goes back this little over a reset does not bring the old day back: its counts are gone, and
/// those of the new day are true.
const BACK_MS: i64 = 3_600_000;

/// What an ask needs of a bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need<'a> {
    pub(crate) amount: Amount,
    pub(crate) tools: bool,
    pub(crate) paid: bool,
    pub(crate) exclude: &'a [Fingerprint],
    pub(crate) affinity: Option<&'a Arc<str>>,
}

impl Need<'_> {
    /// The least that anybody asks.
    pub(crate) const LEAST: Self =
        Need { amount: Amount::new(1, 0), tools: false, paid: false, exclude: &[], affinity: None };
}

/// Where a bucket stands in its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the ring of those that can serve, as far as is known.
    Ready,
    /// Cannot serve before this moment; `i64::MAX`: before something happens.
    Asleep(i64),
    /// Out of the game: no key, or none alive, or not the one that fail-over uses.
    Out,
}

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

/// One quota project for one model.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub(crate) project: Arc<Project>,
    /// Shared with the buckets of other models.
    pub(crate) keys: Arc<[Arc<Key>]>,
    next_key: u32,
    /// How many of the keys are in use, and until when the quota project is out: as of the last
    /// [`look_at_keys`](Self::look_at_keys), so that a call has no pointers to follow.
    alive: u32,
    pub(crate) project_until_ms: i64,
    /// Which lane it stands in: 0 for free, 1 for paid. Changes only when the roster is taken over.
    pub(crate) lane: usize,
    pub(crate) place: Place,
    pub(crate) in_ring: bool,
    pub(crate) dirty: bool,
    /// When it was cleared, if since the state file was last told.
    pub(crate) cleared_ms: Option<i64>,
    /// As the state file knows it: raised by every clear, whoever cleared.
    pub(crate) generation: u64,
    /// How often it was cleared since this pool began: what was leased before the last clear is old news.
    pub(crate) clears: u32,
    /// A clear was told to the state file, which may count its generation otherwise.
    pub(crate) clear_told: bool,
    pub(crate) in_flight: u32,
    pub(crate) cap: u32,
    /// Leased and not yet sent.
    pub(crate) held: Amount,
    pub(crate) window: Window,
    pub(crate) day: Day,
    /// The one before, if it was used: a clock that went ahead comes back to it.
    day_before: Option<Box<Day>>,
    pub(crate) limits: Effective,
    pub(crate) learned: Learned,
    /// At most one per cause; those that ended stay, to know later what was refused before they began.
    pub(crate) cooldowns: Vec<Cooldown>,
    /// The latest end among the cooldowns that concern every request.
    hold_until_ms: i64,
    trouble: Option<Box<Trouble>>,
    pub(crate) boundary: Option<Box<Boundary>>,
    /// Added to the end of a day that is full by count, so that not everybody wakes at midnight sharp.
    jitter_ms: u16,
}

impl Bucket {
    pub(crate) fn new(project: Arc<Project>, set: &Limits, span: DaySpan, jitter_ms: u16) -> Self {
        let learned = Learned::default();
        let limits = Effective::new(set, &learned);
        let (own, others) = (Amount::default(), Amount::default());
        Self {
            project,
            keys: Arc::default(),
            next_key: 0,
            alive: 0,
            project_until_ms: NOW,
            lane: 0,
            place: Place::Out,
            in_ring: false,
            dirty: false,
            cleared_ms: None,
            generation: 0,
            clears: 0,
            clear_told: false,
            in_flight: 0,
            cap: FIRST_CAP,
            held: Amount::default(),
            window: Window::default(),
            day: Day { span, own_span: false, own, others, explored: Explored::No },
            day_before: None,
            limits,
            learned,
            cooldowns: Vec::new(),
            hold_until_ms: NOW,
            trouble: None,
            boundary: None,
            jitter_ms,
        }
    }

    /// Takes over which keys are in use, and whether the quota project is.
    pub(crate) fn look_at_keys(&mut self, now_ms: i64) {
        let alive = self.keys.iter().filter(|key| !key.is_quarantined()).count();
        self.alive = u32::try_from(alive).unwrap_or(u32::MAX);
        self.project_until_ms = self.project.until_ms(now_ms);
    }

    pub(crate) const fn is_alive(&self) -> bool {
        self.alive > 0
    }

    /// Lets the window and the day move on to `now_ms`. `span` is the pool's day now.
    #[inline]
    pub(crate) fn advance(&mut self, now_ms: i64, span: &DaySpan) {
        self.window.expire(now_ms);
        let DaySpan { from_ms, end_ms, .. } = self.day.span;
        if now_ms >= end_ms || now_ms < from_ms.saturating_sub(BACK_MS) {
            self.turn_day(now_ms, *span);
        }
    }

    /// When `need` can be served, as far as the bucket is concerned: [`NOW`], a moment after `now_ms`, or
    /// `i64::MAX` when no moment is known. Call [`advance`](Self::advance) first.
    #[inline]
    pub(crate) fn free_at(&self, need: &Need<'_>, now_ms: i64) -> i64 {
        let mut at = self.hold_until_ms.max(self.project_until_ms);
        if need.tools {
            at = at.max(self.tools_until_ms());
        }
        if self.day_is_full(need.amount) {
            at = at.max(self.day.span.end_ms.saturating_add(i64::from(self.jitter_ms)));
        }
        if at == i64::MAX {
            return at;
        }
        let minute = self.window.free_at(need.amount, self.held, self.limits.rpm, self.limits.tpm);
        let at = at.max(minute);
        if at > now_ms {
            return at;
        }
        // Only calls in flight stand in the way, and nobody knows when they end.
        let at_the_cap = self.limits.rate_is_unknown() && self.in_flight >= self.cap;
        if at_the_cap { i64::MAX } else { NOW }
    }

    /// The next live key that is not excluded, one after the other.
    #[inline]
    pub(crate) fn next_key(&mut self, exclude: &[Fingerprint]) -> Option<Arc<Key>> {
        if let [key] = &*self.keys
            && exclude.is_empty()
        {
            return (self.alive > 0).then(|| Arc::clone(key));
        }
        let count = self.keys.len();
        let first = self.next_key as usize;
        let place = (first..count).chain(0..first.min(count)).find(|place| {
            let key = &self.keys[*place];
            !key.is_quarantined() && is_welcome(key, exclude)
        })?;
        self.next_key = u32::try_from(place + 1).unwrap_or(0);
        Some(Arc::clone(&self.keys[place]))
    }

    /// True when a key would be found: [`next_key`](Self::next_key) without taking a turn.
    #[inline]
    pub(crate) fn has_key(&self, exclude: &[Fingerprint]) -> bool {
        if exclude.is_empty() {
            return self.alive > 0;
        }
        self.keys.iter().any(|key| !key.is_quarantined() && is_welcome(key, exclude))
    }

    /// How much of the day is left, in thousandths; what is unknown counts as untouched.
    pub(crate) fn remaining(&self) -> u64 {
        let used = self.day.used().plus(self.held);
        let left = |used: u64, limit: u64| match limit {
            Effective::UNKNOWN | 0 => 1_000,
            _ => limit.saturating_sub(used).saturating_mul(1_000) / limit,
        };
        left(used.requests, self.limits.rpd).min(left(used.tokens, self.limits.tpd))
    }

    /// Takes its share for a call that is about to be sent.
    pub(crate) fn hold(&mut self, amount: Amount) {
        self.in_flight += 1;
        self.held.add(amount);
    }

    /// A held call is not sent after all.
    pub(crate) fn unhold(&mut self, amount: Amount) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.held.take(amount);
    }

    /// A held call leaves now.
    pub(crate) fn sent(&mut self, amount: Amount, now_ms: i64) -> Sent {
        self.held.take(amount);
        self.day.own.add(amount);
        let number = self.window.push(amount, now_ms);
        Sent { number, day_from_ms: self.day.span.from_ms }
    }

    /// A call came to its end; what was counted for it becomes `actual`.
    pub(crate) fn settle(&mut self, sent: Sent, counted: Amount, actual: Amount) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if counted == actual {
            return;
        }
        self.window.correct(sent.number, counted, actual);
        if sent.day_from_ms == self.day.span.from_ms {
            self.day.own.add(actual);
            self.day.own.take(counted);
        }
    }

    /// A call that was sent at `sent_ms` was served.
    pub(crate) fn served(&mut self, sent_ms: i64) {
        if self.limits.rate_is_unknown() {
            self.cap = self.cap.saturating_add(1);
        }
        if let Some(trouble) = &mut self.trouble {
            trouble.served(sent_ms);
        }
    }

    /// The day's exploratory request was served: what stood against it is not true any more.
    pub(crate) fn disprove(&mut self, set: &Limits, now_ms: i64) {
        for dimension in Dimension::ALL {
            let full = match dimension {
                Dimension::Rpd => self.day.used().requests > self.limits.rpd,
                Dimension::Tpd => self.day.used().tokens > self.limits.tpd,
                Dimension::Rpm => self.window.used().requests > self.limits.rpm,
                Dimension::Tpm => self.window.used().tokens > self.limits.tpm,
                Dimension::Ipm => false,
            };
            if full
                || self
                    .cooldowns
                    .iter()
                    .any(|known| known.is_active(now_ms) && stands_for(known.cause, dimension))
            {
                self.learned.lift(dimension, now_ms);
            }
        }
        self.clear(set, now_ms);
    }

    /// Forgets what holds it back. Raises the generation: what is in flight cannot bring it back.
    pub(crate) fn clear(&mut self, set: &Limits, now_ms: i64) {
        self.generation = self.generation.saturating_add(1);
        self.clears = self.clears.wrapping_add(1);
        self.cleared_ms = Some(now_ms);
        self.cooldowns.clear();
        self.trouble = None;
        // A day that is full by a learned limit would stay out in spite of the clear.
        if self.day.used().requests >= self.limits.rpd {
            self.learned.lift(Dimension::Rpd, now_ms);
        }
        if self.day.used().tokens >= self.limits.tpd {
            self.learned.lift(Dimension::Tpd, now_ms);
        }
        self.refresh(set);
    }

    /// Takes one cooldown back. What else holds it back stays, and is told to the state file anew.
    pub(crate) fn withdraw(&mut self, cause: Cause, set: &Limits, now_ms: i64) -> bool {
        let Some(place) = self.cooldowns.iter().position(|known| known.cause == cause) else {
            return false;
        };
        self.cooldowns.remove(place);
        self.cooldowns.iter_mut().for_each(|known| known.unsaved = true);
        self.generation = self.generation.saturating_add(1);
        self.cleared_ms = Some(now_ms);
        self.trouble = None;
        self.refresh(set);
        true
    }

    /// True when a clear would change something.
    pub(crate) fn can_be_cleared(&self, now_ms: i64) -> bool {
        self.cooldowns.iter().any(|known| known.is_active(now_ms))
            || self.day_is_full(Amount::new(1, 0))
    }

    /// It could not serve when last looked at.
    pub(crate) fn has_stopped(&self) -> bool {
        self.place != Place::Ready
    }

    /// Learns what a reply named.
    pub(crate) fn learn(&mut self, seen: &[LimitSeen], set: &Limits, now_ms: i64) {
        for limit in seen {
            self.learned.learn(limit, now_ms);
        }
        if !seen.is_empty() {
            self.refresh(set);
        }
    }

    /// Takes the effects of a refusal that concern this bucket. `sent_ms` is when the request was sent; `now`
    /// is the moment, the strategies and the user's limits.
    pub(crate) fn refuse(
        &mut self,
        refusal: &Refusal,
        sent_ms: i64,
        jitter_ms: i64,
        now: (i64, &Strategies, &Limits),
    ) {
        let of_scope = |scope| refusal.effects.iter().any(|effect| effect.scope == scope);
        // A tool's limit says nothing about the model's.
        let only_tools = of_scope(Scope::Tool) && !of_scope(Scope::Bucket);
        let limits = if only_tools { &[] } else { refusal.limits.as_slice() };
        let (now_ms, strategies, set) = now;
        self.learn(limits, set, now_ms);
        let spent = |dimension, used| {
            limits
                .iter()
                .any(|seen| seen.dimension == dimension && seen.value > 0 && used >= seen.value)
        };
        let used = self.day.used();
        let facts = Facts {
            now_ms,
            sent_ms,
            named_quota: refusal.named_quota,
            day: self.day.span,
            day_is_spent: used.requests >= self.limits.rpd
                || used.tokens >= self.limits.tpd
                || spent(Dimension::Rpd, used.requests)
                || spent(Dimension::Tpd, used.tokens),
            jitter_ms,
            strategies,
        };
        let pools_day = strategies.day(now_ms);
        let mut trouble = self.trouble.take().unwrap_or_default();
        for effect in refusal.effects.iter().filter(|effect| concerns_bucket(effect)) {
            let current = self.cooldowns.iter().find(|known| known.cause == effect.cause);
            // A guess says nothing that a cooldown of any cause does not say already.
            let guess = matches!(effect.wait, Wait::Ladder);
            let younger = |known: &Cooldown| !known.only_tools() && sent_ms <= known.since_ms;
            if guess
                && self.cooldowns.iter().any(|known| younger(known) && known.since_ms <= now_ms)
            {
                continue;
            }
            let Some(decided) = cooldown::decide(effect, current, &mut trouble, &facts) else {
                continue;
            };
            match decided.turns {
                Turns::AsKnown => {}
                Turns::At(turns_at_ms) => {
                    self.set_boundary(Boundary { turns_at_ms, stated_ms: now_ms }, &pools_day);
                }
                Turns::WithThePool if self.has_boundary() => {
                    let given_up = Boundary { turns_at_ms: NO_BOUNDARY, stated_ms: now_ms };
                    self.set_boundary(given_up, &pools_day);
                }
                Turns::WithThePool => {}
            }
            let certain = decided.cooldown.source != Source::Guessed;
            if certain && (effect.cause.is_per_day() || decided.cooldown.until_ms == FOREVER) {
                // Today's question is answered: asking again is for another day.
                self.day.explored = Explored::Ours;
            }
            self.put_cooldown(decided.cooldown);
        }
        if of_scope(Scope::Bucket) {
            self.cap = FIRST_CAP;
        }
        self.trouble = (*trouble != Trouble::default()).then_some(trouble);
        self.refresh(set);
    }

    /// Sets a cooldown in place of any other for the same cause, unless that one holds for longer.
    pub(crate) fn put_cooldown(&mut self, cooldown: Cooldown) {
        cooldown::put(&mut self.cooldowns, cooldown);
        self.refresh_hold();
    }

    /// Remembers a guess from the state file, so that the next one steps on from it.
    pub(crate) fn resume_ladder(&mut self, cooldown: &Cooldown) {
        if cooldown.step == 0 {
            return;
        }
        let trouble = self.trouble.get_or_insert_default();
        if trouble.guess_until_ms < cooldown.until_ms {
            trouble.step = cooldown.step;
            trouble.guess_until_ms = cooldown.until_ms;
            trouble.failed_ms = trouble.failed_ms.max(cooldown.since_ms);
        }
    }

    /// Somebody cleared it: the ladder starts at its foot.
    pub(crate) fn forget_trouble(&mut self) {
        self.trouble = None;
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
        self.boundary = Some(Box::new(boundary));
    }

    fn has_boundary(&self) -> bool {
        self.boundary.as_deref().is_some_and(|boundary| !boundary.is_given_up())
    }

    /// The clock went back: nothing lasts longer than it was meant to.
    pub(crate) fn rewind(&mut self, now_ms: i64, strategies: &Strategies, set: &Limits) {
        self.window.rewind(now_ms);
        // A boundary that was stated by a clock well ahead is off by as much.
        if self.boundary.as_deref().is_some_and(|boundary| {
            boundary.stated_ms > now_ms.saturating_add(BACK_MS)
                || boundary.turns_at_ms > now_ms.saturating_add(LONGEST_DAY_MS)
        }) {
            self.boundary = None;
            if self.day.own_span {
                self.day.own_span = false;
                self.day.span = strategies.day(now_ms);
            }
        }
        self.look_at_keys(now_ms);
        for known in &mut self.cooldowns {
            *known = cooldown::rewound(known, now_ms, strategies);
        }
        self.learned.rewind(now_ms);
        if let Some(trouble) = &mut self.trouble {
            trouble.rewind(now_ms);
        }
        self.refresh(set);
    }

    /// Why it cannot serve `need` now, and how that is known. For explanations.
    pub(crate) fn reason(&self, need: &Need<'_>, now_ms: i64) -> (Option<Cause>, Source) {
        let held = self
            .cooldowns
            .iter()
            .filter(|known| known.is_active(now_ms) && (need.tools || !known.only_tools()))
            .max_by_key(|known| known.until_ms);
        let own_until_ms = held.map_or(now_ms, |known| known.until_ms);
        if self.project_until_ms > own_until_ms
            && let Some((cause, source)) = self.project.out_for()
        {
            return (Some(cause), source);
        }
        match held {
            Some(known) => (Some(known.cause), known.source),
            None => (None, Source::Counted),
        }
    }

    /// Brings what is derived up to date after limits or cooldowns changed.
    pub(crate) fn refresh(&mut self, set: &Limits) {
        self.limits = Effective::new(set, &self.learned);
        self.refresh_hold();
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

    fn refresh_hold(&mut self) {
        let concern_all = self.cooldowns.iter().filter(|known| !known.only_tools());
        self.hold_until_ms = concern_all.map(|known| known.until_ms).max().unwrap_or(NOW);
    }

    fn tools_until_ms(&self) -> i64 {
        let tools = self.cooldowns.iter().find(|known| known.only_tools());
        tools.map_or(NOW, |known| known.until_ms)
    }

    fn turn_day(&mut self, now_ms: i64, span: DaySpan) {
        let own_span = self.has_boundary();
        let span = match self.boundary.as_deref() {
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

/// Where a call that was sent is counted: its entry in the window, and its day.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sent {
    pub(crate) number: u64,
    pub(crate) day_from_ms: i64,
}

fn is_welcome(key: &Key, exclude: &[Fingerprint]) -> bool {
    exclude.is_empty() || !exclude.contains(&key.key.fingerprint())
}

fn concerns_bucket(effect: &Effect) -> bool {
    matches!(effect.scope, Scope::Bucket | Scope::Tool)
}

const fn stands_for(cause: Cause, dimension: Dimension) -> bool {
    matches!(
        (cause, dimension),
        (Cause::PerDayRequests, Dimension::Rpd)
            | (Cause::PerDayTokens, Dimension::Tpd)
            | (Cause::PerMinuteRequests, Dimension::Rpm)
            | (Cause::PerMinuteTokens, Dimension::Tpm)
    )
}
