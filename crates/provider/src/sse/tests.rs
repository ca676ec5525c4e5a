use proptest::prelude::*;

use super::*;

/// Streams as they come: by Google, by gateways, and broken ones.
const STREAMS: &[&str] = &[
    // Google's own framing, two events.
    "data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"Hello\"}]}}]}\r\n\r\n\
     data: {\"candidates\": [{\"finishReason\": \"STOP\"}],\"usageMetadata\": {\"totalTokenCount\": 9}}\r\n\r\n",
    // A gateway's: comments, names, other fields, no space, line feeds only, the end of OpenAI's streams.
    ": ping\n\nevent: message\nid: 7\nretry: 10\ndata:{\"a\":1}\n\n:\n\ndata: [DONE]\n\n",
    // Several lines of data; empty data; a field without a colon; carriage returns only.
    "data: one\rdata: two\rdata\r\rdata:\r\rdata:  two spaces\r\r",
    // https://github.com/diegosouzapw/OmniRoute/issues/4177: an error in the middle.
    "data: {\"x\":1}\r\n\r\ndata: {\"error\":{\"code\":503,\"status\":\"UNAVAILABLE\"}}\r\n\r\n",
    // An error as a tail of bare, pretty JSON, with and without the end of its line.
    "data: {\"x\":1}\n\n{\n  \"error\": {\n    \"code\": 503,\n    \"message\": \"a }\\\" b\"\n  }\n}\n",
    "data: {\"x\":1}\n\n[{\n  \"error\": {\n    \"code\": 503\n  }\n}\n]",
    // Without alt=sse: one array.
    "[{\n  \"candidates\": [{\"text\": \"a ] [ { \\\\\"}]\n}\n,\r\n{\"b\": {\"c\": \"}{\"}}\n]\n",
    // Ended without a blank line; cut in the middle; cut bare JSON; nothing at all.
    "data: {\"x\":1}\n\ndata: {\"y\":2}",
    "data: {\"x\":1}\n\ndata: {\"candidates\": [{\"conte",
    "{\n \"error\": {\n \"code\": 5",
    "",
    "\u{feff}data: after a mark\n\n",
    "data: caf\u{e9} \u{2028} \u{1f600}\n\n",
    "[DONE]\ndata: x\n\n[]\n[1,2]\n\ndata: y\n\n{}{\"z\":{}}\n",
];

fn decode<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Frame> {
    let mut decoder = SseDecoder::new();
    let mut frames = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        while let Some(frame) = decoder.next_frame().unwrap() {
            frames.push(frame);
        }
    }
    decoder.finish();
    while let Some(frame) = decoder.next_frame().unwrap() {
        frames.push(frame);
    }
    frames
}

fn data(stream: &str) -> Vec<String> {
    let frames = decode([stream.as_bytes()]);
    frames.iter().map(|frame| String::from_utf8_lossy(&frame.data).into_owned()).collect()
}

#[test]
fn frames_of_real_streams_are_found() {
    let found: Vec<_> = STREAMS.iter().map(|stream| data(stream)).collect();
    assert_eq!(found[0].len(), 2);
    assert!(found[0][1].starts_with("{\"candidates\"") && found[0][1].ends_with("}}"));
    assert_eq!(found[1], ["{\"a\":1}", "[DONE]"]);
    assert_eq!(found[2], ["one\ntwo\n", "", " two spaces"]);
    assert_eq!(found[3].len(), 2);
    assert_eq!(found[4].len(), 2);
    assert!(found[4][1].starts_with("{\n  \"error\"") && found[4][1].ends_with("  }\n}"));
    assert_eq!(found[5][1], "{\n  \"error\": {\n    \"code\": 503\n  }\n}");
    assert_eq!(found[6].len(), 2);
    assert_eq!(found[6][1], "{\"b\": {\"c\": \"}{\"}}");
    assert_eq!(found[7], ["{\"x\":1}", "{\"y\":2}"]);
    assert_eq!(found[8], ["{\"x\":1}", "{\"candidates\": [{\"conte"]);
    assert_eq!(found[9], ["{\n \"error\": {\n \"code\": 5"]);
    assert!(found[10].is_empty());
    assert_eq!(found[11], ["after a mark"]);
    assert_eq!(found[12], ["caf\u{e9} \u{2028} \u{1f600}"]);
    assert_eq!(found[13], ["x", "y", "{}", "{\"z\":{}}"]);
}

#[test]
fn frames_say_how_they_stood_in_the_stream() {
    let framing = |stream: &str| decode([stream.as_bytes()]).pop().unwrap().framing;
    assert_eq!(framing(STREAMS[0]), Framing::Event);
    assert_eq!(framing(STREAMS[4]), Framing::BareJson);
    assert_eq!(framing(STREAMS[6]), Framing::BareJson);
    assert_eq!(framing(STREAMS[9]), Framing::CutJson);
    assert_eq!(decode([STREAMS[1].as_bytes()])[0].event.as_deref(), Some(&b"message"[..]));
}

#[test]
fn a_stream_split_at_every_byte_gives_the_same_frames() {
    for stream in STREAMS {
        let stream = stream.as_bytes();
        let whole = decode([stream]);
        assert_eq!(decode(stream.chunks(1)), whole, "byte by byte");
        for first in 0..=stream.len() {
            let (head, tail) = stream.split_at(first);
            assert_eq!(decode([head, tail]), whole, "cut at {first}");
            for second in 0..=tail.len().min(40) {
                let (middle, tail) = tail.split_at(second);
                assert_eq!(decode([head, middle, tail]), whole, "cut at {first} and +{second}");
            }
        }
    }
}

#[test]
fn invalid_utf8_is_passed_on() {
    let frames = decode([&b"event: \xff\ndata: \xc3\x28 \x00\n\n"[..]]);
    assert_eq!(frames[0].data, &b"\xc3\x28 \x00"[..]);
    assert_eq!(frames[0].event.as_deref(), Some(&b"\xff"[..]));
}

#[test]
fn a_frame_of_64_megabytes_passes() {
    // Google's frames with inline pictures and signatures: https://github.com/BerriAI/litellm/issues/30471
    let payload = vec![b'x'; 64_000_000];
    let mut decoder = SseDecoder::new();
    decoder.push(b"data: ");
    for chunk in payload.chunks(16 * 1024) {
        decoder.push(chunk);
        assert_eq!(decoder.next_frame(), Ok(None));
    }
    decoder.push(b"\n\ndata: next\n\n");
    assert_eq!(decoder.next_frame().unwrap().unwrap().data.len(), payload.len());
    assert_eq!(decoder.next_frame().unwrap().unwrap().data, "next");
}

#[test]
fn a_frame_over_the_limit_is_a_clear_error_and_frees_its_memory() {
    for (head, body) in
        [("data: ", "x"), ("data: x\ndata: ", "y"), (": ", "c"), ("{\"", "j"), ("", "data:\n")]
    {
        let mut decoder = SseDecoder::new().with_limit(1_000);
        decoder.push(b"data: fits\n\n");
        decoder.push(head.as_bytes());
        assert_eq!(decoder.next_frame().unwrap().unwrap().data, "fits");
        let failed = (0..3_000).any(|_| {
            decoder.push(body.as_bytes());
            decoder.next_frame().is_err()
        });
        assert!(failed, "{head:?} went on for ever");
        decoder.push(b"data: more\n\n");
        decoder.finish();
        assert_eq!(decoder.next_frame(), Err(FrameTooLarge { limit: 1_000 }));
        assert_eq!(decoder.buf.capacity(), 0);
        assert_eq!(
            decoder.next_frame().unwrap_err().to_string(),
            "a frame of the stream is larger than 1000 bytes"
        );
    }
}

#[test]
fn the_limit_does_not_depend_on_how_the_stream_is_cut() {
    for size in 90..=110 {
        let line = format!("data: {}\n\n", "x".repeat(size - 6));
        let object = format!("{{\"{}\"}}\n", "x".repeat(size - 4));
        for stream in [line, object] {
            let run = |length: usize| {
                let mut decoder = SseDecoder::new().with_limit(100);
                let mut frames = 0;
                for chunk in stream.as_bytes().chunks(length) {
                    decoder.push(chunk);
                    while let Some(_frame) = decoder.next_frame()? {
                        frames += 1;
                    }
                }
                Ok::<_, FrameTooLarge>(frames)
            };
            let expected = if size <= 100 { Ok(1) } else { Err(FrameTooLarge { limit: 100 }) };
            assert_eq!(run(1), expected, "{size} bytes, byte by byte");
            assert_eq!(run(1_000), expected, "{size} bytes at once");
        }
    }
}

#[test]
fn nothing_comes_after_the_end() {
    let mut decoder = SseDecoder::new();
    decoder.push(b"data: a\n\n");
    decoder.finish();
    decoder.push(b"data: b\n\n");
    assert!(decoder.next_frame().unwrap().is_some());
    assert_eq!(decoder.next_frame(), Ok(None));
}

/// The standard's algorithm in the plainest form, over the whole stream at once.
fn reference(stream: &[u8]) -> Vec<(Option<Vec<u8>>, Vec<u8>)> {
    let stream = stream.strip_prefix(BOM).unwrap_or(stream);
    let mut lines = vec![Vec::new()];
    let mut previous = 0;
    for &byte in stream {
        match byte {
            b'\n' if previous == b'\r' => {}
            b'\n' | b'\r' => lines.push(Vec::new()),
            _ => lines.last_mut().unwrap().push(byte),
        }
        previous = byte;
    }
    lines.push(Vec::new()); // the end of the stream ends the last event, too
    let (mut frames, mut event, mut data) = (Vec::new(), None, Vec::<Vec<u8>>::new());
    for line in lines {
        if line.is_empty() {
            if !data.is_empty() {
                frames.push((event.take(), data.join(&b'\n')));
            }
            (event, data) = (None, Vec::new());
            continue;
        }
        let mut halves = line.splitn(2, |&b| b == b':');
        let name = halves.next().unwrap();
        let value = halves.next().unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value).to_vec();
        match name {
            b"data" => data.push(value),
            b"event" => event = Some(value),
            _ => {}
        }
    }
    frames
}

/// Pieces of which streams are made. None begins with a bracket: bare JSON is not in the standard.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![
        &b"data"[..],
        b"data:",
        b"data: ",
        b"data: {\"a\":\"b\"}",
        b"event: e",
        b"id: 1",
        b":",
        b": c",
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"\r\n\r\n",
        b"x",
        b" ",
        b"\xef\xbb\xbf",
        b"\xef",
        b"\xff\xfe",
        b"retry",
    ])
    .prop_map(<[u8]>::to_vec)
}

proptest! {
    #[test]
    fn any_stream_cut_anyhow_gives_what_the_standard_says(
        pieces in prop::collection::vec(pieces(), 0..40),
        cuts in prop::collection::vec(1..9_usize, 1..20),
    ) {
        let stream = pieces.concat();
        let mut rest = &stream[..];
        let mut chunks = Vec::new();
        for length in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (chunk, after) = rest.split_at(rest.len().min(*length));
            chunks.push(chunk);
            rest = after;
        }
        let found: Vec<_> = decode(chunks)
            .into_iter()
            .map(|frame| (frame.event.map(|e| e.to_vec()), frame.data.to_vec()))
            .collect();
        prop_assert_eq!(found, reference(&stream));
    }

    #[test]
    fn any_bytes_cut_anywhere_give_the_same_frames(
        stream in prop::collection::vec(
            prop::sample::select(b"{}[]\"\\,: \r\ndataevent\xef\xbb\xbf".to_vec()), 0..200),
        cut in 0..200_usize,
    ) {
        let (head, tail) = stream.split_at(cut.min(stream.len()));
        let whole = decode([&stream[..]]);
        prop_assert_eq!(decode([head, tail]), whole.clone());
        prop_assert_eq!(decode(stream.chunks(1)), whole);
    }
}

proptest! {
    /// Whoever hands on what is behind the decoder has handed on the frames that came out of it, and no part of the
    /// next one.
    #[test]
    fn what_is_behind_the_decoder_holds_the_frames_that_came_out_and_nothing_of_the_next(
        stream in prop::sample::select(STREAMS),
        at in any::<prop::sample::Index>(),
    ) {
        let cut = at.index(stream.len() + 1);
        let mut decoder = SseDecoder::new();
        decoder.push(&stream.as_bytes()[..cut]);
        let (mut frames, mut last) = (Vec::new(), 0);
        while let Some(frame) = decoder.next_frame().unwrap() {
            frames.push(frame);
            prop_assert!(decoder.passed() >= last);
            last = decoder.passed();
        }
        let passed = usize::try_from(decoder.passed()).unwrap();
        prop_assert!(passed <= cut);
        let mut before = SseDecoder::new();
        before.push(&stream.as_bytes()[..passed]);
        let again: Vec<_> = std::iter::from_fn(|| before.next_frame().unwrap()).collect();
        prop_assert_eq!(&again, &frames);
        before.finish();
        prop_assert_eq!(before.next_frame(), Ok(None), "a part of the next frame is in it");
        for (number, frame) in frames.iter().enumerate() {
            let start = usize::try_from(frame.start).unwrap();
            prop_assert_eq!(&decode([&stream.as_bytes()[..start]]), &frames[..number], "{}", start);
        }
    }
}
