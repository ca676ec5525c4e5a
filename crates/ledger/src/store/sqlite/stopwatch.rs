//! Real time, whatever the `Clock` shows: how long the disk and other processes take.

use std::time::{Duration, Instant};

/// Runs from when it is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "a span inside one thread, never kept")]
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
