//! A chat remembers what was said: all of it, byte for byte, and nothing that failed.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{cell::RefCell, pin::pin, time::Duration};

use common::{
    MODEL, Rig,
    bodies::{bad_request, part, reply},
    poll_times,
};
use futures_util::FutureExt as _;
use keywheel::{Chat, Content, Error, FinishReason, FunctionResponse, testing::Scripted};
use keywheel_provider::{TransportKind, testing::Recorded};
use serde_json::{Value, json};

/// An answer of these parts.
fn parts(parts: Value, finish_reason: &str) -> Value {
    json!({
        "candidates": [{
            "content": {"role": "model", "parts": parts}, "finishReason": finish_reason, "index": 0,
        }],
        "usageMetadata": {"promptTokenCount": 8, "candidatesTokenCount": 2, "totalTokenCount": 10},
    })
}

fn calls(names: &[&str]) -> Value {
    let call = |name| json!({"functionCall": {"name": name, "args": {"city": "Oslo"}}});
    parts(names.iter().map(call).collect(), "STOP")
}

fn history(chat: &Chat) -> Value {
    serde_json::to_value(chat.history()).unwrap()
}

fn contents(request: &Recorded) -> Value {
    request.json()["contents"].clone()
}

fn texts(chat: &Chat) -> Vec<String> {
    chat.history().iter().map(Content::text).collect()
}

#[test]
fn every_turn_is_sent_along_with_the_next_one() {
    let rig = Rig::new(1);
    rig.script.reply(Scripted::text("Hello Ada"));
    rig.script.reply(Scripted::text("Ada"));
    let mut chat = rig.gemini.chat(MODEL).with_system("Be brief");
    rig.run(chat.send("I am Ada")).unwrap();
    assert_eq!(rig.run(chat.send("Who am I?")).unwrap().text(), "Ada");
    assert_eq!(texts(&chat), ["I am Ada", "Hello Ada", "Who am I?", "Ada"]);
    let second = &rig.script.requests()[1];
    assert_eq!(
        contents(second),
        json!([
            {"role": "user", "parts": [{"text": "I am Ada"}]},
            {"role": "model", "parts": [{"text": "Hello Ada"}]},
            {"role": "user", "parts": [{"text": "Who am I?"}]},
        ])
    );
    assert_eq!(second.json()["systemInstruction"]["parts"][0]["text"], "Be brief");
}

#[test]
fn what_failed_or_was_dropped_is_not_remembered() {
    let rig = Rig::new(1);
    rig.script.reply(Scripted::text("Hello"));
    let mut chat = rig.gemini.chat(MODEL);
    rig.run(chat.send("first")).unwrap();
    rig.script.reply(bad_request());
    assert!(matches!(rig.run(chat.send("refused")), Err(Error::Rejected { .. })));
    rig.script.reply(Scripted::text("late").after(Duration::from_secs(1)));
    assert!(poll_times(&rig.clock, pin!(chat.send("dropped")), 1).is_none());
    rig.script.reply(Scripted::text("late").after(Duration::from_secs(1)));
    assert!(poll_times(&rig.clock, pin!(chat.stream("dropped").map(|_| ())), 1).is_none());
    assert_eq!(texts(&chat), ["first", "Hello"]);
    rig.assert_balanced();
}

#[test]
fn a_blocked_prompt_is_a_success_that_is_counted_and_no_part_of_the_conversation() {
    let rig = Rig::new(2);
    rig.script.reply(reply(200, &json!({"promptFeedback": {"blockReason": "SAFETY"}})));
    rig.script.reply(Scripted::text("Hello"));
    let mut chat = rig.gemini.chat(MODEL);
    let blocked = rig.run(chat.send("something bad")).unwrap();
    assert_eq!(blocked.block_reason(), Some("SAFETY"));
    assert_eq!((blocked.attempts().len(), rig.counted(MODEL)), (1, 1));
    rig.run(chat.send("something good")).unwrap();
    assert_eq!(texts(&chat), ["something good", "Hello"], "it would be refused again");
}

#[test]
fn what_the_degradation_callback_says_is_no_part_of_the_conversation() {
    let rig =
        Rig::built(1, |pool| pool, |client| client.on_exhausted(|_| async { "We are resting." }));
    rig.script.reply(Scripted::day_spent(20));
    let mut chat = rig.gemini.chat(MODEL);
    assert!(rig.run(chat.send("hi")).unwrap().degraded().is_some());
    let text = rig.run(async { chat.stream("hi").await.unwrap().text().await });
    assert_eq!(text.unwrap(), "We are resting.");
    assert!(chat.history().is_empty());
}

#[test]
fn an_answer_of_thoughts_alone_is_a_success_and_goes_back_as_it_came() {
    let rig = Rig::new(2);
    let thoughts = json!([{"text": "Hm.", "thought": true, "thoughtSignature": "c2ln"}]);
    rig.script.reply(reply(200, &parts(thoughts.clone(), "MAX_TOKENS")));
    rig.script.reply(Scripted::text("Yes."));
    let mut chat = rig.gemini.chat(MODEL);
    let thinking = rig.run(chat.send("Well?")).unwrap();
    assert_eq!((&*thinking.text(), &*thinking.thoughts()), ("", "Hm."));
    assert_eq!(thinking.finish_reason(), Some(FinishReason::MaxTokens));
    assert_eq!(thinking.attempts().len(), 1);
    rig.run(chat.send("And?")).unwrap();
    assert_eq!(contents(&rig.script.requests()[1])[1]["parts"], thoughts);
}

/// An empty 200 is tried again, and is no turn.
#[test]
fn an_empty_answer_is_no_turn() {
    let rig = Rig::new(1);
    rig.script.otherwise(|_| reply(200, &json!({})));
    let mut chat = rig.gemini.chat(MODEL);
    assert!(matches!(rig.run(chat.send("hi")), Err(Error::UpstreamDown { .. })));
    assert!(chat.history().is_empty());
    assert_eq!(rig.script.requests().len() as u64, rig.counted(MODEL));
}

/// Sent back, such parts make every later request fail: Google's own client leaves them out of its history, too
/// (<https://github.com/googleapis/python-genai/blob/main/google/genai/chats.py>).
#[test]
fn parts_that_say_nothing_are_no_turn_and_in_no_turn() {
    let nothing = json!([{"text": ""}, {}, null, {"text": "", "thought": true}]);
    let ways = [false, true];
    for streamed in ways {
        let rig = Rig::new(1);
        let mut chat = rig.gemini.chat(MODEL);
        let mut say = |said: &Value| {
            let answer = parts(said.clone(), "STOP");
            if streamed {
                rig.script.reply(Scripted::events([answer]));
                rig.run(async { chat.stream("hi").await.unwrap().text().await }).unwrap();
            } else {
                rig.script.reply(reply(200, &answer));
                rig.run(chat.send("hi")).unwrap();
            }
            history(&chat)
        };
        assert_eq!(say(&nothing), json!([]));
        let signature = json!({"text": "", "thoughtSignature": "c2ln"});
        let said = json!([{"text": "Hello"}, {}, {"text": ""}, signature]);
        assert_eq!(say(&said)[1]["parts"], json!([{"text": "Hello"}, signature]));
    }
}

#[test]
fn signatures_go_back_byte_for_byte_also_from_a_saved_history() {
    let rig = Rig::new(1);
    let odd = r#"{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"f","args":{"b":1.0,"a":1e2}},"thoughtSignature":"AbC+/=="}]},"finishReason":"STOP"}]}"#;
    rig.script.reply(Scripted::json(200, odd));
    rig.script.reply(Scripted::text("done"));
    let mut chat = rig.gemini.chat(MODEL);
    rig.run(chat.send("go")).unwrap();
    let saved = serde_json::to_string(chat.history()).unwrap();
    let turns: Vec<Content> = serde_json::from_str(&saved).unwrap();
    let mut again = rig.gemini.chat(MODEL).with_history(turns);
    let result =
        FunctionResponse { id: None, name: "f".into(), response: json!({"ok": true}).into() };
    rig.run(again.respond([result])).unwrap();
    let body = String::from_utf8(rig.script.requests()[1].body.to_vec()).unwrap();
    let part =
        r#"{"functionCall":{"name":"f","args":{"b":1.0,"a":1e2}},"thoughtSignature":"AbC+/=="}"#;
    assert!(body.contains(part), "{body}");
    assert!(body.contains(r#"{"functionResponse":{"name":"f","response":{"ok":true}}}"#), "{body}");
}

#[test]
fn a_streamed_answer_is_remembered_once_it_is_whole() {
    let rig = Rig::new(1);
    let signed = json!({"candidates": [{"content": {"role": "model", "parts": [
        {"text": "!", "thoughtSignature": "c2ln"},
    ]}, "finishReason": "STOP"}]});
    let events = [part("Hel", None, (8, 1)), part("lo", None, (8, 2)), signed];
    rig.script.reply(Scripted::events(events.clone()));
    rig.script.reply(Scripted::events(events));
    let mut chat = rig.gemini.chat(MODEL);
    let text = rig.run(async { chat.stream("hi").await.unwrap().text().await }).unwrap();
    assert_eq!(text, "Hello!");
    let whole = json!([
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [
            {"text": "Hello"}, {"text": "!", "thoughtSignature": "c2ln"},
        ]},
    ]);
    assert_eq!(
        history(&chat),
        whole,
        "pieces of a text become one, a signature stays where it was"
    );
    rig.run(async {
        let mut stream = chat.stream("more").await.unwrap();
        stream.next().await.unwrap().unwrap();
    });
    assert_eq!(history(&chat), whole, "the second one was not read to its end");
    rig.assert_balanced();
}

/// The call may be half of what the model wanted: it is not answered, and not remembered.
#[test]
fn a_function_call_whose_answer_is_cut_is_in_no_history() {
    let call = json!({"candidates": [{"content": {"role": "model", "parts": [
        {"functionCall": {"name": "pay", "args": {}}},
    ]}}]});
    let cuts = [
        Scripted::events([call.to_string()]),
        Scripted::events([call.to_string()]).fail(TransportKind::Interrupted),
        Scripted::events([call.to_string()]).piece(&br#"data: {"candidates": [{"cont"#[..]),
    ];
    for cut in cuts {
        let rig = Rig::new(1);
        rig.script.reply(cut);
        let mut chat = rig.gemini.chat(MODEL);
        let error = rig.run(async {
            let mut stream = chat.stream("hi").await.unwrap();
            loop {
                if let Err(error) = stream.next().await.expect("it does not end well") {
                    break error;
                }
            }
        });
        assert!(matches!(error, Error::StreamBroken { .. }), "{error}");
        assert!(chat.history().is_empty());
        rig.assert_balanced();
    }
}

#[test]
fn functions_are_called_until_the_model_wants_no_more() {
    let rig = Rig::new(1);
    rig.script.reply(reply(200, &calls(&["weather", "time"])));
    rig.script.reply(reply(200, &calls(&["weather"])));
    rig.script.reply(Scripted::text("It rains."));
    let mut chat = rig.gemini.chat(MODEL);
    let called = RefCell::new(Vec::new());
    let answer = rig.run(chat.send_with_tools("How is Oslo?", |call| {
        let args: Value = call.args().unwrap();
        assert_eq!(args["city"], "Oslo");
        called.borrow_mut().push(call.name.clone());
        async move {
            match call.name.as_str() {
                "weather" => Ok(json!({"weather": "rain"})),
                _ => Err("the clock stands still"),
            }
        }
    }));
    assert_eq!(answer.unwrap().text(), "It rains.");
    assert_eq!(called.into_inner(), ["weather", "time", "weather"]);
    assert_eq!(chat.history().len(), 6);
    assert_eq!(
        contents(&rig.script.requests()[1])[2],
        json!({"role": "user", "parts": [
            {"functionResponse": {"name": "weather", "response": {"weather": "rain"}}},
            {"functionResponse": {"name": "time", "response": {"error": "the clock stands still"}}},
        ]})
    );
}

#[test]
fn a_call_that_came_without_a_role_or_among_nothing_goes_back_as_the_models() {
    let rig = Rig::new(1);
    let wanted = json!({"functionCall": {"name": "f", "args": {}, "id": "1"}});
    let content = json!({"parts": [{"text": ""}, wanted]});
    let answer = json!({"candidates": [{"content": content, "finishReason": "STOP"}]});
    rig.script.reply(reply(200, &answer));
    rig.script.reply(Scripted::text("done"));
    let mut chat = rig.gemini.chat(MODEL);
    rig.run(chat.send_with_tools("go", |_| async { "yes" })).unwrap();
    let sent = contents(&rig.script.requests()[1]);
    assert_eq!(sent[1], json!({"role": "model", "parts": [wanted]}));
    assert_eq!(sent[2]["parts"][0]["functionResponse"]["id"], "1");
}

#[test]
fn a_model_that_never_stops_calling_is_stopped() {
    let rig = Rig::new(1);
    rig.script.otherwise(|_| reply(200, &calls(&["again"])));
    let mut chat = rig.gemini.chat(MODEL);
    let mut times = 0;
    let answer = rig.run(chat.send_with_tools("go", |_| {
        times += 1;
        async { "done" }
    }));
    assert_eq!(answer.unwrap().function_calls().len(), 1, "it is handed out as it is");
    assert_eq!((times, rig.script.requests().len()), (9, 10));
}

#[test]
fn functions_of_an_answer_that_is_not_whole_are_not_called() {
    let never = |_| async { panic!("it must not be called") as &str };
    let cut = parts(json!([{"functionCall": {"name": "pay", "args": {}}}]), "MAX_TOKENS");
    let malformed = json!({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]});
    for answer in [cut, malformed] {
        let rig = Rig::new(1);
        rig.script.reply(reply(200, &answer));
        let mut chat = rig.gemini.chat(MODEL);
        let answer = rig.run(chat.send_with_tools("go", never)).unwrap();
        assert_ne!(answer.finish_reason(), Some(FinishReason::Stop));
        assert_eq!(rig.counted(MODEL), 1);
        assert!(chat.history().is_empty(), "a call without its result makes the next one fail");
    }
}

#[test]
fn a_round_of_functions_that_fails_leaves_the_history_as_it_was() {
    let rig = Rig::new(1);
    rig.script.reply(Scripted::text("Hello"));
    rig.script.reply(reply(200, &calls(&["f"])));
    rig.script.reply(bad_request());
    let mut chat = rig.gemini.chat(MODEL);
    rig.run(chat.send("hi")).unwrap();
    let error = rig.run(chat.send_with_tools("go", |_| async { "done" })).unwrap_err();
    assert!(matches!(error, Error::Rejected { .. }), "{error}");
    assert_eq!(texts(&chat), ["hi", "Hello"]);
}
