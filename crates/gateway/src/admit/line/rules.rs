//! Who goes before whom: the rules of the [line](super). They read it and change nothing.

use std::{cmp::Reverse, sync::Arc};

use keywheel::ledger::AccountId;

use super::{Limit, Line, MOST_PASSED, Met, Queue, Request, State, Ticket};

impl Line {
    /// Whether a newcomer may try without a place in the queue.
    pub(super) fn may_try_at_once(
        &self,
        project: &AccountId,
        model: &Arc<str>,
        now_ms: i64,
    ) -> bool {
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
    pub(super) fn candidate(&self, now_ms: i64) -> Option<Ticket> {
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

    /// The equals of other projects who wait for what one of `project` just took: the keys of `model`, and budget.
    pub(super) fn passed_by(
        &self,
        project: &AccountId,
        priority: u8,
        model: &str,
        now_ms: i64,
    ) -> Vec<Ticket> {
        let holds = self.holds(now_ms);
        let passed = holds.iter().filter(|hold| {
            hold.claim.project != project && hold.claim.priority == priority && hold.wants(model)
        });
        passed.map(|hold| hold.claim.ticket).collect()
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
    pub(super) fn has_place(&self) -> bool {
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
