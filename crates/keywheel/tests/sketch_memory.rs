//! How much memory sketching a large body takes. A program of its own, whose allocator counts.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

use std::{io::Write as _, sync::Arc};

use keywheel::{
    raw::Body,
    sketch::{Shape, Sketch},
};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const MB: usize = 1 << 20;

/// `{before}` and so many bytes of base64, in a file.
fn in_file(before: &str, base64: usize, after: &str) -> Body {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(before.as_bytes()).unwrap();
    let piece = "QUJD+/".repeat(10_000);
    for _ in 0..base64 / piece.len() {
        file.write_all(piece.as_bytes()).unwrap();
    }
    file.write_all(after.as_bytes()).unwrap();
    let length = file.metadata().unwrap().len();
    Body::from_file(Arc::new(file), length)
}

/// The sketch of `body`, and by how much it let the memory grow.
async fn measured(shape: Shape, body: &Body) -> (Sketch, usize) {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let sketch = Sketch::of(shape, body).await.unwrap();
    (sketch, MEMORY.peak_usage().saturating_sub(before))
}

#[tokio::test(flavor = "current_thread")]
async fn bodies_of_100_mb_take_less_than_a_megabyte() {
    // The thread that reads files has its own things.
    let _ = measured(Shape::Generate, &in_file("{}", 0, "")).await;
    let size = 100 * MB;

    let before = r#"{"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":""#;
    let picture = in_file(before, size, r#""}}]}],"generationConfig":{}}"#);
    let (sketch, grown) = measured(Shape::Generate, &picture).await;
    assert!(sketch.is_json && sketch.input_tokens < 10_000, "{}", sketch.input_tokens);
    assert!(grown < MB, "a picture: {grown} bytes");

    MEMORY.reset_peak_usage();
    let used = MEMORY.current_usage();
    let changed = sketch.with_max_output(&picture, 100);
    assert_eq!(changed.len(), picture.len() + br#""maxOutputTokens":100"#.len() as u64);
    assert!(MEMORY.peak_usage() - used < MB, "changing one field took {}", MEMORY.peak_usage());

    for (shape, before, after) in [
        (Shape::Generate, r#"{"contents":[{"parts":[{"text":""#, r#""}]}]}"#),
        (Shape::Generate, r#"{""#, r#"":1}"#),
        (Shape::Chat, r#"{"model":""#, r#""}"#),
        (
            Shape::Chat,
            r#"{"messages":[{"content":[{"image_url":{"url":"data:image/png;base64,"#,
            r#""}}]}]}"#,
        ),
        (Shape::Interaction, r#"{"input":[{"type":"image","data":""#, r#""}]}"#),
        (Shape::Other, r#"[""#, "\""),
    ] {
        let (sketch, grown) = measured(shape, &in_file(before, size / 10, after)).await;
        assert_eq!(sketch.is_json, shape != Shape::Other);
        assert!(grown < MB, "{before}: {grown} bytes");
    }

    let parts: String =
        (0..200_000).map(|i| format!(r#"{{"fileData":{{"fileUri":"files/f{i}"}}}},"#)).collect();
    for (what, body) in [
        ("many files", format!(r#"{{"contents":[{{"parts":[{parts}{{}}]}}]}}"#)),
        ("deep nesting", r#"{"contents":[{"parts":["#.to_owned() + &r#"{"a":["#.repeat(1 << 20)),
    ] {
        let body = in_file(&body, 0, "");
        let (_, grown) = measured(Shape::Generate, &body).await;
        assert!(grown < MB, "{what}: {grown} bytes");
    }
}
