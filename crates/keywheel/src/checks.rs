//! The free daily check of quarantined keys: `GET models`, which costs no quota
//! (<https://ai.google.dev/gemini-api/docs/billing>).

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use keywheel_core::{ApiKey, Cause, Clock};
use keywheel_pool::CheckResult;
use keywheel_provider::classify::{Asked, Dialect, Kind, Reply, Verdict, classify};
use tokio::{runtime::Handle, task::AbortHandle};

use crate::{gemini::Inner, time::from_now_ms};

/// How often the pool is asked whose check is due. It names each key once a day.
const INTERVAL: Duration = Duration::from_hours(1);

/// The most of a reply that is read: one model's description, or an error.
const MAX_REPLY: usize = 1 << 20;

/// Checks running in the background. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Checks(AbortHandle);

impl Checks {
    /// Starts them, if there is a tokio runtime to run them on.
    pub(crate) fn start(inner: &Arc<Inner>) -> Option<Self> {
        let runtime = Handle::try_current().ok()?;
        let clock = Arc::clone(&inner.clock);
        let task = runtime.spawn(run(Arc::downgrade(inner), clock));
        Some(Self(task.abort_handle()))
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn run(inner: Weak<Inner>, clock: Arc<dyn Clock>) {
    while let Some(inner) = inner.upgrade() {
        run_due(&inner).await;
        drop(inner);
        pause(&*clock).await;
    }
}

/// Not by steps of a second as calls do: a check that comes an hour late does no harm, waking every second does.
async fn pause(clock: &dyn Clock) {
    match clock.manual_sleep(from_now_ms(clock, INTERVAL)) {
        Some(sleep) => sleep.await,
        None => tokio::time::sleep(INTERVAL).await,
    }
}

/// Checks every key whose check is due, and says how many came back into use.
pub(crate) async fn run_due(inner: &Inner) -> usize {
    let mut returned = 0;
    for due in inner.pool.due_checks().await {
        let result = check(inner, &due.key).await;
        tracing::debug!(key = %due.fingerprint, label = due.label, ?result, "daily check");
        returned += usize::from(result == CheckResult::Alive);
        inner.pool.check_result(due.fingerprint, result);
    }
    returned
}

/// Asks the provider whether `key` works, for free.
pub(crate) async fn check(inner: &Inner, key: &ApiKey) -> CheckResult {
    let upstream = &inner.upstream;
    let mut call = upstream.provider().models(None);
    if upstream.dialect() == Dialect::Gemini {
        call = call.with_query("pageSize", "1");
    }
    let Ok(response) = upstream.call(key, &call).await else {
        return CheckResult::Unknown;
    };
    let (status, headers) = (response.status, response.headers.clone());
    let Ok(body) = response.bytes(MAX_REPLY).await else {
        return CheckResult::Unknown;
    };
    let reply = Reply { status, headers: &headers, body: &body };
    result(&classify(upstream.dialect(), &reply, &Asked::default(), inner.clock.now()))
}

fn result(verdict: &Verdict) -> CheckResult {
    match verdict.kind {
        Kind::Served => CheckResult::Alive,
        Kind::Refused(cause) if verdict.key_is_dead => CheckResult::StillDead(cause),
        // Whoever is refused for a quota was recognised first: the key is in order.
        Kind::Refused(
            Cause::PerDayRequests
            | Cause::PerDayTokens
            | Cause::PerMinuteRequests
            | Cause::PerMinuteTokens
            | Cause::UnspecifiedQuota
            | Cause::FreeTierNotAvailable
            | Cause::ToolQuota
            | Cause::Billing,
        ) => CheckResult::Alive,
        Kind::Refused(_) => CheckResult::Unknown,
    }
}
