//! Opaque tokens: text that clients keep and hand back unread.

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// As bytes travel in proto JSON.
pub(crate) fn seal(text: &str) -> String {
    STANDARD.encode(text)
}

/// Reads back what [`seal`] wrote; `None` for anything that is no base64 of text.
///
/// Clients may have decoded and encoded it: both alphabets are taken (Google's Python SDK sends the one for
/// URLs), and padding may be missing.
pub(crate) fn open(token: &str) -> Option<String> {
    let mut standard = token.trim_end_matches('=').replace('-', "+").replace('_', "/");
    while !standard.len().is_multiple_of(4) {
        standard.push('=');
    }
    String::from_utf8(STANDARD.decode(standard).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_alphabets_are_read_with_and_without_padding() {
        let text = "~~~?>?>ab";
        let token = seal(text);
        assert!(token.contains(['+', '/']));
        let for_urls = token.replace('+', "-").replace('/', "_");
        for form in [token.as_str(), &for_urls, for_urls.trim_end_matches('=')] {
            assert_eq!(open(form).as_deref(), Some(text));
        }
        assert_eq!(open("no base64!"), None);
    }
}
