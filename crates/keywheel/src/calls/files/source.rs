//! Where the bytes of an upload come from.

use std::{
    fmt, fs,
    future::poll_fn,
    io::{self, Read as _, Seek as _, SeekFrom},
    ops::Range,
    path::{Path, PathBuf},
    pin::Pin,
};

use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};

use crate::blocking::blocking;

/// Where the bytes of an upload come from: memory, a file of the disk, or a reader.
///
/// ```
/// use std::path::Path;
/// use keywheel::files::Source;
///
/// let from_memory = Source::from(b"hello".to_vec());
/// let from_disk = Source::from(Path::new("talk.mp3"));
/// # let reader: &[u8] = b"hello";
/// let from_reader = Source::reader(reader, 5);
/// # let _ = (from_memory, from_disk, from_reader);
/// ```
pub struct Source(Kind);

enum Kind {
    Bytes(Bytes),
    Path(PathBuf),
    Reader { reader: Pin<Box<dyn AsyncRead + Send>>, size: u64, at: u64 },
}

impl Source {
    /// What `reader` gives: exactly `size` bytes. Fewer are an error; more are not read.
    ///
    /// It cannot be read again, so an upload whose beginning is lost on the way fails.
    #[must_use]
    pub fn reader(reader: impl AsyncRead + Send + 'static, size: u64) -> Self {
        Self(Kind::Reader { reader: Box::pin(reader), size, at: 0 })
    }

    /// How many bytes there are.
    pub(super) async fn size(&mut self) -> io::Result<u64> {
        match &self.0 {
            Kind::Bytes(bytes) => Ok(bytes.len() as u64),
            Kind::Reader { size, .. } => Ok(*size),
            Kind::Path(path) => {
                let path = path.clone();
                let found = blocking(move || fs::metadata(path)).await?;
                if !found.is_file() {
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
                }
                Ok(found.len())
            }
        }
    }

    /// The bytes of `range`, fewer if there are no more. A reader goes forward only.
    pub(super) async fn read(&mut self, range: Range<u64>) -> io::Result<Bytes> {
        let length = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
        match &mut self.0 {
            Kind::Bytes(bytes) => {
                let position = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
                Ok(bytes.slice(position(range.start)..position(range.end)))
            }
            Kind::Path(path) => {
                let path = path.clone();
                blocking(move || read_file(&path, range.start, length)).await
            }
            Kind::Reader { reader, at, .. } => {
                if *at != range.start {
                    return Err(io::Error::other("a reader cannot be read again"));
                }
                let bytes = fill(reader.as_mut(), length).await?;
                *at += bytes.len() as u64;
                Ok(bytes)
            }
        }
    }
}

fn read_file(path: &Path, start: u64, length: usize) -> io::Result<Bytes> {
    let mut file = fs::File::open(path)?;
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::with_capacity(length);
    file.take(length as u64).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

async fn fill(mut reader: Pin<&mut (dyn AsyncRead + Send)>, length: usize) -> io::Result<Bytes> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        let mut buffer = ReadBuf::new(&mut bytes[filled..]);
        poll_fn(|cx| reader.as_mut().poll_read(cx, &mut buffer)).await?;
        match buffer.filled().len() {
            0 => break,
            more => filled += more,
        }
    }
    bytes.truncate(filled);
    Ok(bytes.into())
}

impl From<Bytes> for Source {
    fn from(bytes: Bytes) -> Self {
        Self(Kind::Bytes(bytes))
    }
}

impl From<Vec<u8>> for Source {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Kind::Bytes(bytes.into()))
    }
}

impl From<&Path> for Source {
    fn from(path: &Path) -> Self {
        Self(Kind::Path(path.to_owned()))
    }
}

impl From<PathBuf> for Source {
    fn from(path: PathBuf) -> Self {
        Self(Kind::Path(path))
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Bytes(bytes) => write!(f, "Source({} bytes)", bytes.len()),
            Kind::Path(path) => write!(f, "Source({})", path.display()),
            Kind::Reader { size, .. } => write!(f, "Source(a reader of {size} bytes)"),
        }
    }
}
