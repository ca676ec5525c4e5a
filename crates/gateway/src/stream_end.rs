//! How a stream that broke says so to its client, after its beginning was sent on as a success.
//!
//! Each dialect has one form that its official clients raise an error for, and others that they drop in silence. What
//! is written depends on where the stream stopped, so the bytes that pass are looked at.

use bytes::Bytes;
use serde_json::json;

/// How an answer is framed, and with it what its end may look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Framing {
    /// One whole thing: there is no way to say anything after its beginning.
    Whole,
    /// Google's server-sent events.
    Events(Tail),
    /// Google's stream without `alt=sse`: one JSON array, element by element.
    Array(Elements),
    /// OpenAI's server-sent events.
    OpenAiEvents(Tail),
    /// The events of Google's Interactions, which have types.
    Interaction(Tail),
}

/// What went wrong, in the numbers and words of an error body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The HTTP status that it would have had.
    pub(crate) status: u16,
    /// Google's word for that status.
    pub(crate) name: &'static str,
    /// For people.
    pub(crate) message: String,
}

impl Framing {
    /// Takes note of bytes that are sent on.
    pub(crate) fn pass(&mut self, bytes: &[u8]) {
        match self {
            Self::Whole => {}
            Self::Events(tail) | Self::OpenAiEvents(tail) | Self::Interaction(tail) => {
                tail.pass(bytes);
            }
            Self::Array(elements) => elements.pass(bytes),
        }
    }

    /// What is sent after the last byte that passed, so that the client notices. `None`: nothing can be, and the
    /// connection has to be cut.
    ///
    /// On Google's streams it is a raw block with `error` as its first key and no blank line after it: Python's client
    /// wants that key first, Go's overlooks an error in a `data:` line, and JavaScript's notices what is left over at
    /// the end. (Measured with google-genai 3.6.1 for Python, 3.3.0 for JavaScript, and read in 1.69 for Go.)
    pub(crate) fn last_words(&self, fault: &Fault) -> Option<Bytes> {
        let Fault { status, name, message } = fault;
        let block = json!({ "error": { "code": status, "message": message, "status": name } });
        let words = match self {
            Self::Whole => return None,
            Self::Events(tail) => format!("{}{block}", tail.gap()),
            Self::Array(elements) => match elements.place() {
                Place::Before => format!("[{block}]"),
                Place::First => format!("{block}]"),
                Place::Next => format!(",\r\n{block}\r\n]"),
                Place::Inside | Place::After => return None,
            },
            Self::OpenAiEvents(tail) => {
                let kind = if *status == 429 { "rate_limit_error" } else { "server_error" };
                let code = name.to_ascii_lowercase();
                let error = json!({ "error": { "message": message, "type": kind, "code": code } });
                format!("{}data: {error}\n\n", tail.gap())
            }
            Self::Interaction(tail) => {
                let code = name.to_ascii_lowercase();
                let error = json!({
                    "event_type": "error", "error": { "code": code, "message": message }
                });
                format!("{}event: error\ndata: {error}\n\n", tail.gap())
            }
        };
        Some(Bytes::from(words))
    }
}

/// The last bytes of a stream of events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tail {
    /// The newest last.
    last: [u8; 4],
    seen: usize,
}

impl Tail {
    fn pass(&mut self, bytes: &[u8]) {
        let newest = &bytes[bytes.len().saturating_sub(4)..];
        self.last.rotate_left(newest.len() % 4);
        self.last[4 - newest.len()..].copy_from_slice(newest);
        self.seen = self.seen.saturating_add(bytes.len());
    }

    /// What ends the event that was under way.
    fn gap(&self) -> &'static str {
        let is_between = self.seen == 0
            || self.last.ends_with(b"\n\n")
            || self.last.ends_with(b"\r\r")
            || self.last == *b"\r\n\r\n";
        if is_between { "" } else { "\r\n\r\n" }
    }
}

/// How far an array of elements has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Elements {
    /// Brackets and braces that are open, the array's own included.
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// An element came to its end, and no comma has followed.
    wants_comma: bool,
    begun: bool,
    /// The array has come to its end.
    over: bool,
    /// Something other than an array, or a bare value as an element.
    odd: bool,
}

/// Where in an array its bytes stopped.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// Before its bracket.
    Before,
    /// Where an element may stand.
    First,
    /// After an element.
    Next,
    /// In the middle of an element.
    Inside,
    /// After its end.
    After,
}

impl Elements {
    fn pass(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            self.pass_outside(byte);
        }
    }

    fn pass_outside(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.in_string = true;
                self.odd |= self.depth <= 1;
            }
            b'[' | b'{' => {
                self.odd |= !self.begun && byte != b'[';
                self.begun = true;
                self.depth += 1;
            }
            b']' | b'}' => {
                self.depth = self.depth.saturating_sub(1);
                self.wants_comma = self.depth == 1;
                self.over |= self.depth == 0;
            }
            b',' if self.depth == 1 => self.wants_comma = false,
            b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => self.odd |= self.depth <= 1,
        }
    }

    const fn place(&self) -> Place {
        if self.odd || self.depth > 1 {
            return Place::Inside;
        }
        if self.over {
            return Place::After;
        }
        if !self.begun {
            return Place::Before;
        }
        if self.wants_comma { Place::Next } else { Place::First }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn fault() -> Fault {
        Fault { status: 503, name: "UNAVAILABLE", message: "it \"broke\"".to_owned() }
    }

    fn after(mut framing: Framing, bytes: &str) -> Option<String> {
        framing.pass(bytes.as_bytes());
        let words = framing.last_words(&fault())?;
        Some(String::from_utf8(words.to_vec()).unwrap())
    }

    /// What the clients of Google's streams want: see facts in docs/gateway.md.
    #[test]
    fn a_native_stream_ends_with_a_raw_block_whose_first_key_is_error() {
        let words = after(Framing::Events(Tail::default()), "data: {}\r\n\r\n").unwrap();
        assert!(words.starts_with(r#"{"error":{"#), "{words}");
        assert!(!words.ends_with('\n'), "JavaScript's client drops a block with a blank line");
        let value: Value = serde_json::from_str(&words).unwrap();
        assert_eq!(value["error"]["message"], "it \"broke\"");
        assert_eq!(value["error"]["code"], 503);
    }

    #[test]
    fn an_event_that_was_cut_is_ended_before_the_block() {
        for (stream, is_between) in [
            ("", true),
            ("data: {}\n\n", true),
            ("data: {}\r\n\r\n", true),
            ("data: {}\r\r", true),
            ("data: {}\r", false),
            ("data", false),
            ("data: {\"a\":", false),
            ("data: {}\n", false),
            ("data: {}\r\n", false),
        ] {
            for framing in [
                Framing::Events(Tail::default()),
                Framing::OpenAiEvents(Tail::default()),
                Framing::Interaction(Tail::default()),
            ] {
                let words = after(framing, stream).unwrap();
                assert_eq!(words.starts_with("\r\n\r\n"), !is_between, "{stream:?}: {words}");
            }
        }
    }

    #[test]
    fn an_openai_stream_ends_with_a_data_line_and_a_blank_one() {
        let words = after(Framing::OpenAiEvents(Tail::default()), "data: {}\n\n").unwrap();
        let line = words.strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap();
        let value: Value = serde_json::from_str(line).unwrap();
        assert_eq!(value["error"]["code"], "unavailable");
        assert_eq!(value["error"]["type"], "server_error");
        let limit = Fault { status: 429, name: "RESOURCE_EXHAUSTED", ..fault() };
        let words = Framing::OpenAiEvents(Tail::default()).last_words(&limit).unwrap();
        assert!(String::from_utf8_lossy(&words).contains(r#""type":"rate_limit_error""#));
    }

    #[test]
    fn an_interaction_ends_with_a_whole_event_of_the_type_error() {
        let words = after(Framing::Interaction(Tail::default()), "data: {}\n\n").unwrap();
        let line = words.strip_prefix("event: error\ndata: ").unwrap().strip_suffix("\n\n");
        let value: Value = serde_json::from_str(line.unwrap()).unwrap();
        let error = json!({ "code": "unavailable", "message": "it \"broke\"" });
        assert_eq!(value, json!({ "event_type": "error", "error": error }));
    }

    #[test]
    fn an_array_gets_one_more_element_and_its_end() {
        for stream in [
            "",
            "[",
            " [ ",
            r#"[{"a":"]}"}"#,
            "[{\"a\":[1,{}]}\r\n",
            r#"[{"a":"\"]"},"#,
            "[{},\r\n",
        ] {
            let words = after(Framing::Array(Elements::default()), stream).unwrap();
            let whole: Value = serde_json::from_str(&format!("{stream}{words}")).unwrap();
            let last = whole.as_array().unwrap().last().unwrap();
            assert_eq!(last["error"]["code"], 503, "{stream}");
        }
    }

    #[test]
    fn an_array_that_is_cut_inside_an_element_or_over_has_no_place_for_words() {
        for stream in [r#"[{"a"#, r#"[{"a":1"#, r#"[{},{"a":"x"#, "[{}]", "[{}]\n", "{", "[1"] {
            assert_eq!(after(Framing::Array(Elements::default()), stream), None, "{stream}");
        }
        // What is no array of objects is left alone.
        for stream in ["oops", r#""oops"#, r#""oops""#, r#"["a"#, r#"["a""#, "[true,"] {
            assert_eq!(after(Framing::Array(Elements::default()), stream), None, "{stream}");
        }
        assert_eq!(after(Framing::Whole, ""), None);
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_a_stream_is_cut_into_pieces(
            cuts in prop::collection::vec(0..60_usize, 0..6),
            kind in 0..2_usize,
        ) {
            let stream = ["[{\"a\":\"\\\"]}\"},\r\n{\"b\":[{}]}\r\n", "data: {\"a\":1}\r\n\r\ndata: {}\n\n"];
            let stream = stream[kind];
            let fresh = || match kind {
                0 => Framing::Array(Elements::default()),
                _ => Framing::Events(Tail::default()),
            };
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
            cuts.sort_unstable();
            cuts.push(stream.len());
            let (mut whole, mut pieces, mut at) = (fresh(), fresh(), 0);
            whole.pass(stream.as_bytes());
            for cut in cuts {
                pieces.pass(&stream.as_bytes()[at..cut]);
                at = cut;
            }
            prop_assert_eq!(whole, pieces);
        }

        #[test]
        fn an_array_cut_anywhere_is_valid_with_its_last_words_or_has_none(cut in 0..200_usize) {
            let stream = r#"[{"a":"x\"]\\","b":[1,2,{"c":null}]},
                {"candidates":[{"content":{"parts":[{"text":"[{\"}]"}]}}]} , {}"#;
            let stream = &stream[..cut.min(stream.len())];
            if let Some(words) = after(Framing::Array(Elements::default()), stream) {
                let whole: Value = serde_json::from_str(&format!("{stream}{words}")).unwrap();
                prop_assert!(whole.as_array().unwrap().last().unwrap()["error"].is_object());
            }
        }
    }
}
