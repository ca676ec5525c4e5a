//! Real sockets, both kinds of runtime, many calls at once.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{future::Future, sync::Arc, time::Duration};

use common::{MODEL, NOON, account, assert_balanced, at, key, label, spec, specs};
use futures_util::{StreamExt as _, future::join_all, stream};
use keywheel::{
    Clock, Error, Exhausted, Gemini, GeminiBuilder, GeminiStream, Limits, ManualClock, Reply,
    StateLocation,
};
use keywheel_provider::testing::{Script, Scripted};
use keywheel_sim::{ModelConfig, ProjectConfig, SimConfig, SimServer};
use tokio::{
    io::AsyncReadExt as _,
    net::TcpListener,
    runtime::{Builder, Runtime},
    time::Instant,
};

/// Long enough for any machine; only a hang meets it.
const HANG: Duration = Duration::from_secs(120);

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn on_both<F: Future<Output = ()>>(test: impl Fn() -> F) {
    for runtime in [current_thread(), multi_thread()] {
        runtime.block_on(async { tokio::time::timeout(HANG, test()).await.expect("it hangs") });
    }
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(at(NOON)))
}

fn google(keys: usize, limits: keywheel_sim::Limits) -> SimConfig {
    let config = SimConfig::new().with_model(MODEL, ModelConfig::free(limits));
    (1..=keys).fold(config, |config, number| {
        config.with_project(ProjectConfig::new(format!("p{number}")).with_key(key(number)))
    })
}

fn client(sim: &SimServer, clock: &Arc<ManualClock>, keys: usize) -> GeminiBuilder {
    Gemini::builder()
        .keys(specs(keys))
        .state(StateLocation::None)
        .clock(Arc::<ManualClock>::clone(clock))
        .base_url(sim.base_url())
}

fn is_send<T: Send>(value: T) -> T {
    value
}

#[test]
fn everything_a_call_gives_can_be_sent_to_another_thread() {
    fn is_send_and_sync<T: Send + Sync + 'static>() {}
    is_send_and_sync::<Gemini>();
    is_send_and_sync::<Error>();
    is_send_and_sync::<Reply>();
    is_send_and_sync::<Exhausted>();
    fn is_unpin<T: Send + Unpin + 'static>() {}
    is_unpin::<GeminiStream>();

    multi_thread().block_on(async {
        let sim = SimServer::start(google(1, keywheel_sim::Limits::new()), clock()).await.unwrap();
        let gemini = is_send(client(&sim, &clock(), 1).build()).await.unwrap();
        let call = is_send(gemini.generate(MODEL, "hi").into_future());
        let stream = is_send(gemini.stream(MODEL, "hi").into_future());
        let waiting = is_send(gemini.until_available(MODEL));
        waiting.await.unwrap();
        tokio::spawn(call).await.unwrap().unwrap();
        let mut stream = tokio::spawn(stream).await.unwrap().unwrap();
        let text = tokio::spawn(async move { is_send(stream.text()).await }).await.unwrap();
        assert!(!text.unwrap().is_empty());
    });
}

#[test]
fn calls_and_streams_work_on_both_runtimes() {
    on_both(|| async {
        let limits = keywheel_sim::Limits::new().rpd(100);
        let sim = SimServer::start(google(2, limits), clock()).await.unwrap();
        let gemini = client(&sim, &clock(), 2).build().await.unwrap();
        for _ in 0..3 {
            let reply = gemini.generate(MODEL, "Say hello").await.unwrap();
            assert!(!reply.text().is_empty());
            assert!(reply.usage().is_some());
            let mut stream = gemini.stream(MODEL, "Say hello").await.unwrap();
            assert!(!stream.text().await.unwrap().is_empty());
            assert!(stream.usage().is_some());
        }
        assert_eq!(sim.world().stats().served(), 6);
        assert_balanced(&gemini);
    });
}

#[test]
fn two_hundred_calls_at_once_are_all_served_by_five_keys() {
    on_both(|| async {
        let limits = keywheel_sim::Limits::new().rpd(40);
        let sim = SimServer::start(google(5, limits), clock()).await.unwrap();
        let gemini = client(&sim, &clock(), 5).build().await.unwrap();
        let calls =
            (0..200).map(|i| tokio::spawn(gemini.generate(MODEL, i.to_string()).into_future()));
        for reply in join_all(calls).await {
            reply.unwrap().unwrap();
        }
        let stats = sim.world().stats();
        assert_eq!(stats.served(), 200);
        for (bucket, tally) in &stats.buckets {
            assert_eq!(tally.served, 40, "{}", bucket.project);
        }
        assert_balanced(&gemini);
    });
}

/// What learning costs: one refusal for each bucket, and those that were in flight with it. So many calls at once
/// bound it from above whatever their order; one at a time it is one refusal for each bucket exactly. After that
/// nothing is refused.
#[test]
fn limits_are_learned_once_and_then_kept() {
    on_both(|| async {
        for at_once in [1, 8] {
            let limits = keywheel_sim::Limits::new().rpd(30);
            let sim = SimServer::start(google(5, limits), clock()).await.unwrap();
            let gemini = client(&sim, &clock(), 5).build().await.unwrap();
            let calls = (0..200).map(|i| gemini.generate(MODEL, i.to_string()).into_future());
            let outcomes: Vec<_> = stream::iter(calls).buffer_unordered(at_once).collect().await;
            let mut served = 0;
            for outcome in outcomes {
                match outcome {
                    Ok(_) => served += 1,
                    Err(Error::Exhausted { exhausted, .. }) => assert!(exhausted.soonest.is_some()),
                    Err(other) => panic!("{other}"),
                }
            }
            let stats = sim.world().stats();
            assert_eq!((served, stats.served()), (150, 150), "every bit of quota was used");
            assert!(stats.refused() >= 5, "each bucket has to be found out");
            let most = stats.refused_per_bucket_max();
            assert!(most <= at_once as u64, "{most} refusals with {at_once} at once");
            for _ in 0..10 {
                let error = gemini.generate(MODEL, "more").await.unwrap_err();
                assert!(error.attempts().is_empty(), "{:?}", account(error.attempts()));
            }
            assert_eq!(sim.world().stats().refused(), stats.refused());
            assert_balanced(&gemini);
        }
    });
}

#[test]
fn limits_that_are_known_are_never_gone_over() {
    on_both(|| async {
        let limits = keywheel_sim::Limits::new().rpd(30);
        let sim = SimServer::start(google(5, limits), clock()).await.unwrap();
        let known = Limits { rpd: Some(30), ..Limits::default() };
        let gemini = client(&sim, &clock(), 5).limits("*", known).build().await.unwrap();
        let calls =
            (0..200).map(|i| tokio::spawn(gemini.generate(MODEL, i.to_string()).into_future()));
        let served = join_all(calls).await.into_iter().filter(|call| matches!(call, Ok(Ok(_))));
        assert_eq!(served.count(), 150);
        let stats = sim.world().stats();
        assert_eq!((stats.served(), stats.refused()), (150, 0));
        assert_balanced(&gemini);
    });
}

#[test]
fn dropping_a_call_closes_its_connection() {
    on_both(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let gemini = Gemini::builder()
            .keys([spec(1)])
            .state(StateLocation::None)
            .clock(clock())
            .base_url(url)
            .build()
            .await
            .unwrap();
        let call = tokio::spawn(gemini.generate(MODEL, "hi").into_future());
        let (mut server, _) = listener.accept().await.unwrap();
        let mut buffer = [0; 1_024];
        assert!(server.read(&mut buffer).await.unwrap() > 0, "the request arrives");
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        // The rest of the request, then the end. An abrupt end is an end, too.
        while server.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
        assert_balanced(&gemini);
        assert_eq!(gemini.status().buckets[0].day.requests, 1, "it was sent");
    });
}

#[test]
fn a_server_that_is_not_there_is_said_to_be_down_and_costs_nothing() {
    on_both(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let none = keywheel::RetryConfig { max_retries: 0, ..Default::default() };
        let gemini = Gemini::builder()
            .keys([spec(1)])
            .state(StateLocation::None)
            .clock(clock())
            .base_url(url)
            .retry(none)
            .build()
            .await
            .unwrap();
        let error = gemini.generate(MODEL, "hi").await.unwrap_err();
        assert!(matches!(error, Error::UpstreamDown { .. }), "{error}");
        assert_eq!(error.attempts()[0].label, label(1));
        assert_eq!(gemini.status().buckets[0].day.requests, 0);
        assert_balanced(&gemini);
    });
}

/// A clock without a sleep of its own, as the machine's: the client sleeps by tokio, whose time stands still until
/// nothing else can go on.
#[derive(Debug)]
struct Tokios(Instant);

impl Clock for Tokios {
    fn unix_ms(&self) -> i64 {
        at(NOON).timestamp_millis() + i64::try_from(self.0.elapsed().as_millis()).unwrap()
    }
}

/// The client sleeps in pieces of a second there, to notice that a clock was set: the pieces add up to the deadline.
#[test]
fn deadlines_hold_on_the_machines_clock() {
    current_thread().block_on(async {
        tokio::time::pause();
        let began = Instant::now();
        let script = Script::new();
        let gemini = Gemini::builder()
            .keys([spec(1)])
            .state(StateLocation::None)
            .clock(Arc::new(Tokios(began)))
            .transport(Arc::new(script.clone()))
            .base_url("http://script.invalid")
            .without_daily_checks()
            .build()
            .await
            .unwrap();
        let deadline = Duration::from_millis(2_500);
        script.reply(Scripted::json(200, "{").hang());
        let before = Instant::now();
        let error = gemini.generate(MODEL, "hi").deadline(deadline).await.unwrap_err();
        assert!(matches!(error, Error::DeadlineReached { .. }), "{error}");
        let late = before.elapsed().checked_sub(deadline).expect("not before the deadline");
        // Tokio's timer counts whole milliseconds, and so does the clock.
        assert!(late <= Duration::from_millis(3), "{late:?}");
        assert_balanced(&gemini);
    });
}
