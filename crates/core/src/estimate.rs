//! How many tokens a request will be, before the provider has counted it.
//!
//! Budgets and token windows have to decide before a call is sent, on every call. Length divided by
//! four, the usual rule, is four times too low for digits and three times for Chinese, so
//! characters are told apart by class. The costs below were fitted to Gemma 3's tokenizer, the one
//! that Google publishes and that its SDK uses to count for Gemini, over prose in some forty
//! languages, code and data. They lean upwards: about 1.1 to 1.4 times the true count for most
//! text, not under 0.8 for any kind in the tests.
//!
//! Sources: costs of media and the rule of thumb, <https://ai.google.dev/gemini-api/docs/tokens>;
//! the counts, `tests/data/README.md`.

/// An upper-leaning estimate of the tokens in `text`; 0 for an empty text.
///
/// One pass, no allocation. What the provider adds around a text (roles, schemas, tools) is extra.
///
/// ```
/// use keywheel_core::estimate::tokens;
///
/// assert_eq!(tokens(""), 0);
/// assert!((8..=12).contains(&tokens("The harbour was quiet when it came in.")));
/// assert!(tokens("20261130") >= 8); // every digit is a token
/// ```
#[must_use]
pub fn tokens(text: &str) -> u64 {
    let mut tally = Tally::default();
    tally.push(text);
    tally.tokens()
}

/// The [`tokens`] of a text that comes in pieces, wherever it is cut.
///
/// ```
/// use keywheel_core::estimate::{Tally, tokens};
///
/// let mut tally = Tally::default();
/// for piece in ["The har", "bour was ", "quiet."] {
///     tally.push(piece);
/// }
/// assert_eq!(tally.tokens(), tokens("The harbour was quiet."));
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally(Counter);

impl Tally {
    /// The next piece.
    pub fn push(&mut self, text: &str) {
        for c in text.chars() {
            if c.is_ascii() {
                self.0.ascii(c as u8);
            } else {
                self.0.wide(c);
            }
        }
    }

    /// The tokens of all pieces so far, as one text.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.0.finish()
    }
}

/// An upper-leaning estimate of the tokens in a piece of media of type `mime` and `bytes` length.
///
/// | media | tokens |
/// |---|---|
/// | image | 258 for each tile; without its size in pixels, one tile for each 16 KiB begun, at most 16 |
/// | audio | 32 for each second |
/// | video | 263 for each second |
/// | PDF | 258 for each page; one page for each 4 KiB begun, at most 1,000 |
/// | `text/…`, JSON, XML | one for each 2 bytes |
/// | anything else | one for each byte, as if it were sent as text |
///
/// A duration that is not known is bounded from the size: audio as if it were 8 kbit/s speech,
/// video 64 kbit/s, which real files exceed.
///
/// ```
/// use keywheel_core::estimate::media;
///
/// assert_eq!(media("image/png", 9_000, None), 258);
/// assert_eq!(media("audio/ogg", 2_000_000, Some(90.0)), 32 * 90);
/// assert_eq!(media("application/pdf", 12 * 1024, None), 258 * 3);
/// ```
#[must_use]
pub fn media(mime: &str, bytes: u64, seconds: Option<f64>) -> u64 {
    let kind = mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let timed = |per_second: u64, bytes_per_second: u64| {
        let known = seconds.filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
        // Whole seconds, rounded up; the conversion saturates.
        let seconds =
            known.map_or(bytes.div_ceil(bytes_per_second), |seconds| seconds.ceil() as u64);
        seconds.saturating_mul(per_second)
    };
    match kind.split_once('/').unwrap_or((&kind, "")) {
        ("image", _) => bytes.div_ceil(16 * 1024).clamp(1, MOST_TILES) * TOKENS_PER_TILE,
        ("audio", _) => timed(TOKENS_PER_AUDIO_SECOND, 1_000),
        ("video", _) => timed(TOKENS_PER_VIDEO_SECOND, 8_000),
        ("application", "pdf") => bytes.div_ceil(4 * 1024).clamp(1, 1_000) * TOKENS_PER_TILE,
        ("text", _) | ("application", "json" | "xml") => bytes.div_ceil(2),
        _ => bytes,
    }
}

/// Tokens of an image of at most 384 × 384 pixels, or of each 768 × 768 tile of a larger one.
pub const TOKENS_PER_TILE: u64 = 258;
/// Tokens of a second of sound.
pub const TOKENS_PER_AUDIO_SECOND: u64 = 32;
/// Tokens of a second of video, at one frame a second.
pub const TOKENS_PER_VIDEO_SECOND: u64 = 263;
/// What is taken for the largest image: 3,072 pixels square.
const MOST_TILES: u64 = 16;

// Costs in thousandths of a token.

/// A word, or a part of one that begins with a capital.
const WORD: u64 = 940;
/// What one part of `camelCase` or `a1b2` costs more if it is too short to be a word.
const FRAGMENT: u64 = 460;
/// Each letter of a word by its position, the last one for all after it. Short words are one token.
const LETTERS: [u64; 9] = [0, 0, 0, 0, 400, 480, 480, 450, 300];
/// The same for capitals.
const CAPITALS: [u64; 9] = [0, 0, 0, 200, 300, 300, 300, 300, 300];
/// A Latin letter with a mark costs this more: words with them are split more finely.
const MARKED: u64 = 420;
/// Each consonant after three in a row: no word of a language, so cut to pieces.
const CONSONANTS: u64 = 760;
const DIGIT: u64 = 1_020;
/// The first symbol after something else, and each one that follows it.
const SYMBOL: u64 = 640;
const NEXT_SYMBOL: u64 = 300;
/// One space is part of the word after it, but not of a number or a symbol.
const SPACE_BEFORE_DIGIT: u64 = 1_000;
const SPACE_BEFORE_SYMBOL: u64 = 450;
/// A run of spaces, line ends or tabs, and each character of it after the first.
const RUN: u64 = 1_150;
const NEXT_IN_RUN: u64 = 45;
const CARRIAGE_RETURN: u64 = 1_000;
const CONTROL: u64 = 1_200;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Class {
    #[default]
    Nothing,
    Lower,
    Upper,
    Digit,
    Symbol,
    Space,
    NewLine,
    Tab,
    Control,
    /// Outside ASCII and Latin letters; with the cost of a first character, to tell scripts apart.
    Other(u16),
}

#[derive(Debug, Clone, Copy, Default)]
struct Counter {
    thousandths: u64,
    last: Class,
    /// Length of the run of `last`; of letters, their number in this part of a word.
    length: usize,
    /// Capitals in a row at the end of what was read.
    capitals: usize,
    /// Consonants in a row at the end of what was read, a word's first letter not counted.
    consonants: usize,
}

impl Counter {
    fn ascii(&mut self, byte: u8) {
        match byte {
            b'a'..=b'z' => {
                self.lower();
                self.consonant(byte);
            }
            b'A'..=b'Z' => self.upper(),
            b'0'..=b'9' => self.digit(),
            b' ' => self.run(Class::Space, 0),
            b'\n' => self.run(Class::NewLine, RUN),
            b'\r' => self.single(Class::Control, CARRIAGE_RETURN),
            b'\t' => self.run(Class::Tab, RUN),
            0..=31 | 127 => self.single(Class::Control, CONTROL),
            _ => self.symbol(),
        }
    }

    fn wide(&mut self, c: char) {
        match u32::from(c) {
            0xc0..=0x24f if c != '×' && c != '÷' => {
                if c.is_uppercase() {
                    self.upper()
                } else {
                    self.lower()
                }
                self.thousandths += MARKED;
            }
            0x1e00..=0x1eff => {
                self.lower();
                self.thousandths += MARKED;
            }
            code => self.script(code),
        }
    }

    fn finish(mut self) -> u64 {
        if self.last == Class::Space && self.length == 1 {
            self.thousandths += RUN;
        }
        self.thousandths.div_ceil(1_000)
    }

    fn lower(&mut self) {
        if self.last == Class::Upper && self.capitals > 1 {
            // The last capital of `HTTPServer` begins the next part.
            self.thousandths += WORD;
            self.length = 2;
        } else if matches!(self.last, Class::Lower | Class::Upper) {
            self.length += 1;
            self.thousandths += LETTERS[(self.length - 1).min(LETTERS.len() - 1)];
        } else {
            self.begin_word();
        }
        self.last = Class::Lower;
        self.capitals = 0;
    }

    fn consonant(&mut self, letter: u8) {
        const VOWELS: u32 = 1 << 0 | 1 << 4 | 1 << 8 | 1 << 14 | 1 << 20 | 1 << 24; // a e i o u y
        if VOWELS >> (letter - b'a') & 1 == 1 || self.length == 1 {
            self.consonants = 0;
            return;
        }
        self.consonants += 1;
        if self.consonants > 3 {
            self.thousandths += CONSONANTS;
        }
    }

    fn upper(&mut self) {
        match self.last {
            Class::Upper => {
                self.length += 1;
                self.thousandths += CAPITALS[(self.length - 1).min(CAPITALS.len() - 1)];
            }
            Class::Lower => {
                self.break_off();
                self.thousandths += WORD;
                self.length = 1;
            }
            _ => self.begin_word(),
        }
        self.last = Class::Upper;
        self.capitals += 1;
    }

    fn digit(&mut self) {
        if matches!(self.last, Class::Lower | Class::Upper) {
            self.break_off();
        }
        self.end_spaces(SPACE_BEFORE_DIGIT);
        self.single(Class::Digit, DIGIT);
    }

    fn symbol(&mut self) {
        self.end_spaces(SPACE_BEFORE_SYMBOL);
        let cost = if self.last == Class::Symbol { NEXT_SYMBOL } else { SYMBOL };
        self.single(Class::Symbol, cost);
    }

    fn script(&mut self, code: u32) {
        let (first, next) = costs(code);
        self.end_spaces(0);
        let class = Class::Other(first);
        let cost = if self.last == class { next } else { first };
        self.single(class, u64::from(cost));
    }

    fn begin_word(&mut self) {
        if self.last == Class::Digit {
            self.thousandths += FRAGMENT;
        }
        self.end_spaces(0);
        self.thousandths += WORD;
        self.length = 1;
        self.capitals = 0;
    }

    /// A part of a word ends within it.
    fn break_off(&mut self) {
        if self.length <= 3 {
            self.thousandths += FRAGMENT;
        }
    }

    /// A run of spaces is over; `one` is what a single space costs before what comes now.
    fn end_spaces(&mut self, one: u64) {
        if self.last == Class::Space {
            self.thousandths += if self.length == 1 { one } else { 0 };
        }
    }

    fn run(&mut self, class: Class, first: u64) {
        if self.last == class {
            self.length += 1;
            // Of spaces, only the second one makes it a run.
            let second = class == Class::Space && self.length == 2;
            self.thousandths += if second { RUN } else { NEXT_IN_RUN };
        } else {
            self.single(class, first);
        }
    }

    fn single(&mut self, class: Class, cost: u64) {
        self.thousandths += cost;
        self.last = class;
        self.length = 1;
        self.capitals = 0;
    }
}

/// What the first character of a run in the script of `code` costs, and each one after it.
///
/// Scripts that the tokenizer knows well are cheap in words; those it does not know cost a token
/// for each byte. What is rare within a block (most of Hangul, half of the ideographs) costs more
/// than stands here, but is rare.
const fn costs(code: u32) -> (u16, u16) {
    match code {
        0x0300..=0x036f => (1500, 1501),                   // combining marks
        0x0370..=0x03ff => (700, 510),                     // Greek
        0x0400..=0x052f => (1060, 215),                    // Cyrillic
        0x0530..=0x058f => (780, 761),                     // Armenian
        0x0590..=0x05ff => (800, 790),                     // Hebrew
        0x0600..=0x06ff | 0x0750..=0x077f => (540, 360),   // Arabic
        0x0700..=0x074f => (1650, 1650),                   // Syriac
        0x07c0..=0x085f => (2000, 2000),                   // N'Ko, Samaritan, Mandaic
        0x0900..=0x0d7f => (350, 410),                     // the scripts of India
        0x0d80..=0x0dff => (760, 760),                     // Sinhala
        0x0e00..=0x0e7f => (400, 380),                     // Thai
        0x0e80..=0x0fff => (1200, 1210),                   // Lao, Tibetan
        0x1000..=0x109f => (480, 470),                     // Burmese
        0x10a0..=0x10ff => (640, 620),                     // Georgian
        0x1100..=0x11ff => (2600, 2600),                   // Hangul, in parts
        0x1200..=0x137f => (720, 890),                     // Ethiopic
        0x13a0..=0x13ff => (1230, 1220),                   // Cherokee
        0x1400..=0x177f | 0x1800..=0x1cff => (2800, 2800), // little known
        0x1780..=0x17ff => (520, 510),                     // Khmer
        0x1d00..=0x1fff => (1900, 1500),                   // phonetic, polytonic Greek
        0x2000..=0x206f => (950, 940),                     // punctuation
        0x2e80..=0x2fff | 0x3200..=0x4dbf => (2900, 2900), // radicals, squared forms, rare ideographs
        0x3000..=0x303f | 0xff00..=0xffef => (850, 840),   // full-width punctuation
        0x3040..=0x30ff => (620, 550),                     // kana
        0x4e00..=0x9fff => (970, 960),                     // ideographs
        0xac00..=0xd7af => (990, 670),                     // Hangul
        0xa000..=0xabff | 0xd7b0..=0xfaff => (3000, 3000), // Yi and others, private use
        0xfb00..=0xfdff => (2900, 2900),                   // ligatures
        0xfe00..=0xfe0f => (600, 600),                     // variation selectors
        0x1_f000..=0x1_faff => (1150, 1140),               // emoji
        0x1_d400..=0x1_d7ff => (2700, 2700),               // mathematical letters
        0x1_0000.. => (4000, 4000),
        _ => (1200, 1100),
    }
}
