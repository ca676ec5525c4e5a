//! Replies that come compressed, read on a copy: bytes that are handed on stay as they are.
//!
//! Only gzip, which is all that Google's clients ask for. The size of what comes out is bounded: a few bytes can stand
//! for very many.

use std::io::{self, Read as _, Write};

use bytes::Bytes;
use flate2::{read, write};
use http::{HeaderMap, header::CONTENT_ENCODING};

/// How a body stands on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Plain,
    Gzip,
    /// One that cannot be read here.
    Other,
}

impl Encoding {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let Some(encoding) = headers.get(CONTENT_ENCODING) else { return Self::Plain };
        match encoding.as_bytes().trim_ascii().to_ascii_lowercase().as_slice() {
            b"" | b"identity" => Self::Plain,
            b"gzip" | b"x-gzip" => Self::Gzip,
            _ => Self::Other,
        }
    }
}

/// A whole body as it reads, up to `most` bytes; as it is if it cannot be read.
pub(super) fn whole(headers: &HeaderMap, body: Bytes, most: usize) -> Bytes {
    if Encoding::of(headers) != Encoding::Gzip {
        return body;
    }
    match plain(&body, most) {
        Some(plain) => plain.into(),
        None => body,
    }
}

/// What `zipped` holds, up to `most` bytes; as far as it goes, where it was cut. `None`: it is no gzip.
pub(super) fn plain(zipped: &[u8], most: usize) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let mut reader = read::MultiGzDecoder::new(zipped).take(most as u64);
    match reader.read_to_end(&mut plain) {
        Err(_) if plain.is_empty() => None,
        _ => Some(plain),
    }
}

/// Reads a compressed stream piece by piece.
pub(super) struct Unzip(write::MultiGzDecoder<Out>);

impl Unzip {
    /// No piece may grow beyond `most` bytes.
    pub(super) fn new(most: usize) -> Self {
        Self(write::MultiGzDecoder::new(Out { plain: Vec::new(), most }))
    }

    /// What the next piece adds. `None`: it cannot be read, nor what follows.
    pub(super) fn push(&mut self, zipped: &[u8]) -> Option<Vec<u8>> {
        self.0.write_all(zipped).ok()?;
        self.0.flush().ok()?;
        Some(std::mem::take(&mut self.0.get_mut().plain))
    }
}

struct Out {
    plain: Vec<u8>,
    most: usize,
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.plain.len() + bytes.len() > self.most {
            return Err(io::Error::other("it grows too large"));
        }
        self.plain.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use http::HeaderValue;

    use super::*;

    fn zip(plain: &[u8]) -> Vec<u8> {
        let mut zip = write::GzEncoder::new(Vec::new(), Compression::default());
        zip.write_all(plain).unwrap();
        zip.finish().unwrap()
    }

    #[test]
    fn a_body_in_gzip_is_read_and_any_other_stays_as_it_is() {
        let read = |encoding: &'static str, body: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
            whole(&headers, Bytes::copy_from_slice(body), 100)
        };
        assert_eq!(read("gzip", &zip(b"hello")), "hello");
        assert_eq!(read(" GZIP", &[zip(b"hel"), zip(b"lo")].concat()), "hello");
        assert_eq!(read("identity", b"hello"), "hello");
        assert_eq!(read("br", b"\x0b"), &b"\x0b"[..]);
        assert_eq!(read("gzip", b"no gzip"), "no gzip");
        assert_eq!(whole(&HeaderMap::new(), "hello".into(), 100), "hello");
    }

    #[test]
    fn what_a_bomb_unpacks_to_is_bounded() {
        let bomb = zip(&vec![0; 10 << 20]);
        assert!(bomb.len() < 20_000);
        assert_eq!(plain(&bomb, 1_000).unwrap().len(), 1_000);
        assert_eq!(Unzip::new(1_000).push(&bomb), None);
    }

    #[test]
    fn a_stream_is_read_as_far_as_it_has_come() {
        let mut zipped = write::GzEncoder::new(Vec::new(), Compression::default());
        let mut unzip = Unzip::new(1_000);
        for part in ["one", "two", "three"] {
            zipped.write_all(part.as_bytes()).unwrap();
            zipped.flush().unwrap();
            let piece = std::mem::take(zipped.get_mut());
            let (first, second) = piece.split_at(piece.len() / 2);
            let mut read = unzip.push(first).unwrap();
            read.extend(unzip.push(second).unwrap());
            assert_eq!(read, part.as_bytes());
        }
        assert_eq!(unzip.push(&zipped.finish().unwrap()).unwrap(), b"");
    }
}
