//! The gateway's configuration: a file, or the environment alone.

mod at_start;
mod environment;
mod project;
mod read;
mod sections;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    num::NonZero,
    path::{Path, PathBuf},
    time::Duration,
};

use keywheel::{
    ConfigErrors, ConfigFile, GeminiBuilder, KeyLoader,
    ledger::{LedgerConfig, Overcommitment},
};

pub(crate) use self::at_start::AtStart;
use crate::{
    auth::Access,
    project::{Projects, Unbounded},
    route::Dialect,
};

/// Everything that the gateway is told before it starts.
///
/// ```
/// use keywheel_gateway::Config;
///
/// let text = r#"
///     [allowance]
///     tokens = 10_000_000
///     period = "month"
///     [projects.triage]
///     tokens_per_month = 3_000_000
///     [projects.batch]
///     tokens_per_month = 6_900_000
/// "#;
/// let config = Config::parse("keywheel.toml", text, [("GEMINI_API_KEY_1", "AQ.EXAMPLE-key-1")])?;
/// assert_eq!(config.settings.listen.to_string(), "127.0.0.1:8787");
/// assert_eq!(config.settings.projects.iter().count(), 2);
/// assert_eq!(config.ledger.rules.accounts.len(), 2);
/// assert!(config.warnings[0].contains("99 % of the allowance"), "and one project can meet it first");
///
/// let faulty = "listen = \"0.0.0.0:8787\"\n[projects.triage]\ntoken_per_day = 5\n";
/// let faults = Config::parse("keywheel.toml", faulty, [("", ""); 0]).unwrap_err();
/// let places: Vec<_> = faults.faults().iter().filter_map(|fault| fault.position).collect();
/// assert_eq!(places, [(1, 10), (3, 1)]);
/// # Ok::<(), keywheel::ConfigErrors>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Config {
    /// What the gateway itself goes by.
    pub settings: Settings,
    /// The client that sends, without a ledger.
    pub client: GeminiBuilder,
    /// Where its keys are from.
    pub keys: KeyLoader,
    /// The ledger, with an account for each project.
    pub ledger: LedgerConfig,
    /// What is allowed and probably not meant, each in a sentence.
    pub warnings: Vec<String>,
    /// What a gateway that runs does not follow.
    pub(crate) at_start: AtStart,
}

/// What the gateway itself goes by.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// Where it listens. Defaults to 127.0.0.1:8787.
    pub listen: SocketAddr,
    /// What the upstream speaks.
    pub upstream: Dialect,
    /// Where requests go; `None`: to Google.
    pub base_url: Option<String>,
    /// The version that the upstream is called by where a path names none. Defaults to `v1beta`.
    pub api_version: String,
    /// The projects.
    pub projects: Projects,
    /// Whom it serves.
    pub(crate) access: Access,
    /// What is answered when no key can serve; `{next_available_at}` is replaced. Defaults to a refusal.
    pub degraded: Option<String>,
    /// How long requests wait for room.
    pub queue: Queue,
    /// Which pages of other sites may ask.
    pub cors: Cors,
    /// The quota project that keeps files, caches, batches and interactions. Defaults to that of the first key.
    pub quota_project: Option<String>,
    /// What one call of a route costs whose tokens cannot be bounded, for every project that says nothing else.
    pub fixed_charges: BTreeMap<Unbounded, u64>,
    /// Limits on what clients may send, and how slowly.
    pub limits: Limits,
    /// How often the file, and what it names, is looked at again. Defaults to 5 seconds; `None`: never.
    pub watch: Option<Duration>,
}

/// How long requests wait for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Queue {
    /// At most so long. Defaults to 30 seconds.
    pub wait: Duration,
    /// At most so many of a project. Defaults to 100.
    pub depth: usize,
}

impl Default for Queue {
    fn default() -> Self {
        Self { wait: Duration::from_secs(30), depth: 100 }
    }
}

/// Which pages of other sites may ask.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cors {
    /// Their origins, such as `https://app.example`, or `*`. Defaults to none.
    pub origins: Vec<String>,
}

/// Limits on what clients may send, and how slowly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The largest body that is no upload, in bytes. Defaults to 128 MiB.
    pub body: u64,
    /// The largest upload, in bytes. Defaults to 2 GiB.
    pub upload: u64,
    /// How long the head of a request may take. Defaults to 10 seconds.
    pub head_time: Duration,
    /// How long a client may be silent in the midst of its body, or take nothing of an answer. Defaults to 60 seconds.
    pub idle_time: Duration,
    /// How many connections there may be at once. Defaults to 4,096.
    pub connections: usize,
    /// How long requests under way have to end when the gateway stops. Defaults to 30 seconds.
    pub drain_time: Duration,
    /// How many threads serve connections. Defaults to one for each core.
    pub threads: Option<NonZero<usize>>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // Google takes 100 MB inline, in base64 or not.
            body: 128 << 20,
            upload: 2 << 30,
            head_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(60),
            connections: 4_096,
            drain_time: Duration::from_secs(30),
            threads: None,
        }
    }
}

impl Config {
    /// Reads the file at `path`. Variables of the environment win over what it says: see [`from_env`](Self::from_env).
    ///
    /// ```
    /// use keywheel_gateway::Config;
    ///
    /// let fault = Config::from_file("/nowhere/keywheel.toml").unwrap_err();
    /// assert_eq!(fault.to_string(), "/nowhere/keywheel.toml: there is no such file");
    /// ```
    ///
    /// # Errors
    /// Everything that is wrong, each with its line and column.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigErrors> {
        read::config(&ConfigFile::open(path)?, true)
    }

    /// By the environment alone: keys as [`KeyLoader`] finds them, `.env` included, and
    ///
    /// | variable | what |
    /// |---|---|
    /// | `KEYWHEEL_LISTEN` | where it listens |
    /// | `PORT` | listens on all addresses, on this port; a token is needed then |
    /// | `KEYWHEEL_TOKEN` | the token of every project that has none of its own |
    /// | `KEYWHEEL_STATE` | the pool's state file |
    /// | `KEYWHEEL_LEDGER` | the ledger's file |
    /// | `KEYWHEEL_TOKENS_PER_DAY` | a cap on tokens a day, over all projects |
    /// | `GEMINI_BASE_URL` | where requests go |
    ///
    /// There is one project, `default`.
    ///
    /// ```no_run
    /// let config = keywheel_gateway::Config::from_env()?;
    /// println!("http://{}", config.settings.listen);
    /// # Ok::<(), keywheel::ConfigErrors>(())
    /// ```
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn from_env() -> Result<Self, ConfigErrors> {
        read::config(&ConfigFile::of_text("environment", ""), false)
    }

    /// Reads `text` as if it stood at `path`, with `variables` in place of the environment.
    ///
    /// # Errors
    /// Everything that is wrong, each with its line and column.
    pub fn parse<N, V>(
        path: impl AsRef<Path>,
        text: &str,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, ConfigErrors>
    where
        N: Into<String>,
        V: Into<String>,
    {
        read::config(&ConfigFile::of_text(path, text).with_variables(variables), true)
    }
}

impl Settings {
    /// True if a token has to be shown.
    #[must_use]
    pub const fn asks_for_tokens(&self) -> bool {
        self.access.tokens
    }
}

fn warning(found: &Overcommitment) -> String {
    found.to_string().replace("the accounts' caps", "the projects' budgets")
}
