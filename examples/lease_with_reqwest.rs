//! The pool under somebody else's client: here plain reqwest, against the simulator.
//!
//! The pool picks the key and learns from the reply; `classify` reads what the reply means.

use keywheel::{Ask, Pool, StateLocation, SystemClock, Usage};
use keywheel_core::{Clock as _, scrub::scrub};
use keywheel_examples::demo::{self, MODEL};
use keywheel_provider::classify::{Asked, Dialect, Kind, Reply, classify};

#[tokio::main]
async fn main() -> Result<(), demo::Failure> {
    let server = demo::start().await?;
    let pool = Pool::builder().keys(demo::keys()?).state(StateLocation::None).build()?;
    let url = format!("{}/v1beta/models/{MODEL}:generateContent", server.base_url());
    // The key travels in a header: a client that follows redirects would hand it to another host.
    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;

    for _ in 0..4 {
        let mut lease = pool.lease(Ask::new(MODEL)).await?;
        lease.sent();
        let reply = http
            .post(&url)
            .header("x-goog-api-key", lease.key().expose())
            .body(r#"{"contents":[{"parts":[{"text":"hello"}]}]}"#)
            .send()
            .await?;
        let (status, headers) = (reply.status().as_u16(), reply.headers().clone());
        let body = reply.bytes().await?;
        let asked = Asked { model: Some(MODEL), ..Asked::default() };
        let reply = Reply { status, headers: &headers, body: &body };
        let verdict = classify(Dialect::Gemini, &reply, &asked, SystemClock.now());
        println!("{:<20} {}", lease.label(), verdict.kind.as_str());
        match verdict.kind {
            Kind::Served => {
                let usage = Usage::from_json(&serde_json::from_slice(&body)?);
                lease.served(&usage.unwrap_or_default());
            }
            Kind::Refused(_) => {
                println!("{:<20} {}", "", scrub(&verdict.message, &[lease.key()]));
                let reported = lease.refused(&keywheel::refusal(&verdict)).await;
                println!("{:<20} until {:?}", "", reported.until);
            }
        }
    }
    Ok(())
}
