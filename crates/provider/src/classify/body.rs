//! Takes a body apart: finds the error in whatever it is wrapped in, and collects what it says.

use std::{borrow::Cow, time::Duration};

use super::{collect, rpc_status, speech};

/// How much is looked at, from either end. Error bodies have a few kilobytes; answers can have 50
/// MB.
const HEAD: usize = 64 * 1024;
const TAIL: usize = 64 * 1024;

/// How many of anything are kept; no real body comes near.
pub(super) const MOST: usize = 16;

/// What kind of thing a body is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Shape {
    #[default]
    Empty,
    /// JSON, or something that holds JSON.
    Json,
    Html,
    Text,
}

/// Everything a body says that some rule looks at.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) shape: Shape,
    /// An error stands where errors stand. Only asked about in replies that claim success.
    pub(super) error: bool,
    /// The innermost numeric code.
    pub(super) code: Option<u16>,
    /// The innermost `google.rpc.Code`.
    pub(super) rpc: Option<rpc_status::RpcStatus>,
    /// Codes and types in words: `insufficient_quota`, `rate_limit_error`.
    pub(super) words: Vec<String>,
    /// `ErrorInfo.reason` and the like.
    pub(super) reasons: Vec<String>,
    /// What is said in prose; the innermost first.
    pub(super) messages: Vec<String>,
    pub(super) violations: Vec<Violation>,
    /// `BadRequest.fieldViolations` is there: the request is at fault, and is quoted.
    pub(super) field_violations: bool,
    /// `RetryInfo.retryDelay` and the like, and how it was written.
    pub(super) retry_info: Option<Duration>,
    /// `ErrorInfo.metadata.consumer`, when it is a project.
    pub(super) project: Option<String>,
    /// `metadata.headers`, where OpenRouter puts its rate headers.
    pub(super) headers: Vec<(String, String)>,
}

/// One quota that the body says is exceeded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) id: Option<String>,
    pub(super) metric: Option<String>,
    pub(super) value: Option<u64>,
    pub(super) model: Option<String>,
    /// `1/min/{project}/{region}`
    pub(super) unit: Option<String>,
}

impl Violation {
    pub(super) const fn names_a_quota(&self) -> bool {
        self.id.is_some() || self.metric.is_some()
    }

    /// True when the text could add nothing.
    pub(super) const fn is_complete(&self) -> bool {
        self.value.is_some() && self.metric.is_some() && self.model.is_some()
    }
}

impl Facts {
    /// What `body` says. When the HTTP `status` claims success only what stands where errors stand
    /// is read, for an answer may talk about errors.
    pub(super) fn read(body: &[u8], status: u16) -> Self {
        let success = (200..300).contains(&status);
        let head = text_of(&body[..body.len().min(HEAD)]);
        let text = head.trim_start_matches('\u{feff}').trim();
        if text.is_empty() {
            return Self::default();
        }
        if text.starts_with('<') {
            let message = html_text(text);
            return Self { shape: Shape::Html, messages: vec![message], ..Self::default() };
        }
        let prose = !success && is_prose(text);
        let mut facts = match prose {
            true => collect::collect(speech::in_prose(text).unwrap_or(""), success),
            false => collect::collect(text, success),
        };
        // A quotation of the request that long goes on in the tail.
        let quotes = facts.repeats_the_request() || prose && speech::repeats_the_request(text);
        if body.len() > HEAD && !quotes {
            let tail = text_of(&body[HEAD.max(body.len() - TAIL)..]);
            facts.merge(collect::collect(first_fragment(&tail, success), success));
        }
        facts.shape = if text.starts_with(['{', '[']) { Shape::Json } else { Shape::Text };
        if prose {
            // Where a status was sent, a number in the text is a quotation: a gateway's 502 that
            // tells of its upstream's 401.
            if status == 0 {
                facts.code = facts.code.or_else(|| code_in_prose(text));
            }
            if facts.messages.is_empty() {
                facts.push_message(Cow::Borrowed(text));
            }
        }
        facts
    }

    /// Adds what `other` says behind what is known already.
    fn merge(&mut self, mut other: Self) {
        self.error |= other.error;
        self.code = self.code.or(other.code);
        self.rpc = self.rpc.or(other.rpc);
        self.words.append(&mut other.words);
        self.reasons.append(&mut other.reasons);
        self.messages.append(&mut other.messages);
        self.violations.append(&mut other.violations);
        self.field_violations |= other.field_violations;
        self.retry_info = self.retry_info.max(other.retry_info);
        self.project = self.project.take().or(other.project);
        self.headers.append(&mut other.headers);
    }

    /// The same, but `inner` knows better: the error inside an error is the first-hand one.
    pub(super) fn merge_inner(&mut self, mut inner: Self) {
        std::mem::swap(self, &mut inner);
        self.merge(inner);
    }

    /// True when the reply is about what the request holds: whatever it says may be a quotation.
    pub(super) fn repeats_the_request(&self) -> bool {
        self.field_violations
            || self.messages.iter().any(|message| speech::repeats_the_request(message))
    }

    pub(super) const fn says_something(&self) -> bool {
        self.code.is_some()
            || self.rpc.is_some()
            || !self.reasons.is_empty()
            || !self.messages.is_empty()
            || !self.violations.is_empty()
    }

    pub(super) fn push_message(&mut self, text: Cow<'_, str>) {
        let trimmed = text.trim();
        let known = self.messages.iter().any(|message| message == trimmed);
        if trimmed.is_empty() || known || self.messages.len() == MOST {
            return;
        }
        let whole = trimmed.len() == text.len();
        self.messages.push(if whole { text.into_owned() } else { trimmed.to_owned() });
    }
}

/// Like `String::from_utf8_lossy`, but faster for what is well formed, as nearly all is.
fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// JSON and event streams are data and nothing else; other texts speak too, as an SDK's error does:
/// `[GoogleGenerativeAI Error]: … [{"@type": …}]`.
fn is_prose(text: &str) -> bool {
    match text.as_bytes()[0] {
        b'{' => false,
        b'[' => !text[1..].trim_start().starts_with(['{', '"', ']']),
        _ => !["data:", "event:", "id:", ":"].iter().any(|field| text.starts_with(field)),
    }
}

/// `429 You exceeded …`, `status code 429: …`, `Error: [429 Too Many Requests] …`: how SDKs begin.
fn code_in_prose(text: &str) -> Option<u16> {
    let start: String = text.chars().take(300).collect::<String>().to_ascii_lowercase();
    let places = ["status code ", "error code: ", "http ", "status: ", "["];
    let found = places.into_iter().filter_map(|place| {
        let at = start.find(place)?;
        Some(&start[at + place.len()..])
    });
    std::iter::once(start.as_str()).chain(found).find_map(|text| {
        let digits = text.get(..3)?;
        let alone = text[3..].chars().next().is_none_or(|c| !c.is_ascii_alphanumeric());
        digits.parse().ok().filter(|code| alone && (400..600).contains(code))
    })
}

/// Where reading can begin again behind a gap.
fn first_fragment(tail: &str, success: bool) -> &str {
    let strict = ["\ndata:", "\n{", "\n[", "\n,"];
    let lenient = ["\"error\"", "\"details\"", "{\"", "{\n", "[{"];
    let marks = if success { strict.as_slice() } else { lenient.as_slice() };
    let start = marks.iter().filter_map(|mark| tail.find(mark)).min();
    start.map_or("", |at| &tail[at..])
}

/// The visible words of a page, roughly.
fn html_text(html: &str) -> String {
    let mut out = String::new();
    let mut rest = html;
    while let Some(open) = rest.find('<') {
        push_words(&mut out, &rest[..open]);
        let tag = &rest[open..];
        let lower = tag.get(..6).unwrap_or("").to_ascii_lowercase();
        let end = if lower == "<style" { "</style>" } else { ">" };
        let end = if lower == "<scrip" { "</script>" } else { end };
        let Some(close) = tag.find(end) else { return out };
        rest = &tag[close + end.len()..];
    }
    push_words(&mut out, rest);
    out
}

fn push_words(out: &mut String, text: &str) {
    for word in text.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
}
