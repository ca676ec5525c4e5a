//! When does the daily quota come back, here and in Pacific time? `cargo run --example quota_day`
//!
//! With two times, tells whether a run between them crosses a reset:
//! `cargo run --example quota_day -- 2026-11-30T07:30:00Z 2026-11-30T08:30:00Z`

use std::error::Error;

use chrono::{DateTime, Local, Utc};
use keywheel_core::{Clock as _, QuotaDay, SystemClock};

fn main() -> Result<(), Box<dyn Error>> {
    let now = SystemClock.now();
    let today = QuotaDay::containing(now);
    println!("quota day      {} (Pacific)", today.date());
    println!("length         {} hours", today.length().num_hours());
    println!("comes back     {}", today.ends_at().with_timezone(&today.zone()));
    println!("      here     {}", today.ends_at().with_timezone(&Local));
    println!("      in India {}", today.ends_at().with_timezone(&chrono_tz::Asia::Kolkata));
    println!("      in UTC   {}", today.ends_at());

    let moments = std::env::args().skip(1).map(|text| text.parse::<DateTime<Utc>>());
    let moments = moments.collect::<Result<Vec<_>, _>>()?;
    if let [from, to] = moments[..] {
        let verdict = if QuotaDay::straddles(from, to) { "crosses" } else { "does not cross" };
        println!("a run from {from} to {to} {verdict} a reset");
    }
    Ok(())
}
