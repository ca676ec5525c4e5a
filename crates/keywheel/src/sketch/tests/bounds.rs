//! What a request costs that says it in an unusual way.

use super::*;

#[test]
fn the_form_of_the_answer_is_input() {
    let schema = json!({"type": "object", "description": "word ".repeat(900)});
    let weight = estimate::tokens(&schema.to_string());
    for name in [
        "responseSchema",
        "response_schema",
        "responseJsonSchema",
        "response_json_schema",
        "responseFormat",
        "response_format",
    ] {
        let body = json!({"contents": [], "generationConfig": {name: schema}});
        assert_eq!(of(Shape::Generate, &body).input_tokens, weight, "{name}");
        let parsed: GenerateRequest = serde_json::from_value(body.clone()).unwrap();
        assert_eq!(input_tokens(&parsed), weight, "{name}");
        let counting = json!({"generateContentRequest": body});
        assert_eq!(of(Shape::CountTokens, &counting).input_tokens, weight, "{name}");
        let interaction = json!({"input": "", "generation_config": {name: schema}});
        assert_eq!(of(Shape::Interaction, &interaction).input_tokens, weight, "{name}");
    }
    for name in ["prediction", "response_format"] {
        let chat = json!({"messages": [], name: schema});
        assert_eq!(of(Shape::Chat, &chat).input_tokens, weight, "{name}");
    }
}

#[test]
fn a_limit_that_binds_nothing_is_none() {
    for number in ["0", "0.0", "-0", "\"0\"", "1e-400", "0.5", "-7", "null"] {
        for (shape, body) in [
            (Shape::Generate, format!(r#"{{"generationConfig":{{"maxOutputTokens":{number}}}}}"#)),
            (
                Shape::Interaction,
                format!(r#"{{"generation_config":{{"max_output_tokens":{number}}}}}"#),
            ),
            (Shape::Chat, format!(r#"{{"max_tokens":{number}}}"#)),
            (Shape::Chat, format!(r#"{{"max_completion_tokens":{number}}}"#)),
            (Shape::Chat, format!(r#"{{"input":"a","max_output_tokens":{number}}}"#)),
        ] {
            let sketch = sketch(shape, body.as_bytes());
            assert_eq!(sketch.max_output, None, "{body}");
            let body = Body::from(body);
            let set = sketch.with_max_output(&body, 7);
            let again = self::sketch(shape, set.bytes().unwrap());
            assert_eq!(again.max_output, Some(7), "{set:?}");
        }
    }
}

/// Some parsers take the first of two, some the last, some put both together.
#[test]
fn a_limit_that_only_some_parsers_find_is_none_and_one_is_set_for_all() {
    for (shape, before, after) in [
        (
            Shape::Generate,
            r#"{"generationConfig":{"maxOutputTokens":5,"max_output_tokens":0}}"#,
            r#"{"generationConfig":{"maxOutputTokens":7,"max_output_tokens":7}}"#,
        ),
        (
            Shape::Generate,
            r#"{"generationConfig":{"maxOutputTokens":5},"generation_config":{}}"#,
            r#"{"generationConfig":{"maxOutputTokens":7},"generation_config":{"maxOutputTokens":7}}"#,
        ),
        (
            Shape::Generate,
            r#"{"generationConfig":{"topP":1},"generationConfig":{"maxOutputTokens":5}}"#,
            r#"{"generationConfig":{"maxOutputTokens":7,"topP":1},"generationConfig":{"maxOutputTokens":7}}"#,
        ),
        (
            Shape::Generate,
            r#"{"generationConfig":{"maxOutputTokens":5},"generationConfig":null}"#,
            r#"{"generationConfig":{"maxOutputTokens":7},"generationConfig":{"maxOutputTokens":7}}"#,
        ),
        (
            Shape::Generate,
            r#"{"generationConfig":{},"generationConfig":{"topP":1}}"#,
            r#"{"generationConfig":{"maxOutputTokens":7},"generationConfig":{"maxOutputTokens":7,"topP":1}}"#,
        ),
        (
            Shape::Chat,
            r#"{"max_tokens":5,"max_tokens":null}"#,
            r#"{"max_tokens":7,"max_tokens":7}"#,
        ),
        (
            Shape::Chat,
            r#"{"max_tokens":0,"max_completion_tokens":5}"#,
            r#"{"max_tokens":7,"max_completion_tokens":7}"#,
        ),
    ] {
        let sketch = sketch(shape, before.as_bytes());
        assert_eq!(sketch.max_output, None, "{before}");
        let set = sketch.with_max_output(&Body::from(before), 7);
        assert_eq!(set.bytes().unwrap(), after);
        assert_eq!(self::sketch(shape, after.as_bytes()).max_output, Some(7), "{after}");
    }
}

/// More places than are kept cannot all be set: no limit must be believed, and none is put in.
#[test]
fn of_more_limits_than_are_kept_none_is_believed() {
    for field in ["\"max_tokens\":5,", "\"max_tokens\":null,"] {
        let body = format!("{{{}\"n\":1}}", field.repeat(9));
        let sketch = sketch(Shape::Chat, body.as_bytes());
        assert_eq!(sketch.max_output, Some(u64::from(u32::MAX)), "{body}");
        assert_eq!(sketch.with_max_output(&Body::from(body.clone()), 7), body);
    }
    let configs = "\"generationConfig\":{},".repeat(9);
    let body = format!("{{{configs}\"generationConfig\":{{\"maxOutputTokens\":5}}}}");
    let sketch = sketch(Shape::Generate, body.as_bytes());
    assert_eq!(sketch.max_output, Some(u64::from(u32::MAX)));
}

#[test]
fn no_limit_is_believed_of_what_is_no_json() {
    let body = br#"{"generationConfig":{"maxOutputTokens":5},generationConfig:{}}"#;
    assert_eq!(sketch(Shape::Generate, body).max_output, None);
}

#[test]
fn whatever_is_not_false_asks_for_the_background() {
    for (value, is_background) in [
        ("true", true),
        ("1", true),
        ("0", true),
        ("\"true\"", true),
        ("\"\"", true),
        ("{}", true),
        ("[false]", true),
        ("true,\"background\":false", true),
        ("false", false),
        ("null", false),
    ] {
        for shape in [Shape::Interaction, Shape::Chat, Shape::Other] {
            let body = format!(r#"{{"input":"a","background":{value}}}"#);
            assert_eq!(sketch(shape, body.as_bytes()).background, is_background, "{body}");
        }
    }
}

#[test]
fn an_agent_works_in_the_background() {
    let asked = of(Shape::Interaction, &json!({"input": "a", "agent": "deep-research"}));
    assert!(asked.background, "nobody can tell what it costs");
    assert_eq!(asked.model.as_deref(), Some("deep-research"));
    let told = of(Shape::Interaction, &json!({"input": "a", "agent": {"name": "a"}}));
    assert!(told.background);
    let none = of(Shape::Interaction, &json!({"input": "a", "agent": null, "model": "m"}));
    assert!(!none.background);
    let both = br#"{"input":"a","agent":"a","model":"m","background":false}"#;
    assert!(sketch(Shape::Interaction, both).background);
}
