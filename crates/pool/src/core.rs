//! What pool handles and leases share: the state, and the hand that writes it down.

use std::{future::Future, pin::Pin, sync::Arc};

use keywheel_core::clock::from_unix_ms;

use crate::{
    Ask, Exhausted, Lease,
    lease::Held,
    persist::{Persister, StateNote},
    state::{
        State,
        bucket::Explored,
        model::{Grant, Model, ModelPool, NotNow, amount_of},
    },
    wait::{Standing, Ticket},
};

/// What all handles and leases of a pool share.
///
/// The persister comes first: dropping it still asks the state for what is unwritten.
pub(crate) struct Core {
    pub(crate) persister: Persister,
    pub(crate) state: Arc<State>,
    /// There is somewhere to write to, shared with others or not.
    pub(crate) has_file: bool,
    pub(crate) notes: Vec<StateNote>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("writer", &self.persister.writer()).finish_non_exhaustive()
    }
}

/// What somebody in the line wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A key, be it for the day's exploratory request of a bucket.
    Explores,
    /// The same, for somebody who does not wait but for the state file's word: his deadline had come when he asked.
    NowOrNever,
    /// A key that is believed to serve.
    Takes,
    /// To know when there is one.
    OnlyLooks,
}

/// What a look at the state came to, for somebody in the line.
pub(crate) enum Turn {
    /// Served.
    Taken(Grant),
    /// Could be served; for those who only look.
    Seen,
    /// Nothing serves; this bucket may spend its exploratory request.
    Explore(u32),
    /// Wait until the bell rings, or this moment at the latest.
    Wait(Option<i64>),
    /// No.
    Out(Exhausted),
}

impl Core {
    /// A key now, or why not. Never waits, never passes those who wait.
    pub(crate) fn try_take(
        self: &Arc<Self>,
        model: Arc<ModelPool>,
        ask: &Ask,
    ) -> Result<Lease, Exhausted> {
        match self.quick(model, ask) {
            Ok(lease) => Ok(lease),
            Err((model, not_now)) => {
                let now_ms = self.state.clock.unix_ms();
                let mut state = self.state.enter(&model, now_ms);
                Err(self.explain(&mut state, ask, not_now, now_ms))
            }
        }
    }

    /// A key now, without the reasons if there is none; the model is handed back then.
    ///
    /// Asks the state as of its last look at the clock first. Whatever can serve by an old time can serve now:
    /// time only ends cooldowns and empties windows. So the one look at the clock that a call pays for is the
    /// one that stamps its sending.
    #[inline]
    pub(crate) fn quick(
        self: &Arc<Self>,
        model: Arc<ModelPool>,
        ask: &Ask,
    ) -> Result<Lease, (Arc<ModelPool>, NotNow)> {
        let mut state = self.state.enter_as_of_last_look(&model);
        let last_ms = state.last_ms();
        if state.line.is_empty()
            && self.state.host.until_ms() <= last_ms
            && let Some(grant) = state.take_first(ask, last_ms, &self.state.rules)
        {
            drop(state);
            return Ok(self.lease(model, ask, grant, false, last_ms));
        }
        let now_ms = self.state.clock.unix_ms();
        state.advance(now_ms, &self.state.rules);
        let taken = self.attempt(&mut state, ask, None, now_ms);
        drop(state);
        match taken {
            Ok(grant) => Ok(self.lease(model, ask, grant, false, now_ms)),
            Err(not_now) => Err((model, not_now)),
        }
    }

    fn attempt(
        &self,
        state: &mut Model,
        ask: &Ask,
        ticket: Option<Ticket>,
        now_ms: i64,
    ) -> Result<Grant, NotNow> {
        let blocked_ms = self.state.host.until_ms();
        if blocked_ms > now_ms
            && let Some(soonest_ms) = self.state.host.blocked_until_ms(now_ms)
        {
            return Err(NotNow::until(soonest_ms));
        }
        if ticket.is_none() && !state.line.is_empty() {
            state.line.pass_over(now_ms);
            if state.line.is_behind(ask) {
                let soonest = state.look(ask, now_ms, &self.state.rules);
                return Err(soonest.err().unwrap_or(NotNow::NEVER));
            }
        }
        state.take(ask, ticket, now_ms, &self.state.rules)
    }

    /// A look at the state by somebody who stands in the line with `ticket`.
    pub(crate) fn turn(&self, model: &ModelPool, ask: &Ask, ticket: Ticket, mode: Mode) -> Turn {
        let only_looks = mode == Mode::OnlyLooks;
        let now_ms = self.state.clock.unix_ms();
        let mut state = self.state.enter(model, now_ms);
        let deadline_ms = ask.deadline_ms();
        let overdue = deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms);
        state.line.pass_over(now_ms);
        let standing = state.line.looks(ask, ticket);
        let not_now = match standing {
            Standing::First if overdue && mode != Mode::NowOrNever => {
                state.look(ask, now_ms, &self.state.rules).err()
            }
            Standing::First if only_looks => match self.seen(&mut state, ask, now_ms) {
                Ok(()) => return Turn::Seen,
                Err(not_now) => Some(not_now),
            },
            Standing::First => match self.attempt(&mut state, ask, Some(ticket), now_ms) {
                Ok(grant) => return Turn::Taken(grant),
                Err(not_now) => Some(not_now),
            },
            Standing::Behind | Standing::SentAway => {
                state.look(ask, now_ms, &self.state.rules).err()
            }
        };
        let not_now = not_now.unwrap_or(NotNow::NEVER);
        let blocked = self.state.host.until_ms() > now_ms;
        let explores = mode == Mode::NowOrNever || mode == Mode::Explores && !overdue;
        if standing == Standing::First
            && explores
            && !blocked
            && let Some(index) = self.explorable(&mut state, ask, now_ms)
        {
            return Turn::Explore(index);
        }
        if standing == Standing::SentAway || overdue {
            return Turn::Out(self.explain(&mut state, ask, not_now, now_ms));
        }
        let soonest_ms = not_now.soonest_ms;
        // An answer that comes in may make room sooner than any moment that is known.
        let hopeful = !blocked && state.waits_for_an_answer(ask);
        let too_late = !hopeful
            && soonest_ms != i64::MAX
            && deadline_ms.is_some_and(|deadline_ms| deadline_ms < soonest_ms);
        let kept = not_now.again_ms != i64::MAX;
        if too_late || soonest_ms == i64::MAX && !kept && !self.can_ever(&state, ask) {
            return Turn::Out(self.explain(&mut state, ask, not_now, now_ms));
        }
        let mut until_ms = deadline_ms.unwrap_or(i64::MAX);
        if standing == Standing::Behind {
            until_ms = until_ms.min(state.line.watch_until(ask, ticket).unwrap_or(i64::MAX));
        } else {
            let hopeless_before_ms = if hopeful { i64::MAX } else { soonest_ms };
            state.line.send_away(ask, ticket, now_ms, hopeless_before_ms);
            until_ms = until_ms.min(soonest_ms).min(not_now.again_ms);
        }
        state.line.waits(ask, ticket, not_now, until_ms, now_ms);
        Turn::Wait((until_ms != i64::MAX).then_some(until_ms))
    }

    fn seen(&self, state: &mut Model, ask: &Ask, now_ms: i64) -> Result<(), NotNow> {
        match self.state.host.blocked_until_ms(now_ms) {
            Some(soonest_ms) => Err(NotNow::until(soonest_ms)),
            None => state.look(ask, now_ms, &self.state.rules),
        }
    }

    fn explorable(&self, state: &mut Model, ask: &Ask, now_ms: i64) -> Option<u32> {
        // A continuation had its turn already, and each call pays for one exploration at most.
        if !self.state.rules.exploration || !ask.exclude.is_empty() {
            return None;
        }
        let Some(name) = &ask.affinity else { return state.explorable(now_ms) };
        let index = state.find_bucket(name)?;
        state.may_explore(index, now_ms).is_ok().then_some(index)
    }

    /// Claims the exploratory request of bucket `index`, and takes it if nobody else has it.
    ///
    /// # Cancel safety
    /// Dropped while the claim is written, the claim is taken back; if it reached the file by then, the day's
    /// exploration is spent unused.
    pub(crate) async fn explore(
        self: &Arc<Self>,
        model: &Arc<ModelPool>,
        ask: &Ask,
        index: u32,
    ) -> Option<Lease> {
        let claim = Claim::make(self, model, index)?;
        if self.has_file && !self.persister.commit().await {
            // Without the file's word another process may send it, too.
            return None;
        }
        drop(claim);
        let now_ms = self.state.clock.unix_ms();
        let grant = {
            let mut state = self.state.enter(model, now_ms);
            if state.buckets[index as usize].day.explored != Explored::Ours {
                return None;
            }
            state.take_exploring(index, amount_of(ask))?
        };
        Some(self.lease(Arc::clone(model), ask, grant, true, now_ms))
    }

    /// Something may change for the better: a cooldown that ends, a call in flight that ends, a turn that comes.
    fn can_ever(&self, state: &Model, ask: &Ask) -> bool {
        if let Some(name) = &ask.affinity {
            return state.find_bucket(name).is_some_and(|index| {
                let bucket = &state.buckets[index as usize];
                bucket.has_key(&ask.exclude) && bucket.in_flight > 0
            });
        }
        state.someone_is_in_flight(ask)
    }

    #[inline]
    pub(crate) fn lease(
        self: &Arc<Self>,
        model: Arc<ModelPool>,
        ask: &Ask,
        grant: Grant,
        exploration: bool,
        now_ms: i64,
    ) -> Lease {
        let held = Held {
            index: grant.index,
            bucket_clears: grant.clears,
            key_clears: grant.key.clears(),
            tools: ask.tools,
            exploration,
            amount: amount_of(ask),
            leased_ms: now_ms,
        };
        Lease::new(Arc::clone(self), model, grant.key, held)
    }

    /// When `ask` can be served, as far as can be said; `Ok` is now. Takes nothing.
    pub(crate) fn look(&self, model: &ModelPool, ask: &Ask) -> Result<(), NotNow> {
        let now_ms = self.state.clock.unix_ms();
        let mut state = self.state.enter(model, now_ms);
        self.seen(&mut state, ask, now_ms)
    }

    fn explain(&self, state: &mut Model, ask: &Ask, not_now: NotNow, now_ms: i64) -> Exhausted {
        let mut exhausted = state.explain(ask, self.state.host.blocked(now_ms), now_ms);
        let soonest_ms = not_now.soonest_ms;
        exhausted.soonest = (soonest_ms != i64::MAX).then(|| from_unix_ms(soonest_ms));
        exhausted
    }

    /// Writes down what a refusal changed; true once it is durable, or if nothing had to be written.
    pub(crate) fn commit(&self, changed: bool) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        if !changed {
            return Box::pin(std::future::ready(true));
        }
        Box::pin(self.persister.commit())
    }
}

/// The wish for a bucket's exploratory request, until the state file has answered. Dropped before, it is taken
/// back: nobody sent anything.
struct Claim<'a> {
    core: &'a Core,
    model: &'a ModelPool,
    index: u32,
}

impl<'a> Claim<'a> {
    fn make(core: &'a Core, model: &'a ModelPool, index: u32) -> Option<Self> {
        let mut state = model.lock();
        let bucket = state.buckets.get_mut(index as usize)?;
        if bucket.day.explored != Explored::No {
            return None;
        }
        bucket.day.explored = if core.has_file { Explored::Claimed } else { Explored::Ours };
        state.mark(index);
        Some(Self { core, model, index })
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut state = self.model.lock();
        let bucket = &mut state.buckets[self.index as usize];
        if bucket.day.explored != Explored::Claimed {
            return;
        }
        bucket.day.explored = Explored::No;
        state.explore_anew();
        state.mark(self.index);
        drop(state);
        // What waits to be written is replaced, if it is not in the file yet; else the file's word stands.
        self.core.persister.mark_dirty();
    }
}
