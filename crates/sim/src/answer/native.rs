//! Answers as the native routes write them.

use serde_json::{Value, json};

use super::{Answer, AnswerKind, End};

impl Answer<'_> {
    /// The whole reply to `generateContent`.
    pub(crate) fn whole(&self) -> Value {
        if self.kind() == AnswerKind::Blocked {
            return self.blocked();
        }
        let candidates: Vec<_> = (0..self.prompt.candidates)
            .map(|index| {
                let mut parts = self.thought_parts();
                parts.extend(self.call_parts());
                if self.calls.is_empty() && self.kind() == AnswerKind::Usual {
                    parts.push(json!({"text": self.text}));
                }
                self.ended(self.candidate(parts, index))
            })
            .collect();
        self.response(json!(candidates), self.output_tokens())
    }

    /// The chunks of a stream. Usage is cumulative; only the last chunk has a `finishReason`.
    pub(crate) fn chunks(&self) -> Vec<Value> {
        match self.kind() {
            AnswerKind::Blocked => return vec![self.blocked()],
            AnswerKind::Usual => {}
            AnswerKind::ThoughtOnly | AnswerKind::NoContent => return vec![self.whole()],
        }
        if !self.calls.is_empty() {
            return self.call_chunks();
        }
        let pieces = self.pieces();
        let last = pieces.len() - 1;
        let chunk = |(i, (piece, output)): (usize, (&str, u64))| {
            let mut parts = if i == 0 { self.thought_parts() } else { Vec::new() };
            parts.push(json!({"text": piece}));
            let candidate = self.candidate(parts, 0);
            let candidate = if i == last { self.ended(candidate) } else { candidate };
            self.response(json!([candidate]), output)
        };
        pieces.into_iter().enumerate().map(chunk).collect()
    }

    /// Every call in a chunk of its own, whole; the end comes in one more.
    fn call_chunks(&self) -> Vec<Value> {
        let output = self.output_tokens();
        let thoughts = Some(self.thought_parts()).filter(|parts| !parts.is_empty());
        let calls = self.call_parts().into_iter().map(|part| vec![part]);
        let mut chunks: Vec<_> = thoughts
            .into_iter()
            .chain(calls)
            .map(|parts| self.response(json!([self.candidate(parts, 0)]), output))
            .collect();
        let end = self.ended(self.candidate(vec![json!({"text": ""})], 0));
        chunks.push(self.response(json!([end]), output));
        chunks
    }

    fn response(&self, candidates: Value, output: u64) -> Value {
        json!({
            "candidates": candidates,
            "usageMetadata": self.usage(output),
            "modelVersion": self.model,
            "responseId": self.response_id(),
        })
    }

    /// A blocked prompt has no candidates, and was counted
    /// (<https://ai.google.dev/api/generate-content#PromptFeedback>).
    fn blocked(&self) -> Value {
        json!({
            "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
            "usageMetadata": self.usage(0),
            "modelVersion": self.model,
            "responseId": self.response_id(),
        })
    }

    fn candidate(&self, parts: Vec<Value>, index: u64) -> Value {
        let mut content = json!({"role": "model"});
        if !parts.is_empty() {
            content["parts"] = parts.into();
        }
        json!({"content": content, "index": index})
    }

    fn ended(&self, mut candidate: Value) -> Value {
        candidate["finishReason"] = match &self.end {
            End::Stop => "STOP",
            End::MaxTokens => "MAX_TOKENS",
            End::Continuation(token) => {
                candidate["continuationToken"] = token.as_str().into();
                "CONTINUATION"
            }
        }
        .into();
        candidate
    }

    fn thought_parts(&self) -> Vec<Value> {
        let shown = self.prompt.shows_thoughts || self.kind() == AnswerKind::ThoughtOnly;
        if !shown || self.thoughts == 0 {
            return Vec::new();
        }
        vec![json!({"text": "simulated thought", "thought": true})]
    }

    fn call_parts(&self) -> Vec<Value> {
        let part = |(i, call): (usize, &crate::prompt::FunctionCall)| {
            let mut part =
                json!({"functionCall": {"id": call.id, "name": call.name, "args": call.args}});
            if let Some(signature) = self.signature(i) {
                part["thoughtSignature"] = signature.into();
            }
            part
        };
        self.calls.iter().enumerate().map(part).collect()
    }

    /// Counts of zero are left out, as Google does.
    fn usage(&self, output: u64) -> Value {
        let prompt = self.prompt.tokens;
        let cached = self.prompt.cached_tokens;
        let mut usage = json!({
            "promptTokenCount": prompt,
            "totalTokenCount": prompt + output + self.thoughts,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt}],
        });
        if cached > 0 {
            usage["cachedContentTokenCount"] = cached.into();
            usage["cacheTokensDetails"] = json!([{"modality": "TEXT", "tokenCount": cached}]);
        }
        if output > 0 {
            usage["candidatesTokenCount"] = output.into();
        }
        if self.thoughts > 0 {
            usage["thoughtsTokenCount"] = self.thoughts.into();
        }
        usage
    }
}
