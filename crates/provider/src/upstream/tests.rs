use std::{collections::HashMap, sync::Mutex};

use proptest::prelude::*;

use super::*;
use crate::{Sent, TransportKind, testing::Script};

const SECRET: &str = "AIzaSyEXAMPLE0000000000000000000000000001";

fn key() -> ApiKey {
    ApiKey::new(SECRET).unwrap()
}

fn at(base: &str) -> Upstream {
    Upstream::new(base, Arc::new(Script::new())).unwrap()
}

fn url(upstream: &Upstream, path: &str) -> String {
    upstream.url(&Call::get(path)).unwrap()
}

#[test]
fn a_version_is_put_in_once_whatever_the_base_url_ends_in() {
    for (base, expected) in [
        (
            "https://generativelanguage.googleapis.com",
            "https://generativelanguage.googleapis.com/v1beta/models/x",
        ),
        ("https://host/", "https://host/v1beta/models/x"),
        ("https://host///", "https://host/v1beta/models/x"),
        ("https://host/v1beta", "https://host/v1beta/models/x"),
        ("https://host/v1beta/", "https://host/v1beta/models/x"),
        ("https://host/v1", "https://host/v1/models/x"),
        ("https://host/v1alpha/", "https://host/v1alpha/models/x"),
        ("http://127.0.0.1:8787/p/triage", "http://127.0.0.1:8787/p/triage/v1beta/models/x"),
        ("http://[::1]:8787/p/triage/v1", "http://[::1]:8787/p/triage/v1/models/x"),
        ("https://host/v1-proxy", "https://host/v1-proxy/v1beta/models/x"),
        ("https://host/vault", "https://host/vault/v1beta/models/x"),
        ("  https://host/v1beta\n", "https://host/v1beta/models/x"),
    ] {
        assert_eq!(url(&at(base), "models/x"), expected, "{base:?}");
    }
}

#[test]
fn a_version_that_was_set_wins_over_the_base_url() {
    let upstream = at("https://host/v1beta").with_version("v1").unwrap();
    assert_eq!(url(&upstream, "models"), "https://host/v1/models");
    let bare = at("https://host").with_version("").unwrap();
    assert_eq!(url(&bare, "models"), "https://host/models");
    for bad in ["v1/..", "..", "v1?x", "v 1", "v1%2f"] {
        assert_eq!(
            at("https://host").with_version(bad).unwrap_err(),
            BadUpstream::Version,
            "{bad:?}"
        );
    }
}

#[test]
fn a_path_from_the_root_has_no_version() {
    assert_eq!(
        url(&at("https://host/v1beta/"), "/upload/v1beta/files"),
        "https://host/upload/v1beta/files"
    );
    assert_eq!(url(&at("https://host/p"), "/v1/models"), "https://host/p/v1/models");
}

#[test]
fn openai_keeps_its_base_url_as_it_is() {
    let upstream = at("https://api.openai.com/v1/").with_dialect(Dialect::OpenAi);
    assert_eq!(url(&upstream, "chat/completions"), "https://api.openai.com/v1/chat/completions");
    let google = at("https://host/v1beta/openai").with_dialect(Dialect::OpenAi);
    assert_eq!(url(&google, "chat/completions"), "https://host/v1beta/openai/chat/completions");
}

#[test]
fn calls_of_other_providers_go_where_theirs_go_with_a_bearer_token() {
    for (base, provider, path) in [
        ("https://api.groq.com/openai/v1", OpenAiApi::new(), "/openai/v1/chat/completions"),
        ("https://openrouter.ai/api/v1/", OpenAiApi::new(), "/api/v1/chat/completions"),
        ("http://127.0.0.1:11434/v1", OpenAiApi::new(), "/v1/chat/completions"),
        (
            "https://generativelanguage.googleapis.com/v1beta/openai/",
            OpenAiApi::google(),
            "/v1beta/openai/chat/completions",
        ),
    ] {
        let upstream = at(base).with_provider(Arc::new(provider));
        let call = upstream.provider().generate("vendor/model:free", &"x".into()).unwrap();
        let request = upstream.request(&key(), &call).unwrap();
        let url: Uri = request.url.parse().unwrap();
        assert_eq!(url.path(), path);
        assert!(request.headers["authorization"].as_bytes().starts_with(b"Bearer "));
        assert!(!request.headers.contains_key("x-goog-api-key"), "{base}");
        let one = upstream.provider().model("vendor/model:free").unwrap();
        assert!(upstream.url(&one).unwrap().ends_with("/models/vendor/model:free"));
    }
    assert_eq!(
        at("https://host").with_provider(Arc::new(OpenAiApi::google())).dialect(),
        Dialect::Gemini
    );
}

#[test]
fn names_of_models_of_other_providers_cannot_lead_elsewhere_either() {
    let upstream = at("https://host/v1").with_dialect(Dialect::OpenAi);
    for bad in ["../files", "a/../b", "a//b", "/a", "a/", "a?b", "a#b", "a%2fb", "a@b", "a\\b"] {
        let call = upstream.provider().model(bad);
        assert!(call.is_err() || upstream.url(&call.unwrap()).is_err(), "{bad:?}");
    }
}

#[test]
fn base_urls_that_cannot_be_used_are_refused_without_repeating_them() {
    for bad in [
        "",
        "host",
        "/v1beta",
        "ftp://host",
        "file:///etc/passwd",
        "https://",
        "https://user:hunter2@host",
        "https://host?key=hunter2",
        "https://host/#hunter2",
        "https://host/a/../b",
        "https://host/%2e%2e",
        "https://ho st",
        "http://127.0.0.1:42889.",
        "http://host:99999",
        "http://:80",
        "https://host/hunter2\\x",
        "javascript:alert(1)",
    ] {
        let error = Upstream::new(bad, Arc::new(Script::new())).unwrap_err();
        let printed = format!("{error} {error:?}");
        assert!(!printed.contains("hunter2"), "{bad:?} was repeated");
        assert!(printed.starts_with("the base URL "), "{printed}");
    }
}

#[test]
fn models_are_named_with_or_without_their_collection() {
    for (name, expected) in [
        ("gemini-3.5-flash-lite", "models/gemini-3.5-flash-lite:generateContent"),
        ("models/gemini-3.5-flash-lite", "models/gemini-3.5-flash-lite:generateContent"),
        ("tunedModels/my_model-1", "tunedModels/my_model-1:generateContent"),
    ] {
        assert_eq!(Call::generate(name, &"x".into()).unwrap().path, expected);
    }
    let stream = Call::stream("x", &"hi".into()).unwrap();
    let google = Upstream::google(Arc::new(Script::new()));
    // The colon is raw: Google does not know an encoded one.
    assert_eq!(
        google.url(&stream).unwrap(),
        format!("{GOOGLE}/v1beta/models/x:streamGenerateContent?alt=sse")
    );
    assert_eq!(Call::model("x").unwrap().path, "models/x");
}

#[test]
fn model_names_cannot_lead_elsewhere() {
    for bad in [
        "",
        "models/",
        "..",
        ".",
        "../files",
        "models/..",
        "models/../files",
        "x/../../y",
        "x%2f..",
        "x?y=1",
        "x#y",
        "x:deleteEverything",
        "a b",
        "x\\y",
        "x@host",
        "files/x",
        "a/b/c",
        "x\n",
        "\u{e9}",
        "//host/x",
        &"x".repeat(201),
    ] {
        let error = Call::generate(bad, &"x".into()).unwrap_err();
        assert!(matches!(error, CallError::Model(_)), "{bad:?}: {error}");
        assert!(error.to_string().len() < 500);
    }
}

#[test]
fn a_key_in_the_place_of_a_name_is_refused_without_repeating_it() {
    for key in
        [SECRET, "AQ.EXAMPLE-key-of-somebody", &format!("{SECRET}\n"), &format!("files/{SECRET}")]
    {
        let openai = OpenAiApi::new();
        let google = Upstream::google(Arc::new(Script::new()));
        let errors = [
            Call::generate(key, &"x".into()).err(),
            Call::stream(key, &"x".into()).err(),
            Call::embed_batch(key, &["x".into()]).err(),
            Call::model(key).err(),
            Call::file(key).err(),
            Call::delete_cache(key).err(),
            openai.generate(key, &"x".into()).err(),
            openai.model(key).err(),
            google.url(&Call::get(key)).err(),
        ];
        for (at, error) in errors.into_iter().enumerate() {
            let error = error.unwrap();
            assert!(!format!("{error} {error:?}").contains("EXAMPLE"), "a key was repeated: {at}");
        }
    }
}

#[test]
fn paths_cannot_lead_elsewhere() {
    let upstream = at("https://host");
    for bad in [
        "",
        "/",
        "//evil.example/x",
        "a//b",
        "a/",
        "..",
        "a/../b",
        "a/./b",
        "a/.../b",
        "%2e%2e/a",
        "a%2fb",
        "a\\b",
        "a@b",
        "a?b",
        "a#b",
        "a b",
        "a\r\nhost: evil",
        "caf\u{e9}",
    ] {
        assert!(matches!(upstream.url(&Call::get(bad)), Err(CallError::Path(_))), "{bad:?}");
    }
}

#[test]
fn queries_are_encoded_and_credentials_in_them_refused() {
    let upstream = at("https://host");
    let call = Call::models().with_query("pageToken", "a b&c=d/\u{e9}").with_query("pageSize", "1");
    assert_eq!(
        upstream.url(&call).unwrap(),
        "https://host/v1beta/models?pageToken=a%20b%26c%3Dd%2F%C3%A9&pageSize=1"
    );
    for name in ["key", "KEY", " key", "$key", "access_token", "api_key"] {
        let call = Call::models().with_query(name, SECRET);
        assert!(upstream.url(&call) == Err(CallError::Credential), "{name:?}");
    }
    // Whatever it is called.
    let call = Call::models().with_query("other", SECRET);
    assert!(upstream.request(&key(), &call).err() == Some(CallError::Credential));
    let call = Call::get(format!("models/{SECRET}"));
    assert!(upstream.request(&key(), &call).err() == Some(CallError::Credential));
}

#[test]
fn exactly_one_credential_goes_out_marked_sensitive() {
    let call = Call::post("models/x:generateContent", "{}")
        .with_header(GOOGLE_KEY, HeaderValue::from_static("AQ.EXAMPLE-other"))
        .with_header(AUTHORIZATION, HeaderValue::from_static("Bearer AQ.EXAMPLE-other"))
        .with_header(http::header::COOKIE, HeaderValue::from_static("AQ.EXAMPLE-other"))
        .with_header(http::header::HOST, HeaderValue::from_static("evil.example"))
        .with_header(
            HeaderName::from_static("x-http-method-override"),
            HeaderValue::from_static("DELETE"),
        )
        .with_header(
            HeaderName::from_static("x-goog-user-project"),
            HeaderValue::from_static("other"),
        )
        .with_header(HeaderName::from_static("api-revision"), HeaderValue::from_static("2026"));
    let compat = Call::post("openai/chat/completions", "{}");
    for (upstream, call, name, value) in [
        (at("https://host"), &call, "x-goog-api-key", SECRET.to_owned()),
        (at("https://host"), &compat, "authorization", format!("Bearer {SECRET}")),
        (
            at("https://host").with_dialect(Dialect::OpenAi),
            &call,
            "authorization",
            format!("Bearer {SECRET}"),
        ),
    ] {
        let request = upstream.request(&key(), call).unwrap();
        let sent = &request.headers[name];
        assert!(sent.as_bytes() == value.as_bytes(), "another credential in {name}");
        assert!(sent.is_sensitive());
        let credentials =
            request.headers.values().filter(|v| v.as_bytes().ends_with(SECRET.as_bytes()));
        assert_eq!(credentials.count(), 1);
        assert!(
            !request.headers.values().any(|v| v.as_bytes().ends_with(b"other")),
            "a caller's own went out"
        );
        assert!(
            !request.headers.contains_key("host")
                && !request.headers.contains_key("x-http-method-override")
        );
        assert_eq!(request.headers["content-type"], "application/json");
    }
    let request = at("https://host").request(&key(), &call).unwrap();
    assert_eq!(request.headers["api-revision"], "2026", "unknown headers are passed on");
}

// https://github.com/constellation-works/orbit/pull/490 and https://github.com/nyroway/nyro/issues/68: the key was
// in the URL and so in every error. https://github.com/librefang/librefang/issues/5872: it was in debug output.
#[tokio::test]
async fn no_url_and_no_text_holds_the_key() {
    #[derive(Debug, Default)]
    struct Failing(Mutex<Vec<String>>);
    impl Transport for Failing {
        fn send(
            &self,
            request: WireRequest,
        ) -> BoxFuture<'static, Result<WireResponse, TransportError>> {
            self.0.lock().unwrap().push(format!("{request:?} {}", request.url));
            future::err(TransportError::new(TransportKind::Interrupted, Sent::Maybe, "broken"))
                .boxed()
        }
    }
    let transport = Arc::new(Failing::default());
    for dialect in [Dialect::Gemini, Dialect::OpenAi] {
        let upstream = Upstream::new("https://host", Arc::clone(&transport) as _)
            .unwrap()
            .with_dialect(dialect);
        let call = Call::generate("gemini-x", &SECRET.into()).unwrap();
        let leaking = Call::models().with_query("x", SECRET);
        let sent = upstream.call(&key(), &call).await.unwrap_err();
        let refused = upstream.call(&key(), &leaking).await.unwrap_err();
        assert_eq!((refused.kind, refused.sent), (TransportKind::Request, Sent::No));
        let printed = format!(
            "{upstream:?} {call:?} {leaking:?} {sent} {sent:?} {refused} {refused:?} {:?} {:?}",
            key(),
            transport.0.lock().unwrap()
        );
        assert!(!printed.contains(SECRET), "a key was printed for {dialect}");
    }
    assert_eq!(transport.0.lock().unwrap().len(), 2, "what leaks was never sent");
}

#[test]
fn the_environment_names_the_base_url() {
    let of = |variables: &[(&str, &str)]| {
        let variables: HashMap<_, _> = variables.iter().copied().collect();
        Upstream::base_url_from(|name: &str| variables.get(name).map(|&value| value.to_owned()))
    };
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[("GOOGLE_GEMINI_BASE_URL", "http://b")]).as_deref(), Some("http://b"));
    let both = [("GOOGLE_GEMINI_BASE_URL", "http://b"), ("GEMINI_BASE_URL", " http://a ")];
    assert_eq!(of(&both).as_deref(), Some("http://a"));
    let empty = [("GOOGLE_GEMINI_BASE_URL", "http://b"), ("GEMINI_BASE_URL", " ")];
    assert_eq!(of(&empty).as_deref(), Some("http://b"));
}

proptest! {
    #[test]
    fn whatever_is_accepted_stays_under_the_base_url(
        model in "(models/|tunedModels/)?[a-z0-9./%:?#@\\\\ _-]{0,12}",
        path in "[a-z0-9./%:?#@\\\\ _-]{0,16}",
        query in ".{0,8}",
    ) {
        let upstream = at("https://host/base");
        let calls = [Call::generate(&model, &"x".into()).ok(), Some(Call::get(path))];
        for call in calls.into_iter().flatten() {
            let call = call.with_query("q", query.clone());
            let Ok(url) = upstream.url(&call) else { continue };
            let parsed: Uri = url.parse().unwrap();
            prop_assert_eq!(parsed.authority().unwrap().as_str(), "host");
            prop_assert!(parsed.path().starts_with("/base/"));
            prop_assert!(!parsed.path().split('/').any(|s| s.starts_with('.') && s.trim_matches('.').is_empty()));
            prop_assert_eq!(url.matches('?').count(), 1);
        }
    }
}
