//! What to answer when no key can: the degradation callback.

use std::{
    cell::RefCell,
    fmt,
    future::{Future, poll_fn},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use futures_util::{FutureExt as _, future::BoxFuture};
use keywheel_pool::Exhausted;
use keywheel_provider::api::{Candidate, Content, FinishReason, GenerateRequest, GenerateResponse};

/// What a degradation callback is told.
#[derive(Debug, Clone)]
pub struct OutOfQuota {
    /// The model asked for.
    pub model: String,
    /// The request that cannot be served now.
    pub request: Arc<GenerateRequest>,
    /// The soonest moment, and bucket by bucket, why. Without buckets if it is the budget that is spent.
    pub exhausted: Exhausted,
    /// The limit of the ledger that stands in the way, if it is the budget that is spent and not the keys.
    #[cfg(feature = "ledger")]
    pub over_budget: Option<keywheel_ledger::Denied>,
}

impl OutOfQuota {
    /// When something can serve again; `None` when waiting will not help (every key is dead).
    #[must_use]
    pub const fn next_available_at(&self) -> Option<DateTime<Utc>> {
        self.exhausted.soonest
    }
}

/// An answer made without the provider, or none.
#[derive(Debug, Clone)]
pub enum Degraded {
    /// A text, handed out as if a model had said it, and marked as degraded.
    Text(String),
    /// A whole response.
    Response(Box<GenerateResponse>),
    /// No answer: the call ends with its error.
    Decline,
}

impl From<String> for Degraded {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Degraded {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<GenerateResponse> for Degraded {
    fn from(response: GenerateResponse) -> Self {
        Self::Response(Box::new(response))
    }
}

impl<T: Into<Self>> From<Option<T>> for Degraded {
    fn from(answer: Option<T>) -> Self {
        answer.map_or(Self::Decline, Into::into)
    }
}

type Callback = dyn Fn(OutOfQuota) -> BoxFuture<'static, Degraded> + Send + Sync;

/// The user's callback, type-erased.
#[derive(Clone)]
pub(crate) struct OnExhausted(Arc<Callback>);

impl OnExhausted {
    pub(crate) fn new<F, Fut, A>(callback: F) -> Self
    where
        F: Fn(OutOfQuota) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = A> + Send + 'static,
        A: Into<Degraded>,
    {
        Self(Arc::new(move |context| {
            let answer = callback(context);
            Box::pin(async move { answer.await.into() })
        }))
    }

    /// What the callback says; `None` if it declines. It is not asked by a call that it makes itself: each would ask
    /// the next, until the stack is full.
    pub(crate) async fn answer(&self, context: OutOfQuota) -> Option<GenerateResponse> {
        let me = Arc::as_ptr(&self.0).addr();
        if ASKED.with_borrow(|asked| asked.contains(&me)) {
            return None;
        }
        let mut answer = {
            let _asked = Asked::now(me);
            (self.0)(context)
        };
        let answer = poll_fn(|cx| {
            let _asked = Asked::now(me);
            answer.poll_unpin(cx)
        });
        match answer.await {
            Degraded::Text(text) => Some(said(text)),
            Degraded::Response(response) => Some(*response),
            Degraded::Decline => None,
        }
    }
}

thread_local! {
    /// The callbacks that run on this thread, one inside the other.
    static ASKED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A callback runs until this is dropped.
struct Asked;

impl Asked {
    fn now(callback: usize) -> Self {
        ASKED.with_borrow_mut(|asked| asked.push(callback));
        Self
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        ASKED.with_borrow_mut(Vec::pop);
    }
}

/// A response in which a model says `text`, whole.
fn said(text: String) -> GenerateResponse {
    let candidate = Candidate {
        content: Some(Content::model([text])),
        finish_reason: Some(FinishReason::Stop),
        ..Candidate::default()
    };
    GenerateResponse { candidates: vec![candidate], ..GenerateResponse::default() }
}

impl fmt::Debug for OnExhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnExhausted")
    }
}
