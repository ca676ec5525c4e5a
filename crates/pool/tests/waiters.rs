//! Hazards: a herd of waiters, queue jumpers, waiters that went away.
//! <https://github.com/BerriAI/litellm/issues/3646>, <https://github.com/diegosouzapw/OmniRoute/issues/495>

#![allow(clippy::unwrap_used, reason = "a test may stop")]

mod common;

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use common::*;
use keywheel_core::Usage;
use keywheel_pool::{Ask, Exhausted, ExhaustedKind, Lease, Limits, Pool};

/// One waiter, polled by hand so that every wake-up is counted.
struct Waiter {
    future: Pin<Box<dyn Future<Output = Result<Lease, Exhausted>> + Send>>,
    bell: Arc<Bell>,
}

struct Bell {
    number: usize,
    rung: Arc<Mutex<Vec<usize>>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.lock().unwrap().push(self.number);
    }
}

/// Many waiters on one pool.
struct Crowd {
    waiters: Vec<Option<Waiter>>,
    rung: Arc<Mutex<Vec<usize>>>,
}

impl Crowd {
    fn new(pool: &Pool, count: usize, ask: &Ask) -> Self {
        let rung = Arc::default();
        let mut crowd = Self { waiters: Vec::new(), rung };
        for _ in 0..count {
            crowd.join(pool, ask.clone());
        }
        crowd
    }

    fn join(&mut self, pool: &Pool, ask: Ask) {
        let pool = pool.clone();
        let bell = Arc::new(Bell { number: self.waiters.len(), rung: Arc::clone(&self.rung) });
        let future = Box::pin(async move { pool.lease(ask).await });
        self.waiters.push(Some(Waiter { future, bell }));
        let number = self.waiters.len() - 1;
        assert!(self.poll(number).is_none(), "nothing can serve yet");
    }

    fn poll(&mut self, number: usize) -> Option<Result<Lease, Exhausted>> {
        let waiter = self.waiters[number].as_mut()?;
        let waker = Waker::from(Arc::clone(&waiter.bell));
        match waiter.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => None,
            Poll::Ready(result) => {
                self.waiters[number] = None;
                Some(result)
            }
        }
    }

    /// Polls whoever was woken until nobody is; returns their answers.
    fn answers(&mut self) -> Vec<Result<Lease, Exhausted>> {
        let mut answers = Vec::new();
        loop {
            let rung = std::mem::take(&mut *self.rung.lock().unwrap());
            if rung.is_empty() {
                return answers;
            }
            answers.extend(rung.into_iter().filter_map(|number| self.poll(number)));
        }
    }

    /// Polls whoever was woken until nobody is; returns who got a lease, in order, and how many were woken.
    fn run(&mut self) -> (Vec<(usize, Lease)>, usize) {
        let (mut served, mut woken) = (Vec::new(), 0);
        loop {
            let rung = std::mem::take(&mut *self.rung.lock().unwrap());
            if rung.is_empty() {
                return (served, woken);
            }
            for number in rung {
                woken += 1;
                if let Some(result) = self.poll(number) {
                    served.push((number, result.unwrap()));
                }
            }
        }
    }
}

/// One key, ten a minute, all used up.
fn full() -> Fixture {
    let fixture = Fixture::with("2026-11-29T12:00:00Z", |builder| {
        builder.keys(keys(1)).limits("*", Limits { rpm: Some(10), ..Limits::default() })
    });
    for _ in 0..10 {
        fixture.serve();
    }
    fixture
}

#[test]
fn ten_thousand_waiters_and_room_for_ten_send_ten_in_order() {
    let fixture = full();
    let mut crowd = Crowd::new(&fixture.pool, 10_000, &Ask::new(MODEL));
    // Every third of the first thirty goes away.
    for number in (0..30).step_by(3) {
        crowd.waiters[number] = None;
    }
    crowd.run();
    fixture.clock.set(fixture.soonest());
    let (served, woken) = crowd.run();
    let order: Vec<_> = served.iter().map(|(number, _)| *number).collect();
    assert_eq!(order, [1, 2, 4, 5, 7, 8, 10, 11, 13, 14]);
    assert!(woken <= 12, "{woken} were woken for ten places");
    assert_eq!(fixture.pool.status().waiting[0].waiters, 10_000 - 10 - 10);
}

#[test]
fn newcomers_do_not_pass_those_who_wait() {
    let fixture = full();
    let mut crowd = Crowd::new(&fixture.pool, 12, &Ask::new(MODEL));
    fixture.clock.set(fixture.soonest());
    // There is room for ten, and twelve came first.
    let exhausted = fixture.lease().unwrap_err();
    assert_eq!(exhausted.kind, ExhaustedKind::Busy);
    let (served, _) = crowd.run();
    assert_eq!(served.len(), 10);
    assert!(fixture.lease().is_err());
}

#[test]
fn what_is_given_back_goes_to_the_first_who_waits() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let held = fixture.lease().unwrap();
    let mut sent = fixture.lease().unwrap();
    sent.sent();
    let mut crowd = Crowd::new(&fixture.pool, 3, &Ask::new(MODEL));
    drop(held);
    let (first, _) = crowd.run();
    assert_eq!(first.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0]);
    // Served: one place comes back and the cap grows by one.
    sent.served(&Usage::default());
    let (next, _) = crowd.run();
    assert_eq!(next.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_head_that_is_cancelled_after_it_was_woken_passes_the_turn_on() {
    let fixture = full();
    let mut crowd = Crowd::new(&fixture.pool, 3, &Ask::new(MODEL));
    fixture.clock.set(fixture.soonest());
    assert_eq!(*crowd.rung.lock().unwrap(), [0], "only the head is woken");
    crowd.rung.lock().unwrap().clear();
    crowd.waiters[0] = None;
    let (served, _) = crowd.run();
    assert_eq!(served.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_call_that_had_its_turn_goes_before_those_who_have_not() {
    let fixture = Fixture::with("2026-11-29T12:00:00Z", |builder| {
        builder.keys(keys(2)).limits("*", Limits { rpm: Some(1), ..Limits::default() })
    });
    fixture.serve();
    fixture.advance(seconds(30));
    let mut failed = fixture.lease().unwrap();
    failed.sent();
    let (label, out) = (failed.label().to_owned(), failed.fingerprint());
    let mut crowd = Crowd::new(&fixture.pool, 2, &Ask::new(MODEL));
    failed.failed(&[]);
    crowd.join(&fixture.pool, Ask::new(MODEL).excluding([out]));
    // Both keys come back half a minute apart; both heads wake for the first.
    fixture.advance(seconds(31));
    let (first, _) = crowd.run();
    let who: Vec<_> = first.iter().map(|(number, _)| *number).collect();
    assert_eq!(who, [2]);
    assert_ne!(first[0].1.label(), label, "and not by the key that failed it");
    fixture.advance(seconds(30));
    let (next, _) = crowd.run();
    assert_eq!(next.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0]);
}

#[test]
fn one_who_waits_for_a_certain_quota_project_does_not_hold_up_the_others() {
    let fixture = Fixture::new(2, "2026-11-29T12:00:00Z");
    let reported = fixture.pool.mark_rate_limited("KEY_1", MODEL, Some(seconds(3_600)));
    drop(reported);
    let owner = fixture.pool.status().keys[0].quota_project.clone();
    let mut crowd = Crowd::new(&fixture.pool, 1, &Ask::new(MODEL).with_affinity(owner.clone()));
    assert_eq!(fixture.serve(), "KEY_2");
    fixture.advance(seconds(3_600));
    let (served, _) = crowd.run();
    assert_eq!(served[0].1.quota_project(), owner);
}

#[test]
fn deadlines_are_answered_when_they_come_or_when_they_cannot_be_met() {
    let fixture = full();
    let now = fixture.now();
    let soonest = fixture.soonest();
    let early = Ask::new(MODEL).by(soonest - chrono::TimeDelta::milliseconds(1));
    let answer = futures(fixture.pool.lease(early));
    assert_eq!(answer.unwrap_err().soonest, Some(soonest), "at once");

    // Eleven who can wait until just after the reset; ten are served, and the eleventh is told at once that
    // the next minute is too late.
    let patient = Ask::new(MODEL).by(soonest + seconds(10));
    let mut crowd = Crowd::new(&fixture.pool, 11, &patient);
    fixture.clock.set(soonest);
    let mut told = Vec::new();
    let mut served = 0;
    for answer in crowd.answers() {
        match answer {
            Ok(mut lease) => {
                lease.sent();
                served += 1;
            }
            Err(exhausted) => told.push(exhausted),
        }
    }
    assert_eq!(served, 10);
    // As long as nothing is sent it may be given back; now it cannot.
    told.extend(crowd.answers().into_iter().filter_map(Result::err));
    assert!(told[0].soonest.unwrap() > now + seconds(120));
}

#[test]
fn a_deadline_while_everybody_is_busy_is_answered_when_it_comes() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let _held = [fixture.lease().unwrap(), fixture.lease().unwrap()];
    let ask = Ask::new(MODEL).by(fixture.now() + seconds(5));
    let mut crowd = Crowd::new(&fixture.pool, 2, &ask);
    fixture.advance(seconds(5));
    let answers = crowd.answers();
    assert_eq!(answers.len(), 2);
    assert!(
        answers
            .iter()
            .all(|answer| { answer.as_ref().is_err_and(|told| told.kind == ExhaustedKind::Busy) })
    );
}

#[test]
fn available_waits_its_turn_and_takes_nothing() {
    let fixture = full();
    let pool = fixture.pool.clone();
    let ask = Ask::new(MODEL);
    let mut looks = Box::pin(async move { pool.available(&ask).await });
    let rung = Arc::new(CountWakes::default());
    let waker = Waker::from(Arc::clone(&rung));
    assert!(looks.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let mut crowd = Crowd::new(&fixture.pool, 10, &Ask::new(MODEL));
    fixture.clock.set(fixture.soonest());
    assert!(rung.0.load(Ordering::SeqCst) > 0);
    assert!(looks.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    assert_eq!(crowd.run().0.len(), 10);
}

#[test]
fn a_dead_last_key_tells_those_who_wait() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let mut sent = [fixture.lease().unwrap(), fixture.lease().unwrap()];
    sent.iter_mut().for_each(Lease::sent);
    let mut crowd = Crowd::new(&fixture.pool, 2, &Ask::new(MODEL));
    let [one, _two] = sent;
    drop(one.refused(&dead()));
    let answers = crowd.answers();
    assert_eq!(answers.len(), 2);
    for answer in answers {
        assert_eq!(answer.unwrap_err().kind, ExhaustedKind::AllDead);
    }
}

/// One key with these limits, of which one call took so much.
fn used(limits: Limits, ask: &Ask) -> Fixture {
    let fixture =
        Fixture::with("2026-11-29T12:00:00Z", |builder| builder.keys(keys(1)).limits("*", limits));
    let mut lease = fixture.pool.try_lease(ask).unwrap();
    lease.sent();
    lease.served(&Usage { input: ask.tokens, ..Usage::default() });
    fixture
}

#[test]
fn a_batch_that_waits_for_tomorrow_holds_up_nobody_who_fits_today() {
    let limits = Limits { rpm: Some(6), rpd: Some(10), ..Limits::default() };
    let fixture = used(limits, &Ask::new(MODEL).with_requests(6));
    let mut crowd = Crowd::new(&fixture.pool, 1, &Ask::new(MODEL).with_requests(5));
    // For today's last four it takes the next minute, and one of them has no longer than that.
    let soonest = fixture.soonest();
    crowd.join(&fixture.pool, Ask::new(MODEL).by(soonest + seconds(1)));
    crowd.join(&fixture.pool, Ask::new(MODEL).with_requests(2));
    fixture.clock.set(soonest);
    let (served, _) = crowd.run();
    assert_eq!(served.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2]);
    fixture.serve();
    assert!(fixture.lease().is_err(), "ten are ten");
    drop(served);
    fixture.serve();
    // Tomorrow it is served, however many were before it.
    fixture.clock.set(at("2026-11-30T08:00:05Z"));
    assert_eq!(crowd.run().0.len(), 1);
}

#[test]
fn a_small_ask_passes_a_large_one_that_is_served_no_later_for_it() {
    let limits = Limits { tpm: Some(250_000), ..Limits::default() };
    let fixture = used(limits, &Ask::new(MODEL).with_tokens(100_000));
    let large = Ask::new(MODEL).with_tokens(200_000);
    let soonest = fixture.pool.next_available_for(&large).unwrap();
    let mut crowd = Crowd::new(&fixture.pool, 1, &large);
    for tokens in [10, 20_000] {
        let mut small = futures(fixture.pool.lease(Ask::new(MODEL).with_tokens(tokens))).unwrap();
        small.sent();
        small.served(&Usage { input: tokens, ..Usage::default() });
    }
    fixture.clock.set(soonest);
    assert_eq!(crowd.run().0.len(), 1, "served at the moment that it was told");
}

#[test]
fn smaller_asks_do_not_starve_a_large_one() {
    let limits = Limits { tpm: Some(250_000), ..Limits::default() };
    let fixture = used(limits, &Ask::new(MODEL).with_tokens(100_000));
    let large = Ask::new(MODEL).with_tokens(200_000);
    let soonest = fixture.pool.next_available_for(&large).unwrap();
    let mut crowd = Crowd::new(&fixture.pool, 1, &large);
    let smaller = Ask::new(MODEL).with_tokens(60_000);
    crowd.join(&fixture.pool, smaller.clone());
    while fixture.now() + seconds(10) < soonest {
        fixture.advance(seconds(10));
        assert!(fixture.pool.try_lease(&smaller).is_err());
        assert!(crowd.run().0.is_empty());
    }
    fixture.clock.set(soonest);
    let (served, _) = crowd.run();
    assert_eq!(served.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0]);
}

#[test]
fn a_large_ask_holds_others_back_for_its_minute_and_no_longer() {
    let limits = Limits { tpm: Some(250_000), ..Limits::default() };
    let fixture = used(limits, &Ask::new(MODEL));
    // Somebody took a key and does not send: nobody knows when there will be room.
    let _held = fixture.pool.try_lease(&Ask::new(MODEL).with_tokens(100_000)).unwrap();
    let mut crowd = Crowd::new(&fixture.pool, 1, &Ask::new(MODEL).with_tokens(200_000));
    crowd.join(&fixture.pool, Ask::new(MODEL).with_tokens(10));
    fixture.advance(seconds(64));
    assert!(crowd.run().0.is_empty());
    fixture.advance(seconds(1));
    let (served, _) = crowd.run();
    assert_eq!(served.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1]);
    assert!(fixture.lease().is_ok());
}

#[test]
fn one_large_ask_keeps_one_key_and_not_all() {
    let fixture = Fixture::with("2026-11-29T12:00:00Z", |builder| {
        builder.keys(keys(3)).limits("*", Limits { tpm: Some(250_000), ..Limits::default() })
    });
    for _ in 0..3 {
        let mut lease = fixture.pool.try_lease(&Ask::new(MODEL).with_tokens(100_000)).unwrap();
        lease.sent();
        lease.served(&Usage { input: 100_000, ..Usage::default() });
        fixture.advance(seconds(1));
    }
    let _crowd = Crowd::new(&fixture.pool, 1, &Ask::new(MODEL).with_tokens(200_000));
    let smaller = Ask::new(MODEL).with_tokens(100_000);
    let leases = [(); 3].map(|()| fixture.pool.try_lease(&smaller));
    let served: Vec<_> = leases.iter().flatten().map(|lease| lease.label().to_owned()).collect();
    assert_eq!(served, ["KEY_2", "KEY_3"]);
}

#[test]
fn a_future_that_is_not_polled_keeps_nobody_waiting() {
    let fixture = full();
    let soonest = fixture.soonest();
    let mut crowd = Crowd::new(&fixture.pool, 3, &Ask::new(MODEL));
    crowd.join(&fixture.pool, Ask::new(MODEL).with_tools());
    fixture.clock.set(soonest);
    // The first is called, and nobody polls it.
    let forgotten = crowd.waiters[0].take();
    assert!(fixture.lease().is_err(), "it has its turn for a moment");
    assert!(crowd.run().0.is_empty());
    fixture.advance(std::time::Duration::from_millis(100));
    let (served, _) = crowd.run();
    let mut who: Vec<_> = served.iter().map(|(number, _)| *number).collect();
    who.sort_unstable();
    assert_eq!(who, [1, 2, 3]);
    fixture.serve();
    crowd.waiters[0] = forgotten;
    // Once it is polled it is served, and nothing of it was lost.
    assert!(crowd.poll(0).unwrap().is_ok());
    assert!(fixture.pool.status().waiting.is_empty());
}

#[test]
fn whoever_comes_passes_a_future_that_is_not_polled() {
    let fixture = full();
    let crowd = Crowd::new(&fixture.pool, 1, &Ask::new(MODEL));
    fixture.clock.set(fixture.soonest());
    assert!(fixture.lease().is_err());
    fixture.advance(std::time::Duration::from_millis(99));
    assert!(fixture.lease().is_err());
    fixture.advance(std::time::Duration::from_millis(1));
    fixture.serve();
    drop(crowd);
}

#[test]
fn those_behind_a_future_that_is_not_polled_are_answered_at_their_own_deadlines() {
    let fixture = Fixture::new(1, "2026-11-29T12:00:00Z");
    let _held = [fixture.lease().unwrap(), fixture.lease().unwrap()];
    let mut crowd = Crowd::new(&fixture.pool, 1, &Ask::new(MODEL));
    for wait in [7, 5, 6] {
        crowd.join(&fixture.pool, Ask::new(MODEL).by(fixture.now() + seconds(wait)));
    }
    let _forgotten = crowd.waiters[0].take();
    for answered in [0, 0, 0, 0, 1, 1, 1] {
        fixture.advance(seconds(1));
        assert_eq!(crowd.answers().len(), answered);
    }
}

#[derive(Default)]
struct CountWakes(AtomicUsize);

impl Wake for CountWakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Polls a future that must be ready at once.
fn futures<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(CountWakes::default()));
    match Box::pin(future).as_mut().poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it should not have to wait"),
    }
}
