//! The list of models.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::api::{Json, Model, ModelList};

/// Reads `{"data": [{"id": …}]}`, and the bare list that Together sends.
pub(super) fn read_models(body: &[u8]) -> serde_json::Result<ModelList> {
    #[derive(Deserialize)]
    struct Reply {
        data: Option<Vec<Json>>,
        #[serde(flatten)]
        extra: Map<String, Value>,
    }

    let (items, extra) = match body.trim_ascii_start().first() {
        Some(b'[') => (serde_json::from_slice(body)?, Map::new()),
        _ => {
            let Reply { data, extra } = serde_json::from_slice(body)?;
            (data.unwrap_or_default(), extra)
        }
    };
    let models = items.iter().map(|item: &Json| read_model(item.get().as_bytes()));
    Ok(ModelList { models: models.collect::<Result<_, _>>()?, next_page_token: None, extra })
}

/// Reads one model. Providers tell its sizes under names of their own.
pub(super) fn read_model(body: &[u8]) -> serde_json::Result<Model> {
    #[derive(Deserialize)]
    struct Entry {
        id: String,
        #[serde(flatten)]
        extra: Map<String, Value>,
    }

    let Entry { id, extra } = serde_json::from_slice(body)?;
    let text = |name: &str| extra.get(name)?.as_str().map(str::to_owned);
    let count = |name: &str| extra.get(name)?.as_u64();
    Ok(Model {
        name: id.strip_prefix("models/").unwrap_or(&id).to_owned(),
        display_name: text("display_name").or_else(|| text("name")),
        // Groq; OpenRouter; Mistral. The answer has to fit in as well.
        input_token_limit: count("context_window")
            .or_else(|| count("context_length"))
            .or_else(|| count("max_context_length")),
        output_token_limit: count("max_completion_tokens")
            .or_else(|| extra.get("top_provider")?.get("max_completion_tokens")?.as_u64()),
        extra,
        ..Model::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(reply: &Value) -> ModelList {
        read_models(reply.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn models_are_listed_by_their_ids() {
        let list = read(&json!({"object": "list", "data": [
            {"id": "gpt-5-nano", "object": "model", "created": 1, "owned_by": "system"},
            {"id": "models/gemini-3.5-flash", "object": "model", "display_name": "Gemini"},
            {"id": "openai/gpt-oss-120b", "context_window": 131072, "max_completion_tokens": 65536},
            {"id": "meta-llama/llama-3.3-70b-instruct:free", "name": "Llama", "context_length": 65536,
                "top_provider": {"max_completion_tokens": 8192}},
        ]}));
        let names: Vec<_> = list.models.iter().map(|model| model.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "gpt-5-nano",
                "gemini-3.5-flash",
                "openai/gpt-oss-120b",
                "meta-llama/llama-3.3-70b-instruct:free"
            ]
        );
        let sizes =
            |at: usize| (list.models[at].input_token_limit, list.models[at].output_token_limit);
        assert_eq!(sizes(0), (None, None));
        assert_eq!(sizes(2), (Some(131_072), Some(65_536)));
        assert_eq!(sizes(3), (Some(65_536), Some(8_192)));
        assert_eq!(list.models[1].display_name.as_deref(), Some("Gemini"));
        assert_eq!(list.models[3].display_name.as_deref(), Some("Llama"));
        assert_eq!(list.models[0].extra["owned_by"], "system");
        assert_eq!(list.extra["object"], "list");
        assert_eq!(list.next_page_token, None);
    }

    #[test]
    fn a_bare_list_is_a_list_and_an_error_is_none() {
        assert_eq!(read(&json!([{"id": "a"}])).models[0].name, "a");
        assert!(read(&json!({"error": {"message": "no"}})).models.is_empty());
        assert!(read_models(br#"[{"error":{"code":400}}]"#).is_err());
        assert!(read_model(br#"{"error":{"code":404}}"#).is_err());
    }
}
