//! Google refuses this machine's address: every key would meet the same, so nobody sends, longer each time.
//!
//! <https://github.com/snailyp/gemini-balance/issues/241>: many keys behind one address are throttled together.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::time::Duration;

use chrono::TimeDelta;
use common::{MODEL, Rig, secs};
use keywheel::Error;
use keywheel_provider::testing::Scripted;

/// Google's page to machines that it takes for robots, in short.
const SORRY: &str = "<html><head><title>Sorry...</title></head><body><h1>We're sorry...</h1><p>... but your \
                     computer or network may be sending automated queries.</p></body></html>";

fn sorry() -> Scripted {
    let html = http::HeaderValue::from_static("text/html");
    Scripted::status(429).piece(SORRY).header(http::header::CONTENT_TYPE, html)
}

/// One call that meets the block; how long nobody sends after it.
fn blocked(rig: &Rig) -> TimeDelta {
    let error = rig.run(rig.gemini.generate(MODEL, "hi").deadline(Duration::from_secs(1)));
    let Err(Error::Exhausted { exhausted, attempts, .. }) = error else { panic!("{error:?}") };
    assert_eq!(attempts.len(), 1, "another key is no way round a blocked address");
    let wait = exhausted.soonest.unwrap() - keywheel::Clock::now(&rig.clock);
    rig.clock.advance(wait.to_std().unwrap());
    wait
}

#[test]
fn a_blocked_address_holds_every_key_and_twice_as_long_each_time() {
    let rig = Rig::new(3);
    rig.script.otherwise(|_| sorry());
    let waits: Vec<_> = (0..7).map(|_| blocked(&rig)).collect();
    let minutes = [1, 2, 4, 8, 16, 30, 30].map(|minutes| secs(60 * minutes));
    assert_eq!(waits, minutes);

    // One answer, and the next block begins with a minute again.
    rig.script.reply(Scripted::text("Hello"));
    rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(blocked(&rig), secs(60));
    rig.assert_balanced();
}
