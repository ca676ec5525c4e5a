//! `keywheel smoke`: wakes a deployed gateway several times, and sees that its ledger survives.
//!
//! Hosts that cost nothing put programs to sleep, and many give them a new disk with each start: then every cap begins
//! anew, unseen. Run this before and after a redeploy, with the id that the first run told.

use std::time::Duration;

use http::Method;
use keywheel::settings::words::any_time;
use keywheel_core::{Clock as _, SystemClock};
use keywheel_provider::{
    Transport as _, WireRequest,
    http::{HttpTransport, Timeouts},
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    exit::Exit,
    fault::Fault,
    given,
    output::{self, say},
};

/// What `smoke` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The gateway's address, such as https://gateway.example.com.
    url: String,
    /// How often it is woken.
    #[arg(long, default_value_t = 5, value_name = "COUNT", value_parser = given::from_one::<u32>)]
    wakes: u32,
    /// The pause between two wakes; longer than the host lets it be idle, to see it start.
    #[arg(long, default_value = "60s", value_name = "DURATION", value_parser = any_time)]
    every: Duration,
    /// How long a wake may take.
    #[arg(long, default_value = "120s", value_name = "DURATION", value_parser = any_time)]
    patience: Duration,
    /// The ledger that has to be there still: the id that an earlier run told.
    #[arg(long, value_name = "ID")]
    expect_ledger: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The document of `smoke`.
#[derive(Debug, Serialize)]
struct Smoke {
    url: String,
    wakes: Vec<Wake>,
    /// Milliseconds to the first 200.
    fastest_ms: Option<u64>,
    median_ms: Option<u64>,
    slowest_ms: Option<u64>,
    ledger: Option<LedgerSeen>,
    /// True: the expected ledger is there. `null`: none was expected.
    same_ledger: Option<bool>,
    warnings: Vec<String>,
}

/// One wake.
#[derive(Debug, Serialize)]
struct Wake {
    /// `null`: it did not wake in time.
    first_200_ms: Option<u64>,
    tries: u32,
    /// What came last before that, if anything: a status, or why there was none.
    before: Option<String>,
}

/// What `/health` said of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct LedgerSeen {
    id: Option<String>,
    created_at: Option<String>,
    rows: Option<u64>,
    vanishes: Option<bool>,
}

/// Wakes it, and compares.
///
/// # Errors
/// The URL is none, or standard output cannot be written.
pub(crate) async fn run(args: &Args) -> Result<Exit, Fault> {
    let url = args.url.trim_end_matches('/');
    if !url.starts_with("http://") && !url.starts_with("https://") {
        let what = "the gateway's address begins with http:// or https://";
        return Err(
            Fault::usage(what).hint("for example: keywheel smoke https://gateway.example.com")
        );
    }
    let timeouts =
        Timeouts { first_byte: args.patience, idle: args.patience, ..Timeouts::default() };
    let transport = HttpTransport::new(&timeouts)
        .map_err(|error| Fault::new(Exit::Fault, format!("no TLS: {error}")))?;
    let probe = Probe { transport, url: format!("{url}/health"), patience: args.patience };
    let mut wakes = Vec::new();
    let mut seen = Vec::new();
    for number in 1..=args.wakes {
        if number > 1 {
            tokio::time::sleep(args.every).await;
        }
        let (wake, health) = probe.wake().await;
        match wake.first_200_ms {
            Some(ms) => say(format!("wake {number}: {ms} ms, {} requests", wake.tries)),
            None => say(format!("wake {number}: not within {} s", args.patience.as_secs())),
        }
        wakes.push(wake);
        seen.extend(health.map(|health| LedgerSeen::of(&health)));
    }
    let smoke = Smoke::new(url.to_owned(), wakes, &seen, args.expect_ledger.as_deref());
    if args.json {
        output::json("smoke", &smoke)?;
    } else {
        output::write(&smoke.text(args.expect_ledger.is_some()))?;
    }
    Ok(smoke.exit())
}

/// Asks one gateway for its health.
struct Probe {
    transport: HttpTransport,
    url: String,
    patience: Duration,
}

impl Probe {
    /// Until the first 200, and no longer than the patience.
    async fn wake(&self) -> (Wake, Option<Value>) {
        /// Between two tries: a host that wakes a program answers for it meanwhile, with 502 and 503.
        const PAUSE: Duration = Duration::from_millis(500);
        let begun = SystemClock.unix_ms();
        let (mut tries, mut before) = (0, None);
        let waking = async {
            loop {
                tries += 1;
                match self.ask().await {
                    Ok((200, body)) => return body,
                    Ok((status, _)) => before = Some(format!("status {status}")),
                    Err(why) => before = Some(why),
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let woken = tokio::time::timeout(self.patience, waking).await.ok();
        let ms = u64::try_from(SystemClock.unix_ms().saturating_sub(begun)).unwrap_or(0);
        (Wake { first_200_ms: woken.as_ref().map(|_| ms), tries, before }, woken)
    }

    async fn ask(&self) -> Result<(u16, Value), String> {
        /// A health report is a page.
        const LARGEST: usize = 1 << 20;
        let request = WireRequest {
            method: Method::GET,
            url: self.url.clone(),
            headers: http::HeaderMap::new(),
            body: keywheel_provider::Body::default(),
        };
        let response = self.transport.send(request).await.map_err(|error| error.to_string())?;
        let status = response.status;
        let body = response.bytes(LARGEST).await.map_err(|error| error.to_string())?;
        Ok((status, serde_json::from_slice(&body).unwrap_or(Value::Null)))
    }
}

impl LedgerSeen {
    fn of(health: &Value) -> Self {
        let text = |name: &str| health[name].as_str().map(str::to_owned);
        Self {
            id: text("ledger_id"),
            created_at: text("created_at"),
            rows: health["ledger_rows"].as_u64(),
            vanishes: health["storage"]["vanishes"].as_bool(),
        }
    }
}

impl Smoke {
    fn new(url: String, wakes: Vec<Wake>, seen: &[LedgerSeen], expected: Option<&str>) -> Self {
        let mut times: Vec<u64> = wakes.iter().filter_map(|wake| wake.first_200_ms).collect();
        times.sort_unstable();
        let ids: Vec<_> = seen.iter().filter_map(|seen| seen.id.as_deref()).collect();
        let mut warnings = Vec::new();
        if times.len() < wakes.len() {
            warnings.push(format!("{} wakes brought no 200", wakes.len() - times.len()));
        }
        if seen.iter().any(|seen| seen.rows.is_none()) {
            warnings
                .push("ledger_rows is missing: is this the gateway, with its ledger on?".into());
        }
        let rows: Vec<_> = seen.iter().filter_map(|seen| seen.rows).collect();
        if rows.windows(2).any(|pair| pair[1] < pair[0]) {
            warnings.push("the ledger has fewer rows than before: it began anew".into());
        }
        if ids.windows(2).any(|pair| pair[0] != pair[1]) {
            warnings
                .push("the ledger changed between two wakes: every start has its own caps".into());
        }
        let last = seen.last().cloned();
        if last.as_ref().is_some_and(|last| last.vanishes == Some(true)) {
            let why = "its storage vanishes with a restart: give the ledger a volume";
            warnings.push(why.into());
        }
        let same_ledger = expected.map(|expected| {
            !ids.is_empty() && ids.len() == seen.len() && ids.iter().all(|id| *id == expected)
        });
        Self {
            url,
            fastest_ms: times.first().copied(),
            median_ms: times.get(times.len() / 2).copied(),
            slowest_ms: times.last().copied(),
            ledger: last,
            same_ledger,
            warnings,
            wakes,
        }
    }

    fn exit(&self) -> Exit {
        if self.fastest_ms.is_none() {
            return Exit::NotNow;
        }
        let began_anew = self.warnings.iter().any(|why| why.starts_with("the ledger "));
        if self.same_ledger == Some(false) || began_anew {
            return Exit::NewLedger;
        }
        if self.wakes.iter().any(|wake| wake.first_200_ms.is_none()) {
            return Exit::NotNow;
        }
        Exit::Fine
    }

    fn text(&self, expected: bool) -> String {
        let mut text = String::new();
        if let (Some(fastest), Some(median), Some(slowest)) =
            (self.fastest_ms, self.median_ms, self.slowest_ms)
        {
            text += &format!(
                "first 200   {fastest} ms at best, {median} ms in the middle, {slowest} ms at worst\n"
            );
        }
        if let Some(ledger) = &self.ledger {
            let id = ledger.id.as_deref().unwrap_or("not told");
            let rows = ledger.rows.map_or_else(|| "?".into(), |rows| rows.to_string());
            text += &format!("ledger      {id}, {rows} rows");
            if let Some(made) = &ledger.created_at {
                text += &format!(", made {made}");
            }
            text += match self.same_ledger {
                Some(true) => "; the same as before\n",
                Some(false) => "; NOT the one that was expected: every cap began anew\n",
                None => "\n",
            };
            if !expected && ledger.id.is_some() {
                text += &format!(
                    "after the next redeploy: keywheel smoke {} --expect-ledger {id}\n",
                    self.url
                );
            }
        }
        for warning in &self.warnings {
            text += &format!("warning     {warning}\n");
        }
        text
    }
}
