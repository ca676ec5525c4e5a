//! How fast the decoder of server-sent events is: `cargo bench -p keywheel-provider --bench sse`.

#![expect(clippy::disallowed_methods, reason = "a bench measures real time")]

use std::{hint::black_box, time::Instant};

use keywheel_provider::sse::SseDecoder;

/// What Google sends for one answer: many short texts, now and then a large thought signature.
fn stream(bytes: usize) -> Vec<u8> {
    let short = "data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"Hello there, how are \
                 you today? I am fine.\"}],\"role\": \"model\"},\"index\": 0}],\"usageMetadata\": \
                 {\"promptTokenCount\": 8,\"candidatesTokenCount\": 12,\"totalTokenCount\": 20},\
                 \"modelVersion\": \"gemini-3.5-flash-lite\",\"responseId\": \"abcdefgh\"}\r\n\r\n";
    let long = format!("data: {{\"thoughtSignature\": \"{}\"}}\r\n\r\n", "Q".repeat(20_000));
    let mut out = Vec::with_capacity(bytes + long.len());
    for n in 0_u32.. {
        out.extend_from_slice(if n % 100 == 99 { long.as_bytes() } else { short.as_bytes() });
        if out.len() >= bytes {
            break;
        }
    }
    out
}

/// Megabytes a second, the best of five.
fn measure(stream: &[u8], chunk: usize) -> f64 {
    let run = || {
        let begin = Instant::now();
        let mut decoder = SseDecoder::new();
        let mut frames = 0_usize;
        for piece in stream.chunks(chunk) {
            decoder.push(piece);
            while let Ok(Some(frame)) = decoder.next_frame() {
                frames += 1;
                black_box(frame);
            }
        }
        assert!(frames > 0, "the stream has frames");
        stream.len() as f64 / 1e6 / begin.elapsed().as_secs_f64()
    };
    (0..5).map(|_| run()).fold(0.0, f64::max)
}

fn main() {
    let stream = stream(64_000_000);
    println!("FIGURE sse_mb_s={:.0}", measure(&stream, 16 * 1024));
    println!("FIGURE sse_by_byte_mb_s={:.0}", measure(&stream[..8_000_000], 1));
    let mut one = b"data: ".to_vec();
    one.resize(64_000_000, b'x');
    one.extend_from_slice(b"\r\n\r\n");
    println!("FIGURE sse_one_frame_mb_s={:.0}", measure(&one, 16 * 1024));
}
