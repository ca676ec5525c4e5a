//! What a ledger does by itself: sweep every minute, prune every week.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use keywheel_core::{Clock, clock::after_ms};
use tokio::{runtime::Handle, task::AbortHandle};

use crate::ledger::Inner;

/// How long after opening the first pruning is due, so that programs that run for a day prune, too.
const FIRST_PRUNE_MS: i64 = 3_600_000;
/// How often it is due after that.
const PRUNE_EVERY_MS: i64 = 7 * 24 * FIRST_PRUNE_MS;

/// The task in the background. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Background(AbortHandle);

impl Background {
    /// Starts it, if there is a tokio runtime to run it on. It keeps the ledger alive only while it
    /// works.
    pub(crate) fn start(inner: &Arc<Inner>) -> Option<Self> {
        let runtime = Handle::try_current().ok()?;
        let clock = Arc::clone(&inner.clock);
        let task = runtime.spawn(run(Arc::downgrade(inner), clock, inner.settings.sweep_every));
        Some(Self(task.abort_handle()))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn run(inner: Weak<Inner>, clock: Arc<dyn Clock>, every: Duration) {
    let mut prune_at = clock.unix_ms().saturating_add(FIRST_PRUNE_MS);
    loop {
        pause(&*clock, every).await;
        let Some(inner) = inner.upgrade() else { return };
        if let Err(error) = inner.sweep().await {
            tracing::warn!(%error, "the ledger could not be swept; trying again");
        }
        if clock.unix_ms() < prune_at {
            continue;
        }
        match inner.prune().await {
            Ok(rows) => {
                tracing::debug!(rows, "pruned");
                prune_at = clock.unix_ms().saturating_add(PRUNE_EVERY_MS);
            }
            Err(error) => tracing::warn!(%error, "the ledger could not be pruned; trying again"),
        }
    }
}

async fn pause(clock: &dyn Clock, time: Duration) {
    match clock.manual_sleep(after_ms(clock.unix_ms(), time)) {
        Some(sleep) => sleep.await,
        None => tokio::time::sleep(time).await,
    }
}
