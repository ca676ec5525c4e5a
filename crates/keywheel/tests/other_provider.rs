//! The same calls of an OpenAI-compatible provider; what it has not is refused before anything is sent.

mod common;

use std::time::Duration;

use common::{Rig, account};
use keywheel::{
    Error, Gemini, OpenAiApi,
    caches::CachedContent,
    testing::{Script, Scripted},
};
use serde_json::{Value, json};

const MODEL: &str = "llama-3.1-8b-instant";

fn rig(keys: usize) -> Rig {
    Rig::built(keys, |pool| pool, |client| client.provider(OpenAiApi::new()))
}

#[test]
fn answers_streams_vectors_and_models_come_from_an_openai_compatible_provider() {
    let rig = rig(1);
    rig.script.reply(Scripted::openai_text("Hello"));
    assert_eq!(rig.run(rig.gemini.generate(MODEL, "hi")).unwrap().text(), "Hello");
    rig.script.reply(Scripted::openai_stream(["Hel", "lo"]));
    let text = rig.run(async { rig.gemini.stream(MODEL, "hi").await.unwrap().text().await });
    assert_eq!(text.unwrap(), "Hello");
    rig.script.reply(Scripted::openai_embeddings([[0.5_f32, 1.0], [2.0, 4.0]]));
    let vectors = rig.run(rig.gemini.embed("e", ["a", "b"])).unwrap().vectors;
    assert_eq!(vectors, [[0.5, 1.0], [2.0, 4.0]]);
    let list = json!({"object": "list", "data": [{"id": MODEL, "object": "model"}]});
    rig.script.reply(Scripted::json(200, list.to_string()));
    assert_eq!(rig.run(rig.gemini.models()).unwrap().len(), 1);
    let mut chat = rig.gemini.chat(MODEL);
    rig.script.reply(Scripted::openai_text("Hello"));
    rig.script.reply(Scripted::openai_text("again"));
    rig.run(chat.send("hi")).unwrap();
    rig.run(chat.send("hi")).unwrap();
    let sent = rig.script.requests();
    let messages = sent.last().unwrap().json()["messages"].clone();
    assert_eq!(messages.as_array().unwrap().len(), 3, "{messages}");
    assert!(sent.iter().all(|request| request.key.is_some()));
    rig.assert_balanced();
}

#[test]
fn typed_json_is_asked_for_by_its_schema() {
    let rig = rig(1);
    rig.script.reply(Scripted::openai_text(r#"{"n":3}"#));
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let call = rig.gemini.generate_with_schema::<Value>(MODEL, "count", schema.clone());
    assert_eq!(rig.run(call).unwrap()["n"], 3);
    let format = &rig.script.requests()[0].json()["response_format"];
    assert_eq!(format["type"], "json_schema", "{format}");
    assert_eq!(format["json_schema"]["schema"], schema);
}

#[test]
fn a_rate_limit_moves_on_to_the_next_key() {
    let rig = rig(2);
    rig.script.reply(Scripted::openai_rate_limited(Duration::from_secs(40)));
    rig.script.reply(Scripted::openai_text("Hello"));
    let reply = rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    assert_eq!(account(reply.attempts()).len(), 2);
    assert_eq!(reply.served_by(), Some("GEMINI_API_KEY_2"));
}

#[test]
fn what_only_gemini_has_is_refused_by_name_and_nothing_is_sent() {
    let rig = rig(1);
    let errors = [
        rig.run(rig.gemini.count_tokens(MODEL, "hi")).unwrap_err(),
        rig.run(rig.gemini.files().upload(Vec::new(), "text/plain")).unwrap_err(),
        rig.run(rig.gemini.files().get("x")).unwrap_err(),
        rig.run(rig.gemini.files().list()).unwrap_err(),
        rig.run(rig.gemini.caches().create(CachedContent::new("m", ["a"]))).unwrap_err(),
        rig.run(rig.gemini.caches().list()).unwrap_err(),
    ];
    for error in errors {
        assert!(
            matches!(&error, Error::Setting(text) if text.contains("openai has no")),
            "{error}"
        );
    }
    assert!(rig.script.requests().is_empty());
}

#[tokio::test]
async fn another_provider_has_to_say_where_it_is() {
    let transport = std::sync::Arc::new(Script::new());
    let builder =
        Gemini::builder().provider(OpenAiApi::new()).transport(transport).keys(common::specs(1));
    let error = builder.state(keywheel::StateLocation::None).build().await.unwrap_err();
    assert!(error.to_string().contains("base URL"), "{error}");
}
