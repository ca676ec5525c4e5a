//! The pool by itself, under any client: pick a key, use it, say when it was refused.

use std::{error::Error, time::Duration};

use keywheel::{Ask, KeyLoader, Pool, StateLocation};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let demo = ["A", "B"].map(|x| (format!("GEMINI_API_KEY_{x}"), format!("AQ.EXAMPLE-{x}")));
    let keys = KeyLoader::new().environment(demo).load()?.keys;
    let pool = Pool::builder().keys(keys).state(StateLocation::None).build()?;
    let ask = Ask::new("gemini-3.5-flash-lite");

    let mut lease = pool.try_lease(&ask)?;
    println!("first  {}", lease.label());
    lease.sent(); // ... call the provider with lease.key().expose() ...
    drop(lease); // sent and never reported: it counts

    let wait = Some(Duration::from_secs(90));
    let marked = pool.mark_rate_limited("GEMINI_API_KEY_B", &ask.model, wait).await?;
    println!("B      out until {:?}", marked.until);
    for _ in 0..2 {
        let mut lease = pool.try_lease(&ask)?;
        println!("then   {}", lease.label());
        lease.sent();
    }
    let marked = pool.mark_rate_limited("GEMINI_API_KEY_A", &ask.model, None).await?;
    println!("A      out until {:?} (a guess: nobody said how long)", marked.until);
    match pool.try_lease(&ask) {
        Ok(lease) => println!("unexpected: {}", lease.label()),
        Err(exhausted) => println!("{exhausted}"),
    }
    Ok(())
}
