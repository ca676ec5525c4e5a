//! Reads JSON that may be cut short, wrapped in prose, or not quite JSON.
//!
//! A scanner, not a parser: it tells a [`Sink`] which containers open and close and which values
//! stand under which keys, and never refuses. Error bodies reach us cut by proxies, quoted by SDKs,
//! as Python dictionaries and as protobuf text; whatever stands before a cut is read as if the rest
//! had followed. It does not recurse, so nesting costs no stack, and it is faster than building a
//! tree.

use std::borrow::Cow;

/// Who is told what the scanner meets.
pub(super) trait Sink {
    /// A `{` or `[` opens, under `key` if it has one.
    fn open(&mut self, key: Option<&str>, container: Container);
    /// The innermost container closes.
    fn close(&mut self);
    /// A string, number or word, under `key` if it has one.
    fn scalar(&mut self, key: Option<&str>, value: Raw<'_>);
}

/// What opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Container {
    Object,
    Array,
}

/// A value as it stands in the text, quotes taken off.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw<'a> {
    pub(super) text: &'a str,
    pub(super) quoted: bool,
}

impl<'a> Raw<'a> {
    /// The value with its escapes resolved.
    pub(super) fn unescaped(self) -> Cow<'a, str> {
        if self.quoted && memchr::memchr(b'\\', self.text.as_bytes()).is_some() {
            Cow::Owned(unescape(self.text))
        } else {
            Cow::Borrowed(self.text)
        }
    }

    /// True for the ways JSON and Python write "nothing".
    pub(super) fn is_null(self) -> bool {
        if self.quoted {
            self.text.is_empty()
        } else {
            matches!(self.text, "null" | "None" | "false" | "False")
        }
    }
}

/// Scans `text` from its first bracket to its end. Prose outside of brackets is skipped.
pub(super) fn scan(text: &str, sink: &mut impl Sink) {
    let mut at = 0;
    while let Some(end) = scan_value(text, at, sink) {
        at = end;
    }
}

/// Where the first value of `text` ends that has brackets; `None` when it is cut short, or there is
/// none.
pub(super) fn end_of_value(text: &str) -> Option<usize> {
    struct Nobody;
    impl Sink for Nobody {
        fn open(&mut self, _: Option<&str>, _: Container) {}
        fn close(&mut self) {}
        fn scalar(&mut self, _: Option<&str>, _: Raw<'_>) {}
    }
    scan_value(text, 0, &mut Nobody)
}

/// Scans the first value at or after `from` that has brackets; says where it ends.
fn scan_value(text: &str, from: usize, sink: &mut impl Sink) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = from + memchr::memchr2(b'{', b'[', &bytes[from..])?;
    let mut depth = 0_usize;
    let mut key: Option<&str> = None;
    let mut previous = b' ';
    while at < bytes.len() {
        let byte = bytes[at];
        match byte {
            b'{' | b'[' => {
                let container = if byte == b'{' { Container::Object } else { Container::Array };
                sink.open(key.take(), container);
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                sink.close();
                depth -= 1;
                key = None;
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            b',' => {
                key = None;
                at += 1;
            }
            b'"' => string(text, &mut at, &mut key, sink),
            // A Python dictionary; elsewhere an apostrophe is one.
            b'\'' if matches!(previous, b'{' | b'[' | b',' | b':') => {
                string(text, &mut at, &mut key, sink);
            }
            // The text of a byte string: `{\n  "error": …` with its escapes still on.
            b'\\' => at += 2,
            byte if is_word(byte) => word(text, &mut at, &mut key, sink),
            b' ' | b'\n' | b'\r' | b'\t' => {
                at += 1;
                while at < bytes.len() && bytes[at] <= b' ' {
                    at += 1;
                }
                continue;
            }
            _ => at += 1,
        }
        previous = bytes.get(at - 1).copied().unwrap_or(b' ');
    }
    None
}

fn string<'a>(text: &'a str, at: &mut usize, key: &mut Option<&'a str>, sink: &mut impl Sink) {
    let bytes = text.as_bytes();
    let quote = bytes[*at];
    let start = *at + 1;
    let mut end = start;
    // A cut string ends where the text ends.
    loop {
        end = next_of(bytes, end, quote);
        if end >= bytes.len() {
            end = bytes.len();
            break;
        }
        if bytes[end] == quote {
            break;
        }
        end += 2; // the backslash and what it escapes
    }
    *at = (end + 1).min(bytes.len());
    let inside = &text[start.min(end)..end];
    value(text, at, key, Raw { text: inside, quoted: true }, sink);
}

/// Where the next quote or backslash stands at or after `from`; beyond the end if there is none.
fn next_of(bytes: &[u8], from: usize, quote: u8) -> usize {
    // Most strings are shorter than what it costs to start a vectorised search: eight bytes at a
    // time do.
    let mut at = from;
    for _ in 0..4 {
        let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) else { break };
        let word = u64::from_le_bytes(*word);
        let marks = bytes_equal(word, quote) | bytes_equal(word, b'\\');
        if marks != 0 {
            return at + marks.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let Some(rest) = bytes.get(at..) else { return bytes.len() };
    memchr::memchr2(quote, b'\\', rest).map_or(bytes.len(), |found| at + found)
}

/// The top bit of the first byte of `word` that is `byte`; what it says of later ones is not exact.
const fn bytes_equal(word: u64, byte: u8) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let same = word ^ (ONES * byte as u64);
    same.wrapping_sub(ONES) & !same & (ONES << 7)
}

fn word<'a>(text: &'a str, at: &mut usize, key: &mut Option<&'a str>, sink: &mut impl Sink) {
    let bytes = text.as_bytes();
    let start = *at;
    while *at < bytes.len() && is_word(bytes[*at]) {
        *at += 1;
    }
    value(text, at, key, Raw { text: &text[start..*at], quoted: false }, sink);
}

/// A string or word is a key when a colon follows it, or, bare, a brace: protobuf text.
fn value<'a>(
    text: &'a str,
    at: &mut usize,
    key: &mut Option<&'a str>,
    raw: Raw<'a>,
    sink: &mut impl Sink,
) {
    let bytes = text.as_bytes();
    let mut next = *at;
    while next < bytes.len() && bytes[next].is_ascii_whitespace() {
        next += 1;
    }
    match bytes.get(next) {
        Some(b':') => {
            *key = Some(raw.text);
            *at = next + 1;
        }
        Some(b'{') if !raw.quoted => {
            *key = Some(raw.text);
            *at = next;
        }
        _ => sink.scalar(key.take(), raw),
    }
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'+' | b'/' | b'@')
}

/// Resolves JSON's escapes; one that makes no sense stays as it is.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(found) = memchr::memchr(b'\\', rest.as_bytes()) {
        out.push_str(&rest[..found]);
        rest = &rest[found + 1..];
        let Some(escaped) = rest.chars().next() else { break };
        rest = &rest[escaped.len_utf8()..];
        match escaped {
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'r' => out.push('\r'),
            'b' | 'f' => out.push(' '),
            'u' => rest = unicode(rest, &mut out),
            other => out.push(other),
        }
    }
    out.push_str(rest);
    out
}

/// Takes the digits of one `\uXXXX`, or of a surrogate pair, off `rest`.
fn unicode<'a>(rest: &'a str, out: &mut String) -> &'a str {
    let Some(first) = hex4(rest) else {
        out.push(char::REPLACEMENT_CHARACTER);
        return rest;
    };
    let after = &rest[4..];
    if let Some(tail) = after.strip_prefix("\\u")
        && (0xD800..0xDC00).contains(&first)
        && let Some(second) = hex4(tail)
        && (0xDC00..0xE000).contains(&second)
    {
        let code = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
        out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        return &tail[4..];
    }
    out.push(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
    after
}

fn hex4(text: &str) -> Option<u32> {
    let digits = text.get(..4)?;
    if digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        u32::from_str_radix(digits, 16).ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Log(String);

    impl Sink for Log {
        fn open(&mut self, key: Option<&str>, container: Container) {
            let bracket = if container == Container::Object { '{' } else { '[' };
            self.0 += &format!("{}{bracket} ", key.unwrap_or(""));
        }
        fn close(&mut self) {
            self.0 += ") ";
        }
        fn scalar(&mut self, key: Option<&str>, value: Raw<'_>) {
            self.0 += &format!("{}={} ", key.unwrap_or(""), value.unescaped());
        }
    }

    fn log(text: &str) -> String {
        let mut log = Log::default();
        scan(text, &mut log);
        log.0.trim_end().to_owned()
    }

    #[test]
    fn json_python_and_protobuf_read_alike() {
        assert_eq!(log(r#"{"a": {"b": "c", "d": 1}}"#), "{ a{ b=c d=1 ) )");
        assert_eq!(log("{'a': {'b': 'c', 'd': 1}}"), "{ a{ b=c d=1 ) )");
        assert_eq!(log("[a {\n  b: \"c\"\n  d: 1\n}\n]"), "[ a{ b=c d=1 ) )");
    }

    #[test]
    fn prose_around_brackets_is_skipped() {
        assert_eq!(log(r#"it's "all: {"a":1} and "more" "#), "{ a=1 )");
        assert_eq!(log("[don't: panic]"), "[ =don t=panic )");
    }

    #[test]
    fn the_text_of_a_byte_string_reads_as_what_it_holds() {
        assert_eq!(log(r#"b'{\n  "a": [\n {\n "b": "c"\n }\n ]\n}\n'"#), "{ a[ { b=c ) ) )");
    }

    #[test]
    fn escapes_are_resolved_and_broken_ones_survive() {
        assert_eq!(log(r#"["\u003cx\u003E \"q\" \n\\ \ud83d\ude00"]"#), "[ =<x> \"q\" \n\\ 😀 )");
        assert_eq!(log(r#"["\u12 \ud800 \ud800\u0041"]"#), "[ =\u{fffd}12 \u{fffd} \u{fffd}A )");
    }

    #[test]
    fn a_text_cut_at_any_byte_keeps_what_stood_before_the_cut() {
        let whole = r#"[{"a":"x\"y\u0041é","b":[1,2,{"c":null}]}]"#;
        for (cut, _) in whole.char_indices() {
            let head = log(&whole[..cut]);
            assert!(cut < 19 || head.contains("a="), "cut at {cut}: {head}");
        }
    }
}
