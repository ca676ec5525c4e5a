//! A client over the simulator in process, and a line to it that can be cut.

use std::{
    collections::VecDeque,
    path::Path,
    sync::{Arc, Mutex},
};

use futures_util::{FutureExt as _, future::BoxFuture};
use keywheel::{Gemini, ManualClock, Pool, StateLocation};
use keywheel_pool::PoolBuilder;
use keywheel_provider::{
    Sent, Transport, TransportError, TransportKind, WireRequest, WireResponse, testing::Recorded,
};
use keywheel_sim::{
    Limits, ModelConfig, ProjectConfig, SharedWorld, SimConfig, SimTransport, World,
};

use super::{MODEL, NOON, assert_balanced, at, key, over, run, specs};

/// A world of `projects` free quota projects, `p1` and so on, with a key each; a model to answer and one to embed.
pub(crate) fn world(projects: usize) -> SimConfig {
    let config = SimConfig::new()
        .with_model(MODEL, ModelConfig::free(Limits::new()))
        .with_model("gemini-embedding-001", ModelConfig::embedding(Limits::new()));
    (1..=projects).fold(config, |config, number| {
        config.with_project(ProjectConfig::new(format!("p{number}")).with_key(key(number)))
    })
}

/// A client whose keys are those of the world.
pub(crate) struct SimRig {
    pub(crate) clock: ManualClock,
    pub(crate) line: Line,
    pub(crate) gemini: Gemini,
}

impl SimRig {
    pub(crate) fn new(keys: usize, config: SimConfig) -> Self {
        Self::built(keys, config, |pool| pool)
    }

    pub(crate) fn built(
        keys: usize,
        config: SimConfig,
        pool: impl FnOnce(PoolBuilder) -> PoolBuilder,
    ) -> Self {
        let clock = ManualClock::at(at(NOON));
        let world = SharedWorld::new(World::new(config).unwrap(), Arc::new(clock.clone()));
        Self::over(keys, world, clock, pool)
    }

    /// Another client of a world that exists, which knows nothing of what others did in it.
    pub(crate) fn over_world(keys: usize, world: SharedWorld, clock: ManualClock) -> Self {
        Self::over(keys, world, clock, |pool| pool)
    }

    /// Another client of the same world, as after a restart.
    pub(crate) fn again(&self, keys: usize, state: &Path) -> Self {
        let location = StateLocation::File(state.to_owned());
        Self::over(keys, self.line.world().clone(), self.clock.clone(), |pool| pool.state(location))
    }

    fn over(
        keys: usize,
        world: SharedWorld,
        clock: ManualClock,
        pool: impl FnOnce(PoolBuilder) -> PoolBuilder,
    ) -> Self {
        super::follow_rust_log();
        let line = Line { sim: SimTransport::to(world), state: Arc::default() };
        let builder = Pool::builder()
            .keys(specs(keys))
            .clock(Arc::new(clock.clone()))
            .state(StateLocation::None)
            .seed(1);
        let gemini = over(pool(builder).build().unwrap(), line.clone(), |client| client);
        Self { clock, line, gemini }
    }

    pub(crate) fn run<F: IntoFuture>(&self, future: F) -> F::Output {
        run(&self.clock, future)
    }

    /// Nothing is held, and the pool has counted for each project and `bucket` what the world has.
    pub(crate) fn assert_counts_agree(&self, bucket: &str) {
        assert_balanced(&self.gemini);
        let (stats, status) = (self.line.world().stats(), self.gemini.status());
        for known in status.buckets.iter().filter(|known| known.model == bucket) {
            let number: usize =
                known.labels[0].rsplit('_').next().and_then(|n| n.parse().ok()).unwrap();
            let counted = stats.bucket(&format!("p{number}"), bucket).counted;
            assert_eq!(known.day.requests, counted, "{} / {bucket}", known.labels[0]);
        }
    }
}

/// The way to the simulator: remembers what was sent, and breaks when it is told to.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    sim: SimTransport,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    sent: Vec<Recorded>,
    cuts: VecDeque<Option<Cut>>,
}

/// How one request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// It arrives, and its reply is lost.
    Reply,
    /// It does not arrive, and nobody can know.
    Request,
}

impl Line {
    /// What becomes of the next requests, one after the other; those after them pass.
    pub(crate) fn cut(&self, cuts: impl IntoIterator<Item = Option<Cut>>) {
        self.state.lock().unwrap().cuts = cuts.into_iter().collect();
    }

    /// What was sent so far, in order.
    pub(crate) fn sent(&self) -> Vec<Recorded> {
        self.state.lock().unwrap().sent.clone()
    }

    pub(crate) const fn world(&self) -> &SharedWorld {
        self.sim.world()
    }
}

impl Transport for Line {
    fn send(
        &self,
        request: WireRequest,
    ) -> BoxFuture<'static, Result<WireResponse, TransportError>> {
        let cut = {
            let mut state = self.state.lock().unwrap();
            state.sent.push(Recorded::of(request.clone()));
            state.cuts.pop_front().flatten()
        };
        let sim = self.sim.clone();
        async move {
            let lost = || {
                let message = "the line was cut";
                TransportError::new(TransportKind::Interrupted, Sent::Maybe, message)
            };
            if cut == Some(Cut::Request) {
                return Err(lost());
            }
            let reply = sim.send(request).await;
            if cut == Some(Cut::Reply) { Err(lost()) } else { reply }
        }
        .boxed()
    }
}
