//! How large and how slow a client may be.

use std::time::Duration;

use tokio::sync::Semaphore;

use super::handles::Room;
use crate::config::Limits;

/// How many headers a request may have; more is answered with 431. What the parser keeps on its stack.
pub(crate) const MAX_HEADERS: usize = 100;

/// How large and how slow a client may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerLimits {
    /// Connections at a time; more wait to be accepted. Defaults to 8,192.
    pub(crate) connections: usize,
    /// Requests at a time on all connections; more wait for one to end. Defaults to any number.
    pub(crate) requests: usize,
    /// The limit of open files, where it is what allows no more connections.
    pub(crate) short_of_files: Option<u64>,
    /// Bytes of a request's head; twice as much is answered with 431 at the latest: a buffer is doubled before it is
    /// looked at. Defaults to 64 KB.
    pub(crate) head_bytes: usize,
    /// How long a client may take from its connection to the end of its first request's head; then the connection
    /// ends. Defaults to 10 s.
    pub(crate) head: Duration,
    /// How long a connection is kept without a request, the time for its next head included. Defaults to 75 s: clients
    /// keep theirs for 5 to 60 s, and whoever ends it second meets no race.
    pub(crate) idle: Duration,
    /// How long a client may leave a full socket unread; then the connection ends. Defaults to 60 s.
    pub(crate) stall: Duration,
    /// Requests at a time on one HTTP/2 connection. Defaults to 128.
    pub(crate) streams: u32,
}

impl ServerLimits {
    /// Those that an operator sets, as far as the files suffice that this process may have open beside those it has.
    pub(crate) fn of(limits: &Limits) -> Self {
        let room = Room::here(limits.connections);
        Self {
            connections: room.connections,
            requests: room.requests,
            short_of_files: room.short_of,
            head: limits.head_time,
            stall: limits.idle_time,
            ..Self::default()
        }
    }
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 8_192,
            requests: Semaphore::MAX_PERMITS,
            short_of_files: None,
            head_bytes: 64 << 10,
            head: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            stall: Duration::from_secs(60),
            streams: 128,
        }
    }
}
