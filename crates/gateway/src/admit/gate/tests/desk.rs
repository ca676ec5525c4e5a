//! A gate in a test: a ledger, a provider, and everybody who asks.

use keywheel::{
    Exhausted, ManualClock,
    ledger::{Ask, Hold, Limit as Cap, Period, Reserved},
};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinHandle,
};

use super::*;

/// Longer than anything here takes, on whatever machine: only who is forgotten waits so long.
const FORGOTTEN: Duration = Duration::from_secs(20);
/// How long a request may wait.
pub(super) const WAIT: Duration = Duration::from_secs(30);

/// A gate over a ledger in memory, and a provider that answers when it is told to.
#[derive(Clone)]
pub(super) struct Desk {
    pub(super) gate: Gate,
    pub(super) ledger: Ledger,
    pub(super) clock: ManualClock,
    /// One permit lets one answer come.
    pub(super) answers: Arc<Semaphore>,
    /// Who was sent, in that order.
    pub(super) sent: mpsc::UnboundedSender<&'static str>,
    pub(super) queue: Queue,
}

impl Desk {
    /// Accounts `a`, `b` and `c` with 1,000 tokens a day each, one without a limit of its own, and 2,000 for all.
    pub(super) async fn new() -> (Self, mpsc::UnboundedReceiver<&'static str>) {
        Self::at("2026-11-30T20:00:00Z").await
    }

    pub(super) async fn at(moment: &str) -> (Self, mpsc::UnboundedReceiver<&'static str>) {
        let clock = ManualClock::at(moment.parse().unwrap());
        let mut ledger = Ledger::builder().clock(Arc::new(clock.clone())).in_memory();
        for account in ["a", "b", "c"] {
            ledger = ledger.account(account, [Cap::tokens(Period::Day, 1_000)]);
        }
        let ledger = ledger.account("all", []).allowance([Cap::tokens(Period::Day, 2_000)]);
        let ledger = ledger.open().await.unwrap();
        let gate = Gate::new(&ledger, Arc::new(clock.clone()));
        let (sent, order) = mpsc::unbounded_channel();
        let answers = Arc::new(Semaphore::new(0));
        let queue = Queue { wait: WAIT, depth: 1_000, ..Queue::default() };
        (Self { gate, ledger, clock, answers, sent, queue }, order)
    }

    /// A request called `name` that reserves `tokens` and uses one, on a task of its own.
    pub(super) fn ask(
        &self,
        project: &Project,
        name: &'static str,
        tokens: u64,
    ) -> JoinHandle<Result<Duration, Refused>> {
        let (desk, project) = (self.clone(), project.clone());
        tokio::spawn(async move {
            let ((), pass) = desk.pass(&project, name, tokens).await?;
            Ok(pass.waited)
        })
    }

    pub(super) async fn pass(
        &self,
        project: &Project,
        name: &'static str,
        tokens: u64,
    ) -> Result<((), Pass), Refused> {
        let asking = Asking { project, model: "m", queue: self.queue };
        self.gate.pass(asking, |sent| self.attempt(project, name, tokens, sent)).await
    }

    async fn attempt(
        &self,
        project: &Project,
        name: &'static str,
        tokens: u64,
        sent: Sent,
    ) -> Result<(), Error> {
        let hold = self.reserve(project.name.as_str(), tokens).await?;
        sent.tell();
        let _ = self.sent.send(name);
        self.answers.acquire().await.unwrap().forget();
        hold.settle(1).await.unwrap();
        Ok(())
    }

    pub(super) async fn reserve(&self, account: &str, tokens: u64) -> Result<Hold, Error> {
        match self.ledger.reserve(account, Ask::new("m", tokens)).await.unwrap() {
            Reserved::Held(hold) => Ok(hold),
            Reserved::Denied(denied) => Err(Error::OverBudget {
                denied: Box::new(denied),
                attempts: Vec::new(),
                skipped: Vec::new(),
            }),
            Reserved::Replayed(replayed) => panic!("{replayed}"),
        }
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.clock.unix_ms()
    }

    /// Nobody waits, nobody is under way, and nobody has a bell.
    pub(super) fn is_empty(&self) -> bool {
        let state = self.gate.inner.lock();
        let flying: usize = state.line.each().map(|(_, queued, flying)| queued + flying).sum();
        state.line.queued() == 0 && flying == 0 && state.bells.is_empty()
    }
}

pub(super) fn project(name: &str) -> Project {
    Project::new(name.parse().unwrap())
}

/// Lets everybody do what can be done.
pub(super) async fn settle_down() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

pub(super) async fn comes<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(FORGOTTEN, future).await.expect("somebody was forgotten")
}

pub(super) async fn all_of<T>(tasks: Vec<JoinHandle<T>>) -> Vec<T> {
    let mut all = Vec::new();
    for task in tasks {
        all.push(comes(task).await.unwrap());
    }
    all
}

pub(super) fn drained(order: &mut mpsc::UnboundedReceiver<&'static str>) -> String {
    let mut all = String::new();
    while let Ok(name) = order.try_recv() {
        all.push_str(name);
    }
    all
}

pub(super) fn exhausted(kind: ExhaustedKind, soonest_ms: Option<i64>) -> Error {
    let soonest = soonest_ms.map(keywheel_core::clock::from_unix_ms);
    let exhausted =
        Exhausted { model: "m".to_owned(), kind, soonest, reasons: Vec::new(), omitted: 0 };
    Error::Exhausted { exhausted: Box::new(exhausted), attempts: Vec::new(), skipped: Vec::new() }
}
