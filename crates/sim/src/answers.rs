//! Answers: what is said when all goes well.

use serde_json::{Value, json};

use crate::{
    config::{ModelConfig, SimConfig},
    prompt::{Prompt, Text, count_tokens},
    random,
    route::Verb,
};

/// An answer to a prompt; the same for the same prompt.
#[derive(Debug, Clone)]
pub(crate) struct Answer<'a> {
    model: &'a str,
    prompt: &'a Prompt,
    text: String,
    thoughts: u64,
    finish: &'static str,
}

impl<'a> Answer<'a> {
    pub(crate) fn new(model: &'a str, config: &ModelConfig, prompt: &'a Prompt) -> Self {
        let max = prompt.max_output.unwrap_or(u64::MAX).min(config.output_token_limit);
        let wanted = if prompt.thinks { 16 + prompt.hash() % 64 } else { 0 };
        let thoughts = wanted.min(max);
        let whole = said(prompt);
        // One token is four bytes here, and all that is said is ASCII up to the quoted prompt.
        let room = usize::try_from((max - thoughts).saturating_mul(4)).unwrap_or(usize::MAX);
        let mut end = whole.len().min(room);
        while !whole.is_char_boundary(end) {
            end -= 1;
        }
        let finish = if end < whole.len() { "MAX_TOKENS" } else { "STOP" };
        Self { model, prompt, text: whole[..end].to_owned(), thoughts, finish }
    }

    /// The whole reply to `generateContent`.
    pub(crate) fn whole(&self) -> Value {
        let candidates: Vec<_> = (0..self.prompt.candidates)
            .map(|index| {
                let mut parts = self.thought_parts();
                parts.push(json!({"text": self.text}));
                json!({
                    "content": {"parts": parts, "role": "model"},
                    "finishReason": self.finish,
                    "index": index,
                })
            })
            .collect();
        json!({
            "candidates": candidates,
            "usageMetadata": self.usage(self.output_tokens()),
            "modelVersion": self.model,
            "responseId": self.response_id(),
        })
    }

    /// The chunks of a stream. Usage is cumulative; only the last chunk has a `finishReason`.
    pub(crate) fn chunks(&self) -> Vec<Value> {
        let pieces = pieces(&self.text);
        let last = pieces.len() - 1;
        let mut so_far = 0;
        let chunk = |(i, piece): (usize, &str)| {
            so_far += piece.len();
            let mut parts = if i == 0 { self.thought_parts() } else { Vec::new() };
            parts.push(json!({"text": piece}));
            let mut candidate = json!({"content": {"parts": parts, "role": "model"}, "index": 0});
            if i == last {
                candidate["finishReason"] = self.finish.into();
            }
            json!({
                "candidates": [candidate],
                "usageMetadata": self.usage((so_far as u64).div_ceil(4)),
                "modelVersion": self.model,
                "responseId": self.response_id(),
            })
        };
        pieces.iter().copied().enumerate().map(chunk).collect()
    }

    fn output_tokens(&self) -> u64 {
        count_tokens(&self.text) * self.prompt.candidates
    }

    fn thought_parts(&self) -> Vec<Value> {
        if !self.prompt.shows_thoughts || self.thoughts == 0 {
            return Vec::new();
        }
        vec![json!({"text": "simulated thought", "thought": true})]
    }

    /// Counts of zero are left out, as Google does.
    fn usage(&self, output: u64) -> Value {
        let prompt = self.prompt.tokens;
        let mut usage = json!({
            "promptTokenCount": prompt,
            "totalTokenCount": prompt + output + self.thoughts,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt}],
        });
        if output > 0 {
            usage["candidatesTokenCount"] = output.into();
        }
        if self.thoughts > 0 {
            usage["thoughtsTokenCount"] = self.thoughts.into();
        }
        usage
    }

    fn response_id(&self) -> String {
        format!("sim-{:016x}", self.prompt.hash())
    }
}

/// The reply to `countTokens`.
pub(crate) fn counted(prompt: &Prompt) -> Value {
    json!({
        "totalTokens": prompt.tokens,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt.tokens}],
    })
}

/// The reply to `embedContent` and `batchEmbedContents`.
pub(crate) fn embedded(config: &ModelConfig, texts: &[Text], batch: bool) -> Value {
    let vectors: Vec<_> = texts
        .iter()
        .map(|text| {
            let length = text.dimensions.unwrap_or(config.dimensions).min(4_096);
            let mut rng = random::generator(0, &[text.text.as_bytes()]);
            let values: Vec<f32> = (0..length).map(|_| rng.f32() - 0.5).collect();
            json!({"values": values})
        })
        .collect();
    if batch { json!({"embeddings": vectors}) } else { json!({"embedding": vectors[0]}) }
}

/// The reply to `GET models/{model}`.
pub(crate) fn model(name: &str, model: &ModelConfig) -> Value {
    let verbs: &[Verb] = if model.embeds {
        &[Verb::Embed, Verb::CountTokens]
    } else {
        &[Verb::Generate, Verb::CountTokens]
    };
    json!({
        "name": format!("models/{name}"),
        "version": "001",
        "displayName": name,
        "description": "Simulated by keywheel-sim",
        "inputTokenLimit": model.input_token_limit,
        "outputTokenLimit": model.output_token_limit,
        "supportedGenerationMethods": verbs.iter().map(|verb| verb.as_str()).collect::<Vec<_>>(),
    })
}

/// One page of the reply to `GET models`; a page token is the name the page begins with.
pub(crate) fn models(
    config: &SimConfig,
    hidden: &[String],
    page_size: usize,
    page_token: Option<&str>,
) -> Value {
    let mut shown = config
        .models
        .iter()
        .filter(|(name, _)| !hidden.contains(name))
        .filter(|(name, _)| page_token.is_none_or(|token| name.as_str() >= token));
    let page: Vec<_> = shown.by_ref().take(page_size).map(|(name, it)| model(name, it)).collect();
    let mut out = json!({"models": page});
    if let Some((next, _)) = shown.next() {
        out["nextPageToken"] = next.as_str().into();
    }
    out
}

/// What is answered to a prompt.
fn said(prompt: &Prompt) -> String {
    let id = prompt.hash() & 0xffff_ffff;
    let quoted: String = prompt.text.chars().take(60).collect();
    if prompt.wants_json {
        return json!({"simulated_answer": format!("{id:08x}"), "to": quoted}).to_string();
    }
    format!("Simulated answer {id:08x} to: {quoted}")
}

/// A text in up to four pieces.
fn pieces(text: &str) -> Vec<&str> {
    let target = text.len().div_ceil(4).max(1);
    let mut out = Vec::new();
    let mut rest = text;
    while rest.len() > target {
        let mut at = target;
        while !rest.is_char_boundary(at) {
            at += 1;
        }
        let (piece, tail) = rest.split_at(at);
        out.push(piece);
        rest = tail;
    }
    out.push(rest);
    out
}
