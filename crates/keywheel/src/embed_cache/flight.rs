//! Who fetches what at the moment, so that nobody else does.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use super::{EmbedKey, Shared, Vector};

/// The texts that are being fetched.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<HashMap<EmbedKey, watch::Receiver<Option<Vector>>>>);

impl Flights {
    pub(super) fn lock(
        &self,
    ) -> MutexGuard<'_, HashMap<EmbedKey, watch::Receiver<Option<Vector>>>> {
        // Nothing panics under this lock but an allocation, and a map is whole at every moment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees the place of `key`, unless another has it by now.
    fn end(&self, key: &EmbedKey, flight: &watch::Receiver<Option<Vector>>) {
        let mut flights = self.lock();
        if flights.get(key).is_some_and(|current| current.same_channel(flight)) {
            flights.remove(key);
        }
    }
}

/// The duty to fetch one text. Dropping it hands the duty to whoever waits.
#[must_use = "dropping a claim gives it up"]
pub(crate) struct Claim {
    key: EmbedKey,
    sender: watch::Sender<Option<Vector>>,
    cache: Arc<Shared>,
}

impl Claim {
    pub(super) const fn key(&self) -> EmbedKey {
        self.key
    }

    /// Hands the vector to everybody who waits, and to everybody who will ask.
    pub(super) fn fill(self, vector: Vector) {
        // Remembered first: who finds nobody fetching any more looks into the memory again.
        self.cache.memory.insert(self.key, Arc::clone(&vector));
        self.sender.send_replace(Some(vector));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The sender is dropped after this, so that whoever waits finds the place free when it looks again.
        self.cache.flights.end(&self.key, &self.sender.subscribe());
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claim").field(&self.key).finish()
    }
}

/// A text that somebody else fetches.
#[derive(Debug)]
pub(crate) struct Wait {
    key: EmbedKey,
    receiver: watch::Receiver<Option<Vector>>,
    cache: Arc<Shared>,
}

impl Wait {
    /// The vector; `None` once whoever fetched it gave up: look again then.
    ///
    /// Wait only while holding no [`Claim`]: whoever is waited for may be waiting for that.
    ///
    /// # Cancel safety
    /// Nothing is taken; drop it any time.
    pub(crate) async fn vector(&self) -> Option<Vector> {
        let mut receiver = self.receiver.clone();
        let vector = receiver.wait_for(Option::is_some).await.ok()?.clone();
        self.cache.counts.shared();
        vector
    }

    /// Waits no longer: whoever looks next fetches the text, although the one waited for may still do so.
    pub(crate) fn give_up(self) {
        self.cache.flights.end(&self.key, &self.receiver);
    }
}

/// What there is to do about one text that is not in memory.
pub(super) enum Duty {
    Fetch(Claim),
    Wait(Wait),
    Known(Vector),
}

/// Claims `key`, unless somebody has.
pub(super) fn claim(cache: &Arc<Shared>, key: EmbedKey) -> Duty {
    let mut flights = cache.flights.lock();
    match flights.entry(key) {
        Entry::Occupied(taken) => {
            let receiver = taken.get().clone();
            Duty::Wait(Wait { key, receiver, cache: Arc::clone(cache) })
        }
        Entry::Vacant(free) => {
            // It may have come since the memory was asked.
            if let Some(vector) = cache.memory.get(&key) {
                return Duty::Known(vector);
            }
            let (sender, receiver) = watch::channel(None);
            free.insert(receiver);
            Duty::Fetch(Claim { key, sender, cache: Arc::clone(cache) })
        }
    }
}
