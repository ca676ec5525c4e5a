//! A sketch agrees with a parser on what is JSON, and changes one field alone.
#![no_main]

use futures_util::FutureExt as _;
use keywheel::{
    raw::Body,
    sketch::{Shape, Sketch},
};
use libfuzzer_sys::fuzz_target;
use serde::de::IgnoredAny;
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    let Some((shape, json)) = data.split_first() else { return };
    let shape = Shape::ALL[usize::from(*shape) % Shape::ALL.len()];
    let body = Body::from(json.to_vec());
    let sketch = of(shape, &body);
    let is_json = is_json(json);
    // Nesting that no server takes is none to it.
    assert!(sketch.is_json == is_json || is_json && is_deep(json), "what is JSON");

    let bounded = sketch.with_max_output(&body, 7);
    // Places hold for the body that they were found in.
    let asking = of(shape, &bounded).with_model(&bounded, "m");
    if !sketch.is_json {
        assert!(asking == *json, "what is no JSON was changed");
        return;
    }
    let (before, after) = (body.bytes().unwrap(), bounded.bytes().unwrap());
    assert!(self::is_json(after), "it is no JSON any more");
    let has_answer = matches!(shape, Shape::Generate | Shape::Chat | Shape::Interaction);
    let is_object = matches!(serde_json::from_slice(before), Ok(Value::Object(_)));
    if has_answer && is_object {
        let set = of(shape, &bounded).max_output;
        // Of more limits than are kept none is set, and none believed.
        let is_left_alone = set == Some(u64::from(u32::MAX)) && before == after;
        assert!(set == Some(7) || is_left_alone, "the limit was not set");
    }
    let again = of(shape, &asking);
    assert!(sketch.model.is_none() || again.model.as_deref() == Some("m"), "the model was not set");
    assert_eq!(again.names, sketch.names);
});

fn of(shape: Shape, body: &Body) -> Sketch {
    Sketch::of(shape, body).now_or_never().expect("it is in memory").expect("nothing is read")
}

fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(bytes).is_ok()
}

fn is_deep(bytes: &[u8]) -> bool {
    bytes.iter().filter(|byte| matches!(byte, b'{' | b'[')).count() > 128
}
