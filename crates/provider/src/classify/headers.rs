//! The rate headers of providers that send them. Google sends none; they are read when present.
//!
//! | provider | headers |
//! |---|---|
//! | OpenAI, Azure | `x-ratelimit-{limit,remaining,reset}-{requests,tokens}`, `retry-after`, `retry-after-ms` |
//! | Groq | the same, but requests are counted per day and tokens per minute |
//! | OpenRouter | `x-ratelimit-{limit,remaining,reset}`, in the body; reset is an epoch in milliseconds |
//! | Anthropic | `anthropic-ratelimit-{requests,input-tokens,…}-{limit,remaining,reset}`; reset is RFC 3339 |
//! | Mistral, Cerebras | `x-ratelimit-{limit,remaining}-{req-minute,tokens-minute,requests-day,…}` |

use std::time::Duration;

use chrono::{DateTime, Utc};
use http::HeaderMap;
use keywheel_core::Dimension;

use super::{
    delay,
    message::{Span, Unit},
};

/// What the headers say.
#[derive(Debug, Default)]
pub(super) struct RateHeaders {
    /// The longest of the `Retry-After` family.
    pub(super) retry_after: Option<Duration>,
    /// One entry per quota that is told about.
    pub(super) quotas: Vec<HeaderQuota>,
}

/// One quota that headers tell about.
#[derive(Debug, Clone, Default)]
pub(super) struct HeaderQuota {
    pub(super) unit: Option<Unit>,
    window: Option<Span>,
    pub(super) limit: Option<i64>,
    remaining: Option<i64>,
    pub(super) reset: Option<Duration>,
    per_minute_by_contract: bool,
    output: bool,
}

/// How the names begin that are read at all.
const PREFIXES: [&str; 4] =
    ["retry-after", "x-ratelimit-", "anthropic-ratelimit-", "x-ms-retry-after-ms"];

/// The latest that a window of a minute can be full again, in seconds, with some room for rounding.
const LATEST_MINUTE: f64 = 65.0;

/// Far more than any provider sends.
const MOST_QUOTAS: usize = 16;

impl RateHeaders {
    /// Reads the reply's headers, and those that OpenRouter puts into the body.
    pub(super) fn read(headers: &HeaderMap, body: &[(String, String)], now: DateTime<Utc>) -> Self {
        let mut out = Self::default();
        for (name, value) in headers {
            let name = name.as_str();
            let about_rates = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
            if about_rates && let Ok(value) = value.to_str() {
                out.take(name, value, now);
            }
        }
        for (name, value) in body {
            out.take(&name.to_ascii_lowercase(), value, now);
        }
        out
    }

    fn take(&mut self, name: &str, value: &str, now: DateTime<Utc>) {
        let wait = match name {
            "retry-after" => delay::until(value, now),
            "retry-after-ms" | "x-ms-retry-after-ms" => delay::milliseconds(value),
            _ => return self.take_quota(name, value, now),
        };
        self.retry_after = self.retry_after.max(wait.filter(|wait| !wait.is_zero()));
    }

    fn take_quota(&mut self, name: &str, value: &str, now: DateTime<Utc>) {
        let (words, anthropic) = match name.strip_prefix("x-ratelimit-") {
            Some(words) => (words, false),
            None => match name.strip_prefix("anthropic-ratelimit-") {
                Some(words) => (words, true),
                None => return,
            },
        };
        let mut quota = HeaderQuota { per_minute_by_contract: anthropic, ..HeaderQuota::default() };
        let mut field = None;
        for word in words.split('-') {
            match word {
                "limit" | "remaining" | "reset" => field = Some(word),
                "requests" | "request" | "req" => quota.unit = Some(Unit::Requests),
                "tokens" | "token" => quota.unit = Some(Unit::Tokens),
                "images" => quota.unit = Some(Unit::Images),
                "minute" | "min" => quota.window = Some(Span::Minute),
                "hour" => quota.window = Some(Span::Hour),
                "day" => quota.window = Some(Span::Day),
                "input" => {}
                "output" => quota.output = true,
                // A month, the cost of this query, …: nothing the pool counts.
                _ => return,
            }
        }
        let quota = self.slot(quota);
        match (quota, field) {
            (Some(quota), Some("limit")) => quota.limit = whole(value),
            (Some(quota), Some("remaining")) => quota.remaining = whole(value),
            (Some(quota), Some("reset")) => quota.reset = delay::until(value, now),
            _ => {}
        }
    }

    fn slot(&mut self, like: HeaderQuota) -> Option<&mut HeaderQuota> {
        let same = |quota: &HeaderQuota| {
            (quota.unit, quota.window, quota.output) == (like.unit, like.window, like.output)
        };
        let at = self.quotas.iter().position(same).unwrap_or(self.quotas.len());
        if at == self.quotas.len() {
            if at == MOST_QUOTAS {
                return None;
            }
            self.quotas.push(like);
        }
        self.quotas.get_mut(at)
    }

    /// The first quota that is used up.
    pub(super) fn exhausted(&self) -> Option<&HeaderQuota> {
        self.quotas.iter().find(|quota| quota.remaining.is_some_and(|left| left <= 0))
    }

    /// The first quota whose limit is zero: the key has none at all.
    pub(super) fn without_quota(&self) -> Option<&HeaderQuota> {
        self.quotas.iter().find(|quota| quota.unit.is_some() && quota.limit == Some(0))
    }

    /// A limit whose unit the headers leave to the text (OpenRouter).
    pub(super) fn bare_limit(&self) -> Option<u64> {
        let bare = self.quotas.iter().find(|quota| quota.unit.is_none())?;
        u64::try_from(bare.limit?).ok()
    }
}

impl HeaderQuota {
    /// The window, named or worked out.
    pub(super) fn window(&self) -> Option<Span> {
        self.window.or_else(|| self.worked_out()).or_else(|| {
            let minute = self.per_minute_by_contract || self.unit == Some(Unit::Tokens);
            minute.then_some(Span::Minute)
        })
    }

    /// These providers refill steadily, so what is used and the time until the quota is full again
    /// give the window. It tells Groq's requests, which are per day, from OpenAI's of the same
    /// name.
    fn worked_out(&self) -> Option<Span> {
        let reset = self.reset?.as_secs_f64();
        let (Some(limit), Some(remaining)) = (self.limit, self.remaining) else {
            return (reset > 600.0).then_some(Span::Day);
        };
        let used = limit.checked_sub(remaining).filter(|used| *used > 0)?;
        let window = reset * limit as f64 / used as f64;
        // Where the whole quota comes back at once, the time until then says nothing of the window's length,
        // but that it is no shorter.
        match window {
            ..=600.0 if reset <= LATEST_MINUTE => Some(Span::Minute),
            14_400.0.. if reset > LATEST_MINUTE => Some(Span::Day),
            _ => None,
        }
    }

    /// What is limited, where window and unit are both certain.
    pub(super) fn dimension(&self) -> Option<Dimension> {
        if self.output {
            return None;
        }
        dimension(self.unit?, self.window()?)
    }
}

/// The dimension for a unit and a window, if the pool knows one.
pub(super) const fn dimension(unit: Unit, span: Span) -> Option<Dimension> {
    match (unit, span) {
        (Unit::Requests, Span::Minute) => Some(Dimension::Rpm),
        (Unit::Tokens, Span::Minute) => Some(Dimension::Tpm),
        (Unit::Images, Span::Minute) => Some(Dimension::Ipm),
        (Unit::Requests, Span::Day) => Some(Dimension::Rpd),
        (Unit::Tokens, Span::Day) => Some(Dimension::Tpd),
        (_, Span::Hour) | (Unit::Images, Span::Day) => None,
    }
}

/// The whole number at the start of a header's value; Azure counts below zero.
fn whole(value: &str) -> Option<i64> {
    let value = value.trim();
    let end = value
        .char_indices()
        .find(|(at, c)| !(c.is_ascii_digit() || (*at == 0 && *c == '-')))
        .map_or(value.len(), |(at, _)| at);
    value[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&'static str, &str)]) -> RateHeaders {
        let headers = pairs
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()));
        RateHeaders::read(&headers.collect(), &[], DateTime::<Utc>::UNIX_EPOCH)
    }

    fn dimensions(headers: &RateHeaders) -> Vec<(Option<Dimension>, Option<i64>)> {
        headers.quotas.iter().map(|quota| (quota.dimension(), quota.limit)).collect()
    }

    #[test]
    fn groq_counts_requests_per_day_and_openai_per_minute_under_the_same_names() {
        let groq = read(&[
            ("x-ratelimit-limit-requests", "1000"),
            ("x-ratelimit-remaining-requests", "998"),
            ("x-ratelimit-reset-requests", "2m52.8s"),
        ]);
        assert_eq!(dimensions(&groq), [(Some(Dimension::Rpd), Some(1000))]);
        let openai = read(&[
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "1s"),
        ]);
        assert_eq!(dimensions(&openai), [(Some(Dimension::Rpm), Some(60))]);
    }

    #[test]
    fn a_window_that_cannot_be_told_is_not_guessed() {
        for (limit, remaining, reset) in [
            // A minute's window that ends in 59 s: a day's, if it came back bit by bit.
            ("1500", "1499", "59s"),
            // A day's window that ends in five minutes: a minute's, if it came back bit by bit.
            ("1000", "10", "5m"),
            // Whole seconds of what takes six thousandths.
            ("10000", "9999", "1s"),
            ("1000", "1000", "1s"),
        ] {
            let headers = read(&[
                ("x-ratelimit-limit-requests", limit),
                ("x-ratelimit-remaining-requests", remaining),
                ("x-ratelimit-reset-requests", reset),
            ]);
            assert_eq!(dimensions(&headers)[0].0, None, "{limit} {remaining} {reset}");
        }
    }

    #[test]
    fn named_windows_are_believed_and_unknown_names_are_left_alone() {
        let mistral = read(&[
            ("x-ratelimit-limit-req-minute", "0"),
            ("x-ratelimit-limit-tokens-month", "1000000"),
            ("x-ratelimit-limit-tokens-day", "5000"),
        ]);
        assert_eq!(
            dimensions(&mistral),
            [(Some(Dimension::Rpm), Some(0)), (Some(Dimension::Tpd), Some(5000))]
        );
        assert!(mistral.without_quota().is_some());
    }

    #[test]
    fn retry_after_takes_the_longest_and_zero_says_nothing() {
        assert_eq!(
            read(&[("retry-after", "1"), ("retry-after-ms", "1500")]).retry_after,
            Some(Duration::from_millis(1500))
        );
        assert_eq!(read(&[("retry-after", "0")]).retry_after, None);
        assert_eq!(read(&[("retry-after", "-5")]).retry_after, None);
        assert_eq!(read(&[("retry-after", "NaN")]).retry_after, None);
    }

    #[test]
    fn a_remainder_below_zero_is_used_up() {
        let azure =
            read(&[("x-ratelimit-remaining-tokens", "-27689"), ("x-ratelimit-reset-tokens", "64")]);
        let used_up = azure.exhausted().unwrap();
        assert_eq!((used_up.unit, used_up.window()), (Some(Unit::Tokens), Some(Span::Minute)));
    }
}
