//! What `serve` says once it runs: what it found, and where to point each client.

use std::{fmt::Write as _, net::SocketAddr};

use keywheel::{Error, ledger::SqliteStore};
use keywheel_gateway::{Config, Dialect, StartError};

use crate::{exit::Exit, fault::Fault};

/// What can be said of a configuration before the gateway takes it.
#[derive(Debug)]
pub(super) struct About {
    keys: String,
    notes: Vec<String>,
    upstream: Option<String>,
    projects: Vec<String>,
    token: ClientToken,
    demo: bool,
    native: bool,
    state: Option<String>,
    ledger: Option<String>,
}

/// What clients show in place of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientToken {
    Anything,
    /// That of the variable: without a file there is no other.
    OfEnvironment,
    OfProject,
}

impl About {
    /// Reads the keys once more, to count them by where they are from.
    pub(super) fn of(config: &Config, demo: bool) -> Self {
        let token = match (config.settings.asks_for_tokens(), &config.settings.file) {
            (false, _) => ClientToken::Anything,
            (true, Some(_)) if !demo => ClientToken::OfProject,
            (true, _) => ClientToken::OfEnvironment,
        };
        let (keys, notes) = match config.keys.load() {
            Ok(loaded) if demo => {
                (format!("{}, the simulator's own", loaded.keys.len()), Vec::new())
            }
            Ok(loaded) => {
                let sources = loaded.sources.iter().filter(|source| source.keys > Some(0));
                let sources: Vec<_> = sources.map(ToString::to_string).collect();
                let found = format!("{} in use, from {}", loaded.keys.len(), sources.join(", "));
                (found, loaded.notes.iter().map(ToString::to_string).collect())
            }
            // The gateway will say it, and not start.
            Err(_) => ("no keys".to_owned(), Vec::new()),
        };
        let ledger = SqliteStore::path(config.ledger.path.as_deref()).ok();
        Self {
            keys,
            notes,
            upstream: config.settings.base_url.clone(),
            projects: config.settings.projects.iter().map(|one| one.name.to_string()).collect(),
            token,
            demo,
            native: config.settings.upstream == Dialect::Native,
            state: config.client.state_path().map(|path| path.display().to_string()),
            ledger: ledger.map(|path| path.display().to_string()),
        }
    }

    /// All of it, for a gateway at `address`.
    pub(super) fn text(&self, address: SocketAddr) -> String {
        let base = format!("http://{}", reachable(address));
        let nowhere = || "nowhere: a restart forgets it".to_owned();
        let mut text = format!("keywheel {} listens on {base}\n", env!("CARGO_PKG_VERSION"));
        let mut line = |name: &str, value: &str| {
            let _ = writeln!(text, "  {name:<9} {value}");
        };
        if address.ip().is_unspecified() {
            let port = address.port();
            line(
                "addresses",
                &format!("all of this machine, at port {port}: others reach it, too"),
            );
        }
        if self.demo {
            line("demo", "a simulator answers, with keys of its own; nothing is kept");
        }
        line("keys", &self.keys);
        self.notes.iter().for_each(|note| line("", note));
        // One that a forgotten variable names would be noticed late.
        if let Some(upstream) = self.upstream.as_deref().filter(|_| !self.demo) {
            line("upstream", &format!("{upstream}, in place of Google"));
        }
        line("projects", &self.projects.join(", "));
        line("state", &self.state.clone().unwrap_or_else(nowhere));
        line("ledger", &self.ledger.clone().unwrap_or_else(nowhere));
        text.push('\n');
        text += &clients(&base, self.token, self.native);
        text
    }
}

/// Why it did not start, with the exit code that fits.
pub(super) fn not_started(error: StartError) -> Fault {
    match error {
        StartError::Client(error @ (Error::Keys(_) | Error::NoKeys { .. })) => {
            Fault::from(error).also("`keywheel serve --demo` needs none: a simulator answers")
        }
        StartError::Client(error) => error.into(),
        StartError::Ledger(error) => Fault::from(error)
            .hint("nothing is sent without a ledger: `keywheel ledger audit` looks at it"),
        StartError::Listen { .. } => Fault::new(Exit::Fault, error.to_string()).hint(
            "`listen` in the configuration, or KEYWHEEL_LISTEN=127.0.0.1:8788, names another address",
        ),
        StartError::OwnUpstream { .. } => Fault::usage(error.to_string()).hint(
            "GOOGLE_GEMINI_BASE_URL is for its clients: unset it for the gateway, or set base_url in [upstream]",
        ),
        error => Fault::new(Exit::Fault, error.to_string()),
    }
}

/// How each client is pointed here (`docs/clients.md`).
fn clients(base: &str, token: ClientToken, native: bool) -> String {
    let mut text = "Point your clients here; the API key is ".to_owned();
    text += match token {
        ClientToken::Anything => "anything, for none is asked for on this machine:\n",
        ClientToken::OfEnvironment => "the token that KEYWHEEL_TOKEN says:\n",
        ClientToken::OfProject => {
            "the project's token (`keywheel project add <name>` makes one):\n"
        }
    };
    let token = if token == ClientToken::Anything { "anything" } else { "<token>" };
    let mut line = |client: &str, how: &str| {
        let _ = writeln!(text, "  {client:<15} {how}");
    };
    if native {
        line("google-genai", &format!("GOOGLE_GEMINI_BASE_URL={base} GEMINI_API_KEY={token}"));
        line("@google/genai", &format!("GOOGLE_GEMINI_BASE_URL={base} GEMINI_API_KEY={token}"));
    }
    let openai = if native { format!("{base}/v1beta/openai/") } else { format!("{base}/v1/") };
    line("OpenAI", &format!("OPENAI_BASE_URL={openai} OPENAI_API_KEY={token}"));
    if native {
        line("LiteLLM", &format!("model=\"gemini/…\", api_base=\"{base}/v1beta\""));
        line("LangChain", &format!("ChatGoogleGenerativeAI(model=\"…\", base_url=\"{base}\")"));
        line("curl", &format!("curl {base}/v1beta/models -H 'x-goog-api-key: {token}'"));
    } else {
        line("curl", &format!("curl {base}/v1/models -H 'Authorization: Bearer {token}'"));
    }
    text.pop();
    text
}

/// An address that clients on this machine can use.
fn reachable(address: SocketAddr) -> String {
    match (address.ip().is_unspecified(), address) {
        (true, _) => format!("localhost:{}", address.port()),
        (false, address) => address.to_string(),
    }
}
