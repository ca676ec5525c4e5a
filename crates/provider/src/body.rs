//! A request's body: in memory, or in pieces of memory and of a file.

use std::{collections::VecDeque, fmt, fs::File, io, ops::Range, sync::Arc};

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, TryStreamExt as _, stream};

/// The most of a file that is in memory at once.
const PIECE: u64 = 64 * 1024;

/// What a request carries: bytes in memory, or pieces of memory and of a file. Cheap to clone.
///
/// A body of many megabytes need not be in memory: it can lie in a file, whose name may be gone already, and be
/// changed in places all the same.
///
/// ```
/// use std::sync::Arc;
/// use keywheel_provider::Body;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let short = Body::from(r#"{"n":1}"#);
/// assert_eq!(short.splice(5..6, "22"), r#"{"n":22}"#);
///
/// let file = std::env::temp_dir().join(format!("body-example-{}", std::process::id()));
/// std::fs::write(&file, r#"{"n":1}"#)?;
/// let long = Body::from_file(Arc::new(std::fs::File::open(&file)?), 7);
/// std::fs::remove_file(&file)?;
/// assert!(long.bytes().is_none(), "it is not in memory");
/// let changed = long.splice(5..6, "22");
/// assert_eq!((long.len(), changed.len()), (7, 8));
/// assert_eq!(changed.collect().await?, r#"{"n":22}"#);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Body {
    pieces: Pieces,
    len: u64,
}

impl Body {
    /// A body without bytes.
    #[must_use]
    pub const fn empty() -> Self {
        Self { pieces: Pieces::Memory(Bytes::new()), len: 0 }
    }

    /// The first `len` bytes of `file`, which nobody may change from now on. They are read when they are needed,
    /// by their place: it does not matter where the file is read otherwise.
    #[must_use]
    pub fn from_file(file: Arc<File>, len: u64) -> Self {
        Self::of([Piece::File { file, at: 0..len }])
    }

    /// Its length in bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The whole of it; `None` if some of it is in a file.
    #[must_use]
    pub const fn bytes(&self) -> Option<&Bytes> {
        match &self.pieces {
            Pieces::Memory(bytes) => Some(bytes),
            Pieces::Mixed(_) => None,
        }
    }

    /// The same with the bytes `at` replaced. What is in a file is shared, not copied; what is in memory only is
    /// copied once.
    ///
    /// # Panics
    /// There are no such bytes.
    #[must_use]
    pub fn splice(&self, at: Range<u64>, with: impl Into<Bytes>) -> Self {
        assert!(at.start <= at.end && at.end <= self.len, "{at:?} is not within {self:?}");
        let before = self.slice(0..at.start);
        let after = self.slice(at.end..self.len);
        Self::of(before.chain([Piece::Memory(with.into())]).chain(after))
    }

    /// Reads it from its start, blocking where it is in a file. The error of a file that was cut since is
    /// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof).
    ///
    /// ```
    /// use std::io::Read as _;
    /// use keywheel_provider::Body;
    ///
    /// let mut text = String::new();
    /// Body::from("hello").reader().read_to_string(&mut text)?;
    /// assert_eq!(text, "hello");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn reader(&self) -> impl io::Read + Send + use<> {
        Reader { left: self.slice(0..self.len).collect(), piece: Bytes::new() }
    }

    /// Its bytes, of a file in pieces of 64 KiB that are read on a thread that may block. After an error there is
    /// nothing more.
    ///
    /// ```
    /// use futures_util::TryStreamExt as _;
    /// use keywheel_provider::Body;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// let pieces: Vec<_> = Body::from("hello").into_stream().try_collect().await?;
    /// assert_eq!(pieces, ["hello"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// It is in a file, and there is no tokio runtime.
    pub fn into_stream(self) -> impl Stream<Item = io::Result<Bytes>> + Send + use<> {
        let pieces: VecDeque<Piece> = self.slice(0..self.len).collect();
        stream::try_unfold(pieces, |mut left| async move {
            Ok(match take(&mut left) {
                None => None,
                Some(Piece::Memory(bytes)) => Some((bytes, left)),
                Some(Piece::File { file, at }) => {
                    let read = tokio::task::spawn_blocking(move || read(&file, at));
                    Some((read.await.unwrap_or_else(|gone| Err(io::Error::other(gone)))?, left))
                }
            })
        })
    }

    /// The whole of it in memory.
    ///
    /// # Errors
    /// A file cannot be read, or was cut.
    pub async fn collect(self) -> io::Result<Bytes> {
        if let Pieces::Memory(bytes) = self.pieces {
            return Ok(bytes);
        }
        let whole = BytesMut::with_capacity(usize::try_from(self.len).unwrap_or(0));
        let add = |mut whole: BytesMut, piece: Bytes| async move {
            whole.extend_from_slice(&piece);
            Ok(whole)
        };
        Ok(self.into_stream().try_fold(whole, add).await?.freeze())
    }

    fn of(pieces: impl IntoIterator<Item = Piece>) -> Self {
        let pieces: Vec<Piece> = pieces.into_iter().filter(|piece| piece.len() > 0).collect();
        let len = pieces.iter().map(Piece::len).sum();
        let in_memory = |piece: &Piece| match piece {
            Piece::Memory(bytes) => Some(bytes.clone()),
            Piece::File { .. } => None,
        };
        let pieces = match pieces.iter().map(in_memory).collect::<Option<Vec<Bytes>>>() {
            Some(all) => Pieces::Memory(join(all)),
            None => Pieces::Mixed(pieces.into()),
        };
        Self { pieces, len }
    }

    /// The pieces of the bytes `at`; some may be empty.
    fn slice(&self, at: Range<u64>) -> impl Iterator<Item = Piece> + use<> {
        let pieces = match &self.pieces {
            Pieces::Memory(bytes) => vec![Piece::Memory(bytes.clone())],
            Pieces::Mixed(pieces) => pieces.to_vec(),
        };
        let mut place = 0;
        pieces.into_iter().map(move |piece| {
            let (start, end) = (place, place + piece.len());
            place = end;
            let within = |place: u64| place.clamp(start, end) - start;
            piece.part(within(at.start)..within(at.end))
        })
    }
}

impl fmt::Debug for Body {
    /// Only its length: it holds the prompt.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.bytes().is_some() { "Body" } else { "Body in a file" };
        write!(f, "{name} ({} bytes)", self.len)
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self { len: bytes.len() as u64, pieces: Pieces::Memory(bytes) }
    }
}

macro_rules! of_bytes {
    ($($from:ty),*) => {$(
        impl From<$from> for Body {
            fn from(bytes: $from) -> Self {
                Bytes::from(bytes).into()
            }
        }
    )*};
}
of_bytes!(Vec<u8>, String, &'static str, &'static [u8]);

macro_rules! equal_to_bytes {
    ($($other:ty),*) => {$(
        /// One that is in a file equals nothing: comparing would have to read it.
        impl PartialEq<$other> for Body {
            fn eq(&self, other: &$other) -> bool {
                let other: &[u8] = other.as_ref();
                self.bytes().is_some_and(|bytes| bytes == other)
            }
        }
    )*};
}
equal_to_bytes!(str, &str, String, [u8], &[u8], Vec<u8>, Bytes);

#[derive(Clone)]
enum Pieces {
    Memory(Bytes),
    /// At least one is of a file, and none is empty.
    Mixed(Arc<[Piece]>),
}

impl Default for Pieces {
    fn default() -> Self {
        Self::Memory(Bytes::new())
    }
}

#[derive(Clone)]
enum Piece {
    Memory(Bytes),
    File { file: Arc<File>, at: Range<u64> },
}

impl Piece {
    const fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File { at, .. } => at.end - at.start,
        }
    }

    fn part(&self, range: Range<u64>) -> Self {
        match self {
            Self::Memory(bytes) => {
                // Both are within what is in memory.
                Self::Memory(bytes.slice(range.start as usize..range.end as usize))
            }
            Self::File { file, at } => Self::File {
                file: Arc::clone(file),
                at: at.start + range.start..at.start + range.end,
            },
        }
    }
}

struct Reader {
    left: VecDeque<Piece>,
    piece: Bytes,
}

impl io::Read for Reader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            self.piece = match take(&mut self.left) {
                None => return Ok(0),
                Some(Piece::Memory(bytes)) => bytes,
                Some(Piece::File { file, at }) => read(&file, at)?,
            };
        }
        let length = into.len().min(self.piece.len());
        into[..length].copy_from_slice(&self.piece.split_to(length));
        Ok(length)
    }
}

/// Takes the next piece: of a file, at most [`PIECE`] of it.
fn take(pieces: &mut VecDeque<Piece>) -> Option<Piece> {
    let first = pieces.pop_front()?;
    if matches!(first, Piece::Memory(_)) || first.len() <= PIECE {
        return Some(first);
    }
    pieces.push_front(first.part(PIECE..first.len()));
    Some(first.part(0..PIECE))
}

fn read(file: &File, at: Range<u64>) -> io::Result<Bytes> {
    let length = usize::try_from(at.end - at.start).map_err(io::Error::other)?;
    let mut bytes = BytesMut::zeroed(length);
    read_exact_at(file, &mut bytes, at.start)?;
    Ok(bytes.freeze())
}

#[cfg(unix)]
fn read_exact_at(file: &File, into: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, into, at)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut into: &mut [u8], mut at: u64) -> io::Result<()> {
    while !into.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, into, at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => {
                into = &mut into[length..];
                at += length as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// All of them in one; a single one is not copied.
fn join(mut all: Vec<Bytes>) -> Bytes {
    if all.len() <= 1 {
        return all.pop().unwrap_or_default();
    }
    all.concat().into()
}

#[cfg(test)]
mod tests;
