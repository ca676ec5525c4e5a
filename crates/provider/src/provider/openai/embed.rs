//! Embeddings.

use std::fmt;

use base64::Engine as _;
use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

use super::{answer::usage_metadata, request::Body, unsupported};
use crate::{
    api::{BatchEmbedResponse, Content, EmbedRequest, Embedding, STANDARD as BASE64, all_finite},
    upstream::CallError,
};

/// The body that asks for the vectors of `requests`. What they have besides their texts has to be the same in
/// all of them: it stands once.
pub(super) fn embed(model: &str, requests: &[EmbedRequest]) -> Result<Vec<u8>, CallError> {
    let mut texts = Vec::with_capacity(requests.len());
    for (at, request) in requests.iter().enumerate() {
        let place = |name: &str| format!("requests[{at}].{name}");
        let EmbedRequest { model: _, content, task_type, title, output_dimensionality, extra } =
            request;
        if task_type.is_some() {
            return Err(unsupported(place("taskType")));
        }
        if title.is_some() {
            return Err(unsupported(place("title")));
        }
        if (output_dimensionality, extra)
            != (&requests[0].output_dimensionality, &requests[0].extra)
        {
            return Err(unsupported(place("outputDimensionality or a field that differs")));
        }
        texts.push(text(content).ok_or_else(|| unsupported(place("content without text alone")))?);
    }
    let mut body = Body::default();
    body.set("model", model)?;
    body.set("input", &texts)?;
    body.set("encoding_format", "float")?;
    if let Some(first) = requests.first() {
        if let Some(dimensions) = first.output_dimensionality {
            body.set("dimensions", &dimensions)?;
        }
        body.add(&first.extra)?;
    }
    body.into_json()
}

/// All parts make one vector, so they make one text.
fn text(content: &Content) -> Option<String> {
    content.parts.iter().map(|part| part.text()).collect()
}

/// Reads the vectors, in the order of the requests.
pub(super) fn read_embeddings(body: &[u8]) -> serde_json::Result<BatchEmbedResponse> {
    #[derive(Deserialize)]
    struct Reply {
        data: Option<Vec<Item>>,
        usage: Option<Value>,
        #[serde(flatten)]
        extra: Map<String, Value>,
    }

    #[derive(Deserialize)]
    struct Item {
        index: Option<u64>,
        embedding: Vector,
    }

    let Reply { data, usage, extra } = serde_json::from_slice(body)?;
    let mut items = data.unwrap_or_default();
    // Some leave the index out, or number every vector 0: the order is as sent then.
    if items.iter().any(|item| item.index.unwrap_or(0) != 0) {
        items.sort_by_key(|item| item.index);
        if (0..).zip(&items).any(|(place, item)| item.index != Some(place)) {
            return Err(serde_json::Error::custom("the vectors' indexes are not 0, 1, 2, …"));
        }
    }
    Ok(BatchEmbedResponse {
        embeddings: items.into_iter().map(|item| Embedding::from(item.embedding.0)).collect(),
        usage_metadata: usage_metadata(usage.as_ref(), &extra),
        extra,
    })
}

/// Numbers, or their bytes in base64: some send these whatever was asked for.
struct Vector(Vec<f32>);

impl<'de> Deserialize<'de> for Vector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Numbers;

        impl<'de> Visitor<'de> for Numbers {
            type Value = Vec<f32>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of numbers, or their bytes in base64")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                // Grows as it must: a reply of many empty lists is not to cost room for many vectors.
                let mut values = Vec::new();
                while let Some(value) = list.next_element()? {
                    values.push(value);
                }
                all_finite(values)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                let bytes =
                    BASE64.decode(text).map_err(|_| E::custom("the vector is no base64"))?;
                let (numbers, rest) = bytes.as_chunks::<4>();
                if !rest.is_empty() {
                    return Err(E::custom("the vector's bytes end within a number"));
                }
                all_finite(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
            }
        }

        deserializer.deserialize_any(Numbers).map(Vector)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn body(requests: &[EmbedRequest]) -> Value {
        serde_json::from_slice(&embed("text-embedding-3-small", requests).unwrap()).unwrap()
    }

    #[test]
    fn texts_go_as_one_list() {
        assert_eq!(
            body(&["a".into(), Content::user(["b", "c"]).into()]),
            json!({"model": "text-embedding-3-small", "input": ["a", "bc"], "encoding_format": "float"})
        );
        let mut request = EmbedRequest::from("a").with_dimensions(256);
        request.extra.insert("input_type".to_owned(), "passage".into());
        assert_eq!(
            body(&[request.clone(), request]),
            json!({"model": "text-embedding-3-small", "input": ["a", "a"], "encoding_format": "float",
                "dimensions": 256, "input_type": "passage"})
        );
    }

    #[test]
    fn a_batch_is_one_request_except_at_google() {
        use crate::{GeminiApi, OpenAiApi, Provider as _};
        let weights = [
            OpenAiApi::new().embed_weight(7),
            OpenAiApi::google().embed_weight(7),
            GeminiApi.embed_weight(7),
        ];
        assert_eq!(weights, [1, 7, 7]);
    }

    #[test]
    fn what_has_no_place_is_named() {
        let a = || EmbedRequest::from("a");
        let blob = crate::api::Blob { mime_type: "image/png".into(), data: "AA==".into() };
        for (requests, name) in [
            (vec![a(), a().with_task("CLUSTERING".into())], "requests[1].taskType"),
            (vec![a().with_title("t")], "requests[0].title"),
            (vec![a(), a().with_dimensions(8)], "requests[1].outputDimensionality"),
            (vec![crate::api::Part::from_blob(&blob).into()], "requests[0].content"),
        ] {
            let error = embed("m", &requests).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn vectors_come_in_the_order_of_the_requests() {
        let reply = json!({
            "object": "list", "model": "m", "usage": {"prompt_tokens": 3, "total_tokens": 3},
            "data": [
                {"object": "embedding", "index": 1, "embedding": [2.0]},
                {"object": "embedding", "index": 0, "embedding": [0.5, -1]},
            ],
        });
        let read = read_embeddings(reply.to_string().as_bytes()).unwrap();
        let values: Vec<_> = read.embeddings.iter().map(|e| e.values.as_slice()).collect();
        assert_eq!(values, [&[0.5, -1.0][..], &[2.0]]);
        assert_eq!(read.usage().unwrap().input, 3);
        assert_eq!(read.extra["model"], "m");
    }

    #[test]
    fn a_vector_is_never_taken_for_another_texts() {
        let read = |indexes: &[Value]| {
            let items: Vec<_> = indexes
                .iter()
                .enumerate()
                .map(|(sent, index)| json!({"index": index, "embedding": [sent]}))
                .collect();
            let read = read_embeddings(json!({ "data": items }).to_string().as_bytes()).ok()?;
            Some(read.embeddings.iter().map(|e| e.values[0] as usize).collect::<Vec<_>>())
        };
        let (none, most) = (Value::Null, u64::MAX);
        assert_eq!(read(&[2.into(), 0.into(), 1.into()]), Some(vec![1, 2, 0]));
        // Nothing is said.
        assert_eq!(read(&[0.into(), 0.into(), 0.into()]), Some(vec![0, 1, 2]));
        assert_eq!(read(&[none.clone(), none.clone()]), Some(vec![0, 1]));
        for bad in [
            [0.into(), 1.into(), 1.into()],
            [0.into(), 1.into(), 3.into()],
            [1.into(), 2.into(), 3.into()],
            [0.into(), most.into(), 1.into()],
            [0.into(), none, 1.into()],
        ] {
            assert_eq!(read(&bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_number_that_is_none_makes_no_vector() {
        let bytes = |number: f32| format!("\"{}\"", BASE64.encode(number.to_le_bytes()));
        let embeddings =
            ["[0.5, 1e39]", "[-1e39]", "[1e999]", &bytes(f32::NAN), &bytes(f32::NEG_INFINITY)];
        for embedding in embeddings {
            let body = format!(r#"{{"data":[{{"embedding":{embedding}}}]}}"#);
            assert!(read_embeddings(body.as_bytes()).is_err(), "{embedding}");
        }
        assert!(read_embeddings(br#"{"data":[{"embedding":[1e38, -1e-50]}]}"#).is_ok());
    }

    #[test]
    fn many_empty_vectors_cost_no_room() {
        let items = vec![r#"{"embedding":[]}"#; 1_000].join(",");
        let read = read_embeddings(format!(r#"{{"data":[{items}]}}"#).as_bytes()).unwrap();
        let room: usize = read.embeddings.iter().map(|e| e.values.capacity()).sum();
        assert_eq!((read.embeddings.len(), room), (1_000, 0));
    }

    #[test]
    fn an_error_with_status_200_has_no_vectors() {
        let read = read_embeddings(br#"{"error":{"message":"no"}}"#).unwrap();
        assert!(read.embeddings.is_empty() && read.extra.contains_key("error"));
    }

    #[test]
    fn vectors_in_base64_are_the_same_vectors() {
        let read = |embedding: &str| {
            read_embeddings(format!(r#"{{"data":[{{"embedding":"{embedding}"}}]}}"#).as_bytes())
        };
        // 1.0 and -2.5, little-endian.
        for good in ["AACAPwAAIMA=", "AACAPwAAIMA"] {
            assert_eq!(read(good).unwrap().embeddings[0].values, [1.0, -2.5], "{good}");
        }
        for bad in ["AACAPw=A", "AACAPwA=", "A", "????"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
