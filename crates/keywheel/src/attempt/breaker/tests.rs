use proptest::prelude::*;

use super::*;

const THRESHOLD: u32 = 5;
/// No jitter.
const BARE: (u32, i64) = (THRESHOLD, 0);
const FAILED: Outcome = Outcome::Failed(None);

/// Sends if it may, and tells what came of it.
fn send(breaker: &mut Breaker, outcome: Outcome, now_ms: i64) -> bool {
    let entry = breaker.enter(now_ms);
    if let Ok(entry) = entry {
        breaker.told(entry, outcome, now_ms, BARE);
    }
    entry.is_ok()
}

fn opened(at_ms: i64) -> Breaker {
    let mut breaker = Breaker::default();
    (0..THRESHOLD).for_each(|_| assert!(send(&mut breaker, FAILED, at_ms)));
    assert_eq!(breaker.gate(at_ms), Gate::ShutUntil(at_ms + 15_000));
    breaker
}

#[test]
fn five_failures_in_a_row_shut_it_and_four_do_not() {
    let mut breaker = Breaker::default();
    for _ in 0..3 {
        (0..4).for_each(|_| assert!(send(&mut breaker, FAILED, 0)));
        assert_eq!(breaker.gate(0), Gate::Open);
        assert!(send(&mut breaker, Outcome::Served, 0));
    }
    opened(0);
}

#[test]
fn names_without_end_do_not_fill_the_memory() {
    let clock = Arc::new(keywheel_core::ManualClock::at(chrono::DateTime::UNIX_EPOCH));
    let breakers = Breakers::new(clock, 1);
    for number in 0..2_000 {
        let model: Arc<str> = format!("m{number}").into();
        breakers.enter(&model).expect("it never failed").tell(FAILED);
    }
    assert_eq!(breakers.lock().len(), MOST_MODELS);
    assert!(matches!(breakers.gate("m0", 0), Gate::ShutUntil(_)));
    assert_eq!(breakers.gate("m1999", 0), Gate::Open, "asked like any other");
}

#[test]
fn failures_far_apart_are_no_row() {
    let mut breaker = Breaker::default();
    for minute in 0..100 {
        assert!(send(&mut breaker, FAILED, minute * 121_000));
    }
    assert_eq!(breaker.gate(i64::MAX), Gate::Open);
}

#[test]
fn probes_come_at_growing_pauses_one_at_a_time() {
    let mut breaker = opened(0);
    let mut now_ms = 0;
    for pause_s in [15, 30, 60, 120, 300, 300, 300] {
        let due_ms = now_ms + pause_s * 1_000;
        assert_eq!(breaker.enter(due_ms - 1), Err(Gate::ShutUntil(due_ms)));
        let probe = breaker.enter(due_ms).expect("the moment of the probe");
        assert_eq!(breaker.enter(due_ms), Err(Gate::Probing));
        now_ms = due_ms + 700;
        breaker.told(probe, FAILED, now_ms, BARE);
    }
    let probe = breaker.enter(now_ms + 300_000).expect("the moment of the probe");
    breaker.told(probe, Outcome::Served, now_ms + 300_500, BARE);
    assert_eq!(breaker, Breaker { last_failure_ms: now_ms, probes: 8, ..Breaker::default() });
}

#[test]
fn a_stated_wait_is_honoured_up_to_ten_minutes() {
    for (stated_s, waits_s) in [(5, 15), (90, 90), (86_400, 600)] {
        let mut breaker = Breaker::default();
        let failed = Outcome::Failed(Some(Duration::from_secs(stated_s)));
        (0..THRESHOLD).for_each(|_| assert!(send(&mut breaker, failed, 0)));
        assert_eq!(breaker.gate(0), Gate::ShutUntil(waits_s * 1_000), "{stated_s} s");
    }
}

#[test]
fn an_abandoned_probe_is_followed_by_another_after_the_same_pause() {
    let mut breaker = opened(0);
    for round in 1..10 {
        let now_ms = round * 15_000;
        let probe = breaker.enter(now_ms).expect("the moment of the probe");
        breaker.told(probe, Outcome::Abandoned, now_ms, BARE);
        assert_eq!(breaker.gate(now_ms), Gate::ShutUntil(now_ms + 15_000));
    }
}

/// A key without quota says nothing of the model, and costs nothing: somebody else tries at once.
#[test]
fn a_probe_that_a_quota_refused_is_followed_by_another_at_once() {
    let mut breaker = opened(0);
    for _ in 0..3 {
        let probe = breaker.enter(15_000).expect("the moment of the probe");
        breaker.told(probe, Outcome::Unclear, 15_000, BARE);
    }
    assert_eq!(breaker.gate(15_000), Gate::Open);
}

#[test]
fn a_late_failure_of_a_call_that_was_sent_before_lengthens_nothing() {
    let mut breaker = Breaker::default();
    let late = breaker.enter(0).expect("nothing has failed");
    (0..THRESHOLD).for_each(|_| assert!(send(&mut breaker, FAILED, 0)));
    breaker.told(late, FAILED, 14_000, BARE);
    assert_eq!(breaker.gate(14_000), Gate::ShutUntil(15_000));
    // Nor does it end somebody else's probe.
    let probe = breaker.enter(15_000).expect("the moment of the probe");
    breaker.told(late, FAILED, 15_001, BARE);
    assert_eq!(breaker.gate(15_002), Gate::Probing);
    breaker.told(probe, FAILED, 15_003, BARE);
    assert_eq!(breaker.gate(15_003), Gate::ShutUntil(45_003));
}

#[test]
fn a_clock_set_back_by_years_shuts_it_for_ten_minutes_at_most() {
    let mut breaker = opened(50 * 365 * 86_400_000);
    assert_eq!(breaker.gate(0), Gate::ShutUntil(600_000));
    // Looking at it does not put the moment off.
    assert_eq!(breaker.gate(400_000), Gate::ShutUntil(600_000));
    assert!(breaker.enter(600_000).is_ok());
}

#[test]
fn without_a_threshold_it_never_shuts() {
    let mut breaker = Breaker::default();
    for now_ms in 0..1_000 {
        let entry = breaker.enter(now_ms).expect("always open");
        breaker.told(entry, FAILED, now_ms, (0, 250));
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Waits(i64),
    Enters,
    /// One of those under way ends.
    Ends(usize, Outcome),
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        1 => Just(Outcome::Served),
        6 => prop::option::of(0_u64..900).prop_map(|s| Outcome::Failed(s.map(Duration::from_secs))),
        1 => Just(Outcome::Unclear),
        1 => Just(Outcome::Abandoned),
    ];
    prop_oneof![
        2 => (0_i64..400_000).prop_map(Step::Waits),
        3 => Just(Step::Enters),
        3 => (any::<usize>(), outcome).prop_map(|(which, outcome)| Step::Ends(which, outcome)),
    ]
}

proptest! {
    /// Whatever happens: one probe at a time, none before its moment, and never shut for longer than ten minutes.
    #[test]
    fn whatever_happens_it_lets_one_probe_through_and_opens_again(
        steps in prop::collection::vec(step(), 1..200),
        jitter in 0_i64..=250,
    ) {
        let mut breaker = Breaker::default();
        let (mut now_ms, mut under_way): (i64, Vec<Entry>) = (0, Vec::new());
        for step in steps {
            match step {
                Step::Waits(ms) => now_ms += ms,
                Step::Enters => {
                    let gate = breaker.gate(now_ms);
                    let entered = breaker.enter(now_ms);
                    prop_assert_eq!(entered.err(), (gate != Gate::Open).then_some(gate));
                    under_way.extend(entered);
                }
                Step::Ends(which, outcome) => {
                    if under_way.is_empty() {
                        continue;
                    }
                    let entry = under_way.swap_remove(which % under_way.len());
                    breaker.told(entry, outcome, now_ms, (THRESHOLD, jitter));
                    if outcome == Outcome::Served {
                        prop_assert_eq!(breaker.gate(now_ms), Gate::Open);
                    }
                }
            }
            if let Gate::ShutUntil(until_ms) = breaker.gate(now_ms) {
                prop_assert!(until_ms > now_ms && until_ms <= now_ms + 600_000);
                prop_assert_eq!(breaker.gate(until_ms), Gate::Open);
            }
            if breaker.gate(now_ms) == Gate::Probing {
                let probes = under_way.iter().filter(|entry| entry.probe == Some(breaker.probes));
                prop_assert_eq!(probes.count(), 1, "a probe that nobody will ever end");
            }
        }
    }

    /// However an outage is met, steady traffic sends a handful of requests into it.
    #[test]
    fn an_outage_gets_five_requests_and_the_probes(
        outage_s in 60_i64..7_200,
        every_ms in 100_i64..20_000,
        jitter in 0_i64..=250,
    ) {
        let mut breaker = Breaker::default();
        let mut sent = 0;
        for now_ms in (0..outage_s * 1_000).step_by(usize::try_from(every_ms).unwrap()) {
            if let Ok(entry) = breaker.enter(now_ms) {
                breaker.told(entry, FAILED, now_ms, (THRESHOLD, jitter));
                sent += 1;
            }
        }
        // 15 s, 30 s, 1 min and 2 min, then one every 5 min.
        let probes = 4 + (outage_s - 225).max(0) / 300 + 1;
        prop_assert!(sent <= 5 + probes, "{} requests in {} s", sent, outage_s);
    }
}
