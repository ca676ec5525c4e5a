//! What the prose of an error says: limits, waits, windows.
//!
//! Prose is the last resort: it changes without notice, and "quota" and "billing" stand in every
//! Gemini 429.

use std::{cell::OnceCell, sync::LazyLock, time::Duration};

use memchr::memmem::{self, Finder};

use super::{delay, speech};

/// The prose in lower case, made when the first rule asks for it: most replies are settled by
/// names.
#[derive(Debug)]
pub(super) struct Lower<'a> {
    messages: &'a [String],
    text: OnceCell<String>,
    claims: OnceCell<Vec<String>>,
}

impl<'a> Lower<'a> {
    pub(super) const fn of(messages: &'a [String]) -> Self {
        Self { messages, text: OnceCell::new(), claims: OnceCell::new() }
    }

    pub(super) fn text(&self) -> &str {
        self.text.get_or_init(|| self.messages.join("\n").to_ascii_lowercase())
    }

    /// The first of `phrases` that a message says of the caller, and does not quote.
    pub(super) fn first_claimed(&self, phrases: &[&'static str]) -> Option<&'static str> {
        let claims = self.claims.get_or_init(|| {
            self.messages.iter().filter_map(|message| speech::claim(message)).collect()
        });
        let claimed = |phrase: &str| claims.iter().any(|claim| claim.contains(phrase));
        phrases.iter().copied().find(|phrase| claimed(phrase))
    }

    /// The first of `phrases` that the prose has.
    pub(super) fn first_of(&self, phrases: &[&'static str]) -> Option<&'static str> {
        let text = self.text();
        phrases.iter().copied().find(|phrase| text.contains(phrase))
    }
}

/// `Quota exceeded for metric: <metric>, limit: 20, model: <model>`, as every Gemini 429 of today
/// has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LimitLine<'a> {
    pub(super) metric: Option<&'a str>,
    pub(super) value: u64,
    pub(super) model: Option<&'a str>,
}

/// No body seen names more limits than four; what a forged one adds is not read.
const MOST_LINES: usize = 16;

/// All `limit: N` of a text, with the metric and the model around them.
pub(super) fn limit_lines(text: &str) -> Vec<LimitLine<'_>> {
    let mut lines = Vec::new();
    let mut from = 0;
    for at in LIMIT.find_iter(text.as_bytes()) {
        let Some((value, rest)) = amount(&text[at + "limit: ".len()..]) else { continue };
        let before = &text[from..at];
        let metric = METRIC.find_iter(before.as_bytes()).last();
        let metric = metric.map(|found| token(&before[found + "metric: ".len()..]));
        let model = rest.strip_prefix(", model: ").map(token);
        from = text.len() - rest.len();
        lines.push(LimitLine { metric, value, model });
        if lines.len() == MOST_LINES {
            break;
        }
    }
    lines
}

/// A name up to white space or a comma; a full stop at its end belongs to the sentence.
fn token(text: &str) -> &str {
    let ends = |byte: u8| byte.is_ascii_whitespace() || byte == b',';
    let end = text.bytes().position(ends).unwrap_or(text.len());
    text[..end].trim_end_matches(['.', ')', '"', '\'', '`'])
}

/// A whole number, which people write as `30,000`; and what follows it.
fn amount(text: &str) -> Option<(u64, &str)> {
    let text = text.trim_start_matches(['~', '`', ' ']);
    let mut value: Option<u64> = None;
    let mut end = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte.is_ascii_digit() {
            let sum = value.unwrap_or(0).saturating_mul(10).saturating_add(u64::from(byte - b'0'));
            value = Some(sum);
            end = at + 1;
        } else if byte != b',' || at != end || end == 0 {
            break;
        }
    }
    Some((value?, &text[end..]))
}

/// The number behind `word` in a lower-case text, as in `limit 7000, used 0, requested ~12903`.
pub(super) fn amount_after(lower: &str, word: &str) -> Option<u64> {
    memmem::find_iter(lower.as_bytes(), word).find_map(|at| {
        let after = lower[at + word.len()..].trim_start_matches([' ', ':']);
        amount(after.strip_prefix("of ").unwrap_or(after)).map(|(value, _)| value)
    })
}

/// The longest wait that the text names: `Please retry in 42.9s`, `try again in 30 seconds`,
/// `reset after 5s`.
pub(super) fn stated_wait(text: &str) -> Option<Duration> {
    let hints = [&IN, &AFTER].into_iter().flat_map(|word| {
        word.find_iter(text.as_bytes()).filter_map(move |at| {
            let named = VERBS.iter().any(|verb| ends_with_verb(&text[..at], verb));
            named.then(|| delay::compound(&text[at + word.needle().len()..])).flatten()
        })
    });
    hints.max()
}

const VERBS: [&str; 6] = ["retry", "again", "available", "reset", "resets", "retrying"];

// Searchers cost more to make than these texts cost to search.
static LIMIT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("limit: "));
static METRIC: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("metric: "));
static IN: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(" in "));
static AFTER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(" after "));

fn ends_with_verb(text: &str, verb: &str) -> bool {
    let Some(start) = text.len().checked_sub(verb.len()) else { return false };
    text.as_bytes()[start..].eq_ignore_ascii_case(verb.as_bytes())
}

/// The window that a text names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Span {
    Minute,
    Hour,
    Day,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Unit {
    Requests,
    Tokens,
    Images,
}

const SPANS: [(&str, Span, Option<Unit>); 21] = [
    ("per day", Span::Day, None),
    ("per-day", Span::Day, None),
    ("per_day", Span::Day, None),
    ("daily", Span::Day, None),
    ("tpd", Span::Day, Some(Unit::Tokens)),
    ("rpd", Span::Day, Some(Unit::Requests)),
    ("per minute", Span::Minute, None),
    ("per-minute", Span::Minute, None),
    ("per_minute", Span::Minute, None),
    ("per min", Span::Minute, None),
    ("per-min", Span::Minute, None),
    ("per second", Span::Minute, None),
    ("per-second", Span::Minute, None),
    ("per_second", Span::Minute, None),
    ("rps", Span::Minute, Some(Unit::Requests)),
    ("tpm", Span::Minute, Some(Unit::Tokens)),
    ("rpm", Span::Minute, Some(Unit::Requests)),
    ("ipm", Span::Minute, Some(Unit::Images)),
    ("per hour", Span::Hour, None),
    ("per-hour", Span::Hour, None),
    ("hourly", Span::Hour, None),
];

/// The first window that a lower-case text names, what it counts, and the words that say so.
///
/// Gemini's own texts of today name none; its old ones and other providers' do.
pub(super) fn span(lower: &str) -> Option<(Span, Unit, &'static str)> {
    let found = SPANS.iter().filter_map(|(words, span, unit)| {
        let at = word_position(lower, words)?;
        Some((at, *span, *unit, *words))
    });
    let (at, span, unit, words) = found.min_by_key(|(at, ..)| *at)?;
    Some((span, unit.unwrap_or_else(|| unit_near(lower, at)), words))
}

/// Where `words` stand, not as part of a longer word.
fn word_position(lower: &str, words: &str) -> Option<usize> {
    let bytes = lower.as_bytes();
    memmem::find_iter(bytes, words).find(|at| {
        let end = at + words.len();
        let before = *at == 0 || !bytes[at - 1].is_ascii_alphanumeric();
        before && bytes.get(end).is_none_or(|after| !after.is_ascii_alphanumeric())
    })
}

/// What stands nearest before a window decides what it counts: `tokens per day`, `requests per
/// minute`.
fn unit_near(lower: &str, at: usize) -> Unit {
    let mut start = at.saturating_sub(40);
    while !lower.is_char_boundary(start) {
        start -= 1;
    }
    let before = &lower[start..at];
    let near = [("token", Unit::Tokens), ("request", Unit::Requests), ("image", Unit::Images)]
        .into_iter()
        .filter_map(|(word, unit)| Some((before.rfind(word)?, unit)))
        .max_by_key(|(at, _)| *at);
    match near {
        Some((_, unit)) => unit,
        None if lower.contains("token") => Unit::Tokens,
        None => Unit::Requests,
    }
}

/// What a lower-case text says is limited, when it names no window.
pub(super) fn unit_of_rate_limit(lower: &str) -> Option<(Unit, &'static str)> {
    const PHRASES: [(&str, Unit); 6] = [
        ("requests rate limit", Unit::Requests),
        ("request rate limit", Unit::Requests),
        ("requests limit exceeded", Unit::Requests),
        ("tokens rate limit", Unit::Tokens),
        ("token rate limit", Unit::Tokens),
        ("tokens limit exceeded", Unit::Tokens),
    ];
    PHRASES.into_iter().find(|(words, _)| lower.contains(words)).map(|(words, unit)| (unit, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_lines_keep_metric_value_and_model_together() {
        let text = "quota. \n* Quota exceeded for metric: g.com/tokens, limit: 0, model: gemini-3.1-pro\n\
            * Quota exceeded for metric: g.com/requests, limit: 20, model: a-tts. Please retry in 32.8s.";
        let lines = limit_lines(text);
        assert_eq!(
            lines,
            [
                LimitLine { metric: Some("g.com/tokens"), value: 0, model: Some("gemini-3.1-pro") },
                LimitLine { metric: Some("g.com/requests"), value: 20, model: Some("a-tts") },
            ]
        );
        assert_eq!(
            limit_lines("x limit: 5, model: g"),
            [LimitLine { metric: None, value: 5, model: Some("g") }]
        );
        assert_eq!(limit_lines("limit: none"), []);
    }

    #[test]
    fn the_longest_wait_named_is_taken() {
        assert_eq!(stated_wait("Please retry in 1s. Please retry in 2.5s."), Some(secs(2.5)));
        assert_eq!(stated_wait("Please try again in 8m45.312s. Need more?"), Some(secs(525.312)));
        assert_eq!(stated_wait("Your quota will reset after 5s.."), Some(secs(5.0)));
        assert_eq!(stated_wait("Retry after 30 seconds"), Some(secs(30.0)));
        assert_eq!(stated_wait("used in 5s, back in 1h"), None);
    }

    #[test]
    fn windows_and_units_are_read_from_words_not_from_parts_of_words() {
        let of = |text| span(text).map(|(span, unit, _)| (span, unit));
        assert_eq!(of("on tokens per day (tpd): limit 1"), Some((Span::Day, Unit::Tokens)));
        assert_eq!(of("request reached tpd rate limit"), Some((Span::Day, Unit::Tokens)));
        assert_eq!(of("30,000 input tokens per minute"), Some((Span::Minute, Unit::Tokens)));
        assert_eq!(of("exceeded: free-models-per-day."), Some((Span::Day, Unit::Requests)));
        assert_eq!(of("limit_rpd/google/x"), Some((Span::Day, Unit::Requests)));
        assert_eq!(
            of("requests per minute and tokens per day"),
            Some((Span::Minute, Unit::Requests))
        );
        assert_eq!(of("corpsman has exceeded the quota"), None);
    }

    #[test]
    fn amounts_may_have_commas_and_tildes() {
        assert_eq!(
            amount_after("limit 7000, used 0, requested ~12903.", "requested"),
            Some(12_903)
        );
        assert_eq!(amount_after("limit 7000, used 0", "limit"), Some(7_000));
        assert_eq!(amount_after("your rate limit of 30,000 input", "limit"), Some(30_000));
        assert_eq!(amount_after("limit exceeded", "limit"), None);
    }

    fn secs(value: f64) -> Duration {
        Duration::from_secs_f64(value)
    }
}
