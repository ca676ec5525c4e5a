//! Uploads and files.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::{HeaderMap, HeaderValue, Method};
use keywheel_core::{Cause, Fingerprint};
use serde_json::{Value, json};

use super::{Caller, World};
use crate::{
    bodies::{self, ErrorBody},
    files::Announced,
    paging::Paging,
    prompt::either,
    reply::{HttpReply, JSON, Outcome, SimReply},
    request::SimRequest,
    shape::Shape,
};

/// The header that says how an upload stands.
const STATUS: &str = "x-goog-upload-status";

impl World {
    /// The first request of a resumable upload, or a whole one (`raw` and `multipart`).
    pub(super) fn begin_upload(
        &mut self,
        caller: Caller,
        request: &SimRequest,
        now: DateTime<Utc>,
    ) -> SimReply {
        let key = caller.fingerprint;
        let (announced, content) = match request.header("x-goog-upload-protocol") {
            Some("raw") => (announced_in_headers(request), Some(request.body.clone())),
            Some("multipart") => match multipart(request) {
                Some((mut announced, content)) => {
                    announced.length = Some(content.len() as u64);
                    (announced, Some(content))
                }
                None => return self.upload_refused(key, "Invalid multipart request."),
            },
            Some("resumable") if request.header("x-goog-upload-command") == Some("start") => {
                let Ok(named) = announced_in_body(&request.body) else {
                    return self.upload_refused(key, "Invalid JSON payload received.");
                };
                let told = announced_in_headers(request);
                (Announced { id: named.id, display_name: named.display_name, ..told }, None)
            }
            _ => return self.upload_refused(key, "Invalid or missing upload protocol or command."),
        };
        let Some(id) = self.files.begin(self.config.seed, caller.project, key, announced) else {
            let body = bodies::already_exists();
            return self.turned_away(Some(key), Cause::BadRequest, &body, Shape::Native);
        };
        if let Some(content) = content {
            if let Some(upload) = self.files.upload(&id) {
                upload.take(&content);
            }
            return self.finish_upload(key, &id, now);
        }
        let url = format!(
            "{}{}?upload_id={id}&upload_protocol=resumable",
            request.own_origin(),
            request.path
        );
        let mut headers = upload_headers("active", None);
        let url = HeaderValue::from_str(&url).expect("origins, paths and ids are visible ASCII");
        headers.insert("x-goog-upload-url", url.clone());
        headers.insert("x-goog-upload-control-url", url);
        headers.insert("x-goog-upload-chunk-granularity", self.config.files.chunk_bytes.into());
        self.upload_reply(key, 200, headers, Bytes::new())
    }

    /// A later request of a resumable upload. Its id is its credential: Google's Python SDK sends no key
    /// with it.
    pub(super) fn continue_upload(
        &mut self,
        id: &str,
        request: &SimRequest,
        now: DateTime<Utc>,
    ) -> SimReply {
        let granularity = self.config.files.chunk_bytes.max(1);
        let breaks = self.broken_uploads > 0;
        let Some(upload) = self.files.upload(id) else {
            let body = bodies::no_such_upload();
            return self.turned_away(None, Cause::BadRequest, &body, Shape::Native);
        };
        let (key, received) = (upload.key, upload.received());
        let commands = request.header("x-goog-upload-command").unwrap_or_default();
        let mut commands = commands.split(',').map(str::trim);
        let first = commands.next().unwrap_or_default();
        let finalize = first == "finalize" || commands.next() == Some("finalize");
        let status = if upload.finished { "final" } else { "active" };
        match first {
            "query" => {
                let headers = upload_headers(status, Some(received));
                return self.upload_reply(key, 200, headers, Bytes::new());
            }
            "cancel" => {
                self.files.cancel(id);
                return self.upload_reply(
                    key,
                    200,
                    upload_headers("cancelled", None),
                    Bytes::new(),
                );
            }
            "upload" if !upload.finished => {}
            "finalize" if !upload.finished => return self.finish_upload(key, id, now),
            _ => return self.upload_stands(key, status, received, "Invalid upload command."),
        }
        let offset = request.header("x-goog-upload-offset").and_then(|text| text.parse().ok());
        if offset != Some(received) {
            let message = format!(
                "Upload offset {} does not match the {received} bytes received.",
                offset.map_or_else(|| "(none)".to_owned(), |offset: u64| offset.to_string())
            );
            return self.upload_stands(key, status, received, &message);
        }
        let length = request.body.len() as u64;
        if !finalize && !length.is_multiple_of(granularity) {
            let message =
                format!("Chunks but the last have to be multiples of {granularity} bytes.");
            return self.upload_stands(key, status, received, &message);
        }
        if upload.length().is_some_and(|announced| received + length > announced) {
            let message = "More bytes were sent than announced.";
            return self.upload_stands(key, status, received, message);
        }
        if breaks {
            // Half a chunk arrives, in whole granules, as a server would keep it.
            let kept = length / 2 / granularity * granularity;
            upload.take(&request.body[..usize::try_from(kept).unwrap_or(0)]);
            self.broken_uploads -= 1;
            let outcome = Outcome::Faulted(crate::fault::Fault::Reset);
            self.stats.note(None, Some(key), &outcome, None, 0);
            return SimReply { latency: std::time::Duration::ZERO, http: None, outcome };
        }
        upload.take(&request.body);
        if finalize {
            return self.finish_upload(key, id, now);
        }
        let headers = upload_headers("active", Some(received + length));
        self.upload_reply(key, 200, headers, Bytes::new())
    }

    /// `GET files`.
    pub(super) fn list_files(
        &mut self,
        caller: Caller,
        request: &SimRequest,
        now: DateTime<Utc>,
    ) -> SimReply {
        let page = self.files.page(caller.project, Paging::asked(request, 10, 100), now);
        self.looked_up(caller.fingerprint, &page)
    }

    /// `GET` and `DELETE files/{id}`.
    pub(super) fn file(
        &mut self,
        caller: Caller,
        id: &str,
        request: &SimRequest,
        now: DateTime<Utc>,
    ) -> SimReply {
        let Some(file) = self.files.of(caller.project, id, now) else {
            let body = bodies::file_forbidden(id);
            return self.turned_away(
                Some(caller.fingerprint),
                Cause::BadRequest,
                &body,
                Shape::Native,
            );
        };
        let mut shown = file.resource(now);
        if request.method == Method::DELETE {
            self.files.remove(id);
            shown = json!({});
        }
        self.looked_up(caller.fingerprint, &shown)
    }

    /// The tokens of the files that a prompt names.
    ///
    /// # Errors
    /// The file is not this project's, or not ready.
    pub(super) fn file_tokens(
        &self,
        project: usize,
        uris: &[String],
        now: DateTime<Utc>,
    ) -> Result<u64, ErrorBody> {
        let tokens = uris.iter().map(|uri| {
            // Addresses of elsewhere are fetched by Google itself: a picture's worth of tokens.
            let Some(id) = uri.rsplit_once("files/").map(|(_, id)| id) else { return Ok(258) };
            let file = self.files.of(project, id, now).ok_or_else(|| bodies::file_forbidden(id))?;
            if file.is_active(now) { Ok(file.tokens()) } else { Err(bodies::file_not_active(id)) }
        });
        tokens.sum()
    }

    fn finish_upload(&mut self, key: Fingerprint, id: &str, now: DateTime<Utc>) -> SimReply {
        let upload = self.files.upload(id).map(|upload| (upload.received(), upload.length()));
        if let Some((received, Some(announced))) = upload
            && received != announced
        {
            let message = format!("{announced} bytes were announced, and {received} sent.");
            return self.upload_stands(key, "active", received, &message);
        }
        let Some(file) = self.files.finish(self.config.seed, id, &self.config.files, now) else {
            let body = bodies::no_such_upload();
            return self.turned_away(Some(key), Cause::BadRequest, &body, Shape::Native);
        };
        let body = bodies::pretty(&json!({"file": file.resource(now)}));
        self.upload_reply(key, 200, upload_headers("final", None), body.into())
    }

    /// A reply about an upload that says how far it is.
    fn upload_reply(
        &mut self,
        key: Fingerprint,
        status: u16,
        headers: HeaderMap,
        body: Bytes,
    ) -> SimReply {
        let mut http = HttpReply::whole(status, JSON, body);
        http.headers.extend(headers);
        self.stats.note(None, Some(key), &Outcome::Served, Some(status), 0);
        self.plain(http, Outcome::Served)
    }

    /// 400 for a request of an upload that goes on: the headers say from where. No text of Google's is known.
    fn upload_stands(
        &mut self,
        key: Fingerprint,
        status: &'static str,
        received: u64,
        message: &str,
    ) -> SimReply {
        let body = bodies::bad_request(message);
        let mut reply = self.turned_away(Some(key), Cause::BadRequest, &body, Shape::Native);
        if let Some(http) = &mut reply.http {
            http.headers.extend(upload_headers(status, Some(received)));
        }
        reply
    }

    fn upload_refused(&mut self, key: Fingerprint, message: &str) -> SimReply {
        self.turned_away(Some(key), Cause::BadRequest, &bodies::bad_request(message), Shape::Native)
    }
}

fn upload_headers(status: &'static str, received: Option<u64>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(STATUS, HeaderValue::from_static(status));
    if let Some(received) = received {
        headers.insert("x-goog-upload-size-received", received.into());
    }
    headers
}

fn announced_in_headers(request: &SimRequest) -> Announced {
    let text = |name| request.header(name).map(str::to_owned);
    Announced {
        id: None,
        display_name: text("x-goog-upload-file-name"),
        mime_type: text("x-goog-upload-header-content-type").or_else(|| text("content-type")),
        length: request
            .header("x-goog-upload-header-content-length")
            .and_then(|length| length.parse().ok()),
    }
}

/// `{"file": {"name": "files/x", "displayName": "…"}}`, or nothing.
fn announced_in_body(body: &[u8]) -> serde_json::Result<Announced> {
    if body.is_empty() {
        return Ok(Announced::default());
    }
    let body: Value = serde_json::from_slice(body)?;
    let file = &body["file"];
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let name = text(file.get("name"));
    Ok(Announced {
        id: name.map(|name| name.strip_prefix("files/").unwrap_or(&name).to_owned()),
        display_name: text(either(file, "displayName", "display_name")),
        mime_type: text(either(file, "mimeType", "mime_type")),
        length: None,
    })
}

/// The two parts of `multipart/related`: what the file is called, and its bytes.
fn multipart(request: &SimRequest) -> Option<(Announced, Bytes)> {
    let content_type = request.header("content-type")?;
    let boundary = content_type.split("boundary=").nth(1)?.split(';').next()?.trim_matches('"');
    let delimiter = format!("--{boundary}");
    let mut parts = Vec::new();
    let mut rest = &request.body[find(&request.body, delimiter.as_bytes())? + delimiter.len()..];
    while rest.starts_with(b"\r\n") && parts.len() < 2 {
        let end = find(rest, format!("\r\n{delimiter}").as_bytes())?;
        let head = find(rest, b"\r\n\r\n").filter(|head| *head <= end)?;
        parts.push((&rest[2..head.max(2)], rest.get(head + 4..end).unwrap_or_default()));
        rest = &rest[end + 2 + delimiter.len()..];
    }
    let [(_, named), (head, content)] = parts.try_into().ok()?;
    let head = String::from_utf8_lossy(head).into_owned();
    let mime = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-type").then(|| value.trim().to_owned())
    });
    let mut announced = announced_in_body(named).ok()?;
    announced.mime_type = announced.mime_type.or(mime);
    Some((announced, request.body.slice_ref(content)))
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}
