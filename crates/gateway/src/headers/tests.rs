use proptest::prelude::*;

use super::*;

fn map(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
    }
    map
}

#[test]
fn no_credential_and_nothing_that_acts_for_somebody_else_goes_upstream() {
    for name in never_upstream() {
        let mut sent = HeaderMap::new();
        sent.append(&name, HeaderValue::from_static("secret"));
        sent.append(&name, HeaderValue::from_static("again"));
        assert!(!to_upstream(&sent).contains_key(&name), "{name}");
    }
    for name in ["x-keywheel-project", "x-keywheel-request-id", "x-keywheel-anything"] {
        assert!(!to_upstream(&map(&[(name, "x")])).contains_key(name), "{name}");
    }
}

#[test]
fn a_token_goes_upstream_under_no_name() {
    let mut sent = to_upstream(&map(&[
        ("api-key", "a-token"),
        ("x-api-key", "a-token"),
        ("x-of-mine", " a-token "),
        ("x-auth", "Bearer a-token"),
        ("x-twice", "b"),
        ("x-twice", "a-token"),
        ("x-other", "not-a-token"),
        ("x-longer", "a-token-1"),
    ]));
    forget("a-token", &mut sent);
    let mut names: Vec<_> = sent.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["accept-encoding", "x-longer", "x-other"]);
}

#[test]
fn what_is_not_known_goes_upstream_as_it_is() {
    let kept = [
        ("user-agent", "google-genai-sdk/3.6.1 gl-python/3.11.7"),
        ("x-goog-api-client", "google-genai-sdk/3.6.1 gl-python/3.11.7"),
        ("content-type", "application/json"),
        ("x-server-timeout", "30"),
        ("api-revision", "2"),
        ("x-stainless-lang", "python"),
        ("x-goog-upload-protocol", "resumable"),
        ("x-of-tomorrow", "a"),
        ("x-of-tomorrow", "b"),
    ];
    let sent = to_upstream(&map(&kept));
    for (name, value) in kept {
        assert!(sent.get_all(name).iter().any(|sent| sent == value), "{name}");
    }
    assert_eq!(sent.get_all("x-of-tomorrow").iter().count(), 2);
}

#[test]
fn what_connection_names_is_for_this_connection_only() {
    let pairs = [
        ("connection", "keep-alive, X-Custom"),
        ("connection", "x-other"),
        ("x-custom", "1"),
        ("x-other", "1"),
        ("x-third", "1"),
    ];
    for map in [to_upstream(&map(&pairs)), to_client(&map(&pairs))] {
        assert!(!map.contains_key("x-custom") && !map.contains_key("x-other"));
        assert!(map.contains_key("x-third") && !map.contains_key("connection"));
    }
}

/// A client that could name `x-goog-api-key` there would have ours taken off, were it put in before.
#[test]
fn only_encodings_that_we_read_are_asked_for() {
    for (asked, sent) in [
        (Some("gzip, deflate"), "gzip"),
        (Some("gzip, deflate, br, zstd"), "gzip"),
        (Some("br, GZIP;q=0.5"), "gzip"),
        (Some("*"), "gzip"),
        (Some("x-gzip"), "gzip"),
        (Some("br"), "identity"),
        (Some("identity"), "identity"),
        (Some("gzip;q=0, *"), "identity"),
        (Some("gzip; q=0.000"), "identity"),
        (Some("*;q=0"), "identity"),
        (Some("gzip;q=x"), "identity"),
        (Some(""), "identity"),
        (None, "identity"),
    ] {
        let headers = asked.map(|asked| map(&[("accept-encoding", asked)])).unwrap_or_default();
        let out = to_upstream(&headers);
        let all: Vec<_> = out.get_all("accept-encoding").iter().collect();
        assert_eq!(all, [sent], "{asked:?}");
    }
}

#[test]
fn the_providers_answer_keeps_its_headers_but_for_those_of_its_connection() {
    let answer = to_client(&map(&[
        ("content-type", "text/event-stream"),
        ("content-encoding", "gzip"),
        ("x-gemini-service-tier", "standard"),
        ("server-timing", "gfet4t7; dur=512"),
        ("x-goog-upload-status", "active"),
        ("transfer-encoding", "chunked"),
        ("content-length", "5"),
        ("alt-svc", "h3=\":443\""),
        ("set-cookie", "a=b"),
        ("access-control-allow-origin", "*"),
        ("x-keywheel-budget", "forged"),
    ]));
    let mut names: Vec<_> = answer.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    let wanted = [
        "content-encoding",
        "content-type",
        "server-timing",
        "x-gemini-service-tier",
        "x-goog-upload-status",
    ];
    assert_eq!(names, wanted);
}

#[test]
fn a_client_says_how_long_it_waits_in_whole_seconds() {
    let told = |value| patience(&map(&[("X-Server-Timeout", value)]));
    assert_eq!(told("30"), Some(Duration::from_secs(30)));
    assert_eq!(told(" 0 "), Some(Duration::ZERO));
    for none in ["", "30s", "2.5", "-1", "99999999999999999999"] {
        assert_eq!(told(none), None, "{none}");
    }
    assert_eq!(patience(&map(&[])), None);
}

proptest! {
    /// Whatever a client calls its headers, and names in `Connection`: no credential goes on, and exactly one
    /// encoding is asked for.
    #[test]
    fn whatever_a_client_sends_no_credential_goes_on(
        names in prop::collection::vec("(x-)?(goog-)?(api|user|http|of)-(key|project|method)(-override)?", 0..6),
        connection in prop::collection::vec("(x-goog-api-key|authorization|cookie|accept-encoding|close)", 0..3),
    ) {
        let mut headers = HeaderMap::new();
        for name in &names {
            headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_static("1"));
        }
        let named = HeaderValue::from_str(&connection.join(",")).unwrap();
        headers.append(header::CONNECTION, named);
        let sent = to_upstream(&headers);
        prop_assert!(never_upstream().all(|name| !sent.contains_key(name)));
        prop_assert_eq!(sent.get_all(header::ACCEPT_ENCODING).iter().count(), 1);
    }
}
