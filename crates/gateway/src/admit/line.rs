//! Who may try next: the queues of all projects, as a machine without clock, locks or tasks.
//!
//! Whoever wants to send takes a place here and *tries*: asks the ledger for room and the pool for a key. That is short,
//! and ends with being *let through* or with meeting a *limit*. Who met one waits until something changed that may help,
//! and tries again. The rules:
//!
//! - Within a project it is first come, first served. Nobody passes who came before, but for those who wait for the keys
//!   of another model: they do not want the same.
//! - Of several projects the one with the highest priority goes first; of equals the one that was let through longest
//!   ago.
//! - A limit of the project's own holds back nobody else. Who waits for what is shared, the allowance or the keys of a
//!   model, holds back all of lower priority that want it, too. Equals may pass, since they may need less: but only
//!   [`MOST_PASSED`] times, or one who needs much would never find enough.
//! - Of those who want the same shared thing one tries at a time, so that it goes to whose turn it is.
//! - Each project has a bounded queue and a bounded number of requests under way.
//!
//! Every method that changes something says who may try now; nobody else has to be woken, ever.

mod rules;

use std::{collections::BTreeSet, sync::Arc};

use foldhash::HashMap;
use keywheel::ledger::AccountId;

/// How many equals may pass one who waits for what is shared.
pub(crate) const MOST_PASSED: u32 = 8;

/// The shortest pause between two tries that nothing but time calls for: what is said to come at once and does not, is
/// not asked for in a loop.
const SHORTEST_PAUSE_MS: i64 = 20;

/// A place in the line: who came earlier has the smaller one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// Who comes.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    pub(crate) project: AccountId,
    pub(crate) priority: u8,
    /// The model whose keys it wants.
    pub(crate) model: Arc<str>,
    /// The project's cap on requests under way.
    pub(crate) in_flight: Option<usize>,
    /// How many of the project may wait.
    pub(crate) depth: usize,
}

/// What stood in the way of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Met {
    pub(crate) limit: Limit,
    /// When time alone will help.
    pub(crate) until_ms: Option<i64>,
    /// Whether what others give back may help.
    pub(crate) may_be_freed: bool,
}

/// Which limit it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// One of the project's budget.
    Own,
    /// One of the allowance of all.
    Allowance,
    /// The keys of the model.
    Keys,
}

/// So many of the project wait already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// All queues.
#[derive(Debug, Default)]
pub(crate) struct Line {
    queues: HashMap<AccountId, Queue>,
    requests: HashMap<Ticket, Request>,
    /// How many are in a queue, in all.
    queued: usize,
    /// Those who came from a queue and try.
    trying: Vec<Ticket>,
    last_ticket: u64,
    /// How often somebody was let through.
    let_through: u64,
    changes: Changes,
}

/// How often something changed that may help. Who tried before the latest change may try again.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Changes {
    /// Budget was given back.
    budget: u64,
    /// Keys were given back.
    keys: u64,
    /// Whatever others may have done that nobody told.
    unknown: u64,
}

#[derive(Debug, Default)]
struct Queue {
    priority: u8,
    in_flight: Option<usize>,
    /// Those who wait, and those who wait no more but came from here and still try.
    order: BTreeSet<Ticket>,
    /// Those who try, and those who were let through and have not left.
    under_way: usize,
    /// When it was last let through, by [`Line::let_through`].
    last_turn: u64,
    /// What was last met by one of those here, and the model it wanted. While it is `None`, all wait for nothing but a place under way, and need
    /// not try one by one.
    met: Option<(Limit, Arc<str>)>,
}

#[derive(Debug)]
struct Request {
    project: AccountId,
    model: Arc<str>,
    state: State,
    /// What it met when it last tried.
    met: Option<Met>,
    /// What had changed when its last try began: what changed during it may help as well.
    seen: Changes,
    /// How many equals were let through while it waited for what is shared.
    passed: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waits,
    Tries,
    UnderWay,
}

impl Line {
    /// Somebody comes. `true`: it may try now.
    ///
    /// # Errors
    /// If it has to wait, and too many wait already.
    pub(crate) fn arrive(&mut self, arrival: Arrival, now_ms: i64) -> Result<(Ticket, bool), Full> {
        let Arrival { project, priority, model, in_flight, depth } = arrival;
        let queue = self.queues.entry(project.clone()).or_default();
        (queue.priority, queue.in_flight) = (priority, in_flight);
        let may_try = self.may_try_at_once(&project, &model, now_ms);
        let queue = self.queues.entry(project.clone()).or_default();
        if !may_try && queue.order.len() >= depth {
            return Err(Full);
        }
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        let state = if may_try { State::Tries } else { State::Waits };
        if may_try {
            queue.under_way += 1;
        } else {
            queue.order.insert(ticket);
            self.queued += 1;
        }
        let seen = self.changes;
        let request = Request { project, model, state, met: None, seen, passed: 0 };
        self.requests.insert(ticket, request);
        Ok((ticket, may_try))
    }

    /// It found room: whoever comes next may try. Saying it again changes nothing.
    pub(crate) fn let_through(&mut self, ticket: Ticket, now_ms: i64) -> Vec<Ticket> {
        let Some(request) = self.requests.get_mut(&ticket) else { return Vec::new() };
        if request.state != State::Tries {
            return Vec::new();
        }
        request.state = State::UnderWay;
        self.trying.retain(|other| *other != ticket);
        let (project, model) = (request.project.clone(), Arc::clone(&request.model));
        self.let_through += 1;
        let turn = self.let_through;
        let Some(queue) = self.queues.get_mut(&project) else { return Vec::new() };
        queue.last_turn = turn;
        let priority = queue.priority;
        self.leave_queue(&project, ticket);
        if self.queued > 0 {
            self.count_passed(&project, priority, &model, now_ms);
        }
        self.next(now_ms)
    }

    /// It met a limit and waits, where it stood. That may be after it was let through: the provider may refuse all keys.
    ///
    /// # Errors
    /// If it did not come from the queue and too many wait there already. It has to leave.
    pub(crate) fn met(
        &mut self,
        ticket: Ticket,
        met: Met,
        depth: usize,
        now_ms: i64,
    ) -> Result<Vec<Ticket>, Full> {
        let Some(request) = self.requests.get_mut(&ticket) else { return Ok(Vec::new()) };
        let Some(queue) = self.queues.get_mut(&request.project) else { return Ok(Vec::new()) };
        let comes_back = queue.order.contains(&ticket);
        if !comes_back && queue.order.len() >= depth {
            return Err(Full);
        }
        if request.state != State::Waits {
            queue.under_way = queue.under_way.saturating_sub(1);
        }
        request.state = State::Waits;
        self.trying.retain(|other| *other != ticket);
        let later = |until| if until > now_ms { until } else { now_ms + SHORTEST_PAUSE_MS };
        let until_ms = met.until_ms.map(later);
        request.met = Some(Met { until_ms, ..met });
        queue.met = Some((met.limit, Arc::clone(&request.model)));
        if !comes_back {
            queue.order.insert(ticket);
            self.queued += 1;
        }
        Ok(self.next(now_ms))
    }

    /// It is gone: answered, refused, or its client went away.
    pub(crate) fn leave(&mut self, ticket: Ticket, now_ms: i64) -> Vec<Ticket> {
        let Some(request) = self.requests.remove(&ticket) else { return Vec::new() };
        self.trying.retain(|other| *other != ticket);
        if let Some(queue) = self.queues.get_mut(&request.project)
            && request.state != State::Waits
        {
            queue.under_way = queue.under_way.saturating_sub(1);
            // Its key is free again.
            self.changes.keys += 1;
        }
        self.leave_queue(&request.project, ticket);
        self.next(now_ms)
    }

    /// Budget was given back.
    pub(crate) fn freed(&mut self, now_ms: i64) -> Vec<Ticket> {
        self.changes.budget += 1;
        self.next(now_ms)
    }

    /// Time passed, and others may have done what nobody tells: all who are first may look again.
    pub(crate) fn look_again(&mut self, now_ms: i64) -> Vec<Ticket> {
        self.changes.unknown += 1;
        self.next(now_ms)
    }

    /// Who may try now that was not told so yet.
    pub(crate) fn next(&mut self, now_ms: i64) -> Vec<Ticket> {
        let mut told = Vec::new();
        while self.queued > 0
            && let Some(ticket) = self.candidate(now_ms)
        {
            self.begin(ticket);
            told.push(ticket);
        }
        told
    }

    /// The soonest moment after `now_ms` at which time alone helps somebody.
    pub(crate) fn next_moment(&self, now_ms: i64) -> Option<i64> {
        let queued = self.queues.values().flat_map(|queue| &queue.order);
        let waiting = queued.filter_map(|ticket| self.requests.get(ticket));
        let moments = waiting.filter_map(|request| request.met?.until_ms);
        moments.filter(|until| *until > now_ms).min()
    }

    /// How many wait, in all projects.
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// How many of each project wait, and how many are under way.
    #[cfg(test)]
    pub(crate) fn each(&self) -> impl Iterator<Item = (&AccountId, usize, usize)> {
        self.queues.iter().map(|(project, queue)| (project, queue.order.len(), queue.under_way))
    }

    /// True if it waits for nothing but a place under way.
    pub(crate) fn wants_a_place(&self, ticket: Ticket) -> bool {
        self.requests.get(&ticket).is_some_and(|request| {
            request.state == State::Waits
                && request.met.is_none()
                && self.queues.get(&request.project).is_some_and(|queue| !queue.has_place())
        })
    }

    /// True if it was told that it may try.
    pub(crate) fn tries(&self, ticket: Ticket) -> bool {
        self.requests.get(&ticket).is_some_and(|request| request.state == State::Tries)
    }

    /// What the first of its project met that stands before it, or itself.
    pub(crate) fn met_before(&self, ticket: Ticket) -> Option<Met> {
        let request = self.requests.get(&ticket)?;
        let queue = self.queues.get(&request.project)?;
        queue.order.range(..=ticket).find_map(|earlier| self.requests.get(earlier)?.met)
    }

    fn begin(&mut self, ticket: Ticket) {
        let Some(request) = self.requests.get_mut(&ticket) else { return };
        request.state = State::Tries;
        request.seen = self.changes;
        self.trying.push(ticket);
        if let Some(queue) = self.queues.get_mut(&request.project) {
            queue.under_way += 1;
        }
    }

    fn leave_queue(&mut self, project: &AccountId, ticket: Ticket) {
        let Some(queue) = self.queues.get_mut(project) else { return };
        if queue.order.remove(&ticket) {
            self.queued -= 1;
        }
        if queue.order.is_empty() {
            queue.met = None;
        }
    }

    /// Counts one more for those who were passed by one who was let through.
    fn count_passed(&mut self, project: &AccountId, priority: u8, model: &str, now_ms: i64) {
        for ticket in self.passed_by(project, priority, model, now_ms) {
            if let Some(request) = self.requests.get_mut(&ticket)
                && request.state == State::Waits
            {
                request.passed += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
