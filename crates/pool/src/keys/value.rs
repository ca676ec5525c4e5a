//! From the text of a variable to a key, or to what is wrong with it.

use keywheel_core::ApiKey;

use super::report::Problem;

/// One key. `None`: there is nothing, which is how a variable is switched off. `instead` tells what
/// to do when there are several.
pub(super) fn key(text: &str, instead: &str) -> Option<Result<ApiKey, Problem>> {
    let value = trimmed(text);
    if value.is_empty() {
        return None;
    }
    if is_placeholder(value) {
        return Some(Err(Problem::Placeholder));
    }
    Some(checked(value, instead))
}

/// True if `key`, which was given in code, is one of an example's.
pub(super) fn is_example(key: &ApiKey) -> bool {
    is_placeholder(key.expose())
}

/// Several keys, with the place of each in the list, counted from 1.
///
/// Items are separated by commas, semicolons or line ends. Square brackets around the whole are
/// taken off, since some tools write lists as JSON. Empty items are passed over.
pub(super) fn list(text: &str) -> Vec<(usize, Result<ApiKey, Problem>)> {
    let text = trimmed(text);
    let text = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    let items =
        text.split([',', ';', '\n', '\r']).filter_map(|item| key(item, "commas between them"));
    items.enumerate().map(|(i, item)| (i + 1, item)).collect()
}

/// `text` without the quotes, spaces and invisible characters around it.
pub(super) fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || is_quote(c) || is_invisible(c))
}

fn checked(value: &str, instead: &str) -> Result<ApiKey, Problem> {
    // Several keys in one variable would become one key that no server knows, and the cause is hard
    // to see.
    if value.contains([',', ';']) || value.contains(char::is_whitespace) {
        return Err(Problem::SeveralKeys { instead: instead.into() });
    }
    if value.contains("://") {
        return Err(Problem::Address);
    }
    if value.contains(is_quote) {
        return Err(Problem::QuoteInside);
    }
    if value.contains(is_invisible) {
        return Err(Problem::Invisible);
    }
    ApiKey::new(value).map_err(Problem::Value)
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`' | '‘'..='‟' | '‹' | '›' | '«' | '»' | '′' | '″' | '＂' | '＇')
}

/// Zero-width and directional marks, soft hyphen, byte order mark.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}

/// Whole values that examples and templates leave behind, without case and punctuation.
const PLACEHOLDERS: [&str; 15] = [
    "apikey",
    "fixme",
    "geminiapikey",
    "googleapikey",
    "key",
    "mykey",
    "myapikey",
    "none",
    "null",
    "placeholder",
    "redacted",
    "secret",
    "tbd",
    "todo",
    "undefined",
];

/// Parts of values that no random key has, without case and punctuation.
const PLACEHOLDER_PARTS: [&str; 14] = [
    "changeme",
    "changethis",
    "enterkey",
    "enteryour",
    "fillin",
    "insertkey",
    "insertyour",
    "keyhere",
    "pastekey",
    "pasteyour",
    "replaceme",
    "replacethis",
    "replacewith",
    "yourapikey",
];

/// What keys begin with, longest first: an example often keeps it and fills the rest.
const KEY_BEGINNINGS: [&str; 7] = ["sk-proj-", "sk-ant-", "AIzaSy", "sk-or-", "AIza", "AQ.", "sk-"];

/// True for what stands in examples in place of a key: `your-key-here`, `changeme`, `<key>`, `xxx`,
/// `AIza...`, `sk-…`.
fn is_placeholder(value: &str) -> bool {
    let pairs = [('<', '>'), ('[', ']'), ('{', '}'), ('(', ')'), ('%', '%')];
    if pairs.into_iter().any(|(open, close)| value.starts_with(open) && value.ends_with(close))
        || value.starts_with("${")
        || value.contains("{{")
        || value.contains("...")
        || value.contains("***")
        || value.contains('…')
        || value.contains('•')
    {
        return true;
    }
    let rest = KEY_BEGINNINGS.iter().find_map(|begin| value.strip_prefix(begin)).unwrap_or(value);
    if rest.chars().all(|c| matches!(c, 'x' | 'X' | '.' | '*' | '-' | '_' | '?' | '#' | '0')) {
        return true;
    }
    let letters: String =
        value.chars().filter(|c| c.is_alphanumeric()).map(|c| c.to_ascii_lowercase()).collect();
    PLACEHOLDERS.contains(&letters.as_str())
        || PLACEHOLDER_PARTS.iter().any(|part| letters.contains(part))
        || (letters.starts_with("your") && letters.ends_with("key"))
        || letters.contains("xxxxxxxx")
}

#[cfg(test)]
mod tests {
    use keywheel_core::ApiKeyError;
    use proptest::prelude::*;

    use super::*;

    fn key(text: &str) -> Option<Result<ApiKey, Problem>> {
        super::key(text, "a list")
    }

    fn problem(text: &str) -> Option<Problem> {
        key(text).and_then(Result::err)
    }

    #[test]
    fn placeholders_are_refused() {
        for text in [
            "your-key-here",
            "YOUR_API_KEY",
            "your_gemini_api_key",
            "<your key>",
            "<KEY>",
            "changeme",
            "CHANGE_ME",
            "xxx",
            "XXXXXXXX",
            "...",
            "AIza...",
            "AIzaSyXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX",
            "AQ.…",
            "sk-...",
            "sk-xxxxxxxx",
            "sk-proj-xxxx",
            "sk-your-key-here",
            "replace-me",
            "todo",
            "TODO",
            "\"your-api-key\"",
            "***",
            "{{ gemini_key }}",
            "${GEMINI_KEY}",
            "[key]",
            "null",
            "REPLACE_WITH_KEY",
            "insert-your-key",
            "paste_key_here",
            "AIza-xxxxxxxxxxxx-x",
            "api-key",
            "--",
        ] {
            assert_eq!(problem(text), Some(Problem::Placeholder), "{text}");
        }
    }

    // https://github.com/ultimatejimmy/xray.koplugin/issues/72: keys of the new form begin with
    // `AQ.` and a check of the prefix refused them.
    #[test]
    fn keys_of_every_form_are_accepted() {
        for text in [
            "AIzaSyEXAMPLE0000000000000000000000000001",
            "AQ.EXAMPLE-key-1",
            "AQ.Ab8EXAMPLE_x0x0",
            "sk-EXAMPLE0123",
            "gsk_EXAMPLE",
            "dummy",
            "test",
            "k",
            "0123456789abcdef",
            "a/b+c==",
        ] {
            assert!(key(text).is_some_and(|key| key.is_ok()), "one of the forms is refused");
        }
    }

    #[test]
    fn what_surrounds_a_key_is_trimmed() {
        for text in [
            " AQ.EXAMPLE ",
            "\"AQ.EXAMPLE\"",
            "'AQ.EXAMPLE'\r\n",
            "“AQ.EXAMPLE”",
            "‘AQ.EXAMPLE’",
            "«AQ.EXAMPLE»",
            "„AQ.EXAMPLE“",
            "\u{feff}AQ.EXAMPLE",
            "\u{200b}AQ.EXAMPLE\u{200d}",
            "\u{a0}AQ.EXAMPLE\t",
            "`AQ.EXAMPLE`",
            "\" AQ.EXAMPLE \"",
        ] {
            let found = key(text).and_then(Result::ok);
            assert!(found.is_some_and(|key| key.expose() == "AQ.EXAMPLE"), "not trimmed");
        }
        for text in ["", "  ", "\"\"", "\u{feff}", "' '"] {
            assert_eq!(key(text), None, "nothing is left");
        }
    }

    #[test]
    fn what_is_wrong_inside_a_key_is_said() {
        let several = Some(Problem::SeveralKeys { instead: "a list".into() });
        assert_eq!(problem("AQ.EXAMPLE1 AQ.EXAMPLE2"), several);
        assert_eq!(problem("AQ.EXAMPLE1\nAQ.EXAMPLE2"), several);
        assert_eq!(problem("AQ.EXAMPLE1,AQ.EXAMPLE2"), several);
        assert_eq!(problem("AQ.EXA\"MPLE"), Some(Problem::QuoteInside));
        assert_eq!(problem("https://127.0.0.1:8080"), Some(Problem::Address));
        assert_eq!(problem("AQ.EXA\u{200b}MPLE"), Some(Problem::Invisible));
        assert_eq!(problem("AQ.EXA\u{7}MPLE"), Some(Problem::Value(ApiKeyError::ControlCharacter)));
        assert_eq!(problem("AQ.EXÄMPLE"), Some(Problem::Value(ApiKeyError::NotAscii)));
    }

    #[test]
    fn a_list_takes_commas_semicolons_line_ends_and_json() {
        for text in [
            "AQ.EXAMPLE1,AQ.EXAMPLE2;AQ.EXAMPLE3",
            "AQ.EXAMPLE1\nAQ.EXAMPLE2\r\n\r\nAQ.EXAMPLE3,",
            "[\"AQ.EXAMPLE1\", \"AQ.EXAMPLE2\",'AQ.EXAMPLE3']",
            " ; AQ.EXAMPLE1 ;, AQ.EXAMPLE2,AQ.EXAMPLE3",
        ] {
            let found: Vec<_> =
                list(text).into_iter().filter_map(|(n, key)| Some((n, key.ok()?))).collect();
            let expected = [1, 2, 3].map(|n| (n, ApiKey::new(format!("AQ.EXAMPLE{n}")).unwrap()));
            assert!(found == expected, "not split into three keys");
        }
    }

    proptest! {
        // 62 characters per place: what a refusal of real keys would look like.
        #[test]
        fn no_random_key_is_a_placeholder(tail in "[0-9A-Za-z_-]{35}") {
            let text = format!("AIza{tail}");
            prop_assert!(key(&text).is_some_and(|key| key.is_ok()));
        }

        #[test]
        fn any_text_is_taken_without_panic(text: String) {
            let _ = key(&text);
            prop_assert!(list(&text).into_iter().enumerate().all(|(i, (n, _))| n == i + 1));
        }
    }
}
