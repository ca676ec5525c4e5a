//! Texts to embed.

use serde_json::Value;

use super::{Weight, either};

/// One text to embed. All parts of a content are one text: so a list that an SDK packs into one content has
/// one vector, as with `gemini-embedding-2`.
#[derive(Debug, Clone)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) tokens: u64,
    pub(crate) task: Option<String>,
    pub(crate) title: Option<String>,
    pub(crate) dimensions: Option<u64>,
}

impl Text {
    /// Reads the body of `embedContent`, or of `batchEmbedContents` with up to `most` texts.
    ///
    /// # Errors
    /// What Google would answer with 400.
    pub(crate) fn read(body: &[u8], batch: bool, most: usize) -> Result<Vec<Self>, String> {
        let body: Value = serde_json::from_slice(body)
            .map_err(|error| format!("Invalid JSON payload received. ({error})"))?;
        if !batch {
            return Ok(vec![Self::of(&body)?]);
        }
        let requests =
            body.get("requests").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if requests.is_empty() {
            return Err("* BatchEmbedContentsRequest.requests: requests is not specified\n".into());
        }
        if requests.len() > most {
            return Err(too_many(most));
        }
        requests.iter().map(Self::of).collect()
    }

    fn of(request: &Value) -> Result<Self, String> {
        let Some(content) = request.get("content") else {
            return Err("* EmbedContentRequest.content: content is not specified\n".into());
        };
        let Weight { text, tokens, .. } = Weight::of_content(content);
        let word =
            |camel, snake| either(request, camel, snake).and_then(Value::as_str).map(str::to_owned);
        Ok(Self {
            text,
            tokens,
            task: word("taskType", "task_type"),
            title: word("title", "title"),
            dimensions: either(request, "outputDimensionality", "output_dimensionality")
                .and_then(Value::as_u64),
        })
    }
}

/// What is said to a batch of more than a hundred (corpus case 133).
fn too_many(most: usize) -> String {
    format!("* BatchEmbedContentsRequest.requests: at most {most} requests can be in one batch\n")
}
