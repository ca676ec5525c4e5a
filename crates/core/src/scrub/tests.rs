use proptest::prelude::*;

use super::*;

const GOOGLE: &str = "AIzaSyEXAMPLE0000000000000000000000000001";

/// Scrubs with `key` known. Fails without showing the texts, which hold keys.
fn check(key: &str, cases: &[(&str, &str)]) {
    let known = ApiKey::new(key).unwrap();
    for (i, (text, expected)) in cases.iter().enumerate() {
        let text = text.replace("{}", key);
        assert!(scrub(&text, &[&known]) == *expected, "case {i}");
    }
}

// https://github.com/constellation-works/orbit/pull/490 and
// https://github.com/nyroway/nyro/issues/68: an error of the HTTP client printed the URL with its
// `?key=`, and a proxy returned it to its user.
#[test]
fn the_key_in_a_url_is_taken_out() {
    check(
        "kw-EXAMPLE-1",
        &[
            (
                "error for url (https://h/v1/models?key={}): timed out",
                "error for url (https://h/v1/models?key=[REDACTED]): timed out",
            ),
            (
                "https://h/v1/models?alt=sse&key={}&x=1",
                "https://h/v1/models?alt=sse&key=[REDACTED]&x=1",
            ),
        ],
    );
    for (text, expected) in [
        ("GET /v1?key=short failed", "GET /v1?key=[REDACTED] failed"),
        ("?alt=sse&key=a.b~c%2F/d#x", "?alt=sse&key=[REDACTED]#x"),
        ("?alt=sse\\u0026key=abc\"", "?alt=sse\\u0026key=[REDACTED]\""),
        ("u=%2Fv1%3Fkey%3Dabc", "u=%2Fv1%3Fkey%3D[REDACTED]"),
        ("a?x=1&amp;KEY=abc", "a?x=1&amp;KEY=[REDACTED]"),
    ] {
        assert_eq!(scrub(text, &[]), expected);
    }
}

// https://github.com/ortus-boxlang/bx-ai/pull/235, https://github.com/lijunzh/koda/issues/389,
// https://github.com/librefang/librefang/issues/5872: keys in debug and access logs.
#[test]
fn the_key_in_a_header_or_a_field_is_taken_out() {
    for (text, expected) in [
        ("x-goog-api-key: abcd1234efgh", "x-goog-api-key: [REDACTED]"),
        ("\"X-Goog-Api-Key\": \"abcd1234\"", "\"X-Goog-Api-Key\": \"[REDACTED]\""),
        ("{\\\"apiKey\\\":\\\"abcd1234\\\"}", "{\\\"apiKey\\\":\\\"[REDACTED]\\\"}"),
        ("Authorization: Bearer sk-abcd1234", "Authorization: Bearer [REDACTED]"),
        ("Consumer 'api_key:abcdEFGH' has", "Consumer 'api_key:[REDACTED]' has"),
        ("access_token=ya29.abcd", "access_token=[REDACTED]"),
    ] {
        assert_eq!(scrub(text, &[]), expected);
    }
}

// https://github.com/ultimatejimmy/xray.koplugin/issues/72: not by the `AIza` prefix alone.
#[test]
fn keys_of_both_google_forms_are_taken_out_whoever_owns_them() {
    for key in [GOOGLE, "AQ.EXAMPLE-key-1", "AQ.Ab8EXAMPLE_RN6K.second-part_9"] {
        for (before, after) in [
            ("", ""),
            ("key ", " here"),
            ("'", "'"),
            ("\"", "\","),
            ("(", ")."),
            ("x=", "&y"),
            ("\\n", "\\n"),
            ("%3D", "%26"),
            ("\\u003d", "\\u0026"),
            ("[", "]"),
            ("é", "é"),
            ("key:", ". Then"),
        ] {
            let text = format!("{before}{key}{after}");
            assert!(scrub(&text, &[]) == format!("{before}{REDACTED}{after}"), "{before}…{after}");
        }
    }
}

#[test]
fn a_known_key_is_taken_out_however_it_is_encoded() {
    check(
        "a/b+c=EXAMPLE\"d\\e",
        &[
            ("<{}>", "<[REDACTED]>"),
            ("<a%2Fb%2Bc%3DEXAMPLE%22d%5Ce>", "<[REDACTED]>"),
            ("<a%2fb+c%3dEXAMPLE%22d%5ce>", "<[REDACTED]>"),
            ("<a%252Fb%252Bc%253DEXAMPLE%2522d%255Ce>", "<[REDACTED]>"),
            ("<a\\/b+c=EXAMPLE\\\"d\\\\e>", "<[REDACTED]>"),
            ("<a\\\\/b\\u002bc\\u003DEXAMPLE\\\\\\\"d\\\\\\\\e>", "<[REDACTED]>"),
            ("<%61%2fb+c=EXAMPLE\"d\\e{}>", "<[REDACTED][REDACTED]>"),
            ("<a/b+c=EXAMPLF>", "<a/b+c=EXAMPLF>"),
        ],
    );
}

#[test]
fn a_short_key_is_taken_out_only_where_it_stands_alone() {
    check(
        "test",
        &[("test 'test' tests contest test", "[REDACTED] '[REDACTED]' tests contest [REDACTED]")],
    );
}

#[test]
fn of_keys_that_begin_alike_the_longest_is_taken_out() {
    let keys = ["kw-EXAMPLE-1", "kw-EXAMPLE-12"].map(|key| ApiKey::new(key).unwrap());
    let text = "kw-EXAMPLE-12, kw-EXAMPLE-1";
    assert!(scrub(text, &[&keys[0], &keys[1]]) == "[REDACTED], [REDACTED]", "a tail is left");
    assert!(scrub(text, &[&keys[1], &keys[0]]) == "[REDACTED], [REDACTED]", "a tail is left");
}

#[test]
fn a_key_cut_off_by_the_end_of_the_text_is_taken_out() {
    for key in [GOOGLE, "AQ.EXAMPLE-key-1", "sk-EXAMPLE-1"] {
        let known = ApiKey::new(key).unwrap();
        let text = format!("Consumer '{key}");
        for end in 0..=key.len() {
            let cut = &text[..text.len() - end];
            let scrubbed = scrub(cut, &[&known]);
            let left = scrubbed.strip_prefix("Consumer '").unwrap();
            assert!(left == REDACTED || left.len() < SHORTEST_CUT, "{end} characters cut off");
            // A key that is not known is told by its form, from the first character after it on.
            if let Some(form) = ["AIza", "AQ."].into_iter().find(|form| key.starts_with(form)) {
                let left = scrub(cut, &[]).into_owned();
                assert!(left.ends_with(REDACTED) || left.len() <= 10 + form.len(), "{end} cut off");
            }
        }
    }
}

#[test]
fn ordinary_text_is_left_alone_and_not_copied() {
    for text in [
        "",
        "You exceeded your current quota, please check your plan and billing details.",
        "* Quota exceeded for metric: generativelanguage.googleapis.com/generate_content_free_tier_requests, limit: 20",
        "Please pass a valid API key. Keys begin with AIza or AQ. and the FAQ.html#keys-and-quotas tells more.",
        "API key not valid. Please pass a valid API key. api_key: must not be empty; apikey: required",
        "Set the key=value pairs and use the primary_key=identifier; x-goog-api-key: missing",
        "Bearer tokens are not accepted here. See AIzaSy... and AQ.… for the forms.",
        "{\"error\":{\"code\":429,\"message\":\"retry in 36s\",\"details\":[{\"quotaValue\":\"20\"}]}}",
        "monkey=banana&donkey=carrot; keyboard, %41%42, \\u0041 \\n 100 %",
        "日本語のエラー。鍵は無効です。🔑",
        REDACTED,
    ] {
        assert!(matches!(scrub(text, &[]), Cow::Borrowed(same) if same == text), "{text}");
    }
}

#[test]
fn a_known_key_full_of_escapes_is_taken_out_as_it_is() {
    check("50%25EXAMPLE%", &[("({})", "([REDACTED])")]);
    check("EX\\\\\\AMPLE", &[("({})", "([REDACTED])")]);
}

fn percent(key: &str) -> String {
    key.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn json(key: &str) -> String {
    let quoted = serde_json::Value::from(key).to_string();
    quoted[1..quoted.len() - 1].replace('/', "\\/")
}

proptest! {
    #[test]
    fn no_text_keeps_a_known_key(key in "[!-$&-\\[\\]-~]{8,40}", before: String, after: String, form in 0..3) {
        let known = ApiKey::new(key.clone()).unwrap();
        let inside = match form { 0 => key.clone(), 1 => percent(&key), _ => json(&key) };
        let text = format!("{before}{inside}{after}");
        let scrubbed = scrub(&text, &[&known]);
        prop_assert!(!scrubbed.contains(&inside) || REDACTED.contains(&inside), "the key is still there");
        prop_assert!(scrubbed.contains(REDACTED));
    }

    #[test]
    fn scrubbing_twice_changes_nothing_more(text in "(AIza|AQ\\.|[?&]key=|api_key:|Bearer |[ -~é]|[0-9A-Za-z_-]{9,20}){0,12}") {
        let once = scrub(&text, &[]).into_owned();
        prop_assert_eq!(scrub(&once, &[]), once.as_str());
    }

    #[test]
    fn any_text_and_any_key_are_taken_without_panic(text: String, key in "[!-~]{1,9}") {
        let known = ApiKey::new(key).unwrap();
        let scrubbed = scrub(&text, &[&known]);
        prop_assert!(scrubbed.len() <= text.len() * REDACTED.len());
    }

    #[test]
    fn words_are_left_alone(text in "([a-z]{1,12}[ .,;:!?]{1,2}){0,20}") {
        prop_assert!(matches!(scrub(&text, &[]), Cow::Borrowed(_)));
    }
}
