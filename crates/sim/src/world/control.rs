//! What tests change in a world while it runs, and what they ask of it.

use chrono::{DateTime, NaiveDate, Utc};
use keywheel_core::Fingerprint;

use super::World;
use crate::{
    config::{Faults, KeyState, Limits, Outage, ProjectConfig, ProjectState},
    fault::{DrawFor, Fault},
};

impl World {
    /// Changes what a project may spend on a model, from now on. What was spent stays spent.
    ///
    /// False when there is no such project or model.
    pub fn set_limits(&mut self, project: &str, model: &str, limits: Limits) -> bool {
        if !self.config.models.contains_key(model) {
            return false;
        }
        self.change(project, |it| {
            it.limits.insert(model.to_owned(), limits);
        })
    }

    /// Changes whether a project is served. False when there is no such project.
    pub fn set_project_state(&mut self, project: &str, state: ProjectState) -> bool {
        self.change(project, |it| it.state = state)
    }

    /// Changes what is thought of a key. False when no project has it.
    pub fn set_key_state(&mut self, key: Fingerprint, state: KeyState) -> bool {
        let Some(known) = self.keys.get_mut(&key) else { return false };
        known.state = state;
        true
    }

    /// Changes what goes wrong, and how often, with the models that have no rates of their own.
    pub fn set_faults(&mut self, faults: Faults) {
        self.draws.set_faults(faults.clone());
        self.config.faults = faults;
    }

    /// Changes when models are down.
    ///
    /// ```
    /// # use http::{HeaderMap, Method};
    /// # use keywheel_core::ApiKey;
    /// use keywheel_sim::{Limits, ModelConfig, Outage, ProjectConfig, SimConfig, SimRequest, World};
    ///
    /// let key = ApiKey::new("AQ.EXAMPLE-1").unwrap();
    /// let config = SimConfig::new()
    ///     .with_model("gemini-x", ModelConfig::free(Limits::new()))
    ///     .with_project(ProjectConfig::new("alpha").with_key(key.clone()));
    /// let mut world = World::new(config).unwrap();
    /// world.set_outages(vec![Outage {
    ///     model: "gemini-x".into(),
    ///     from: "2026-11-30T07:00:00Z".parse().unwrap(),
    ///     until: "2026-11-30T07:10:00Z".parse().unwrap(),
    /// }]);
    /// # let mut headers = HeaderMap::new();
    /// # headers.insert("x-goog-api-key", key.expose().parse().unwrap());
    /// # let target = "/v1beta/models/gemini-x:generateContent";
    /// # let body = r#"{"contents":[{"parts":[{"text":"Hello"}]}]}"#;
    /// # let request = SimRequest::new(Method::POST, target, headers, body);
    /// let mut status = |at: &str| world.handle(&request, at.parse().unwrap()).http.unwrap().status;
    /// assert_eq!(status("2026-11-30T07:05:00Z"), 503);
    /// assert_eq!(status("2026-11-30T07:10:00Z"), 200);
    /// ```
    pub fn set_outages(&mut self, outages: Vec<Outage>) {
        self.config.outages = outages;
    }

    /// Lets the next `times` calls that get so far meet `fault`, whatever the rates say.
    pub fn force(&mut self, fault: Fault, times: usize) {
        self.forced.extend(std::iter::repeat_n(fault, times));
    }

    /// Lets the connection break in the next `times` chunks of uploads, after half of the bytes were taken.
    ///
    /// [`force`](Self::force) does not touch uploads.
    ///
    /// ```
    /// # use http::{HeaderMap, Method};
    /// # use keywheel_core::ApiKey;
    /// # use keywheel_sim::{Limits, ModelConfig, ProjectConfig, SimConfig, SimRequest, World};
    /// # let key = ApiKey::new("AQ.EXAMPLE-1").unwrap();
    /// # let config = SimConfig::new()
    /// #     .with_model("gemini-x", ModelConfig::free(Limits::new()))
    /// #     .with_project(ProjectConfig::new("alpha").with_key(key.clone()));
    /// # let mut world = World::new(config).unwrap();
    /// # let now = "2026-11-30T12:00:00Z".parse().unwrap();
    /// let request = |target: &str, head: &[(&'static str, &str)], body: &'static str| {
    ///     let pair = |(name, value): &(&str, &str)| (name.parse().unwrap(), value.parse().unwrap());
    ///     let head: HeaderMap = head.iter().map(pair).collect();
    ///     SimRequest::new(Method::POST, target, head, body)
    /// };
    /// let head = [
    ///     ("x-goog-api-key", key.expose()),
    ///     ("x-goog-upload-protocol", "resumable"),
    ///     ("x-goog-upload-command", "start"),
    ///     ("x-goog-upload-header-content-length", "5"),
    /// ];
    /// let begun = world.handle(&request("/upload/v1beta/files", &head, "{}"), now).http.unwrap();
    /// let url = begun.headers["x-goog-upload-url"].to_str().unwrap();
    ///
    /// world.break_uploads(1);
    /// let head = [("x-goog-upload-command", "upload, finalize"), ("x-goog-upload-offset", "0")];
    /// let chunk = request(url, &head, "hello");
    /// assert!(world.handle(&chunk, now).http.is_none());
    /// ```
    pub const fn break_uploads(&mut self, times: usize) {
        self.broken_uploads += times;
    }

    /// How many answers a project can give for a model on its quota day `date`, at best: its requests per
    /// day without those that a fault will eat.
    ///
    /// `None` when there is no limit per day, or no such project or model. Exact for unary calls of one
    /// request each; limits per minute and tokens are not looked at.
    #[must_use]
    pub fn day_capacity(&self, project: &str, model: &str, date: NaiveDate) -> Option<u64> {
        let index = self.config.projects.iter().position(|it| it.name == project)?;
        let limit = self.limits(index, model)?.rpd?;
        let day = chrono::Datelike::num_days_from_ce(&date);
        let spoiled = (0..limit).filter(|&number| {
            let fault = self.draws.on_counted(DrawFor { project, model, day, number });
            fault.is_some_and(|fault| fault.spoils_unary())
        });
        Some(limit - spoiled.count() as u64)
    }

    /// How many requests of the day a project has left for a model at `now`; `None` as above.
    #[must_use]
    pub fn left_today(&self, project: &str, model: &str, now: DateTime<Utc>) -> Option<u64> {
        let index = self.config.projects.iter().position(|it| it.name == project)?;
        self.left_of(index, model, now)
    }

    /// True while some project has requests of its day left for a model, whatever its minute says.
    #[must_use]
    pub fn any_left_today(&self, model: &str, now: DateTime<Utc>) -> bool {
        (0..self.config.projects.len())
            .any(|project| self.left_of(project, model, now).is_none_or(|left| left > 0))
    }

    fn left_of(&self, project: usize, model: &str, now: DateTime<Utc>) -> Option<u64> {
        let limit = self.limits(project, model)?.rpd?;
        let state = self.buckets.get(project).and_then(|models| models.get(model));
        let spent = state.map_or(0, |state| {
            state.bucket.spent_today(&self.rules(project), now.timestamp_millis())
        });
        Some(limit.saturating_sub(spent))
    }

    fn change(&mut self, project: &str, change: impl FnOnce(&mut ProjectConfig)) -> bool {
        let Some(it) = self.config.projects.iter_mut().find(|it| it.name == project) else {
            return false;
        };
        change(it);
        true
    }
}
