//! What callers hand to the writer, and how they get their answers.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use super::{book::Book, fault::Fault, queue::Bell};
use crate::{LedgerError, Row, RowId, RowState, Settled, store::Reserving};

/// One caller's work.
pub(super) trait Job: Send {
    /// True if somebody asked to hear of it and waits.
    fn is_awaited(&self) -> bool;

    /// True if nobody waits for it any more, and it is not wanted then.
    fn is_moot(&self) -> bool;

    /// Does it, and keeps the answer. May be done again after a transaction that failed.
    ///
    /// # Errors
    /// Only those that concern the whole transaction; the caller's own are an answer.
    fn run(&mut self, book: &mut Book<'_>) -> Result<(), Fault>;

    /// Hands the answer over: the one that was kept, or why the transaction failed.
    fn answer(self: Box<Self>, failure: Option<LedgerError>);

    /// Hands `failure` over, although the transaction was made: nobody knows whether it lasts. What was
    /// reserved in it is given back, since nobody will settle it.
    fn withdraw(self: Box<Self>, failure: LedgerError);
}

/// Work that is a function of the ledger.
pub(super) struct Call<T: Undo, F> {
    pub(super) work: F,
    /// Whether to do it even if nobody waits any more.
    pub(super) when_alone: WhenAlone,
    pub(super) reply: Reply<T>,
    pub(super) abandoned: Abandoned,
    pub(super) kept: Option<Result<T, LedgerError>>,
}

/// Who hears of it.
pub(super) enum Reply<T: Undo> {
    /// A caller who waits.
    To(oneshot::Sender<Delivery<T>>),
    /// Nobody waits, but this is to be called.
    Tell(Box<dyn FnOnce(Result<T, LedgerError>) + Send>),
}

/// What to do for a caller who went away before his work was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenAlone {
    /// It is a fact that has to be booked.
    Apply,
    /// It was only a wish.
    Skip,
}

impl<T, F> Job for Call<T, F>
where
    T: Undo + Send,
    F: FnMut(&mut Book<'_>) -> Result<T, Fault> + Send,
{
    fn is_awaited(&self) -> bool {
        matches!(self.reply, Reply::To(_))
    }

    fn is_moot(&self) -> bool {
        let is_gone = match &self.reply {
            Reply::To(caller) => caller.is_closed(),
            Reply::Tell(_) => false,
        };
        is_gone && self.when_alone == WhenAlone::Skip
    }

    fn run(&mut self, book: &mut Book<'_>) -> Result<(), Fault> {
        match (self.work)(book) {
            Ok(done) => self.kept = Some(Ok(done)),
            Err(Fault::Answer(error)) => self.kept = Some(Err(error)),
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    fn answer(self: Box<Self>, failure: Option<LedgerError>) {
        let Self { reply, abandoned, kept, .. } = *self;
        let result = match (failure, kept) {
            (Some(failure), _) => Err(failure),
            (None, Some(kept)) => kept,
            // Moot: nobody waits.
            (None, None) => return,
        };
        match reply {
            // Whether anybody takes it or not, the delivery knows what to do.
            Reply::To(caller) => {
                let _ = caller.send(Delivery { result: Some(result), abandoned });
            }
            Reply::Tell(told) => told(result),
        }
    }

    fn withdraw(mut self: Box<Self>, failure: LedgerError) {
        drop(Delivery { result: self.kept.take(), abandoned: self.abandoned.clone() });
        self.answer(Some(failure));
    }
}

/// An answer on its way. If it is dropped before it was [taken](Self::take), what was reserved for
/// its caller is given back: he went away, and nobody would settle it.
#[derive(Debug)]
pub(super) struct Delivery<T: Undo> {
    result: Option<Result<T, LedgerError>>,
    abandoned: Abandoned,
}

impl<T: Undo> Delivery<T> {
    /// The answer. No await may lie between this and handing it to the caller.
    pub(super) fn take(mut self) -> Option<Result<T, LedgerError>> {
        self.result.take()
    }
}

impl<T: Undo> Drop for Delivery<T> {
    fn drop(&mut self) {
        if let Some(gone) = self.result.take().and_then(Result::ok).and_then(|done| done.undo()) {
            self.abandoned.push(gone);
        }
    }
}

/// An answer that may have reserved something.
pub(super) trait Undo {
    /// What has to be given back, if something was reserved.
    fn undo(&self) -> Option<GivenBack> {
        None
    }
}

/// A reservation whose caller went away.
#[derive(Debug, Clone, Copy)]
pub(super) struct GivenBack {
    /// Its row.
    pub(super) id: RowId,
    /// The attempt that was turned over to it.
    pub(super) before: Option<RowId>,
}

impl Undo for Reserving {
    fn undo(&self) -> Option<GivenBack> {
        match self {
            Self::Granted(row, _) => Some(GivenBack { id: row.id, before: None }),
            Self::Denied(_) | Self::Replayed(_) => None,
        }
    }
}

impl Undo for (Settled, Reserving) {
    fn undo(&self) -> Option<GivenBack> {
        Some(GivenBack { before: Some(self.0.id), ..self.1.undo()? })
    }
}

impl Undo for Settled {}
impl Undo for RowState {}
impl Undo for Vec<Row> {}
impl Undo for usize {}

/// Rows whose callers went away.
#[derive(Debug, Clone)]
pub(super) struct Abandoned {
    rows: Arc<Mutex<Vec<GivenBack>>>,
    bell: Bell,
}

impl Abandoned {
    /// `bell` is the writer's, who is to hear of them.
    pub(super) fn new(bell: Bell) -> Self {
        Self { rows: Arc::default(), bell }
    }

    /// True if there is nothing to give back.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// All of them, oldest first; none are left.
    pub(super) fn take(&self) -> Vec<GivenBack> {
        std::mem::take(&mut *self.rows.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts back what could not be written, for the next time.
    pub(super) fn put_back(&self, rows: Vec<GivenBack>) {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).extend(rows);
    }

    fn push(&self, gone: GivenBack) {
        self.put_back(vec![gone]);
        self.bell.ring();
    }
}
