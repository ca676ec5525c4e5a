use http::{Method, Request, Version};
use keywheel::ledger::AccountId;
use proptest::prelude::*;

use super::*;
use crate::{route::Dialect, token::Token};

const MODEL: &str = "/v1beta/models/m:generateContent";

fn loopback() -> SocketAddr {
    "127.0.0.1:50000".parse().unwrap()
}

fn far() -> SocketAddr {
    "203.0.113.7:50000".parse().unwrap()
}

/// Three projects: the first two share a token, the third has its own.
struct Fixture {
    projects: Projects,
    access: Access,
    both: Token,
    own: Token,
}

impl Fixture {
    fn new() -> Self {
        let (both, own) = (Token::random().unwrap(), Token::random().unwrap());
        let project = |name: &str, token: &Token| Project {
            tokens: vec![token.hash()],
            ..Project::new(AccountId::new(name).unwrap())
        };
        let projects = Projects::new([
            project("triage", &both),
            project("batch", &both),
            project("other", &own),
        ]);
        Self { projects, access: Access { tokens: true, ..Access::default() }, both, own }
    }

    fn open() -> Self {
        Self { access: Access::default(), ..Self::new() }
    }

    fn ask(&self, uri: &str, headers: &[(&str, &str)]) -> Result<String, Refusal> {
        self.ask_from(far(), uri, headers)
    }

    fn ask_from(
        &self,
        peer: SocketAddr,
        uri: &str,
        headers: &[(&str, &str)],
    ) -> Result<String, Refusal> {
        let mut request = Request::post(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.identify(peer, request.body(()).unwrap().into_parts().0)
    }

    fn identify(&self, peer: SocketAddr, head: Parts) -> Result<String, Refusal> {
        let route = route::of(&head, Dialect::Native).unwrap();
        let asker = identify(&head, peer, &route, &self.projects, &self.access)?;
        Ok(asker.project.name.as_str().to_owned())
    }
}

fn reason<T: fmt::Debug>(outcome: Result<T, Refusal>) -> Reason {
    outcome.unwrap_err().reason
}

/// https://github.com/BerriAI/litellm/issues/18604
#[test]
fn a_token_is_taken_wherever_clients_show_it() {
    let it = Fixture::new();
    let token = it.own.expose();
    let bearer = format!("Bearer {token}");
    for (uri, headers) in [
        (MODEL.to_owned(), vec![("x-goog-api-key", token)]),
        (format!("{MODEL}?key={token}"), vec![]),
        (format!("{MODEL}?alt=sse&$key={token}"), vec![]),
        (MODEL.to_owned(), vec![("authorization", &*bearer)]),
        (MODEL.to_owned(), vec![("authorization", &*bearer), ("x-goog-api-key", token)]),
        // Gemini's CLI sends an empty one when it has none.
        (MODEL.to_owned(), vec![("authorization", &*bearer), ("x-goog-api-key", "")]),
    ] {
        assert_eq!(it.ask(&uri, &headers).unwrap(), "other");
    }
    let lower = format!("bearer  {token}");
    assert_eq!(it.ask(MODEL, &[("authorization", &lower)]).unwrap(), "other");
}

#[test]
fn two_different_credentials_are_refused_and_neither_is_repeated() {
    let it = Fixture::new();
    let (a, b) = (it.own.expose(), it.both.expose());
    let bearer = format!("Bearer {b}");
    for (uri, headers) in [
        (MODEL.to_owned(), vec![("x-goog-api-key", a), ("authorization", &*bearer)]),
        (format!("{MODEL}?key={b}"), vec![("x-goog-api-key", a)]),
        (format!("{MODEL}?key={a}&key={b}"), vec![]),
        (format!("{MODEL}?key={a}&%6bey={b}"), vec![]),
        (MODEL.to_owned(), vec![("x-goog-api-key", a), ("x-goog-api-key", b)]),
    ] {
        let refusal = it.ask(&uri, &headers).unwrap_err();
        assert_eq!((refusal.reason, refusal.status.as_u16()), (Reason::TwoCredentials, 400));
        let shown = format!("{refusal:?}");
        assert!(!shown.contains(a) && !shown.contains(b), "a refusal repeats a token");
    }
}

#[test]
fn a_key_of_googles_is_told_from_a_token_and_not_repeated() {
    let it = Fixture::new();
    for key in ["AIzaSyEXAMPLE0000000000000000000000000001", "AQ.EXAMPLE-key-1"] {
        let refusal = it.ask(MODEL, &[("x-goog-api-key", key)]).unwrap_err();
        assert_eq!(refusal.reason, Reason::UnknownToken);
        assert_eq!(refusal.message, "this looks like a key of Google's; show the project's token");
        assert!(!format!("{refusal:?}").contains(key), "a refusal repeats a key");
    }
    let strange = it.ask(MODEL, &[("x-goog-api-key", "some-other-token")]).unwrap_err();
    assert_eq!(strange.message, "the token is not one of this gateway's");
}

#[test]
fn without_a_token_or_with_a_strange_one_nobody_comes_in() {
    let it = Fixture::new();
    assert_eq!(reason(it.ask(MODEL, &[])), Reason::NoToken);
    assert_eq!(reason(it.ask_from(loopback(), MODEL, &[])), Reason::NoToken, "not even from here");
    let strange = Token::random().unwrap();
    let almost = &it.own.expose()[..it.own.expose().len() - 1];
    let hash = it.own.hash().to_string();
    for token in [strange.expose(), almost, &hash, "AIzaSyEXAMPLE0000000000000000000000000001"] {
        let refusal = it.ask(MODEL, &[("x-goog-api-key", token)]).unwrap_err();
        assert_eq!((refusal.reason, refusal.status.as_u16()), (Reason::UnknownToken, 401));
        assert!(!format!("{refusal:?}").contains(token), "it repeats what was shown");
    }
    let basic = it.ask(MODEL, &[("authorization", "Basic YTpi")]);
    assert_eq!(reason(basic), Reason::UnknownToken);
}

#[test]
fn a_token_of_several_projects_stands_for_its_first_unless_one_is_named() {
    let it = Fixture::new();
    let token = [("x-goog-api-key", it.both.expose())];
    assert_eq!(it.ask(MODEL, &token).unwrap(), "triage");
    assert_eq!(it.ask(&format!("/p/batch{MODEL}"), &token).unwrap(), "batch");
    let named = [("x-goog-api-key", it.both.expose()), ("x-keywheel-project", "batch")];
    assert_eq!(it.ask(MODEL, &named).unwrap(), "batch");
    assert_eq!(it.ask(&format!("/p/batch{MODEL}"), &named).unwrap(), "batch");
    assert_eq!(reason(it.ask(&format!("/p/triage{MODEL}"), &named)), Reason::UnknownProject);
}

/// Whether a project exists is nothing that a stranger may find out.
#[test]
fn another_ones_project_is_told_as_one_that_does_not_exist() {
    let it = Fixture::new();
    let token = ("x-goog-api-key", it.own.expose());
    let foreign = it.ask(&format!("/p/triage{MODEL}"), &[token]).unwrap_err();
    let missing = it.ask(&format!("/p/no-such{MODEL}"), &[token]).unwrap_err();
    assert_eq!((foreign.reason, foreign.status.as_u16()), (Reason::UnknownProject, 404));
    assert_eq!(foreign, missing);
    let by_header = it.ask(MODEL, &[token, ("x-keywheel-project", "triage")]).unwrap_err();
    assert_eq!(by_header, missing);
    // Nor by whoever has no token at all.
    for path in ["triage", "no-such"] {
        assert_eq!(reason(it.ask(&format!("/p/{path}{MODEL}"), &[])), Reason::NoToken);
    }
}

#[test]
fn without_tokens_only_this_machine_is_served() {
    let it = Fixture::open();
    let host = [("host", "127.0.0.1:8787")];
    assert_eq!(it.ask_from(loopback(), MODEL, &host).unwrap(), "triage", "the first");
    for peer in ["[::1]:5", "[::ffff:127.0.0.1]:5", "127.8.9.1:5"] {
        assert!(it.ask_from(peer.parse().unwrap(), MODEL, &host).is_ok(), "{peer}");
    }
    for peer in ["203.0.113.7:5", "192.168.0.2:5", "[::ffff:203.0.113.7]:5", "[fe80::1]:5"] {
        let outcome = it.ask_from(peer.parse().unwrap(), MODEL, &host);
        assert_eq!(reason(outcome), Reason::NotLocal, "{peer}");
    }
    let named = [("host", "localhost:8787"), ("x-keywheel-project", "batch")];
    assert_eq!(it.ask_from(loopback(), MODEL, &named).unwrap(), "batch");
    assert_eq!(
        reason(it.ask_from(loopback(), &format!("/p/no-such{MODEL}"), &host)),
        Reason::UnknownProject,
    );
}

#[test]
fn a_project_called_default_is_the_default_without_tokens() {
    let name = |name| Project::new(AccountId::new(name).unwrap());
    let it = Fixture { projects: Projects::new([name("a"), name("default")]), ..Fixture::open() };
    assert_eq!(it.ask_from(loopback(), MODEL, &[("host", "localhost")]).unwrap(), "default");
}

/// A page whose name was made to mean this machine sends that name as `Host`.
#[test]
fn a_name_that_was_rebound_to_this_machine_is_refused() {
    let it = Fixture::open();
    for host in
        ["localhost", "LOCALHOST:8787", "app.localhost", "127.0.0.1", "[::1]:8787", "localhost."]
    {
        assert!(it.ask_from(loopback(), MODEL, &[("host", host)]).is_ok(), "{host}");
    }
    for host in [
        "evil.example",
        "evil.example:8787",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "203.0.113.7:8787",
        "gateway.internal",
        "",
        "[",
    ] {
        let outcome = it.ask_from(loopback(), MODEL, &[("host", host)]);
        assert_eq!(reason(outcome), Reason::NotLocal, "{host}");
    }
    assert_eq!(reason(it.ask_from(loopback(), MODEL, &[])), Reason::NotLocal, "no Host at all");
    let two = [("host", "localhost"), ("host", "evil.example")];
    assert_eq!(reason(it.ask_from(loopback(), MODEL, &two)), Reason::NotLocal);

    let access = Access { hosts: vec!["gateway.internal".into()], ..Access::default() };
    let it = Fixture { access, ..Fixture::open() };
    assert!(it.ask_from(loopback(), MODEL, &[("host", "Gateway.Internal:8787")]).is_ok());
}

/// Tunnels and proxies run on this machine, and ask for the world.
#[test]
fn what_came_through_a_proxy_is_not_of_this_machine() {
    let it = Fixture::open();
    for name in ["x-forwarded-for", "Forwarded", "via", "x-real-ip", "cf-connecting-ip"] {
        let headers = [("host", "127.0.0.1:8787"), (name, "203.0.113.7")];
        assert_eq!(reason(it.ask_from(loopback(), MODEL, &headers)), Reason::NotLocal, "{name}");
    }
    let it = Fixture::new();
    let token = [("x-goog-api-key", it.own.expose()), ("x-forwarded-for", "203.0.113.7")];
    assert!(it.ask_from(loopback(), MODEL, &token).is_ok(), "with a token it may");
}

#[test]
fn in_http_2_the_name_stands_in_the_address() {
    let it = Fixture::open();
    let ask = |host: &str| {
        let request = Request::post(format!("http://{host}{MODEL}")).version(Version::HTTP_2);
        it.identify(loopback(), request.body(()).unwrap().into_parts().0)
    };
    assert!(ask("localhost:8787").is_ok());
    assert_eq!(reason(ask("evil.example")), Reason::NotLocal);
}

#[test]
fn a_page_of_another_site_is_refused_unless_it_is_named() {
    let access = Access { origins: vec!["https://app.example".into()], ..Access::default() };
    let it = Fixture { access, ..Fixture::open() };
    let ask = |origin: &str| {
        let headers = [("host", "localhost:8787"), ("origin", origin)];
        it.ask_from(loopback(), MODEL, &headers)
    };
    for origin in ["https://app.example", "http://localhost:8787"] {
        assert!(ask(origin).is_ok(), "{origin}");
    }
    for origin in [
        "https://evil.example",
        "https://app.example.evil",
        "http://app.example",
        "http://localhost:3000",
        "null",
        "",
    ] {
        assert_eq!(reason(ask(origin)), Reason::ForeignOrigin, "{origin}");
    }
    let access = Access { origins: vec!["*".into()], ..Access::default() };
    let it = Fixture { access, ..it };
    let headers = [("host", "localhost"), ("origin", "null")];
    assert!(it.ask_from(loopback(), MODEL, &headers).is_ok());
}

proptest! {
    /// Nothing but the token itself opens the door, and no refusal holds what was shown.
    #[test]
    fn no_other_text_is_a_token(text in "[!-~]{0,60}", place in 0..3_usize) {
        let it = Fixture::new();
        let bearer = format!("Bearer {text}");
        let plain = text.chars().all(|c| c.is_ascii_alphanumeric());
        let (uri, headers) = match place {
            0 => (MODEL.to_owned(), vec![("x-goog-api-key", &*text)]),
            1 => (MODEL.to_owned(), vec![("authorization", &*bearer)]),
            _ if plain => (format!("{MODEL}?key={text}"), vec![]),
            _ => return Ok(()),
        };
        let refusal = it.ask(&uri, &headers).unwrap_err();
        prop_assert!(matches!(refusal.reason, Reason::UnknownToken | Reason::NoToken));
        let shown = format!("{refusal:?}");
        prop_assert!(text.len() < 8 || !shown.contains(&text), "it repeats what was shown");
    }
}

#[test]
fn the_method_makes_no_difference() {
    let it = Fixture::new();
    for method in [Method::GET, Method::DELETE, Method::PATCH] {
        let head = Request::builder().method(method).uri("/v1beta/files/f").body(()).unwrap();
        assert_eq!(reason(it.identify(far(), head.into_parts().0)), Reason::NoToken);
    }
}
