//! What one frame of a reply says of the reply as a whole. Its content is skipped, not kept.

use std::fmt;

use keywheel_core::{Usage, usage::Reported};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;

/// A frame, or a whole reply, of Gemini's or of OpenAI's dialect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Glance {
    /// It has an error.
    pub(super) is_error: bool,
    fields: usize,
    pub(super) usage: Option<Usage>,
    /// The prompt was refused: no answer follows.
    pub(super) is_blocked: bool,
    /// The answers that it holds a part of, a bit for each by its index; and those of them that gave a reason for
    /// their end.
    pub(super) said: u128,
    pub(super) finished: u128,
}

impl Glance {
    /// # Errors
    /// It is no JSON, or JSON in which one of these things has another form.
    pub(super) fn at(json: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(json)
    }

    /// True for an error under a status that claims success: nothing but that. An operation that failed has one among
    /// other things.
    pub(super) const fn is_only_an_error(&self) -> bool {
        self.is_error && self.fields == 1
    }

    fn take_candidates(&mut self, candidates: Vec<Candidate>) {
        for Candidate { index, finish_reason } in candidates {
            let bit =
                index.unwrap_or(0).try_into().ok().and_then(|index| 1_u128.checked_shl(index));
            let bit = bit.unwrap_or(0);
            self.said |= bit;
            self.finished |= if finish_reason.is_some() { bit } else { 0 };
        }
    }
}

impl<'de> Deserialize<'de> for Glance {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Look)
    }
}

#[derive(Deserialize)]
#[serde(field_identifier)]
enum Field {
    #[serde(rename = "error")]
    Error,
    #[serde(rename = "event_type")]
    EventType,
    #[serde(rename = "usageMetadata", alias = "usage_metadata", alias = "usage")]
    Usage,
    #[serde(rename = "candidates", alias = "choices")]
    Candidates,
    #[serde(rename = "promptFeedback", alias = "prompt_feedback")]
    Feedback,
    /// What can stand around the usage: Google's own proxies, Interactions, Anthropic, Groq.
    #[serde(rename = "response", alias = "interaction", alias = "message", alias = "x_groq")]
    Wrapper,
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Candidate {
    #[serde(default)]
    index: Option<u64>,
    #[serde(default, rename = "finishReason", alias = "finish_reason")]
    finish_reason: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Feedback {
    #[serde(default, rename = "blockReason", alias = "block_reason")]
    block_reason: Option<IgnoredAny>,
}

struct Look;

impl<'de> Visitor<'de> for Look {
    type Value = Glance;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Glance, A::Error> {
        let mut glance = Glance::default();
        let mut inner = None;
        while let Some(field) = map.next_key()? {
            glance.fields += 1;
            match field {
                Field::Error => {
                    glance.is_error |= map.next_value::<Option<IgnoredAny>>()?.is_some()
                }
                Field::EventType => glance.is_error |= map.next_value::<Value>()? == "error",
                Field::Usage => {
                    let Reported(usage) = map.next_value()?;
                    glance.usage = usage.or(glance.usage);
                }
                Field::Candidates => {
                    let candidates: Option<_> = map.next_value()?;
                    glance.take_candidates(candidates.unwrap_or_default());
                }
                Field::Feedback => {
                    let feedback: Option<Feedback> = map.next_value()?;
                    glance.is_blocked |= feedback.is_some_and(|it| it.block_reason.is_some());
                }
                Field::Wrapper => inner = map.next_value::<Glance>()?.usage.or(inner),
                Field::Other => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        glance.usage = glance.usage.or(inner);
        Ok(glance)
    }

    /// OpenAI's layer at Google puts its errors into an array; a stream without `alt=sse` is one.
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Glance, A::Error> {
        let mut all = Glance::default();
        let mut items = 0;
        while let Some(Glance { is_error, fields, usage, is_blocked, said, finished }) =
            seq.next_element()?
        {
            items += 1;
            Usage::take_last(&mut all.usage, usage);
            (all.is_error, all.is_blocked) =
                (all.is_error || is_error, all.is_blocked || is_blocked);
            (all.said, all.finished) = (all.said | said, all.finished | finished);
            all.fields = if items == 1 { fields } else { items };
        }
        Ok(all)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Glance, E> {
        Ok(Glance::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Glance, E> {
        Ok(Glance::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Glance, E> {
        Ok(Glance::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Glance, E> {
        Ok(Glance::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<Glance, E> {
        Ok(Glance::default())
    }

    fn visit_unit<E>(self) -> Result<Glance, E> {
        Ok(Glance::default())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(json: Value) -> Glance {
        Glance::at(json.to_string().as_bytes()).unwrap()
    }

    fn total(json: Value) -> Option<u64> {
        at(json).usage.map(|usage| usage.total)
    }

    #[test]
    fn usage_is_found_in_every_dialect() {
        let google = json!({"promptTokenCount": 8, "thoughtsTokenCount": 4, "totalTokenCount": 12});
        assert_eq!(total(json!({"candidates": [{}], "usageMetadata": google})), Some(12));
        assert_eq!(total(json!({"response": {"usage_metadata": google}})), Some(12));
        let openai = json!({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 9});
        assert_eq!(total(json!({"choices": [], "usage": openai})), Some(9));
        let interaction = json!({"total_input_tokens": 5, "total_output_tokens": 6});
        assert_eq!(total(json!({"interaction": {"usage": interaction}})), Some(11));
        assert_eq!(total(json!({"x_groq": {"usage": openai}, "usage": null})), Some(9));
        assert_eq!(total(json!([{"usageMetadata": google}, {"usageMetadata": {}}])), Some(12));
        assert_eq!(total(json!({"usage": null, "message": "text", "response": 7})), None);
        let inside = json!({"candidates": [{"content": {"usageMetadata": google}}]});
        assert_eq!(total(inside), None, "a model's words are no report");
    }

    #[test]
    fn an_error_is_told_from_an_operation_that_failed() {
        for (json, (is_error, alone)) in [
            (json!({"error": {"code": 503}}), (true, true)),
            (json!([{"error": {"code": 503}}]), (true, true)),
            (json!({"name": "operations/1", "done": true, "error": {}}), (true, false)),
            (json!([{"error": {}}, {}]), (true, false)),
            (json!({"error": null}), (false, false)),
            (json!({"event_type": "error", "error": {}}), (true, false)),
            (json!({"event_type": "content.delta", "delta": {"error": {}}}), (false, false)),
            (json!("error"), (false, false)),
        ] {
            let glance = at(json.clone());
            assert_eq!((glance.is_error, glance.is_only_an_error()), (is_error, alone), "{json}");
        }
    }

    #[test]
    fn each_answer_is_known_by_its_index() {
        let both = json!({"candidates": [{"index": 0, "finishReason": "STOP"}, {"index": 1}]});
        assert_eq!((at(both.clone()).said, at(both).finished), (0b11, 0b01));
        let openai = json!({"choices": [{"index": 1, "finish_reason": null}, {}]});
        assert_eq!((at(openai.clone()).said, at(openai).finished), (0b11, 0));
        let odd =
            json!({"choices": [{"index": 128, "finish_reason": "stop"}, {"index": u64::MAX}]});
        assert_eq!((at(odd.clone()).said, at(odd).finished), (0, 0));
        assert!(at(json!({"promptFeedback": {"blockReason": "SAFETY"}})).is_blocked);
        assert!(!at(json!({"promptFeedback": {"safetyRatings": []}})).is_blocked);
    }

    #[test]
    fn odd_json_is_no_panic() {
        for odd in ["", "{", "[[[]]]", "7.5", "true", "null", "\"x\"", r#"{"candidates":7}"#] {
            let _what_it_says = Glance::at(odd.as_bytes());
        }
        let deep = "[".repeat(100_000);
        assert!(Glance::at(deep.as_bytes()).is_err());
        let twice = r#"{"usage":{"total_tokens":1},"usage":{"total_tokens":2}}"#;
        assert_eq!(Glance::at(twice.as_bytes()).unwrap().usage.unwrap().total, 2);
    }
}
