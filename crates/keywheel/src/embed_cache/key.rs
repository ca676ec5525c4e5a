//! What a vector is of.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// Everything but the text that a vector depends on. Vectors of two spaces cannot be compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Space<'a> {
    /// Who makes the vectors: the provider's name.
    pub(crate) provider: &'a str,
    /// Where the provider is reached.
    pub(crate) base_url: &'a str,
    pub(crate) model: &'a str,
    pub(crate) task: Option<&'a str>,
    pub(crate) dimensions: Option<u32>,
    pub(crate) title: Option<&'a str>,
}

/// What a vector is of: SHA-256 over the provider, its address, the model, the task, the number of dimensions, the
/// title and the exact text. Texts themselves are not kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EmbedKey([u8; 32]);

impl EmbedKey {
    /// The key of `text` in `space`.
    pub(crate) fn new(space: &Space<'_>, text: &str) -> Self {
        let Space { provider, base_url, model, task, dimensions, title } = *space;
        let mut hash = Sha256::new();
        // Each part with its length, so that no two lists of parts read the same.
        let mut part = |part: Option<&[u8]>| {
            let length = part.map_or(u64::MAX, |part| part.len() as u64);
            hash.update(length.to_le_bytes());
            hash.update(part.unwrap_or_default());
        };
        part(Some(b"keywheel embedding 1"));
        part(Some(provider.as_bytes()));
        part(Some(base_url.as_bytes()));
        part(Some(model.as_bytes()));
        part(task.map(str::as_bytes));
        part(dimensions.map(u32::to_le_bytes).as_ref().map(<[u8; 4]>::as_slice));
        part(title.map(str::as_bytes));
        part(Some(text.as_bytes()));
        Self(hash.finalize().into())
    }

    /// The 32 bytes of the hash.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for EmbedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "EmbedKey({a:02x}{b:02x}{c:02x}{d:02x}…)")
    }
}
