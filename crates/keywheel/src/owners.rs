//! Which quota project made what: files, caches and the like belong to the project whose key made them, and no
//! other project's key may use them.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use keywheel_core::Clock;
use keywheel_pool::durable::{SharedFile, UpdateError, Version};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::blocking::blocking;

/// How long a change waits for other processes that change the file.
const PATIENCE: Duration = Duration::from_secs(2);
/// How much longer than it lives an owner is remembered: clocks differ, and may step.
const GRACE: TimeDelta = TimeDelta::days(1);
/// The most that are remembered; beyond it, those that end soonest are forgotten.
const MOST: usize = 50_000;
/// No provider's names are longer than this, in bytes: a longer one is not remembered, or one reply could fill the
/// file.
const LONGEST_NAME: usize = 256;

/// Remembers which quota project made what, by the provider's name for it (`files/abc`, `cachedContents/xyz`).
///
/// Kept in `<stem>.owners.json` beside the pool's state file, which several processes share; in memory when the
/// pool keeps its state there, or nowhere. Clones share one memory.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use keywheel::{ManualClock, Owners};
/// use std::sync::Arc;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let state = folder.path().join("pool.json");
/// let now = "2026-11-30T08:00:00Z".parse().unwrap();
/// let owners = Owners::open(Some(&state), Arc::new(ManualClock::at(now)));
/// let in_two_days = "2026-12-02T08:00:00Z".parse().unwrap();
/// owners.record("files/abc", "key:3fa1c09be2d4", Some(in_two_days)).await.unwrap();
/// assert_eq!(owners.owner("files/abc").await.as_deref(), Some("key:3fa1c09be2d4"));
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Owners {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// What this process was told, and what it found in the file.
    known: Mutex<BTreeMap<String, Owned>>,
    file: Option<SharedFile>,
    clock: Arc<dyn Clock>,
}

impl Owners {
    /// The memory beside the pool's state file; without one, a memory of this process alone. Reads nothing yet.
    #[must_use]
    pub fn open(state_file: Option<&Path>, clock: Arc<dyn Clock>) -> Self {
        let file = state_file.map(|path| SharedFile::beside(path, "owners"));
        Self { shared: Arc::new(Shared { known: Mutex::default(), file, clock }) }
    }

    /// Remembers that `quota_project` made `name`, which ends at `expires_at` (`None`: when somebody forgets it).
    /// On `Ok` it is on disk, and no crash loses it. Names of more than 256 bytes are none, and not remembered.
    ///
    /// # Errors
    /// It is not on disk, and why. This process knows it all the same.
    ///
    /// # Cancel safety
    /// Once polled, it is remembered and written even if the future is dropped.
    pub async fn record(
        &self,
        name: &str,
        quota_project: &str,
        expires_at: Option<DateTime<Utc>>,
    ) -> Result<(), UpdateError> {
        if name.len() > LONGEST_NAME {
            return Ok(());
        }
        let owned =
            Owned { quota_project: quota_project.into(), expires_at, extra: Map::default() };
        let name = name.to_owned();
        {
            let mut known = self.known();
            known.insert(name.clone(), owned.clone());
            tidy(&mut known, self.shared.clock.now());
        }
        self.change(move |owners| {
            owners.insert(name, owned);
        })
        .await
    }

    /// Who made `name`; `None` when nobody here knows. Only for a name that this process does not know the file is
    /// read.
    ///
    /// What has expired may still be known for a while: asking its owner for it is as good as asking anybody.
    ///
    /// # Cancel safety
    /// Nothing is changed; drop it any time.
    pub async fn owner(&self, name: &str) -> Option<Arc<str>> {
        if let Some(known) = self.known().get(name) {
            return Some(known.quota_project.as_str().into());
        }
        let file = self.shared.file.clone()?;
        let read = blocking(move || file.read::<OwnersFile>()).await;
        let found = read.ok().flatten()?;
        let owned = found.owners.get(name)?.clone();
        let owner = owned.quota_project.as_str().into();
        let mut known = self.known();
        known.insert(name.to_owned(), owned);
        if known.len() > MOST {
            tidy(&mut known, self.shared.clock.now());
        }
        Some(owner)
    }

    /// Forgets who made `name`, once it is gone. Nothing happens for a name that nobody knows.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # let gemini = Gemini::builder()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script.clone()))
    /// #     .build()
    /// #     .await?;
    /// let owners = gemini.owners();
    /// owners.record("files/abc", "mine", None).await?;
    /// owners.forget("files/abc").await?;
    /// assert_eq!(owners.owner("files/abc").await, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The file still says it, and why. That does no harm: who asks for what is gone hears so.
    ///
    /// # Cancel safety
    /// As [`record`](Self::record).
    pub async fn forget(&self, name: &str) -> Result<(), UpdateError> {
        self.known().remove(name);
        let name = name.to_owned();
        self.change(move |owners| {
            owners.remove(&name);
        })
        .await
    }

    async fn change(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, Owned>) + Send + 'static,
    ) -> Result<(), UpdateError> {
        let Some(file) = self.shared.file.clone() else { return Ok(()) };
        let now = self.shared.clock.now();
        blocking(move || {
            file.update(now.timestamp_millis(), PATIENCE, |file: &mut OwnersFile| {
                change(&mut file.owners);
                tidy(&mut file.owners, now);
            })
        })
        .await
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Owned>> {
        // Nothing of ours panics under this lock, and a map is whole at every moment.
        self.shared.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the file says.
#[derive(Debug, Default, Serialize, Deserialize)]
struct OwnersFile {
    version: Version<1>,
    #[serde(default)]
    owners: BTreeMap<String, Owned>,
    /// Fields of later versions.
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Owned {
    quota_project: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<DateTime<Utc>>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// Drops what has expired, and what is too much.
fn tidy(owners: &mut BTreeMap<String, Owned>, now: DateTime<Utc>) {
    let before = now.checked_sub_signed(GRACE).unwrap_or(DateTime::<Utc>::MIN_UTC);
    owners.retain(|_, owned| owned.expires_at.is_none_or(|at| before < at));
    let surplus = owners.len().saturating_sub(MOST);
    if surplus == 0 {
        return;
    }
    let ends = |owned: &Owned| owned.expires_at.unwrap_or(DateTime::<Utc>::MAX_UTC);
    let mut soonest: Vec<_> =
        owners.iter().map(|(name, owned)| (ends(owned), name.clone())).collect();
    soonest.sort_unstable();
    for (_, name) in &soonest[..surplus] {
        owners.remove(name);
    }
}

#[cfg(test)]
mod tests;
