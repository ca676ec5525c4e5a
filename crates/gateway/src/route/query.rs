//! A request's query: what of it is handed on, and what in it is a credential.

use std::borrow::Cow;

use super::bad;
use crate::refusal::Refusal;

/// More than any client has.
const MOST_PAIRS: usize = 64;

/// Every name and value of `query`, decoded, but for credentials.
pub(super) fn pairs(query: &str) -> Result<Vec<(String, String)>, Refusal> {
    let fields = query.split('&').filter(|field| !field.is_empty());
    let mut pairs = Vec::new();
    for field in fields {
        let (name, value) = field.split_once('=').unwrap_or((field, ""));
        let name = decode(name, true).filter(|name| is_plain(name));
        let value = decode(value, true).filter(|value| is_plain(value));
        let (Some(name), Some(value)) = (name, value) else {
            return Err(bad("the query has an escape that is none, or is no text"));
        };
        if steers(&name) {
            return Err(bad("the query may set neither the method nor headers"));
        }
        if !is_credential(&name) {
            pairs.push((name.into_owned(), value.into_owned()));
        }
        if pairs.len() > MOST_PAIRS {
            return Err(bad("the query has too many parts"));
        }
    }
    Ok(pairs)
}

/// The credentials in `query`: the values of `key` and its relatives. Those that cannot be decoded come as they are.
pub(crate) fn credentials(query: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let fields = query.split('&').filter_map(|field| field.split_once('='));
    let named = fields.filter(|(name, _)| decode(name, true).is_some_and(|n| is_credential(&n)));
    named
        .map(|(_, value)| decode(value, true).unwrap_or(Cow::Borrowed(value)))
        .filter(|value| !value.is_empty())
}

/// Google reads system parameters with and without a dollar sign.
fn is_credential(name: &str) -> bool {
    const NAMES: [&str; 6] =
        ["key", "api_key", "apikey", "access_token", "oauth_token", "bearer_token"];
    let name = name.trim().trim_start_matches('$');
    NAMES.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Google's front end takes another method, and other headers, out of the query of those who cannot set them.
fn steers(name: &str) -> bool {
    const NAMES: [&str; 4] = ["httpmethod", "httpheaders", "_method", "x-http-method-override"];
    let name = name.trim().trim_start_matches('$');
    NAMES.iter().any(|known| name.eq_ignore_ascii_case(known))
}

fn is_plain(text: &str) -> bool {
    !text.contains(char::is_control)
}

/// Decodes escapes once; in a query `+` is a space. `None` if they are no escapes, or what comes out is no text.
pub(super) fn decode(text: &str, is_query: bool) -> Option<Cow<'_, str>> {
    if !text.bytes().any(|byte| byte == b'%' || (byte == b'+' && is_query)) {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' if is_query => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}
