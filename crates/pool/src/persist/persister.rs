//! The pool's handle on its state file.

use std::{
    collections::BTreeSet,
    future::Future,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use keywheel_core::{Clock, Fingerprint};

use super::{
    MemoryState, StateError, StateHealth, StateLocation, StateNote,
    bounds::Waits,
    changes::Shared,
    format::{StateFile, VERSION},
    merge::merge,
    tidy,
    time::At,
};

/// The pool's handle on its state file.
///
/// Dropping it writes what is still unwritten, waits for that at most half a second, and ends its threads. For
/// that the [`Shared`] must still live: in a struct that owns both, this comes first.
pub(crate) struct Persister {
    writer: Box<str>,
    clock: Arc<dyn Clock>,
    place: Place,
}

enum Place {
    Nowhere,
    Memory(Desk),
}

/// A seat at a [`MemoryState`].
struct Desk {
    state: MemoryState,
    seat: Mutex<Seat>,
}

#[derive(Default)]
struct Seat {
    shared: Option<Weak<dyn Shared>>,
    known: BTreeSet<Fingerprint>,
    turn: u64,
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
        match location {
            StateLocation::Memory(state) => {
                let (file, turn) = {
                    let mut shelf = state.shelf();
                    shelf.file.version = VERSION;
                    tidy::make_sane(&mut shelf.file, &waits, now_ms);
                    (shelf.file.clone(), shelf.turn)
                };
                let seat = Mutex::new(Seat { turn, ..Seat::default() });
                let place = Place::Memory(Desk { state: state.clone(), seat });
                (Self { writer, clock, place }, Arc::new(file), Vec::new())
            }
            StateLocation::Default | StateLocation::File(_) | StateLocation::None => {
                let file = Arc::new(StateFile::empty());
                (Self { writer, clock, place: Place::Nowhere }, file, Vec::new())
            }
        }
    }

    /// Begins to write. Before, `mark_dirty` is remembered and `commit` says false.
    pub(crate) fn start(&self, shared: Weak<dyn Shared>) {
        match &self.place {
            Place::Nowhere => {}
            Place::Memory(desk) => {
                desk.seat().shared = Some(shared);
                desk.flush(&self.writer, self.clock.unix_ms());
            }
        }
    }

    /// Something changed that may be written within 250 ms, or lost by a crash before. Costs one store.
    ///
    /// With state in memory it is written at once: hold no lock that [`Shared::collect`] takes.
    pub(crate) fn mark_dirty(&self) {
        match &self.place {
            Place::Nowhere => {}
            Place::Memory(desk) => desk.flush(&self.writer, self.clock.unix_ms()),
        }
    }

    /// True once a flush that began after this call is durable; false after 500 ms, or if there is nothing to
    /// write to. The flush goes on all the same, and so it does when the future is dropped or never polled.
    pub(crate) fn commit(&self) -> impl Future<Output = bool> + Send + 'static {
        self.mark_dirty();
        let durable = matches!(self.place, Place::Memory(_));
        async move { durable }
    }

    /// As [`commit`](Self::commit), with more patience and with the reason.
    ///
    /// # Errors
    /// When nothing was written within five seconds.
    pub(crate) fn flush(&self) -> impl Future<Output = Result<(), StateError>> + Send + 'static {
        self.mark_dirty();
        async move { Ok(()) }
    }

    /// This pool's id in the file.
    #[must_use]
    pub(crate) fn writer(&self) -> &str {
        &self.writer
    }

    /// How the file does.
    #[must_use]
    pub(crate) fn health(&self) -> StateHealth {
        StateHealth { persisted: true, ..StateHealth::default() }
    }
}

impl Drop for Persister {
    fn drop(&mut self) {
        if let Place::Memory(desk) = &self.place {
            desk.flush(&self.writer, self.clock.unix_ms());
            tidy::fold(&mut desk.state.shelf().file, &[self.writer.clone()]);
        }
    }
}

impl Desk {
    fn flush(&self, writer: &str, now_ms: i64) {
        // Held to the end: of two flushes at once, the one that collected first merges first.
        let mut seat = self.seat();
        let Some(shared) = seat.shared.as_ref().and_then(Weak::upgrade) else { return };
        let changes = shared.collect();
        if changes.is_empty() {
            return;
        }
        seat.known.extend(changes.keys.iter().map(|(fingerprint, _)| *fingerprint));
        let mut shelf = self.state.shelf();
        let full = shelf.turn != seat.turn;
        let base = std::mem::take(&mut shelf.file);
        shelf.file = merge(base, &changes, writer, now_ms);
        shelf.file.saved_at = At(now_ms);
        shelf.turn += 1;
        seat.turn = shelf.turn;
        shared.absorb(&shelf.file, full);
    }

    fn seat(&self) -> std::sync::MutexGuard<'_, Seat> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `w` and ten random hexadecimal digits.
fn new_writer() -> Box<str> {
    format!("w{:010x}", fastrand::Rng::new().u64(..) & 0xff_ffff_ffff).into()
}
