//! Free checks of keys: `GET models`, which costs no quota (<https://ai.google.dev/gemini-api/docs/billing>). Once a day
//! for quarantined ones, and for all of them when somebody asks.

use std::{
    collections::HashSet,
    sync::{Arc, PoisonError, Weak},
    time::Duration,
};

use futures_util::{Stream, StreamExt as _, stream};
use keywheel_core::{ApiKey, Cause, Clock, Fingerprint, Release};
use keywheel_pool::{CheckResult, KeySpec};
use keywheel_provider::classify::{Asked, Dialect, Kind, Reply, Verdict, classify};
use tokio::{runtime::Handle, task::AbortHandle};

use crate::{Gemini, gemini::Inner, time::rest};

/// How many keys are asked about at once. More from one address looks like an attack.
const AT_ONCE: usize = 4;

/// How often the pool is asked whose check is due. It names each key once a day.
const INTERVAL: Duration = Duration::from_hours(1);

/// The most of a reply that is read: one model's description, or an error.
const MAX_REPLY: usize = 1 << 20;

/// What a free check of one key found, see [`Gemini::check_keys`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct KeyCheck {
    /// The key, with its label, quota project and tier.
    pub spec: KeySpec,
    /// Whether it is of use.
    pub health: KeyHealth,
    /// The HTTP status; `None` when there was no reply.
    pub status: Option<u16>,
    /// What the provider said, or why it could not be asked; shortened, without keys. Empty for a key in order.
    pub message: String,
    /// What the key's owner can do, where somebody has to act.
    pub fix: Option<&'static str>,
    /// `projects/<number>`, where the reply tells whose key it is: keys with the same one share a quota.
    pub project_number: Option<String>,
}

impl KeyCheck {
    /// True for keys of the form `AIza…`, which Google retires in favour of `AQ.…`
    /// (<https://ai.google.dev/gemini-api/docs/api-key>).
    #[must_use]
    pub fn is_old_style(&self) -> bool {
        self.spec.key.expose().starts_with("AIza")
    }
}

/// Whether a key is of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyHealth {
    /// It is in order.
    Alive,
    /// It is in order, and refused for now, for a quota or for money: whoever is told so was recognised first. A check
    /// that takes a 429 for a dead key throws good ones away
    /// (<https://github.com/NousResearch/hermes-agent/issues/21058>).
    Limited(Cause),
    /// Of no use until somebody acts.
    Dead(Cause),
    /// It cannot be told: the provider was not reached, failed, or answered something else. The key may be in order.
    Unknown,
}

impl Gemini {
    /// Asks the provider about every key that is loaded, by `GET models`, which costs no quota, four at a time. The
    /// results come in the order of loading.
    ///
    /// Quarantined keys that are found in order return to the pool, but for those that only somebody may clear
    /// (reported as leaked, suspended): the list of models is given to some of them, and answers are not.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
    /// use futures_util::StreamExt as _;
    /// use keywheel::{Cause, KeyHealth};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # script.reply(Scripted::json(200, r#"{"models":[]}"#));
    /// # script.reply(Scripted::invalid_key());
    /// # let key = |n| KeySpec::new(ApiKey::new(format!("AQ.EXAMPLE-key-{n}")).unwrap(), format!("KEY_{n}"));
    /// # let gemini = Gemini::builder()
    /// #     .keys([key(1), key(2)])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script.clone()))
    /// #     .build()
    /// #     .await?;
    /// let found: Vec<_> = gemini.check_keys().collect().await;
    /// assert_eq!(found[0].health, KeyHealth::Alive);
    /// assert_eq!(found[1].health, KeyHealth::Dead(Cause::InvalidKey));
    /// assert!(found[1].fix.is_some() && !found[1].is_old_style());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the stream ends the requests under way; what was found before stays.
    pub fn check_keys(&self) -> impl Stream<Item = KeyCheck> + Send + use<> {
        let inner = Arc::clone(&self.inner);
        let specs = inner.keys_from.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let keys = inner.pool.status().keys;
        let by_hand = keys.iter().filter(|key| {
            key.quarantine.as_ref().is_some_and(|why| why.release == Release::ByHand)
        });
        let by_hand: HashSet<Fingerprint> = by_hand.map(|key| key.fingerprint).collect();
        let checks = specs.into_iter().map(move |spec| {
            let (inner, stays) = (Arc::clone(&inner), by_hand.contains(&spec.fingerprint()));
            async move { check_key(&inner, spec, stays).await }
        });
        stream::iter(checks).buffered(AT_ONCE)
    }
}

/// Checks running in the background. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Checks(AbortHandle);

impl Checks {
    /// Starts them, if there is a tokio runtime to run them on.
    pub(crate) fn start(inner: &Arc<Inner>) -> Option<Self> {
        let runtime = Handle::try_current().ok()?;
        let clock = Arc::clone(&inner.clock);
        let task = runtime.spawn(run(Arc::downgrade(inner), clock));
        Some(Self(task.abort_handle()))
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn run(inner: Weak<Inner>, clock: Arc<dyn Clock>) {
    while let Some(inner) = inner.upgrade() {
        run_due(&inner).await;
        drop(inner);
        rest(&*clock, INTERVAL).await;
    }
}

/// Checks every key whose check is due, and says how many came back into use.
pub(crate) async fn run_due(inner: &Inner) -> usize {
    let mut returned = 0;
    for due in inner.pool.due_checks().await {
        let result = check(inner, &due.key).await;
        tracing::debug!(key = %due.fingerprint, label = due.label, ?result, "daily check");
        returned += usize::from(result == CheckResult::Alive);
        inner.pool.check_result(due.fingerprint, result);
    }
    returned
}

/// Asks the provider whether `key` works, for free.
pub(crate) async fn check(inner: &Inner, key: &ApiKey) -> CheckResult {
    match ask(inner, key).await {
        Ok((_, verdict)) => match health(&verdict) {
            KeyHealth::Alive | KeyHealth::Limited(_) => CheckResult::Alive,
            KeyHealth::Dead(cause) => CheckResult::StillDead(cause),
            KeyHealth::Unknown => CheckResult::Unknown,
        },
        Err(_) => CheckResult::Unknown,
    }
}

/// The same with all that is found. `stays`: only somebody may clear its quarantine.
async fn check_key(inner: &Inner, spec: KeySpec, stays: bool) -> KeyCheck {
    let (status, verdict) = match ask(inner, &spec.key).await {
        Ok(answered) => answered,
        Err(reason) => {
            let health = KeyHealth::Unknown;
            let (status, fix, project_number) = (None, None, None);
            return KeyCheck { spec, health, status, message: reason, fix, project_number };
        }
    };
    let health = health(&verdict);
    if matches!(health, KeyHealth::Alive | KeyHealth::Limited(_)) && !stays {
        inner.pool.check_result(spec.fingerprint(), CheckResult::Alive);
    }
    KeyCheck {
        spec,
        health,
        status: Some(status),
        message: verdict.message,
        fix: verdict.fix,
        project_number: verdict.project_number,
    }
}

/// Sends the check, and says what the reply means; or why there was none.
async fn ask(inner: &Inner, key: &ApiKey) -> Result<(u16, Verdict), String> {
    let upstream = &inner.upstream;
    let mut call = upstream.provider().models(None);
    if upstream.dialect() == Dialect::Gemini {
        call = call.with_query("pageSize", "1");
    }
    let response = upstream.call(key, &call).await.map_err(|error| error.to_string())?;
    let (status, headers) = (response.status, response.headers.clone());
    let body = response.bytes(MAX_REPLY).await.map_err(|error| error.to_string())?;
    let reply = Reply { status, headers: &headers, body: &body };
    Ok((status, classify(upstream.dialect(), &reply, &Asked::default(), inner.clock.now())))
}

fn health(verdict: &Verdict) -> KeyHealth {
    match verdict.kind {
        Kind::Served => KeyHealth::Alive,
        Kind::Refused(cause) if verdict.key_is_dead => KeyHealth::Dead(cause),
        // Whoever is refused for a quota was recognised first: the key is in order.
        Kind::Refused(
            cause @ (Cause::PerDayRequests
            | Cause::PerDayTokens
            | Cause::PerMinuteRequests
            | Cause::PerMinuteTokens
            | Cause::UnspecifiedQuota
            | Cause::FreeTierNotAvailable
            | Cause::ToolQuota
            | Cause::Billing),
        ) => KeyHealth::Limited(cause),
        Kind::Refused(_) => KeyHealth::Unknown,
    }
}
