//! Three requests to Google with the keys of the environment: enough to see it work, never enough to spend a day.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::future::{self, BoxFuture, FutureExt as _};
use keywheel::{Gemini, Timeouts};
use keywheel_provider::{
    Sent, Transport, TransportError, TransportKind, WireRequest, WireResponse,
    http::HttpTransport,
    upstream::{GOOGLE, Upstream},
};

use crate::{demo::Failure, show};

/// Requests, not calls: a call may try several keys.
const MOST_REQUESTS: usize = 3;

/// Makes two calls and one stream, as far as three requests go.
///
/// # Errors
/// No keys, or what the last call ended with.
pub async fn run(model: &str) -> Result<(), Failure> {
    let transport = Capped {
        inner: HttpTransport::new(&Timeouts::default())?,
        left: Arc::new(AtomicUsize::new(MOST_REQUESTS)),
    };
    let gemini =
        Gemini::builder().transport(Arc::new(transport)).without_daily_checks().build().await?;
    let keys = gemini.status().keys;
    let place = Upstream::base_url_from(|name| std::env::var(name).ok());
    let place = place.as_deref().unwrap_or(GOOGLE);
    println!("Talking to {place} with {} key(s): {MOST_REQUESTS} requests at most.", keys.len());
    for prompt in ["Say hello", "Say goodbye"] {
        let reply = gemini.generate(model, prompt).await?;
        show::reply(&reply);
        println!("    {}", reply.text().trim());
    }
    show::stream(gemini.stream(model, "Count to three").await?).await?;
    Ok(())
}

/// Sends so many requests and then no more.
#[derive(Debug)]
struct Capped {
    inner: HttpTransport,
    left: Arc<AtomicUsize>,
}

impl Transport for Capped {
    fn send(
        &self,
        request: WireRequest,
    ) -> BoxFuture<'static, Result<WireResponse, TransportError>> {
        let take = |left: usize| left.checked_sub(1);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
            return self.inner.send(request);
        }
        let spent = format!("the demo's {MOST_REQUESTS} requests are used up");
        future::err(TransportError::new(TransportKind::Request, Sent::No, spent)).boxed()
    }
}
