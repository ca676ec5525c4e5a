//! What the gateway has to know of a body: which model it names, and whose files.

use std::io;

use keywheel::raw::Body;
use serde::Deserialize;

use crate::route::Kind;

/// What a body says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Peek {
    /// The model, where the path names none.
    pub(crate) model: Option<String>,
    /// Files and caches that it builds on.
    pub(crate) names: Vec<String>,
    /// The answer is to come as a stream.
    pub(crate) stream: bool,
    /// The answer is for later.
    pub(crate) background: bool,
}

impl Peek {
    pub(super) async fn of(kind: Kind, body: &Body) -> io::Result<Self> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Head {
            model: Option<String>,
            stream: bool,
            background: bool,
        }
        if !matches!(kind, Kind::Chat | Kind::Embeddings | Kind::Interactions) {
            return Ok(Self::default());
        }
        let bytes = body.clone().collect().await?;
        let head: Head = serde_json::from_slice(&bytes).unwrap_or_default();
        let model = head.model.map(|m| m.strip_prefix("models/").map(str::to_owned).unwrap_or(m));
        Ok(Self { model, names: Vec::new(), stream: head.stream, background: head.background })
    }
}
