//! Threads that connections are served on.

use std::{io, num::NonZero, sync::Arc};

use tokio::runtime::{Builder, Handle, Runtime};

/// Runtimes of one thread each. A connection stays with one of them, and with it all that its requests touch: timers,
/// tasks, the connections to the provider. Threads that share their work hand all of it to and fro, and each finds its
/// caches cold.
#[derive(Debug)]
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    /// Those that are ours to end.
    runtimes: Vec<Runtime>,
}

/// One thread. Its clones count as its connections.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    handle: Handle,
    connections: Arc<()>,
}

impl Lanes {
    /// So many threads.
    ///
    /// # Errors
    /// The system gives no more threads, or no more file handles.
    pub(crate) fn new(threads: NonZero<usize>) -> io::Result<Self> {
        let mut lanes = Self { lanes: Vec::new(), runtimes: Vec::new() };
        for _ in 0..threads.get() {
            let mut builder = Builder::new_multi_thread();
            let runtime =
                builder.worker_threads(1).thread_name("keywheel-lane").enable_all().build()?;
            lanes.lanes.push(Lane::of(runtime.handle().clone()));
            lanes.runtimes.push(runtime);
        }
        Ok(lanes)
    }

    /// The runtime that this is called in, and no other.
    #[cfg(test)]
    pub(crate) fn here() -> Self {
        Self { lanes: vec![Lane::of(Handle::current())], runtimes: Vec::new() }
    }

    /// The one with the fewest connections, for one more.
    pub(crate) fn freest(&self) -> Lane {
        let freest = self.lanes.iter().min_by_key(|lane| lane.connections());
        freest.expect("there is always one").clone()
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for runtime in self.runtimes.drain(..) {
            // This may be the thread of another runtime, which is not to be held up.
            runtime.shutdown_background();
        }
    }
}

impl Lane {
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
            let (tell, told) = std::sync::mpsc::channel();
            lane.handle().spawn(async move { tell.send(std::thread::current().id()).unwrap() });
            told.recv().unwrap()
        };
        assert_ne!(thread(&here), thread(&there));
        assert_eq!(thread(&here), thread(&here));
    }
}
