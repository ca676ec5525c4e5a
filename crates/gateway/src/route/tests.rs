use proptest::prelude::*;

use super::*;

const NATIVE: Dialect = Dialect::Native;

fn ask(method: &str, path: &str) -> Result<Route, Refusal> {
    parse(&method.parse().unwrap(), &path.parse().unwrap(), NATIVE)
}

fn post(path: &str) -> Route {
    ask("POST", path).unwrap_or_else(|refusal| panic!("{path}: {}", refusal.message))
}

fn get(path: &str) -> Route {
    ask("GET", path).unwrap_or_else(|refusal| panic!("{path}: {}", refusal.message))
}

/// Paths as the clients' sources build them, in both forms that a base URL has: with the version and without.
#[test]
fn what_official_clients_ask_for_is_understood() {
    let cases = [
        ("/v1beta/models/m:generateContent", Kind::Generate, "models/m:generateContent"),
        ("/models/m:generateContent", Kind::Generate, "models/m:generateContent"),
        ("/v1/models/m:generateContent", Kind::Generate, "/v1/models/m:generateContent"),
        ("/v1alpha/models/m:countTokens", Kind::CountTokens, "/v1alpha/models/m:countTokens"),
        ("/v1beta/tunedModels/t:generateContent", Kind::Generate, "tunedModels/t:generateContent"),
        ("/v1beta/models/m:streamGenerateContent", Kind::Stream, "models/m:streamGenerateContent"),
        ("/v1beta/models/m:embedContent", Kind::Embed, "models/m:embedContent"),
        ("/v1beta/models/m:batchEmbedContents", Kind::BatchEmbed, "models/m:batchEmbedContents"),
        ("/v1beta/models/m:batchGenerateContent", Kind::Batch, "models/m:batchGenerateContent"),
        ("/v1beta/models/m:asyncBatchEmbedContent", Kind::Batch, "models/m:asyncBatchEmbedContent"),
        ("/v1beta/models/m:predict", Kind::Image, "models/m:predict"),
        ("/v1beta/models/m:predictLongRunning", Kind::Video, "models/m:predictLongRunning"),
        ("/v1beta/models/m:verbOfTomorrow", Kind::OtherVerb, "models/m:verbOfTomorrow"),
        ("/v1beta/cachedContents", Kind::Caches, "cachedContents"),
        ("/v1beta/files:register", Kind::Files, "files:register"),
        ("/v1beta/batches/b:cancel", Kind::Batch, "batches/b:cancel"),
        ("/upload/v1beta/files", Kind::Upload, "/upload/v1beta/files"),
        ("/upload/files", Kind::Upload, "/upload/v1beta/files"),
        (
            "/upload/v1beta/fileSearchStores/s:uploadToFileSearchStore",
            Kind::Upload,
            "/upload/v1beta/fileSearchStores/s:uploadToFileSearchStore",
        ),
        (
            "/v1beta/fileSearchStores/s:importFile",
            Kind::FileSearch,
            "fileSearchStores/s:importFile",
        ),
        ("/v1beta/interactions", Kind::Interactions, "interactions"),
        ("/v1beta/interactions/i/cancel", Kind::Interactions, "interactions/i/cancel"),
        ("/v1beta/interactions/i/auth_tokens", Kind::AuthToken, "interactions/i/auth_tokens"),
        ("/v1alpha/auth_tokens", Kind::AuthToken, "/v1alpha/auth_tokens"),
        ("/v1beta/agents", Kind::Other, "agents"),
        ("/v1beta/openai/chat/completions", Kind::Chat, "openai/chat/completions"),
        ("/v1beta/openai/embeddings", Kind::Embeddings, "openai/embeddings"),
        ("/v1/chat/completions", Kind::Chat, "openai/chat/completions"),
        ("/chat/completions", Kind::Chat, "openai/chat/completions"),
        ("/openai/images/generations", Kind::Image, "openai/images/generations"),
        ("/v1beta/openai/videos", Kind::Video, "openai/videos"),
        ("/v1beta/openai/batches", Kind::Batch, "openai/batches"),
        ("/v1beta/openai/audio/transcriptions", Kind::OtherVerb, "openai/audio/transcriptions"),
    ];
    for (path, kind, call_path) in cases {
        let route = post(path);
        assert_eq!((route.kind, &*route.call_path("v1beta")), (kind, call_path), "{path}");
    }
    for (path, kind, call_path) in [
        ("/v1beta/models", Kind::Models, "models"),
        ("/v1beta/models/m", Kind::Models, "models/m"),
        ("/v1beta/models/", Kind::Models, "models"),
        ("/v1beta/models/m/operations/o", Kind::Operations, "models/m/operations/o"),
        ("/v1beta/operations/o", Kind::Operations, "operations/o"),
        ("/v1beta/files/f", Kind::Files, "files/f"),
        ("/v1beta/files/f:download?alt=media", Kind::Files, "files/f:download"),
        ("/download/v1beta/files/f:download", Kind::Files, "/download/v1beta/files/f:download"),
        (
            "/v1beta/fileSearchStores/s/documents/d",
            Kind::FileSearch,
            "fileSearchStores/s/documents/d",
        ),
        ("/v1beta/openai/models", Kind::Models, "openai/models"),
        ("/v1beta/openai/models/m", Kind::Models, "openai/models/m"),
        (
            "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent",
            Kind::Live,
            "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent",
        ),
    ] {
        let route = get(path);
        assert_eq!((route.kind, &*route.call_path("v1beta")), (kind, call_path), "{path}");
    }
}

/// Base URLs with what the client adds by itself, and OpenAI's newest route, which Google has not.
#[test]
fn a_base_url_that_is_wrong_is_told_the_right_one() {
    let told = |path: &str| {
        let head = http::Request::post(path).header("host", "gateway.example:8787");
        let refusal = of(&head.body(()).unwrap().into_parts().0, NATIVE).expect_err(path);
        assert_eq!(refusal.reason, Reason::UnknownRoute, "{path}");
        refusal.message
    };
    let gemini = "the base URL has a version too many: use http://gateway.example:8787";
    for path in [
        "/v1beta/v1/models/m:generateContent",
        "/v1/v1beta/models/m:generateContent",
        "/v1beta/v1beta/models/m:streamGenerateContent?alt=sse",
        "/v1beta/v1beta/models",
        "/v1beta/v1beta/files",
        "/v1beta/upload/v1beta/files",
    ] {
        assert_eq!(told(path), gemini, "{path}");
    }
    let of_project = told("/p/triage/v1beta/v1beta/models/m:generateContent");
    assert_eq!(of_project, format!("{gemini}/p/triage"));
    for path in [
        "/v1beta/openai/v1/chat/completions",
        "/v1beta/openai/v1/embeddings",
        "/v1beta/openai/v1/models",
        "/v1beta/v1/chat/completions",
        "/v1/v1beta/openai/chat/completions",
    ] {
        assert_eq!(told(path), format!("{gemini}/v1beta/openai/"), "{path}");
    }
    let other = told("/v1beta/openai/v1beta/models/m:generateContent");
    assert_eq!(
        other,
        "the base URL is that of OpenAI's clients: for Gemini's use http://gateway.example:8787"
    );
    for path in ["/responses", "/v1/responses", "/v1beta/openai/responses"] {
        assert_eq!(
            told(path),
            "/responses is not part of Google's OpenAI layer; use chat/completions"
        );
    }
    for path in ["/v1/responses", "/v1beta/openai/responses"] {
        let route = parse(&Method::POST, &path.parse().unwrap(), Dialect::OpenAi).unwrap();
        assert_eq!((&*route.path, route.dialect), ("responses", Dialect::OpenAi), "{path}");
    }
}

#[test]
fn model_verb_resource_and_dialect_are_told_apart() {
    let route = post("/v1beta/models/gemini-3.6-flash:streamGenerateContent?alt=sse");
    assert_eq!(route.model.as_deref(), Some("gemini-3.6-flash"));
    assert_eq!(route.verb.as_deref(), Some("streamGenerateContent"));
    assert_eq!((route.dialect, route.kind), (NATIVE, Kind::Stream));
    assert_eq!(route.query, [("alt".into(), "sse".into())]);
    assert!(!route.is_stateful());
    assert_eq!(post("/tunedModels/t:generateContent").model.as_deref(), Some("tunedModels/t"));
    assert_eq!(post("/v1beta/openai/chat/completions").dialect, Dialect::OpenAi);
    for (path, resource) in [
        ("/v1beta/files/f:download", Some("files/f")),
        ("/v1beta/models/m/operations/o", Some("models/m/operations/o")),
        ("/v1beta/openai/files/f/content", Some("files/f")),
        ("/v1beta/fileSearchStores/s/documents/d", Some("fileSearchStores/s")),
        ("/v1beta/cachedContents", None),
        ("/v1beta/models/m", None),
    ] {
        assert_eq!(get(path).resource.as_deref(), resource, "{path}");
    }
    assert!(get("/v1beta/files").is_stateful() && !get("/v1beta/models").is_stateful());
}

/// Some HTTP clients encode the colon of `x:generateContent`.
#[test]
fn an_encoded_colon_is_a_colon_and_goes_on_as_one() {
    for colon in [":", "%3A", "%3a"] {
        let route = post(&format!("/v1beta/models/m{colon}generateContent"));
        assert_eq!((route.kind, &*route.path), (Kind::Generate, "models/m:generateContent"));
    }
    let refusal = ask("POST", "/v1beta/models/m%253AgenerateContent").unwrap_err();
    assert_eq!(refusal.reason, Reason::BadPath, "decoded once, and no more");
}

#[test]
fn a_project_in_the_path_is_taken_off_it() {
    let route = post("/p/triage/v1beta/models/m:generateContent");
    assert_eq!(route.project.as_deref(), Some("triage"));
    assert_eq!(route.path, "models/m:generateContent");
    assert_eq!(post("/p/triage/v1beta/openai/chat/completions").path, "openai/chat/completions");
    for path in ["/p", "/p/", "/p/triage", "/p/triage/v1beta"] {
        assert_eq!(ask("GET", path).unwrap_err().reason, Reason::UnknownRoute, "{path}");
    }
    assert_eq!(ask("GET", "/p//models").unwrap_err().reason, Reason::BadPath);
}

/// The named tricks, each in the forms in which proxies have fallen for it.
#[test]
fn path_tricks_are_refused_whatever_they_ask_for() {
    for path in [
        "/v1beta/../admin",
        "/v1beta/./models",
        "/v1beta/%2e%2e/admin",
        "/v1beta/%2E./admin",
        "/v1beta/.../models",
        "/v1beta/models/..%2f..%2fadmin",
        "/v1beta/models%2Fm:generateContent",
        "/v1beta/models/m%2f:generateContent",
        "/v1beta/models/%5c%5cevil.example",
        "/v1beta//models",
        "//evil.example/v1beta/models",
        "/v1beta/models//",
        "/v1beta/models/@evil.example",
        "/v1beta/models/%40evil.example",
        "/v1beta/models/m%00:generateContent",
        "/v1beta/models/m%0d%0ahost:evil",
        "/v1beta/models/m%20",
        "/v1beta/models/m;x=1",
        "/v1beta/models/m%3fkey=1",
        "/v1beta/models/m%23",
        "/v1beta/models/m%252e%252e",
        "/v1beta/models/%zz",
        "/v1beta/models/%2",
        "/v1beta/models/%c3%28",
        "/v1beta/models/%c3%a9",
        "/v1beta/models/:generateContent",
        "/v1beta/models/m:",
        "/v1beta/models/m:a:b",
    ] {
        let refusal = ask("POST", path).expect_err(path);
        assert_eq!(refusal.reason, Reason::BadPath, "{path}");
    }
    let long = format!("/v1beta/models/{}", "m".repeat(300));
    assert_eq!(ask("GET", &long).unwrap_err().reason, Reason::BadPath);
    let deep = format!("/v1beta{}", "/a".repeat(40));
    assert_eq!(ask("GET", &deep).unwrap_err().reason, Reason::BadPath);
    for path in
        ["/", "/v1beta", "/v2/models:generateContent/x", "/ws/evil.example", "/v1beta/openai"]
    {
        assert_eq!(ask("GET", path).expect_err(path).reason, Reason::UnknownRoute, "{path}");
    }
}

#[test]
fn a_whole_url_makes_no_proxy_of_the_gateway() {
    for uri in ["http://evil.example/v1beta/models", "https://127.0.0.1/v1beta/models"] {
        assert_eq!(ask("GET", uri).unwrap_err().reason, Reason::BadPath, "{uri}");
    }
    assert_eq!(ask("CONNECT", "evil.example:443").unwrap_err().reason, Reason::BadPath);
    assert_eq!(ask("OPTIONS", "*").unwrap_err().reason, Reason::BadPath);
    // In HTTP/2 every address has a host, which the check of `Host` sees.
    let uri = "http://gateway.internal/v1beta/models?pageSize=5";
    let head = |version| http::Request::get(uri).version(version).body(()).unwrap().into_parts().0;
    let route = of(&head(HttpVersion::HTTP_2), NATIVE).unwrap();
    assert_eq!((&*route.path, route.query.len()), ("models", 1));
    assert!(of(&head(HttpVersion::HTTP_11), NATIVE).is_err());
}

#[test]
fn no_credential_and_nothing_that_steers_stays_in_the_query() {
    let query = "key=k&$key=k&access_token=a&alt=sse&%6Bey=k&Key=k&pageToken=a%2Bb+c&flag&api_key=";
    let route = get(&format!("/v1beta/models?{query}"));
    let left: Vec<_> = route.query.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(left, [("alt", "sse"), ("pageToken", "a+b c"), ("flag", "")]);
    assert_eq!(credentials(query).collect::<Vec<_>>(), ["k", "k", "a", "k", "k"]);
    for query in [
        "$httpHeaders=authorization%3Ax",
        "$httpMethod=DELETE",
        "httpMethod=DELETE",
        "_method=DELETE",
        "X-HTTP-Method-Override=DELETE",
        "a=%00",
        "a=%0d%0a",
        "a=%ff",
        "%zz=1",
    ] {
        let refusal = ask("GET", &format!("/v1beta/models?{query}")).expect_err(query);
        assert_eq!(refusal.reason, Reason::BadPath, "{query}");
    }
    let many = format!("/v1beta/models?{}", "a=1&".repeat(100));
    assert_eq!(ask("GET", &many).unwrap_err().reason, Reason::BadPath);
}

#[test]
fn an_upstream_of_openais_dialect_gets_paths_below_its_base_url() {
    let ask = |path: &str| parse(&Method::POST, &path.parse().unwrap(), Dialect::OpenAi);
    for path in ["/v1beta/openai/chat/completions", "/v1/chat/completions", "/chat/completions"] {
        let route = ask(path).unwrap();
        assert_eq!((&*route.call_path(""), route.kind), ("chat/completions", Kind::Chat), "{path}");
        assert_eq!(route.dialect, Dialect::OpenAi);
    }
    assert_eq!(ask("/v1/models").unwrap().call_path(""), "models");
    for path in ["/v1beta/models/m:generateContent", "/upload/v1beta/files"] {
        assert_eq!(ask(path).unwrap_err().reason, Reason::UnknownRoute, "{path}");
    }
}

#[test]
fn what_cannot_be_bounded_is_named_and_ending_it_is_free() {
    for (path, background, unbounded) in [
        ("/v1beta/models/m:batchGenerateContent", false, Some(Unbounded::Batches)),
        ("/v1beta/openai/batches", false, Some(Unbounded::Batches)),
        ("/v1beta/batches/b:cancel", false, None),
        ("/v1beta/models/m:predict", false, Some(Unbounded::Images)),
        ("/v1beta/models/m:predictLongRunning", false, Some(Unbounded::Videos)),
        ("/v1beta/interactions", false, None),
        ("/v1beta/interactions", true, Some(Unbounded::Interactions)),
        ("/v1beta/interactions/i/cancel", true, None),
        ("/v1beta/fileSearchStores", false, None),
        ("/v1beta/fileSearchStores/s:importFile", false, Some(Unbounded::FileSearch)),
        (
            "/upload/v1beta/fileSearchStores/s:uploadToFileSearchStore",
            false,
            Some(Unbounded::FileSearch),
        ),
        ("/upload/v1beta/fileSearchStores/s:uploadToFileSearchStore?upload_id=u", false, None),
        ("/upload/v1beta/files", false, None),
        ("/v1beta/auth_tokens", false, Some(Unbounded::AuthTokens)),
        ("/v1beta/models/m:verbOfTomorrow", false, Some(Unbounded::Other)),
        ("/v1beta/agents", false, Some(Unbounded::Other)),
        ("/v1beta/models/m:generateContent", false, None),
        ("/v1beta/openai/chat/completions", false, None),
        ("/v1beta/models/m:countTokens", false, None),
    ] {
        assert_eq!(post(path).unbounded(background), unbounded, "{path}");
        // A verb is not looked at.
        if let Ok(route) = ask("GET", path) {
            assert_eq!(route.unbounded(background), None, "to look at {path} is free");
        }
    }
}

/// `PUT …:predict` would be charged nothing, and refused to no budget.
#[test]
fn a_route_is_asked_by_its_own_methods_alone() {
    const MODEL: &str = "/v1beta/models/m";
    let verb = |verb: &str| format!("{MODEL}:{verb}");
    for (path, allowed) in [
        (verb("generateContent"), "POST"),
        (verb("predict"), "POST"),
        (verb("predictLongRunning"), "POST"),
        (verb("verbOfTomorrow"), "POST"),
        ("/v1beta/batches/b:cancel".to_owned(), "POST"),
        ("/upload/v1beta/fileSearchStores/s:uploadToFileSearchStore".to_owned(), "POST"),
        (
            "/upload/v1beta/fileSearchStores/s:uploadToFileSearchStore?upload_id=u".to_owned(),
            "GET, HEAD, POST, PUT, DELETE",
        ),
        ("/v1beta/files/f:download".to_owned(), "GET, HEAD"),
        ("/v1beta/files/f".to_owned(), "GET, HEAD, POST, PUT, PATCH, DELETE"),
        ("/v1beta/cachedContents/c".to_owned(), "GET, HEAD, POST, PUT, PATCH, DELETE"),
        ("/v1beta/operations/o".to_owned(), "GET, HEAD, POST, PUT, PATCH, DELETE"),
        ("/v1beta/openai/chat/completions".to_owned(), "GET, HEAD, POST, DELETE"),
        ("/v1beta/openai/images/generations".to_owned(), "GET, HEAD, POST, DELETE"),
    ] {
        for method in [
            "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "post",
        ] {
            let asked = ask(method, &path);
            if allowed.split(", ").any(|own| own == method) {
                assert!(asked.is_ok(), "{method} {path}");
                continue;
            }
            let refusal = asked.expect_err(&format!("{method} {path}"));
            assert_eq!((refusal.reason, refusal.allow), (Reason::WrongMethod, Some(allowed)));
        }
    }
}

#[test]
fn a_name_of_a_route_is_a_name_once() {
    let names: std::collections::HashSet<_> =
        Unbounded::ALL.iter().map(|(_, route)| route.as_str()).collect();
    assert_eq!(names.len(), Unbounded::ALL.len());
    for (name, route) in Unbounded::ALL {
        assert_eq!(name, route.as_str());
    }
}

/// Pieces that attackers are fond of, between pieces of routes.
fn piece() -> impl Strategy<Value = String> {
    const WORDS: &[&str] = &[
        "v1",
        "v1beta",
        "v1alpha",
        "models",
        "m",
        "files",
        "openai",
        "upload",
        "download",
        "p",
        "chat",
        "ws",
        ":generateContent",
        "/",
        "/",
        "/",
        "//",
        ".",
        "..",
        "%2e",
        "%2f",
        "%2F",
        "%5c",
        "\\",
        "@",
        "%40",
        ":",
        "%3a",
        "%253a",
        "%00",
        "%0a",
        ";",
        "evil.example",
        ":443",
        "http://",
        "%",
        "~",
        "-",
    ];
    prop_oneof![8 => prop::sample::select(WORDS).prop_map(str::to_owned), 1 => "[ -~]{1,3}"]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// A URL parser that normalises (WHATWG) finds in what goes upstream the host that we meant and the path that we
    /// wrote, below one of the API's own prefixes.
    #[test]
    fn no_path_reaches_another_host_or_leaves_the_version(
        pieces in prop::collection::vec(piece(), 0..12),
        slash in any::<bool>(),
        openai in any::<bool>(),
    ) {
        let text = format!("{}{}", if slash { "/" } else { "" }, pieces.concat());
        let Ok(uri) = text.parse::<Uri>() else { return Ok(()) };
        let upstream = if openai { Dialect::OpenAi } else { NATIVE };
        let Ok(route) = parse(&Method::POST, &uri, upstream) else { return Ok(()) };
        let path = route.call_path("v1beta");
        let written = if path.starts_with('/') { path } else { format!("/v1beta/{path}") };
        let url = reqwest::Url::parse(&format!("https://upstream.invalid/root{written}")).unwrap();
        prop_assert_eq!(url.host_str(), Some("upstream.invalid"));
        prop_assert_eq!(url.port(), None);
        prop_assert_eq!(url.username(), "");
        prop_assert_eq!(url.path(), format!("/root{written}"));
        let prefixes = ["/v1/", "/v1beta/", "/v1alpha/", "/upload/v1", "/download/v1", "/ws/google."];
        prop_assert!(prefixes.iter().any(|prefix| written.starts_with(prefix)), "{}", written);
        let safe = |c: char| c.is_ascii_alphanumeric() || "-._~:/".contains(c);
        prop_assert!(written.chars().all(safe), "{}", written);
        prop_assert!(!written.contains("//"));
        prop_assert!(written.split('/').all(|segment| segment.is_empty() || segment.chars().any(|c| c != '.')));
        // Only what the path named is a project or a model: nothing is made up of two segments.
        prop_assert!(route.project.is_none_or(|project| !project.contains('/')));
    }

    /// No query, however encoded, carries a credential on.
    #[test]
    fn no_query_carries_a_credential_on(name in "\\$?(k|K|%6b|%4B)(e|%65)(y|%59)", value in "[a-z]{1,8}") {
        let text = format!("/v1beta/models?a=1&{name}={value}&b=2");
        let route = get(&text);
        prop_assert_eq!(route.query.len(), 2);
        let query = &text[text.find('?').unwrap() + 1..];
        prop_assert_eq!(credentials(query).collect::<Vec<_>>(), vec![value]);
    }

    /// Whatever the bytes, parsing answers.
    #[test]
    fn any_uri_is_answered(text in "\\PC{0,40}") {
        if let Ok(uri) = text.parse::<Uri>() {
            let _ = parse(&Method::GET, &uri, NATIVE).map(|route| route.call_path("v1"));
        }
    }
}
