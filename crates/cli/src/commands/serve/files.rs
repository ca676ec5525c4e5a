//! How many files the program may have open: each connection is one.

/// Raises the limit to what the system allows. Many systems begin with 1,024, for the sake of programs that call
/// `select`; Go's and Java's raise it at their start, too.
#[cfg(unix)]
pub(super) fn raise_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    /// What macOS gives to whoever asks for no limit.
    const OPEN_MAX: u64 = 10_240;

    let limit = getrlimit(Resource::Nofile);
    let Some(was) = limit.current else { return };
    for wanted in [limit.maximum, Some(OPEN_MAX)] {
        if wanted.is_some_and(|wanted| wanted <= was) {
            break;
        }
        if setrlimit(Resource::Nofile, Rlimit { current: wanted, ..limit }).is_ok() {
            tracing::debug!(was, now = wanted, "the limit of open files was raised");
            return;
        }
    }
    tracing::debug!(limit = was, "the limit of open files stays as it is");
}

/// Where there is none.
#[cfg(not(unix))]
pub(super) const fn raise_limit() {}
