//! A virtual day: the same traffic and the same quotas, handled by one strategy after another.
//!
//! Calls arrive open-loop (nobody waits for anybody), by a seeded Poisson process. The keys' quotas, the
//! provider's failures and the moments of arrival are the same for every strategy, so what differs is what
//! the strategy made of them. No real time passes: the clock is moved from one event to the next.
//!
//! What a day can deliver at best is known beforehand, since faults are drawn by bucket, day and number of
//! the request: [`Report::capacity`] is the quota without the requests that the provider's failures eat.
//!
//! ```
//! use std::time::Duration;
//! use keywheel_sim::day::{Plan, Simple, Strategy, figures, headline, play, table};
//!
//! let plan = Plan { keys: 2, per_day: 20, length: Duration::from_secs(600), ..Plan::default() };
//! assert_eq!(plan.world().projects.len(), 2);
//! assert_eq!(plan.restarts_at() - plan.starts_at, chrono::TimeDelta::seconds(300));
//!
//! let mut strategies = [
//!     Simple::flat_60s(),
//!     Simple::flat_5s(),
//!     Simple::three_strikes(),
//!     Simple::three_strikes_hourly(),
//! ];
//! let reports: Vec<_> = strategies.iter_mut().map(|one| play(&plan, one)).collect();
//! println!("{}{}", table(&reports), headline(&reports).unwrap());
//!
//! let (report, strategy) = (&reports[0], &strategies[0]);
//! assert_eq!((report.name, report.suffix), (strategy.name(), strategy.suffix()));
//! assert_eq!(report.calls, plan.arrivals().len() as u64);
//! assert!(report.share() <= 1.0 && report.seconds_to_failure() >= 0.0);
//! assert!(figures(report).starts_with("FIGURE delivered_flat_60s="));
//! ```

mod crowd;
mod plan;
mod report;
mod simple;
#[cfg(feature = "day")]
mod wheel;

use std::{rc::Rc, time::Duration};

use futures_util::future::{FutureExt as _, LocalBoxFuture};
use keywheel_core::{ApiKey, Clock as _, ManualClock};

use crate::{shared::SharedWorld, transport::SimTransport, world::World};
use crowd::Crowd;

pub use plan::Plan;
pub use report::{Report, figures, headline, table};
pub use simple::{Rule, Simple};
#[cfg(feature = "day")]
pub use wheel::Keywheel;

/// How a call ended, as its caller sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With an answer.
    Delivered,
    /// Without one.
    Failed,
}

/// What handles the app's calls while one process of it runs.
pub trait Policy {
    /// Handles one call, from its arrival to its answer or failure.
    fn call(self: Rc<Self>) -> LocalBoxFuture<'static, Outcome>;
}

/// A way to handle calls, over restarts of the app.
pub trait Strategy {
    /// The name in tables.
    fn name(&self) -> &'static str;

    /// The name in `FIGURE` lines: empty for keywheel itself, else with an underscore in front.
    fn suffix(&self) -> &'static str;

    /// Starts the app, for the first time or again. What is to survive a restart stays in `self`.
    fn start(&mut self, app: &App) -> Rc<dyn Policy>;
}

/// What the app has: keys, a model, a way to the provider, a clock.
#[derive(Debug, Clone)]
pub struct App {
    /// One key per quota project.
    pub keys: Vec<ApiKey>,
    /// The model every call asks for.
    pub model: String,
    /// The way to the simulated provider.
    pub transport: SimTransport,
    /// The clock of app and provider alike.
    pub clock: ManualClock,
    /// How long a call may take.
    pub deadline: Duration,
}

/// Plays `plan` with `strategy`.
#[must_use]
pub fn play(plan: &Plan, strategy: &mut dyn Strategy) -> Report {
    let clock = ManualClock::at(plan.starts_at);
    let config = plan.world();
    let keys = config.projects.iter().flat_map(|it| it.keys.iter().map(|key| key.key.clone()));
    let keys = keys.collect();
    let world = World::new(config).expect("a plan makes a sound configuration");
    let world = SharedWorld::new(world, std::sync::Arc::new(clock.clone()));
    let app = App {
        keys,
        model: plan.model.clone(),
        transport: SimTransport::to(world.clone()),
        clock: clock.clone(),
        deadline: plan.deadline,
    };
    let mut report = Report::new(strategy, plan, &world);
    let mut policy = strategy.start(&app);
    let mut crowd = Crowd::new();
    let mut arrivals = plan.arrivals().into_iter().peekable();
    let mut restarts_at = Some(plan.restarts_at());
    loop {
        for (outcome, arrived_at) in crowd.run_until_stalled() {
            report.ended(outcome, arrived_at, &world, clock.now());
        }
        let next = [arrivals.peek().copied(), clock.next_wake(), restarts_at];
        let Some(next) = next.into_iter().flatten().min().filter(|at| *at <= plan.ends_at()) else {
            break;
        };
        // A wake for a moment that has passed must not turn the clock back.
        clock.set(next.max(clock.now()));
        if restarts_at.is_some_and(|at| at <= next) {
            restarts_at = None;
            report.cut_by_restart = crowd.drop_all();
            drop(policy);
            policy = strategy.start(&app);
        }
        while arrivals.next_if(|at| *at <= next).is_some() {
            let arrived_at = clock.now();
            let call = Rc::clone(&policy).call();
            crowd.add(call.map(move |outcome| (outcome, arrived_at)).boxed_local());
        }
    }
    report.finish(&crowd, &world.stats());
    report
}
