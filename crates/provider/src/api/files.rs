//! Files that were uploaded: kept for 48 hours, readable with keys of the same quota project only.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::{
    FileData, Part,
    json::{Json, null_is_default},
    open_enum::open_enum,
};

/// A file that was uploaded.
///
/// ```
/// use keywheel_provider::api::{File, FileState};
///
/// let file: File = serde_json::from_str(
///     r#"{"name":"files/abc","mimeType":"audio/mpeg","sizeBytes":"1024","state":"PROCESSING"}"#,
/// )
/// .unwrap();
/// assert_eq!((file.size_bytes, file.state), (Some(1024), Some(FileState::Processing)));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// Its name, as `files/…`: what to ask for it with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its name for people.
    #[serde(alias = "display_name", default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// `image/png` and the like.
    #[serde(alias = "mime_type", default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Its length. The API writes it as a string.
    #[serde(
        alias = "size_bytes",
        default,
        with = "int64",
        skip_serializing_if = "Option::is_none"
    )]
    pub size_bytes: Option<u64>,
    /// When it was made, as RFC 3339.
    #[serde(alias = "create_time", default, skip_serializing_if = "Option::is_none")]
    pub create_time: Option<String>,
    /// When it was last changed, as RFC 3339.
    #[serde(alias = "update_time", default, skip_serializing_if = "Option::is_none")]
    pub update_time: Option<String>,
    /// When it will be deleted, as RFC 3339; [`expires_at`](Self::expires_at) reads it.
    #[serde(alias = "expiration_time", default, skip_serializing_if = "Option::is_none")]
    pub expiration_time: Option<String>,
    /// The SHA-256 of its bytes: the hex digits, in base64.
    #[serde(alias = "sha256_hash", default, skip_serializing_if = "Option::is_none")]
    pub sha256_hash: Option<String>,
    /// Its address: what a request names it with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Whether it can be used yet. Videos take a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<FileState>,
    /// Why it could not be read, if it could not: `{"code": …, "message": …}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Json>,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl File {
    /// When it will be deleted. `None` when that is not known.
    #[must_use]
    pub fn expires_at(&self) -> Option<DateTime<Utc>> {
        self.expiration_time.as_deref()?.parse().ok()
    }

    /// The file as a part of a request. `None` if it has no address.
    #[must_use]
    pub fn to_part(&self) -> Option<Part> {
        let file_uri = self.uri.clone()?;
        Some(Part::from_file(&FileData { mime_type: self.mime_type.clone(), file_uri }))
    }
}

open_enum! {
    /// Whether a file can be used yet.
    FileState {
        /// Not yet.
        Processing = "PROCESSING",
        /// Yes.
        Active = "ACTIVE",
        /// Never: [`File::error`] says why.
        Failed = "FAILED",
    }
}

/// One page of the list of files: `GET files`. Only those of the key's own quota project.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileList {
    /// The files.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<File>,
    /// Asks for the next page, as `pageToken`. `None` on the last one.
    #[serde(alias = "next_page_token", default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What an upload starts and ends with: the file under its name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FileEnvelope {
    /// The file.
    #[serde(default, deserialize_with = "null_is_default")]
    pub file: File,
    /// Fields that this version does not name.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The name `files/…` in an address or a name of a file. `None` when there is none in it.
///
/// ```
/// use keywheel_provider::api::file_name;
///
/// let uri = "https://generativelanguage.googleapis.com/v1beta/files/abc-123";
/// assert_eq!(file_name(uri), Some("files/abc-123"));
/// assert_eq!(file_name("files/abc-123:download?alt=media"), Some("files/abc-123"));
/// assert_eq!(file_name("https://www.youtube.com/watch?v=abc"), None);
/// ```
#[must_use]
pub fn file_name(address: &str) -> Option<&str> {
    let start = match address.rfind("/files/") {
        Some(slash) => slash + 1,
        None if address.starts_with("files/") => 0,
        None => return None,
    };
    let name = &address[start..];
    let no_id = |c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_');
    let id = name["files/".len()..].split(no_id).next().filter(|id| !id.is_empty())?;
    Some(&name[.."files/".len() + id.len()])
}

/// 64-bit integers, which the API writes as strings since JavaScript could not hold them.
mod int64 {
    use super::*;
    use serde::{Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(n: &Option<u64>, out: S) -> Result<S::Ok, S::Error> {
        n.map(|n| n.to_string()).serialize(out)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Number {
            Plain(u64),
            Text(String),
        }
        match Option::deserialize(from)? {
            None => Ok(None),
            Some(Number::Plain(n)) => Ok(Some(n)),
            Some(Number::Text(text)) => text.parse().map(Some).map_err(D::Error::custom),
        }
    }
}
