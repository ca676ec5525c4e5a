//! How many connections the system's limit of open files suffices for.
//!
//! A connection that is taken without a file left for the provider's is answered with a failure of the provider's, which
//! it is not. One that waits in the kernel's queue is served a moment later.

use tokio::sync::Semaphore;

/// What is opened now and then, whoever asks: the pool's state and its lock, the configuration, one more reader of the
/// ledger, the newcomer who is taken before there is a place.
const RESERVE: u64 = 16;

/// What a request may hold beside its connection: one to the provider, and for a while the file of a long body, or a
/// second one to the provider that is still being made when another comes free.
const OF_A_REQUEST: u64 = 2;

/// What is taken for open where the system does not say.
#[cfg(unix)]
const LIKELY_OPEN: u64 = 64;

/// How many connections, and requests on them, there may be at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) connections: usize,
    pub(super) requests: usize,
    /// The limit of open files, where it allows fewer connections than were wanted.
    pub(super) short_of: Option<u64>,
}

impl Room {
    /// For `wanted` connections by the limit of this process, and what it has open now.
    pub(super) fn here(wanted: usize) -> Self {
        match limit() {
            Some((limit, open)) => {
                if room_left(limit, open) < 1 + OF_A_REQUEST {
                    tracing::warn!(
                        limit,
                        open,
                        "the limit of open files is too small to serve with: requests, reloads and the pool's state \
                         may fail for want of one"
                    );
                }
                Self::within(limit, open, wanted)
            }
            None => Self {
                connections: wanted.min(Semaphore::MAX_PERMITS),
                requests: Semaphore::MAX_PERMITS,
                short_of: None,
            },
        }
    }

    /// For `wanted` connections by a `limit` of open files, of which there are `open` already. One is always served.
    fn within(limit: u64, open: u64, wanted: usize) -> Self {
        let left = room_left(limit, open);
        let wanted = wanted.min(Semaphore::MAX_PERMITS) as u64;
        // As many requests as connections at least: HTTP/1 has one on each.
        let connections = wanted.min(left / (1 + OF_A_REQUEST)).max(1);
        let requests = (left.saturating_sub(connections) / OF_A_REQUEST).max(connections);
        let permits = |count: u64| {
            usize::try_from(count)
                .map_or(Semaphore::MAX_PERMITS, |it| it.min(Semaphore::MAX_PERMITS))
        };
        Self {
            connections: permits(connections),
            requests: permits(requests),
            short_of: (connections < wanted).then_some(limit),
        }
    }
}

/// How many files there are for connections and requests.
const fn room_left(limit: u64, open: u64) -> u64 {
    limit.saturating_sub(open).saturating_sub(RESERVE)
}

/// The limit of open files, and how many are open; `None` where there is no limit.
#[cfg(unix)]
fn limit() -> Option<(u64, u64)> {
    use rustix::process::{Resource, getrlimit};

    let limit = getrlimit(Resource::Nofile).current?;
    let open = std::fs::read_dir("/dev/fd").map_or(LIKELY_OPEN, |open| open.count() as u64);
    Some((limit, open))
}

#[cfg(not(unix))]
const fn limit() -> Option<(u64, u64)> {
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_the_limit_all_connections_find_what_they_need(
            limit in 0_u64..2_000_000,
            open in 0_u64..500,
            wanted in 1_usize..20_000,
        ) {
            let Room { connections, requests, short_of } = Room::within(limit, open, wanted);
            prop_assert!(0 < connections && connections <= wanted && connections <= requests);
            prop_assert_eq!(short_of, (connections < wanted).then_some(limit));
            if limit >= open + RESERVE + 1 + OF_A_REQUEST {
                let held = connections as u64 + OF_A_REQUEST * requests as u64;
                prop_assert!(open + RESERVE + held <= limit);
            }
        }
    }

    #[test]
    fn numbers_without_measure_are_none() {
        let room = Room::within(u64::MAX, 10, usize::MAX);
        assert_eq!((room.connections, room.requests), (Semaphore::MAX_PERMITS, room.requests));
        let room = Room::within(1 << 20, 40, 4_096);
        assert_eq!((room.connections, room.short_of), (4_096, None));
        assert!(room.requests > 500_000);
    }
}
