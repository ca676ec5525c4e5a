//! How uploaded files are kept.

use std::time::Duration;

/// The rules for uploaded files. The defaults are Google's, but for `processing`.
///
/// ```
/// use std::time::Duration;
/// use keywheel_sim::{FilesConfig, SimConfig};
///
/// let slow = FilesConfig { processing: Duration::from_secs(5), ..FilesConfig::default() };
/// assert_eq!(SimConfig::new().with_files(slow).files.processing, Duration::from_secs(5));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilesConfig {
    /// How long a file is there. Default 48 hours
    /// (<https://ai.google.dev/gemini-api/docs/files>).
    pub lifetime: Duration,
    /// How long a file is `PROCESSING` before it is `ACTIVE` and can be used. Default none.
    pub processing: Duration,
    /// What the chunks of a resumable upload have to be multiples of, the last one excepted, in bytes.
    /// Default 8 MiB, the size of the official SDKs' chunks.
    pub chunk_bytes: u64,
}

impl Default for FilesConfig {
    fn default() -> Self {
        Self {
            lifetime: Duration::from_secs(48 * 3_600),
            processing: Duration::ZERO,
            chunk_bytes: 8 << 20,
        }
    }
}
