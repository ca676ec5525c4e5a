//! A decoder of server-sent events that takes any chunking, and of bare JSON among them.
//!
//! Google's frames are `data: {json}\r\n\r\n`, but gateways and faults bring more: comments, other line
//! ends, several `data` lines, and an error object in bare JSON at the end of a stream. Without `alt=sse`
//! the body is one JSON array. All of these come out as [`Frame`]s.
//!
//! The format: <https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream>.
//! Two differences: data is bytes, whether valid UTF-8 or not, and a last event without its blank line is
//! delivered, since that is where cut replies keep their error.

use std::fmt;

use bytes::{Buf as _, Bytes, BytesMut};
use memchr::{memchr2, memchr3};

/// The most bytes a frame may have, unless set otherwise: 64 MiB. Frames with inline pictures and thought
/// signatures are far above any usual line limit.
pub const DEFAULT_FRAME_LIMIT: usize = 64 << 20;

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// One event of a stream.
#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    /// The event's name, where the stream gives one. Google's do not.
    pub event: Option<Bytes>,
    /// The data, without the field name; several lines are joined by a line feed.
    pub data: Bytes,
    /// How it stood in the stream.
    pub framing: Framing,
    /// Where it begins in the stream: so many bytes came before it. What separates the elements of an array belongs to
    /// the next one.
    pub start: u64,
}

impl fmt::Debug for Frame {
    /// The data only by its length: it is somebody's conversation, and an error may repeat the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("event", &self.event)
            .field("data_bytes", &self.data.len())
            .field("framing", &self.framing)
            .finish()
    }
}

/// How a frame stood in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// As an event, ended by a blank line or the end of the stream.
    Event,
    /// As an object in bare JSON, alone or an element of an array.
    BareJson,
    /// As bare JSON that the stream's end cut short.
    CutJson,
}

/// A frame is larger than the decoder's limit. Nothing more can be read from this stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame of the stream is larger than {limit} bytes")]
pub struct FrameTooLarge {
    /// The limit.
    pub limit: usize,
}

/// Turns chunks of a stream into [`Frame`]s.
///
/// Work is linear in the bytes given, and the frames are the same however they are cut. Between two calls
/// of [`push`](Self::push), take all frames there are: then the memory held is bounded by twice the limit
/// and one chunk.
///
/// ```
/// use keywheel_provider::sse::SseDecoder;
///
/// let mut decoder = SseDecoder::new();
/// decoder.push(b"data: {\"a\"");
/// assert_eq!(decoder.next_frame(), Ok(None));
/// decoder.push(b":1}\r\n\r\n");
/// assert_eq!(decoder.next_frame().unwrap().unwrap().data, "{\"a\":1}");
/// ```
pub struct SseDecoder {
    buf: BytesMut,
    /// So many bytes came, those in `buf` included.
    pushed: u64,
    /// Where the event began whose lines are being read.
    began: u64,
    /// How far `buf` has been searched without finding an end.
    scanned: usize,
    limit: usize,
    mode: Mode,
    /// Nothing has been taken from the stream yet: a byte-order mark may stand here.
    at_start: bool,
    /// The last line ended in a carriage return, so a line feed here belongs to it.
    after_cr: bool,
    ended: bool,
    failed: bool,
    event: Option<Bytes>,
    data: Option<Data>,
}

#[derive(Clone, Copy)]
enum Mode {
    Lines,
    /// Between the elements of a bare array.
    Array,
    /// In a bare object.
    Object {
        depth: usize,
        in_string: bool,
        in_array: bool,
    },
}

/// Nearly every event has one line, which then needs no copy.
enum Data {
    One(Bytes),
    Several(BytesMut),
}

impl fmt::Debug for SseDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SseDecoder")
            .field("held_bytes", &self.buf.len())
            .field("limit", &self.limit)
            .field("ended", &self.ended)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl Default for SseDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl SseDecoder {
    /// A decoder with the [`DEFAULT_FRAME_LIMIT`].
    #[must_use]
    pub fn new() -> Self {
        Self {
            buf: BytesMut::new(),
            pushed: 0,
            began: 0,
            scanned: 0,
            limit: DEFAULT_FRAME_LIMIT,
            mode: Mode::Lines,
            at_start: true,
            after_cr: false,
            ended: false,
            failed: false,
            event: None,
            data: None,
        }
    }

    /// Sets the most bytes that one line, and the data of one frame, may have.
    ///
    /// ```
    /// use keywheel_provider::sse::{FrameTooLarge, SseDecoder};
    ///
    /// let mut decoder = SseDecoder::new().with_limit(8);
    /// decoder.push(b"data: more than eight bytes\n\n");
    /// assert_eq!(decoder.next_frame(), Err(FrameTooLarge { limit: 8 }));
    /// ```
    #[must_use]
    pub const fn with_limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// Takes the next chunk of the stream, of any length.
    pub fn push(&mut self, chunk: &[u8]) {
        if !self.failed && !self.ended {
            self.buf.extend_from_slice(chunk);
            self.pushed += chunk.len() as u64;
        }
    }

    /// Says that the stream has ended: what is left comes out as the last frame.
    pub const fn finish(&mut self) {
        self.ended = true;
    }

    /// How many bytes of the stream are behind it: they belong to no frame that is still to come.
    ///
    /// Whoever hands a stream on as it came can stop in front of a frame.
    ///
    /// ```
    /// use keywheel_provider::sse::SseDecoder;
    ///
    /// let mut decoder = SseDecoder::new();
    /// decoder.push(b"data: {}\r\n\r\ndata: {\"error\"");
    /// assert!(decoder.next_frame().unwrap().is_some());
    /// assert_eq!(decoder.passed(), 12);
    /// assert!(decoder.next_frame().unwrap().is_none());
    /// assert_eq!(decoder.passed(), 12, "the error is still to come");
    /// ```
    #[must_use]
    pub fn passed(&self) -> u64 {
        if self.data.is_some() || self.event.is_some() {
            return self.began;
        }
        self.at()
    }

    /// The next frame that is complete. `None` until more is pushed.
    ///
    /// # Errors
    /// A frame grew over the limit. The decoder stays failed and holds no memory.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameTooLarge> {
        if self.failed {
            return Err(FrameTooLarge { limit: self.limit });
        }
        let frame = self.advance();
        if frame.is_err() {
            *self = Self { failed: true, ..Self::new().with_limit(self.limit) };
        }
        frame
    }

    /// Where `buf` begins in the stream.
    fn at(&self) -> u64 {
        self.pushed - self.buf.len() as u64
    }

    fn advance(&mut self) -> Result<Option<Frame>, FrameTooLarge> {
        if self.at_start && !self.skip_bom() {
            return Ok(None);
        }
        loop {
            let step = match self.mode {
                Mode::Lines => self.line(),
                Mode::Array => self.between_elements(),
                Mode::Object { depth, in_string, in_array } => {
                    self.object(depth, in_string, in_array)
                }
            };
            match step {
                Step::Again => {}
                Step::Frame(frame) => return Ok(Some(frame)),
                Step::TooLarge => return Err(FrameTooLarge { limit: self.limit }),
                // All that is held is one line or object without its end.
                Step::NeedMore if self.buf.len() > self.limit => {
                    return Err(FrameTooLarge { limit: self.limit });
                }
                Step::NeedMore => return Ok(None),
            }
        }
    }

    /// False while it is open whether the stream begins with a byte-order mark.
    fn skip_bom(&mut self) -> bool {
        let seen = self.buf.len().min(BOM.len());
        if self.buf[..seen] == BOM[..seen] {
            if seen < BOM.len() && !self.ended {
                return false;
            }
            if seen == BOM.len() {
                self.buf.advance(seen);
            }
        }
        self.at_start = false;
        true
    }

    fn line(&mut self) -> Step {
        if self.after_cr {
            match self.buf.first() {
                None if !self.ended => return Step::NeedMore,
                Some(b'\n') => self.buf.advance(1),
                _ => {}
            }
            self.after_cr = false;
        }
        if self.scanned == 0 && self.begins_bare_json() {
            return Step::Again;
        }
        let Some(found) = memchr2(b'\n', b'\r', &self.buf[self.scanned..]) else {
            self.scanned = self.buf.len();
            return if self.ended { self.last_line() } else { Step::NeedMore };
        };
        let length = self.scanned + found;
        self.scanned = 0;
        self.after_cr = self.buf[length] == b'\r';
        if length == 0 {
            self.buf.advance(1);
            if self.after_cr && self.buf.first() == Some(&b'\n') {
                self.buf.advance(1);
                self.after_cr = false;
            }
            return match self.dispatch() {
                Step::NeedMore => Step::Again,
                frame => frame,
            };
        }
        self.begin();
        let line = self.buf.split_to(length).freeze();
        self.buf.advance(1);
        self.take_field(&line)
    }

    /// The end of the stream ends a line and an event as well.
    fn last_line(&mut self) -> Step {
        self.begin();
        let line = self.buf.split().freeze();
        self.scanned = 0;
        match self.take_field(&line) {
            Step::TooLarge => Step::TooLarge,
            _ => self.dispatch(),
        }
    }

    /// A line begins here, and with it an event, unless one has begun already.
    fn begin(&mut self) {
        if self.data.is_none() && self.event.is_none() {
            self.began = self.at();
        }
    }

    fn take_field(&mut self, line: &Bytes) -> Step {
        if line.len() > self.limit {
            return Step::TooLarge;
        }
        let (name, value) = match memchr::memchr(b':', line) {
            None => (line.as_ref(), line.slice(line.len()..)),
            Some(colon) => {
                let space = usize::from(line.get(colon + 1) == Some(&b' '));
                (&line[..colon], line.slice(colon + 1 + space..))
            }
        };
        match name {
            b"data" => match &mut self.data {
                None => self.data = Some(Data::One(value)),
                Some(data) => data.append(&value),
            },
            b"event" => self.event = Some(value),
            // Comments have an empty name. `id` and `retry` are for browsers that reconnect.
            _ => {}
        }
        match &self.data {
            Some(data) if data.len() > self.limit => Step::TooLarge,
            _ => Step::Again,
        }
    }

    fn dispatch(&mut self) -> Step {
        let event = self.event.take();
        match self.data.take() {
            Some(data) => Step::Frame(Frame {
                event,
                data: data.whole(),
                framing: Framing::Event,
                start: self.began,
            }),
            None => Step::NeedMore,
        }
    }

    /// No field begins with a bracket, so a line outside of an event that does is JSON without a frame.
    fn begins_bare_json(&mut self) -> bool {
        if self.data.is_some() {
            return false;
        }
        let at = self.at();
        self.mode = match self.buf.first() {
            Some(b'{') => Mode::Object { depth: 0, in_string: false, in_array: false },
            Some(b'[') => {
                self.buf.advance(1);
                Mode::Array
            }
            _ => return false,
        };
        (self.event, self.began) = (None, at);
        true
    }

    fn between_elements(&mut self) -> Step {
        let Some(at) = self.buf.iter().position(|b| !b" \t\r\n,".contains(b)) else {
            self.buf.clear();
            return if self.ended { self.back_to_lines() } else { Step::NeedMore };
        };
        self.buf.advance(at);
        if self.buf[0] == b'{' {
            self.mode = Mode::Object { depth: 0, in_string: false, in_array: true };
            return Step::Again;
        }
        // The end of the array, or no array of objects after all.
        self.back_to_lines()
    }

    fn object(&mut self, mut depth: usize, mut in_string: bool, in_array: bool) -> Step {
        loop {
            let rest = &self.buf[self.scanned..];
            let found = match in_string {
                true => memchr2(b'"', b'\\', rest),
                false => memchr3(b'"', b'{', b'}', rest),
            };
            let Some(found) = found else {
                self.scanned = self.buf.len();
                break;
            };
            let at = self.scanned + found;
            match self.buf[at] {
                // Whatever is escaped ends nothing. It may come with the next chunk.
                b'\\' if at + 1 == self.buf.len() => {
                    self.scanned = at;
                    break;
                }
                b'\\' => self.scanned = at + 2,
                b'"' => {
                    in_string = !in_string;
                    self.scanned = at + 1;
                }
                b'{' => {
                    depth += 1;
                    self.scanned = at + 1;
                }
                _ if depth > 1 => {
                    depth -= 1;
                    self.scanned = at + 1;
                }
                _ if at >= self.limit => return Step::TooLarge,
                _ => {
                    let data = self.buf.split_to(at + 1).freeze();
                    self.scanned = 0;
                    self.mode = Mode::Array;
                    if !in_array {
                        self.back_to_lines();
                    }
                    return self.bare(data, Framing::BareJson);
                }
            }
        }
        self.mode = Mode::Object { depth, in_string, in_array };
        if !self.ended {
            return Step::NeedMore;
        }
        let data = self.buf.split().freeze();
        self.back_to_lines();
        self.bare(data, Framing::CutJson)
    }

    /// The frame that `data` is, and the beginning of the next one, if it is an element of the same array.
    fn bare(&mut self, data: Bytes, framing: Framing) -> Step {
        let next = self.at();
        let start = std::mem::replace(&mut self.began, next);
        Step::Frame(Frame { event: None, data, framing, start })
    }

    /// What follows on the same line is no line of its own, and means nothing.
    fn back_to_lines(&mut self) -> Step {
        self.mode = Mode::Lines;
        self.scanned = 0;
        Step::Again
    }
}

enum Step {
    /// Something was taken; there may be more.
    Again,
    Frame(Frame),
    /// Nothing complete is left.
    NeedMore,
    TooLarge,
}

impl Data {
    fn len(&self) -> usize {
        match self {
            Self::One(line) => line.len(),
            Self::Several(lines) => lines.len(),
        }
    }

    fn append(&mut self, line: &[u8]) {
        if let Self::One(first) = self {
            *self = Self::Several(BytesMut::from(first.as_ref()));
        }
        if let Self::Several(lines) = self {
            lines.extend_from_slice(b"\n");
            lines.extend_from_slice(line);
        }
    }

    fn whole(self) -> Bytes {
        match self {
            Self::One(line) => line,
            Self::Several(lines) => lines.freeze(),
        }
    }
}

#[cfg(test)]
mod tests;
