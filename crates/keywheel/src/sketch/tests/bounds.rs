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
