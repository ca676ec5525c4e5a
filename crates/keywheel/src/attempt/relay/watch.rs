//! What is read on the side of a reply that is handed on as it comes. Pure: bytes come in.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};
use keywheel_core::Usage;
use keywheel_provider::sse::{Frame, SseDecoder};

use super::glance::Glance;
use crate::attempt::unzip::{Encoding, Unzip, plain};

/// The most of a frame, or of a whole reply, that is kept to be read. Thought signatures make frames of several MiB
/// (<https://github.com/BerriAI/litellm/issues/30471>), pictures more. Beyond it nothing is read any more, and the
/// bytes go on.
const LONGEST_READ: usize = 32 << 20;

/// What the call says of the reply that is to come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Expected {
    /// A stream, whether as events or as an array.
    pub(crate) is_stream: bool,
    /// An answer of a model, whose end is no end without a reason for it.
    pub(crate) is_answer: bool,
}

/// Why a reply is no answer, or none to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// An error, as it stood there.
    Refused(Bytes),
    /// The end came before a reason for it.
    Truncated,
}

/// The reader of one reply.
pub(super) struct Watch {
    how: How,
    /// Without a reason for its end, the end is a fault.
    must_finish: bool,
    /// So many bytes of the reply, from its beginning, may be handed on.
    passed: u64,
    received: u64,
    frames: usize,
    usage: Option<Usage>,
    is_blocked: bool,
    said: u128,
    finished: u128,
    /// `[DONE]`.
    is_done: bool,
}

enum How {
    /// Not at all.
    Blind,
    /// As one JSON text, at its end.
    Whole { pieces: Vec<Bytes>, zipped: bool },
    /// Frame by frame.
    Frames { decoder: Box<SseDecoder>, unzip: Option<Box<Unzip>> },
}

impl Watch {
    pub(super) fn new(expected: Expected, headers: &HeaderMap) -> Self {
        let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let is = |word: &str| kind.is_some_and(|kind| holds(kind, word.as_bytes()));
        let events = is("text/event-stream");
        let json = kind.is_none() || is("json");
        let encoding = Encoding::of(headers);
        let zipped = encoding == Encoding::Gzip;
        let frames = events || (json && expected.is_stream);
        let how = match (encoding, frames) {
            (Encoding::Other, _) => How::Blind,
            (_, true) => How::Frames {
                decoder: Box::new(SseDecoder::new().with_limit(LONGEST_READ)),
                unzip: zipped.then(|| Box::new(Unzip::new(LONGEST_READ))),
            },
            _ if json => How::Whole { pieces: Vec::new(), zipped },
            _ => How::Blind,
        };
        Self {
            how,
            must_finish: expected.is_answer,
            passed: 0,
            received: 0,
            frames: 0,
            usage: None,
            is_blocked: false,
            said: 0,
            finished: 0,
            is_done: false,
        }
    }

    /// Takes the next bytes of the reply.
    pub(super) fn push(&mut self, piece: &Bytes) -> Result<(), Fault> {
        self.received += piece.len() as u64;
        match &mut self.how {
            How::Blind => {}
            How::Whole { pieces, .. } if self.received > LONGEST_READ as u64 => {
                pieces.clear();
                self.how = How::Blind;
            }
            How::Whole { pieces, .. } => pieces.push(piece.clone()),
            How::Frames { decoder, unzip: None } => {
                decoder.push(piece);
                return self.frames(false);
            }
            How::Frames { decoder, unzip: Some(unzip) } => {
                let Some(plain) = unzip.push(piece) else {
                    self.how = How::Blind;
                    return self.pass_all();
                };
                decoder.push(&plain);
                return self.frames(false);
            }
        }
        self.pass_all()
    }

    /// The end of the reply.
    pub(super) fn finish(&mut self) -> Result<(), Fault> {
        let ended = match &mut self.how {
            How::Blind => Ok(()),
            How::Whole { pieces, zipped } => {
                let body = join(std::mem::take(pieces));
                let unzipped =
                    if *zipped { plain(&body, LONGEST_READ).map(Bytes::from) } else { None };
                self.whole(unzipped.unwrap_or(body))
            }
            How::Frames { decoder, .. } => {
                decoder.finish();
                self.frames(true).and_then(|()| match &self.how {
                    How::Frames { .. } if self.must_finish && !self.is_finished() => {
                        Err(Fault::Truncated)
                    }
                    _ => Ok(()),
                })
            }
        };
        if ended.is_ok() {
            self.passed = self.received;
        }
        ended
    }

    /// How many bytes of the reply, from its beginning, may be handed on. What follows may be the beginning of an
    /// error.
    pub(super) const fn passed(&self) -> u64 {
        self.passed
    }

    /// What it has cost so far, as last reported.
    pub(super) const fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// How many frames have been read.
    pub(super) const fn frames_read(&self) -> usize {
        self.frames
    }

    pub(super) const fn reads_frames(&self) -> bool {
        matches!(self.how, How::Frames { .. })
    }

    pub(super) const fn reads_whole(&self) -> bool {
        matches!(self.how, How::Whole { .. })
    }

    /// The end was announced: nothing follows.
    pub(super) const fn is_done(&self) -> bool {
        self.is_done
    }

    /// Every answer of the stream has given the reason for its end.
    pub(super) const fn is_finished(&self) -> bool {
        self.is_blocked || self.is_done || (self.finished != 0 && self.said & !self.finished == 0)
    }

    #[expect(clippy::unnecessary_wraps, reason = "the end of `push`")]
    const fn pass_all(&mut self) -> Result<(), Fault> {
        self.passed = self.received;
        Ok(())
    }

    fn whole(&mut self, body: Bytes) -> Result<(), Fault> {
        match Glance::at(&body) {
            Ok(glance) if glance.is_only_an_error() => Err(Fault::Refused(body)),
            Ok(glance) => {
                self.usage = glance.usage;
                Ok(())
            }
            // An answer that was cut; anything else may be what it likes.
            Err(error) if error.is_eof() && self.must_finish => Err(Fault::Truncated),
            Err(_) => Ok(()),
        }
    }

    /// Reads the frames that are whole.
    fn frames(&mut self, ends: bool) -> Result<(), Fault> {
        while let How::Frames { decoder, unzip } = &mut self.how {
            let zipped = unzip.is_some();
            match decoder.next_frame() {
                Ok(Some(frame)) => {
                    let read = self.frame(&frame, ends);
                    if read.is_err() && !zipped {
                        self.passed = frame.start;
                    }
                    read?;
                }
                Ok(None) => {
                    // Compressed bytes cannot be cut where a frame ends.
                    self.passed = if zipped { self.received } else { decoder.passed() };
                    return Ok(());
                }
                Err(_too_large) => self.how = How::Blind,
            }
        }
        self.pass_all()
    }

    fn frame(&mut self, frame: &Frame, ends: bool) -> Result<(), Fault> {
        let data = frame.data.trim_ascii();
        if data.is_empty() {
            return Ok(());
        }
        if data == b"[DONE]" {
            self.is_done = true;
            return Ok(());
        }
        let refused = || Err(Fault::Refused(frame.data.clone()));
        if frame.event.as_deref() == Some(b"error") {
            return refused();
        }
        match Glance::at(data) {
            Ok(glance) if glance.is_error => return refused(),
            Ok(glance) => {
                self.frames += 1;
                Usage::take_last(&mut self.usage, glance.usage);
                self.is_blocked |= glance.is_blocked;
                self.said |= glance.said;
                self.finished |= glance.finished;
            }
            Err(_) if begins_with_error(data) => return refused(),
            // Cut by the end: nobody can use a part of a frame.
            Err(_) if ends && self.must_finish && !self.is_finished() => {
                return Err(Fault::Truncated);
            }
            Err(_) if ends => {}
            // Something that this version does not know: it may be whole without a reason that is known here.
            Err(_) => {
                self.frames += 1;
                self.must_finish = false;
            }
        }
        Ok(())
    }
}

/// For what is no JSON: an error that was cut short.
fn begins_with_error(data: &[u8]) -> bool {
    let begin = data.iter().position(|b| !b"[{ \t\r\n".contains(b)).unwrap_or(0);
    data[begin..].starts_with(b"\"error\"")
}

fn join(mut pieces: Vec<Bytes>) -> Bytes {
    if pieces.len() == 1
        && let Some(only) = pieces.pop()
    {
        return only;
    }
    pieces.concat().into()
}

fn holds(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}
