//! What holds a bucket back, and how that ends: refusals, cooldowns, limits that were learned.

use keywheel_core::{Cause, Dimension, Effect, LimitSeen, Scope, Wait};

use super::{
    Bucket, FIRST_CAP, Need,
    day::{BACK_MS, Explored},
};
use crate::{
    Refusal, Source,
    cooldown::{self, Cooldown, FOREVER, Facts, Trouble, Turns},
    limits::Limits,
    reset::Strategies,
    state::boundary::{Boundary, LONGEST_DAY_MS, NO_BOUNDARY},
    window::{Amount, NOW},
};

impl Bucket {
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
        self.change_rare(|rare| rare.cleared_ms = Some(now_ms));
        self.trouble = None;
        self.cooldowns.clear();
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
        self.change_rare(|rare| rare.cleared_ms = Some(now_ms));
        self.trouble = None;
        self.refresh(set);
        true
    }

    /// True when a clear would change something.
    pub(crate) fn can_be_cleared(&self, now_ms: i64) -> bool {
        self.cooldowns.iter().any(|known| known.is_active(now_ms))
            || self.day_is_full(Amount::new(1, 0))
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

    /// The clock went back: nothing lasts longer than it was meant to.
    pub(crate) fn rewind(&mut self, now_ms: i64, strategies: &Strategies, set: &Limits) {
        self.window.rewind(now_ms);
        // A boundary that was stated by a clock well ahead is off by as much.
        if self.boundary().is_some_and(|boundary| {
            boundary.stated_ms > now_ms.saturating_add(BACK_MS)
                || boundary.turns_at_ms > now_ms.saturating_add(LONGEST_DAY_MS)
        }) {
            self.change_rare(|rare| rare.boundary = None);
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

    pub(super) fn refresh_hold(&mut self) {
        let concern_all = self.cooldowns.iter().filter(|known| !known.only_tools());
        self.hold_until_ms = concern_all.map(|known| known.until_ms).max().unwrap_or(NOW);
    }

    pub(super) fn tools_until_ms(&self) -> i64 {
        let tools = self.cooldowns.iter().find(|known| known.only_tools());
        tools.map_or(NOW, |known| known.until_ms)
    }
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
