//! What a lease costs, beside what a rate limiter costs: `FIGURE name=value` lines, in one run.
//!
//! Ratios are what counts: lease + sent + served with 32 keys within five times one keyed check of governor,
//! and with 10,000 keys of which 9,999 cool within twice that.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![expect(clippy::unwrap_used, reason = "a benchmark may stop")]

use std::{
    hint::black_box,
    num::NonZeroU32,
    time::{Duration, Instant},
};

use governor::{DefaultKeyedRateLimiter, Quota};
use keywheel_core::{ApiKey, Usage};
use keywheel_pool::{Ask, KeySpec, Pool, StateLocation};

const MODEL: &str = "gemini-3.5-flash-lite";

fn main() {
    if let Some(path) = std::env::var_os(state::CHILD) {
        return state::load(path.as_ref());
    }
    // `cargo test --benches` only asks whether it runs.
    let rounds = if std::env::args().any(|arg| arg == "--bench") { 7 } else { 1 };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();

    let small = pool(32);
    let large = pool(10_000);
    runtime.block_on(cool_all_but_one(&large, 10_000));
    let limiter = limiter();
    let ask = Ask::new(MODEL).with_tokens(1_200);

    let mut lease_32 = Vec::new();
    let mut lease_10000 = Vec::new();
    let mut check = Vec::new();
    let mut lease_two = Vec::new();
    let mut check_two = Vec::new();
    // Interleaved, so that whatever else the machine does falls on all of them alike.
    for _ in 0..rounds {
        lease_32.push(per_call(200_000, || lease(&small, &ask)));
        check.push(per_call(1_000_000, || governed(&limiter)));
        lease_10000.push(per_call(200_000, || lease(&large, &ask)));
        lease_two.push(by_two_threads(200_000, &|| lease(&small, &ask)));
        check_two.push(by_two_threads(1_000_000, &|| governed(&limiter)));
    }
    figure("lease_ns_32", best(&lease_32));
    figure("lease_ns_10000", best(&lease_10000));
    figure("governor_ns", best(&check));
    figure("lease_ns_32_two_threads", best(&lease_two));
    figure("governor_ns_two_threads", best(&check_two));
    figure("lease_to_governor", best(&lease_32) / best(&check));
    figure("lease_10000_to_32", best(&lease_10000) / best(&lease_32));
    drop((small, large));
    if !std::env::args().any(|arg| arg == "lease") {
        state::measure(&runtime);
    }
}

fn keys(count: usize) -> Vec<KeySpec> {
    let key = |number| {
        let secret = format!("AQ.EXAMPLE-key-{number}");
        KeySpec::new(ApiKey::new(secret).unwrap(), format!("GEMINI_API_KEY_{number}"))
    };
    (1..=count).map(key).collect()
}

fn pool(count: usize) -> Pool {
    Pool::builder().keys(keys(count)).state(StateLocation::None).build().unwrap()
}

async fn cool_all_but_one(pool: &Pool, count: usize) {
    for number in 2..=count {
        let label = format!("GEMINI_API_KEY_{number}");
        let _ = pool.mark_rate_limited(&label, MODEL, Some(Duration::from_secs(3600))).await;
    }
}

fn limiter() -> DefaultKeyedRateLimiter<u32> {
    DefaultKeyedRateLimiter::keyed(Quota::per_second(NonZeroU32::MAX))
}

/// One call as a client makes it: a key, sent, served.
fn lease(pool: &Pool, ask: &Ask) {
    let mut lease = pool.try_lease(ask).unwrap();
    lease.sent();
    lease.served(black_box(&Usage { input: 1_200, ..Usage::default() }));
}

fn governed(limiter: &DefaultKeyedRateLimiter<u32>) {
    limiter.check_key(black_box(&7)).unwrap();
}

fn per_call(calls: u32, mut call: impl FnMut()) -> f64 {
    for _ in 0..calls / 10 {
        call();
    }
    let start = Instant::now();
    for _ in 0..calls {
        call();
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(calls)
}

/// Time per call when two threads call at once: all calls of both, over the time of the slower.
fn by_two_threads(calls: u32, call: &(impl Fn() + Sync)) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..calls).for_each(|_| call()));
        }
    });
    start.elapsed().as_secs_f64() * 1e9 / f64::from(2 * calls)
}

fn best(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

fn figure(name: &str, value: f64) {
    println!("FIGURE {name}={value:.1}");
}

/// What 10,000 keys with five models each cost: the time to open their state, and the memory it takes.
mod state {
    use super::*;

    /// Set in the process that loads, to the path of the file: memory is measured in a fresh process.
    pub(super) const CHILD: &str = "KEYWHEEL_BENCH_STATE";

    pub(super) fn measure(runtime: &tokio::runtime::Runtime) {
        let folder = std::env::temp_dir().join(format!("keywheel-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("pool.json");
        write(runtime, &path);
        let size = std::fs::metadata(&path).map_or(0, |file| file.len());
        figure("state_file_mb_10000x5", size as f64 / 1e6);
        let own = std::env::current_exe().unwrap();
        let child = std::process::Command::new(own).env(CHILD, &path).status().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(child.success());
    }

    pub(super) fn load(path: &std::path::Path) {
        let (mut best_ms, mut grown) = (f64::INFINITY, 0.0);
        for round in 0..3 {
            let specs = keys(10_000);
            let before = resident_mb();
            let start = Instant::now();
            let builder = Pool::builder().keys(specs);
            let pool = builder.state(StateLocation::File(path.to_path_buf())).build().unwrap();
            best_ms = best_ms.min(start.elapsed().as_secs_f64() * 1e3);
            // The first is the honest one: later ones find memory that the allocator kept.
            if round == 0 {
                grown = resident_mb() - before;
            }
            assert!(pool.try_lease(&Ask::new("model-0")).is_err(), "every key of it cools");
        }
        figure("state_load_ms_10000x5", best_ms);
        figure("state_mb_10000x5", grown);
    }

    fn write(runtime: &tokio::runtime::Runtime, path: &std::path::Path) {
        let pool = Pool::builder()
            .keys(keys(10_000))
            .state(StateLocation::File(path.to_path_buf()))
            .build()
            .unwrap();
        for model in 0..5 {
            let model = format!("model-{model}");
            for number in 1..=10_000 {
                let label = format!("GEMINI_API_KEY_{number}");
                // Not awaited one by one: that would be 50,000 writes to the disk.
                drop(pool.mark_rate_limited(&label, &model, Some(Duration::from_secs(7200))));
            }
        }
        runtime.block_on(pool.flush()).unwrap();
    }

    fn resident_mb() -> f64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
        let kilobytes = line.split_whitespace().nth(1).and_then(|text| text.parse().ok());
        kilobytes.unwrap_or(f64::NAN) / 1e3
    }
}
