//! Threads that connections are served on.

use std::{
    convert::Infallible,
    io,
    num::NonZero,
    sync::{Arc, mpsc},
    thread,
};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// Threads with a runtime each. A connection stays with one of them, and with it all that its requests touch: timers,
/// tasks, the connections to the provider. Threads that share their work hand all of it to and fro, and each finds its
/// caches cold.
///
/// Dropped, they end, and with them what they still do.
#[derive(Debug)]
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    /// Dropped, the threads end.
    _open: Vec<Open>,
}

/// One thread. Its clones count as its connections.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    handle: Handle,
    connections: Arc<()>,
}

type Open = oneshot::Sender<Infallible>;

impl Lanes {
    /// So many threads.
    ///
    /// # Errors
    /// The system gives no more threads, or no more file handles.
    pub(crate) fn new(threads: NonZero<usize>) -> io::Result<Self> {
        let made = (0..threads.get()).map(|_| Lane::begin()).collect::<io::Result<Vec<_>>>()?;
        let (lanes, open) = made.into_iter().unzip();
        Ok(Self { lanes, _open: open })
    }

    /// The runtime that this is called in, and no other.
    #[cfg(test)]
    pub(crate) fn here() -> Self {
        Self { lanes: vec![Lane::of(Handle::current())], _open: Vec::new() }
    }

    /// The one with the fewest connections, for one more.
    pub(crate) fn freest(&self) -> Lane {
        let freest = self.lanes.iter().min_by_key(|lane| lane.connections());
        freest.expect("there is always one").clone()
    }
}

impl Lane {
    /// A thread, and what ends it when it is dropped.
    fn begin() -> io::Result<(Self, Open)> {
        let (tell, told) = mpsc::channel();
        let (open, closed) = oneshot::channel();
        // The runtime is made where it runs: where the thread cannot be had, none has to be taken down.
        let work = move || match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                let _ = tell.send(Ok(runtime.handle().clone()));
                let _closed: Result<Infallible, _> = runtime.block_on(closed);
                runtime.shutdown_background();
            }
            Err(error) => drop(tell.send(Err(error))),
        };
        thread::Builder::new().name("keywheel-lane".to_owned()).spawn(work)?;
        let handle = told.recv().map_err(|_| io::Error::other("a thread ended at once"))??;
        Ok((Self::of(handle), open))
    }

    fn of(handle: Handle) -> Self {
        Self { handle, connections: Arc::default() }
    }

    pub(crate) const fn handle(&self) -> &Handle {
        &self.handle
    }

    fn connections(&self) -> usize {
        Arc::strong_count(&self.connections) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_goes_where_the_fewest_are() {
        let lanes = Lanes::new(NonZero::new(3).unwrap()).unwrap();
        let counts = || lanes.lanes.iter().map(Lane::connections).collect::<Vec<_>>();
        let mut taken: Vec<_> = (0..7).map(|_| lanes.freest()).collect();
        assert_eq!(counts(), [3, 2, 2]);
        // Those of the second lane end.
        let second = taken[1].handle().id();
        taken.retain(|lane| lane.handle().id() != second);
        let next = [lanes.freest(), lanes.freest()];
        assert!(next.iter().all(|lane| lane.handle().id() == second));
        assert_eq!(counts(), [3, 2, 2]);
    }

    #[test]
    fn each_lane_is_a_thread_of_its_own() {
        let lanes = Lanes::new(NonZero::new(2).unwrap()).unwrap();
        let (here, there) = (lanes.freest(), lanes.freest());
        let thread = |lane: &Lane| {
            let (tell, told) = mpsc::channel();
            lane.handle().spawn(async move { tell.send(thread::current().id()).unwrap() });
            told.recv().unwrap()
        };
        assert_ne!(thread(&here), thread(&there));
        assert_eq!(thread(&here), thread(&here));
    }
}
