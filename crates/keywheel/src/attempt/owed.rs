//! What is owed for a reply in the caller's hands, until its last byte, an error, or the drop: its key goes back, the breaker
//! and the ledger are told how it ended, and until then that it is still being read.

use std::{
    convert::Infallible,
    fmt::Display,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use http::HeaderMap;
use keywheel_core::Usage;
use keywheel_pool::Ask;
use keywheel_provider::classify::Reply;

use super::{
    Served,
    breaker::Outcome,
    judge::judge,
    outcome::{Next, PoolOutcome, decide},
};
use crate::{
    Error,
    charging::{Slip, Spent},
    gemini::Inner,
    time::{pause, timer},
};

/// How long the end of the body is waited for once the answer is whole. What comes then, if anything, is the usage.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// To be awaited before the caller hears how its reply ended: the ledger has it then, and the pool what it puts on record.
pub(super) type Settling = BoxFuture<'static, ()>;

/// An attempt whose reply is being read. Dropped, it is settled as what was seen last.
pub(super) struct Owed {
    inner: Arc<Inner>,
    served: Served,
    /// It costs what was reserved, whatever its reply says.
    is_fixed: bool,
    /// Tells the ledger that it is still being read.
    renewing: Option<BoxFuture<'static, Infallible>>,
    deadline: Option<BoxFuture<'static, ()>>,
    /// Runs while nothing comes after a whole answer.
    end: Option<BoxFuture<'static, ()>>,
}

impl Owed {
    /// For a reply that nobody has to watch over: all of it is here.
    pub(super) fn new(inner: &Arc<Inner>, served: Served) -> Self {
        let inner = Arc::clone(inner);
        Self { inner, served, is_fixed: false, renewing: None, deadline: None, end: None }
    }

    /// For one that is still to come, and may take until `end_ms`.
    pub(super) fn watched(mut self, end_ms: Option<i64>) -> Self {
        let clock = &self.inner.clock;
        self.renewing = self.served.slip.renewing(clock);
        self.deadline = end_ms.map(|at_ms| timer(clock, at_ms));
        self
    }

    /// For one that costs what was reserved, whatever it says.
    pub(super) const fn fixed(mut self) -> Self {
        self.is_fixed = true;
        self
    }

    /// Some of it was read, and it has cost so much by now.
    pub(super) fn was_read(&mut self, usage: Option<Usage>) {
        self.end = None;
        self.served.slip.is(Spent::CutShort, self.charged(usage));
    }

    /// The model answers. `is_here`: with all that there is, so that the pool hears of the end next.
    pub(super) fn answers(&mut self, is_here: bool) {
        if let Some(pass) = self.served.pass.take() {
            pass.tell(Outcome::Served);
            if !is_here {
                self.served.lease.answers();
            }
        }
    }

    /// Ready once the deadline has come.
    pub(super) fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(renewing) = &mut self.renewing {
            let _never = renewing.poll_unpin(cx);
        }
        self.deadline.as_mut().map_or(Poll::Pending, |deadline| deadline.poll_unpin(cx))
    }

    /// For an answer that is whole: ready once nothing more has come for a while.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let clock = &self.inner.clock;
        self.end.get_or_insert_with(|| pause(clock, END_PATIENCE)).poll_unpin(cx)
    }

    /// It was read to its end, and has cost so much. What is returned is to be settled.
    pub(super) fn whole(self, model: &Arc<str>, usage: Option<Usage>) -> Slip {
        let charged = self.charged(usage);
        let mut slip = self.served.tell(&self.inner, model, usage);
        slip.is(Spent::Answered, charged);
        slip
    }

    /// The deadline came before its end.
    pub(super) fn late(self) -> Settling {
        self.is_given_up();
        self.served.lease.failed(&[]);
        // The slip says already what was seen.
        self.served.slip.settle().boxed()
    }

    /// It broke off, for `reason` or with an error of the provider's, the `body`. Nobody can take over any more.
    pub(super) fn broke(
        self,
        ask: &Ask,
        reason: &dyn Display,
        body: Option<&[u8]>,
        usage: Option<Usage>,
    ) -> (Settling, Error) {
        self.is_given_up();
        let charged = self.charged(usage);
        let Self { inner, served, .. } = self;
        let Served { lease, pass, mut slip, .. } = served;
        let refused = body.and_then(|body| {
            let reply = Reply { status: 200, headers: &HeaderMap::new(), body };
            judge(inner.upstream.dialect(), &reply, ask, lease.key(), inner.clock.now())
        });
        let Some(refused) = refused else {
            if let Some(pass) = pass {
                pass.tell(Outcome::Failed(None));
            }
            lease.failed(&[]);
            let error = Error::StreamBroken { reason: reason.to_string(), verdict: None };
            return (slip.settle().boxed(), error);
        };
        let (told, spent, next) = decide(&refused);
        // Once an answer has begun it was refused too late to cost nothing.
        slip.is(if pass.is_some() { spent } else { Spent::CutShort }, charged);
        if let Some(pass) = pass {
            pass.tell(match next {
                Next::Retry { hint } => Outcome::Failed(hint),
                Next::OtherKey | Next::HandBack => Outcome::Unclear,
            });
        }
        let verdict = Box::new(refused.verdict);
        let reason = format!("{} ({})", refused.cause, verdict.message);
        let report = match told {
            PoolOutcome::Refused(refusal) => Some(lease.refused(&refusal)),
            PoolOutcome::Failed => {
                lease.failed(&verdict.effects);
                None
            }
        };
        let settling = async move {
            slip.settle().await;
            if let Some(report) = report {
                let _reported = report.await;
            }
        };
        (settling.boxed(), Error::StreamBroken { reason, verdict: Some(verdict) })
    }

    fn is_given_up(&self) {
        self.inner.counters.failed();
        self.inner.counters.gave_up();
    }

    /// What the ledger is told of the usage.
    const fn charged(&self, usage: Option<Usage>) -> Option<Usage> {
        if self.is_fixed { None } else { usage }
    }
}
