//! A state file that is no file: shared memory inside one process, for tests and simulations.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    StateError,
    file::parse,
    format::{StateFile, VERSION},
    layout,
};

/// State that outlives its pool, without a file: hand the same one to the next pool and it knows
/// what the last one knew, as after a restart. Clones share one state.
///
/// Several pools may share it at once; each sees what the others wrote whenever it writes itself.
///
/// ```
/// use keywheel_pool::MemoryState;
///
/// let state = MemoryState::new();
/// let copy = MemoryState::from_json(state.json().as_bytes()).unwrap();
/// assert_eq!(copy.json(), state.json());
/// assert!(MemoryState::from_json(b"{}").is_err());
/// ```
#[derive(Clone, Default)]
pub struct MemoryState {
    shelf: Arc<Mutex<Shelf>>,
}

/// What is shared.
#[derive(Default)]
pub(super) struct Shelf {
    pub(super) file: StateFile,
    /// Counts the writes: another number than the one after our last write means that somebody else
    /// wrote.
    pub(super) turn: u64,
}

impl MemoryState {
    /// An empty state.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A state that holds what `json`, a state file, says.
    ///
    /// # Errors
    /// When `json` is no state file, or one of a later format. The error never quotes it.
    pub fn from_json(json: &[u8]) -> Result<Self, StateError> {
        let file = parse(json).map_err(|fault| StateError { reason: format!("it {fault}") })?;
        let shelf = Shelf { file, turn: 0 };
        Ok(Self { shelf: Arc::new(Mutex::new(shelf)) })
    }

    /// What a state file would hold now.
    #[must_use]
    pub fn json(&self) -> String {
        let mut out = Vec::new();
        let file = &mut self.shelf().file;
        file.version = VERSION;
        layout::write(file, &mut out).expect("writing to memory does not fail");
        String::from_utf8(out).expect("JSON is UTF-8")
    }

    pub(super) fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // Nothing that can panic half-way runs under this lock, except the pool's own absorb, which
        // only reads.
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
