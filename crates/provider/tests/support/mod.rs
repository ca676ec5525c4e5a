//! Reads the published corpus.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

use std::{fs, path::PathBuf};

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

/// One case of `corpus/`.
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) json: Map<String, Value>,
}

impl Case {
    pub(crate) fn expected(&self) -> &Value {
        &self.json["expected"]
    }

    pub(crate) fn text(&self, field: &str) -> &str {
        self.json[field].as_str().unwrap_or_default()
    }

    pub(crate) fn status(&self) -> u64 {
        self.json["status"].as_u64().unwrap()
    }

    pub(crate) fn kind(&self) -> &str {
        self.expected()["kind"].as_str().unwrap()
    }

    pub(crate) fn flagged(&self, flag: &str) -> bool {
        self.expected()["flags"].as_array().is_some_and(|flags| flags.iter().any(|f| f == flag))
    }

    /// The same case with another body.
    pub(crate) fn with_body(&self, body: impl Into<String>) -> Map<String, Value> {
        let mut json = self.json.clone();
        json.insert("body".into(), Value::String(body.into()));
        json
    }

    /// The verdict on the case with another body.
    pub(crate) fn judge(&self, body: impl Into<String>) -> Value {
        keywheel_provider::explain(&self.with_body(body), now())
    }
}

pub(crate) fn corpus_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../corpus")
}

pub(crate) fn corpus() -> Vec<Case> {
    let index: Value = read("index.json");
    let files = index["cases"].as_array().unwrap().iter();
    files
        .map(|entry| {
            let Value::Object(json) = read(entry["file"].as_str().unwrap()) else {
                panic!("a case is an object")
            };
            Case { id: json["id"].as_str().unwrap().to_owned(), json }
        })
        .collect()
}

pub(crate) fn read(file: &str) -> Value {
    let text = fs::read(corpus_folder().join(file)).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// For cases that do not say when they are judged.
pub(crate) fn now() -> DateTime<Utc> {
    "2026-10-02T13:54:20Z".parse().unwrap()
}
