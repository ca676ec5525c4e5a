//! Working without a model: what your program answers when every key is spent.
//!
//! `cargo run --example degrade`

use keywheel::{Degraded, Error};
use keywheel_examples::{
    demo::Failure,
    show,
    stand::{LITE, Stand},
};
use keywheel_sim::Limits;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let stand = Stand::start(2, |_| Limits::new().rpd(1)).await?;

    let gemini = stand
        .client()
        .on_exhausted(|spent| async move {
            // The request is at hand: answer from a cache, by rules, or by saying when to come back.
            let question = spent.request.contents.last().map(keywheel::Content::text);
            match (question.as_deref(), spent.next_available_at()) {
                (Some("ping"), _) => Degraded::from("pong"),
                (_, Some(at)) => Degraded::from(format!("I can think again {}.", show::moment(at))),
                (_, None) => Degraded::Decline,
            }
        })
        .build()
        .await?;
    for prompt in ["Tell a joke", "Tell another", "And one more", "ping"] {
        let reply = gemini.generate(LITE, prompt).await?;
        let by = reply.served_by().unwrap_or("nobody");
        println!("{prompt}: {} (by {by})", reply.text());
    }

    // Without a callback the error has the same facts.
    let plain = stand.client().build().await?;
    match plain.generate(LITE, "Tell a joke").await {
        Err(Error::Exhausted { exhausted, .. }) => {
            let until = |at| format!("until {}", show::moment(at));
            println!("spent {}", exhausted.soonest.map_or_else(String::new, until));
            for reason in &exhausted.reasons {
                let cause = reason.cause.map_or("busy", keywheel::Cause::as_str);
                println!("  {}: {cause}", reason.labels.join(", "));
            }
            Ok(())
        }
        other => Err(format!("expected a spent day, got {other:?}").into()),
    }
}
