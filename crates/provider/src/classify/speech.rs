//! Who speaks in a message: the provider of the caller, or a sentence that repeats the request.
//!
//! A refused request is quoted in its refusal: `Unknown name "API key not valid" at 'tools[0]'`.
//! Whoever looks for words anywhere in the text lets a prompt kill the key that it is sent with. So
//! prose about keys counts where providers put it, at the start of a message, and JSON inside a
//! message where clients put it: as the whole of it, or behind their own words and at the end.

use super::{rpc_status, scan};

/// How messages begin that are about what the request holds, and repeat it.
const FAULTS: [&str; 10] = [
    "invalid json",
    "invalid value",
    "invalid argument",
    "invalid type",
    "unknown name",
    "unknown field",
    "unknown parameter",
    "unsupported value",
    "unsupported parameter",
    "proto field",
];

/// What a provider's sentences about a key or its owner begin with.
const SUBJECTS: [&str; 28] = [
    "api key",
    "your api key",
    "the api key",
    "this api key",
    "the provided api key",
    "please pass a valid api key",
    "pass a valid api key",
    "incorrect api key",
    "invalid api key",
    "invalid x-api-key",
    "consumer",
    "project",
    "your project",
    "the project",
    "this project",
    "account",
    "your account",
    "the openai account",
    "organization",
    "your organization",
    "this organization",
    "requests from",
    "requests to this api",
    "access to",
    "your billing country",
    "gemini api",
    "generative language api",
    "the gemini api",
];

/// Words of SDKs and gateways in front of what the provider said.
const OPENINGS: [&str; 16] = [
    "error fetching from",
    "provider returned error",
    "upstream error",
    "api error",
    "error code",
    "status code",
    "got status",
    "got an error",
    "request failed",
    "permission denied",
    "bad request",
    "unauthorized",
    "forbidden",
    "too many requests",
    "status",
    "error",
];

/// How much of a message is looked at for its first sentence.
const LONGEST_SENTENCE: usize = 400;

/// True when a message is about what the request holds, and so may repeat any of it.
pub(super) fn repeats_the_request(message: &str) -> bool {
    let said = without_opening(message);
    FAULTS.iter().any(|fault| starts_with(said, fault))
}

/// What a message says of the caller, in lower case and without what it quotes: its first
/// sentence, if that begins as such sentences do.
pub(super) fn claim(message: &str) -> Option<String> {
    let said = without_opening(message);
    if !SUBJECTS.iter().any(|subject| starts_with(said, subject)) {
        return None;
    }
    let mut sentence = String::new();
    for (at, character) in outside_quotes(said).take_while(|(at, _)| *at < LONGEST_SENTENCE) {
        let ends = said[at..].starts_with(". ") || character == '\n';
        if ends {
            break;
        }
        sentence.push(character.to_ascii_lowercase());
    }
    Some(sentence)
}

/// The reply that a message holds: all of the message, or what ends it behind a client's words.
/// What a sentence quotes is none.
pub(super) fn embedded(message: &str) -> Option<&str> {
    let message = message.trim_start();
    if message.starts_with(['{', '[']) && ends_the_text(message) {
        return Some(message);
    }
    let mut rest = without_opening(message);
    if is_bytes(rest) {
        let bare = &rest[2..];
        return ends_the_text(bare).then_some(bare);
    }
    if rest.len() == message.len() || repeats_the_request(rest) {
        return None;
    }
    loop {
        rest = behind_opening(rest)?;
        let Some(end) = scan::end_of_value(rest) else { return Some(rest) };
        if is_blank(&rest[end..]) {
            return Some(rest);
        }
        rest = &rest[end..];
    }
}

/// The part of a text around JSON that may be an error's: nothing that it quotes of the request.
pub(super) fn in_prose(text: &str) -> Option<&str> {
    let said = without_opening(text);
    if repeats_the_request(said) {
        return None;
    }
    if is_bytes(said) {
        return Some(&said[2..]);
    }
    // Of a text that begins like no client known, any part may be the error.
    if said.len() == text.len() {
        return unquoted_json(said);
    }
    // A stack trace may follow on the next line.
    let ends = |json: &str| {
        scan::end_of_value(json)
            .is_none_or(|end| is_blank(&json[end..]) || json[end..].starts_with(['\n', '\r']))
    };
    behind_opening(said).filter(|json| json.starts_with('[') || ends(json))
}

/// An error stands right behind a client's words; behind a sentence there are details at most, and
/// they are a list. An object there is the sentence's own.
fn behind_opening(said: &str) -> Option<&str> {
    unquoted_json(said).filter(|json| json.starts_with('[') || json.len() == said.len())
}

/// A byte string as Python writes it, with JSON in it.
fn is_bytes(text: &str) -> bool {
    ["b'{", "b'[", "b\"{", "b\"["].iter().any(|start| text.starts_with(start))
}

/// `text` from its first bracket on that is not quoted.
fn unquoted_json(text: &str) -> Option<&str> {
    let (at, _) = outside_quotes(text).find(|(_, character)| matches!(character, '{' | '['))?;
    Some(&text[at..])
}

/// True when the value at the start of `text` is all of it, or is cut short.
fn ends_the_text(text: &str) -> bool {
    scan::end_of_value(text).is_none_or(|end| is_blank(&text[end..]))
}

/// Nothing but the end of a quotation or of a byte string.
fn is_blank(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || matches!(c, '\'' | '"' | '\\' | 'n' | 'r'))
}

/// `message` without the words of clients in front: `[GoogleGenerativeAI Error]: Error fetching
/// from https://… [403 Forbidden] `, `400 INVALID_ARGUMENT. `, `Error code: 401 - `,
/// `litellm.AuthenticationError: `.
fn without_opening(message: &str) -> &str {
    let mut rest = message.trim_start();
    // More are not seen; a forged text of nothing else costs no time.
    for _ in 0..12 {
        let Some(behind) = opening(rest) else { break };
        rest = behind.trim_start_matches(|c: char| c.is_whitespace() || ":.,-".contains(c));
    }
    rest
}

fn opening(text: &str) -> Option<&str> {
    if let Some(tag) = text.strip_prefix('[') {
        let end = tag.bytes().take(80).position(|byte| byte == b']')?;
        let plain = !tag[..end].contains(['{', '[', '"', '\'']);
        return plain.then(|| &tag[end + 1..]);
    }
    if let Some(words) = OPENINGS.iter().find(|words| starts_with(text, words)) {
        return Some(&text[words.len()..]);
    }
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let word = text[..end].trim_end_matches([':', '.', ',']);
    let named = || {
        let closes = text[..end].ends_with(':')
            || text[end..].starts_with(" - ")
            || ["Error", "Exception"].iter().any(|kind| word.ends_with(kind));
        let lower = word.to_ascii_lowercase();
        let identifier = word.bytes().all(|b| b.is_ascii_alphanumeric() || b"._".contains(&b));
        closes && identifier && (lower.contains("error") || lower.contains("exception"))
    };
    let status = word.len() == 3 && word.parse().is_ok_and(|code: u16| (400..600).contains(&code));
    let url = word.starts_with("https://") || word.starts_with("http://");
    let opens = status || url || rpc_status::named(word).is_some() || word.len() < 100 && named();
    opens.then(|| &text[end..])
}

/// True when `text` begins with `words`, which are lower case, as words.
fn starts_with(text: &str, words: &str) -> bool {
    let bytes = text.as_bytes();
    let same = bytes.get(..words.len()).is_some_and(|b| b.eq_ignore_ascii_case(words.as_bytes()));
    same && bytes.get(words.len()).is_none_or(|next| !next.is_ascii_alphanumeric())
}

/// The characters of `text` that no quotation marks enclose. A quotation that is not closed goes on
/// to the end; an apostrophe inside or behind a word begins none.
fn outside_quotes(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut closing = None;
    let mut previous = ' ';
    text.char_indices().filter(move |&(at, character)| {
        let before = std::mem::replace(&mut previous, character);
        match closing {
            Some(mark) => {
                let after = text[at + character.len_utf8()..].chars().next();
                let inside_word = mark == '\'' && after.is_some_and(char::is_alphanumeric);
                if character == mark && before != '\\' && !inside_word {
                    closing = None;
                }
                false
            }
            None => {
                closing = match character {
                    '"' | '\'' | '`' if !before.is_alphanumeric() => Some(character),
                    '\u{201c}' => Some('\u{201d}'),
                    _ => None,
                };
                closing.is_none()
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_clients_are_taken_off() {
        for (message, said) in [
            (
                "[GoogleGenerativeAI Error]: Error fetching from https://x/y: [403 Forbidden] No",
                "No",
            ),
            ("Error fetching from [403 Forbidden] Permission denied: Consumer", "Consumer"),
            ("400 INVALID_ARGUMENT. {'error': 1}", "{'error': 1}"),
            ("Error code: 401 - {'error': 1}", "{'error': 1}"),
            ("got status: 400 Bad Request. {}", "{}"),
            ("google.api_core.exceptions.InvalidArgument: 400 API key", "API key"),
            ("litellm.AuthenticationError: GeminiException - b'{}'", "b'{}'"),
            ("litellm.BadRequestError: VertexAIException BadRequestError - {}", "{}"),
            ("Errors were found", "Errors were found"),
            ("[{\"error\": 1}]", "[{\"error\": 1}]"),
            ("4000 tokens", "4000 tokens"),
        ] {
            assert_eq!(without_opening(message), said);
        }
    }

    #[test]
    fn a_claim_is_the_first_sentence_without_what_it_quotes() {
        let claimed = |text| claim(text).unwrap_or_default();
        assert_eq!(claimed("API Key not found. Please wait"), "api key not found");
        assert_eq!(
            claimed("Permission denied: Consumer 'api_key:x. y' has been suspended."),
            "consumer  has been suspended."
        );
        assert_eq!(claimed("Project's quota \"has been suspended"), "project's quota ");
        assert_eq!(claimed("Function x: API key not valid"), "");
    }

    #[test]
    fn json_in_a_message_counts_where_clients_put_it() {
        assert_eq!(embedded(" {\"a\": 1}\n"), Some("{\"a\": 1}\n"));
        assert_eq!(embedded("{\"a\": \"cut"), Some("{\"a\": \"cut"));
        assert_eq!(embedded("b'{\"a\": 1}\\n'"), Some("{\"a\": 1}\\n'"));
        assert_eq!(embedded("ApiError: see x[0]. [{\"a\": 1}]"), Some("[{\"a\": 1}]"));
        assert_eq!(
            embedded("403 x [links {\n a: \"b\"\n}\n]\n"),
            Some("[links {\n a: \"b\"\n}\n]\n")
        );
        for quoted in [
            "{\"a\": 1} is no model",
            "Tools must have a name, got {\"a\": 1}",
            "ApiError: the role \"{'a': 1}\" is unknown",
            "400 Invalid value at 'x' (TYPE_STRING), {\"a\": 1}",
            "ApiError: {\"a\": 1} is no role",
            "400 Tools must have a name, got {\"a\": 1}",
        ] {
            assert_eq!(embedded(quoted), None, "{quoted}");
        }
    }
}
