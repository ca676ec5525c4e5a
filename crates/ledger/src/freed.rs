//! Word to those who wait for room that there may be some.

use tokio::sync::watch;

/// Where a store says that there may be room again. Cheap to clone; clones are one.
///
/// ```
/// use keywheel_ledger::Freeing;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let freeing = Freeing::default(); // kept by a store
/// let mut freed = freeing.watch();
/// freeing.tell();
/// freeing.tell();
/// freed.changed().await; // once for both
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Freeing(watch::Sender<u64>);

impl Default for Freeing {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Freeing {
    /// Says that less is used than before, or more allowed. To be called once it is written.
    pub fn tell(&self) {
        self.0.send_modify(|times| *times = times.wrapping_add(1));
    }

    /// Hears of everything that is told from now on.
    #[must_use]
    pub fn watch(&self) -> Freed {
        Freed(self.0.subscribe())
    }
}

/// Hears when there may be room again: see [`Ledger::freed`](crate::Ledger::freed).
#[derive(Debug, Clone)]
pub struct Freed(watch::Receiver<u64>);

impl Freed {
    /// Waits until room was freed since this was made, or since the last time that this returned.
    /// What was freed in between is not missed, and several times are one.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The ledger is gone: nothing will ever be freed.
            std::future::pending::<()>().await;
        }
    }
}
