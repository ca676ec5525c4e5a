//! The simulated Google: every decision, and nothing that waits.

mod answering;
mod asked;
mod caches;
mod call;
mod control;
mod files;
mod openai;

use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    fmt,
    time::Duration,
};

use chrono::{DateTime, NaiveDate, Utc};
use keywheel_core::{Cause, Fingerprint};

use crate::{
    answers, bodies,
    bodies::ErrorBody,
    caches::Caches,
    config::{ConfigErrors, Face, KeyState, Limits, ProjectConfig, SimConfig, UnknownKeys},
    fault::{Draws, Fault},
    files::Files,
    gzip, openai as openai_api,
    paging::Paging,
    quota::{Bucket, Rules, day_number},
    reply::{HttpReply, JSON, Outcome, SimReply},
    request::{CredentialFault, SimRequest},
    route::{Route, Verb},
    shape::{Shape, Wishes},
    stats::{BucketDay, Stats},
};

/// Quotas, keys, faults and statistics. Pure: a request and a moment go in, a reply comes out.
///
/// The same configuration, requests and moments give the same replies. [`SharedWorld`](crate::SharedWorld)
/// is the handle that a transport and a server play it through.
///
/// ```
/// use http::{HeaderMap, Method};
/// use keywheel_sim::{ModelConfig, Limits, SimConfig, SimRequest, World};
///
/// let config = SimConfig::new().with_model("gemini-x", ModelConfig::free(Limits::new().rpm(15)));
/// let mut world = World::new(config).unwrap();
/// let request = SimRequest::new(Method::GET, "/v1beta/models", HeaderMap::new(), "");
/// let reply = world.handle(&request, "2026-11-30T07:59:59Z".parse().unwrap());
/// assert_eq!(reply.http.unwrap().status, 403); // no key
/// ```
///
/// Tests change it while it runs, and ask what is left:
///
/// ```
/// # use http::{HeaderMap, Method};
/// # use keywheel_core::{ApiKey, Cause};
/// # use keywheel_sim::{Fault, Faults, KeyState, Limits, ModelConfig, Outcome, ProjectConfig};
/// # use keywheel_sim::{ProjectState, SimConfig, SimRequest, World};
/// # let key = ApiKey::new("AQ.EXAMPLE-1").unwrap();
/// # let config = SimConfig::new()
/// #     .with_model("gemini-x", ModelConfig::free(Limits::new().rpd(500)))
/// #     .with_project(ProjectConfig::new("alpha").with_key(key.clone()));
/// # let mut world = World::new(config).unwrap();
/// # let mut headers = HeaderMap::new();
/// # headers.insert("x-goog-api-key", key.expose().parse().unwrap());
/// # let target = "/v1beta/models/gemini-x:generateContent";
/// # let body = r#"{"contents":[{"parts":[{"text":"Hello"}]}]}"#;
/// # let request = SimRequest::new(Method::POST, target, headers, body);
/// let now = "2026-11-30T12:00:00Z".parse().unwrap();
/// world.force(Fault::Overloaded, 1);
/// assert_eq!(world.handle(&request, now).outcome.told(), Some(Cause::Overloaded));
/// assert_eq!(world.handle(&request, now).outcome, Outcome::Served);
/// assert_eq!(world.left_today("alpha", "gemini-x", now), Some(498)); // the 503 counts, too
///
/// assert!(world.set_limits("alpha", "gemini-x", Limits::new().rpd(2)));
/// assert!(!world.any_left_today("gemini-x", now));
/// assert!(matches!(world.handle(&request, now).outcome, Outcome::OverLimit { .. }));
/// let stats = world.stats();
/// assert_eq!((stats.served(), stats.faulted(), stats.refused()), (1, 1, 1));
///
/// let tomorrow = "2026-12-01".parse().unwrap();
/// assert_eq!(world.day_capacity("alpha", "gemini-x", tomorrow), Some(2));
/// world.set_faults(Faults { internal: 1.0, ..Faults::default() });
/// assert_eq!(world.day_capacity("alpha", "gemini-x", tomorrow), Some(0));
///
/// assert!(world.set_key_state(key.fingerprint(), KeyState::Expired));
/// assert_eq!(world.handle(&request, now).http.unwrap().status, 400);
/// assert!(world.set_project_state("alpha", ProjectState::Denied));
/// ```
pub struct World {
    config: SimConfig,
    draws: Draws,
    keys: HashMap<Fingerprint, KnownKey>,
    /// By project, then by model.
    buckets: Vec<HashMap<String, BucketState>>,
    forced: VecDeque<Fault>,
    files: Files,
    caches: Caches,
    /// How many chunks of uploads still arrive by half.
    broken_uploads: usize,
    stats: Stats,
}

/// Whose request it is, once the key is in order.
#[derive(Debug, Clone, Copy)]
struct Caller {
    fingerprint: Fingerprint,
    /// Index into the configuration's projects.
    project: usize,
}

#[derive(Debug, Clone, Copy)]
struct KnownKey {
    /// Index into the configuration's projects.
    project: usize,
    state: KeyState,
}

/// A bucket and how many requests of each sort it saw today, for drawing faults.
#[derive(Debug, Default)]
struct BucketState {
    bucket: Bucket,
    day: i32,
    arrived: u64,
    counted: u64,
    refused: u64,
}

impl World {
    /// A world in which nothing was spent yet.
    ///
    /// # Errors
    /// All that is wrong with the configuration.
    pub fn new(config: SimConfig) -> Result<Self, ConfigErrors> {
        config.check()?;
        let mut keys = HashMap::new();
        for (project, it) in config.projects.iter().enumerate() {
            for key in &it.keys {
                keys.insert(key.key.fingerprint(), KnownKey { project, state: key.state });
            }
        }
        Ok(Self {
            draws: Draws::new(config.seed, config.faults.clone(), config.faults_of_models()),
            config,
            keys,
            buckets: Vec::new(),
            forced: VecDeque::new(),
            files: Files::default(),
            caches: Caches::default(),
            broken_uploads: 0,
            stats: Stats::default(),
        })
    }

    /// Decides what happens to a request that arrives at `now`.
    pub fn handle(&mut self, request: &SimRequest, now: DateTime<Utc>) -> SimReply {
        let mut reply = self.routed(request, now);
        if self.config.face == Face::OpenAi
            && let Some(http) = &mut reply.http
        {
            http.without_googles_headers();
        }
        if self.config.gzip
            && request.accepts_gzip()
            && let Some(http) = &mut reply.http
        {
            gzip::compress(http);
        }
        reply
    }

    fn routed(&mut self, request: &SimRequest, now: DateTime<Utc>) -> SimReply {
        let Some(route) = Route::of(request, self.config.face) else {
            self.stats.note(None, None, &Outcome::NoSuchPath, Some(404), 0);
            let http = match self.config.face {
                Face::Gemini => bodies::html_404(),
                Face::OpenAi => openai_api::unknown_url(request.method.as_str(), &request.path),
            };
            return self.plain(http, Outcome::NoSuchPath);
        };
        if route == Route::Upload
            && let Some(id) = request.parameter("upload_id")
        {
            return self.continue_upload(id, request, now);
        }
        let (credential, shape) = match route {
            Route::OpenAi(_) => (request.bearer(), self.openai_shape()),
            Route::Call { verb: Verb::Stream { sse: false }, .. } => {
                (request.credential(), Shape::Array)
            }
            _ => (request.credential(), Shape::Native),
        };
        let key = match credential {
            Ok(key) => key,
            Err(fault) => {
                let (cause, body) = credential_fault(fault);
                return self.turned_away(None, cause, &body, shape);
            }
        };
        let fingerprint = Fingerprint::of(key);
        let Some(known) = self.known(fingerprint) else {
            let body = bodies::invalid_key();
            return self.turned_away(None, Cause::InvalidKey, &body, shape);
        };
        let project = &self.config.projects[known.project];
        let refusal = bodies::key_state(known.state, project.number)
            .or_else(|| bodies::project_state(project.state, project.number, key));
        if let Some((cause, body)) = refusal {
            return self.turned_away(Some(fingerprint), cause, &body, shape);
        }
        let caller = Caller { fingerprint, project: known.project };
        match route {
            Route::Upload => self.begin_upload(caller, request, now),
            Route::Files => self.list_files(caller, request, now),
            Route::File { id } => self.file(caller, id, request, now),
            Route::Caches => self.cached_contents(caller, request, now),
            Route::Cache { id } => self.cached_content(caller, id, request, now),
            Route::List => {
                let paging = Paging::asked(request, 50, 1_000);
                let page = answers::models(&self.config, &project.closed_models, paging);
                self.looked_up(fingerprint, &page)
            }
            Route::Model { model } => match self.config.models.get(model) {
                Some(config) if !project.closed_models.iter().any(|closed| closed == model) => {
                    self.looked_up(fingerprint, &answers::model(model, config))
                }
                _ => {
                    let body = bodies::model_not_found(model, "v1beta", Verb::Generate);
                    self.turned_away(Some(fingerprint), Cause::ModelNotFound, &body, shape)
                }
            },
            Route::Call { version, model, verb } => {
                let (project, body) = (known.project, Ok(Cow::Borrowed(request.body.as_ref())));
                let call = call::Call { fingerprint, project, version, model, verb, shape, body };
                self.call(&call, now)
            }
            Route::OpenAi(route) => self.openai(caller, route, request, now),
        }
    }

    /// What was counted so far.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The configuration as it stands now.
    #[must_use]
    pub const fn config(&self) -> &SimConfig {
        &self.config
    }

    fn bucket(&mut self, project: usize, model: &str) -> &mut BucketState {
        if self.buckets.len() <= project {
            self.buckets.resize_with(project + 1, HashMap::new);
        }
        let models = &mut self.buckets[project];
        if !models.contains_key(model) {
            models.insert(model.to_owned(), BucketState::default());
        }
        models.get_mut(model).expect("inserted if it was not there")
    }

    fn known(&mut self, key: Fingerprint) -> Option<KnownKey> {
        if let Some(known) = self.keys.get(&key) {
            return Some(*known);
        }
        if self.config.unknown_keys == UnknownKeys::Invalid {
            return None;
        }
        let known = KnownKey { project: self.config.projects.len(), state: KeyState::Ok };
        self.config.projects.push(ProjectConfig::new(key.to_string()));
        self.keys.insert(key, known);
        Some(known)
    }

    fn rules(&self, project: usize) -> Rules {
        let project = &self.config.projects[project];
        Rules {
            windows: self.config.windows,
            zone: project.reset_zone,
            late_ms: project.reset_late_s.saturating_mul(1_000),
        }
    }

    fn limits(&self, project: usize, model: &str) -> Option<Limits> {
        let project = &self.config.projects[project];
        let model_config = self.config.models.get(model)?;
        let of_tier = match project.tier {
            keywheel_core::Tier::Free => model_config.free,
            keywheel_core::Tier::Paid => model_config.paid,
        };
        Some(project.limits.get(model).copied().unwrap_or(of_tier))
    }

    /// A refusal that has nothing to do with any bucket.
    fn turned_away(
        &mut self,
        key: Option<Fingerprint>,
        cause: Cause,
        body: &ErrorBody,
        shape: Shape,
    ) -> SimReply {
        let http = shape.error(cause, body);
        let outcome = Outcome::Refused(shape.told(cause));
        self.stats.note(None, key, &outcome, Some(http.status), 0);
        self.plain(http, outcome)
    }

    /// An answer that costs no quota.
    fn looked_up(&mut self, key: Fingerprint, value: &serde_json::Value) -> SimReply {
        let http = HttpReply::whole(200, JSON, bodies::pretty(value));
        self.stats.note(None, Some(key), &Outcome::Served, Some(200), 0);
        self.plain(http, Outcome::Served)
    }

    /// The form of OpenAI-style routes in this world.
    fn openai_shape(&self) -> Shape {
        match self.config.face {
            Face::Gemini => Shape::Compat(Wishes::default()),
            Face::OpenAi => Shape::OpenAi(Wishes::default()),
        }
    }

    const fn plain(&self, http: HttpReply, outcome: Outcome) -> SimReply {
        SimReply { latency: Duration::ZERO, http: Some(http), outcome }
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("projects", &self.config.projects.len())
            .field("keys", &self.keys.len())
            .field("models", &self.config.models.keys())
            .finish_non_exhaustive()
    }
}

const fn cause_of(fault: CredentialFault) -> Cause {
    match fault {
        CredentialFault::Bearer => Cause::InvalidKey,
        CredentialFault::None | CredentialFault::NoBearer | CredentialFault::Several => {
            Cause::CredentialFault
        }
    }
}

fn credential_fault(fault: CredentialFault) -> (Cause, ErrorBody) {
    let body = match fault {
        CredentialFault::None => bodies::no_credential(),
        CredentialFault::Several => bodies::several_credentials(),
        CredentialFault::Bearer => bodies::unauthenticated(),
        CredentialFault::NoBearer => bodies::no_bearer(),
    };
    (cause_of(fault), body)
}

/// The bucket's name in the statistics.
fn bucket_day(project: &str, model: &str, date: NaiveDate) -> BucketDay {
    BucketDay { project: project.to_owned(), model: model.to_owned(), date }
}

impl BucketState {
    /// Starts the counters anew when the day has turned.
    fn turn(&mut self, rules: &Rules, now_ms: i64) {
        let day = day_number(rules.day(now_ms));
        if self.day != day {
            *self = Self { bucket: std::mem::take(&mut self.bucket), day, ..Self::default() };
        }
    }
}
