//! Replies that are looked up: models, counts, vectors.

use serde_json::{Value, json};

use crate::{
    config::{ModelConfig, SimConfig},
    paging::Paging,
    prompt::{Prompt, Text},
    random,
    route::Verb,
};

/// The reply to `countTokens`.
pub(crate) fn counted(prompt: &Prompt) -> Value {
    let mut out = json!({
        "totalTokens": prompt.tokens,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt.tokens}],
    });
    if prompt.cached_tokens > 0 {
        out["cachedContentTokenCount"] = prompt.cached_tokens.into();
    }
    out
}

/// The reply to `embedContent` and `batchEmbedContents`.
pub(crate) fn embedded(name: &str, config: &ModelConfig, texts: &[Text], batch: bool) -> Value {
    let mut vectors = texts.iter().map(|text| json!({"values": vector(name, config, text)}));
    let tokens: u64 = texts.iter().map(|text| text.tokens).sum();
    let mut out = if batch {
        json!({"embeddings": vectors.collect::<Vec<_>>()})
    } else {
        json!({"embedding": vectors.next()})
    };
    out["usageMetadata"] = json!({"promptTokenCount": tokens, "totalTokenCount": tokens});
    out
}

/// The vector of a text: another for another model, task, title or length, and of length one.
pub(crate) fn vector(name: &str, config: &ModelConfig, text: &Text) -> Vec<f32> {
    let length = text.dimensions.unwrap_or(config.dimensions).min(4_096);
    let word = |word: &Option<String>| word.clone().unwrap_or_default();
    let (task, title) = (word(&text.task), word(&text.title));
    let parts = [
        name.as_bytes(),
        task.as_bytes(),
        title.as_bytes(),
        text.text.as_bytes(),
        &length.to_le_bytes(),
    ];
    let mut rng = random::generator(0, &parts);
    let values: Vec<f32> = (0..length).map(|_| rng.f32() - 0.5).collect();
    let norm = values.iter().map(|value| value * value).sum::<f32>().sqrt();
    values.into_iter().map(|value| value / norm.max(f32::MIN_POSITIVE)).collect()
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

/// One page of the reply to `GET models`, which has its list even when it is empty.
pub(crate) fn models(config: &SimConfig, hidden: &[String], paging: Paging<'_>) -> Value {
    let shown = config.models.iter().filter(|(name, _)| !hidden.contains(name));
    let mut out = paging.page("models", shown, model);
    if out["models"].is_null() {
        out["models"] = json!([]);
    }
    out
}
