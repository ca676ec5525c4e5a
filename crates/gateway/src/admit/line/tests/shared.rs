//! What is shared, the allowance and the keys of models, among several projects.

use super::*;

fn of_another_model(project: &str, priority: u8) -> Arrival {
    Arrival { model: "another".into(), ..of(project, priority) }
}

/// Somebody of `arrival`'s project comes, finds room and goes, so often that whoever it passes is due.
fn passes_often(line: &mut Line, arrival: impl Fn() -> Arrival) {
    for _ in 0..MOST_PASSED {
        let passing = goes(line, arrival());
        assert_eq!(line.let_through(passing, T), []);
        assert_eq!(line.let_through(passing, T), [], "told again, which counts once");
    }
}

#[test]
fn those_who_wait_for_different_things_try_at_once() {
    let mut line = Line::default();
    let own =
        [blocked(&mut line, of("a", 0), Limit::Own), blocked(&mut line, of("b", 0), Limit::Own)];
    assert_eq!(line.freed(T), own, "each for its own budget");

    let mut line = Line::default();
    let keys = blocked(&mut line, of("a", 0), Limit::Keys);
    let of_others = blocked(&mut line, of_another_model("b", 0), Limit::Keys);
    let allowance = blocked(&mut line, of_another_model("c", 0), Limit::Allowance);
    assert_eq!(line.look_again(T), [keys, of_others, allowance]);
}

#[test]
fn of_those_who_wait_for_the_allowance_one_tries_at_a_time_whatever_model_it_wants() {
    let mut line = Line::default();
    let first = blocked(&mut line, of("a", 0), Limit::Allowance);
    let second = blocked(&mut line, of_another_model("b", 0), Limit::Allowance);
    assert_eq!(line.freed(T), [first]);
    assert_eq!(line.let_through(first, T), [second]);
}

#[test]
fn who_matters_more_does_not_wait_until_who_matters_less_has_tried() {
    let mut line = Line::default();
    let low = blocked(&mut line, of("low", 0), Limit::Allowance);
    assert_eq!(line.freed(T), [low]);
    let high = blocked(&mut line, of("high", 5), Limit::Allowance);
    assert_eq!(line.freed(T), [high], "and the other still tries");
}

#[test]
fn within_a_project_those_who_wait_for_the_keys_of_another_model_pass() {
    let mut line = Line::default();
    let keys = blocked(&mut line, of("a", 0), Limit::Keys);
    waits(&mut line, of("a", 0));
    let another = blocked(&mut line, of_another_model("a", 0), Limit::Keys);
    assert_eq!(line.look_again(T), [keys, another]);
    goes(&mut line, Arrival { model: "third".into(), ..of("a", 0) });
}

#[test]
fn a_full_queue_is_none_of_the_business_of_who_may_go_at_once() {
    let mut line = Line::default();
    let shallow = |arrival: Arrival| Arrival { depth: 1, ..arrival };
    blocked(&mut line, shallow(of("a", 0)), Limit::Keys);
    goes(&mut line, shallow(of_another_model("a", 0)));
    assert_eq!(line.arrive(shallow(of("a", 0)), T), Err(Full));
    // Nor is a queue in which nobody may wait.
    goes(&mut line, Arrival { depth: 0, ..of("b", 0) });
}

#[test]
fn only_equals_who_take_what_it_waits_for_have_passed_it() {
    for (limit, passing) in [
        (Limit::Allowance, of("higher", 1)),
        (Limit::Keys, of("higher", 1)),
        (Limit::Keys, of_another_model("equal", 0)),
    ] {
        let mut line = Line::default();
        blocked(&mut line, of("large", 0), limit);
        passes_often(&mut line, || passing.clone());
        goes(&mut line, of("small", 0));
    }
}

#[test]
fn of_those_of_a_project_who_want_the_same_only_the_first_is_passed() {
    for (limit, second) in
        [(Limit::Keys, of("large", 0)), (Limit::Allowance, of_another_model("large", 0))]
    {
        let mut line = Line::default();
        blocked(&mut line, of("large", 0), limit);
        let second = waits(&mut line, second);
        passes_often(&mut line, || of("small", 0));
        assert_eq!(line.requests[&second].passed, 0);
        waits(&mut line, of("small", 0));
    }
}

#[test]
fn who_was_passed_often_goes_before_who_came_earlier_and_was_not() {
    let mut line = Line::default();
    let early = blocked(&mut line, of("early", 0), Limit::Own);
    let large = blocked(&mut line, of("large", 0), Limit::Allowance);
    passes_often(&mut line, || of("small", 0));
    assert_eq!(line.freed(T), [large]);
    assert_eq!(line.let_through(large, T), [early]);
}

#[test]
fn who_stands_behind_a_limit_of_its_own_project_s_takes_nothing_from_others() {
    let mut line = Line::default();
    let (first, second) = (goes(&mut line, of("high", 5)), goes(&mut line, of("high", 5)));
    assert_eq!(line.met(second, met(Limit::Allowance), DEPTH, T), Ok(vec![]));
    waits(&mut line, of("low", 0));
    assert_eq!(line.met(first, met(Limit::Own), DEPTH, T), Ok(vec![Ticket(3)]));
    goes(&mut line, of("lowest", 0));
}

#[test]
fn who_tries_for_the_last_place_under_way_holds_back_those_who_matter_less() {
    let mut line = Line::default();
    let one = || Arrival { in_flight: Some(1), ..of("high", 5) };
    let first = blocked(&mut line, one(), Limit::Allowance);
    assert_eq!(line.freed(T), [first]);
    assert_eq!(line.freed(T), [], "more is given back while it tries");
    waits(&mut line, of("low", 0));
}

#[test]
fn who_has_no_place_any_more_since_the_cap_was_lowered_holds_nobody_back() {
    let mut line = Line::default();
    for _ in 0..2 {
        goes(&mut line, of("high", 5));
    }
    let first = blocked(&mut line, of("high", 5), Limit::Allowance);
    let low = waits(&mut line, of("low", 0));
    waits(&mut line, Arrival { in_flight: Some(2), ..of("high", 5) });
    let lowest = waits(&mut line, of("lowest", 0));
    // There may be room now, and it may not look.
    assert_eq!(line.freed(T), [low, lowest]);
    assert!(!line.tries(first));
}

#[test]
fn who_tries_behind_one_who_waited_for_the_allowance_holds_it_as_well() {
    let mut line = Line::default();
    let first = blocked(&mut line, of("high", 5), Limit::Allowance);
    let second = waits(&mut line, of_another_model("high", 5));
    assert_eq!(line.freed(T), [first]);
    assert_eq!(line.let_through(first, T), [second]);
    waits(&mut line, of("low", 0));
}
