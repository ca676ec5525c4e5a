//! Tokens of a text that comes as bytes.

use keywheel_core::estimate::Tally;

/// Counts the tokens of UTF-8 that is cut anywhere; what is none is counted as U+FFFD, as
/// [`String::from_utf8_lossy`] has it.
#[derive(Debug, Clone, Default)]
pub(super) struct Feed {
    tally: Tally,
    /// The beginning of a character whose rest is still to come.
    torn: Torn,
}

#[derive(Debug, Clone, Copy, Default)]
struct Torn {
    bytes: [u8; 4],
    len: usize,
}

const REPLACEMENT: &str = "\u{FFFD}";

impl Feed {
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while self.torn.len > 0 {
            let Some((&next, rest)) = bytes.split_first() else { return };
            self.torn.bytes[self.torn.len] = next;
            let whole = &self.torn.bytes[..=self.torn.len];
            match str::from_utf8(whole) {
                Ok(c) => self.tally.push(c),
                Err(error) if error.error_len().is_none() => {
                    self.torn.len += 1;
                    bytes = rest;
                    continue;
                }
                Err(_) => {
                    // `next` is no part of it, and begins anew.
                    self.tally.push(REPLACEMENT);
                    self.torn.len = 0;
                    break;
                }
            }
            self.torn.len = 0;
            bytes = rest;
        }
        // Nearly always, and then without looking for a place at which it is none.
        if let Ok(text) = str::from_utf8(bytes) {
            return self.tally.push(text);
        }
        for chunk in bytes.utf8_chunks() {
            self.tally.push(chunk.valid());
            let invalid = chunk.invalid();
            let is_torn = || str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none());
            let is_last = invalid.as_ptr_range().end == bytes.as_ptr_range().end;
            if invalid.is_empty() {
                continue;
            }
            if is_last && is_torn() {
                self.torn.bytes[..invalid.len()].copy_from_slice(invalid);
                self.torn.len = invalid.len();
            } else {
                self.tally.push(REPLACEMENT);
            }
        }
    }

    /// The tokens of all that came.
    pub(super) fn tokens(mut self) -> u64 {
        if self.torn.len > 0 {
            self.tally.push(REPLACEMENT);
        }
        self.tally.tokens()
    }
}

#[cfg(test)]
mod tests {
    use keywheel_core::estimate;
    use proptest::prelude::*;

    use super::*;

    fn tokens<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u64 {
        let mut feed = Feed::default();
        pieces.into_iter().for_each(|piece| feed.push(piece));
        feed.tokens()
    }

    proptest! {
        #[test]
        fn bytes_count_as_the_text_they_are_wherever_they_are_cut(
            texts in prop::collection::vec(
                prop_oneof!["\\PC{0,9}".prop_map(String::into_bytes), prop::collection::vec(any::<u8>(), 0..5)],
                0..6,
            ),
            size in 1_usize..7,
        ) {
            let bytes = texts.concat();
            let expected = estimate::tokens(&String::from_utf8_lossy(&bytes));
            prop_assert_eq!(tokens([&bytes[..]]), expected);
            prop_assert_eq!(tokens(bytes.chunks(size)), expected);
        }
    }

    #[test]
    fn torn_characters_count_once() {
        let text = "é漢😀x".as_bytes();
        assert_eq!(tokens(text.chunks(1)), estimate::tokens("é漢😀x"));
        for bytes in [&b"\xf0\x9f\x98"[..], b"\xf0\x9fa", b"\xe0\x80\x80", b"\xc3\xc3\xa9", b"\xff"]
        {
            let expected = estimate::tokens(&String::from_utf8_lossy(bytes));
            assert_eq!(tokens(bytes.chunks(1)), expected, "{bytes:x?}");
        }
    }
}
