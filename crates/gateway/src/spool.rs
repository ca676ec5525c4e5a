//! Takes a request's body in: a short one into memory, a long one into a file without a name.

use std::{
    fs::File,
    io::{self, Write as _},
    path::PathBuf,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use keywheel::raw::Body;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout},
};

/// Bodies longer than this go into a file.
const IN_MEMORY: u64 = 1 << 20;

/// What is gathered before it is written into the file.
const WRITE: usize = 128 << 10;

/// The unit in which memory is counted.
const PAGE: u64 = 4 << 10;

/// How large and how slow a body may be, and how much memory all of them may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpoolLimits {
    /// Where the files are made. Defaults to the system's folder for such. They are never seen there: they have no
    /// name, and are gone with the process.
    pub(crate) folder: Option<PathBuf>,
    /// All bodies in memory together, in bytes; what goes beyond it goes into files. Defaults to 16 MB.
    pub(crate) memory: u64,
    /// How long a client may send nothing. Defaults to 30 s.
    pub(crate) idle: Duration,
    /// The slowest body that is taken, in bytes a second, once `idle` has passed. Defaults to 8 KB/s.
    pub(crate) slowest: u64,
}

impl Default for SpoolLimits {
    fn default() -> Self {
        Self { folder: None, memory: 16 << 20, idle: Duration::from_secs(30), slowest: 8 << 10 }
    }
}

/// A body could not be taken in. What came of it is gone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpoolError {
    /// 413.
    #[error("the body is larger than {}", size(*most))]
    TooLarge { most: u64 },
    /// 408.
    #[error("the body came too slowly")]
    Slow,
    /// 400, if anybody still listens.
    #[error("the body broke off, or is not as HTTP has it")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// 507.
    #[error("the disk is full; nothing of the request was sent on")]
    DiskFull,
    /// 500.
    #[error("the body cannot be kept in a file: {0}")]
    Disk(#[source] io::Error),
}

/// Takes bodies in. Cheap to clone; clones share the memory.
#[derive(Debug, Clone)]
pub(crate) struct Spool {
    limits: Arc<SpoolLimits>,
    /// One permit is a [`PAGE`].
    memory: Arc<Semaphore>,
}

impl Spool {
    pub(crate) fn new(limits: SpoolLimits) -> Self {
        let pages = usize::try_from(limits.memory / PAGE).unwrap_or(usize::MAX);
        let memory = Arc::new(Semaphore::new(pages.min(Semaphore::MAX_PERMITS)));
        Self { limits: Arc::new(limits), memory }
    }

    /// Reads `body` to its end. At most 1 MB of it is in memory, and that only while all bodies together have the
    /// room; else 128 KB at a time, on the way into a file.
    ///
    /// # Errors
    /// It is longer than `most` bytes: known at once where its length is announced, so that nothing is read. It breaks
    /// off, or comes too slowly, or no file can be written.
    ///
    /// # Cancel safety
    /// Dropped, all of it is gone, the file too.
    pub(crate) async fn take<B>(&self, body: B, most: u64) -> Result<Body, SpoolError>
    where
        B: hyper::body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut body = pin!(body);
        let hint = body.size_hint();
        if hint.lower() > most {
            return Err(SpoolError::TooLarge { most });
        }
        let mut kept = Kept::new(hint.lower(), &self.limits, &self.memory).await?;
        let mut patience = pin!(sleep(self.limits.idle));
        let first_limit = patience.deadline();
        let mut received = 0_u64;
        loop {
            let frame = tokio::select! {
                frame = timeout(self.limits.idle, body.frame()) => {
                    frame.map_err(|_| SpoolError::Slow)?
                }
                () = &mut patience => return Err(SpoolError::Slow),
            };
            let Some(frame) = frame else { return kept.finish().await };
            let frame = frame.map_err(|error| SpoolError::Broken(error.into()))?;
            // Trailers say nothing that anybody needs.
            let Ok(piece) = frame.into_data() else { continue };
            received = received.saturating_add(piece.len() as u64);
            if received > most {
                return Err(SpoolError::TooLarge { most });
            }
            patience.as_mut().reset(self.limits.by(first_limit, received));
            kept.add(piece, &self.limits, &self.memory).await?;
        }
    }
}

/// As the settings write sizes.
fn size(bytes: u64) -> String {
    let units = [(30, "GB"), (20, "MB"), (10, "KB")];
    let whole = units.into_iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    whole.map_or_else(
        || format!("{bytes} bytes"),
        |(shift, unit)| format!("{} {unit}", bytes >> shift),
    )
}

impl SpoolLimits {
    /// By when a body has to be at its end that is `received` bytes long, if not the next bytes come.
    fn by(&self, first: Instant, received: u64) -> Instant {
        let allowed = received.checked_div(self.slowest).unwrap_or(u64::from(u32::MAX));
        first.checked_add(Duration::from_secs(allowed)).unwrap_or(first)
    }
}

/// What has come of a body so far.
enum Kept {
    Memory(Counted),
    File { file: Arc<File>, len: u64, unwritten: Vec<u8> },
}

impl Kept {
    /// Ready for a body of at least `announced` bytes.
    async fn new(
        announced: u64,
        limits: &SpoolLimits,
        memory: &Arc<Semaphore>,
    ) -> Result<Self, SpoolError> {
        let mut counted = Counted { bytes: Vec::new(), room: None };
        if announced > IN_MEMORY || !counted.grow(announced, memory) {
            return Self::file(limits, Vec::new()).await;
        }
        counted.bytes.reserve_exact(usize::try_from(announced).unwrap_or(0));
        Ok(Self::Memory(counted))
    }

    /// A new file that begins with `first`.
    async fn file(limits: &SpoolLimits, first: Vec<u8>) -> Result<Self, SpoolError> {
        let file = Arc::new(open(limits.folder.clone()).await?);
        let len = first.len() as u64;
        write(&file, first).await?;
        Ok(Self::File { file, len, unwritten: Vec::with_capacity(WRITE) })
    }

    async fn add(
        &mut self,
        piece: Bytes,
        limits: &SpoolLimits,
        memory: &Arc<Semaphore>,
    ) -> Result<(), SpoolError> {
        if let Self::Memory(counted) = self {
            let len = counted.bytes.len() as u64 + piece.len() as u64;
            if len <= IN_MEMORY && counted.grow(len, memory) {
                counted.extend(&piece);
                return Ok(());
            }
            *self = Self::file(limits, std::mem::take(&mut counted.bytes)).await?;
        }
        let Self::File { file, len, unwritten } = self else { return Ok(()) };
        *len += piece.len() as u64;
        unwritten.extend_from_slice(&piece);
        if unwritten.len() >= WRITE {
            *unwritten = write(file, std::mem::take(unwritten)).await?;
        }
        Ok(())
    }

    async fn finish(self) -> Result<Body, SpoolError> {
        match self {
            Self::Memory(Counted { bytes, .. }) if bytes.is_empty() => Ok(Body::empty()),
            Self::Memory(counted) => Ok(Bytes::from_owner(counted).into()),
            Self::File { file, len, unwritten } => {
                write(&file, unwritten).await?;
                Ok(Body::from_file(file, len))
            }
        }
    }
}

/// Bytes that count as used until the last handle on them is gone.
struct Counted {
    bytes: Vec<u8>,
    room: Option<OwnedSemaphorePermit>,
}

impl Counted {
    /// Makes room for `len` bytes in all; `false` if there is none.
    fn grow(&mut self, len: u64, memory: &Arc<Semaphore>) -> bool {
        let held = self.room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let wanted = usize::try_from(len.div_ceil(PAGE)).unwrap_or(usize::MAX);
        let Some(more) = wanted.checked_sub(held).filter(|&more| more > 0) else { return true };
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let Ok(more) = Arc::clone(memory).try_acquire_many_owned(more) else { return false };
        match &mut self.room {
            Some(room) => room.merge(more),
            None => self.room = Some(more),
        }
        true
    }
}

impl Counted {
    /// By doubling, but never beyond what may be in memory, which is a power of two itself.
    fn extend(&mut self, piece: &[u8]) {
        let len = self.bytes.len() + piece.len();
        if len > self.bytes.capacity() {
            self.bytes.reserve_exact(len.next_power_of_two() - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
    }
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

async fn open(folder: Option<PathBuf>) -> Result<File, SpoolError> {
    blocking(move || match folder {
        Some(folder) => tempfile::tempfile_in(folder),
        None => tempfile::tempfile(),
    })
    .await
}

/// Writes `bytes` to the end of `file`, and hands back their buffer, empty.
async fn write(file: &Arc<File>, mut bytes: Vec<u8>) -> Result<Vec<u8>, SpoolError> {
    if bytes.is_empty() {
        return Ok(bytes);
    }
    let file = Arc::clone(file);
    blocking(move || {
        (&*file).write_all(&bytes)?;
        bytes.clear();
        Ok(bytes)
    })
    .await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SpoolError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|gone| Err(io::Error::other(gone))).map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => SpoolError::DiskFull,
        _ => SpoolError::Disk(error),
    })
}

#[cfg(test)]
mod tests;
