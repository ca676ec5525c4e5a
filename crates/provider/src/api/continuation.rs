//! Answers in several hops.
//!
//! A long answer may end with the finish reason `CONTINUATION`: one request's limit is reached, the
//! answer is not whole, and its first candidate holds a `continuationToken`. It is gone on with by
//! *the same request again*, contents and all, with that token as `continuationToken` beside
//! `contents` (not within `generationConfig`). What was said so far is not sent back. Every hop is
//! a request of its own: counted, and charged for the whole prompt.
//!
//! The reply to a hop holds what is new. [`GenerateResponse::append`] puts the hops together: parts
//! one after the other, usage added up, the rest as the last hop says. Within a stream usage is a
//! running total and never added up; between hops it always is.
//!
//! As `google-genai` 3.6.1 does it (`_extra_utils.py`: `prepare_continuation_config`,
//! `merge_continuation_responses`, `StreamContinuation`), which goes on by itself unless told not
//! to. It also goes on when there is a token and no finish reason at all: a stream that was cut can
//! be taken up from the last token seen in it. It stops at a hop that gives the token it was asked
//! with.

use serde_json::{Map, Value, map::Entry};

use super::{Candidate, Content, FinishReason, GenerateRequest, GenerateResponse, Json};

impl GenerateRequest {
    /// The request that goes on with `answer`, the reply to this one. `None` when it is whole, when
    /// the prompt was refused, or when going on would repeat the same hop.
    ///
    /// ```
    /// use keywheel_provider::api::{GenerateRequest, GenerateResponse};
    /// use serde_json::{from_value, json};
    ///
    /// let request = GenerateRequest::from("Tell me a long story");
    /// let mut answer: GenerateResponse = from_value(json!({
    ///     "candidates": [{
    ///         "content": {"role": "model", "parts": [{"text": "Once upon"}]},
    ///         "finishReason": "CONTINUATION", "continuationToken": "dDE=",
    ///     }],
    ///     "usageMetadata": {"promptTokenCount": 5, "totalTokenCount": 7},
    /// }))
    /// .unwrap();
    ///
    /// let next = request.continued(&answer).unwrap();
    /// assert_eq!(next.continuation_token.as_deref(), Some("dDE="));
    /// assert_eq!(next.contents, request.contents);
    ///
    /// let rest = json!({
    ///     "candidates": [{
    ///         "content": {"role": "model", "parts": [{"text": " a time."}]},
    ///         "finishReason": "STOP",
    ///     }],
    ///     "usageMetadata": {"promptTokenCount": 5, "totalTokenCount": 8},
    /// });
    /// answer.append(from_value(rest).unwrap());
    /// assert_eq!(answer.text(), "Once upon a time.");
    /// assert_eq!(answer.usage().unwrap().total, 15, "the prompt was charged twice");
    /// assert_eq!(next.continued(&answer), None);
    /// ```
    #[must_use]
    pub fn continued(&self, answer: &GenerateResponse) -> Option<Self> {
        let token = answer.continuation_token()?;
        if self.continuation_token.as_deref() == Some(token) {
            return None;
        }
        Some(Self { continuation_token: Some(token.to_owned()), ..self.clone() })
    }
}

impl GenerateResponse {
    /// The token to go on with, if this answer is not whole and can be gone on with.
    ///
    /// That is so for the finish reason `CONTINUATION`, and for none: a stream that was cut.
    #[must_use]
    pub fn continuation_token(&self) -> Option<&str> {
        let candidate = self.candidates.first()?;
        let open = matches!(candidate.finish_reason, None | Some(FinishReason::Continuation));
        let token = candidate.continuation_token.as_deref().filter(|token| !token.is_empty());
        token.filter(|_| open && self.prompt_feedback.is_none())
    }

    /// Adds `next`, the reply to the request that went on with this one.
    ///
    /// Parts stand one after the other, each as it came, signatures included. Counts of tokens are
    /// added up, ratings of safety replaced, lists of sources joined. How the answer ended is what
    /// `next` says.
    pub fn append(&mut self, next: Self) {
        let parts: Vec<_> = self.candidates.iter().map(parts_of).collect();
        let mut hops = next.candidates.into_iter();
        for (mine, parts) in self.candidates.iter_mut().zip(parts) {
            append_candidate(mine, hops.next().unwrap_or_default(), parts);
        }
        self.candidates.extend(hops);

        self.usage_metadata = match (self.usage_metadata.take(), next.usage_metadata) {
            (Some(mine), Some(hop)) => Some(add_up(&mine, hop)),
            (mine, hop) => hop.or(mine),
        };
        self.prompt_feedback = next.prompt_feedback.or(self.prompt_feedback.take());
        self.model_version = next.model_version.or(self.model_version.take());
        self.response_id = next.response_id.or(self.response_id.take());
        self.model_status = next.model_status.or(self.model_status.take());
        merge(&mut self.extra, next.extra);
    }
}

fn parts_of(candidate: &Candidate) -> usize {
    candidate.content.as_ref().map_or(0, |content| content.parts.len())
}

/// `parts` is how many parts `mine` has.
fn append_candidate(mine: &mut Candidate, mut hop: Candidate, parts: usize) {
    shift_supports(&mine.extra, &mut hop.extra, parts);
    merge(&mut mine.extra, hop.extra);
    mine.content = match (mine.content.take(), hop.content) {
        (Some(mine), Some(hop)) => Some(append_content(mine, hop)),
        (mine, hop) => mine.or(hop),
    };
    // How it ended is for the last hop to say, even where it says nothing.
    mine.finish_reason = hop.finish_reason;
    mine.finish_message = hop.finish_message;
    mine.continuation_token = hop.continuation_token;
    mine.index = hop.index.or(mine.index);
}

fn append_content(mut mine: Content, hop: Content) -> Content {
    mine.role = hop.role.or(mine.role);
    mine.parts.extend(hop.parts);
    merge(&mut mine.extra, hop.extra);
    mine
}

fn add_up(mine: &Json, hop: Json) -> Json {
    let (Ok(mut sum), Ok(fields)) = (mine.parse::<Map<_, _>>(), hop.parse()) else { return hop };
    merge(&mut sum, fields);
    Value::Object(sum).into()
}

/// Puts two objects of two hops together, by the names of their fields.
fn merge(mine: &mut Map<String, Value>, hop: Map<String, Value>) {
    for (name, value) in hop {
        match mine.entry(name) {
            Entry::Vacant(free) => {
                free.insert(value);
            }
            Entry::Occupied(mut taken) => {
                let name = taken.key().clone();
                merge_value(&name, taken.get_mut(), value);
            }
        }
    }
}

fn merge_value(name: &str, mine: &mut Value, hop: Value) {
    match (mine, hop) {
        (_, Value::Null) => {}
        (Value::Object(mine), Value::Object(hop)) => merge(mine, hop),
        (Value::Array(mine), Value::Array(hop)) => {
            if name.ends_with("TokensDetails") || name.ends_with("tokens_details") {
                join(mine, hop, "modality", |old, new| merge_value("", old, new));
            } else if name == "safetyRatings" || name == "safety_ratings" {
                join(mine, hop, "category", |old, new| *old = new);
            } else {
                mine.extend(hop);
            }
        }
        (mine, hop) if is_count(name) => match (mine.as_u64(), hop.as_u64()) {
            (Some(a), Some(b)) => *mine = a.saturating_add(b).into(),
            _ => *mine = hop,
        },
        (mine, hop) => *mine = hop,
    }
}

/// More modalities or categories than there will be.
const MOST_KINDS: usize = 100;

/// Joins two lists in which `key` tells the entries apart; `meet` puts two of the same key
/// together.
fn join(mine: &mut Vec<Value>, hop: Vec<Value>, key: &str, meet: fn(&mut Value, Value)) {
    for new in hop {
        // Beyond the kinds that there can be, nothing is looked for: it would take for ever.
        match mine.iter_mut().take(MOST_KINDS).find(|old| old.get(key) == new.get(key)) {
            Some(old) => meet(old, new),
            None => mine.push(new),
        }
    }
}

fn is_count(name: &str) -> bool {
    name.ends_with("Count") || name.ends_with("_count")
}

/// What supports a text names it by the number of its part, and its sources by their number: in the
/// whole both follow those of the hops before.
fn shift_supports(mine: &Map<String, Value>, hop: &mut Map<String, Value>, parts: usize) {
    const METADATA: [&str; 2] = ["groundingMetadata", "grounding_metadata"];
    let chunks = METADATA
        .iter()
        .find_map(|name| mine.get(*name))
        .and_then(|found| found.get("groundingChunks").or_else(|| found.get("grounding_chunks")))
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    let supports = pick(hop, METADATA)
        .and_then(Value::as_object_mut)
        .and_then(|found| pick(found, ["groundingSupports", "grounding_supports"]))
        .and_then(Value::as_array_mut);
    for support in supports.into_iter().flatten().filter_map(Value::as_object_mut) {
        let indices = pick(support, ["groundingChunkIndices", "grounding_chunk_indices"]);
        for index in indices.and_then(Value::as_array_mut).into_iter().flatten() {
            shift(index, chunks);
        }
        let Some(Value::Object(segment)) = support.get_mut("segment") else { continue };
        if parts > 0 {
            // Absent means the first part.
            let name = if segment.contains_key("part_index") { "part_index" } else { "partIndex" };
            shift(segment.entry(name).or_insert_with(|| 0.into()), parts);
        }
    }
}

/// The field of one of two spellings.
fn pick<'a>(fields: &'a mut Map<String, Value>, names: [&str; 2]) -> Option<&'a mut Value> {
    let name = names.into_iter().find(|name| fields.contains_key(*name))?;
    fields.get_mut(name)
}

fn shift(index: &mut Value, by: usize) {
    if let Some(old) = index.as_u64() {
        *index = old.saturating_add(by as u64).into();
    }
}
