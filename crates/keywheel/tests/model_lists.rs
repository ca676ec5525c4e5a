//! Lists are read to their end, and what is known of models is put to use.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};

use common::{MODEL, Rig, bodies::model_not_found, bodies::reply, fingerprint};
use keywheel::{Error, testing::Scripted};
use serde_json::{Value, json};

fn page(models: &[Value], next: Option<&str>) -> Scripted {
    let mut page = json!({"models": models});
    if let Some(next) = next {
        page["nextPageToken"] = next.into();
    }
    reply(200, &page)
}

fn model(name: &str, input: u64) -> Value {
    json!({"name": format!("models/{name}"), "inputTokenLimit": input, "outputTokenLimit": 100})
}

#[test]
fn all_pages_are_read_and_a_list_without_end_has_one() {
    let rig = Rig::new(1);
    rig.script.reply(page(&[model("a", 1)], Some("two & more")));
    rig.script.reply(page(&[model("b", 1)], Some("")));
    let models = rig.run(rig.gemini.models()).unwrap();
    assert_eq!(models.len(), 2);
    assert!(rig.script.requests()[1].url.ends_with("pageToken=two%20%26%20more"));
    rig.script.otherwise(|_| page(&[model("a", 1)], Some("again")));
    assert_eq!(rig.run(rig.gemini.models()).unwrap().len(), 2, "the same page is not read twice");
    rig.assert_balanced();
}

#[test]
fn a_list_whose_pages_go_round_in_a_circle_or_never_end_is_not_read_for_ever() {
    let rig = Rig::new(1);
    for (name, next) in [("a", "two"), ("b", "three"), ("c", "two")] {
        rig.script.reply(page(&[model(name, 1)], Some(next)));
    }
    let models = rig.run(rig.gemini.models()).unwrap();
    let names: Vec<_> = models.iter().map(|model| &*model.name).collect();
    assert_eq!(names, ["models/a", "models/b", "models/c"]);
    assert_eq!(rig.script.requests().len(), 3, "what was read is not read again");

    let number = AtomicUsize::new(0);
    rig.script
        .otherwise(move |_| page(&[], Some(&number.fetch_add(1, Ordering::Relaxed).to_string())));
    let error = rig.run(rig.gemini.models().no_deadline()).unwrap_err();
    assert!(error.to_string().contains("over 1000 pages"), "{error}");
    rig.assert_balanced();
}

/// An oversize prompt is refused before it burns a minute's tokens once the model's limit is known.
#[test]
fn what_a_list_says_of_a_model_keeps_what_is_too_large_from_being_sent() {
    let rig = Rig::new(1);
    rig.script.reply(page(&[model(MODEL, 100)], None));
    rig.run(rig.gemini.models()).unwrap();
    let error = rig.run(rig.gemini.generate(MODEL, "word ".repeat(2_000))).unwrap_err();
    assert!(matches!(error, Error::TooLarge { limit: 100, .. }), "{error}");
    assert_eq!(rig.script.requests().len(), 1);
    // A batch is read text by text.
    rig.script.reply(Scripted::embeddings([[1.0_f32]; 50]));
    let texts: Vec<_> = (0..50).map(|n| format!("{n} {}", "word ".repeat(20))).collect();
    assert_eq!(rig.run(rig.gemini.embed(MODEL, &texts)).unwrap().vectors.len(), 50);
    assert_eq!(rig.script.requests().len(), 2);
}

#[test]
fn a_model_that_does_not_exist_is_said_and_holds_nothing_back() {
    let rig = Rig::new(2);
    rig.script.reply(model_not_found());
    let error = rig.run(rig.gemini.model("gemini-x")).unwrap_err();
    assert!(matches!(error, Error::Rejected { .. }), "{error}");
    rig.script.reply(reply(200, &model(MODEL, 9)));
    assert_eq!(rig.run(rig.gemini.model(MODEL)).unwrap().input_token_limit, Some(9));
}

#[test]
fn tokens_are_counted_with_system_instruction_and_tools_and_by_whichever_key_works() {
    let rig = Rig::new(2);
    rig.script.reply(common::bodies::invalid_key());
    rig.script.reply(Scripted::token_count(42));
    let request = keywheel::GenerateRequest::from("hi").with_system("Be brief");
    let count = rig.run(rig.gemini.count_tokens(MODEL, request)).unwrap();
    assert_eq!(count.total_tokens, 42);
    assert_eq!(rig.keys_used(), [fingerprint(1), fingerprint(2)]);
    let sent = rig.script.requests()[1].json();
    let text = &sent["generateContentRequest"]["systemInstruction"]["parts"][0]["text"];
    assert_eq!(text, "Be brief");
    assert_eq!(rig.counted(MODEL), 0, "it costs no quota of the model");
}
