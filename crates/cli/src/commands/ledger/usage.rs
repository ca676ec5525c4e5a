//! `keywheel ledger usage`: how full the limits are, and where the tokens went.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use clap::ValueEnum;
use keywheel::ledger::{
    AccountId, GroupBy, Ledger, LimitStanding, RowQuery, Scope, Standing, StoreInfo, Total,
    UsageLine,
};
use serde::Serialize;

use super::filter::Filter;
use crate::{
    exit::Exit,
    fault::Fault,
    given, moment,
    output::{self, Table, bar},
    settings::Settings,
    sources::looking,
};

/// What `ledger usage` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = moment::FORMS)]
pub(super) struct Args {
    /// Add rows up by this, in place of showing limits.
    #[arg(long, value_name = "WHAT")]
    by: Option<By>,
    /// The time zone in which hours and days are told apart; by default the ledger's own.
    #[arg(long, requires = "by", value_parser = given::zone)]
    zone: Option<Tz>,
    #[command(flatten)]
    filter: Filter,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What rows can be added up by.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum By {
    /// The gateway's projects.
    Account,
    /// Models.
    Model,
    /// Keys, by their fingerprints.
    Key,
    /// Hours.
    Hour,
    /// Days.
    Day,
}

/// The document of `ledger usage`.
#[derive(Debug, Serialize)]
struct Usage {
    ledger: Ground,
    accounts: Vec<Account>,
    /// Everybody together.
    all: Account,
}

/// The document of `ledger usage --by`.
#[derive(Debug, Serialize)]
struct Lines {
    ledger: Ground,
    lines: Vec<UsageLine>,
}

/// On which ledger the figures rest.
#[derive(Debug, Serialize)]
struct Ground {
    id: String,
    created_at: String,
    path: Option<String>,
    storage: String,
    /// A restart or redeploy begins with an empty one.
    vanishes: bool,
    rows: u64,
    open: u64,
}

/// What one account used.
#[derive(Debug, Serialize)]
struct Account {
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<String>,
    day: Used,
    month: Used,
    ever: Used,
    limits: Vec<LimitLine>,
}

/// Settled and reserved, apart.
#[derive(Debug, Serialize)]
struct Used {
    tokens: u64,
    tokens_reserved: u64,
    calls: u64,
    calls_reserved: u64,
}

/// One limit, and how full it is.
#[derive(Debug, Serialize)]
struct LimitLine {
    /// The account whose limit it is; `null` for the whole allowance.
    account: Option<String>,
    unit: String,
    period: &'static str,
    model: Option<String>,
    cap: u64,
    settled: u64,
    reserved: u64,
    left: u64,
    begins_anew: Option<String>,
}

/// Shows limits, or sums over rows.
///
/// # Errors
/// There is no ledger, or it cannot be read; or rows are chosen where none are added up.
pub(super) async fn run(args: &Args, settings: &Settings) -> Result<Exit, Fault> {
    if args.by.is_none() && args.filter.is_by_rows() {
        let what = "only --account chooses among limits; the other filters choose among rows";
        return Err(Fault::usage(what).hint("add --by account, model, key, hour or day"));
    }
    let ledger = looking(settings.ledger()?).await?;
    let ground = Ground::new(ledger.info().await?);
    let now = moment::now();
    let Some(by) = args.by else {
        let usage = Usage::read(&ledger, ground, &args.filter.query()?).await?;
        if args.json {
            output::json("ledger usage", &usage)?;
        } else {
            output::write(&usage.text(now))?;
        }
        return Ok(Exit::Fine);
    };
    let zone = args.zone.unwrap_or(ledger.rules().zone);
    let lines = ledger.report(by.in_zone(zone), args.filter.query()?).await?;
    if args.json {
        output::json("ledger usage", &Lines { ledger: ground, lines })?;
    } else {
        output::write(&sums(&lines).to_string())?;
    }
    Ok(Exit::Fine)
}

impl By {
    const fn in_zone(self, zone: Tz) -> GroupBy {
        match self {
            Self::Account => GroupBy::Account,
            Self::Model => GroupBy::Model,
            Self::Key => GroupBy::Key,
            Self::Hour => GroupBy::Hour(zone),
            Self::Day => GroupBy::Day(zone),
        }
    }
}

impl Usage {
    async fn read(ledger: &Ledger, ground: Ground, query: &RowQuery) -> Result<Self, Fault> {
        let mut names: Vec<AccountId> = ledger.rules().accounts.keys().cloned().collect();
        // Those of the rows as well: a shell without the gateway's configuration knows no accounts.
        for line in ledger.report(GroupBy::Account, RowQuery::default()).await? {
            let name = AccountId::new(&line.group)?;
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.retain(|name| query.account.as_ref().is_none_or(|wanted| wanted == name));
        let mut accounts = Vec::new();
        for name in names {
            let standing = ledger.usage(name.as_str()).await?;
            accounts.push(Account::new(Some(name), standing));
        }
        let all = Account::new(None, ledger.usage_of_all().await?);
        Ok(Self { ledger: ground, accounts, all })
    }

    fn text(&self, now: DateTime<Utc>) -> String {
        let mut used = Table::new([
            "account",
            "tokens today",
            "reserved",
            "this month",
            "ever",
            "calls today",
        ]);
        for account in self.accounts.iter().chain([&self.all]) {
            used.row([
                account.account.clone().unwrap_or_else(|| "all together".into()),
                account.day.tokens.to_string(),
                account.day.tokens_reserved.to_string(),
                account.month.tokens.to_string(),
                account.ever.tokens.to_string(),
                account.day.calls.to_string(),
            ]);
        }
        let mut text = used.to_string();
        let mut limits = Table::new(["limit of", "", "used", "of", "left", "begins anew"]);
        let own = self.accounts.iter().flat_map(|account| &account.limits);
        let own = own.filter(|limit| limit.account.is_some());
        for limit in own.chain(&self.all.limits) {
            let used = limit.settled.saturating_add(limit.reserved);
            let model = limit.model.as_ref().map_or(String::new(), |model| format!(" for {model}"));
            let begins = limit.begins_anew.as_ref().and_then(|at| moment::parse(at).ok());
            limits.row([
                limit.account.clone().unwrap_or_else(|| "all together".into()),
                bar(used, limit.cap),
                used.to_string(),
                format!("{} {} {}{model}", limit.cap, limit.unit, limit.period),
                limit.left.to_string(),
                begins.map_or_else(|| "never".into(), |at| format!("in {}", moment::left(at, now))),
            ]);
        }
        if !limits.is_empty() {
            text += &format!("\n{limits}");
        }
        let Ground { id, created_at, path, storage, vanishes, rows, open } = &self.ledger;
        let place = path.as_ref().map_or(String::new(), |path| format!(" at {path}"));
        text += &format!(
            "\nledger {id}{place}, made {created_at}, on {storage}: {rows} rows, {open} of them open\n"
        );
        if *vanishes {
            text += "its storage goes with the machine's next start or redeploy, and the caps begin anew\n";
        }
        text
    }
}

impl Ground {
    fn new(info: StoreInfo) -> Self {
        let storage = info.storage;
        Self {
            id: storage.ledger_id,
            created_at: moment::rfc3339(storage.created_at),
            path: storage.path.map(|path| path.display().to_string()),
            storage: storage.kind.to_string(),
            vanishes: storage.vanishes,
            rows: info.rows,
            open: info.open,
        }
    }
}

impl Account {
    fn new(account: Option<AccountId>, standing: Standing) -> Self {
        Self {
            account: account.map(String::from),
            day: Used::new(standing.day),
            month: Used::new(standing.month),
            ever: Used::new(standing.ever),
            limits: standing.limits.into_iter().map(LimitLine::new).collect(),
        }
    }
}

impl Used {
    const fn new(total: Total) -> Self {
        Self {
            tokens: total.tokens.settled,
            tokens_reserved: total.tokens.reserved,
            calls: total.calls.settled,
            calls_reserved: total.calls.reserved,
        }
    }
}

impl LimitLine {
    fn new(standing: LimitStanding) -> Self {
        use keywheel::ledger::Period;

        let left = standing.left();
        let period = match standing.limit.period {
            Period::Day => "a day",
            Period::Month => "a month",
            Period::Total => "in total",
        };
        Self {
            account: match standing.scope {
                Scope::Account(account) => Some(account.into()),
                Scope::Whole => None,
            },
            unit: standing.limit.unit.to_string(),
            period,
            model: standing.limit.model.map(|model| (*model).to_owned()),
            cap: standing.limit.cap,
            settled: standing.sum.settled,
            reserved: standing.sum.reserved,
            left,
            begins_anew: standing.begins_anew.map(moment::rfc3339),
        }
    }
}

fn sums(lines: &[UsageLine]) -> Table {
    let mut table = Table::new([
        "", "tokens", "reserved", "calls", "rows", "open", "swept", "input", "output", "thinking",
    ]);
    for line in lines {
        let figures = [
            line.tokens,
            line.reserved,
            line.calls,
            line.rows,
            line.open,
            line.swept,
            line.input,
            line.output,
            line.thinking,
        ];
        let [a, b, c, d, e, f, g, h, i] = figures.map(|figure| figure.to_string());
        table.row([line.group.clone(), a, b, c, d, e, f, g, h, i]);
    }
    table
}
