//! What `status` shows, put together from the pool's view of the keys that are here and the file's of all others.

use chrono::{DateTime, Utc};
use keywheel::{PoolStatus, QuotaDay, Tier};
use keywheel_pool::{
    LimitSource,
    status::{CooldownStatus, LimitStatus},
};
use serde::Serialize;

use crate::{
    exit::Exit,
    moment,
    sources::{BucketEntry, Gateway, Snapshot, gateways},
};

/// The document of `status`.
#[derive(Debug, Serialize)]
pub(crate) struct View {
    pub(crate) at: String,
    pub(crate) state: State,
    /// Gateways that run on the state file.
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) keys: Vec<Key>,
    pub(crate) buckets: Vec<Bucket>,
    /// Keys thought separate that seem to share a quota.
    pub(crate) same_project: Vec<Same>,
    /// What the owner should know.
    pub(crate) notes: Vec<String>,
}

/// The state file.
#[derive(Debug, Serialize)]
pub(crate) struct State {
    pub(crate) path: Option<String>,
    pub(crate) exists: bool,
    pub(crate) saved_at: Option<String>,
}

/// One key.
#[derive(Debug, Serialize)]
pub(crate) struct Key {
    pub(crate) label: String,
    pub(crate) fingerprint: String,
    pub(crate) quota_project: String,
    /// `null` for a key that only the file knows.
    pub(crate) tier: Option<Tier>,
    /// The key itself is here, in the environment or the configuration; else only the file knows it.
    pub(crate) here: bool,
    /// `ready`, `cooling` or `quarantined`.
    pub(crate) state: &'static str,
    /// The soonest moment at which some model can be served; `null`: now, or no moment can be named.
    pub(crate) available_at: Option<String>,
    pub(crate) quarantine: Option<Quarantine>,
}

/// Why a key is out of use.
#[derive(Debug, Serialize)]
pub(crate) struct Quarantine {
    pub(crate) cause: String,
    pub(crate) since: Option<String>,
    pub(crate) detail: String,
}

/// A quota project for one model: the unit that Google limits.
#[derive(Debug, Serialize)]
pub(crate) struct Bucket {
    pub(crate) quota_project: String,
    pub(crate) model: String,
    pub(crate) keys: Vec<String>,
    pub(crate) ready: bool,
    pub(crate) available_at: Option<String>,
    /// Requests and input tokens of the quota day so far.
    pub(crate) day_requests: u64,
    pub(crate) day_tokens: u64,
    pub(crate) day_ends_at: String,
    pub(crate) limits: Vec<Limit>,
    pub(crate) cooldowns: Vec<Cooldown>,
}

/// One limit.
#[derive(Debug, Serialize)]
pub(crate) struct Limit {
    /// `rpm`, `tpm`, `rpd`, `tpd` or `ipm`.
    pub(crate) dimension: String,
    pub(crate) value: u64,
    /// Whose word it is: `set` by the user, or `learned` from a refusal.
    pub(crate) source: String,
    /// When it was learned.
    pub(crate) at: Option<String>,
}

/// What holds a bucket back.
#[derive(Debug, Serialize)]
pub(crate) struct Cooldown {
    pub(crate) cause: String,
    /// `null`: waiting does not help.
    pub(crate) until: Option<String>,
    /// How that is known: `stated`, `derived`, `guessed` or `counted`.
    pub(crate) source: String,
    pub(crate) since: Option<String>,
}

/// Keys that seem to share a quota.
#[derive(Debug, Serialize)]
pub(crate) struct Same {
    pub(crate) keys: Vec<String>,
    /// A reply named one project for them.
    pub(crate) proven: bool,
    pub(crate) evidence: String,
}

impl View {
    /// What the file says of all keys, and the pool of those that are here.
    pub(crate) fn new(snapshot: &Snapshot, pool: Option<PoolStatus>, now: DateTime<Utc>) -> Self {
        let file = &snapshot.file;
        let mut view = Self {
            at: moment::rfc3339(now),
            state: State {
                path: snapshot.path().map(|path| path.display().to_string()),
                exists: snapshot.exists(),
                saved_at: file.saved_at.map(moment::rfc3339),
            },
            gateways: snapshot.path().and_then(|path| gateways(path).ok()).unwrap_or_default(),
            keys: Vec::new(),
            buckets: Vec::new(),
            same_project: Vec::new(),
            notes: Vec::new(),
        };
        match pool {
            Some(pool) => view.add_pool(pool),
            None => view.notes.push("no key is here: this is what the state file knows".into()),
        }
        view.add_others(snapshot, now);
        view
    }

    /// [`Exit::DeadKey`] when all keys are dead, [`Exit::NotNow`] when the others are spent.
    pub(crate) fn exit(&self) -> Exit {
        let in_use: Vec<_> = self.keys.iter().filter(|key| key.state != "quarantined").collect();
        if self.keys.is_empty() {
            Exit::Fine
        } else if in_use.is_empty() {
            Exit::DeadKey
        } else if in_use.iter().all(|key| key.state == "cooling") {
            Exit::NotNow
        } else {
            Exit::Fine
        }
    }

    fn add_pool(&mut self, pool: PoolStatus) {
        for key in pool.keys {
            let own = pool.buckets.iter().filter(|one| one.quota_project == key.quota_project);
            let (mut used, mut ready, mut soonest) = (false, false, key.cooling_until);
            for bucket in own {
                used = true;
                ready |= bucket.ready;
                if key.cooling_until.is_none() {
                    soonest = [soonest, bucket.available_at].into_iter().flatten().min();
                }
            }
            let cooling = key.cooling_until.is_some() || (used && !ready);
            let state = match (&key.quarantine, cooling) {
                (Some(_), _) => "quarantined",
                (None, true) => "cooling",
                (None, false) => "ready",
            };
            self.keys.push(Key {
                label: key.label,
                fingerprint: key.fingerprint.to_string(),
                quota_project: key.quota_project,
                tier: Some(key.tier),
                here: true,
                state,
                available_at: soonest.filter(|_| state == "cooling").map(moment::rfc3339),
                quarantine: key.quarantine.map(|why| Quarantine {
                    cause: why.cause.to_string(),
                    since: Some(moment::rfc3339(why.since)),
                    detail: why.detail,
                }),
            });
        }
        self.buckets.extend(pool.buckets.into_iter().map(|bucket| Bucket {
            quota_project: bucket.quota_project,
            model: bucket.model,
            keys: bucket.labels,
            ready: bucket.ready,
            available_at: bucket.available_at.map(moment::rfc3339),
            day_requests: bucket.day.requests,
            day_tokens: bucket.day.tokens,
            day_ends_at: moment::rfc3339(bucket.day_ends_at),
            limits: bucket.limits.into_iter().map(Limit::new).collect(),
            cooldowns: bucket.cooldowns.into_iter().map(Cooldown::new).collect(),
        }));
        self.same_project.extend(pool.same_project.into_iter().map(|hint| Same {
            keys: hint.labels,
            proven: hint.proven,
            evidence: hint.evidence,
        }));
        self.notes.extend(pool.notes);
        if let Some(until) = pool.host_blocked_until {
            let until = moment::rfc3339(until);
            self.notes.push(format!("the provider refuses this machine's address until {until}"));
        }
    }

    /// Keys and buckets that only the file knows.
    fn add_others(&mut self, snapshot: &Snapshot, now: DateTime<Utc>) {
        let mut strangers = Vec::new();
        for (fingerprint, entry) in &snapshot.file.keys {
            if self.keys.iter().any(|key| key.fingerprint == *fingerprint) {
                continue;
            }
            let cooling = entry.available_at.is_some_and(|at| at > now);
            let state = match (&entry.quarantine, cooling) {
                (Some(_), _) => "quarantined",
                (None, true) => "cooling",
                (None, false) => "ready",
            };
            strangers.push(Key {
                label: entry.label.clone(),
                fingerprint: fingerprint.clone(),
                quota_project: entry.project.clone(),
                tier: None,
                here: false,
                state,
                available_at: entry.available_at.filter(|_| cooling).map(moment::rfc3339),
                quarantine: entry.quarantine.as_ref().map(|why| Quarantine {
                    cause: why.cause.clone(),
                    since: why.since.map(moment::rfc3339),
                    detail: why.detail.clone().unwrap_or_default(),
                }),
            });
        }
        let known: Vec<_> = self.keys.iter().map(|key| key.quota_project.clone()).collect();
        for (name, entry) in &snapshot.file.buckets {
            let Some((project, model)) = name.split_once('/') else { continue };
            let project = project.replace("%2F", "/").replace("%25", "%");
            if known.contains(&project) {
                continue;
            }
            let of_it = strangers.iter().filter(|key| key.quota_project == project);
            let labels = of_it.map(|key| key.label.clone()).collect();
            self.buckets.push(Bucket::of_file(project, model, labels, entry, now));
        }
        self.keys.append(&mut strangers);
    }
}

impl Bucket {
    fn of_file(
        project: String,
        model: &str,
        keys: Vec<String>,
        entry: &BucketEntry,
        now: DateTime<Utc>,
    ) -> Self {
        let today = QuotaDay::containing(now);
        let day = entry.day.as_ref().filter(|day| day.date == Some(today.date()));
        let counts = day.into_iter().flat_map(|day| day.by.values());
        let (requests, tokens) = counts.fold((0_u64, 0_u64), |(requests, tokens), count| {
            (requests.saturating_add(count.requests), tokens.saturating_add(count.tokens))
        });
        let held = entry.cooldowns.iter();
        let held = held.filter(|(_, entry)| entry.available_at.is_none_or(|at| at > now));
        let held: Vec<_> = held.collect();
        let until = held.iter().map(|(_, entry)| entry.available_at).max().flatten();
        let forever = held.iter().any(|(_, entry)| entry.available_at.is_none());
        let limits = entry.limits.iter().filter_map(|(dimension, limit)| {
            Some(Limit {
                dimension: dimension.clone(),
                value: limit.value?,
                source: limit.source.clone(),
                at: limit.at.map(moment::rfc3339),
            })
        });
        Self {
            quota_project: project,
            model: model.to_owned(),
            keys,
            ready: held.is_empty(),
            available_at: until.filter(|_| !forever).map(moment::rfc3339),
            day_requests: requests,
            day_tokens: tokens,
            day_ends_at: moment::rfc3339(today.ends_at()),
            limits: limits.collect(),
            cooldowns: held
                .into_iter()
                .map(|(cause, entry)| Cooldown {
                    cause: cause.clone(),
                    until: entry.available_at.map(moment::rfc3339),
                    source: entry.source.clone(),
                    since: entry.since.map(moment::rfc3339),
                })
                .collect(),
        }
    }

    /// The limit of requests per day, if it is known.
    pub(crate) fn requests_a_day(&self) -> Option<u64> {
        self.limits.iter().find(|limit| limit.dimension == "rpd").map(|limit| limit.value)
    }
}

impl Limit {
    fn new(limit: LimitStatus) -> Self {
        Self {
            dimension: limit.dimension.to_string(),
            value: limit.value,
            source: match limit.source {
                LimitSource::Set => "set".to_owned(),
                LimitSource::Learned => "learned".to_owned(),
            },
            at: limit.at.map(moment::rfc3339),
        }
    }
}

impl Cooldown {
    fn new(cooldown: CooldownStatus) -> Self {
        Self {
            cause: cooldown.cause.to_string(),
            until: cooldown.until.map(moment::rfc3339),
            source: cooldown.source.as_str().to_owned(),
            since: Some(moment::rfc3339(cooldown.since)),
        }
    }
}
