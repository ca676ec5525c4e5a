//! The comparison: what other tools do, as honestly as it can be written.
//!
//! Each takes the keys in turn, tries every key it thinks usable before it gives up on a call, and retries
//! a 5xx twice with the next key. That is more patient than most of the tools it stands for, which give up
//! after three attempts. None of them keeps anything over a restart.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use futures_util::future::{FutureExt as _, LocalBoxFuture};
use http::{HeaderMap, HeaderValue, Method};
use keywheel_core::{ApiKey, Clock as _, clock::after_ms};
use keywheel_provider::{Transport as _, WireRequest};

use super::{App, Outcome, Policy, Strategy};

/// What a key's failures lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Every 429 puts the key aside for the same time, whatever it says.
    Flat(Duration),
    /// Three failures of any kind, and the key is out: for good, or until all keys are looked at again.
    ThreeStrikes {
        /// How often strikes are forgiven. `None` is never.
        forgiven_every: Option<Duration>,
    },
}

/// One of the strategies that keywheel is compared with.
#[derive(Debug, Clone)]
pub struct Simple {
    name: &'static str,
    suffix: &'static str,
    rule: Rule,
}

impl Simple {
    /// A flat cooldown of 60 seconds.
    #[must_use]
    pub const fn flat_60s() -> Self {
        let rule = Rule::Flat(Duration::from_secs(60));
        Self { name: "flat 60 s cooldown", suffix: "_flat_60s", rule }
    }

    /// A flat cooldown of 5 seconds.
    #[must_use]
    pub const fn flat_5s() -> Self {
        let rule = Rule::Flat(Duration::from_secs(5));
        Self { name: "flat 5 s cooldown", suffix: "_flat_5s", rule }
    }

    /// Three failures and out, until the next restart.
    #[must_use]
    pub const fn three_strikes() -> Self {
        let rule = Rule::ThreeStrikes { forgiven_every: None };
        Self { name: "three strikes and out", suffix: "_three_strikes", rule }
    }

    /// Three failures and out, but every hour all keys get another chance: the kinder form.
    #[must_use]
    pub const fn three_strikes_hourly() -> Self {
        let rule = Rule::ThreeStrikes { forgiven_every: Some(Duration::from_secs(3_600)) };
        Self { name: "three strikes, hourly pardon", suffix: "_three_strikes_hourly", rule }
    }
}

impl Strategy for Simple {
    fn name(&self) -> &'static str {
        self.name
    }

    fn suffix(&self) -> &'static str {
        self.suffix
    }

    fn start(&mut self, app: &App) -> Rc<dyn Policy> {
        Rc::new(Running {
            app: app.clone(),
            rule: self.rule,
            keys: RefCell::new(vec![KeyMemory::default(); app.keys.len()]),
            next: Cell::new(0),
        })
    }
}

struct Running {
    app: App,
    rule: Rule,
    keys: RefCell<Vec<KeyMemory>>,
    next: Cell<usize>,
}

#[derive(Debug, Clone, Copy, Default)]
struct KeyMemory {
    out_until_ms: i64,
    strikes: u32,
    /// In which stretch between two pardons the strikes were given.
    strikes_in: i64,
}

impl Policy for Running {
    fn call(self: Rc<Self>) -> LocalBoxFuture<'static, Outcome> {
        async move {
            let deadline = self.app.clock.now() + self.app.deadline;
            let mut tried = vec![false; self.app.keys.len()];
            let mut retries_left = 2;
            while let Some(i) = self.pick(&tried) {
                if self.app.clock.now() >= deadline {
                    break;
                }
                tried[i] = true;
                match self.send(&self.app.keys[i]).await {
                    Some(200) => return Outcome::Delivered,
                    Some(429) => self.refused(i),
                    _ if retries_left == 0 => {
                        self.strike(i);
                        return Outcome::Failed;
                    }
                    _ => {
                        self.strike(i);
                        retries_left -= 1;
                    }
                }
            }
            Outcome::Failed
        }
        .boxed_local()
    }
}

impl Running {
    /// The next key in turn that is thought usable and was not tried for this call.
    fn pick(&self, tried: &[bool]) -> Option<usize> {
        let count = self.app.keys.len();
        let found = (0..count)
            .map(|step| (self.next.get() + step) % count)
            .find(|&i| !tried[i] && self.usable(i))?;
        self.next.set(found + 1);
        Some(found)
    }

    fn usable(&self, i: usize) -> bool {
        let key = self.keys.borrow()[i];
        match self.rule {
            Rule::Flat(_) => key.out_until_ms <= self.app.clock.unix_ms(),
            Rule::ThreeStrikes { .. } => key.strikes < 3 || key.strikes_in != self.stretch(),
        }
    }

    fn refused(&self, i: usize) {
        match self.rule {
            Rule::Flat(pause) => {
                let until_ms = after_ms(self.app.clock.unix_ms(), pause);
                self.keys.borrow_mut()[i].out_until_ms = until_ms;
            }
            Rule::ThreeStrikes { .. } => self.strike(i),
        }
    }

    /// Counts a failure of any kind, for those who do.
    fn strike(&self, i: usize) {
        let stretch = self.stretch();
        let key = &mut self.keys.borrow_mut()[i];
        if key.strikes_in != stretch {
            *key = KeyMemory { strikes_in: stretch, ..KeyMemory::default() };
        }
        key.strikes += 1;
    }

    /// The number of the stretch between two pardons.
    fn stretch(&self) -> i64 {
        match self.rule {
            Rule::ThreeStrikes { forgiven_every: Some(every) } => {
                let every_ms = i64::try_from(every.as_millis()).unwrap_or(i64::MAX).max(1);
                self.app.clock.unix_ms() / every_ms
            }
            _ => 0,
        }
    }

    /// The status of the reply; `None` when there was none.
    async fn send(&self, key: &ApiKey) -> Option<u16> {
        let mut headers = HeaderMap::new();
        let mut value = HeaderValue::from_str(key.expose()).ok()?;
        value.set_sensitive(true);
        headers.insert("x-goog-api-key", value);
        let request = WireRequest {
            method: Method::POST,
            url: format!("http://sim.invalid/v1beta/models/{}:generateContent", self.app.model),
            headers,
            body: r#"{"contents":[{"parts":[{"text":"Say hello"}]}]}"#.into(),
        };
        self.app.transport.send(request).await.ok().map(|reply| reply.status)
    }
}
