//! keywheel itself: the real pool and the real client.

use std::{rc::Rc, sync::Arc};

use futures_util::future::{FutureExt as _, LocalBoxFuture};
use keywheel::Gemini;
use keywheel_pool::{KeySpec, MemoryState, Pool, StateLocation};

use super::{App, Outcome, Policy, Strategy};

/// keywheel, with nothing set but the deadline: limits are learned.
#[derive(Debug, Default)]
pub struct Keywheel {
    /// Stands for the state file: survives the restart.
    state: MemoryState,
}

impl Strategy for Keywheel {
    fn name(&self) -> &'static str {
        "keywheel"
    }

    fn suffix(&self) -> &'static str {
        ""
    }

    fn start(&mut self, app: &App) -> Rc<dyn Policy> {
        let keys = app.keys.iter().enumerate();
        let keys =
            keys.map(|(i, key)| KeySpec::new(key.clone(), format!("GEMINI_API_KEY_{}", i + 1)));
        let pool = Pool::builder()
            .keys(keys)
            .clock(Arc::new(app.clock.clone()))
            .state(StateLocation::Memory(self.state.clone()))
            .seed(1)
            .build()
            .expect("the plan's keys make a pool");
        let gemini = Gemini::builder()
            .pool(pool)
            .clock(Arc::new(app.clock.clone()))
            .transport(Arc::new(app.transport.clone()))
            .base_url("http://sim.invalid")
            .deadline(app.deadline)
            .build()
            .now_or_never()
            .expect("nothing to wait for: the pool is there already")
            .expect("the plan's settings make a client");
        Rc::new(Running { gemini, model: app.model.as_str().into() })
    }
}

struct Running {
    gemini: Gemini,
    model: Arc<str>,
}

impl Policy for Running {
    fn call(self: Rc<Self>) -> LocalBoxFuture<'static, Outcome> {
        async move {
            match self.gemini.generate(Arc::clone(&self.model), "Say hello").await {
                Ok(_) => Outcome::Delivered,
                Err(_) => Outcome::Failed,
            }
        }
        .boxed_local()
    }
}
