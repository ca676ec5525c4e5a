//! What the ledger does in a second, beside the plain recipe for the same job: `FIGURE name=value`
//! lines, in one run, on the disk that holds the build, or in the folder that `KEYWHEEL_BENCH_FOLDER`
//! names.
//!
//! Ratios are what counts, and what is compared is measured in turns, so that whatever else the
//! machine does falls on all of it alike. The plain recipe is the one that is written first: a
//! connection for each caller, one immediate transaction for each operation, and the sum of all rows
//! for each reservation.
//!
//! `cargo bench -p keywheel-ledger -- processes` measures one part alone; the others are `callers` and
//! `sizes`.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![expect(clippy::unwrap_used, reason = "a benchmark may stop")]

use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use keywheel_ledger::{
    AccountId, Ask, Charge, Durability, LedgerRules, LedgerStore, Limit, Outcome, Period,
    Reservation, Reserving, Settlement, SqliteStore, Usage,
};
use rusqlite::Connection;

/// Set in a process that works beside others, to the folder of the ledger.
const CHILD: &str = "KEYWHEEL_BENCH_LEDGER";
/// How many rows there are before, and how the figures are called.
const SIZES: [(u64, &str); 4] = [(0, "0"), (10_000, "10k"), (100_000, "100k"), (1_000_000, "1m")];
/// How many callers work at once, where a figure does not say otherwise.
const CALLERS: usize = 64;

fn main() {
    if let Some(folder) = std::env::var_os(CHILD) {
        return processes::work(folder.as_ref());
    }
    // `cargo test --benches` only asks whether it runs.
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let plan = if is_bench { Plan::WHOLE } else { Plan::GLANCE };
    let parent = std::env::var_os("KEYWHEEL_BENCH_FOLDER");
    let parent = parent.unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into());
    let folder = Path::new(&parent).join("keywheel-ledger-bench");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let named: Vec<_> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_wanted = |part: &str| named.is_empty() || named.iter().any(|it| it == part);
    if is_wanted("callers") {
        callers(&folder, &plan);
    }
    if is_wanted("sizes") {
        sizes(&folder, &plan);
    }
    if is_wanted("processes") {
        processes::measure(&folder, &plan);
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// How much is measured.
struct Plan {
    rounds: usize,
    span: Duration,
    sizes: &'static [(u64, &'static str)],
}

impl Plan {
    const WHOLE: Self = Self { rounds: 7, span: Duration::from_millis(400), sizes: &SIZES };
    const GLANCE: Self = Self {
        rounds: 1,
        span: Duration::from_millis(20),
        sizes: SIZES.first_chunk::<2>().unwrap(),
    };
}

/// How many pairs of reserve and settle are done, and how long one takes; beside the commits that the
/// machine makes.
fn callers(folder: &Path, plan: &Plan) {
    let stores = [1, 8, CALLERS].map(|callers| {
        let path = folder.join(format!("callers-{callers}.db"));
        (callers, open(&path))
    });
    let mut commits = Vec::new();
    let mut pairs = [const { Vec::new() }; 3];
    let mut took = Vec::new();
    for _ in 0..plan.rounds {
        commits.push(plain::commits_a_second(&folder.join("commits.db"), plan.span));
        for ((callers, store), pairs) in stores.iter().zip(&mut pairs) {
            let run = run(store, *callers, plan.span);
            pairs.push(run.pairs_a_second());
            if *callers == CALLERS {
                took.extend(run.took);
            }
        }
    }
    figure("commits_s", best(&commits));
    for ((callers, _), pairs) in stores.iter().zip(&pairs) {
        figure(&format!("pairs_s_{callers}"), best(pairs));
    }
    took.sort();
    figure("pair_ms_p50", took[took.len() / 2].as_secs_f64() * 1e3);
    figure("pair_ms_p99", took[took.len() * 99 / 100].as_secs_f64() * 1e3);
}

/// The same with ever more rows, and the plain recipe with as many.
fn sizes(folder: &Path, plan: &Plan) {
    let files: Vec<_> = plan
        .sizes
        .iter()
        .map(|(rows, name)| {
            let own = folder.join(format!("own-{name}.db"));
            fill(&own, *rows);
            let plain = folder.join(format!("plain-{name}.db"));
            plain::fill(&plain, *rows);
            (*rows, *name, own, plain)
        })
        .collect();
    let (rows, name, largest, _) = files.last().unwrap();
    figure("bytes_a_row", fs::metadata(largest).unwrap().len() as f64 / *rows as f64);
    figure(&format!("open_ms_{name}"), best_time(3, || drop(open(largest))));
    figure(&format!("open_ms_{name}_after_a_crash"), {
        let db = Connection::open(largest).unwrap();
        db.execute("UPDATE meta SET value = 0 WHERE name = 'closed_in_order'", []).unwrap();
        drop(db);
        best_time(1, || drop(open(largest)))
    });

    let stores: Vec<_> = files.iter().map(|(_, _, own, _)| open(own)).collect();
    let mut rounds = vec![Vec::new(); stores.len()];
    for _ in 0..plan.rounds {
        for (store, pairs) in stores.iter().zip(&mut rounds) {
            pairs.push(run(store, CALLERS, plan.span).pairs_a_second());
        }
    }
    // Of the same round, since rounds differ more than sizes do.
    let to_empty = rounds
        .iter()
        .map(|own| median(own.iter().zip(&rounds[0]).map(|(own, empty)| own / empty).collect()));
    for (((_, name, ..), pairs), to_empty) in files.iter().zip(&rounds).zip(to_empty) {
        figure(&format!("pairs_s_64_rows_{name}"), best(pairs));
        figure(&format!("rows_{name}_to_empty"), to_empty);
    }
    drop(stores);
    for (_, name, _, plain) in &files {
        figure(&format!("plain_pairs_s_64_rows_{name}"), plain::pairs(plain, CALLERS, plan.span));
    }
}

/// What callers did.
struct Run {
    took: Vec<Duration>,
    elapsed: Duration,
}

impl Run {
    fn pairs_a_second(&self) -> f64 {
        self.took.len() as f64 / self.elapsed.as_secs_f64()
    }
}

/// So many callers reserve and settle, one pair after the other, for about `span`.
fn run(store: &Arc<SqliteStore>, callers: usize, span: Duration) -> Run {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let rules = rules();
    runtime.block_on(async {
        let began = Instant::now();
        let callers: Vec<_> = (0..callers)
            .map(|_| {
                let (store, rules) = (Arc::clone(store), Arc::clone(&rules));
                tokio::spawn(async move {
                    let mut took = Vec::new();
                    let mut last = began.elapsed();
                    while last < span {
                        pair(&store, &rules).await;
                        let now = began.elapsed();
                        took.push(now - last);
                        last = now;
                    }
                    took
                })
            })
            .collect();
        let mut took = Vec::new();
        for caller in callers {
            took.extend(caller.await.unwrap());
        }
        Run { took, elapsed: began.elapsed() }
    })
}

async fn pair(store: &SqliteStore, rules: &Arc<LedgerRules>) {
    let now = now();
    let account: AccountId = "triage".parse().unwrap();
    let ask = Ask::new("gemini-3.5-flash-lite", 1_000).request_id("req-0123456789");
    let asked = Reservation::new(account, ask, Arc::clone(rules), now).unwrap();
    let Reserving::Granted(row, _) = store.reserve(asked).await.unwrap() else {
        panic!("there is plenty");
    };
    let usage = Usage { input: 500, output: 300, total: 800, ..Usage::default() };
    let settlement = Settlement {
        id: row.id,
        charge: Charge::Tokens(800),
        outcome: Outcome::Answered,
        usage: Some(usage),
        note: None,
        now,
    };
    store.settle(settlement).await.unwrap();
}

/// Limits of the account and of the whole, none of which is ever reached.
fn rules() -> Arc<LedgerRules> {
    let own = [Limit::tokens(Period::Day, 1 << 50), Limit::calls(Period::Day, 1 << 50)];
    let rules = LedgerRules::new().account("triage", own).unwrap();
    Arc::new(rules.allowance([Limit::tokens(Period::Month, 1 << 50)]))
}

fn now() -> chrono::DateTime<chrono::Utc> {
    "2026-11-29T22:00:00Z".parse().unwrap()
}

fn open(path: &Path) -> Arc<SqliteStore> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let opened = SqliteStore::open(Some(path), Durability::Create, now());
    Arc::new(runtime.block_on(opened).unwrap())
}

/// A ledger of so many settled rows: real ones, copied until there are enough.
fn fill(path: &Path, rows: u64) {
    let store = open(path);
    if rows > 0 {
        run(&store, CALLERS, Duration::from_millis(50));
    }
    drop(store);
    let db = Connection::open(path).unwrap();
    let columns: Vec<String> = db
        .prepare("SELECT name FROM pragma_table_info('rows')")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let rest = columns[2..].join(", ");
    let copy = format!(
        "INSERT INTO rows SELECT NULL, randomblob(16), {rest} FROM rows \
            LIMIT max(0, ?1 - (SELECT count(*) FROM rows))"
    );
    while db.execute(&copy, [rows.cast_signed()]).unwrap() > 0 {}
    db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
}

fn best_time(rounds: usize, mut work: impl FnMut()) -> f64 {
    let time = |_| {
        let began = Instant::now();
        work();
        began.elapsed().as_secs_f64() * 1e3
    };
    (0..rounds).map(time).fold(f64::INFINITY, f64::min)
}

fn best(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(0.0, f64::max)
}

fn median(mut ratios: Vec<f64>) -> f64 {
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

fn figure(name: &str, value: f64) {
    println!("FIGURE {name}={value:.2}");
}

/// What is written first.
mod plain {
    use super::*;

    pub(super) fn fill(path: &Path, rows: u64) {
        let db = connect(path);
        db.execute_batch(
            "CREATE TABLE ledger \
                (id INTEGER PRIMARY KEY, ts TEXT, estimate INTEGER, actual INTEGER, note TEXT)",
        )
        .unwrap();
        let mut series = db
            .prepare(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
                    INSERT INTO ledger SELECT i, '2026-11-29T22:00:00Z', 1000, 800, '' FROM n \
                    WHERE ?1 > 0",
            )
            .unwrap();
        series.execute([rows.cast_signed()]).unwrap();
    }

    /// So many threads with a connection each, for about `span`.
    pub(super) fn pairs(path: &Path, callers: usize, span: Duration) -> f64 {
        let began = Instant::now();
        let caller = || {
            let mut db = connect(path);
            let mut pairs = 0;
            while began.elapsed() < span {
                pairs += u64::from(pair(&mut db, began + span));
            }
            pairs
        };
        let pairs: u64 = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..callers).map(|_| scope.spawn(caller)).collect();
            callers.into_iter().map(|caller| caller.join().unwrap()).sum()
        });
        pairs as f64 / began.elapsed().as_secs_f64()
    }

    /// False if it was too late, or the file too busy.
    fn pair(db: &mut Connection, end: Instant) -> bool {
        let immediate = rusqlite::TransactionBehavior::Immediate;
        let Ok(reserve) = db.transaction_with_behavior(immediate) else { return false };
        if Instant::now() > end {
            return false;
        }
        let used: i64 = reserve
            .query_row(
                "SELECT COALESCE(SUM(COALESCE(actual, estimate)), 0) FROM ledger",
                [],
                |it| it.get(0),
            )
            .unwrap();
        assert!(used + 1_000 < 1 << 50);
        let insert = "INSERT INTO ledger (ts, estimate, note) VALUES ('2026-11-29', 1000, '')";
        reserve.execute(insert, []).unwrap();
        let id = reserve.last_insert_rowid();
        reserve.commit().unwrap();
        let Ok(settle) = db.transaction_with_behavior(immediate) else { return false };
        settle.execute("UPDATE ledger SET actual = 800 WHERE id = ?", [id]).unwrap();
        settle.commit().unwrap();
        true
    }

    /// Commits of one row each, one after the other.
    pub(super) fn commits_a_second(path: &Path, span: Duration) -> f64 {
        let db = connect(path);
        db.execute_batch("CREATE TABLE IF NOT EXISTS t (a INTEGER PRIMARY KEY, b INTEGER)")
            .unwrap();
        let mut insert = db.prepare("INSERT INTO t (b) VALUES (1)").unwrap();
        let began = Instant::now();
        let mut commits = 0_u32;
        while began.elapsed() < span {
            insert.execute([]).unwrap();
            commits += 1;
        }
        f64::from(commits) / began.elapsed().as_secs_f64()
    }

    fn connect(path: &Path) -> Connection {
        let db = Connection::open(path).unwrap();
        db.busy_timeout(Duration::from_secs(5)).unwrap();
        let mode = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL";
        while db.execute_batch(mode).is_err() {}
        db
    }
}

/// Four processes on one file.
mod processes {
    use super::*;

    const PROCESSES: usize = 4;

    pub(super) fn measure(folder: &Path, plan: &Plan) {
        let mut one = Vec::new();
        let mut four = Vec::new();
        for _ in 0..plan.rounds.min(4) {
            one.push(together(folder, 1, plan).iter().sum::<f64>());
            four.push(together(folder, PROCESSES, plan));
        }
        let sums: Vec<_> = four.iter().map(|own| own.iter().sum::<f64>()).collect();
        figure("processes_1_pairs_s", best(&one));
        figure("processes_4_pairs_s", best(&sums));
        let to_one = sums.iter().zip(&one).map(|(four, one)| four / one).collect();
        figure("processes_4_to_1", median(to_one));
        let least = four.iter().flat_map(|own| {
            let sum: f64 = own.iter().sum();
            own.iter().map(move |own| own / sum)
        });
        figure("processes_4_least_share", least.fold(f64::INFINITY, f64::min));
    }

    /// What each of so many processes does, with as many callers together as one has.
    fn together(folder: &Path, processes: usize, plan: &Plan) -> Vec<f64> {
        let folder = folder.join("processes");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        drop(open(&folder.join("ledger.db")));
        let start = |_| {
            std::process::Command::new(std::env::current_exe().unwrap())
                .env(CHILD, &folder)
                .arg((CALLERS / processes).to_string())
                .arg((plan.span * 2).as_millis().to_string())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        };
        let children: Vec<_> = (0..processes).map(start).collect();
        let ready = || {
            let files = fs::read_dir(&folder).unwrap().map(|it| it.unwrap().path());
            files.filter(|path| path.extension().is_some_and(|it| it == "ready")).count()
        };
        while ready() < processes {
            std::thread::sleep(Duration::from_millis(1));
        }
        fs::write(folder.join("go"), "").unwrap();
        children
            .into_iter()
            .map(|child| {
                let output = child.wait_with_output().unwrap();
                String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
            })
            .collect()
    }

    pub(super) fn work(folder: &Path) {
        let mut args = std::env::args().skip(1);
        let callers = args.next().unwrap().parse().unwrap();
        let span = Duration::from_millis(args.next().unwrap().parse().unwrap());
        let store = open(&folder.join("ledger.db"));
        fs::write(folder.join(format!("{}.ready", std::process::id())), "").unwrap();
        while !folder.join("go").exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        println!("{}", run(&store, callers, span).pairs_a_second());
    }
}
