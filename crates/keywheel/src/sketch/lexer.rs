//! JSON, token by token, from pieces that are cut anywhere; in a few bytes of memory.

use std::ops::Range;

/// Deeper nesting is taken for no JSON. As deep as `serde_json` goes; Google's servers end at 100.
const MOST_DEEP: u8 = 128;

/// The next thing of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// `{`.
    Object,
    /// `[`.
    Array,
    /// `}` or `]`.
    Close,
    /// The quote before a key.
    Key,
    /// The quote before a string.
    String,
    /// Characters of a key or string that stand for themselves: these bytes of the piece.
    Run(Range<usize>),
    /// A character that was escaped; half of one is U+FFFD.
    Escaped(char),
    /// The quote after a key.
    KeyEnd,
    /// The quote after a string.
    StringEnd,
    /// The first character of a number, of `true`, `false` or `null`.
    AtomStart,
    /// Some more of that: these bytes of the piece.
    Atom(Range<usize>),
    /// The end of that.
    AtomEnd,
}

/// What came is not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotJson;

#[derive(Debug, Clone)]
pub(super) struct Lexer {
    state: State,
    /// A bit for each open object or array: 1 is an object; the innermost is the lowest.
    open: u128,
    depth: u8,
    in_key: bool,
    /// The first half of an escaped character.
    half: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Value,
    ValueOrClose,
    Key,
    KeyOrClose,
    Colon,
    After,
    Text,
    Escape,
    /// So many digits of `\uXXXX` are still to come.
    Hex(u8, u32),
    Number(Number),
    /// So much of a word is still to come.
    Word(&'static [u8]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Whole,
    Point,
    Fraction,
    E,
    Sign,
    Exponent,
}

impl Lexer {
    pub(super) const fn new() -> Self {
        Self { state: State::Value, open: 0, depth: 0, in_key: false, half: None }
    }

    /// The next token of `piece`, from `at` on, which moves behind it; `None` at the piece's end.
    pub(super) fn next(&mut self, piece: &[u8], at: &mut usize) -> Result<Option<Token>, NotJson> {
        while let Some(&byte) = piece.get(*at) {
            let token = match self.state {
                State::Text => self.text(piece, at)?,
                State::Escape => self.escape(byte, at)?,
                State::Hex(left, code) => self.hex(byte, left, code, at)?,
                State::Number(number) => Some(self.number(number, piece, at)?),
                State::Word([]) => {
                    self.state = State::After;
                    Some(Token::AtomEnd)
                }
                State::Word([expected, rest @ ..]) => {
                    if byte != *expected {
                        return Err(NotJson);
                    }
                    self.state = State::Word(rest);
                    *at += 1;
                    Some(Token::Atom(*at - 1..*at))
                }
                _ if matches!(byte, b' ' | b'\n' | b'\r' | b'\t') => {
                    *at += 1;
                    None
                }
                _ => {
                    *at += 1;
                    self.structure(byte)?
                }
            };
            if token.is_some() {
                return Ok(token);
            }
        }
        Ok(None)
    }

    /// Whether a document ends here.
    pub(super) const fn is_whole(&self) -> bool {
        let ended = match self.state {
            State::After | State::Word([]) => true,
            State::Number(number) => number.may_end(),
            _ => false,
        };
        ended && self.depth == 0
    }

    fn structure(&mut self, byte: u8) -> Result<Option<Token>, NotJson> {
        let in_object = self.open & 1 == 1;
        match (self.state, byte) {
            (State::Value | State::ValueOrClose, _) if byte != b']' => {
                return self.value(byte).map(Some);
            }
            (State::ValueOrClose, b']') => return Ok(Some(self.close())),
            (State::Key | State::KeyOrClose, b'"') => {
                (self.state, self.in_key) = (State::Text, true);
                return Ok(Some(Token::Key));
            }
            (State::KeyOrClose, b'}') => return Ok(Some(self.close())),
            (State::Colon, b':') => self.state = State::Value,
            (State::After, _) if self.depth == 0 => return Err(NotJson),
            (State::After, b',') => self.state = if in_object { State::Key } else { State::Value },
            (State::After, b'}') if in_object => return Ok(Some(self.close())),
            (State::After, b']') if !in_object => return Ok(Some(self.close())),
            _ => return Err(NotJson),
        }
        Ok(None)
    }

    fn value(&mut self, byte: u8) -> Result<Token, NotJson> {
        let (state, token) = match byte {
            b'{' => {
                self.push(1)?;
                (State::KeyOrClose, Token::Object)
            }
            b'[' => {
                self.push(0)?;
                (State::ValueOrClose, Token::Array)
            }
            b'"' => {
                self.in_key = false;
                (State::Text, Token::String)
            }
            _ => {
                let state = match byte {
                    b't' => State::Word(b"rue"),
                    b'f' => State::Word(b"alse"),
                    b'n' => State::Word(b"ull"),
                    b'-' => State::Number(Number::Minus),
                    b'0' => State::Number(Number::Zero),
                    b'1'..=b'9' => State::Number(Number::Whole),
                    _ => return Err(NotJson),
                };
                (state, Token::AtomStart)
            }
        };
        self.state = state;
        Ok(token)
    }

    fn push(&mut self, bit: u128) -> Result<(), NotJson> {
        if self.depth == MOST_DEEP {
            return Err(NotJson);
        }
        self.open = self.open << 1 | bit;
        self.depth += 1;
        Ok(())
    }

    const fn close(&mut self) -> Token {
        self.open >>= 1;
        self.depth -= 1;
        self.state = State::After;
        Token::Close
    }

    fn text(&mut self, piece: &[u8], at: &mut usize) -> Result<Option<Token>, NotJson> {
        let rest = &piece[*at..];
        let length = rest.iter().position(|&b| b == b'"' || b == b'\\' || b < 0x20);
        let length = length.unwrap_or(rest.len());
        if length > 0 {
            if self.half.take().is_some() {
                return Ok(Some(Token::Escaped(char::REPLACEMENT_CHARACTER)));
            }
            *at += length;
            return Ok(Some(Token::Run(*at - length..*at)));
        }
        match rest[0] {
            b'\\' => {
                *at += 1;
                self.state = State::Escape;
                Ok(None)
            }
            b'"' if self.half.take().is_some() => {
                Ok(Some(Token::Escaped(char::REPLACEMENT_CHARACTER)))
            }
            b'"' => {
                *at += 1;
                let (state, token) = if self.in_key {
                    (State::Colon, Token::KeyEnd)
                } else {
                    (State::After, Token::StringEnd)
                };
                self.state = state;
                Ok(Some(token))
            }
            _ => Err(NotJson),
        }
    }

    fn escape(&mut self, byte: u8, at: &mut usize) -> Result<Option<Token>, NotJson> {
        if byte == b'u' {
            *at += 1;
            self.state = State::Hex(4, 0);
            return Ok(None);
        }
        let c = match byte {
            b'"' | b'\\' | b'/' => byte as char,
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            _ => return Err(NotJson),
        };
        if self.half.take().is_some() {
            return Ok(Some(Token::Escaped(char::REPLACEMENT_CHARACTER)));
        }
        *at += 1;
        self.state = State::Text;
        Ok(Some(Token::Escaped(c)))
    }

    fn hex(
        &mut self,
        byte: u8,
        left: u8,
        code: u32,
        at: &mut usize,
    ) -> Result<Option<Token>, NotJson> {
        let digit = (byte as char).to_digit(16).ok_or(NotJson)?;
        let code = code << 4 | digit;
        if left > 1 {
            *at += 1;
            self.state = State::Hex(left - 1, code);
            return Ok(None);
        }
        let c = match (self.half.take(), code) {
            (Some(first), 0xdc00..=0xdfff) => 0x1_0000 + ((first - 0xd800) << 10) + (code - 0xdc00),
            // The last digit is read again, once the half before it is dealt with.
            (Some(_), _) => return Ok(Some(Token::Escaped(char::REPLACEMENT_CHARACTER))),
            (None, 0xd800..=0xdbff) => {
                *at += 1;
                self.state = State::Text;
                self.half = Some(code);
                return Ok(None);
            }
            (None, _) => code,
        };
        *at += 1;
        self.state = State::Text;
        Ok(Some(Token::Escaped(char::from_u32(c).unwrap_or(char::REPLACEMENT_CHARACTER))))
    }

    fn number(
        &mut self,
        mut number: Number,
        piece: &[u8],
        at: &mut usize,
    ) -> Result<Token, NotJson> {
        let start = *at;
        while let Some(next) = piece.get(*at).and_then(|&byte| number.then(byte)) {
            number = next;
            *at += 1;
        }
        self.state = State::Number(number);
        if *at > start {
            return Ok(Token::Atom(start..*at));
        }
        if !number.may_end() {
            return Err(NotJson);
        }
        self.state = State::After;
        Ok(Token::AtomEnd)
    }
}

impl Number {
    const fn then(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Minus, b'0') => Self::Zero,
            (Self::Minus, b'1'..=b'9') | (Self::Whole, b'0'..=b'9') => Self::Whole,
            (Self::Zero | Self::Whole, b'.') => Self::Point,
            (Self::Point | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Whole | Self::Fraction, b'e' | b'E') => Self::E,
            (Self::E, b'+' | b'-') => Self::Sign,
            (Self::E | Self::Sign | Self::Exponent, b'0'..=b'9') => Self::Exponent,
            _ => return None,
        })
    }

    const fn may_end(self) -> bool {
        matches!(self, Self::Zero | Self::Whole | Self::Fraction | Self::Exponent)
    }
}
