mod random;
mod shared;

use super::*;

const T: i64 = 1_796_000_000_000;
const DEPTH: usize = 100;

fn name(project: &str) -> AccountId {
    AccountId::new(project).unwrap()
}

fn of(project: &str, priority: u8) -> Arrival {
    let (project, model) = (name(project), "m".into());
    Arrival { project, priority, model, in_flight: None, depth: DEPTH }
}

fn met(limit: Limit) -> Met {
    Met { limit, until_ms: None, may_be_freed: true }
}

/// Comes and meets `limit` at once.
fn blocked(line: &mut Line, arrival: Arrival, limit: Limit) -> Ticket {
    let (ticket, may_try) = line.arrive(arrival, T).unwrap();
    assert!(may_try);
    assert_eq!(line.met(ticket, met(limit), DEPTH, T), Ok(vec![]));
    ticket
}

/// Comes and has to wait.
fn waits(line: &mut Line, arrival: Arrival) -> Ticket {
    let (ticket, may_try) = line.arrive(arrival, T).unwrap();
    assert!(!may_try);
    ticket
}

fn goes(line: &mut Line, arrival: Arrival) -> Ticket {
    let (ticket, may_try) = line.arrive(arrival, T).unwrap();
    assert!(may_try);
    ticket
}

#[test]
fn with_room_for_all_nobody_waits_and_nothing_is_left() {
    let mut line = Line::default();
    let all: Vec<_> = (0..3).map(|_| goes(&mut line, of("a", 0))).collect();
    for ticket in all {
        assert_eq!(line.let_through(ticket, T), []);
        assert_eq!(line.let_through(ticket, T), [], "told again");
        assert_eq!(line.leave(ticket, T), []);
        assert_eq!(line.leave(ticket, T), [], "gone already");
    }
    assert!(line.requests.is_empty());
    assert_eq!(line.each().collect::<Vec<_>>(), [(&name("a"), 0, 0)]);
}

#[test]
fn within_a_project_nobody_passes_and_they_try_one_by_one() {
    let mut line = Line::default();
    let first = blocked(&mut line, of("a", 0), Limit::Own);
    let second = waits(&mut line, of("a", 0));
    let third = waits(&mut line, of("a", 0));
    assert_eq!(line.next(T), [], "nothing changed");
    assert_eq!(line.freed(T), [first]);
    assert_eq!(line.next(T), [], "it is told once");
    assert_eq!(line.let_through(first, T), [second]);
    // What is freed while it tries may help it, though it met the limit before.
    assert_eq!(line.freed(T), []);
    assert_eq!(line.met(second, met(Limit::Own), DEPTH, T), Ok(vec![second]));
    assert_eq!(line.met(second, met(Limit::Own), DEPTH, T), Ok(vec![]));
    // Who goes away lets the next one look.
    assert_eq!(line.leave(second, T), [third]);
    assert_eq!(line.let_through(third, T), []);
    goes(&mut line, of("a", 0));
}

#[test]
fn those_who_came_at_once_stand_as_they_came() {
    let mut line = Line::default();
    let all: Vec<_> = (0..4).map(|_| goes(&mut line, of("a", 0))).collect();
    // They hear of it in another order.
    for place in [2, 0, 3, 1] {
        assert_eq!(line.met(all[place], met(Limit::Own), DEPTH, T), Ok(vec![]));
    }
    assert_eq!(line.freed(T), [all[0]]);
    assert_eq!(line.let_through(all[0], T), [all[1]], "there may be room for more");
    assert_eq!(line.met(all[1], met(Limit::Own), DEPTH, T), Ok(vec![]));
    assert_eq!(line.freed(T), [all[1]]);
}

#[test]
fn a_limit_of_ones_own_holds_nobody_else_back() {
    let mut line = Line::default();
    blocked(&mut line, of("important", 9), Limit::Own);
    goes(&mut line, of("other", 0));
}

#[test]
fn the_allowance_is_for_the_highest_priority_first() {
    let mut line = Line::default();
    let low = blocked(&mut line, of("low", 1), Limit::Allowance);
    let high = blocked(&mut line, of("high", 5), Limit::Allowance);
    let lowest = waits(&mut line, of("lowest", 0));
    goes(&mut line, of("higher", 6));
    assert_eq!(line.freed(T), [high], "one tries at a time");
    assert_eq!(line.let_through(high, T), [low]);
    // It may not be enough for this one, and the one below still has to wait for it.
    assert_eq!(line.met(low, met(Limit::Allowance), DEPTH, T), Ok(vec![]));
    assert_eq!(line.leave(low, T), [lowest]);
}

#[test]
fn the_keys_of_a_model_are_for_the_highest_priority_first_and_other_models_go_on() {
    let mut line = Line::default();
    let high = blocked(&mut line, of("high", 5), Limit::Keys);
    let low = waits(&mut line, of("low", 1));
    let another = || Arc::<str>::from("another");
    goes(&mut line, Arrival { model: another(), ..of("low", 1) });
    // Also in the same project: they do not want the same. But who wants the same stands in line.
    goes(&mut line, Arrival { model: another(), ..of("high", 5) });
    waits(&mut line, of("high", 5));
    let served = goes(&mut line, Arrival { model: another(), ..of("third", 5) });
    assert_eq!(line.freed(T), [], "budget is not what it waits for");
    assert_eq!(line.leave(served, T), [high], "a key that is free again may be the one");
    assert_eq!(line.leave(high, T), [Ticket(high.0 + 4)]);
    assert!(!line.tries(low));
}

#[test]
fn time_alone_helps_who_waits_for_a_moment() {
    let mut line = Line::default();
    let ticket = goes(&mut line, of("a", 0));
    let day = Met { limit: Limit::Own, until_ms: Some(T + 5_000), may_be_freed: false };
    assert_eq!(line.met(ticket, day, DEPTH, T), Ok(vec![]));
    assert_eq!(line.freed(T), [], "what others give back does not help before");
    assert_eq!(line.next_moment(T), Some(T + 5_000));
    assert_eq!(line.next(T + 4_999), []);
    assert_eq!(line.next(T + 5_000), [ticket]);
    // Said to come at once, and it does not: no loop without a pause.
    let now = T + 5_000;
    assert_eq!(line.met(ticket, Met { until_ms: Some(now), ..day }, DEPTH, now), Ok(vec![]));
    assert_eq!(line.next_moment(now), Some(now + SHORTEST_PAUSE_MS));
    assert_eq!(line.next_moment(now + SHORTEST_PAUSE_MS), None, "it is there");
    let other = goes(&mut line, of("b", 0));
    let later = Met { until_ms: Some(now + 9_000), ..day };
    assert_eq!(line.met(other, later, DEPTH, now), Ok(vec![]));
    assert_eq!(line.next_moment(now), Some(now + SHORTEST_PAUSE_MS), "the soonest");
    assert_eq!(line.look_again(now), [ticket, other], "nobody knows what others did");
}

#[test]
fn no_more_are_under_way_than_the_cap_and_they_follow_in_their_order() {
    let mut line = Line::default();
    // What somebody met who is gone says nothing of those who come now.
    let gone = blocked(&mut line, of("a", 0), Limit::Own);
    line.leave(gone, T);
    let two = || Arrival { in_flight: Some(2), ..of("a", 0) };
    let (one, other) = (goes(&mut line, two()), goes(&mut line, two()));
    let waiting: Vec<_> = (0..3).map(|_| waits(&mut line, two())).collect();
    assert!(line.wants_a_place(waiting[0]));
    blocked(&mut line, of("b", 0), Limit::Own);
    let behind = waits(&mut line, of("b", 0));
    assert!(!line.wants_a_place(behind), "there are places enough");
    assert_eq!(line.let_through(one, T), [], "under way until it leaves");
    assert_eq!(line.leave(one, T), [waiting[0]]);
    // None of them met a limit: they need not try one by one.
    assert_eq!(line.leave(other, T), [waiting[1]]);
    assert_eq!(line.leave(waiting[0], T), [waiting[2]]);
}

#[test]
fn who_waits_for_a_place_in_its_own_project_holds_nobody_else_back() {
    let mut line = Line::default();
    let one = || Arrival { in_flight: Some(1), ..of("high", 5) };
    let first = blocked(&mut line, one(), Limit::Allowance);
    let second = waits(&mut line, one());
    let low = waits(&mut line, of("low", 0));
    assert_eq!(line.freed(T), [first]);
    assert_eq!(line.let_through(first, T), [low], "there may be more, and the second has no place");
    goes(&mut line, of("lowest", 0));
    assert_eq!(line.leave(first, T), [second]);
}

#[test]
fn a_queue_is_no_deeper_than_its_bound_but_who_comes_back_has_his_place() {
    let mut line = Line::default();
    let shallow = || Arrival { depth: 2, ..of("a", 0) };
    let newcomer = goes(&mut line, shallow());
    let first = blocked(&mut line, shallow(), Limit::Own);
    waits(&mut line, shallow());
    assert_eq!(line.arrive(shallow(), T), Err(Full));
    assert_eq!(line.freed(T), [first]);
    assert_eq!(line.arrive(shallow(), T), Err(Full), "who tries may come back");
    assert_eq!(line.met(first, met(Limit::Own), 2, T), Ok(vec![]));
    assert_eq!(line.met(newcomer, met(Limit::Own), 2, T), Err(Full));
    line.leave(newcomer, T);
    goes(&mut line, of("b", 0));
}

#[test]
fn equals_take_turns() {
    let mut line = Line::default();
    let mut whose = HashMap::default();
    for project in ["a", "b", "c"] {
        whose.insert(blocked(&mut line, of(project, 3), Limit::Allowance), project);
        for _ in 0..3 {
            whose.insert(waits(&mut line, of(project, 3)), project);
        }
    }
    // Room for one, again and again.
    let mut order = String::new();
    for _ in 0..12 {
        let mut trying = line.freed(T);
        assert_eq!(trying.len(), 1);
        let through = trying.remove(0);
        order.push_str(whose[&through]);
        let mut others = line.let_through(through, T);
        while let Some(other) = others.pop() {
            others.extend(line.met(other, met(Limit::Allowance), DEPTH, T).unwrap());
        }
    }
    assert_eq!(order, "abcabcabcabc");
}

#[test]
fn one_who_needs_much_is_passed_by_equals_a_few_times_and_then_waited_for() {
    let mut line = Line::default();
    let large = blocked(&mut line, of("large", 0), Limit::Allowance);
    for _ in 0..MOST_PASSED {
        let small = goes(&mut line, of("small", 0));
        assert_eq!(line.let_through(small, T), []);
    }
    let small = waits(&mut line, of("small", 0));
    goes(&mut line, of("higher", 1));
    assert_eq!(line.freed(T), [large]);
    assert_eq!(line.let_through(large, T), [small]);
}

#[test]
fn two_who_were_passed_often_do_not_wait_for_each_other() {
    let mut line = Line::default();
    let one = blocked(&mut line, of("one", 0), Limit::Allowance);
    let two = blocked(&mut line, of("two", 0), Limit::Allowance);
    for _ in 0..MOST_PASSED {
        let small = goes(&mut line, of("small", 0));
        line.let_through(small, T);
    }
    assert_eq!(line.freed(T), [one]);
    assert_eq!(line.met(one, met(Limit::Allowance), DEPTH, T), Ok(vec![]));
    assert_eq!(line.leave(one, T), [two]);
}

#[test]
fn who_comes_back_after_it_was_let_through_stands_where_it_stood() {
    let mut line = Line::default();
    let first = goes(&mut line, of("a", 0));
    assert_eq!(line.let_through(first, T), []);
    let second = blocked(&mut line, of("a", 0), Limit::Own);
    // The provider refused all keys.
    assert_eq!(line.met(first, met(Limit::Keys), DEPTH, T), Ok(vec![]));
    assert_eq!(
        line.each().collect::<Vec<_>>(),
        [(&name("a"), 2, 0)],
        "its place under way is free"
    );
    assert_eq!(line.look_again(T), [first]);
    assert_eq!(line.let_through(first, T), [second]);
}
