//! The 429 that names quotas.

use std::time::Duration;

use keywheel_core::{Cause, Dimension, Tier};
use serde_json::{Value, json};

use super::{ErrorBody, SERVICE};
use crate::quota::Violation;

/// A refusal for quotas, with all that its body needs.
#[derive(Debug)]
pub(crate) struct QuotaRefusal<'a> {
    /// The model as Google calls it inside.
    pub(crate) internal_name: &'a str,
    pub(crate) embeds: bool,
    pub(crate) tier: Tier,
    pub(crate) violations: &'a [Violation],
    /// The wait that is stated, if one is.
    pub(crate) hint: Option<Duration>,
}

impl QuotaRefusal<'_> {
    /// The body. The order of its details varies from one to the next, as in real ones.
    pub(crate) fn body(&self, rng: &mut fastrand::Rng) -> ErrorBody {
        let mut message = "You exceeded your current quota, please check your plan and billing \
                           details. For more information on this error, head to: \
                           https://ai.google.dev/gemini-api/docs/rate-limits. To monitor your \
                           current usage, head to: https://ai.dev/rate-limit. "
            .to_owned();
        for violation in self.violations {
            let (metric, _) = self.names(violation.dimension);
            message += &format!(
                "\n* Quota exceeded for metric: {SERVICE}/{metric}, limit: {}, model: {}",
                violation.limit, self.internal_name
            );
        }
        let mut details = vec![help(), self.failure()];
        if let Some(hint) = self.hint {
            // The exact wait has nanoseconds; real ones are never round. Less than a millisecond on
            // top keeps it no shorter than the true one.
            let exact = hint + Duration::from_nanos(rng.u64(1..1_000_000));
            message += &format!("\nPlease retry in {}.", go_duration(exact));
            details.push(json!({
                "@type": "type.googleapis.com/google.rpc.RetryInfo",
                // Cut to whole seconds, not rounded (017).
                "retryDelay": format!("{}s", exact.as_secs()),
            }));
        }
        rng.shuffle(&mut details);
        ErrorBody::new(429, "RESOURCE_EXHAUSTED", message).with_details(details)
    }

    /// What one can know from the body, and from the size of the request.
    pub(crate) fn told(&self) -> Cause {
        let has = |dimension| self.violations.iter().any(|v| v.dimension == dimension);
        let tokens_never_fit = |v: &Violation| v.dimension == Dimension::Tpm && v.fits_in.is_none();
        if self.violations.iter().any(|v| v.limit == 0) {
            return Cause::FreeTierNotAvailable;
        }
        if has(Dimension::Rpd) {
            return Cause::PerDayRequests;
        }
        if has(Dimension::Tpd) {
            return Cause::PerDayTokens;
        }
        if self.violations.iter().any(tokens_never_fit) {
            return Cause::RequestTooLarge;
        }
        if has(Dimension::Tpm) {
            return Cause::PerMinuteTokens;
        }
        Cause::PerMinuteRequests
    }

    fn failure(&self) -> Value {
        let violations: Vec<_> = self
            .violations
            .iter()
            .map(|violation| {
                let (metric, id) = self.names(violation.dimension);
                let mut out = json!({
                    "quotaMetric": format!("{SERVICE}/{metric}"),
                    "quotaId": id,
                    "quotaDimensions": {"location": "global", "model": self.internal_name},
                });
                // A limit of zero is left out, as proto JSON does with zeros (020).
                if violation.limit > 0 {
                    out["quotaValue"] = violation.limit.to_string().into();
                }
                out
            })
            .collect();
        json!({
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": violations,
        })
    }

    /// The metric and the quota's id, as seen in real replies, but for the embedding tokens and the paid
    /// tokens a day, of which no public reply is known: named by analogy.
    const fn names(&self, dimension: Dimension) -> (&'static str, &'static str) {
        use Dimension::{Ipm, Rpd, Rpm, Tpd, Tpm};
        match (self.embeds, self.tier, dimension) {
            // 028
            (false, Tier::Free, Rpm | Ipm) => (
                "generate_content_free_tier_requests",
                "GenerateRequestsPerMinutePerProjectPerModel-FreeTier",
            ),
            // 003
            (false, Tier::Free, Rpd) => (
                "generate_content_free_tier_requests",
                "GenerateRequestsPerDayPerProjectPerModel-FreeTier",
            ),
            // 011
            (false, Tier::Free, Tpm) => (
                "generate_content_free_tier_input_token_count",
                "GenerateContentInputTokensPerModelPerMinute-FreeTier",
            ),
            // 022
            (false, Tier::Free, Tpd) => (
                "generate_content_free_tier_input_token_count",
                "GenerateContentInputTokensPerModelPerDay-FreeTier",
            ),
            (false, Tier::Paid, Rpm | Ipm) => {
                ("generate_requests_per_model", "GenerateRequestsPerMinutePerProjectPerModel")
            }
            // 042
            (false, Tier::Paid, Rpd) => {
                ("generate_requests_per_model_per_day", "GenerateRequestsPerDayPerProjectPerModel")
            }
            // 014
            (false, Tier::Paid, Tpm) => (
                "generate_content_paid_tier_input_token_count",
                "GenerateContentPaidTierInputTokensPerModelPerMinute",
            ),
            (false, Tier::Paid, Tpd) => (
                "generate_content_paid_tier_input_token_count",
                "GenerateContentPaidTierInputTokensPerModelPerDay",
            ),
            (true, Tier::Free, Rpm | Ipm) => (
                "embed_content_free_tier_requests",
                "EmbedContentRequestsPerMinutePerUserPerProjectPerModel-FreeTier",
            ),
            // 033
            (true, Tier::Free, Rpd) => (
                "embed_content_free_tier_requests",
                "EmbedContentRequestsPerDayPerUserPerProjectPerModel-FreeTier",
            ),
            (true, Tier::Free, Tpm) => (
                "embed_content_free_tier_input_token_count",
                "EmbedContentInputTokensPerModelPerMinute-FreeTier",
            ),
            (true, Tier::Free, Tpd) => (
                "embed_content_free_tier_input_token_count",
                "EmbedContentInputTokensPerModelPerDay-FreeTier",
            ),
            // 034
            (true, Tier::Paid, Rpm | Ipm) => (
                "embed_content_paid_tier_2_requests",
                "EmbedContentRequestsPerMinutePerProjectPerModel-PaidTier2",
            ),
            (true, Tier::Paid, Rpd) => (
                "embed_content_paid_tier_2_requests",
                "EmbedContentRequestsPerDayPerProjectPerModel-PaidTier2",
            ),
            (true, Tier::Paid, Tpm) => (
                "embed_content_paid_tier_2_input_token_count",
                "EmbedContentInputTokensPerModelPerMinute-PaidTier2",
            ),
            (true, Tier::Paid, Tpd) => (
                "embed_content_paid_tier_2_input_token_count",
                "EmbedContentInputTokensPerModelPerDay-PaidTier2",
            ),
        }
    }
}

fn help() -> Value {
    json!({
        "@type": "type.googleapis.com/google.rpc.Help",
        "links": [{
            "description": "Learn more about Gemini API quotas",
            "url": "https://ai.google.dev/gemini-api/docs/rate-limits",
        }],
    })
}

/// `39.078576ms`, `45.837906927s`, `10h5m39.009385224s`: as Go prints durations, and Google's messages.
pub(crate) fn go_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos < 1_000_000_000 {
        return format!("{}ms", decimal(nanos, 6));
    }
    let (hours, rest) = (nanos / 3_600_000_000_000, nanos % 3_600_000_000_000);
    let (minutes, rest) = (rest / 60_000_000_000, rest % 60_000_000_000);
    let seconds = decimal(rest, 9);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// `value` with the point `places` from the right, without trailing zeros.
fn decimal(value: u128, places: usize) -> String {
    let unit = 10_u128.pow(places as u32);
    let fraction = format!("{:0places$}", value % unit);
    match fraction.trim_end_matches('0') {
        "" => (value / unit).to_string(),
        fraction => format!("{}.{fraction}", value / unit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_in_the_corpus() {
        let cases = [
            (39_078_576, "39.078576ms"),
            (242_000_000, "242ms"),
            (45_837_906_927, "45.837906927s"),
            (62_000_000_000, "1m2s"),
            (36_339_009_385_224, "10h5m39.009385224s"),
            (3_600_000_000_000, "1h0m0s"),
        ];
        for (nanos, text) in cases {
            assert_eq!(go_duration(Duration::from_nanos(nanos)), text);
        }
    }
}
