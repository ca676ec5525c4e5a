//! However a stream is cut, the same frames come out, and nothing panics.
#![no_main]

use keywheel_provider::sse::{Frame, SseDecoder};
use libfuzzer_sys::fuzz_target;

/// Small enough for the fuzzer to reach.
const LIMIT: usize = 4096;

fuzz_target!(|data: &[u8]| {
    let Some((cut, stream)) = data.split_first() else { return };
    let whole = frames([stream].into_iter());
    let pieces = frames(stream.chunks(usize::from(*cut).max(1)));
    // A frame over the limit may be seen earlier or later, depending on the cuts.
    if let (Some(whole), Some(pieces)) = (whole, pieces) {
        assert!(whole == pieces, "the cuts changed the frames");
    }
});

/// All frames, or `None` when one was too large.
fn frames<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Option<Vec<Frame>> {
    let mut decoder = SseDecoder::new().with_limit(LIMIT);
    let mut frames = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        while let Some(frame) = decoder.next_frame().ok()? {
            frames.push(frame);
        }
    }
    decoder.finish();
    while let Some(frame) = decoder.next_frame().ok()? {
        frames.push(frame);
    }
    Some(frames)
}
