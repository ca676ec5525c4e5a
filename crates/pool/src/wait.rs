//! Who waits for a model: first come, first served.
//!
//! Those who need the same (the same tools, quota project, tier and exclusions) stand in one queue. Awake are
//! its firsts: those who ask for less, of requests or of tokens, than everybody before them. The others sleep
//! until their own deadlines, for whatever would do for one of them does for a first, who came earlier. So when
//! there is room for ten, eleven wake, however many equal ones wait. Between queues the one who came first goes
//! first, if the key in question is of use to them; continuations of calls that had their turn go before all
//! others.
//!
//! A small ask may pass a larger one that cannot be served yet: at once, if that one's moment is beyond the
//! minute (a spent day, a long cooldown), or if it is served no later for it. Else the larger one holds it back,
//! until its own moment and for [`PATIENCE_MS`] at most, so that large asks are not starved. And whoever was
//! called and does not come within [`GRACE_MS`] (a future that nobody polls) is passed over until they do.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use keywheel_core::Fingerprint;
use tokio::sync::Notify;

use crate::{
    Ask,
    state::{
        bucket::Need,
        model::{NotNow, amount_of},
    },
    window::Amount,
};

/// How long somebody who cannot be served yet holds others back: a minute's window, and some for what was
/// leased before and is sent a little later.
const PATIENCE_MS: i64 = 65_000;

/// How long after it was called a future may take to look.
pub(crate) const GRACE_MS: i64 = 100;

/// A place in the line. Lower goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    newcomer: bool,
    number: u64,
}

impl Ticket {
    const LAST: Self = Self { newcomer: true, number: u64::MAX };
}

/// What decides which keys are of use to an ask: those who agree in it stand in one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kind {
    tools: bool,
    paid: bool,
    affinity: Option<Arc<str>>,
    exclude: Vec<Fingerprint>,
}

impl Kind {
    fn is_of(&self, ask: &Ask) -> bool {
        self.tools == ask.tools
            && self.paid == ask.allow_paid
            && self.affinity == ask.affinity
            && self.exclude == ask.exclude
    }
}

#[derive(Debug)]
struct Queue {
    kind: Kind,
    waiters: BTreeMap<Ticket, Waiter>,
    /// Those who are awake, and those who were since they came back from being passed over.
    firsts: BTreeSet<Ticket>,
    deadlines: BTreeSet<(i64, Ticket)>,
}

#[derive(Debug)]
struct Waiter {
    amount: Amount,
    deadline_ms: Option<i64>,
    /// Wants to know, not to have.
    only_looks: bool,
    bell: Arc<Notify>,
    /// When the bell was rung last since they looked; nobody looked at the clock then, so the first who asks does.
    rung: Cell<Rung>,
    /// When their own timer calls them.
    timer_ms: i64,
    /// When they can be served, as of their last look.
    soonest_ms: i64,
    /// When they first looked in vain as a first: they hold others back for so long from then on.
    since_ms: Option<i64>,
    /// Could be served, and is held back by somebody before them.
    held: Cell<bool>,
    /// Was called and did not come: others go first until they do.
    passed_over: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rung {
    No,
    JustNow,
    At(i64),
}

/// All queues of one model.
#[derive(Debug, Default)]
pub(crate) struct Line {
    queues: Vec<Queue>,
    next_number: u64,
}

impl Line {
    pub(crate) const fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.queues.iter().map(|queue| queue.waiters.len()).sum()
    }

    /// Joins at the end.
    pub(crate) fn join(&mut self, ask: &Ask, only_looks: bool) -> (Ticket, Arc<Notify>) {
        let ticket = Ticket { newcomer: ask.exclude.is_empty(), number: self.next_number };
        self.next_number += 1;
        let bell = Arc::new(Notify::new());
        let deadline_ms = ask.deadline_ms();
        let amount = amount_of(ask);
        let waiter = Waiter {
            amount,
            deadline_ms,
            only_looks,
            bell: Arc::clone(&bell),
            rung: Cell::new(Rung::No),
            timer_ms: i64::MAX,
            soonest_ms: i64::MAX,
            since_ms: None,
            held: Cell::new(false),
            passed_over: false,
        };
        let place = self.queues.iter().position(|queue| queue.kind.is_of(ask));
        let queue = match place {
            Some(place) => &mut self.queues[place],
            None => {
                let kind = Kind {
                    tools: ask.tools,
                    paid: ask.allow_paid,
                    affinity: ask.affinity.clone(),
                    exclude: ask.exclude.clone(),
                };
                self.queues.push(Queue {
                    kind,
                    waiters: BTreeMap::new(),
                    firsts: BTreeSet::new(),
                    deadlines: BTreeSet::new(),
                });
                self.queues.last_mut().expect("it was just pushed")
            }
        };
        queue.waiters.insert(ticket, waiter);
        if !queue.is_behind(ticket, amount) {
            queue.firsts.insert(ticket);
        }
        if let Some(deadline_ms) = deadline_ms {
            queue.deadlines.insert((deadline_ms, ticket));
        }
        (ticket, bell)
    }

    /// Leaves, served or not. If it was a first, the next one is woken, and so are those who let it go before.
    pub(crate) fn leave(&mut self, ask: &Ask, ticket: Ticket) {
        let Some(place) = self.queues.iter().position(|queue| queue.kind.is_of(ask)) else {
            return;
        };
        let queue = &mut self.queues[place];
        let was_first = queue.firsts.contains(&ticket);
        queue.remove(ticket);
        if queue.waiters.is_empty() {
            self.queues.swap_remove(place);
        }
        if was_first {
            self.ring();
        }
    }

    /// Somebody with `ticket` looks: where they stand. Whoever was passed over is back in their place.
    pub(crate) fn looks(&mut self, ask: &Ask, ticket: Ticket) -> Standing {
        let queue = self.queues.iter_mut().find(|queue| queue.kind.is_of(ask));
        let Some(queue) = queue else { return Standing::SentAway };
        let Some(waiter) = queue.waiters.get_mut(&ticket) else { return Standing::SentAway };
        waiter.rung.set(Rung::No);
        waiter.held.set(false);
        waiter.timer_ms = i64::MAX;
        if std::mem::take(&mut waiter.passed_over) {
            queue.firsts.insert(ticket);
        }
        if queue.firsts.contains(&ticket) { Standing::First } else { Standing::Behind }
    }

    /// Somebody with `ticket` looked in vain and waits for `timer_ms` or the bell.
    pub(crate) fn waits(
        &mut self,
        ask: &Ask,
        ticket: Ticket,
        not_now: NotNow,
        timer_ms: i64,
        now_ms: i64,
    ) {
        let Some(queue) = self.queues.iter_mut().find(|queue| queue.kind.is_of(ask)) else {
            return;
        };
        let is_first = queue.firsts.contains(&ticket);
        let Some(waiter) = queue.waiters.get_mut(&ticket) else { return };
        waiter.timer_ms = timer_ms;
        waiter.soonest_ms = not_now.soonest_ms;
        waiter.held.set(not_now.held);
        if is_first {
            waiter.since_ms.get_or_insert(now_ms);
        }
    }

    /// Passes over all who were called and did not come in time; those behind them are woken.
    pub(crate) fn pass_over(&mut self, now_ms: i64) {
        for queue in &mut self.queues {
            let is_late = |ticket: &&Ticket| queue.waiters[*ticket].is_late(now_ms);
            let late: Vec<Ticket> = queue.firsts.iter().filter(is_late).copied().collect();
            for ticket in late {
                queue.firsts.remove(&ticket);
                let waiter = queue.waiters.get_mut(&ticket).expect("firsts wait");
                waiter.passed_over = true;
                let amount = waiter.amount;
                queue.promote(ticket, amount);
            }
        }
    }

    /// True when somebody with the same needs waits already who asks for no more.
    pub(crate) fn is_behind(&self, ask: &Ask) -> bool {
        let queue = self.queues.iter().find(|queue| queue.kind.is_of(ask));
        queue.is_some_and(|queue| queue.is_behind(Ticket::LAST, amount_of(ask)))
    }

    /// Whoever goes before `ticket` (`None`: a newcomer, who goes last) and is in the way, by what `judge` says of
    /// their need: could they use what is to be taken; or, told their moment, would they be served later. Rings for
    /// those who could. Returns when to look again.
    pub(crate) fn someone_before(
        &self,
        ask: &Ask,
        ticket: Option<Ticket>,
        now_ms: i64,
        mut judge: impl FnMut(&Need<'_>, Judge) -> bool,
    ) -> Option<InTheWay> {
        let continues = !ask.exclude.is_empty();
        let mut found: Option<InTheWay> = None;
        for queue in &self.queues {
            let of_same_kind = queue.kind.is_of(ask);
            for first in &queue.firsts {
                let waiter = &queue.waiters[first];
                let goes_before = match ticket {
                    Some(ticket) => *first < ticket,
                    // A continuation had its turn: only other continuations go before it.
                    None => !continues || !first.newcomer,
                };
                if !goes_before || waiter.only_looks {
                    continue;
                }
                let need = Need {
                    amount: waiter.amount,
                    tools: queue.kind.tools,
                    paid: queue.kind.paid,
                    exclude: &queue.kind.exclude,
                    affinity: queue.kind.affinity.as_ref(),
                };
                let (again_ms, holds) = if !waiter.held.get() && judge(&need, Judge::Suits) {
                    waiter.ring();
                    (now_ms.saturating_add(GRACE_MS), false)
                } else if of_same_kind
                    && let Some(held) = waiter.holds(now_ms)
                    && judge(&need, Judge::Delays(held))
                {
                    // Their moment may have come, and they have not looked yet.
                    let again_ms = held.soonest_ms.max(now_ms.saturating_add(GRACE_MS));
                    (held.end_ms.min(again_ms), true)
                } else {
                    continue;
                };
                let known = found.get_or_insert(InTheWay { again_ms, holds });
                known.again_ms = known.again_ms.min(again_ms);
                known.holds &= holds;
            }
        }
        found
    }

    /// Sends away those behind `first` who ask for as much or more, and whose deadline has come, or comes before
    /// `soonest_ms`, when `first` can be served.
    pub(crate) fn send_away(&mut self, ask: &Ask, first: Ticket, now_ms: i64, soonest_ms: i64) {
        let Some(queue) = self.queues.iter_mut().find(|queue| queue.kind.is_of(ask)) else {
            return;
        };
        let Some(waiter) = queue.waiters.get(&first) else { return };
        // Nothing that those who joined since have not found out for themselves.
        if waiter.soonest_ms == soonest_ms {
            return;
        }
        let amount = waiter.amount;
        let hopeless = |deadline_ms: i64| {
            deadline_ms <= now_ms || (soonest_ms != i64::MAX && deadline_ms < soonest_ms)
        };
        let due: Vec<Ticket> = queue
            .deadlines
            .iter()
            .take_while(|(deadline_ms, _)| hopeless(*deadline_ms))
            .map(|(_, ticket)| *ticket)
            .filter(|ticket| *ticket > first && amount.is_within(queue.waiters[ticket].amount))
            .collect();
        for ticket in due {
            if let Some(waiter) = queue.remove(ticket) {
                waiter.bell.notify_one();
            }
        }
    }

    /// When the next in the ask's queue has to see whether the first of all came when called: it keeps watch for
    /// those behind it.
    pub(crate) fn watch_until(&self, ask: &Ask, ticket: Ticket) -> Option<i64> {
        let queue = self.queues.iter().find(|queue| queue.kind.is_of(ask))?;
        let before = queue.firsts.range(..ticket).next_back()?;
        let next = queue.waiters.range(*before..).nth(1)?;
        (*next.0 == ticket).then(|| queue.waiters[before].due_ms().saturating_add(GRACE_MS))
    }

    /// Something was given back or changed: the firsts look again.
    pub(crate) fn ring(&self) {
        self.queues.iter().for_each(Queue::ring);
    }
}

impl Queue {
    fn ring(&self) {
        for first in &self.firsts {
            self.waiters[first].ring();
        }
    }

    /// True when a first before `ticket` asks for no more than `amount`.
    fn is_behind(&self, ticket: Ticket, amount: Amount) -> bool {
        self.firsts.range(..ticket).any(|first| self.waiters[first].amount.is_within(amount))
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        let waiter = self.waiters.remove(&ticket)?;
        if let Some(deadline_ms) = waiter.deadline_ms {
            self.deadlines.remove(&(deadline_ms, ticket));
        }
        if self.firsts.remove(&ticket) {
            self.promote(ticket, waiter.amount);
        }
        Some(waiter)
    }

    /// The first with this ticket is one no more: wakes those whom nobody else keeps behind.
    fn promote(&mut self, gone: Ticket, amount: Amount) {
        for (ticket, waiter) in self.waiters.range(gone..) {
            let was_behind = !waiter.passed_over && !self.firsts.contains(ticket);
            if !was_behind || !amount.is_within(waiter.amount) {
                continue;
            }
            if !self.is_behind(*ticket, waiter.amount) {
                self.firsts.insert(*ticket);
                waiter.ring();
            }
            // An equal one keeps behind whoever the other kept.
            if waiter.amount.is_within(amount) {
                break;
            }
        }
    }
}

impl Waiter {
    fn ring(&self) {
        if self.rung.get() == Rung::No {
            self.rung.set(Rung::JustNow);
        }
        self.held.set(false);
        self.bell.notify_one();
    }

    /// When they were called, or will be; `i64::MAX`: nobody knows.
    const fn due_ms(&self) -> i64 {
        match self.rung.get() {
            Rung::At(rung_ms) => rung_ms,
            Rung::No | Rung::JustNow => self.timer_ms,
        }
    }

    fn is_late(&self, now_ms: i64) -> bool {
        match self.rung.get() {
            Rung::No if self.timer_ms > now_ms => return false,
            Rung::At(rung_ms) if rung_ms <= now_ms => {}
            // Their time runs from when somebody sees that they were called: the machine may have slept since, and
            // the clock may have gone back.
            _ => self.rung.set(Rung::At(now_ms)),
        }
        now_ms >= self.due_ms().saturating_add(GRACE_MS)
    }

    /// How they hold back those for whom they would have to wait; `None` if they do not.
    fn holds(&self, now_ms: i64) -> Option<Held> {
        let since_ms = self.since_ms?;
        let end_ms = since_ms.saturating_add(PATIENCE_MS);
        let within = self.soonest_ms == i64::MAX || self.soonest_ms <= end_ms;
        let holds = !self.held.get() && within && (since_ms..end_ms).contains(&now_ms);
        holds.then_some(Held { soonest_ms: self.soonest_ms, end_ms })
    }
}

impl Amount {
    /// No more than `other`, of requests and of tokens.
    const fn is_within(self, other: Self) -> bool {
        self.requests <= other.requests && self.tokens <= other.tokens
    }
}

/// What is asked of somebody who goes before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judge {
    /// Could they use what is to be taken?
    Suits,
    /// Would they be served later?
    Delays(Held),
}

/// Somebody cannot be served before `soonest_ms` (`i64::MAX`: when calls in flight end), and keeps what they wait
/// for until `end_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) soonest_ms: i64,
    pub(crate) end_ms: i64,
}

/// Somebody goes before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InTheWay {
    /// When to look again, whatever they do.
    pub(crate) again_ms: i64,
    /// They cannot be served yet, and keep what they wait for.
    pub(crate) holds: bool,
}

/// Where somebody stands in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nobody of the same needs who came before asks for as little.
    First,
    /// Others of the same needs go first.
    Behind,
    /// Their deadline cannot be met.
    SentAway,
}
