//! Answers, vectors and models, as OpenAI writes them.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::{
    answer::{Answer, AnswerKind, End},
    answers,
    config::{ModelConfig, SimConfig},
    prompt::Text,
    shape::{Frames, Shape, Wishes},
};

/// The reply to `POST chat/completions`.
pub(crate) fn completion(answer: &Answer<'_>, shape: Shape, now: DateTime<Utc>) -> Value {
    let message = |text: Value| {
        let mut message = json!({"role": "assistant", "content": text});
        if !answer.calls.is_empty() {
            message["tool_calls"] = tool_calls(answer, shape, false);
        }
        message
    };
    let text = match answer.kind() {
        AnswerKind::Usual if answer.calls.is_empty() => answer.text.as_str().into(),
        _ => Value::Null,
    };
    let choices: Vec<_> = (0..answer.prompt.candidates)
        .map(|index| {
            json!({
                "index": index,
                "message": message(text.clone()),
                "finish_reason": finish_reason(answer),
            })
        })
        .collect();
    json!({
        "id": answer.response_id(),
        "object": "chat.completion",
        "created": now.timestamp(),
        "model": answer.model,
        "choices": choices,
        "usage": usage(answer, shape, answer.output_tokens()),
    })
}

/// The events of a streamed reply. Google's chunks all have the usage so far; OpenAI's have it in one more
/// at the end, when it is asked for.
pub(crate) fn frames(answer: &Answer<'_>, shape: Shape, now: DateTime<Utc>) -> Frames {
    let chunk = |delta: Value, finish: Option<&str>, output: u64| {
        let mut chunk = json!({
            "id": answer.response_id(),
            "object": "chat.completion.chunk",
            "created": now.timestamp(),
            "model": answer.model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        });
        match shape {
            Shape::Compat(_) => chunk["usage"] = usage(answer, shape, output),
            Shape::OpenAi(Wishes { usage: true, .. }) => chunk["usage"] = Value::Null,
            _ => {}
        }
        chunk
    };
    let mut chunks = Vec::new();
    let all = answer.output_tokens();
    if !answer.calls.is_empty() {
        let delta = json!({"role": "assistant", "tool_calls": tool_calls(answer, shape, true)});
        chunks.push(chunk(delta, None, all));
    } else if answer.kind() == AnswerKind::Usual {
        for (piece, output) in answer.pieces() {
            let delta = json!({"role": "assistant", "content": piece});
            chunks.push(chunk(delta, None, output));
        }
    }
    let end = chunks.len();
    chunks.push(chunk(json!({}), Some(finish_reason(answer)), all));
    if let Shape::OpenAi(Wishes { usage: true, .. }) = shape {
        let mut last = chunk(json!({}), None, all);
        last["choices"] = json!([]);
        last["usage"] = usage(answer, shape, all);
        chunks.push(last);
    }
    let mut texts: Vec<_> = chunks.iter().map(Value::to_string).collect();
    texts.push("[DONE]".to_owned());
    Frames { texts, end }
}

/// The reply to `POST embeddings`.
pub(crate) fn embedded(name: &str, config: &ModelConfig, texts: &[Text], wishes: Wishes) -> Value {
    let data: Vec<_> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| {
            let vector = answers::vector(name, config, text);
            let written = if wishes.base64 {
                let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
                STANDARD.encode(bytes).into()
            } else {
                json!(vector)
            };
            json!({"object": "embedding", "index": index, "embedding": written})
        })
        .collect();
    let tokens: u64 = texts.iter().map(|text| text.tokens).sum();
    json!({
        "object": "list",
        "data": data,
        "model": name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    })
}

/// The reply to `GET models/{id}`. Google's names keep their `models/`.
pub(crate) fn model(name: &str, shape: Shape) -> Value {
    match shape {
        Shape::OpenAi(_) => {
            json!({"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "system"})
        }
        _ => json!({"id": format!("models/{name}"), "object": "model", "owned_by": "google"}),
    }
}

/// The reply to `GET models`.
pub(crate) fn models(config: &SimConfig, hidden: &[String], shape: Shape) -> Value {
    let shown = config.models.keys().filter(|name| !hidden.contains(name));
    let data: Vec<_> = shown.map(|name| model(name, shape)).collect();
    json!({"object": "list", "data": data})
}

fn finish_reason(answer: &Answer<'_>) -> &'static str {
    match (&answer.end, answer.kind()) {
        (_, AnswerKind::Blocked) => "content_filter",
        (End::MaxTokens | End::Continuation(_), _) => "length",
        (End::Stop, _) if !answer.calls.is_empty() => "tool_calls",
        (End::Stop, _) => "stop",
    }
}

/// Google's signature of a call travels beside it
/// (<https://ai.google.dev/gemini-api/docs/thought-signatures>).
fn tool_calls(answer: &Answer<'_>, shape: Shape, streamed: bool) -> Value {
    let call = |(i, call): (usize, &crate::prompt::FunctionCall)| {
        let function = json!({"name": call.name, "arguments": call.args.to_string()});
        let mut out = json!({"id": call.id, "type": "function", "function": function});
        if streamed {
            out["index"] = i.into();
        }
        if let (Shape::Compat(_), Some(signature)) = (shape, answer.signature(i)) {
            out["extra_content"] = json!({"google": {"thought_signature": signature}});
        }
        out
    };
    answer.calls.iter().enumerate().map(call).collect()
}

/// Google does not itemise thinking, and counts it in the total alone; OpenAI counts it as output.
fn usage(answer: &Answer<'_>, shape: Shape, output: u64) -> Value {
    let prompt = answer.prompt.tokens;
    let total = prompt + output + answer.thoughts;
    match shape {
        Shape::OpenAi(_) => json!({
            "prompt_tokens": prompt,
            "completion_tokens": output + answer.thoughts,
            "total_tokens": total,
            "prompt_tokens_details": {"cached_tokens": answer.prompt.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": answer.thoughts},
        }),
        _ => {
            json!({"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": total})
        }
    }
}
