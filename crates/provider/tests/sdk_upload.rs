//! The resumable upload, as Google's SDKs do it and over a connection that breaks.
#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

use std::{fs, ops::Range, sync::Arc};

use http::HeaderMap;
use keywheel_core::ApiKey;
use keywheel_provider::{
    api::{CHUNK_BYTES, File, Upload, UploadError, UploadStep},
    testing::Script,
    upstream::{Call, CallError, Upstream},
};
use proptest::prelude::*;
use serde_json::{Value, json};

const GOOGLE_ADDRESS: &str = "https://generativelanguage.googleapis.com/upload/v1beta/files?upload_id=A_b-1&upload_protocol=resumable";

fn upstream(base_url: &str) -> Upstream {
    Upstream::new(base_url, Arc::new(Script::new())).unwrap()
}

fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    fields.iter().map(|&(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

fn begin(size: u64) -> Upload {
    begin_at(GOOGLE_ADDRESS, size).unwrap()
}

fn begin_at(address: &str, size: u64) -> Result<Upload, UploadError> {
    let headers = headers(&[("x-goog-upload-url", address)]);
    Upload::begin(&upstream("https://generativelanguage.googleapis.com"), &headers, size)
}

fn status(status: &str) -> HeaderMap {
    headers(&[("x-goog-upload-status", status)])
}

#[test]
fn start_and_last_chunk_carry_the_headers_and_the_body_of_googles_sdks() {
    let fixture = |name: &str| -> Value {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/sdk/requests/js");
        serde_json::from_str(&fs::read_to_string(format!("{folder}/{name}.json")).unwrap()).unwrap()
    };
    let upload_headers = |call: &Call| -> Value {
        let named = call.headers.iter().filter(|(name, _)| name.as_str().starts_with("x-goog-"));
        named.map(|(name, value)| (name.to_string(), json!(value.to_str().unwrap()))).collect()
    };
    let start = fixture("file-start");
    let file: File = serde_json::from_value(start["body"]["file"].clone()).unwrap();
    let call = Upload::start("v1", &file, "text/plain", 5).unwrap();
    assert_eq!(call.path, start["path"]);
    assert_eq!(upload_headers(&call), start["upload"]);
    let sent: Value = serde_json::from_slice(call.body.bytes().unwrap()).unwrap();
    assert_eq!(sent["file"]["displayName"], start["body"]["file"]["displayName"]);

    let chunk = fixture("file-start-2");
    let call = begin(5).chunk("hello").unwrap();
    assert_eq!(upload_headers(&call), chunk["upload"]);
    assert_eq!(call.body, chunk["body"].as_str().unwrap());
}

#[test]
fn the_address_is_followed_on_our_own_host_whoever_gave_it() {
    let key = ApiKey::new("AIzaSyEXAMPLE0000000000000000000000000001").unwrap();
    let bases = [
        ("https://generativelanguage.googleapis.com", "https://generativelanguage.googleapis.com"),
        ("http://127.0.0.1:8080/v1beta", "http://127.0.0.1:8080"),
        ("https://gateway.example/gemini/v1beta/", "https://gateway.example/gemini"),
    ];
    for (base, root) in bases {
        let upstream = upstream(base);
        let own = format!("{root}/upload/v1beta/files?upload_id=A_b-1&upload_protocol=resumable");
        for address in [GOOGLE_ADDRESS, &own] {
            let upload =
                Upload::begin(&upstream, &headers(&[("x-goog-upload-url", address)]), 5).unwrap();
            let request = upstream.request(&key, &upload.chunk("hello").unwrap()).unwrap();
            assert_eq!(request.url, own, "given {address}");
            assert_eq!(request.headers["content-type"], "application/octet-stream");
        }
    }
}

#[test]
fn the_key_goes_to_no_foreign_host() {
    for address in [
        "https://evil.example/upload/v1beta/files?upload_id=1",
        "https://generativelanguage.googleapis.com.evil.example/upload?upload_id=1",
        "https://generativelanguage.googleapis.com@evil.example/upload?upload_id=1",
        "https://evil.example@generativelanguage.googleapis.com/upload?upload_id=1",
        "https://generativelanguage.googleapis.com:444/upload?upload_id=1",
        "http://generativelanguage.googleapis.com/upload?upload_id=1",
        "//generativelanguage.googleapis.com/upload?upload_id=1",
        "/upload?upload_id=1",
        "ftp://generativelanguage.googleapis.com/upload",
        "",
        "https://generativelanguage.googleapis.com/upload?upload_id=%zz",
        "https://generativelanguage.googleapis.com/upload?upload_id=%ff",
    ] {
        let refused = begin_at(address, 5);
        assert_eq!(refused.unwrap_err(), UploadError::Address(CallError::Foreign), "{address}");
    }
    let dots = begin_at("https://generativelanguage.googleapis.com/upload/../v1beta/models", 5);
    assert!(matches!(dots, Err(UploadError::Address(CallError::Path(_)))), "{dots:?}");
}

#[test]
fn what_the_address_says_survives_but_for_a_credential() {
    let upstream = upstream("https://generativelanguage.googleapis.com");
    let call = upstream
        .localize("https://GENERATIVELANGUAGE.googleapis.com:443/upload/v1beta/files?upload_id=a%2Bb+c%26d&key=k&x")
        .unwrap();
    assert_eq!(
        upstream.url(&call).unwrap(),
        "https://generativelanguage.googleapis.com/upload/v1beta/files?upload_id=a%2Bb%20c%26d&x="
    );
}

#[test]
fn a_file_without_bytes_is_one_empty_last_chunk() {
    let mut upload = begin(0);
    let call = upload.chunk("").unwrap();
    assert_eq!(call.headers["x-goog-upload-command"], "upload, finalize");
    assert_eq!(upload.sent(&status("final")).unwrap(), UploadStep::Done);
}

#[test]
fn a_file_that_changed_its_size_is_noticed() {
    let upload = begin(5);
    let cut = upload.chunk("hell").unwrap_err();
    assert_eq!(cut, UploadError::Length { expected: 5, found: 4 });
    assert!(upload.chunk("hello!").is_err());
}

#[test]
fn replies_that_cannot_be_right_end_the_upload() {
    let fresh = || begin(2 * CHUNK_BYTES);
    assert_eq!(fresh().sent(&HeaderMap::new()), Err(UploadError::Missing("x-goog-upload-status")));
    assert_eq!(fresh().sent(&status("cancelled")), Err(UploadError::Ended));
    let early = fresh().sent(&status("final"));
    assert_eq!(early, Err(UploadError::Length { expected: 2 * CHUNK_BYTES, found: CHUNK_BYTES }));
    assert_eq!(begin(5).sent(&status("active")), Err(UploadError::NotFinal));
    let no_length = fresh().resume(&status("active"));
    assert_eq!(no_length, Err(UploadError::Missing("x-goog-upload-size-received")));
    let beyond = [("x-goog-upload-status", "active"), ("x-goog-upload-size-received", "6")];
    assert!(matches!(begin(5).resume(&headers(&beyond)), Err(UploadError::Length { .. })));
    let nowhere = Upload::begin(&upstream("http://x"), &HeaderMap::new(), 5);
    assert_eq!(nowhere.unwrap_err(), UploadError::Missing("x-goog-upload-url"));
}

#[test]
fn what_the_server_has_lost_is_sent_again() {
    let mut upload = begin(2 * CHUNK_BYTES);
    upload.sent(&status("active")).unwrap();
    assert_eq!(upload.next_range(), CHUNK_BYTES..2 * CHUNK_BYTES);
    let lost = [("x-goog-upload-status", "active"), ("x-goog-upload-size-received", "100")];
    assert_eq!(upload.resume(&headers(&lost)).unwrap(), UploadStep::More);
    assert_eq!(upload.next_range(), 100..CHUNK_BYTES + 100);
}

#[test]
fn chunks_keep_to_the_granularity_that_the_server_asks_for() {
    for (granularity, chunk) in [
        ("262144", CHUNK_BYTES),
        ("5000000", 5_000_000),
        ("9000000", 9_000_000),
        ("0", CHUNK_BYTES),
        ("99999999999999999999", CHUNK_BYTES),
        ("9999999999999", 8 * CHUNK_BYTES),
        ("none", CHUNK_BYTES),
    ] {
        let headers = headers(&[
            ("x-goog-upload-url", GOOGLE_ADDRESS),
            ("x-goog-upload-chunk-granularity", granularity),
        ]);
        let upload = Upload::begin(
            &upstream("https://generativelanguage.googleapis.com"),
            &headers,
            u64::MAX,
        );
        assert_eq!(upload.unwrap().next_range(), 0..chunk, "{granularity}");
    }
}

/// A server that keeps what arrives, over a connection that fails as `faults` says.
struct Server {
    kept: Vec<u8>,
    last: bool,
    granularity: u64,
}

impl Server {
    /// `arrives` bytes of it, all if `None`.
    fn receive(&mut self, call: &Call, arrives: Option<usize>) {
        let offset: usize = call.headers["x-goog-upload-offset"].to_str().unwrap().parse().unwrap();
        assert_eq!(offset, self.kept.len(), "sent twice, or left out");
        let body = call.body.bytes().unwrap();
        let bytes = &body[..arrives.unwrap_or(usize::MAX).min(body.len())];
        self.kept.extend_from_slice(bytes);
        let whole = bytes.len() == body.len();
        if call.headers["x-goog-upload-command"] == "upload" {
            assert_eq!(body.len() as u64 % self.granularity, 0);
        }
        self.last |= whole && call.headers["x-goog-upload-command"] == "upload, finalize";
    }

    fn status(&self) -> &'static str {
        if self.last { "final" } else { "active" }
    }

    fn query(&self, call: &Call) -> HeaderMap {
        assert_eq!(call.headers["x-goog-upload-command"], "query");
        assert!(call.body.is_empty());
        let received = self.kept.len().to_string();
        headers(&[
            ("x-goog-upload-status", self.status()),
            ("x-goog-upload-size-received", &received),
        ])
    }
}

#[derive(Debug, Clone)]
enum Fault {
    None,
    /// It all arrives, and the reply is lost.
    ReplyLost,
    /// Part of it arrives.
    Cut(prop::sample::Index),
}

fn faults() -> impl Strategy<Value = Vec<Fault>> {
    let fault = prop_oneof![
        Just(Fault::None),
        Just(Fault::ReplyLost),
        any::<prop::sample::Index>().prop_map(Fault::Cut),
    ];
    prop::collection::vec(fault, 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_byte_arrives_once_and_in_order_however_the_connection_breaks(
        size in 0usize..5_000, granularity in 1u64..64, chunk in 0u64..1_000, faults in faults()
    ) {
        let file: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
        let place = |range: Range<u64>| range.start as usize..range.end as usize;
        let multiple = granularity.to_string();
        let headers = headers(&[
            ("x-goog-upload-url", GOOGLE_ADDRESS),
            ("x-goog-upload-chunk-granularity", &multiple),
        ]);
        let upstream = upstream("https://generativelanguage.googleapis.com");
        let mut upload = Upload::begin(&upstream, &headers, size as u64).unwrap().with_chunk_bytes(chunk);
        let mut server = Server { kept: Vec::new(), last: false, granularity };
        let mut faults = faults.into_iter();
        let mut step = UploadStep::More;
        while step == UploadStep::More {
            let call = upload.chunk(file[place(upload.next_range())].to_vec()).unwrap();
            match faults.next().unwrap_or(Fault::None) {
                Fault::None => {
                    server.receive(&call, None);
                    step = upload.sent(&status(server.status())).unwrap();
                    continue;
                }
                Fault::ReplyLost => server.receive(&call, None),
                Fault::Cut(at) => server.receive(&call, Some(at.index(call.body.len().max(1) as usize))),
            }
            step = upload.resume(&server.query(&upload.query())).unwrap();
        }
        prop_assert_eq!(server.kept, file);
        prop_assert_eq!(upload.offset(), size as u64);
    }
}
