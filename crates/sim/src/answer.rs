//! Answers: what is said when all goes well, or nearly.

mod native;
pub(crate) mod schema;

use serde_json::{Value, json};

use crate::{
    config::ModelConfig,
    opaque,
    prompt::{Format, FunctionCall, Prompt, count_tokens, sign},
};

/// An answer to a prompt; the same for the same prompt.
#[derive(Debug, Clone)]
pub(crate) struct Answer<'a> {
    pub(crate) model: &'a str,
    pub(crate) prompt: &'a Prompt,
    /// What is said, or this request's part of it.
    pub(crate) text: String,
    /// Functions that are called instead of saying something.
    pub(crate) calls: Vec<FunctionCall>,
    /// Whether the first call is signed.
    signed: bool,
    /// Tokens of thinking.
    pub(crate) thoughts: u64,
    pub(crate) end: End,
    kind: AnswerKind,
}

/// Why an answer ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Stop,
    MaxTokens,
    /// The request's share of the answer is said; this token gets the rest.
    Continuation(String),
}

/// Answers that are less than one might expect, and successes all the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    /// Text, or calls.
    #[default]
    Usual,
    /// Thoughts and nothing else.
    ThoughtOnly,
    /// The prompt was blocked: no candidate at all.
    Blocked,
    /// A candidate without content.
    NoContent,
}

/// A `continuationToken` of another project, model or prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WrongToken;

impl<'a> Answer<'a> {
    /// The answer of a model of this configuration to `prompt`, in the quota project `project`.
    ///
    /// # Errors
    /// The prompt follows an answer of another project, model or prompt.
    pub(crate) fn new(
        model: &'a str,
        config: &ModelConfig,
        prompt: &'a Prompt,
        project: u64,
        kind: AnswerKind,
    ) -> Result<Self, WrongToken> {
        let from = match &prompt.continuation {
            None => 0,
            Some(token) => {
                let told = opaque::open(token).ok_or(WrongToken)?;
                let (whose, offset) = told.rsplit_once('/').ok_or(WrongToken)?;
                if whose != bound_to(model, prompt, project) {
                    return Err(WrongToken);
                }
                offset.parse().map_err(|_| WrongToken)?
            }
        };
        let max = prompt.max_output.unwrap_or(u64::MAX).min(config.output_token_limit);
        let thinks = prompt.thinks || kind == AnswerKind::ThoughtOnly;
        let wanted = if thinks { 16 + prompt.hash() % 64 } else { 0 };
        let thoughts = wanted.min(max);
        let calls = prompt.functions.called();
        let whole = if calls.is_empty() { said(prompt) } else { String::new() };
        let cut = cut(&whole, bytes(max - thoughts));
        let until = match config.continue_after {
            Some(share) => cut_end(&whole, from + bytes(share.max(1))).min(cut),
            None => cut,
        };
        let end = if until < cut {
            let token = format!("{}/{until}", bound_to(model, prompt, project));
            End::Continuation(opaque::seal(&token))
        } else if cut < whole.len() {
            End::MaxTokens
        } else {
            End::Stop
        };
        let text = whole.get(from..until).ok_or(WrongToken)?.to_owned();
        let mut answer = Self {
            model,
            prompt,
            text,
            calls,
            signed: config.signatures.are_given(model),
            // Thinking comes before the first word.
            thoughts: if from == 0 { thoughts } else { 0 },
            end,
            kind,
        };
        if kind != AnswerKind::Usual {
            answer.text.clear();
            answer.calls.clear();
            answer.end = End::Stop;
        }
        Ok(answer)
    }

    /// Tokens of what is said and called, thinking left out.
    pub(crate) fn output_tokens(&self) -> u64 {
        let calls = self
            .calls
            .iter()
            .map(|call| count_tokens(&json!({"name": call.name, "args": call.args}).to_string()));
        (count_tokens(&self.text) + calls.sum::<u64>()) * self.prompt.candidates
    }

    /// The text in the pieces that a stream sends it in, each with the output tokens so far.
    pub(crate) fn pieces(&self) -> Vec<(&str, u64)> {
        let mut so_far = 0;
        let counted = |piece: &'_ str| {
            so_far += piece.len();
            (so_far as u64).div_ceil(4)
        };
        let pieces = pieces(&self.text);
        let counts: Vec<_> = pieces.iter().copied().map(counted).collect();
        pieces.into_iter().zip(counts).collect()
    }

    pub(crate) const fn kind(&self) -> AnswerKind {
        self.kind
    }

    /// The signature of a call, when it has one: of several calls at once the first.
    pub(crate) fn signature(&self, call: usize) -> Option<String> {
        (self.signed && call == 0).then(|| sign(&self.calls[call].name))
    }

    pub(crate) fn response_id(&self) -> String {
        format!("sim-{:016x}", self.prompt.hash())
    }
}

/// What a continuation token opens: one answer of one project.
fn bound_to(model: &str, prompt: &Prompt, project: u64) -> String {
    format!("{project}/{model}/{:016x}", prompt.hash())
}

/// What is answered to a prompt.
fn said(prompt: &Prompt) -> String {
    let id = prompt.hash() & 0xffff_ffff;
    // What was said last, as somebody who answers would.
    let last =
        if prompt.functions.asked.is_empty() { &prompt.text } else { &prompt.functions.asked };
    let quoted: String = last.chars().take(60).collect();
    match &prompt.format {
        Format::Json(Some(schema)) => schema::instance(schema).to_string(),
        Format::Json(None) => {
            json!({"simulated_answer": format!("{id:08x}"), "to": quoted}).to_string()
        }
        Format::Word(schema) => match schema::instance(schema) {
            Value::String(word) => word,
            other => other.to_string(),
        },
        Format::Text if prompt.functions.answered.is_empty() => {
            format!("Simulated answer {id:08x} to: {quoted}")
        }
        Format::Text => {
            let reports = prompt.functions.answered.iter().map(|it| {
                let response: String = it.response.to_string().chars().take(200).collect();
                format!("{} said {response}", it.name)
            });
            format!("Simulated answer {id:08x}: {}", reports.collect::<Vec<_>>().join("; "))
        }
    }
}

/// One token is four bytes here.
fn bytes(tokens: u64) -> usize {
    usize::try_from(tokens.saturating_mul(4)).unwrap_or(usize::MAX)
}

/// Where a text ends that may have so many bytes: not within a letter.
fn cut(text: &str, room: usize) -> usize {
    let mut end = text.len().min(room);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    end
}

/// The same, but rather a letter more than none.
fn cut_end(text: &str, room: usize) -> usize {
    let mut end = text.len().min(room);
    while !text.is_char_boundary(end) {
        end += 1;
    }
    end
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
