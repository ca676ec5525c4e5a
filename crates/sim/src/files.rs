//! Uploaded files: bytes that arrive in pieces, and what they become.
//!
//! A file belongs to the quota project of the key that began its upload, and is gone after its lifetime. Its
//! bytes are hashed and dropped: the simulator reads no file, and the API gives none back.

use std::collections::{BTreeMap, HashMap};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use keywheel_core::Fingerprint;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{config::FilesConfig, paging::Paging, random};

/// All files and uploads of all projects.
#[derive(Debug, Default)]
pub(crate) struct Files {
    uploads: HashMap<String, Upload>,
    files: BTreeMap<String, File>,
    made: u64,
}

/// What the first request of an upload says about the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Announced {
    /// The id that is wanted; one is made up without.
    pub(crate) id: Option<String>,
    pub(crate) display_name: Option<String>,
    pub(crate) mime_type: Option<String>,
    /// The length in bytes, when it is known.
    pub(crate) length: Option<u64>,
}

/// An upload under way, or finished.
#[derive(Debug)]
pub(crate) struct Upload {
    pub(crate) project: usize,
    /// The key that began it, for the statistics.
    pub(crate) key: Fingerprint,
    announced: Announced,
    received: u64,
    hash: Sha256,
    /// True when no more bytes are taken.
    pub(crate) finished: bool,
}

impl Upload {
    /// Bytes received so far.
    pub(crate) const fn received(&self) -> u64 {
        self.received
    }

    /// The length that was announced.
    pub(crate) const fn length(&self) -> Option<u64> {
        self.announced.length
    }

    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.received += bytes.len() as u64;
    }
}

/// A file that arrived whole.
#[derive(Debug, Clone)]
pub(crate) struct File {
    project: usize,
    id: String,
    display_name: Option<String>,
    mime_type: String,
    size: u64,
    sha256: String,
    created: DateTime<Utc>,
    active: DateTime<Utc>,
    expires: DateTime<Utc>,
}

impl File {
    pub(crate) fn is_active(&self, now: DateTime<Utc>) -> bool {
        self.active <= now
    }

    /// Input tokens: one for every four bytes of text, 258 for anything else.
    pub(crate) fn tokens(&self) -> u64 {
        let text = self.mime_type.starts_with("text/") || self.mime_type == "application/json";
        if text { self.size.div_ceil(4) } else { 258 }
    }

    /// The resource, as `GET files/{id}` shows it.
    pub(crate) fn resource(&self, now: DateTime<Utc>) -> Value {
        let mut out = json!({
            "name": format!("files/{}", self.id),
            "mimeType": self.mime_type,
            "sizeBytes": self.size.to_string(),
            "createTime": timestamp(self.created),
            "updateTime": timestamp(self.created),
            "expirationTime": timestamp(self.expires),
            "sha256Hash": self.sha256,
            "uri": format!("https://generativelanguage.googleapis.com/v1beta/files/{}", self.id),
            "state": if self.is_active(now) { "ACTIVE" } else { "PROCESSING" },
            "source": "UPLOADED",
        });
        if let Some(name) = &self.display_name {
            out["displayName"] = name.as_str().into();
        }
        out
    }
}

impl Files {
    /// Begins an upload; its id opens it to everyone who knows it. `None` when the id that is wanted for
    /// the file is taken.
    pub(crate) fn begin(
        &mut self,
        seed: u64,
        project: usize,
        key: Fingerprint,
        announced: Announced,
    ) -> Option<String> {
        if announced.id.as_ref().is_some_and(|id| self.files.contains_key(id)) {
            return None;
        }
        let id = self.new_id(seed, b"upload", 40);
        let hash = Sha256::new();
        let upload = Upload { project, key, announced, received: 0, hash, finished: false };
        self.uploads.insert(id.clone(), upload);
        Some(id)
    }

    pub(crate) fn upload(&mut self, id: &str) -> Option<&mut Upload> {
        self.uploads.get_mut(id)
    }

    pub(crate) fn cancel(&mut self, id: &str) {
        self.uploads.remove(id);
    }

    /// Makes a file of an upload whose bytes are all there; `None` when there is no such upload.
    pub(crate) fn finish(
        &mut self,
        seed: u64,
        upload: &str,
        rules: &FilesConfig,
        now: DateTime<Utc>,
    ) -> Option<&File> {
        let made = self.new_id(seed, b"file", 12);
        let upload = self.uploads.get_mut(upload)?;
        upload.finished = true;
        let digest = upload.hash.clone().finalize();
        let after = |duration| {
            let span = TimeDelta::from_std(duration).unwrap_or(TimeDelta::MAX);
            now.checked_add_signed(span).unwrap_or(DateTime::<Utc>::MAX_UTC)
        };
        let id = upload.announced.id.clone().unwrap_or(made);
        let mime_type = upload.announced.mime_type.clone();
        let file = File {
            project: upload.project,
            id: id.clone(),
            display_name: upload.announced.display_name.clone(),
            mime_type: mime_type.unwrap_or_else(|| "application/octet-stream".to_owned()),
            size: upload.received,
            sha256: STANDARD.encode(digest),
            created: now,
            active: after(rules.processing),
            expires: after(rules.lifetime),
        };
        self.files.insert(id.clone(), file);
        self.files.get(&id)
    }

    /// A project's file, if there is one of that id and it has not expired.
    pub(crate) fn of(&self, project: usize, id: &str, now: DateTime<Utc>) -> Option<&File> {
        self.files.get(id).filter(|file| file.project == project && file.expires > now)
    }

    pub(crate) fn remove(&mut self, id: &str) {
        self.files.remove(id);
    }

    /// One page of a project's files.
    pub(crate) fn page(&self, project: usize, paging: Paging<'_>, now: DateTime<Utc>) -> Value {
        let shown = |file: &File| file.project == project && file.expires > now;
        let files = self.files.iter().filter(|(_, file)| shown(file));
        paging.page("files", files, |_, file| file.resource(now))
    }

    fn new_id(&mut self, seed: u64, kind: &[u8], length: usize) -> String {
        self.made += 1;
        made_up_id(seed, kind, self.made, length)
    }
}

/// An id of `length` small letters and digits, the same for the same seed, kind and number.
pub(crate) fn made_up_id(seed: u64, kind: &[u8], number: u64, length: usize) -> String {
    const LETTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut rng = random::generator(seed, &[kind, &number.to_le_bytes()]);
    (0..length).map(|_| char::from(LETTERS[rng.usize(0..36)])).collect()
}

/// A moment, as Google's resources write it.
pub(crate) fn timestamp(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, true)
}
