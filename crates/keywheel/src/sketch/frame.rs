//! One thing that is weighed by itself: a part, a tool.

use keywheel_core::estimate;

use super::{Shape, feed::Feed};

/// What came of one part so far.
#[derive(Debug, Default)]
pub(super) struct Frame {
    /// So many objects and arrays were open before it.
    pub(super) depth: usize,
    /// All of it as it came, but for what was left out.
    pub(super) raw: Feed,
    /// Bytes that were left out of `raw`: texts and media, which count otherwise.
    pub(super) left_out: u64,
    pub(super) text: Option<u64>,
    pub(super) blob: Blob,
    media: Option<u64>,
    pub(super) is_file: bool,
}

/// Bytes in base64 with their media type.
#[derive(Debug, Default)]
pub(super) struct Blob {
    pub(super) mime: Option<String>,
    pub(super) data: Option<u64>,
}

impl Frame {
    pub(super) fn new(depth: usize) -> Self {
        Self { depth, ..Self::default() }
    }

    /// The blob ends here, if there is a whole one.
    pub(super) fn end_blob(&mut self) {
        if let Blob { mime: Some(mime), data: Some(length) } = std::mem::take(&mut self.blob) {
            // OpenAI names formats of sound.
            let mime = if mime.contains('/') { mime } else { format!("audio/{mime}") };
            self.add_media(&mime, length);
        }
    }

    /// `length` characters of base64, which is a third longer than what it carries.
    pub(super) fn add_media(&mut self, mime: &str, length: u64) {
        let tokens = estimate::media(mime, length / 4 * 3, None);
        self.media = Some(self.media.unwrap_or(0).saturating_add(tokens));
    }

    /// What it weighs in all.
    pub(super) fn tokens(mut self, shape: Shape) -> u64 {
        self.end_blob();
        // A file's size is not known here; one tile of a picture is the least it can be.
        let file = self.is_file.then_some(estimate::TOKENS_PER_TILE);
        let known = if shape.is_gemini() {
            // A part is one of them.
            self.text.or(self.media).or(file)
        } else {
            let all = [self.text, self.media, file];
            all.into_iter().flatten().reduce(u64::saturating_add)
        };
        // Nothing takes more than one and a half tokens a byte.
        let left_out = self.left_out.saturating_add(self.left_out / 2);
        known.unwrap_or_else(|| self.raw.tokens().saturating_add(left_out))
    }
}
