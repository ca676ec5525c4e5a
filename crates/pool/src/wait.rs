//! Who waits for a model: first come, first served.
//!
//! Those who need the same (the same tools, quota project, tier and exclusions) stand in one queue, of which
//! only the head is awake: it owns the only timer, and when it is served it wakes the next. So when there is
//! room for ten, eleven wake, however many wait. Between queues the one who came first goes first, if the
//! key in question is of use to them; continuations of calls that had their turn go before all others.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use keywheel_core::Fingerprint;
use tokio::sync::Notify;

use crate::{
    Ask,
    state::{bucket::Need, model::amount_of},
    window::Amount,
};

/// A place in the line. Lower goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    newcomer: bool,
    number: u64,
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
    deadlines: BTreeSet<(i64, Ticket)>,
}

#[derive(Debug)]
struct Waiter {
    amount: Amount,
    deadline_ms: Option<i64>,
    /// Wants to know, not to have.
    only_looks: bool,
    bell: Arc<Notify>,
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
        let waiter = Waiter { amount, deadline_ms, only_looks, bell: Arc::clone(&bell) };
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
                let (waiters, deadlines) = (BTreeMap::new(), BTreeSet::new());
                self.queues.push(Queue { kind, waiters, deadlines });
                self.queues.last_mut().expect("it was just pushed")
            }
        };
        queue.waiters.insert(ticket, waiter);
        if let Some(deadline_ms) = deadline_ms {
            queue.deadlines.insert((deadline_ms, ticket));
        }
        (ticket, bell)
    }

    /// Leaves, served or not. If it was a head, the next one is woken, and so are those who let it go first.
    pub(crate) fn leave(&mut self, ask: &Ask, ticket: Ticket) {
        let Some(place) = self.queues.iter().position(|queue| queue.kind.is_of(ask)) else {
            return;
        };
        let queue = &mut self.queues[place];
        let was_head = queue.head() == Some(ticket);
        queue.remove(ticket);
        if queue.waiters.is_empty() {
            self.queues.swap_remove(place);
        }
        if was_head {
            self.ring();
        }
    }

    /// Where somebody with `ticket` stands.
    pub(crate) fn standing(&self, ask: &Ask, ticket: Ticket) -> Standing {
        let queue = self.queues.iter().find(|queue| queue.kind.is_of(ask));
        match queue {
            Some(queue) if queue.head() == Some(ticket) => Standing::Head,
            Some(queue) if queue.waiters.contains_key(&ticket) => Standing::Behind,
            _ => Standing::SentAway,
        }
    }

    /// True when somebody with the same needs waits already.
    pub(crate) fn has_queue_for(&self, ask: &Ask) -> bool {
        self.queues.iter().any(|queue| queue.kind.is_of(ask))
    }

    /// The head who goes before `ticket` (`None`: a newcomer, who goes last) and could use what `suits`.
    /// Rings for them.
    pub(crate) fn someone_before(
        &self,
        ask: &Ask,
        ticket: Option<Ticket>,
        mut suits: impl FnMut(&Need<'_>) -> bool,
    ) -> bool {
        let continues = !ask.exclude.is_empty();
        let mut found = false;
        for queue in &self.queues {
            let Some((head, waiter)) = queue.waiters.first_key_value() else { continue };
            let goes_before = match ticket {
                Some(ticket) => *head < ticket,
                // A continuation had its turn: only other continuations go before it.
                None => !continues || !head.newcomer,
            };
            if !goes_before || waiter.only_looks || queue.kind.is_of(ask) {
                continue;
            }
            let need = Need {
                amount: waiter.amount,
                tools: queue.kind.tools,
                paid: queue.kind.paid,
                exclude: &queue.kind.exclude,
                affinity: queue.kind.affinity.as_ref(),
            };
            if suits(&need) {
                waiter.bell.notify_one();
                found = true;
            }
        }
        found
    }

    /// Sends away those in the ask's queue whose deadline has come, or comes before `soonest_ms`. The head of
    /// the queue does this for all; its own deadline is its own business.
    pub(crate) fn send_away(&mut self, ask: &Ask, head: Ticket, now_ms: i64, soonest_ms: i64) {
        let Some(queue) = self.queues.iter_mut().find(|queue| queue.kind.is_of(ask)) else {
            return;
        };
        let hopeless = |deadline_ms: i64| {
            deadline_ms <= now_ms || (soonest_ms != i64::MAX && deadline_ms < soonest_ms)
        };
        let due: Vec<Ticket> = queue
            .deadlines
            .iter()
            .take_while(|(deadline_ms, _)| hopeless(*deadline_ms))
            .map(|(_, ticket)| *ticket)
            .filter(|ticket| *ticket != head)
            .collect();
        for ticket in due {
            if let Some(waiter) = queue.remove(ticket) {
                waiter.bell.notify_one();
            }
        }
    }

    /// The first deadline in the ask's queue.
    pub(crate) fn first_deadline(&self, ask: &Ask) -> Option<i64> {
        let queue = self.queues.iter().find(|queue| queue.kind.is_of(ask))?;
        queue.deadlines.first().map(|(deadline_ms, _)| *deadline_ms)
    }

    /// Something was given back or changed: the heads look again.
    pub(crate) fn ring(&self) {
        self.queues.iter().for_each(Queue::ring);
    }
}

impl Queue {
    fn head(&self) -> Option<Ticket> {
        self.waiters.first_key_value().map(|(ticket, _)| *ticket)
    }

    fn ring(&self) {
        if let Some((_, waiter)) = self.waiters.first_key_value() {
            waiter.bell.notify_one();
        }
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Waiter> {
        let waiter = self.waiters.remove(&ticket)?;
        if let Some(deadline_ms) = waiter.deadline_ms {
            self.deadlines.remove(&(deadline_ms, ticket));
        }
        Some(waiter)
    }
}

/// Where somebody stands in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is their turn.
    Head,
    /// Others of the same needs go first.
    Behind,
    /// Their deadline cannot be met.
    SentAway,
}
