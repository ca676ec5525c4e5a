//! Any state file is refused or read; what was read survives a rewrite, and a pool can live on it.
#![no_main]

use std::sync::Arc;

use chrono::{DateTime, Utc};
use keywheel_core::{ApiKey, ManualClock};
use keywheel_pool::{Ask, KeySpec, MemoryState, Pool, StateLocation};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(state) = MemoryState::from_json(data) else { return };
    let written = state.json();
    let again = MemoryState::from_json(written.as_bytes()).expect("we read what we write");
    assert!(again.json() == written, "a rewrite changes the file");

    let now = DateTime::<Utc>::from_timestamp_nanos(1_790_000_000_000_000_000);
    let keys = (1..=2).map(|n| {
        let key = ApiKey::new(format!("AQ.EXAMPLE-key-{n}")).expect("a valid key");
        KeySpec::new(key, format!("GEMINI_API_KEY_{n}"))
    });
    let pool = Pool::builder()
        .keys(keys)
        .clock(Arc::new(ManualClock::at(now)))
        .state(StateLocation::Memory(state.clone()))
        .build()
        .expect("a pool builds on any state");
    let _ = pool.status();
    for model in ["gemini-3.5-flash-lite", "m"] {
        if let Ok(mut lease) = pool.try_lease(&Ask::new(model)) {
            lease.sent();
        }
        let _ = pool.next_available(model);
    }
    drop(pool);
    MemoryState::from_json(state.json().as_bytes()).expect("we read what we write");
});
