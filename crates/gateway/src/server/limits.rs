//! How large and how slow a client may be.

use std::time::Duration;

/// How many headers a request may have; more is answered with 431. What the parser keeps on its stack.
pub(crate) const MAX_HEADERS: usize = 100;

/// How large and how slow a client may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerLimits {
    /// Connections at a time; more wait to be accepted. Defaults to 8,192.
    pub(crate) connections: usize,
    /// Bytes of a request's head; more is answered with 431. Defaults to 64 KB.
    pub(crate) head_bytes: usize,
    /// How long a client may take for a request's head, and for its first byte; then the connection ends, as does one
    /// that is kept and not used. Defaults to 60 s: beyond the time for which clients keep idle connections.
    pub(crate) head: Duration,
    /// How long a client may leave a full socket unread; then the connection ends. Defaults to 60 s.
    pub(crate) stall: Duration,
    /// Requests at a time on one HTTP/2 connection. Defaults to 128.
    pub(crate) streams: u32,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 8_192,
            head_bytes: 64 << 10,
            head: Duration::from_secs(60),
            stall: Duration::from_secs(60),
            streams: 128,
        }
    }
}
