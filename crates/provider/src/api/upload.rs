//! The resumable upload of a file, as a state machine that does no I/O.
//!
//! 1. [`Upload::start`] announces the file. The reply names an address for it in a header.
//! 2. [`Upload::begin`] reads that address. From then on [`next_range`](Upload::next_range) says
//!    which bytes to send, [`chunk`](Upload::chunk) makes the call, and [`sent`](Upload::sent)
//!    reads its reply, until that says [`UploadStep::Done`]: the reply's body is then a
//!    [`FileEnvelope`](super::FileEnvelope).
//! 3. When a chunk's reply is lost, [`query`](Upload::query) asks how much has arrived and
//!    [`resume`](Upload::resume) goes on from there. Nothing is sent twice that has arrived.
//!
//! Every call of one upload has to use a key of the same quota project. They draw on no quota of a
//! model.
//!
//! ```
//! use std::sync::Arc;
//! use keywheel_provider::{api::{File, Upload, UploadStep}, testing::Script, upstream::Upstream};
//! # fn reply(fields: &[(&'static str, &'static str)]) -> http::HeaderMap {
//! #     fields.iter().map(|&(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect()
//! # }
//!
//! let upstream = Upstream::google(Arc::new(Script::new()));
//! let bytes = b"hello";
//! let size = bytes.len() as u64;
//! let start = Upload::start(upstream.version(), &File::default(), "text/plain", size).unwrap();
//! assert_eq!(start.path, "/upload/v1beta/files");
//!
//! let address = "https://generativelanguage.googleapis.com/upload/v1beta/files?upload_id=7";
//! let headers = reply(&[("x-goog-upload-url", address)]);
//! let mut upload = Upload::begin(&upstream, &headers, size).unwrap();
//! assert_eq!(upload.next_range(), 0..5);
//! let call = upload.chunk(&bytes[..]).unwrap();
//! assert_eq!(call.headers["x-goog-upload-command"], "upload, finalize");
//! let headers = reply(&[("x-goog-upload-status", "final")]);
//! assert_eq!(upload.sent(&headers).unwrap(), UploadStep::Done);
//! ```
//!
//! As `google-genai` 3.6.1 and `@google/genai` 3.3.0 do it (`files.py`, `_api_client.py`).

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header::CONTENT_TYPE};
use serde::Serialize;

use super::File;
use crate::{
    Body,
    upstream::{Call, CallError, Upstream},
};

/// Bytes of one chunk: what Google's own clients send.
pub const CHUNK_BYTES: u64 = 8 * 1024 * 1024;

// Of requests.
const COMMAND: HeaderName = HeaderName::from_static("x-goog-upload-command");
const OFFSET: HeaderName = HeaderName::from_static("x-goog-upload-offset");
const PROTOCOL: HeaderName = HeaderName::from_static("x-goog-upload-protocol");
const SIZE: HeaderName = HeaderName::from_static("x-goog-upload-header-content-length");
const TYPE: HeaderName = HeaderName::from_static("x-goog-upload-header-content-type");

// Of replies.
const GRANULARITY: &str = "x-goog-upload-chunk-granularity";
const RECEIVED: &str = "x-goog-upload-size-received";
const STATUS: &str = "x-goog-upload-status";
const URL: &str = "x-goog-upload-url";

/// One upload under way.
///
/// ```
/// use std::sync::Arc;
/// use keywheel_provider::{api::{Upload, UploadStep}, testing::Script, upstream::Upstream};
/// # fn reply(fields: &[(&'static str, &'static str)]) -> http::HeaderMap {
/// #     fields.iter().map(|&(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect()
/// # }
///
/// let upstream = Upstream::google(Arc::new(Script::new()));
/// let address = "https://generativelanguage.googleapis.com/upload/v1beta/files?upload_id=7";
/// let begun = reply(&[("x-goog-upload-url", address)]);
/// let mut upload = Upload::begin(&upstream, &begun, 10)?.with_chunk_bytes(4);
/// assert_eq!((upload.size(), upload.next_range()), (10, 0..4));
///
/// // The reply to the first chunk is lost: ask how much has arrived, and go on from there.
/// let ask = upload.query();
/// assert_eq!(ask.headers["x-goog-upload-command"], "query");
/// let arrived =
///     reply(&[("x-goog-upload-status", "active"), ("x-goog-upload-size-received", "4")]);
/// assert_eq!(upload.resume(&arrived)?, UploadStep::More);
/// assert_eq!((upload.offset(), upload.next_range()), (4, 4..8));
/// # Ok::<(), keywheel_provider::api::UploadError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Upload {
    /// Where its calls go.
    place: Call,
    size: u64,
    offset: u64,
    /// A chunk, but for the last, is a multiple of this.
    granularity: u64,
    chunk: u64,
}

/// What follows from a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadStep {
    /// Send what [`Upload::next_range`] says.
    More,
    /// The file is there; the reply's body tells of it.
    Done,
}

impl Upload {
    /// The call that announces a file of `size` bytes. `version` is the API's,
    /// [`Upstream::version`].
    ///
    /// Of `file` only its name and its name for people matter. Names are best left to the API: one
    /// that is taken is refused.
    ///
    /// # Errors
    /// `mime_type` cannot stand in a header.
    pub fn start(
        version: &str,
        file: &File,
        mime_type: &str,
        size: u64,
    ) -> Result<Call, CallError> {
        #[derive(Serialize)]
        struct Envelope<'a> {
            file: &'a File,
        }
        let path = match version {
            "" => "/upload/files".to_owned(),
            version => format!("/upload/{version}/files"),
        };
        let body =
            serde_json::to_vec(&Envelope { file }).map_err(|e| CallError::Body(e.to_string()))?;
        let mime_type =
            HeaderValue::from_str(mime_type).map_err(|e| CallError::Body(e.to_string()))?;
        Ok(Call::post(path, body)
            .with_header(PROTOCOL, HeaderValue::from_static("resumable"))
            .with_header(COMMAND, HeaderValue::from_static("start"))
            .with_header(SIZE, size.into())
            .with_header(TYPE, mime_type))
    }

    /// Reads the reply to [`start`](Self::start): where the file's bytes go.
    ///
    /// Only the path and the query of that address are used, and only if it names Google's host or
    /// that of `upstream` ([`Upstream::localize`]): the key goes to no other host.
    ///
    /// # Errors
    /// The reply has no address, or one that is not to be trusted.
    pub fn begin(upstream: &Upstream, headers: &HeaderMap, size: u64) -> Result<Self, UploadError> {
        let url = headers.get(URL).and_then(|url| url.to_str().ok());
        let url = url.ok_or(UploadError::Missing(URL))?;
        let place = upstream.localize(url).map_err(UploadError::Address)?;
        // 256 KiB at Google. A server's figure never makes a chunk larger than eight times ours.
        let granularity = number(headers, GRANULARITY).unwrap_or(1).clamp(1, 8 * CHUNK_BYTES);
        let upload = Self { place, size, offset: 0, granularity, chunk: CHUNK_BYTES };
        Ok(upload.with_chunk_bytes(CHUNK_BYTES))
    }

    /// Sets how many bytes a chunk has, as far as the server allows. Defaults to [`CHUNK_BYTES`].
    #[must_use]
    pub fn with_chunk_bytes(mut self, bytes: u64) -> Self {
        self.chunk = (bytes / self.granularity).max(1) * self.granularity;
        self
    }

    /// The bytes to send next. Empty when all are sent, or when there are none.
    #[must_use]
    pub fn next_range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.chunk).min(self.size)
    }

    /// How many bytes have arrived, as far as is known.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// How many bytes there are.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The call that sends the bytes of [`next_range`](Self::next_range), and ends the upload with
    /// the last of them.
    ///
    /// # Errors
    /// `bytes` are not as many as that: the file has changed its size.
    pub fn chunk(&self, bytes: impl Into<Bytes>) -> Result<Call, UploadError> {
        let bytes = bytes.into();
        let next = self.next_range();
        let (expected, found) = (next.end - next.start, bytes.len() as u64);
        if expected != found {
            return Err(UploadError::Length { expected, found });
        }
        let command = if next.end == self.size { "upload, finalize" } else { "upload" };
        Ok(self
            .call(bytes.into(), command)
            .with_header(OFFSET, self.offset.into())
            // A call is JSON unless it says otherwise.
            .with_header(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")))
    }

    /// Reads the reply to [`chunk`](Self::chunk).
    ///
    /// # Errors
    /// The upload was ended from the other side, or the reply is none to a chunk.
    pub fn sent(&mut self, headers: &HeaderMap) -> Result<UploadStep, UploadError> {
        let end = self.next_range().end;
        let step = Self::step(headers)?;
        match (step, end == self.size) {
            // Else the last chunk would be sent for ever, or a file that was cut taken for whole.
            (UploadStep::More, true) => return Err(UploadError::NotFinal),
            (UploadStep::Done, false) => {
                return Err(UploadError::Length { expected: self.size, found: end });
            }
            _ => self.offset = end,
        }
        Ok(step)
    }

    /// The call that asks how much has arrived: after a chunk whose reply was lost, or a 5xx.
    #[must_use]
    pub fn query(&self) -> Call {
        self.call(Body::empty(), "query")
    }

    /// Reads the reply to [`query`](Self::query), and goes on from what has arrived.
    ///
    /// # Errors
    /// The upload was ended from the other side, or the reply tells no length that makes sense.
    pub fn resume(&mut self, headers: &HeaderMap) -> Result<UploadStep, UploadError> {
        let step = Self::step(headers)?;
        if step == UploadStep::Done {
            self.offset = self.size;
            return Ok(step);
        }
        let received = number(headers, RECEIVED).ok_or(UploadError::Missing(RECEIVED))?;
        if received > self.size {
            return Err(UploadError::Length { expected: self.size, found: received });
        }
        self.offset = received;
        Ok(step)
    }

    fn call(&self, body: Body, command: &'static str) -> Call {
        let call = Call { method: Method::POST, body, ..self.place.clone() };
        call.with_header(COMMAND, HeaderValue::from_static(command))
    }

    fn step(headers: &HeaderMap) -> Result<UploadStep, UploadError> {
        let status = headers.get(STATUS).ok_or(UploadError::Missing(STATUS))?;
        match status.to_str().unwrap_or_default() {
            "active" => Ok(UploadStep::More),
            "final" => Ok(UploadStep::Done),
            _ => Err(UploadError::Ended),
        }
    }
}

/// An upload cannot go on. Start it anew, with the same key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UploadError {
    /// A header is missing: a gateway on the way dropped it, or this is the answer of somebody
    /// else.
    #[error("the reply has no readable header {0}")]
    Missing(&'static str),
    /// The address in the reply names a foreign host, or cannot be used.
    #[error("the reply's upload address cannot be used: {0}")]
    Address(#[source] CallError),
    /// Another number of bytes than expected.
    #[error(
        "expected {expected} bytes, found {found}: the file has changed, or another was uploaded"
    )]
    Length {
        /// How many there should be.
        expected: u64,
        /// How many there are.
        found: u64,
    },
    /// Everything was sent and the upload is not at its end.
    #[error("all bytes were sent, and the upload has not ended")]
    NotFinal,
    /// The upload was cancelled, or has expired.
    #[error("the upload was ended from the other side")]
    Ended,
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}
