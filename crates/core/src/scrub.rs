//! Takes keys out of texts that came from outside.
//!
//! Google's "suspended" reply repeats the caller's key in its message, so no reply is logged, put into an
//! error or sent on before it went through here.

use crate::ApiKey;

/// What stands where a key stood.
pub const REDACTED: &str = "[REDACTED]";

/// `text` without `keys`, and without anything else that looks like a Google API key.
#[must_use]
pub fn scrub(text: &str, keys: &[&ApiKey]) -> String {
    let mut out = text.to_owned();
    for key in keys {
        out = out.replace(key.expose(), REDACTED);
    }
    out
}
