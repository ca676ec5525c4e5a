//! Raw calls whose replies are handed on, and their replies read to the end.

use bytes::Bytes;
use http::{HeaderValue, header::CONTENT_TYPE};
use keywheel::{
    Error, Gemini, ManualClock,
    raw::{Call, Relay, RelayBody},
};
use keywheel_provider::testing::Scripted;
use serde_json::Value;

use super::{MODEL, run};

/// A small request.
pub(crate) const BODY: &str =
    r#"{"contents":[{"parts":[{"text":"hi"}]}],"generationConfig":{"maxOutputTokens":100}}"#;

pub(crate) fn whole(gemini: &Gemini) -> Relay {
    gemini.relay(Call::post(format!("models/{MODEL}:generateContent"), BODY))
}

pub(crate) fn streamed(gemini: &Gemini) -> Relay {
    let path = format!("models/{MODEL}:streamGenerateContent");
    gemini.relay(Call::post(path, BODY).with_query("alt", "sse"))
}

/// The same without `alt=sse`: the reply is an array.
pub(crate) fn array(gemini: &Gemini) -> Relay {
    gemini.relay(Call::post(format!("models/{MODEL}:streamGenerateContent"), BODY))
}

/// An event as it stands on the wire.
pub(crate) fn event(data: &Value) -> String {
    format!("data: {data}\r\n\r\n")
}

/// Events that come one by one.
pub(crate) fn events(pieces: impl IntoIterator<Item = impl Into<Bytes>>) -> Scripted {
    let kind = HeaderValue::from_static("text/event-stream");
    let reply = Scripted::status(200).header(CONTENT_TYPE, kind);
    pieces.into_iter().fold(reply, Scripted::piece)
}

/// Reads to the end: every byte, and the error that came after them.
pub(crate) fn read(clock: &ManualClock, body: &mut RelayBody) -> (Vec<u8>, Option<Error>) {
    let mut bytes = Vec::new();
    while let Some(piece) = run(clock, body.next()) {
        match piece {
            Ok(piece) => bytes.extend_from_slice(&piece),
            Err(error) => {
                assert!(run(clock, body.next()).is_none(), "an error is the last item");
                return (bytes, Some(error));
            }
        }
    }
    (bytes, None)
}
