//! How many tokens a text will be, before the provider has counted it.

/// An upper-leaning estimate of the tokens in `text`.
#[must_use]
pub fn tokens(text: &str) -> u64 {
    text.chars().count() as u64 / 3 + 1
}
