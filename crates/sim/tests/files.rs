//! Files: the upload protocol, whose they are, and how long they last.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;

use std::time::Duration;

use chrono::{DateTime, Utc};
use common::{MODEL, at, config, get, json, key, ms, post, status};
use http::{HeaderName, Method};
use keywheel_core::ApiKey;
use keywheel_sim::{FilesConfig, Limits, Outcome, ProjectConfig, SimReply, SimRequest, World};

const NOW: &str = "2026-11-30T07:00:00Z";

/// Two projects, small chunks.
fn world() -> World {
    let files = FilesConfig {
        chunk_bytes: 4,
        processing: Duration::from_secs(2),
        ..FilesConfig::default()
    };
    let beta = ProjectConfig::new("beta").with_key(key(2));
    World::new(config(Limits::new()).with_project(beta).with_files(files)).unwrap()
}

fn with(mut request: SimRequest, headers: &[(&'static str, &str)]) -> SimRequest {
    for (name, value) in headers {
        request.headers.insert(HeaderName::from_static(name), value.parse().unwrap());
    }
    request
}

fn start(world: &mut World, key: &ApiKey, length: u64, now: DateTime<Utc>) -> SimReply {
    let headers = [
        ("host", "127.0.0.1:8788"),
        ("x-goog-upload-protocol", "resumable"),
        ("x-goog-upload-command", "start"),
        ("x-goog-upload-header-content-length", &length.to_string()),
        ("x-goog-upload-header-content-type", "text/plain"),
    ];
    let body = r#"{"file":{"displayName":"notes"}}"#;
    world.handle(&with(post("/upload/v1beta/files", key, body), &headers), now)
}

fn header<'a>(reply: &'a SimReply, name: &str) -> &'a str {
    reply.http.as_ref().unwrap().headers[name].to_str().unwrap()
}

/// A later request, without a key as the Python SDK sends it.
fn chunk(world: &mut World, url: &str, command: &str, offset: u64, body: &'static str) -> SimReply {
    let request = SimRequest::new(Method::POST, url, http::HeaderMap::new(), body);
    let offset = offset.to_string();
    let headers = [("x-goog-upload-command", command), ("x-goog-upload-offset", offset.as_str())];
    world.handle(&with(request, &headers), at(NOW))
}

/// The resource of a small file of key 1's project.
fn uploaded(world: &mut World) -> serde_json::Value {
    let begun = start(world, &key(1), 10, at(NOW));
    let url = header(&begun, "x-goog-upload-url").to_owned();
    json(&chunk(world, &url, "upload, finalize", 0, "0123456789"))["file"].clone()
}

fn use_file(key: &ApiKey, uri: &str) -> SimRequest {
    let body = serde_json::json!({"contents": [{"parts": [
        {"text": "What is in it?"}, {"fileData": {"fileUri": uri, "mimeType": "text/plain"}},
    ]}]});
    post(&format!("/v1beta/models/{MODEL}:generateContent"), key, &body.to_string())
}

#[test]
fn a_file_arrives_in_chunks_at_the_address_that_the_start_names() {
    let mut world = world();
    let begun = start(&mut world, &key(1), 10, at(NOW));
    let url = header(&begun, "x-goog-upload-url").to_owned();
    assert!(url.starts_with("http://127.0.0.1:8788/upload/v1beta/files?upload_id="), "{url}");
    assert_eq!(header(&begun, "x-goog-upload-status"), "active");
    assert_eq!(header(&begun, "x-goog-upload-chunk-granularity"), "4");
    let first = chunk(&mut world, &url, "upload", 0, "01234567");
    assert_eq!((status(&first), header(&first, "x-goog-upload-status")), (200, "active"));
    let last = chunk(&mut world, &url, "upload, finalize", 8, "89");
    assert_eq!(header(&last, "x-goog-upload-status"), "final");
    let file = &json(&last)["file"];
    assert_eq!(file["sizeBytes"], "10");
    assert_eq!(file["displayName"], "notes");
    assert_eq!(file["mimeType"], "text/plain");
    assert_eq!(file["expirationTime"], "2026-12-02T07:00:00.000000Z");
    // The SHA-256 of "0123456789".
    assert_eq!(file["sha256Hash"], "hNiYd/DUBB77a/kaFvAkjy/Vc+avBcGflr7bn4gveII=");
    let name = file["name"].as_str().unwrap();
    let shown = world.handle(&get(&format!("/v1/{name}"), &key(1)), at(NOW));
    assert_eq!(&json(&shown), file);
}

#[test]
fn a_chunk_at_the_wrong_offset_is_refused_and_the_reply_says_where_to_go_on() {
    let mut world = world();
    let begun = start(&mut world, &key(1), 10, at(NOW));
    let url = header(&begun, "x-goog-upload-url").to_owned();
    chunk(&mut world, &url, "upload", 0, "0123");
    for (command, offset, body) in [
        ("upload", 0, "0123"),
        ("upload", 8, "8888"),
        // No multiple of the granularity, too long, too short, no command.
        ("upload", 4, "45678"),
        ("upload", 4, "456789abcdef"),
        ("upload, finalize", 4, "4567"),
        ("dance", 4, "4567"),
    ] {
        let reply = chunk(&mut world, &url, command, offset, body);
        assert_eq!(status(&reply), 400, "{command} at {offset}");
    }
    // The too short one was taken: its bytes are there, only the end is not.
    let asked = chunk(&mut world, &url, "query", 0, "");
    assert_eq!(header(&asked, "x-goog-upload-status"), "active");
    assert_eq!(header(&asked, "x-goog-upload-size-received"), "8");
    let last = chunk(&mut world, &url, "upload, finalize", 8, "89");
    assert_eq!(json(&last)["file"]["sizeBytes"], "10");
    let asked = chunk(&mut world, &url, "query", 0, "");
    assert_eq!(header(&asked, "x-goog-upload-status"), "final");
    assert_eq!(status(&chunk(&mut world, &url, "upload", 10, "")), 400);
}

#[test]
fn a_broken_chunk_is_taken_by_half_and_the_upload_goes_on_from_there() {
    let mut world = world();
    let begun = start(&mut world, &key(1), 12, at(NOW));
    let url = header(&begun, "x-goog-upload-url").to_owned();
    world.break_uploads(1);
    assert!(chunk(&mut world, &url, "upload, finalize", 0, "0123456789ab").http.is_none());
    let asked = chunk(&mut world, &url, "query", 0, "");
    assert_eq!(header(&asked, "x-goog-upload-size-received"), "4");
    let last = chunk(&mut world, &url, "upload, finalize", 4, "456789ab");
    assert_eq!(header(&last, "x-goog-upload-status"), "final");
}

#[test]
fn an_upload_can_be_given_up_and_an_unknown_one_is_not_found() {
    let mut world = world();
    let begun = start(&mut world, &key(1), 4, at(NOW));
    let url = header(&begun, "x-goog-upload-url").to_owned();
    let gone = chunk(&mut world, &url, "cancel", 0, "");
    assert_eq!(header(&gone, "x-goog-upload-status"), "cancelled");
    assert_eq!(status(&chunk(&mut world, &url, "upload", 0, "0123")), 404);
}

#[test]
fn a_whole_file_may_come_in_one_request() {
    let mut world = world();
    let raw = with(
        post("/upload/v1beta/files", &key(1), "hello"),
        &[("x-goog-upload-protocol", "raw"), ("content-type", "text/markdown")],
    );
    let file = json(&world.handle(&raw, at(NOW)))["file"].clone();
    assert_eq!((&file["sizeBytes"], &file["mimeType"]), (&"5".into(), &"text/markdown".into()));
    let body = "--b\r\ncontent-type: application/json\r\n\r\n\
                {\"file\":{\"name\":\"files/mine\",\"displayName\":\"d\"}}\r\n\
                --b\r\nContent-Type: image/png\r\n\r\n\u{1}\r\n\u{2}\r\n--b--\r\n";
    let parts = || {
        with(
            post("/upload/v1beta/files", &key(1), body),
            &[
                ("x-goog-upload-protocol", "multipart"),
                ("content-type", "multipart/related; boundary=b"),
            ],
        )
    };
    let file = json(&world.handle(&parts(), at(NOW)))["file"].clone();
    assert_eq!(file["name"], "files/mine");
    assert_eq!((&file["sizeBytes"], &file["mimeType"]), (&"4".into(), &"image/png".into()));
    // The name is taken now.
    assert_eq!(status(&world.handle(&parts(), at(NOW))), 409);
    let broken = with(parts(), &[("content-type", "multipart/related; boundary=c")]);
    assert_eq!(status(&world.handle(&broken, at(NOW))), 400);
}

/// What a pool has to know: only keys of the project that uploaded it can use a file
/// (<https://github.com/snailyp/gemini-balance/issues/401>).
#[test]
fn another_projects_file_is_forbidden_to_read_to_delete_and_to_use() {
    let mut world = world();
    let file = uploaded(&mut world);
    let (name, uri) = (file["name"].as_str().unwrap(), file["uri"].as_str().unwrap());
    let id = name.strip_prefix("files/").unwrap();
    let expected = serde_json::json!({"error": {
        "code": 403,
        "message":
            format!("You do not have permission to access the File {id} or it may not exist."),
        "status": "PERMISSION_DENIED",
    }});
    let later = at(NOW) + ms(2_000);
    let target = format!("/v1beta/{name}");
    let delete = |i| SimRequest { method: Method::DELETE, ..get(&target, &key(i)) };
    for foreign in [get(&target, &key(2)), delete(2), use_file(&key(2), uri)] {
        let reply = world.handle(&foreign, later);
        assert_eq!((status(&reply), json(&reply)), (403, expected.clone()));
    }
    assert_eq!(status(&world.handle(&use_file(&key(1), uri), later)), 200);
    assert_eq!(json(&world.handle(&delete(1), later)), serde_json::json!({}));
    assert_eq!(json(&world.handle(&use_file(&key(1), uri), later)), expected);
}

#[test]
fn a_file_is_processed_before_it_can_be_used_and_expires() {
    let mut world = world();
    let file = uploaded(&mut world);
    assert_eq!(file["state"], "PROCESSING");
    let uri = file["uri"].as_str().unwrap();
    let id = uri.rsplit('/').next().unwrap();
    let early = world.handle(&use_file(&key(1), uri), at(NOW) + ms(1_999));
    assert_eq!(json(&early)["error"]["status"], "FAILED_PRECONDITION");
    assert_eq!(
        json(&early)["error"]["message"],
        format!("The File {id} is not in an ACTIVE state and usage is not allowed.")
    );
    let target = format!("/v1beta/files/{id}");
    let shown = world.handle(&get(&target, &key(1)), at(NOW) + ms(2_000));
    assert_eq!(json(&shown)["state"], "ACTIVE");
    let used = world.handle(&use_file(&key(1), uri), at(NOW) + ms(2_000));
    // 14 bytes of question, 10 bytes of file.
    assert_eq!(json(&used)["usageMetadata"]["promptTokenCount"], 4 + 3);
    let gone = at("2026-12-02T07:00:00Z");
    assert_eq!(status(&world.handle(&get(&target, &key(1)), gone)), 403);
    assert_eq!(status(&world.handle(&get(&target, &key(1)), gone - ms(1))), 200);
}

#[test]
fn files_are_listed_page_by_page_and_only_ones_own() {
    let mut world = world();
    for _ in 0..5 {
        uploaded(&mut world);
    }
    let (mut names, mut token) = (Vec::new(), String::new());
    loop {
        let target = format!("/v1beta/files?pageSize=2{token}");
        let page = json(&world.handle(&get(&target, &key(1)), at(NOW)));
        let files = page["files"].as_array().unwrap();
        assert!(files.len() <= 2);
        names.extend(files.iter().map(|file| file["name"].as_str().unwrap().to_owned()));
        match page["nextPageToken"].as_str() {
            Some(next) => token = format!("&pageToken={next}"),
            None => break,
        }
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 5);
    let foreign = world.handle(&get("/v1beta/files", &key(2)), at(NOW));
    assert_eq!(json(&foreign), serde_json::json!({}));
}

#[test]
fn files_cost_no_quota() {
    let mut world = world();
    uploaded(&mut world);
    world.handle(&get("/v1beta/files", &key(1)), at(NOW));
    let stats = world.stats();
    assert!(stats.buckets.is_empty());
    let tally = stats.keys[&key(1).fingerprint()];
    assert_eq!((tally.served, tally.counted), (3, 0));
    let reply = world.handle(&post("/v1beta/files", &key(1), ""), at(NOW));
    assert_eq!(reply.outcome, Outcome::NoSuchPath);
}
