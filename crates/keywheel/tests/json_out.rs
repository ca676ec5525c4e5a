//! Answers as values of one's own types, and clear words when they are not.

#![cfg(feature = "schemars")]

mod common;

use common::{
    MODEL, Rig,
    bodies::{day_spent, reply},
};
use keywheel::{Error, FinishReason, GenerateRequest, testing::Scripted};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
struct Recipe {
    name: String,
    /// From start to table.
    minutes: u32,
    note: Option<String>,
}

fn answer(text: &str, finish_reason: &str) -> Scripted {
    let content = json!({"role": "model", "parts": [{"text": text}]});
    reply(200, &json!({"candidates": [{"content": content, "finishReason": finish_reason}]}))
}

#[test]
fn a_type_is_asked_for_by_its_schema_and_read_from_the_answer() {
    let rig = Rig::new(1);
    rig.script.reply(answer(r#"{"name": "Pancakes", "minutes": 20}"#, "STOP"));
    let request = GenerateRequest::from("Breakfast").with_max_output_tokens(99);
    let recipe = rig.run(rig.gemini.generate_json::<Recipe>(MODEL, request)).unwrap();
    assert_eq!(recipe.name, "Pancakes");
    assert_eq!(recipe.reply.attempts().len(), 1);
    assert_eq!(
        recipe.into_value(),
        Recipe { name: "Pancakes".to_owned(), minutes: 20, note: None }
    );
    let sent = rig.script.requests()[0].json();
    let config = &sent["generationConfig"];
    assert_eq!(config["responseMimeType"], "application/json");
    assert_eq!(config["maxOutputTokens"], 99, "what was set stays");
    let schema = &config["responseJsonSchema"];
    assert_eq!(schema["required"], json!(["name", "minutes"]));
    assert_eq!(schema["propertyOrdering"], json!(["name", "minutes", "note"]));
    assert_eq!(schema["properties"]["minutes"]["description"], "From start to table.");
    assert!(schema.get("$schema").is_none() && config.get("responseSchema").is_none());
}

#[test]
fn a_schema_of_ones_own_is_sent_as_it_is() {
    let rig = Rig::new(1);
    rig.script.reply(answer("```json\n[1, 2]\n```", "STOP"));
    let schema = json!({"type": "array", "items": {"type": "integer", "multipleOf": 1}});
    let call = rig.gemini.generate_with_schema::<Vec<u8>>(MODEL, "Count", schema.clone());
    assert_eq!(*rig.run(call).unwrap(), [1, 2], "a fence around it does no harm");
    let sent = rig.script.requests()[0].json();
    assert_eq!(sent["generationConfig"]["responseJsonSchema"], schema);
}

#[test]
fn words_and_marks_around_the_json_do_no_harm() {
    for said in [
        "\u{feff}[1, 2]",
        "```JSON\n[1, 2]\n```",
        "```json\n[1, 2]\n```\nHope this helps!",
        "Here it is:\n\n```json\n[1, 2]\n```\n",
        "```json\n[1, 2]",
    ] {
        let rig = Rig::new(1);
        rig.script.reply(answer(said, "STOP"));
        let call = rig.gemini.generate_with_schema::<Vec<u8>>(MODEL, "Count", json!({}));
        assert_eq!(*rig.run(call).unwrap(), [1, 2], "{said:?}");
    }
    for said in ["[1, 2]\n\nDone.", "[NaN]", "```json\n[1, \n```", "```", "``````"] {
        let rig = Rig::new(1);
        rig.script.reply(answer(said, "STOP"));
        let call = rig.gemini.generate_with_schema::<Vec<u8>>(MODEL, "Count", json!({}));
        let error = rig.run(call).unwrap_err();
        assert!(matches!(error, Error::WrongShape { .. }), "{said:?}: {error}");
    }
}

#[test]
fn an_answer_of_another_form_says_why_and_holds_the_text() {
    let cases = [
        (r#"{"name": "Pan"#, "MAX_TOKENS", "limit of output tokens"),
        ("", "MAX_TOKENS", "limit of output tokens"),
        (r#"{"name": 7}"#, "STOP", "not of the form"),
        ("I cannot do that.", "STOP", "not of the form"),
        ("", "SAFETY", "SAFETY"),
    ];
    for (said, finish, why) in cases {
        let rig = Rig::new(2);
        rig.script.reply(answer(said, finish));
        let error = rig.run(rig.gemini.generate_json::<Recipe>(MODEL, "Breakfast")).unwrap_err();
        let Error::WrongShape { reason, text, finish_reason, attempts } = &error else {
            panic!("{error}")
        };
        assert!(reason.contains(why), "{reason}");
        assert_eq!((&**text, finish_reason.as_ref()), (said, Some(&FinishReason::from(finish))));
        assert_eq!((attempts.len(), error.attempts().len()), (1, 1));
        assert_eq!(rig.counted(MODEL), 1, "it was served, and is not asked for again");
    }
}

#[test]
fn a_blocked_prompt_says_so() {
    let rig = Rig::new(1);
    rig.script.reply(reply(200, &json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}})));
    let error = rig.run(rig.gemini.generate_json::<Recipe>(MODEL, "bad")).unwrap_err();
    let Error::WrongShape { reason, finish_reason: None, .. } = error else { panic!("{error}") };
    assert!(reason.contains("PROHIBITED_CONTENT"), "{reason}");
}

/// The callback's text is for people; that nobody could serve is what the program has to know.
#[test]
fn a_degraded_text_is_no_value_but_degraded_json_is() {
    let rig = |text: &'static str| {
        let rig =
            Rig::built(1, |pool| pool, |client| client.on_exhausted(move |_| async move { text }));
        rig.script.reply(day_spent(20));
        rig
    };
    let spent = rig("We are resting.");
    let error = spent.run(spent.gemini.generate_json::<Recipe>(MODEL, "Breakfast")).unwrap_err();
    assert!(matches!(error, Error::Exhausted { .. }), "{error}");
    assert!(error.next_available_at().is_some());

    let spent = rig(r#"{"name": "Toast", "minutes": 3}"#);
    let toast = spent.run(spent.gemini.generate_json::<Recipe>(MODEL, "Breakfast")).unwrap();
    assert_eq!(toast.minutes, 3);
    assert!(toast.reply.degraded().is_some());
}

#[test]
fn any_json_can_be_read_as_a_value() {
    let rig = Rig::new(1);
    rig.script.reply(answer("null", "STOP"));
    let call = rig.gemini.generate_with_schema::<Value>(MODEL, "Nothing", json!({}));
    assert_eq!(*rig.run(call).unwrap(), Value::Null);
}
