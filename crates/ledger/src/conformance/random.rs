//! A random history, compared after every step with a model that a person can check.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chrono::{DateTime, NaiveDate, Utc};
use keywheel_core::QuotaDay;

use crate::{
    Ask, LedgerRules, LedgerStore, Limit, Period, Reserving, RowId, Scope, Span, TotalKey,
};

use super::desk::{AGE, Desk, account};

const ACCOUNTS: [&str; 2] = ["a", "b"];
const MODELS: [&str; 2] = ["m", "n"];
const STEPS: usize = 150;

/// The ledger in 40 lines: rows, and sums taken over all of them for each question.
#[derive(Debug, Default)]
struct Model {
    rows: BTreeMap<RowId, ModelRow>,
}

#[derive(Debug, Clone)]
struct ModelRow {
    account: &'static str,
    model: &'static str,
    day: NaiveDate,
    estimate: u64,
    heard_of: DateTime<Utc>,
    charged: Option<u64>,
    swept: bool,
}

impl Model {
    fn used(&self, counts: impl Fn(&ModelRow) -> bool) -> u64 {
        let rows = self.rows.values().filter(|row| counts(row));
        rows.map(|row| row.charged.unwrap_or(row.estimate)).sum()
    }

    fn fits(&self, caps: &Caps, row: &ModelRow) -> bool {
        let month = |day: NaiveDate| Span::month_of(day);
        let own = self.used(|r| r.account == row.account && r.day == row.day);
        let one = self.used(|r| r.model == row.model && month(r.day) == month(row.day));
        let fits = |used: u64, cap: u64| row.estimate == 0 || used + row.estimate <= cap;
        fits(own, caps.day) && fits(one, caps.month) && fits(self.used(|_| true), caps.total)
    }

    /// Whether it may be settled so.
    fn settle(&mut self, id: RowId, figure: u64) -> bool {
        let row = self.rows.get_mut(&id).expect("only rows that are there are settled");
        let done = row.charged.filter(|_| !row.swept);
        if done.is_none() {
            (row.charged, row.swept) = (Some(figure), false);
        }
        done.is_none_or(|done| done == figure)
    }

    fn sweep(&mut self, now: DateTime<Utc>) -> usize {
        let silent = |row: &&mut ModelRow| {
            row.charged.is_none() && now - row.heard_of > chrono::TimeDelta::seconds(900)
        };
        let swept = self.rows.values_mut().filter(silent);
        swept.map(|row| (row.charged, row.swept) = (Some(row.estimate), true)).count()
    }
}

/// An account's cap a day, a model's a month over all accounts, and everything's in total.
#[derive(Debug, Clone, Copy)]
struct Caps {
    day: u64,
    month: u64,
    total: u64,
}

impl Caps {
    fn random(rng: &mut fastrand::Rng) -> Self {
        Self { day: rng.u64(100..900), month: rng.u64(500..2_500), total: rng.u64(2_000..9_000) }
    }

    fn rules(self) -> LedgerRules {
        let rules = ACCOUNTS.into_iter().fold(LedgerRules::new(), |rules, name| {
            account(rules, name, [Limit::tokens(Period::Day, self.day)])
        });
        let months = MODELS.map(|model| Limit::tokens(Period::Month, self.month).for_model(model));
        let total = Limit::tokens(Period::Total, self.total);
        rules.allowance(months.into_iter().chain([total]))
    }
}

pub(super) async fn a_random_history_agrees_with_the_model(store: Arc<dyn LedgerStore>) {
    let seed = seed();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut caps = Caps::random(&mut rng);
    let mut desk = Desk::new(store, caps.rules());
    let mut model = Model::default();
    for step in 0..STEPS {
        let at = format!("seed {seed}, step {step}");
        match rng.u8(0..20) {
            0..8 => reserve(&desk, &mut model, &caps, &mut rng, &at).await,
            8..13 => settle(&desk, &mut model, &mut rng, &at).await,
            13..15 => turn_over(&desk, &mut model, &caps, &mut rng, &at).await,
            15 => {
                let Some(id) = any(&model, &mut rng) else { continue };
                desk.store.renew(id, desk.now()).await.expect("the row is there");
                let row = model.rows.get_mut(&id).expect("the row is there");
                if row.charged.is_none() {
                    row.heard_of = desk.now();
                }
            }
            16 => assert_eq!(desk.sweep().await.len(), model.sweep(desk.now()), "{at}"),
            17 => {
                caps = Caps::random(&mut rng);
                desk.set_rules(caps.rules());
            }
            _ => desk.clock.advance(rng.choice([AGE, AGE / 4, 30 * AGE]).unwrap_or(Duration::ZERO)),
        }
        agree(&desk, &model, &at).await;
    }
    assert_eq!(desk.balanced().await, model.rows.len() as u64, "seed {seed}");
}

/// Another one in each run, and in whatever goes wrong: `KEYWHEEL_SEED` repeats it.
fn seed() -> u64 {
    let given = std::env::var("KEYWHEEL_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| fastrand::u64(..))
}

fn ask(desk: &Desk, rng: &mut fastrand::Rng) -> (ModelRow, Ask) {
    let account = ACCOUNTS[rng.usize(0..2)];
    let model = MODELS[rng.usize(0..2)];
    let estimate = rng.u64(0..250);
    let day = QuotaDay::containing(desk.now()).date();
    let heard_of = desk.now();
    let row = ModelRow { account, model, day, estimate, heard_of, charged: None, swept: false };
    (row, Ask::new(model, estimate))
}

fn any(model: &Model, rng: &mut fastrand::Rng) -> Option<RowId> {
    // Mostly of the newest, so that open rows come up often.
    let newest = model.rows.len().min(12);
    (newest > 0).then(|| *model.rows.keys().rev().nth(rng.usize(0..newest)).expect("counted"))
}

async fn reserve(desk: &Desk, model: &mut Model, caps: &Caps, rng: &mut fastrand::Rng, at: &str) {
    let (row, ask) = ask(desk, rng);
    let answer = desk.ask(row.account, ask).await.expect("the store works");
    take(model, row, answer, caps, at);
}

fn take(model: &mut Model, row: ModelRow, answer: Reserving, caps: &Caps, at: &str) {
    let fits = model.fits(caps, &row);
    match answer {
        Reserving::Granted(granted, _) => {
            assert!(fits, "{at}: {row:?} was granted");
            assert!(model.rows.insert(granted.id, row).is_none(), "{at}: an id given twice");
        }
        Reserving::Denied(denied) => assert!(!fits, "{at}: {row:?}: {denied}"),
        Reserving::Replayed(replayed) => panic!("{at}: {replayed}"),
    }
}

async fn settle(desk: &Desk, model: &mut Model, rng: &mut fastrand::Rng, at: &str) {
    let Some(id) = any(model, rng) else { return };
    let figure = rng.choice([0, 1, 77, rng.clone().u64(0..500)]).unwrap_or(0);
    let settled = desk.settle(id, figure).await;
    assert_eq!(settled.is_ok(), model.settle(id, figure), "{at}: {id} at {figure}: {settled:?}");
}

async fn turn_over(desk: &Desk, model: &mut Model, caps: &Caps, rng: &mut fastrand::Rng, at: &str) {
    let Some(id) = any(model, rng) else { return };
    let figure = rng.u64(0..200);
    let (row, ask) = ask(desk, rng);
    let next = desk.reservation(row.account, ask);
    match desk.store.turn_over(desk.settlement(id, figure), next).await {
        Ok((_, answer)) => {
            assert!(model.settle(id, figure), "{at}: {id} at {figure} was settled");
            take(model, row, answer, caps, at);
        }
        Err(error) => assert!(!model.settle(id, figure), "{at}: {id} at {figure}: {error}"),
    }
}

async fn agree(desk: &Desk, model: &Model, at: &str) {
    let today = QuotaDay::containing(desk.now()).date();
    let total = |scope, span| TotalKey { scope, span, model: None };
    let mut keys = vec![total(Scope::Whole, Span::Ever)];
    for name in ACCOUNTS {
        let scope = Scope::Account(name.parse().expect("a name"));
        keys.extend([total(scope.clone(), Span::Day(today)), total(scope, Span::Ever)]);
    }
    let totals = desk.store.totals(keys).await.expect("the store works");
    let mut wanted = vec![model.used(|_| true)];
    for name in ACCOUNTS {
        wanted.push(model.used(|row| row.account == name && row.day == today));
        wanted.push(model.used(|row| row.account == name));
    }
    let used: Vec<_> = totals.iter().map(|total| total.tokens.used()).collect();
    assert_eq!(used, wanted, "{at}");
}
