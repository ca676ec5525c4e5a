//! A gateway: what it is made of, how it starts and how it stops.

use std::{
    fmt, io,
    net::SocketAddr,
    num::NonZero,
    sync::{Arc, PoisonError, RwLock},
    thread,
    time::Duration,
};

use keywheel::{
    Clock, Gemini, SystemClock,
    ledger::{Ledger, LedgerError},
};
use tokio::{
    net::TcpListener,
    task::{AbortHandle, JoinHandle},
};

use crate::{
    admit::Gate,
    budget::Warned,
    config::{Config, Settings},
    cors::Origins,
    health::LedgerFailure,
    itself,
    metrics::Metrics,
    pinned,
    reload::{self, ReloadError, Reloaded, Source},
    server::{self, Lanes, Phase, Phases, ServerLimits, Stage},
    spool::{Spool, SpoolLimits},
    upload::Signer,
};

/// How a gateway is started: see [`Gateway::start`].
#[derive(Debug)]
pub struct Gateway;

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address cannot be had.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// It would ask itself: what `GOOGLE_GEMINI_BASE_URL` tells clients holds for a gateway in the same shell, too.
    #[error("the upstream {base_url} is this gateway itself, which listens on {address}")]
    OwnUpstream {
        /// Where requests would go.
        base_url: String,
        /// Where it listens.
        address: SocketAddr,
    },
    /// The ledger cannot be opened, so nothing could be sent.
    #[error("the ledger cannot be opened: {0}")]
    Ledger(#[from] LedgerError),
    /// The client cannot be built: no keys, or a state file that cannot be used.
    #[error(transparent)]
    Client(#[from] keywheel::Error),
    /// There is no project, so nobody could ask.
    #[error("there is no project")]
    NoProject,
    /// The secret for upload addresses cannot be made or read.
    #[error("the secret for upload addresses cannot be kept in the state folder: {0}")]
    Secret(#[source] io::Error),
    /// The system gives no threads to serve connections on.
    #[error("there are no threads to serve connections on: {0}")]
    Threads(#[source] io::Error),
}

impl Gateway {
    /// Opens the ledger, builds the client, listens, and serves in the background. See the [crate]'s example.
    ///
    /// # Errors
    /// See [`StartError`]. Nothing runs then.
    pub async fn start(config: Config) -> Result<Running, StartError> {
        Self::start_at(config, Arc::new(SystemClock)).await
    }

    /// The same by a clock of one's own: quotas, budgets, queues and upload addresses go by it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::{sync::Arc, time::Duration};
    /// use keywheel::ManualClock;
    /// use keywheel_gateway::{Config, Gateway};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("keywheel.toml");
    /// let text = "listen = \"127.0.0.1:0\"\nstate = \"pool.json\"\n[keys]\nfile = \"keys.txt\"\n[ledger]\npath = \"ledger.db\"\n";
    /// std::fs::write(&path, text)?;
    /// std::fs::write(path.with_file_name("keys.txt"), "AQ.EXAMPLE-key-1\n")?;
    /// let clock = ManualClock::at("2026-11-30T12:00:00Z".parse()?);
    /// let gateway = Gateway::start_at(Config::from_file(&path)?, Arc::new(clock)).await?;
    ///
    /// std::fs::write(path.with_file_name("keys.txt"), "AQ.EXAMPLE-key-1\nAQ.EXAMPLE-key-2\n")?;
    /// let reloaded = gateway.reload().await?;
    /// assert_eq!((reloaded.keys.added.len(), reloaded.projects), (1, 1));
    ///
    /// tokio::join!(gateway.stop(Duration::ZERO), gateway.wait());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_at(config: Config, clock: Arc<dyn Clock>) -> Result<Running, StartError> {
        let Config { settings, client, keys, ledger, at_start, .. } = config;
        let address = settings.listen;
        let listen_error = |source| StartError::Listen { address, source };
        let listener = server::listen(address).await.map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        if let Some(base_url) = &settings.base_url
            && itself::leads_here(base_url, address).await
        {
            return Err(StartError::OwnUpstream { base_url: base_url.clone(), address });
        }
        let cores = || thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        let threads = settings.limits.threads.unwrap_or_else(cores);
        let first = settings.projects.default().ok_or(StartError::NoProject)?.name.clone();
        // A ledger would be made anew, of which nobody could spend.
        client.try_keys()?;
        let ledger = Ledger::builder().clock(Arc::clone(&clock)).config(ledger).open().await?;
        let client = client.clock(Arc::clone(&clock)).ledger(ledger.clone(), first.as_str());
        let gemini = client.build().await?;
        if let Some(warning) = pinned::warning(&settings, &gemini) {
            tracing::warn!("{warning}");
        }
        let phases = Phases::new();
        let source = Source::new(&settings, keys, address, at_start);
        let app = App::new(gemini, ledger, clock, settings, source, phases.stage())?;
        let lanes = Lanes::new(threads).map_err(StartError::Threads)?;
        Ok(Running::of(listener, address, Arc::new(app), phases, lanes))
    }
}

/// A gateway that runs. Dropped, it ends at once, and what is under way is cut off: [`stop`](Self::stop) it.
pub struct Running {
    app: Arc<App>,
    address: SocketAddr,
    phases: Phases,
    task: JoinHandle<()>,
    watch: Option<AbortHandle>,
}

impl Running {
    fn of(
        listener: TcpListener,
        address: SocketAddr,
        app: Arc<App>,
        phases: Phases,
        lanes: Lanes,
    ) -> Self {
        let task = tokio::spawn(run(listener, Arc::clone(&app), phases.clone(), lanes));
        let watch = reload::begin(&app);
        Self { app, address, phases, task, watch }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The client that it asks with: its pool, its counters.
    #[must_use]
    pub fn gemini(&self) -> &Gemini {
        &self.app.gemini
    }

    /// The ledger that it charges.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.app.ledger
    }

    /// How long requests under way have to end when it stops, by the configuration as it was last read:
    /// [`Limits::drain_time`](crate::Limits::drain_time).
    #[must_use]
    pub fn drain_time(&self) -> Duration {
        self.app.current().settings.limits.drain_time
    }

    /// Reads the configuration and the keys again: projects, tokens, budgets, models, texts, keys. Requests under way
    /// go on as they began. What was changed and only a start looks at is told ([`Reloaded::needs_restart`]). It does so
    /// by itself when the file changes ([`Settings::watch`]).
    ///
    /// # Errors
    /// Everything that is wrong; nothing has changed then.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing, or everything.
    pub async fn reload(&self) -> Result<Reloaded, ReloadError> {
        reload::reload(&self.app).await
    }

    /// Stops it: nothing new is accepted, and what is under way has `drain` to come to its end. Then streams end with
    /// an error that their clients notice, what is left is cut off, everything is settled, and pool and ledger are
    /// written.
    ///
    /// # Cancel safety
    /// Once polled, it stops by itself even if the future is dropped.
    pub async fn stop(&self, drain: Duration) {
        if self.phases.stage().now() == Phase::Serving {
            self.phases.reach(Phase::Draining);
            // Whoever waits in line would wait for those who end: better told now, to ask another instance.
            self.app.gate.close();
            let phases = self.phases.clone();
            tokio::spawn(async move {
                tokio::time::sleep(drain).await;
                phases.reach(Phase::Ending);
            });
        }
        self.wait().await;
    }

    /// Ends when it has stopped.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn wait(&self) {
        self.phases.stage().left(Phase::Ending).await;
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}

async fn run(listener: TcpListener, app: Arc<App>, phases: Phases, lanes: Lanes) {
    let limits = ServerLimits::of(&app.current().settings.limits);
    server::serve(listener, Arc::clone(&app), limits, phases.stage(), &lanes).await;
    app.last_ended().await;
    app.write_everything().await;
    phases.reach(Phase::Ended);
}

/// What every request needs.
pub(crate) struct App {
    pub(crate) gemini: Gemini,
    pub(crate) ledger: Ledger,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) gate: Gate,
    pub(crate) warned: Warned,
    pub(crate) ledger_failure: LedgerFailure,
    pub(crate) metrics: Metrics,
    pub(crate) spool: Spool,
    pub(crate) signer: Signer,
    pub(crate) source: Source,
    pub(crate) stage: Stage,
    current: RwLock<Arc<Current>>,
}

/// The settings that hold now. A request goes by those of its beginning.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) settings: Settings,
    pub(crate) origins: Origins,
}

impl Current {
    pub(crate) fn new(settings: Settings) -> Self {
        let origins = Origins::of(settings.cors.origins.iter().map(String::as_str));
        Self { settings, origins }
    }
}

impl App {
    fn new(
        gemini: Gemini,
        ledger: Ledger,
        clock: Arc<dyn Clock>,
        settings: Settings,
        source: Source,
        stage: Stage,
    ) -> Result<Self, StartError> {
        let folder = gemini.pool().state_file().and_then(std::path::Path::parent);
        let signer =
            folder.map_or_else(Signer::fleeting, Signer::of).map_err(StartError::Secret)?;
        let idle = settings.limits.idle_time;
        let spool = Spool::new(SpoolLimits { idle, ..SpoolLimits::default() });
        Ok(Self {
            gate: Gate::new(&ledger, Arc::clone(&clock)),
            gemini,
            ledger,
            clock,
            warned: Warned::default(),
            ledger_failure: LedgerFailure::default(),
            metrics: Metrics::new(),
            spool,
            signer,
            source,
            stage,
            current: RwLock::new(Arc::new(Current::new(settings))),
        })
    }

    pub(crate) fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn goes_by(&self, current: Current) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(current);
    }

    /// Ends when no request is under way, or soon. Those of a connection that was cut off are tasks of their own where it
    /// spoke HTTP/2, and settle a moment after it.
    async fn last_ended(&self) {
        const A_MOMENT: Duration = Duration::from_millis(10);
        for _ in 0..100 {
            if self.metrics.in_flight() == 0 {
                return;
            }
            tokio::time::sleep(A_MOMENT).await;
        }
        tracing::warn!(left = self.metrics.in_flight(), "requests were left behind at the end");
    }

    /// Ends with everything on disk that this process has to say.
    async fn write_everything(&self) {
        // Settlements that nobody waits for stand in the ledger's line; whoever comes after them is served after them.
        if let Err(error) = self.ledger.sweep().await {
            tracing::error!(%error, "the ledger could not be written at the end");
        }
        if let Err(error) = self.gemini.flush().await {
            tracing::error!(%error, "the pool's state could not be written at the end");
        }
    }
}
