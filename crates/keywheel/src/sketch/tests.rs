use std::{io::Write as _, sync::Arc};

use futures_util::FutureExt as _;
use keywheel_core::estimate;
use keywheel_provider::api::GenerateRequest;
use proptest::prelude::*;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use self::written::{request, written};
use super::*;
use crate::weigh::input_tokens;

mod bounds;
mod written;

fn sketch(shape: Shape, body: &[u8]) -> Sketch {
    Sketch::of(shape, &Body::from(body.to_vec())).now_or_never().expect("it is in memory").unwrap()
}

fn of(shape: Shape, body: &Value) -> Sketch {
    sketch(shape, body.to_string().as_bytes())
}

fn in_pieces(shape: Shape, body: &[u8], size: usize) -> Sketch {
    Sketch::of_pieces(shape, &mut || body.chunks(size))
}

fn read(body: &Body) -> Value {
    serde_json::from_slice(body.bytes().unwrap()).unwrap()
}

proptest! {
    #[test]
    fn a_request_weighs_as_much_as_when_it_is_parsed(
        value in request(), spaces: bool, escapes: bool, size in 1_usize..50,
    ) {
        let body = written(&value, spaces, escapes);
        let parsed: GenerateRequest = serde_json::from_str(&body).unwrap();
        let sketch = sketch(Shape::Generate, body.as_bytes());
        prop_assert!(sketch.is_json);
        prop_assert_eq!(sketch.input_tokens, input_tokens(&parsed));
        prop_assert_eq!(sketch.uses_tools, parsed.uses_tools());
        prop_assert_eq!(sketch.reads, body.contains("urlContext"));
        let config = parsed.generation_config.clone().unwrap_or_default();
        prop_assert_eq!(sketch.max_output, config.max_output_tokens.filter(|tokens| *tokens > 0).map(u64::from));
        prop_assert_eq!(sketch.candidates, config.candidate_count.map_or(1, u64::from));
        prop_assert_eq!(&sketch.cached_content, &parsed.cached_content);
        let contents = parsed.contents.iter().chain(&parsed.system_instruction);
        let files = contents.flat_map(|content| &content.parts).filter_map(|part| part.file_data());
        let files = files.map(|file| file.file_uri.split_once("v1beta/").unwrap().1.to_owned());
        let mut names: Vec<String> = files.chain(parsed.cached_content).collect();
        names.sort();
        names.dedup();
        prop_assert_eq!(&sketch.names, &names);
        prop_assert_eq!(in_pieces(Shape::Generate, body.as_bytes(), size), sketch);

        let counting = json!({"generateContentRequest": value}).to_string();
        let count = self::sketch(Shape::CountTokens, counting.as_bytes());
        let again: GenerateRequest = serde_json::from_value(value).unwrap();
        prop_assert_eq!(count.input_tokens, input_tokens(&again));
    }

    #[test]
    fn a_longer_answer_is_allowed_and_nothing_else_is_changed(
        value in request(), spaces: bool, tokens in 1..9_000_u32,
    ) {
        let body = Body::from(written(&value, spaces, false));
        let sketch = sketch(Shape::Generate, body.bytes().unwrap());
        let changed = sketch.with_max_output(&body, tokens.into());
        let mut before: GenerateRequest = serde_json::from_slice(body.bytes().unwrap()).unwrap();
        let after: GenerateRequest = serde_json::from_slice(changed.bytes().unwrap()).unwrap();
        before.config().max_output_tokens = Some(tokens);
        prop_assert_eq!(&after, &before);
        let again = self::sketch(Shape::Generate, changed.bytes().unwrap());
        prop_assert_eq!(again.max_output, Some(tokens.into()));
        prop_assert_eq!(again.input_tokens, sketch.input_tokens);
    }

    /// What is broken, or stands where it does not belong.
    #[test]
    fn no_body_does_harm_and_where_it_is_cut_makes_no_difference(
        value in request(),
        cut in any::<prop::sample::Index>(),
        junk in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(&b"{}[]\",:\\u0\x80\xff\n"[..])], 0..6),
        remove in 0..6_usize,
        size in 1_usize..20,
    ) {
        let mut body = value.to_string().into_bytes();
        let at = cut.index(body.len() + 1);
        let to = (at + remove).min(body.len());
        body.splice(at..to, junk);
        let is_json = serde_json::from_slice::<IgnoredAny>(&body).is_ok();
        for &shape in Shape::ALL {
            let whole = sketch(shape, &body);
            prop_assert_eq!(whole.is_json, is_json);
            prop_assert_eq!(&in_pieces(shape, &body, size), &whole);
            if !is_json {
                let text = estimate::tokens(&String::from_utf8_lossy(&body));
                prop_assert_eq!(whole.input_tokens, text);
                prop_assert!(whole.reads, "it has a bound that nobody knows");
            }
            let body = Body::from(body.clone());
            let changed = whole.with(&body, Some("m"), Some(7));
            let still = serde_json::from_slice::<IgnoredAny>(changed.bytes().unwrap()).is_ok();
            prop_assert_eq!(still, is_json);
        }
    }

    #[test]
    fn any_bytes_are_taken(body in prop::collection::vec(any::<u8>(), 0..64), size in 1_usize..9) {
        for &shape in Shape::ALL {
            prop_assert_eq!(in_pieces(shape, &body, size), sketch(shape, &body));
        }
    }
}

/// A new one comes before `Other`, and is tried, too.
#[test]
fn all_shapes_are_all_of_them() {
    let numbers: Vec<_> = Shape::ALL.iter().map(|shape| *shape as usize).collect();
    assert_eq!(numbers, (0..=Shape::Other as usize).collect::<Vec<_>>());
}

#[test]
fn numbers_words_and_nesting_are_json_where_they_are() {
    let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    for good in [
        "0",
        "-0.5e+10",
        "1E9",
        "[]",
        "{}",
        " [1 , true,null ] ",
        "\"\\u00e9\\ud83d\\ude00\"",
        "\"\\ud83d\"",
        r#"{"a":{"b":[{}]}}"#,
        &deep(128),
    ] {
        assert!(sketch(Shape::Other, good.as_bytes()).is_json, "{good}");
        assert!(in_pieces(Shape::Generate, good.as_bytes(), 1).is_json, "{good}");
    }
    for bad in [
        "",
        " ",
        "01",
        "-",
        "1.",
        ".5",
        "1e",
        "+1",
        "tru",
        "nul ",
        "[1,]",
        "[,1]",
        "{\"a\"}",
        "{\"a\":}",
        "{,}",
        "{\"a\":1,}",
        "]",
        "}",
        "[}",
        "{]",
        "1 2",
        "{}{}",
        "\"\n\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"",
        "'a'",
        "{a:1}",
        "\u{feff}{}",
        &deep(129),
        "[",
        "{\"a\":1",
    ] {
        assert!(!sketch(Shape::Other, bad.as_bytes()).is_json, "{bad}");
        assert!(!in_pieces(Shape::Generate, bad.as_bytes(), 1).is_json, "{bad}");
    }
}

#[test]
fn a_key_is_known_also_where_its_letters_are_escaped() {
    let body = br#"{"c\u006fntents":[{"p\u0061rts":[{"te\u0078t":"Say hello"}]}],"generation\u0043onfig":{"maxOutputTokens":"12"}}"#;
    let sketch = sketch(Shape::Generate, body);
    assert_eq!(sketch.input_tokens, 4 + estimate::tokens("Say hello"));
    assert_eq!(sketch.max_output, Some(12));
}

#[test]
fn bytes_without_a_type_weigh_no_less_than_as_text() {
    for data in ["a1".repeat(2_000), "QUJD".repeat(2_000), "漢".repeat(900)] {
        let body = json!({"contents": [{"parts": [{"inlineData": {"data": data}}]}]});
        let parsed: GenerateRequest = serde_json::from_value(body.clone()).unwrap();
        let weight = of(Shape::Generate, &body).input_tokens;
        assert!(weight >= input_tokens(&parsed), "{weight}");
    }
}

#[test]
fn halves_of_characters_weigh_as_they_do_when_parsed() {
    for text in [
        r"\ud83d",
        r"a\ud83d b",
        r"\ud83d\u0041",
        r"\ud83d\ud83d\ude00",
        r"\ude00\ud83d\n",
        r"\ud83d\\\ud83d\u00e9\ud83d\u6c49",
    ] {
        let body = format!(r#"{{"contents":[{{"parts":[{{"text":"{text}"}}]}}]}}"#);
        let parsed: GenerateRequest = serde_json::from_str(&body).unwrap();
        let sketch = sketch(Shape::Generate, body.as_bytes());
        assert_eq!(sketch.input_tokens, input_tokens(&parsed), "{text}");
        assert_eq!(in_pieces(Shape::Generate, body.as_bytes(), 1), sketch, "{text}");
    }
}

#[test]
fn of_a_limit_that_is_named_twice_the_larger_counts_and_both_are_set() {
    let body = Body::from(
        r#"{"generationConfig":{"maxOutputTokens":5},"generation_config":{"max_output_tokens":9,"maxOutputTokens":7}}"#,
    );
    let sketch = sketch(Shape::Generate, body.bytes().unwrap());
    assert_eq!(sketch.max_output, Some(9));
    let set = sketch.with_max_output(&body, 1_000);
    let expected = body.bytes().unwrap().to_vec();
    let expected = String::from_utf8(expected).unwrap().replace(['5', '9', '7'], "1000");
    assert_eq!(set, expected);
    let chat = Body::from(r#"{"max_tokens":5,"model":"models/a","n":1}"#);
    let sketch = self::sketch(Shape::Chat, chat.bytes().unwrap());
    let set = sketch.with(&chat, Some("b"), Some(1_000));
    assert_eq!(set, r#"{"max_tokens":1000,"model":"b","n":1}"#);
}

#[test]
fn numbers_without_measure_do_no_harm() {
    for (number, expected) in [
        ("1e3", Some(1_000)),
        ("1e999", Some(u64::from(u32::MAX))),
        ("99999999999999999999", Some(u64::from(u32::MAX))),
        ("-1", None),
        ("0.5", None),
        ("1.5", Some(2)),
        ("null", None),
        ("\"\"", None),
        ("\"NaN\"", None),
        (&*"9".repeat(5_000), Some(u64::from(u32::MAX))),
    ] {
        let body = format!(
            r#"{{"generationConfig":{{"maxOutputTokens":{number},"candidateCount":{number}}}}}"#
        );
        let sketch = sketch(Shape::Generate, body.as_bytes());
        assert_eq!(sketch.max_output, expected, "{number}");
        assert_eq!(sketch.candidates, expected.unwrap_or(1).max(1), "{number}");
    }
}

#[test]
fn a_limit_finds_its_place_in_every_api() {
    let set = |shape, body: &'static str| {
        let body = Body::from(body);
        let changed = sketch(shape, body.bytes().unwrap()).with_max_output(&body, 7);
        String::from_utf8(changed.bytes().unwrap().to_vec()).unwrap()
    };
    for (shape, before, after) in [
        (Shape::Generate, "{}", r#"{"generationConfig":{"maxOutputTokens":7}}"#),
        (Shape::Generate, r#"{"a":1}"#, r#"{"generationConfig":{"maxOutputTokens":7},"a":1}"#),
        (
            Shape::Generate,
            r#"{"generationConfig":null}"#,
            r#"{"generationConfig":{"maxOutputTokens":7}}"#,
        ),
        (
            Shape::Generate,
            r#"{"generation_config": { } }"#,
            r#"{"generation_config": {"maxOutputTokens":7 } }"#,
        ),
        (
            Shape::Generate,
            r#"{"generation_config":{"topP":1}}"#,
            r#"{"generation_config":{"maxOutputTokens":7,"topP":1}}"#,
        ),
        (
            Shape::Generate,
            r#"{"generationConfig":{"max_output_tokens" : null}}"#,
            r#"{"generationConfig":{"max_output_tokens" : 7}}"#,
        ),
        (Shape::Chat, r#"{"messages":[]}"#, r#"{"max_tokens":7,"messages":[]}"#),
        (Shape::Chat, r#"{"max_completion_tokens":9}"#, r#"{"max_completion_tokens":7}"#),
        (Shape::Chat, r#"{"input":"a"}"#, r#"{"max_output_tokens":7,"input":"a"}"#),
        (
            Shape::Interaction,
            r#"{"input":"a"}"#,
            r#"{"generation_config":{"max_output_tokens":7},"input":"a"}"#,
        ),
        (Shape::Generate, "[]", "[]"),
        (Shape::Embeddings, r#"{"input":"a"}"#, r#"{"input":"a"}"#),
        (Shape::CountTokens, r#"{"contents":[]}"#, r#"{"contents":[]}"#),
        (Shape::Other, r#"{"instances":[]}"#, r#"{"instances":[]}"#),
        (Shape::Generate, "no JSON {", "no JSON {"),
    ] {
        assert_eq!(set(shape, before), after);
    }
}

#[test]
fn a_chat_is_weighed_by_what_it_says_and_shows() {
    let weighed = |content: Value| {
        of(Shape::Chat, &json!({"messages": [{"role": "user", "content": content}]}))
    };
    let text = estimate::tokens("Say hello");
    assert_eq!(weighed(json!("Say hello")).input_tokens, 4 + text);
    assert_eq!(weighed(json!([{"type": "text", "text": "Say hello"}])).input_tokens, 4 + text);
    let data = "A".repeat(80_000);
    let image = json!([{"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{data}"), "detail": "auto"}}]);
    assert_eq!(weighed(image).input_tokens, 4 + estimate::media("image/png", 60_000, None));
    let sound = json!([{"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}]);
    assert_eq!(weighed(sound).input_tokens, 4 + estimate::media("audio/wav", 60_000, None));
    let pdf = json!([{"type": "file", "file": {"filename": "a.pdf", "file_data": format!("data:application/pdf;base64,{data}")}}]);
    assert_eq!(weighed(pdf).input_tokens, 4 + estimate::media("application/pdf", 60_000, None));
    let far = json!([{"type": "image_url", "image_url": {"url": "https://host/a.png"}}]);
    assert_eq!(weighed(far).input_tokens, 4 + estimate::TOKENS_PER_TILE);

    let calls =
        json!([{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
    let called = of(
        Shape::Chat,
        &json!({"messages": [{"role": "assistant", "content": null, "tool_calls": calls}]}),
    );
    assert_eq!(called.input_tokens, 4 + estimate::tokens(&calls.to_string()));
    let tool =
        json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}});
    let offered = of(
        Shape::Chat,
        &json!({"model": "m", "messages": [], "tools": [tool], "n": 3, "max_tokens": 9, "stream": true}),
    );
    assert_eq!(offered.input_tokens, estimate::tokens(&tool.to_string()));
    assert_eq!((offered.candidates, offered.max_output, offered.stream), (3, Some(9), true));
    assert!(!offered.uses_tools && !offered.reads);
    let cached =
        json!({"messages": [], "extra_body": {"google": {"cached_content": "cachedContents/c"}}});
    assert_eq!(of(Shape::Chat, &cached).names, ["cachedContents/c"]);
}

#[test]
fn texts_for_vectors_are_counted() {
    let texts = |shape, body: Value| {
        let sketch = of(shape, &body);
        (sketch.texts, sketch.input_tokens)
    };
    let one = estimate::tokens("hello");
    let content = json!({"parts": [{"text": "hello"}]});
    assert_eq!(texts(Shape::Embeddings, json!({"input": "hello"})), (Some(1), one));
    assert_eq!(texts(Shape::Embeddings, json!({"input": ["hello", "hello"]})), (Some(2), 2 * one));
    assert_eq!(texts(Shape::Embeddings, json!({"input": [1, 2, 3]})), (Some(1), 3));
    assert_eq!(texts(Shape::Embeddings, json!({"input": [[1, 2], [3]]})), (Some(2), 3));
    assert_eq!(texts(Shape::Embeddings, json!({"input": []})), (None, 0));
    assert_eq!(texts(Shape::Embed, json!({"content": content})), (None, 4 + one));
    let batch =
        json!({"requests": [{"content": content, "model": "models/e"}, {"content": content}]});
    assert_eq!(texts(Shape::BatchEmbed, batch), (Some(2), 2 * (4 + one)));
}

#[test]
fn an_interaction_is_weighed_and_what_it_builds_on_is_seen() {
    let text = estimate::tokens("hello");
    let interaction = of(
        Shape::Interaction,
        &json!({"model": "m", "input": "hello", "system_instruction": "hello", "background": true, "stream": true,
                "generation_config": {"max_output_tokens": 8}}),
    );
    assert_eq!((interaction.input_tokens, interaction.max_output), (2 * text, Some(8)));
    assert!(interaction.background && interaction.stream && !interaction.reads);
    let data = "A".repeat(80_000);
    let shown = of(
        Shape::Interaction,
        &json!({"input": [{"type": "text", "text": "hello"}, {"type": "image", "mime_type": "image/png", "data": data}]}),
    );
    assert_eq!(shown.input_tokens, text + estimate::media("image/png", 60_000, None));
    let turns = of(Shape::Interaction, &json!({"input": [{"role": "user", "content": "hello"}]}));
    assert!((text..text + 20).contains(&turns.input_tokens), "{}", turns.input_tokens);
    let on = of(Shape::Interaction, &json!({"input": "hello", "previous_interaction_id": "v1_a"}));
    assert!(on.reads);
    assert_eq!(on.names, ["interactions/v1_a"]);
    for (tool, reads) in [("google_search", false), ("url_context", true), ("mcp_server", true)] {
        let offered = of(Shape::Interaction, &json!({"input": "", "tools": [{"type": tool}]}));
        assert_eq!((offered.uses_tools, offered.reads), (true, reads), "{tool}");
    }
}

#[test]
fn a_model_is_replaced_where_it_stands() {
    let body =
        Body::from("{\"messages\":[{\"model\":\"x\"}],\n \"model\" : \"models\\/a\", \"n\":1}");
    let sketch = sketch(Shape::Chat, body.bytes().unwrap());
    assert_eq!(sketch.model.as_deref(), Some("models/a"));
    let other = sketch.with_model(&body, "b\"");
    assert_eq!(other, "{\"messages\":[{\"model\":\"x\"}],\n \"model\" : \"b\\\"\", \"n\":1}");
    assert_eq!(read(&other)["model"], "b\"");
    let none = Body::from("{}");
    assert_eq!(self::sketch(Shape::Chat, b"{}").with_model(&none, "b"), "{}");
}

#[tokio::test]
async fn a_body_in_a_file_is_read_and_changed_like_one_in_memory() {
    for text in [
        json!({"contents": [{"parts": [{"text": "word ".repeat(40_000)}]}]}).to_string(),
        "no JSON at all é".repeat(9_000),
    ] {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let in_file = Body::from_file(Arc::new(file), text.len() as u64);
        let in_memory = Body::from(text);
        let sketch = Sketch::of(Shape::Generate, &in_file).await.unwrap();
        assert_eq!(sketch, Sketch::of(Shape::Generate, &in_memory).await.unwrap());
        let changed = sketch.with_max_output(&in_file, 7);
        assert!(changed.bytes().is_none(), "it was read into memory");
        assert_eq!(sketch.with_max_output(&in_memory, 7), changed.collect().await.unwrap());
    }
}

#[test]
fn hostile_names_are_few_and_keys_are_short() {
    let many: Vec<Value> =
        (0..20_000).map(|i| json!({"fileData": {"fileUri": format!("files/f{i}")}})).collect();
    let sketch = of(Shape::Generate, &json!({"contents": [{"parts": many}]}));
    assert_eq!(sketch.names.len(), 4_096);
    let body = format!(r#"{{"model":"{0}","{0}":"{0}"}}"#, "x".repeat(1 << 20));
    assert_eq!(self::sketch(Shape::Chat, body.as_bytes()).model.unwrap().len(), 512);
}
