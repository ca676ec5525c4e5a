//! A state file that is no file: shared memory inside one process, for tests and simulations.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::format::StateFile;

/// State that outlives its pool, without a file: hand the same one to the next pool and it knows what the last
/// one knew, as after a restart. Clones share one state.
///
/// Several pools may share it at once; each sees what the others wrote whenever it writes itself.
///
/// ```
/// use keywheel_pool::MemoryState;
///
/// let state = MemoryState::new();
/// assert!(state.json().contains("\"version\": 1"));
/// ```
#[derive(Clone, Default)]
pub struct MemoryState {
    shelf: Arc<Mutex<Shelf>>,
}

/// What is shared.
#[derive(Default)]
pub(super) struct Shelf {
    pub(super) file: StateFile,
    /// Counts the writes: another number than the one after our last write means that somebody else wrote.
    pub(super) turn: u64,
}

impl MemoryState {
    /// An empty state.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What a state file would hold now.
    #[must_use]
    pub fn json(&self) -> String {
        let mut out = Vec::new();
        let file = &mut self.shelf().file;
        file.version = super::format::VERSION;
        super::layout::write(file, &mut out).expect("writing to memory does not fail");
        String::from_utf8(out).expect("JSON is UTF-8")
    }

    pub(super) fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // Nothing that can panic half-way runs under this lock, except the pool's own absorb, which only reads.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemoryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shelf = self.shelf();
        f.debug_struct("MemoryState")
            .field("keys", &shelf.file.keys.len())
            .field("buckets", &shelf.file.buckets.len())
            .finish_non_exhaustive()
    }
}
