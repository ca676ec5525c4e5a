//! Walks through a request once, and keeps what is asked about it.

use std::collections::BTreeSet;

use keywheel_provider::api::file_name;

use super::{
    Config, Shape, Sketch,
    frame::{Blob, Frame},
    lexer::{Lexer, NotJson, Token},
    place::Place,
    value::{Kind, Sink},
};
use crate::charging::READERS;

/// The framing of a turn: role and separators.
const PER_TURN: u64 = 4;

/// So many names of files are kept; more than any model reads.
const MOST_NAMES: usize = 4_096;

/// So many places of a limit are kept: a request has one, and an object around it.
const MOST_LIMITS: usize = 8;

/// Keys, names and addresses that are longer mean nothing here.
const LONGEST_WORD: usize = 512;

pub(super) struct Walk {
    shape: Shape,
    lexer: Lexer,
    /// Where the piece begins that is read.
    base: u64,
    /// What the open objects and arrays mean.
    open: Vec<Open>,
    /// What is weighed by itself, one within the other.
    frames: Vec<Frame>,
    /// What the value means whose key was read.
    next: Place,
    /// What becomes of the key, string or atom that is read.
    sink: Sink,
    /// Its beginning.
    word: Vec<u8>,
    /// Its length.
    length: u64,
    /// Where it began.
    began: u64,
    names: BTreeSet<String>,
    limits: Limits,
    out: Sketch,
}

/// What is known of the fields that limit the answer.
#[derive(Debug, Default)]
struct Limits {
    /// The largest.
    longest: Option<u64>,
    /// One of them limits nothing.
    is_unbounded: bool,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    place: Place,
    is_array: bool,
}

impl Walk {
    pub(super) fn new(shape: Shape) -> Self {
        Self {
            shape,
            lexer: Lexer::new(),
            base: 0,
            open: Vec::new(),
            frames: Vec::new(),
            next: Place::Root,
            sink: Sink::Raw,
            word: Vec::new(),
            length: 0,
            began: 0,
            names: BTreeSet::new(),
            limits: Limits::default(),
            out: Sketch { shape, candidates: 1, ..Sketch::default() },
        }
    }

    /// The next piece of the request.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), NotJson> {
        let mut at = 0;
        loop {
            let before = at;
            let Some(token) = self.lexer.next(piece, &mut at)? else {
                self.feed(&piece[before..]);
                break;
            };
            // What is between two tokens is part of what holds both.
            let start = match &token {
                Token::Run(range) | Token::Atom(range) => range.start,
                Token::Escaped(_) | Token::AtomEnd => before,
                _ => at - 1,
            };
            self.feed(&piece[before..start]);
            self.take(token, &piece[start..at], self.base + start as u64);
        }
        self.base += piece.len() as u64;
        Ok(())
    }

    /// What was found; `is_json` is false if the request is not whole.
    pub(super) fn finish(mut self) -> Sketch {
        self.out.is_json = self.lexer.is_whole();
        // A number has no end of its own.
        while let Some(frame) = self.frames.pop() {
            self.add(frame.tokens(self.shape));
        }
        self.out.max_output = self.longest_answer();
        self.out.names = self.names.into_iter().collect();
        self.out
    }

    /// Of several limits nobody knows which one counts, so each must be one.
    fn longest_answer(&self) -> Option<u64> {
        let spots = &self.out.spots;
        if spots.are_too_many {
            // They could not all be set.
            return Some(u64::from(u32::MAX));
        }
        let is_everywhere =
            spots.no_configs.is_empty() && spots.configs.iter().all(|config| config.is_limited);
        self.limits.longest.filter(|_| is_everywhere && !self.limits.is_unbounded)
    }

    /// Whether one more place of a limit is kept.
    fn has_room(&mut self) -> bool {
        let spots = &mut self.out.spots;
        let kept = spots.limits.len() + spots.configs.len() + spots.no_configs.len();
        spots.are_too_many |= kept >= MOST_LIMITS;
        kept < MOST_LIMITS
    }

    /// `bytes` of the request, if they stand in something that is weighed.
    fn feed(&mut self, bytes: &[u8]) {
        let Some(frame) = self.frames.last_mut() else { return };
        if matches!(self.sink, Sink::Text(..) | Sink::Length(_)) {
            frame.left_out += bytes.len() as u64;
        } else {
            frame.raw.push(bytes);
        }
    }

    fn take(&mut self, token: Token, bytes: &[u8], at: u64) {
        let end = at + bytes.len() as u64;
        match token {
            Token::Object => self.begin(Kind::Object, end),
            Token::Array => self.begin(Kind::Array, end),
            Token::Key => {
                self.begin_word(Sink::Word(Place::Within), at);
                self.is_not_empty();
            }
            Token::String => self.begin(Kind::String, at),
            Token::AtomStart => {
                self.begin(Kind::Atom, at);
                self.keep(bytes);
            }
            Token::Run(_) | Token::Atom(_) => self.keep(bytes),
            Token::Escaped(c) => self.keep(c.encode_utf8(&mut [0; 4]).as_bytes()),
            Token::Close | Token::KeyEnd | Token::StringEnd | Token::AtomEnd => {}
        }
        self.feed(bytes);
        match token {
            Token::Close => {
                let closed = self.open.pop();
                if closed.is_some_and(|open| open.place == Place::Blob)
                    && let Some(frame) = self.frames.last_mut()
                {
                    frame.end_blob();
                }
                self.end_value();
            }
            Token::KeyEnd => {
                self.sink = Sink::Raw;
                self.end_key();
            }
            Token::StringEnd => {
                self.end_string(end);
                self.end_value();
            }
            Token::AtomEnd => {
                self.end_atom(end);
                self.end_value();
            }
            _ => {}
        }
    }

    /// The object that is open has a field.
    fn is_not_empty(&mut self) {
        if self.open.len() == 1 {
            if let Some((_, is_empty)) = &mut self.out.spots.root {
                *is_empty = false;
            }
        } else if let Some(config) = self.config() {
            config.is_empty = false;
        }
    }

    /// The generation config that is open.
    fn config(&mut self) -> Option<&mut Config> {
        let is_open = self.open.len() == 2 && self.open[1].place == Place::Config;
        self.out.spots.configs.last_mut().filter(|_| is_open)
    }

    /// A value begins; `at` is its first byte, and the byte behind that of objects and arrays.
    fn begin(&mut self, kind: Kind, at: u64) {
        let place = match self.open.last() {
            Some(Open { place, is_array: true }) => place.element(),
            _ => self.next,
        };
        if matches!(place, Place::Background | Place::Agent) {
            self.out.background |= kind != Kind::Atom;
        }
        match (kind, place) {
            // One text, in parts or in tokens.
            (Kind::Object, Place::Inputs | Place::Input) | (Kind::Array, Place::Input) => {
                self.count_text();
            }
            _ => {}
        }
        let within = !self.frames.is_empty();
        let (place, is_weighed) = kind.at(place, self.shape, within);
        if is_weighed {
            self.frames.push(Frame::new(self.open.len()));
        }
        match kind {
            Kind::Object => {
                let depth = self.open.len();
                match place {
                    Place::Turn | Place::Message => self.add(PER_TURN),
                    Place::BatchItem => self.count_text(),
                    Place::Blob => self.frame(|frame| frame.blob = Blob::default()),
                    Place::Root if depth == 0 => self.out.spots.root = Some((at, true)),
                    Place::Config if depth == 1 && self.has_room() => {
                        let config = Config { at, is_empty: true, is_limited: false };
                        self.out.spots.configs.push(config);
                    }
                    _ => {}
                }
                self.open.push(Open { place, is_array: false });
            }
            Kind::Array => self.open.push(Open { place, is_array: true }),
            Kind::String | Kind::Atom => self.begin_word(kind.sink(place), at),
        }
    }

    fn begin_word(&mut self, sink: Sink, at: u64) {
        self.word.clear();
        (self.sink, self.length, self.began) = (sink, 0, at);
    }

    /// Some of the string or atom that is read, as it is meant.
    fn keep(&mut self, bytes: &[u8]) {
        match &mut self.sink {
            Sink::Raw => {}
            Sink::Text(_, text) => text.push(bytes),
            Sink::Word(_) | Sink::Length(_) => {
                self.length += bytes.len() as u64;
                let room = LONGEST_WORD.saturating_sub(self.word.len());
                self.word.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
        }
    }

    fn end_key(&mut self) {
        let key = str::from_utf8(&self.word).unwrap_or_default();
        let Some(Open { place, .. }) = self.open.last().copied() else { return };
        if place == Place::Tool && self.shape.is_gemini() {
            self.out.uses_tools |= !matches!(key, "functionDeclarations" | "function_declarations");
            self.out.reads |= READERS.contains(&key);
        }
        self.out.spots.is_response |= place == Place::Root && key == "input";
        self.next = place.field(self.shape, key);
    }

    fn end_string(&mut self, end: u64) {
        let sink = std::mem::replace(&mut self.sink, Sink::Raw);
        let word = || String::from_utf8_lossy(&self.word).into_owned();
        match sink {
            Sink::Raw => {}
            Sink::Text(place, text) => {
                let tokens = text.tokens();
                match place {
                    Place::Text => self.frame(|frame| {
                        frame.text = Some(frame.text.unwrap_or(0).saturating_add(tokens));
                    }),
                    _ => self.add(tokens),
                }
                if matches!(place, Place::Inputs | Place::Input) {
                    self.count_text();
                }
            }
            Sink::Length(Place::DataUrl) => {
                let (word, length) = (word(), self.length);
                self.end_url(&word, length);
            }
            Sink::Length(_) => {
                let length = self.length;
                self.frame(|frame| frame.blob.data = Some(length));
            }
            Sink::Word(place) => {
                let word = word();
                self.end_word(place, word, end);
            }
        }
    }

    fn end_word(&mut self, place: Place, word: String, end: u64) {
        match place {
            Place::Mime => self.frame(|frame| frame.blob.mime = Some(word)),
            Place::Uri => self.end_file(&word),
            Place::ToolType => {
                self.out.uses_tools |= word != "function";
                self.out.reads |= READERS.contains(&&*word) || word.starts_with("mcp");
            }
            Place::Model | Place::Agent => {
                self.out.spots.model = Some(self.began..end);
                self.out.model = Some(word);
            }
            Place::Cached => {
                self.name(&word);
                self.out.cached_content = Some(word);
            }
            Place::Before => {
                self.out.reads = true;
                if self.shape == Shape::Interaction {
                    self.name(&format!("interactions/{word}"));
                }
            }
            Place::MaxOutput | Place::Candidates => self.end_number(place, &word, end),
            _ => {}
        }
    }

    fn end_url(&mut self, head: &str, length: u64) {
        let Some(rest) = head.strip_prefix("data:") else { return self.end_file(head) };
        let (mime, rest) = rest.split_once([';', ',']).unwrap_or((rest, ""));
        let before = head.len() - rest.rsplit(',').next().map_or(0, str::len);
        let data = length.saturating_sub(before as u64);
        let mime = mime.to_owned();
        self.frame(|frame| frame.add_media(&mime, data));
    }

    fn end_file(&mut self, address: &str) {
        self.frame(|frame| frame.is_file = true);
        if let Some(name) = file_name(address) {
            self.name(name);
        }
    }

    fn end_atom(&mut self, end: u64) {
        let Sink::Word(place) = std::mem::replace(&mut self.sink, Sink::Raw) else { return };
        let word = String::from_utf8_lossy(&self.word).into_owned();
        let is_number = word.starts_with(|c: char| c == '-' || c.is_ascii_digit());
        match place {
            Place::Stream => self.out.stream = word == "true",
            Place::Background | Place::Agent => {
                self.out.background |= !matches!(&*word, "false" | "null");
            }
            Place::Config if self.open.len() == 1 && self.has_room() => {
                self.out.spots.no_configs.push(self.began..end);
            }
            Place::MaxOutput | Place::Candidates => self.end_number(place, &word, end),
            Place::Inputs | Place::Input | Place::InputTokens if is_number => {
                self.add(1);
                if place != Place::InputTokens {
                    // One text, given in tokens.
                    self.out.texts = self.out.texts.or(Some(1));
                }
            }
            _ => {}
        }
    }

    /// A number, which may stand in a string: so JSON of Protocol Buffers has it.
    fn end_number(&mut self, place: Place, word: &str, end: u64) {
        let number = if self.length > word.len() as u64 { Some(u64::MAX) } else { whole(word) };
        // Zero is as good as nothing.
        let number = number.filter(|number| *number > 0);
        let number = number.map(|number| number.min(u64::from(u32::MAX)));
        if place == Place::Candidates {
            self.out.candidates = self.out.candidates.max(number.unwrap_or(1));
            return;
        }
        self.limits.longest = self.limits.longest.max(number);
        self.limits.is_unbounded |= number.is_none();
        if let Some(config) = self.config() {
            config.is_limited = true;
        }
        if self.has_room() {
            self.out.spots.limits.push(self.began..end);
        }
    }

    /// A value has ended, and whatever is weighed that began with it.
    fn end_value(&mut self) {
        if self.frames.last().is_some_and(|frame| frame.depth == self.open.len())
            && let Some(frame) = self.frames.pop()
        {
            self.add(frame.tokens(self.shape));
        }
    }

    fn frame(&mut self, change: impl FnOnce(&mut Frame)) {
        if let Some(frame) = self.frames.last_mut() {
            change(frame);
        }
    }

    fn name(&mut self, name: &str) {
        if self.names.len() < MOST_NAMES && !name.is_empty() {
            self.names.insert(name.to_owned());
        }
    }

    fn count_text(&mut self) {
        self.out.texts = Some(self.out.texts.unwrap_or(0).saturating_add(1));
    }

    const fn add(&mut self, tokens: u64) {
        self.out.input_tokens = self.out.input_tokens.saturating_add(tokens);
    }
}

/// A whole number, however it is written.
fn whole(word: &str) -> Option<u64> {
    let word = word.trim();
    let as_float = || {
        let number = word.parse::<f64>().ok().filter(|number| *number >= 1.0)?;
        // Converting saturates.
        Some(number.ceil() as u64)
    };
    word.parse().ok().or_else(as_float)
}
