//! Takes keys out of texts that came from outside.
//!
//! Google's "suspended" reply repeats the caller's key in its message, so no reply is logged, put
//! into an error or sent on before it went through here.

use std::{borrow::Cow, ops::Range};

use crate::ApiKey;

/// What stands where a key stood.
pub const REDACTED: &str = "[REDACTED]";

/// `text` without `keys`, and without anything else that looks like a key.
///
/// What is taken out:
/// - each of `keys`, also percent-encoded or escaped as in JSON. Keys under 8 characters (`test`) only where
///   they stand alone.
/// - `AIza…` and `AQ.…`, the forms of Google's keys, whoever they belong to. Also cut off by the end of the
///   text, as a limit on the length of messages does.
/// - the value of `?key=`, `&key=`, `api_key:`, `x-goog-api-key:`, `access_token=` and `Bearer`.
///
/// Nothing is allocated when there is nothing to take out.
///
/// ```
/// use keywheel_core::scrub::scrub;
///
/// let text = "Consumer 'api_key:AIzaSyEXAMPLE0000000000000000000000000001' has been suspended.";
/// assert_eq!(scrub(text, &[]), "Consumer 'api_key:[REDACTED]' has been suspended.");
/// ```
#[must_use]
pub fn scrub<'t>(text: &'t str, keys: &[&ApiKey]) -> Cow<'t, str> {
    if !may_hold_one_of(text.as_bytes(), keys) && !may_hold_a_secret(text.as_bytes()) {
        return Cow::Borrowed(text);
    }
    let scrubber = Scrubber::new(text, keys);
    let Some(first) = scrubber.next(0) else { return Cow::Borrowed(text) };
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    let mut found = Some(first);
    while let Some(secret) = found {
        out.push_str(&text[copied..secret.start]);
        out.push_str(REDACTED);
        copied = secret.end;
        found = scrubber.next(copied);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// False for texts in which none of `keys` can begin, not even escaped.
fn may_hold_one_of(text: &[u8], keys: &[&ApiKey]) -> bool {
    keys.iter().any(|key| {
        let first = key.expose().as_bytes().first();
        text.iter().any(|byte| matches!(byte, b'%' | b'\\') || Some(byte) == first)
    })
}

/// False for most texts: three letters that stand in every form known here are nowhere in it.
///
/// One pass without branches, which the compiler turns into vector code: every error passes through
/// here.
fn may_hold_a_secret(text: &[u8]) -> bool {
    let (Some(second), Some(third)) = (text.get(1..), text.get(2..)) else { return false };
    let triples = text.iter().zip(second).zip(third);
    let found = triples.fold(0_u8, |found, ((&a, &b), &c)| {
        let is = |x: u8, y: u8, z: u8| u8::from(a == x) & u8::from(b == y) & u8::from(c == z);
        let lower = |x: u8, y: u8, z: u8| {
            u8::from(a | 0x20 == x) & u8::from(b | 0x20 == y) & u8::from(c | 0x20 == z)
        };
        // AIza, AQ., key and api_key, bearer, access_token; `_` has the bit set or becomes DEL.
        let token = lower(b's', b'_' | 0x20, b't');
        found
            | is(b'A', b'I', b'z')
            | is(b'A', b'Q', b'.')
            | lower(b'k', b'e', b'y')
            | lower(b'r', b'e', b'r')
            | token
    });
    found != 0
}

/// Of `AIza…` in the midst of a text, fewer characters than this are a mention and no key.
const SHORTEST_AIZA: usize = 16;
/// The same for what follows `AQ.`.
const SHORTEST_AQ: usize = 8;
/// The beginning of a key at the end of a text counts as one from here on.
const SHORTEST_CUT: usize = 6;
/// Shorter keys are words that texts may hold for other reasons.
const SHORTEST_UNBOUNDED: usize = 8;

struct Scrubber<'a> {
    text: &'a [u8],
    keys: &'a [&'a ApiKey],
    /// Bytes at which a secret, or the name before one, can begin.
    begins: [bool; 256],
}

impl<'a> Scrubber<'a> {
    fn new(text: &'a str, keys: &'a [&'a ApiKey]) -> Self {
        let mut begins = [false; 256];
        let firsts = keys.iter().filter_map(|key| key.expose().bytes().next());
        // A key's first character may be encoded too: hence `%` and `\`.
        for byte in firsts.chain(*b"AakKbB%\\") {
            begins[usize::from(byte)] = true;
        }
        Self { text: text.as_bytes(), keys, begins }
    }

    /// The next secret at or after `from`. Its ends are ASCII characters, so the text can be cut
    /// there.
    fn next(&self, from: usize) -> Option<Range<usize>> {
        let candidates =
            (from..self.text.len()).filter(|&at| self.begins[usize::from(self.text[at])]);
        candidates.filter_map(|at| self.at(at, from)).next()
    }

    fn at(&self, at: usize, from: usize) -> Option<Range<usize>> {
        let own = self.keys.iter().filter_map(|key| self.own(key.expose().as_bytes(), at)).max();
        if let Some(end) = own {
            return Some(at..end);
        }
        if let Some(end) = self.google(at) {
            return Some(at..end);
        }
        // A name that stands before `from` has had its value taken out already.
        self.named(at).filter(|value| value.start >= from && !value.is_empty())
    }

    /// Where `key` ends if it begins at `at`, with each character as it is or encoded.
    fn own(&self, key: &[u8], at: usize) -> Option<usize> {
        let alone = |end| !self.is_word(at.wrapping_sub(1)) && !self.is_word(end);
        let whole = |end| (key.len() >= SHORTEST_UNBOUNDED || alone(end)).then_some(end);
        if self.text[at..].starts_with(key) {
            return whole(at + key.len());
        }
        let mut end = at;
        for (matched, &byte) in key.iter().enumerate() {
            if end == self.text.len() {
                return (matched >= SHORTEST_CUT).then_some(end);
            }
            end = self.character(byte, end)?;
        }
        whole(end)
    }

    /// Where the character `byte` ends if it stands at `at` in any form.
    fn character(&self, byte: u8, at: usize) -> Option<usize> {
        let here = self.text[at];
        if here == b'\\' {
            let end = at + self.text[at..].iter().take_while(|b| **b == b'\\').count();
            if byte == b'\\' {
                return Some(end);
            }
            if self.byte(end) == Some(b'u') {
                return (self.hex(end + 1, 4)? == u32::from(byte)).then_some(end + 5);
            }
            return (self.byte(end) == Some(byte) && !byte.is_ascii_alphanumeric())
                .then_some(end + 1);
        }
        if here == byte {
            return Some(at + 1);
        }
        if here != b'%' {
            return None;
        }
        // `%25` is an encoded `%`: the text was encoded twice.
        let digits = if self.text[at..].starts_with(b"%25") { at + 3 } else { at + 1 };
        (self.hex(digits, 2)? == u32::from(byte)).then_some(digits + 2)
    }

    /// Where a key in one of Google's forms ends if it begins at `at`.
    fn google(&self, at: usize) -> Option<usize> {
        let rest = &self.text[at..];
        if rest.starts_with(b"AIza") {
            let length = token_length(rest, b"-_");
            let cut = length > 4 && length == rest.len();
            return (length >= SHORTEST_AIZA || cut).then_some(at + length);
        }
        // Not the end of "FAQ.html".
        if rest.starts_with(b"AQ.") && self.begins_word(at) {
            let dotted = token_length(&rest[3..], b"-_.");
            // The full stop after the key is the sentence's.
            let dots = rest[3..3 + dotted].iter().rev().take_while(|b| **b == b'.').count();
            let length = dotted - dots;
            let cut = length > 0 && dotted == rest.len() - 3;
            return (length >= SHORTEST_AQ || cut).then_some(at + 3 + length);
        }
        None
    }

    /// The value of a name that tells that a secret follows, if such a name begins at `at`.
    fn named(&self, at: usize) -> Option<Range<usize>> {
        let rest = &self.text[at..];
        let starts = |name: &[u8]| {
            rest.get(..name.len()).is_some_and(|head| head.eq_ignore_ascii_case(name))
        };
        if starts(b"key") && self.in_query(at) {
            // Whatever it looks like: a query's `key` is a credential.
            let value = self.after(at + 3, b"=")?;
            return Some(value..self.value_end(value));
        }
        if starts(b"bearer ") {
            return self.secret_looking(at + 7);
        }
        let names: [&[u8]; 4] = [b"api_key", b"api-key", b"apikey", b"access_token"];
        let name = names.into_iter().find(|name| starts(name))?;
        self.secret_looking(self.after(at + name.len(), b"=:")?)
    }

    /// True if `at` follows the `?` or `&` of a query, plain or encoded.
    fn in_query(&self, at: usize) -> bool {
        let before = &self.text[..at];
        let marks: [&[u8]; 8] =
            [b"?", b"&", b"&amp;", b"%3F", b"%3f", b"%26", b"\\u0026", b"\\u003f"];
        marks.into_iter().any(|mark| before.ends_with(mark))
    }

    /// The position after one of `separators`, with quotes, backslashes and spaces around it.
    fn after(&self, at: usize, separators: &[u8]) -> Option<usize> {
        let at = self.skip(at);
        let encoded = |digits: &[u8]| {
            self.text[at..].starts_with(b"%")
                && self.text.get(at + 1..at + 3).is_some_and(|two| two.eq_ignore_ascii_case(digits))
        };
        if self.byte(at).is_some_and(|byte| separators.contains(&byte)) {
            return Some(self.skip(at + 1));
        }
        (encoded(b"3D") || encoded(b"3A")).then(|| self.skip(at + 3))
    }

    fn skip(&self, at: usize) -> usize {
        let around = |b: &&u8| matches!(b, b' ' | b'"' | b'\'' | b'\\');
        at + self.text[at..].iter().take_while(around).count()
    }

    fn value_end(&self, at: usize) -> usize {
        let inside = |b: &&u8| {
            b.is_ascii_alphanumeric()
                || matches!(b, b'-' | b'_' | b'.' | b'~' | b'+' | b'/' | b'%' | b'=')
        };
        at + self.text[at..].iter().take_while(inside).count()
    }

    /// The value at `at`, unless it is a word of a sentence such as "api_key: must not be empty".
    fn secret_looking(&self, at: usize) -> Option<Range<usize>> {
        let range = at..self.value_end(at);
        let value = &self.text[range.clone()];
        let mixed = value.iter().skip(1).any(u8::is_ascii_uppercase)
            && value.iter().any(u8::is_ascii_lowercase);
        let secret = value.len() >= 8 && (mixed || value.iter().any(u8::is_ascii_digit));
        secret.then_some(range)
    }

    /// True if what stands before `at` is no part of a word, or is an encoded character.
    fn begins_word(&self, at: usize) -> bool {
        let before = &self.text[..at];
        let escaped = |back: usize, mark: &[u8]| {
            at >= back
                && before[at - back..].starts_with(mark)
                && before[at - back + mark.len()..].iter().all(u8::is_ascii_hexdigit)
        };
        let control = before.last().is_some_and(|b| b"nrtbf".contains(b))
            && before.len() >= 2
            && before[at - 2] == b'\\';
        !self.is_word(at.wrapping_sub(1)) || control || escaped(3, b"%") || escaped(6, b"\\u")
    }

    fn is_word(&self, at: usize) -> bool {
        self.byte(at).is_some_and(|b| b.is_ascii_alphanumeric())
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.text.get(at).copied()
    }

    fn hex(&self, at: usize, digits: usize) -> Option<u32> {
        let digits = self.text.get(at..at + digits)?;
        digits.iter().try_fold(0, |sum, b| Some(sum * 16 + char::from(*b).to_digit(16)?))
    }
}

/// How many letters, digits and `others` stand at the front.
fn token_length(text: &[u8], others: &[u8]) -> usize {
    text.iter().take_while(|b| b.is_ascii_alphanumeric() || others.contains(b)).count()
}

#[cfg(test)]
mod tests;
