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

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

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

    /// Whether a newcomer may try without a place in the queue.
    fn may_try_at_once(&mut self, project: &AccountId, model: &Arc<str>, now_ms: i64) -> bool {
        let Some(queue) = self.queues.get(project) else { return false };
        if !queue.has_place() {
            return false;
        }
        if self.queued == 0 {
            return true;
        }
        // Nobody passed it yet, and all others came before.
        let newcomer = Claim { project, priority: queue.priority, passed: 0, ticket: LAST };
        let holds = self.holds(now_ms);
        self.passes_all(newcomer, queue, model, &holds)
            && held_by(&holds, newcomer, model).is_none()
    }

    /// Whether all who wait in its own queue wait for the keys of models other than `model`.
    fn passes_all(
        &self,
        newcomer: Claim<'_>,
        queue: &Queue,
        model: &str,
        holds: &[Hold<'_>],
    ) -> bool {
        let mut spoken_for: Vec<&str> = Vec::new();
        queue.order.iter().all(|ticket| {
            let Some(earlier) = self.requests.get(ticket) else { return true };
            if *earlier.model == *model {
                return false;
            }
            if spoken_for.contains(&&*earlier.model) {
                return true;
            }
            spoken_for.push(&earlier.model);
            let claim = Claim { passed: earlier.passed, ticket: *ticket, ..newcomer };
            let limit = earlier.met.map(|met| met.limit);
            limit.or_else(|| held_by(holds, claim, &earlier.model)) == Some(Limit::Keys)
        })
    }

    /// The first, by the rules, of those who may try.
    fn candidate(&self, now_ms: i64) -> Option<Ticket> {
        let holds = self.holds(now_ms);
        let waiting = self.queues.iter().filter(|(_, queue)| !queue.order.is_empty());
        let free = waiting.filter(|(_, queue)| queue.has_place());
        let mut ready: Vec<_> = free
            .filter_map(|(project, queue)| {
                Some((project, queue, self.ready(project, queue, &holds, now_ms)?))
            })
            .collect();
        ready.sort_by_key(|(_, queue, ticket)| (Reverse(queue.priority), queue.last_turn, *ticket));
        let may_try = |(project, queue, ticket): &(&AccountId, &Queue, Ticket)| {
            let request = self.requests.get(ticket);
            request.is_some_and(|request| !self.is_contested(project, queue, request))
        };
        ready.into_iter().find(may_try).map(|(_, _, ticket)| ticket)
    }

    /// The first of a queue for whom there may be room, and whom nobody holds back.
    fn ready(
        &self,
        project: &AccountId,
        queue: &Queue,
        holds: &[Hold<'_>],
        now_ms: i64,
    ) -> Option<Ticket> {
        let mut spoken_for: Vec<&str> = Vec::new();
        for ticket in &queue.order {
            let Some(request) = self.requests.get(ticket) else { continue };
            if spoken_for.contains(&&*request.model) {
                continue;
            }
            let waits_for = match (request.state, request.met) {
                (State::Waits, met)
                    if met.is_none_or(|met| self.may_help(request, met, now_ms)) =>
                {
                    let (priority, passed) = (queue.priority, request.passed);
                    let claim = Claim { project, priority, passed, ticket: *ticket };
                    match held_by(holds, claim, &request.model) {
                        None => return Some(*ticket),
                        Some(limit) => limit,
                    }
                }
                (_, Some(met)) => met.limit,
                // They all want nothing but a place under way.
                (_, None) if queue.met.is_none() => continue,
                (_, None) => return None,
            };
            if waits_for != Limit::Keys {
                return None;
            }
            spoken_for.push(&request.model);
        }
        None
    }

    /// Whether something changed since that may let it through.
    fn may_help(&self, request: &Request, met: Met, now_ms: i64) -> bool {
        let seen = request.seen;
        let freed = match met.limit {
            Limit::Own | Limit::Allowance => self.changes.budget > seen.budget,
            Limit::Keys => self.changes.keys > seen.keys,
        };
        (met.may_be_freed && freed)
            || self.changes.unknown > seen.unknown
            || met.until_ms.is_some_and(|until| until <= now_ms)
    }

    /// Who holds others back: of each queue the first, and behind those who wait for keys the first who wants those of
    /// another model. Who stands behind a limit of its project's own takes nothing from others.
    fn holds(&self, now_ms: i64) -> Vec<Hold<'_>> {
        let mut holds: Vec<Hold<'_>> = Vec::new();
        for (project, queue) in &self.queues {
            if queue.met.is_none() {
                continue;
            }
            let mut spoken_for: Vec<&str> = Vec::new();
            for ticket in &queue.order {
                let Some(request) = self.requests.get(ticket) else { continue };
                if spoken_for.contains(&&*request.model) {
                    continue;
                }
                // Who could try and may not, for want of a place under way, takes nothing either.
                let is_stuck = !queue.has_place()
                    && request.state == State::Waits
                    && request.met.is_none_or(|met| self.may_help(request, met, now_ms));
                let limit = match queue.wanted(request) {
                    Some(limit @ (Limit::Allowance | Limit::Keys)) => limit,
                    // It may be through in a moment, and then it is the next one's turn.
                    _ if request.state == State::Tries => continue,
                    _ => break,
                };
                if is_stuck {
                    break;
                }
                let (priority, passed) = (queue.priority, request.passed);
                let claim = Claim { project, priority, passed, ticket: *ticket };
                holds.push(Hold { claim, limit, model: &request.model });
                match (limit, request.state) {
                    (_, State::Tries) => {}
                    (Limit::Keys, _) => spoken_for.push(&request.model),
                    _ => break,
                }
            }
        }
        holds
    }

    /// Whether somebody of another project tries for the same shared thing right now.
    fn is_contested(&self, project: &AccountId, queue: &Queue, request: &Request) -> bool {
        let wanted = queue.wanted(request).filter(|limit| *limit != Limit::Own);
        let Some(wanted) = wanted else { return false };
        self.trying.iter().filter_map(|ticket| self.requests.get(ticket)).any(|trying| {
            let others = self.queues.get(&trying.project);
            trying.project != *project
                && others.is_some_and(|others| {
                    others.priority >= queue.priority && others.wanted(trying) == Some(wanted)
                })
                && (wanted == Limit::Allowance || trying.model == request.model)
        })
    }

    /// Counts one more for the equals of other projects who wait for what was just taken.
    fn count_passed(&mut self, project: &AccountId, priority: u8, model: &str, now_ms: i64) {
        let holds = self.holds(now_ms);
        let passed = holds.iter().filter(|hold| {
            hold.claim.project != project && hold.claim.priority == priority && hold.wants(model)
        });
        let passed: Vec<_> = passed.map(|hold| hold.claim.ticket).collect();
        for ticket in passed {
            if let Some(request) = self.requests.get_mut(&ticket)
                && request.state == State::Waits
            {
                request.passed += 1;
            }
        }
    }
}

/// Later than everybody.
const LAST: Ticket = Ticket(u64::MAX);

/// Somebody's standing beside those of other projects.
#[derive(Debug, Clone, Copy)]
struct Claim<'a> {
    project: &'a AccountId,
    priority: u8,
    passed: u32,
    ticket: Ticket,
}

/// Somebody who waits for what is shared.
#[derive(Debug)]
struct Hold<'a> {
    claim: Claim<'a>,
    limit: Limit,
    model: &'a str,
}

impl Hold<'_> {
    /// Whether one who wants the keys of `model` would take what it waits for.
    fn wants(&self, model: &str) -> bool {
        self.limit == Limit::Allowance || *self.model == *model
    }

    /// Whether it goes before `other`: it matters more, or was passed often enough. Of those who were, the first.
    fn goes_before(&self, other: Claim<'_>) -> bool {
        let own = self.claim;
        let is_due =
            own.passed >= MOST_PASSED && (other.passed < MOST_PASSED || own.ticket < other.ticket);
        own.priority > other.priority || (own.priority == other.priority && is_due)
    }
}

/// What others wait for who hold back `claim`, which wants the keys of `model`.
fn held_by(holds: &[Hold<'_>], claim: Claim<'_>, model: &str) -> Option<Limit> {
    let others = holds.iter().filter(|hold| {
        hold.claim.project != claim.project && hold.wants(model) && hold.goes_before(claim)
    });
    // Who waits for the allowance holds back calls to all models.
    others.map(|hold| hold.limit).max_by_key(|limit| *limit == Limit::Allowance)
}

impl Queue {
    fn has_place(&self) -> bool {
        self.in_flight.is_none_or(|most| self.under_way < most)
    }

    /// The limit that one of it waits for: what it met, or before its first try what stopped those before it.
    fn wanted(&self, request: &Request) -> Option<Limit> {
        let before = || {
            let (limit, model) = self.met.as_ref()?;
            (*limit != Limit::Keys || *model == request.model).then_some(*limit)
        };
        request.met.map(|met| met.limit).or_else(before)
    }
}

#[cfg(test)]
mod tests;
