//! How a ledger keeps itself tidy: rows whose holders are gone, and rows of long ago.

use super::{Inner, Ledger};
use crate::{LedgerError, store::BATCH};

/// What a sweep ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// How many rows.
    pub rows: u64,
    /// How many tokens they are charged.
    pub tokens: u64,
}

impl Ledger {
    /// Ends every row whose holder has been silent for longer than the sweep's age, charged at its
    /// estimate. Runs by itself on opening and every 60 seconds.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use keywheel_core::ManualClock;
    /// # use keywheel_ledger::{Ask, Ledger, LedgerError, RowQuery, RowState};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LedgerError> {
    /// # let clock = ManualClock::at("2026-11-30T12:00:00Z".parse().expect("a moment"));
    /// # let ledger = Ledger::builder().account("chat", []).clock(Arc::new(clock.clone()));
    /// # let ledger = ledger.in_memory().open().await?;
    /// let hold = ledger.reserve("chat", Ask::new("m", 800)).await?.held().expect("no limit");
    /// let id = hold.id();
    /// drop(hold); // its process crashed
    /// clock.advance(ledger.sweep_after() + Duration::from_secs(1));
    /// assert_eq!(ledger.sweep().await?.tokens, 800);
    /// assert_eq!(ledger.swept(RowQuery::default()).await?[0].id, id);
    ///
    /// // It had been answered after all, and somebody knows with how many tokens.
    /// assert_eq!(ledger.renew(id).await?, RowState::Swept);
    /// ledger.settle(id, 120).await?;
    /// assert_eq!(ledger.usage("chat").await?.ever.tokens.used(), 120);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Whatever keeps the store from writing; what was swept before stays swept.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn sweep(&self) -> Result<Swept, LedgerError> {
        self.inner.sweep().await
    }

    /// Removes rows that were reserved over 90 days ago, or what
    /// [`keep_rows`](crate::LedgerBuilder::keep_rows) says. Never an open row, one that was swept within 7
    /// days, or one whose idempotency key is remembered; and no total that a limit is compared with
    /// changes. Returns how many were removed. Runs by itself once a week.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use keywheel_core::ManualClock;
    /// # use keywheel_ledger::{Ask, Ledger, LedgerError, RowQuery};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), LedgerError> {
    /// # let clock = ManualClock::at("2026-11-30T12:00:00Z".parse().expect("a moment"));
    /// # let ledger = Ledger::builder().account("chat", []).clock(Arc::new(clock.clone()));
    /// # let ledger = ledger.in_memory().open().await?;
    /// let hold = ledger.reserve("chat", Ask::new("m", 800)).await?.held().expect("no limit");
    /// let settled = ledger.release(hold.id()).await?; // or hold.release(), with the hold at hand
    /// assert_eq!((settled.charged.tokens, ledger.prune().await?), (0, 0));
    ///
    /// clock.advance(90 * Duration::from_secs(86_400));
    /// assert_eq!(ledger.prune().await?, 1);
    /// assert!(ledger.rows(RowQuery::default()).await?.is_empty());
    /// assert!(ledger.audit().await?.is_balanced());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Whatever keeps the store from writing; what was removed before stays removed.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn prune(&self) -> Result<u64, LedgerError> {
        self.inner.prune().await
    }
}

impl Inner {
    pub(crate) async fn sweep(&self) -> Result<Swept, LedgerError> {
        let mut swept = Swept::default();
        loop {
            let rows = self.store.sweep(self.clock.now(), self.settings.sweep_after).await?;
            swept.rows += rows.len() as u64;
            let tokens = rows.iter().map(|row| row.estimate.total());
            swept.tokens = tokens.fold(swept.tokens, u64::saturating_add);
            if rows.len() < BATCH {
                break;
            }
        }
        if swept.rows > 0 {
            tracing::warn!(
                rows = swept.rows,
                tokens = swept.tokens,
                "reservations whose holders were not heard of again are charged at their estimates"
            );
        }
        Ok(swept)
    }

    pub(crate) async fn prune(&self) -> Result<u64, LedgerError> {
        let mut pruned = 0;
        loop {
            let rows = self.store.prune(self.clock.now(), self.settings.keep_rows).await?;
            pruned += rows as u64;
            if rows < BATCH {
                return Ok(pruned);
            }
        }
    }
}
