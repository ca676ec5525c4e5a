//! Random histories, beside a world that is as simple as can be.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// What happens in a random history.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// Somebody of this project comes, who wants a model and needs so much.
    Arrive(usize, bool, u64),
    /// One of those who try hears what came of it.
    Resolve(usize),
    /// One of those under way is done.
    Finish(usize),
    /// One of all goes away.
    GoAway(usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..PROJECTS.len(), any::<bool>(), 1..4_u64).prop_map(|(a, b, c)| Event::Arrive(a, b, c)),
        5 => (0..64_usize).prop_map(Event::Resolve),
        3 => (0..64_usize).prop_map(Event::Finish),
        1 => (0..64_usize).prop_map(Event::GoAway),
    ]
}

/// Name, priority, most under way.
const PROJECTS: [(&str, u8, Option<usize>); 4] =
    [("a", 0, None), ("b", 0, Some(2)), ("c", 1, None), ("d", 1, Some(3))];
const OWN: u64 = 5;
const ALLOWANCE: u64 = 9;
const KEYS: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Waits(Option<Limit>),
    Tries,
    IsUnderWay,
    /// It has given back what it took, and not left yet.
    IsDone,
}

#[derive(Debug, Clone, Copy)]
struct One {
    project: usize,
    model: bool,
    needs: u64,
    doing: Doing,
    /// What it met when it last tried.
    met: Option<Limit>,
}

/// The machine beside the world that it works in, as simple as can be.
#[derive(Debug, Default)]
struct World {
    line: Line,
    all: BTreeMap<Ticket, One>,
}

impl World {
    fn taken(&self, of: impl Fn(&One) -> bool) -> impl Iterator<Item = &One> {
        self.all.values().filter(move |one| one.doing == Doing::IsUnderWay && of(one))
    }

    fn limit(&self, one: &One) -> Option<Limit> {
        let needs = |those: &mut dyn Iterator<Item = &One>| those.map(|one| one.needs).sum::<u64>();
        if self.taken(|other| other.model == one.model).count() >= KEYS {
            Some(Limit::Keys)
        } else if needs(&mut self.taken(|other| other.project == one.project)) + one.needs > OWN {
            Some(Limit::Own)
        } else if needs(&mut self.taken(|_| true)) + one.needs > ALLOWANCE {
            Some(Limit::Allowance)
        } else {
            None
        }
    }

    fn nth(&self, n: usize, which: impl Fn(&One) -> bool) -> Option<Ticket> {
        let those: Vec<_> = self.all.iter().filter(|(_, one)| which(one)).collect();
        Some(*those.get(n % those.len().max(1))?.0)
    }

    fn told(&mut self, tickets: Vec<Ticket>) {
        for ticket in tickets {
            self.begins(ticket);
            self.all.get_mut(&ticket).unwrap().doing = Doing::Tries;
        }
    }

    /// The promises, looked at when somebody begins to try.
    fn begins(&self, ticket: Ticket) {
        let one = self.all[&ticket];
        let wants_the_same = |other: &One| match other.met {
            Some(Limit::Allowance) => true,
            Some(Limit::Keys) => other.model == one.model,
            _ => false,
        };
        let (_, priority, cap) = PROJECTS[one.project];
        let mut of_its_own = 0;
        for (earlier, other) in &self.all {
            let is_own = other.project == one.project;
            of_its_own += usize::from(is_own && !matches!(other.doing, Doing::Waits(_)));
            let Doing::Waits(limit) = other.doing else { continue };
            if is_own && *earlier < ticket {
                // It waits for keys of another model, or behind one who does.
                let stands_behind = self.all.iter().any(|(before, first)| {
                    // Of others also those behind one who did.
                    let is_first = match first.project == other.project {
                        true => before < earlier && first.met == Some(Limit::Keys),
                        false => PROJECTS[first.project].1 >= priority,
                    };
                    is_first
                        && first.model == other.model
                        && matches!(first.doing, Doing::Waits(_) | Doing::Tries)
                });
                let is_for_keys = limit == Some(Limit::Keys) || stands_behind;
                let passes = is_for_keys && other.model != one.model;
                assert!(passes, "{ticket:?} {one:?} passes {earlier:?} {other:?}");
            }
            let (_, higher, its_cap) = PROJECTS[other.project];
            if !is_own && higher > priority && wants_the_same(other) {
                let own = || {
                    let own = self.all.iter().filter(|(_, third)| third.project == other.project);
                    own.map(|(ticket, third)| (*ticket, third))
                };
                let waits = |third: &One| matches!(third.doing, Doing::Waits(_));
                let under_way = own().filter(|(_, third)| !waits(third)).count();
                let is_stuck = its_cap.is_some_and(|cap| under_way >= cap);
                // It is not its turn in its own project, whoever else may go.
                let is_behind = own().any(|(before, third)| {
                    let passes = third.met == Some(Limit::Keys) && third.model != other.model;
                    before < *earlier && waits(third) && !passes
                });
                assert!(
                    is_stuck || is_behind,
                    "{ticket:?} {one:?} is taken before {earlier:?} {other:?}"
                );
            }
        }
        assert!(cap.is_none_or(|cap| of_its_own < cap), "{ticket:?} is one too many");
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Arrive(project, model, needs) => {
                let (own, priority, in_flight) = PROJECTS[project];
                let arrival = Arrival {
                    project: name(own),
                    priority,
                    model: if model { "m" } else { "n" }.into(),
                    in_flight,
                    depth: DEPTH,
                };
                let (ticket, may_try) = self.line.arrive(arrival, T).unwrap();
                let one = One { project, model, needs, doing: Doing::Waits(None), met: None };
                self.all.insert(ticket, one);
                if may_try {
                    self.told(vec![ticket]);
                }
            }
            Event::Resolve(n) => {
                let Some(ticket) = self.nth(n, |one| one.doing == Doing::Tries) else { return };
                let limit = self.limit(&self.all[&ticket]);
                let one = self.all.get_mut(&ticket).unwrap();
                one.met = limit.or(one.met);
                let told = match limit {
                    Some(limit) => {
                        one.doing = Doing::Waits(Some(limit));
                        self.line.met(ticket, met(limit), DEPTH, T).unwrap()
                    }
                    None => {
                        one.doing = Doing::IsUnderWay;
                        self.line.let_through(ticket, T)
                    }
                };
                self.told(told);
            }
            Event::Finish(n) => {
                let Some(ticket) = self.nth(n, |one| one.doing == Doing::IsUnderWay) else {
                    return;
                };
                self.all.get_mut(&ticket).unwrap().doing = Doing::IsDone;
                let freed = self.line.freed(T);
                self.told(freed);
                self.all.remove(&ticket);
                let left = self.line.leave(ticket, T);
                self.told(left);
            }
            Event::GoAway(n) => {
                let Some(ticket) = self.nth(n, |_| true) else { return };
                let was_under_way = self.all.remove(&ticket).unwrap().doing == Doing::IsUnderWay;
                let left = self.line.leave(ticket, T);
                self.told(left);
                if was_under_way {
                    let freed = self.line.freed(T);
                    self.told(freed);
                }
            }
        }
        assert_eq!(self.line.requests.len(), self.all.len());
        let waiting = self.all.values().filter(|one| matches!(one.doing, Doing::Waits(_))).count();
        assert!(self.line.queued() >= waiting);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever happens in whatever order: the order holds, no cap is passed, and nobody is forgotten. No look from time
    /// to time helps here: who is not told when it should be would wait for ever.
    #[test]
    fn everybody_is_served_in_order_and_nobody_is_forgotten(
        events in prop::collection::vec(event(), 1..250),
    ) {
        let mut world = World::default();
        for event in events {
            world.happens(event);
        }
        // Nobody comes any more; all the others are done, one after the other.
        let mut steps = 0;
        while !world.all.is_empty() {
            let before = world.all.len();
            let resolved = world.all.values().any(|one| one.doing == Doing::Tries);
            world.happens(if resolved { Event::Resolve(0) } else { Event::Finish(0) });
            steps += 1;
            prop_assert!(
                resolved || world.all.len() < before,
                "all of these wait and nobody tries: {:#?}", world
            );
            prop_assert!(steps < 20_000, "they try for ever");
        }
        prop_assert_eq!(world.line.queued(), 0);
        prop_assert!(world.line.trying.is_empty());
        prop_assert!(world.line.queues.values().all(|queue| queue.under_way == 0));
    }
}
