//! How many input tokens a request will be counted as, before Google has counted them.
//!
//! Free-tier limits count *input* tokens per minute (<https://ai.google.dev/gemini-api/docs/rate-limits>), so
//! this is what a lease takes from its window. The true figure replaces it when the answer comes.

use keywheel_core::estimate;
use keywheel_provider::api::{Content, GenerateRequest, GenerationConfig, Part};

/// The framing of a turn: role and separators.
const PER_TURN: u64 = 4;

/// An upper-leaning estimate of the request's input tokens.
pub(crate) fn input_tokens(request: &GenerateRequest) -> u64 {
    let turns = request.contents.iter().chain(&request.system_instruction);
    let turns: u64 = turns.map(content).sum();
    // Declarations are sent to the model as text of about their own length.
    let tools: u64 = request.tools.iter().map(|tool| estimate::tokens(tool.get())).sum();
    // So is the form that the answer is to have.
    let form = request.generation_config.as_ref().map_or(0, form);
    turns.saturating_add(tools).saturating_add(form)
}

fn form(config: &GenerationConfig) -> u64 {
    let schemas = config.response_schema.iter().chain(&config.response_json_schema);
    let schemas: u64 = schemas.map(|schema| estimate::tokens(schema.get())).sum();
    let formats = ["responseFormat", "response_format"].map(|name| config.extra.get(name));
    let formats = formats.into_iter().flatten().map(|form| estimate::tokens(&form.to_string()));
    schemas.saturating_add(formats.sum())
}

fn content(content: &Content) -> u64 {
    PER_TURN + content.parts.iter().map(part).sum::<u64>()
}

fn part(part: &Part) -> u64 {
    if let Some(text) = part.text() {
        return estimate::tokens(text);
    }
    if let Some(blob) = part.inline_data() {
        // Base64 is a third longer than what it carries.
        let bytes = blob.data.len() as u64 / 4 * 3;
        return estimate::media(&blob.mime_type, bytes, None);
    }
    if part.file_data().is_some() {
        // Its size is not known here; one tile of a picture is the least it can be.
        return estimate::TOKENS_PER_TILE;
    }
    estimate::tokens(part.json().get())
}
