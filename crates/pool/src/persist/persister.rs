//! The pool's handle on its state.

use std::{
    collections::BTreeSet,
    fmt,
    future::Future,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use keywheel_core::Clock;

use super::{
    MemoryState, StateError, StateHealth, StateLocation, StateNote,
    book::{Book, new_writer},
    bounds::Waits,
    changes::{Shared, Told},
    file::Files,
    format::{StateFile, VERSION},
    location,
    merge::{loses_news, merge},
    tidy,
    time::At,
    writer::Writer,
};

/// The pool's handle on its state.
///
/// Dropping it writes what is still unwritten, waits for that at most half a second, and ends its
/// threads. For that the [`Shared`] must still live: in a struct that owns both, this comes first.
pub(crate) struct Persister {
    writer: Box<str>,
    clock: Arc<dyn Clock>,
    /// The state file, where there is one.
    path: Option<PathBuf>,
    place: Place,
}

enum Place {
    Nowhere(StateHealth),
    Memory(Seat),
    File(Box<Writer>),
}

impl Persister {
    /// Reads the state, and writes nothing yet except to keep an unusable file aside.
    ///
    /// What is returned is bounded: no cooldown in it is longer than legal. `waits` says what is.
    #[must_use]
    pub(crate) fn open(
        location: &StateLocation,
        waits: Waits,
        clock: Arc<dyn Clock>,
    ) -> (Self, Arc<StateFile>, Vec<StateNote>) {
        let writer = new_writer();
        let now_ms = clock.unix_ms();
        if let StateLocation::Memory(state) = location {
            let (seat, file) = Seat::take(state.clone(), &waits, now_ms);
            let place = Place::Memory(seat);
            return (Self { writer, clock, path: None, place }, file, Vec::new());
        }
        let environment = |name: &str| std::env::var_os(name);
        let (path, mut notes) =
            match location::resolve(location, environment, location::platform_state_folder) {
                Ok(path) => (path, Vec::new()),
                Err(note) => (None, vec![note]),
            };
        let Some(path) = path else {
            let error = notes.first().map(StateNote::to_string);
            let health = StateHealth { error, ..StateHealth::default() };
            let place = Place::Nowhere(health);
            let persister = Self { writer, clock, path: None, place };
            return (persister, Arc::new(StateFile::empty()), notes);
        };
        let health = StateHealth { path: Some(path.clone()), ..StateHealth::default() };
        let (book, found) = Book::open(path.clone(), writer.clone(), waits, Arc::clone(&clock));
        notes.extend(found);
        let file = Arc::clone(book.known());
        let place = Place::File(Box::new(Writer::new(book, health, Arc::clone(&clock))));
        (Self { writer, clock, path: Some(path), place }, file, notes)
    }

    /// Says now what every write would say later. Makes the folder and the file to lock, as the first write would.
    #[must_use]
    pub(crate) fn cannot_write(&self) -> Option<StateNote> {
        let path = self.path.as_ref()?;
        let error = Files::new(path.clone()).try_to_write().err()?;
        let fault = format!("cannot be written: {error}");
        Some(StateNote::Unusable { path: Some(path.clone()), fault })
    }

    /// Begins to write. Before, `mark_dirty` is remembered, and `commit` waits for it.
    pub(crate) fn start(&self, shared: Weak<dyn Shared>) {
        match &self.place {
            Place::Nowhere(_) => {}
            Place::File(file) => file.start(shared),
            Place::Memory(seat) => {
                seat.state().shared = Some(shared);
                seat.flush(&self.writer, self.clock.unix_ms());
            }
        }
    }

    /// Something changed that may be written within 250 ms, or lost by a crash before. Costs one
    /// store.
    ///
    /// With state in memory it is written at once: hold no lock that [`Shared::collect`] takes.
    pub(crate) fn mark_dirty(&self) {
        match &self.place {
            Place::Nowhere(_) => {}
            Place::File(file) => file.mark_dirty(),
            Place::Memory(seat) => {
                seat.flush(&self.writer, self.clock.unix_ms());
            }
        }
    }

    /// True once a flush that began after this call is durable; false after 500 ms, if there is
    /// nothing to write to, or if another process cleared what there was to say before it was there.
    ///
    /// # Cancel safety
    /// The flush goes on, also when the future is dropped or never polled.
    pub(crate) fn commit(&self) -> impl Future<Output = bool> + Send + 'static {
        let asked = match &self.place {
            Place::Nowhere(_) => Err(false),
            Place::File(file) => Ok(file.commit()),
            Place::Memory(seat) => Err(seat.flush(&self.writer, self.clock.unix_ms())),
        };
        async move {
            match asked {
                Ok(answer) => answer.await,
                Err(known) => known,
            }
        }
    }

    /// As [`commit`](Self::commit), with five seconds of patience and with the reason.
    ///
    /// # Errors
    /// When it is not durable by then. State that is kept nowhere is no error.
    pub(crate) fn flush(&self) -> impl Future<Output = Result<(), StateError>> + Send + 'static {
        let asked = match &self.place {
            Place::Nowhere(health) => Err(health.error.clone()),
            Place::File(file) => Ok(file.flush()),
            Place::Memory(seat) => {
                seat.flush(&self.writer, self.clock.unix_ms());
                Err(None)
            }
        };
        async move {
            match asked {
                Ok(answer) => answer.await,
                Err(error) => error.map_or(Ok(()), |reason| Err(StateError { reason })),
            }
        }
    }

    /// This pool's id in the file.
    #[must_use]
    pub(crate) fn writer(&self) -> &str {
        &self.writer
    }

    /// The state file; `None` for state in memory, or none at all.
    #[must_use]
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Where callers and the threads of the state file meet, if there is one.
    #[cfg(test)]
    pub(super) fn desk(&self) -> Option<Arc<super::desk::Desk>> {
        match &self.place {
            Place::File(file) => Some(Arc::clone(file.desk())),
            Place::Nowhere(_) | Place::Memory(_) => None,
        }
    }

    /// How the file does.
    #[must_use]
    pub(crate) fn health(&self) -> StateHealth {
        match &self.place {
            Place::Nowhere(health) => health.clone(),
            Place::File(file) => file.health(),
            Place::Memory(_) => StateHealth { persisted: true, ..StateHealth::default() },
        }
    }
}

impl Drop for Persister {
    fn drop(&mut self) {
        if let Place::Memory(seat) = &self.place {
            seat.flush(&self.writer, self.clock.unix_ms());
            tidy::fold(&mut seat.memory.shelf().file, std::slice::from_ref(&self.writer));
        }
    }
}

impl fmt::Debug for Persister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Persister").field("writer", &self.writer).finish_non_exhaustive()
    }
}

/// A seat at a [`MemoryState`].
struct Seat {
    memory: MemoryState,
    waits: Waits,
    state: Mutex<SeatState>,
}

#[derive(Default)]
struct SeatState {
    shared: Option<Weak<dyn Shared>>,
    /// The turn of the shelf after which this seat knows it.
    turn: u64,
    /// When it last told all it knew.
    told_before: At,
}

impl Seat {
    fn take(memory: MemoryState, waits: &Waits, now_ms: i64) -> (Self, Arc<StateFile>) {
        let (file, turn) = {
            let mut shelf = memory.shelf();
            shelf.file.version = VERSION;
            tidy::make_sane(&mut shelf.file, waits, now_ms);
            tidy::prune(&mut shelf.file, &BTreeSet::new(), now_ms);
            (shelf.file.clone(), shelf.turn)
        };
        let state = Mutex::new(SeatState { turn, ..SeatState::default() });
        (Self { memory, waits: waits.clone(), state }, Arc::new(file))
    }

    /// False when another pool cleared, just before, what this one had to say.
    fn flush(&self, writer: &str, now_ms: i64) -> bool {
        // Held to the end: of two flushes at once, the one that collected first merges first.
        let mut seat = self.state();
        let Some(shared) = seat.shared.as_ref().and_then(Weak::upgrade) else { return true };
        let mut changes = shared.collect();
        changes.told = Told { before: seat.told_before, now: Some(At(now_ms)) };
        let mut shelf = self.memory.shelf();
        let others_wrote = shelf.turn != seat.turn;
        if changes.is_empty() && !others_wrote {
            return true;
        }
        let complete = !loses_news(&shelf.file, &changes, &StateFile::empty(), now_ms);
        let mut base = std::mem::take(&mut shelf.file);
        tidy::make_sane_again(&mut base, &self.waits, now_ms);
        shelf.file = merge(base, &changes, writer, now_ms);
        shelf.file.saved_at = At(now_ms);
        shelf.turn += u64::from(!changes.is_empty());
        seat.turn = shelf.turn;
        seat.told_before = At(now_ms);
        shared.absorb(&shelf.file, others_wrote);
        complete
    }

    fn state(&self) -> MutexGuard<'_, SeatState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
