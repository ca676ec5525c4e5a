//! A call of a model: quota, faults, answer.

use std::{borrow::Cow, time::Duration};

use chrono::{DateTime, Utc};
use keywheel_core::{Cause, Dimension, Fingerprint, clock::from_unix_ms};

use super::{World, asked::Asked, bucket_day};
use crate::{
    answers,
    bodies::{self, ErrorBody, QuotaRefusal},
    config::{DayHint, Limits, ModelConfig},
    fault::{DrawFor, Fault},
    openai,
    quota::{Ask, Bucket, Usage, Violation},
    reply::{HttpReply, Outcome, SimReply},
    route::Verb,
    shape::Shape,
};

/// A call whose key is in order.
pub(super) struct Call<'a> {
    pub(super) fingerprint: Fingerprint,
    pub(super) project: usize,
    pub(super) version: &'a str,
    pub(super) model: &'a str,
    pub(super) verb: Verb,
    pub(super) shape: Shape,
    /// The body as a native route takes it, or what is wrong with the one that came.
    pub(super) body: Result<Cow<'a, [u8]>, String>,
}

/// What is decided about a call.
pub(super) struct Decision {
    pub(super) http: Option<HttpReply>,
    pub(super) outcome: Outcome,
    /// Requests counted against the quota.
    pub(super) counted: u64,
}

impl Decision {
    pub(super) fn error(cause: Cause, body: &ErrorBody, call: &Call<'_>, counted: u64) -> Self {
        let http = Some(call.shape.error(cause, body));
        Self { http, outcome: Outcome::Refused(call.shape.told(cause)), counted }
    }

    pub(super) fn fault(
        fault: Fault,
        cause: Cause,
        body: &ErrorBody,
        call: &Call<'_>,
        counted: u64,
    ) -> Self {
        let http = Some(call.shape.error(cause, body));
        Self { http, outcome: Outcome::Faulted(fault), counted }
    }
}

impl World {
    pub(super) fn call(&mut self, call: &Call<'_>, now: DateTime<Utc>) -> SimReply {
        let now_ms = now.timestamp_millis();
        let rules = self.rules(call.project);
        let name = self.config.projects[call.project].name.clone();
        let state = self.bucket(call.project, call.model);
        state.turn(&rules, now_ms);
        let arrival =
            DrawFor { project: &name, model: call.model, day: state.day, number: state.arrived };
        state.arrived += 1;

        let Decision { mut http, outcome, counted } = self.decide(call, arrival, now_ms);

        let mut rng = self.draws.generator(arrival, b"delivery");
        let answered = http.as_ref().is_some_and(|http| http.status == 200);
        let latency = between(&mut rng, self.latency(call.model)) / if answered { 1 } else { 10 };
        if let Some(http) = &mut http
            && rng.f64() < self.draws.faults(call.model).split
        {
            http.split(&mut rng);
        }
        if let Some(http) = &mut http
            && call.shape.is_openai()
        {
            let usages = [Dimension::Rpm, Dimension::Rpd, Dimension::Tpm]
                .map(|dimension| self.usage(call, dimension, now_ms));
            openai::add_rate_headers(&mut http.headers, &usages);
        }
        let status = http.as_ref().map(|http| http.status);
        let bucket = bucket_day(&name, call.model, rules.day(now_ms).date());
        self.stats.note(Some(bucket), Some(call.fingerprint), &outcome, status, counted);
        SimReply { latency, http, outcome }
    }

    fn decide(&mut self, call: &Call<'_>, arrival: DrawFor<'_>, now_ms: i64) -> Decision {
        let Some(model) = self.config.models.get(call.model).cloned() else {
            let body = bodies::model_not_found(call.model, call.version, call.verb);
            return Decision::error(Cause::ModelNotFound, &body, call, 0);
        };
        let project = &self.config.projects[call.project];
        if project.closed_models.iter().any(|closed| closed == call.model) {
            let body = bodies::model_closed(call.model);
            return Decision::error(Cause::ModelNotFound, &body, call, 0);
        }
        if call.verb != Verb::CountTokens && call.verb.embeds() != model.embeds {
            let body = bodies::model_not_found(call.model, call.version, call.verb);
            return Decision::error(Cause::ModelNotFound, &body, call, 0);
        }
        match self.forced_or(true, |draws| draws.on_arrival(arrival)) {
            Some(Fault::Unreachable) => {
                let outcome = Outcome::Faulted(Fault::Unreachable);
                return Decision { http: None, outcome, counted: 0 };
            }
            Some(fault) => {
                let (cause, body) = (Cause::UnspecifiedQuota, bodies::bare_429());
                return Decision::fault(fault, cause, &body, call, 0);
            }
            None => {}
        }
        let asked = self.with_objects(call, Asked::read(call), now_ms);
        if call.verb == Verb::CountTokens {
            return count_tokens(call, &asked);
        }
        let uses_tools = matches!(&asked, Asked::Text(prompt) if prompt.uses_google_tools);
        if uses_tools && self.config.projects[call.project].refuses_tools {
            return Decision::error(Cause::ToolQuota, &bodies::tool_refused(), call, 0);
        }
        let ask = asked.ask(call);
        let rules = self.rules(call.project);
        let limits = self.limits(call.project, call.model).unwrap_or_default();
        let state = self.bucket(call.project, call.model);
        if let Err(violations) = state.bucket.admit(&limits, &rules, ask, now_ms) {
            let number = state.refused;
            state.refused += 1;
            let draw = DrawFor { number, ..arrival };
            return self.over_limit(call, &model, ask, violations, draw, now_ms);
        }
        let number = state.counted;
        state.counted += 1;
        let mut fault =
            self.forced_or(false, |draws| draws.on_counted(DrawFor { number, ..arrival }));
        let now = from_unix_ms(now_ms);
        if self.config.outages.iter().any(|outage| outage.covers(call.model, now)) {
            fault = Some(Fault::Overloaded);
        }
        self.counted(call, &model, &asked, fault, ask.requests, now)
    }

    fn latency(&self, model: &str) -> (Duration, Duration) {
        let of_model = self.config.models.get(model).and_then(|model| model.latency);
        of_model.unwrap_or(self.config.latency)
    }

    /// Looks up what a prompt only names.
    fn with_objects(&self, call: &Call<'_>, asked: Asked, now_ms: i64) -> Asked {
        let Asked::Text(mut prompt) = asked else { return asked };
        let now = from_unix_ms(now_ms);
        let found = self.file_tokens(call.project, &prompt.files, now).and_then(|files| {
            Ok((files, self.cached_tokens(call.project, call.model, &prompt, now)?))
        });
        match found {
            Ok((files, cached)) => {
                prompt.tokens += files + cached;
                prompt.cached_tokens = cached;
                Asked::Text(prompt)
            }
            Err(body) => Asked::Refused(Cause::BadRequest, Box::new(body)),
        }
    }

    /// The next forced fault if it is of this kind, else what is drawn.
    fn forced_or(
        &mut self,
        before_quota: bool,
        draw: impl FnOnce(&crate::fault::Draws) -> Option<Fault>,
    ) -> Option<Fault> {
        match self.forced.front() {
            Some(fault) if fault.before_quota() == before_quota => self.forced.pop_front(),
            _ => draw(&self.draws),
        }
    }

    /// A 429 for limits.
    fn over_limit(
        &self,
        call: &Call<'_>,
        model: &ModelConfig,
        ask: Ask,
        mut violations: Vec<Violation>,
        draw: DrawFor<'_>,
        now_ms: i64,
    ) -> Decision {
        let dimensions = violations.iter().map(|violation| violation.dimension).collect();
        let (bare, several) = self.draws.on_refusal(draw);
        if bare {
            let outcome = Outcome::OverLimit { dimensions, told: Cause::UnspecifiedQuota };
            let http = Some(call.shape.error(Cause::UnspecifiedQuota, &bodies::bare_429()));
            return Decision { http, outcome, counted: 0 };
        }
        if call.shape.is_openai() {
            let refusal = openai::Refusal::of(call.model, ask, &violations, |dimension| {
                self.usage(call, dimension, now_ms)
            });
            let outcome = Outcome::OverLimit { dimensions, told: refusal.told };
            return Decision { http: Some(refusal.reply()), outcome, counted: 0 };
        }
        let hint = self.hint(call.project, &violations, draw, now_ms);
        if several {
            let limits = self.limits(call.project, call.model).unwrap_or_default();
            name_lesser_limits(&mut violations, limits);
        }
        let refusal = QuotaRefusal {
            internal_name: model.internal_name.as_deref().unwrap_or(call.model),
            embeds: model.embeds,
            tier: self.config.projects[call.project].tier,
            violations: &violations,
            hint,
        };
        let body = refusal.body(&mut self.draws.generator(draw, b"body"));
        let outcome = Outcome::OverLimit { dimensions, told: refusal.told() };
        let http = Some(body.reply(call.shape != Shape::Native));
        Decision { http, outcome, counted: 0 }
    }

    /// How far a limit of the call's bucket is used up; `None` when there is no such limit.
    fn usage(&self, call: &Call<'_>, dimension: Dimension, now_ms: i64) -> Option<Usage> {
        let limits = self.limits(call.project, call.model)?;
        let none = Bucket::default();
        let state = self.buckets.get(call.project).and_then(|models| models.get(call.model));
        let bucket = state.map_or(&none, |state| &state.bucket);
        bucket.usage(&limits, &self.rules(call.project), dimension, now_ms)
    }

    /// The wait that a refusal states.
    fn hint(
        &self,
        project: usize,
        violations: &[Violation],
        draw: DrawFor<'_>,
        now_ms: i64,
    ) -> Option<Duration> {
        let of_day = |v: &Violation| matches!(v.dimension, Dimension::Rpd | Dimension::Tpd);
        let to_minute = Duration::from_millis(60_000 - now_ms.rem_euclid(60_000) as u64);
        if violations.iter().any(|violation| violation.limit == 0) {
            // Some short time, and it never helps (020, 022, 024).
            let ms = self.draws.generator(draw, b"hint").u64(10..60_000);
            return Some(Duration::from_millis(ms));
        }
        if violations.iter().any(of_day) {
            return match self.config.day_hint {
                DayHint::Short => Some(to_minute),
                DayHint::Hours => {
                    let ends = self.rules(project).day_ends_at(now_ms);
                    (ends - from_unix_ms(now_ms)).to_std().ok()
                }
                DayHint::None => None,
            };
        }
        violations.iter().map(|violation| violation.fits_in.unwrap_or(to_minute)).max()
    }
}

/// `countTokens` costs no quota: "Requests to the GetTokens API … don't count against inference quota",
/// <https://ai.google.dev/gemini-api/docs/billing>.
fn count_tokens(call: &Call<'_>, asked: &Asked) -> Decision {
    match asked {
        Asked::Text(prompt) => {
            let http = Some(call.shape.ok(&answers::counted(prompt)));
            Decision { http, outcome: Outcome::Served, counted: 0 }
        }
        Asked::Refused(cause, body) => Decision::error(*cause, body, call, 0),
        Asked::Vectors(_) => unreachable!("countTokens is not read as an embedding"),
    }
}

/// Adds limits that were not gone over but say nothing worse: a refusal for the day may name the minute
/// as well, never the other way round.
fn name_lesser_limits(violations: &mut Vec<Violation>, limits: Limits) {
    let has = |dimension, violations: &[Violation]| {
        violations.iter().any(|violation| violation.dimension == dimension)
    };
    let of_day = has(Dimension::Rpd, violations) || has(Dimension::Tpd, violations);
    // Requests are named beside tokens only: tokens named beside requests would say that the request
    // is too large, or teach that tokens are short.
    let candidates = [(Dimension::Rpm, limits.rpm, true), (Dimension::Tpm, limits.tpm, of_day)];
    for (dimension, limit, fits) in candidates {
        if let Some(limit) = limit
            && fits
            && !has(dimension, violations)
        {
            violations.push(Violation { dimension, limit, fits_in: Some(Duration::ZERO) });
        }
    }
}

fn between(rng: &mut fastrand::Rng, (from, to): (Duration, Duration)) -> Duration {
    let from_ms = u64::try_from(from.as_millis()).unwrap_or(u64::MAX);
    let to_ms = u64::try_from(to.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(rng.u64(from_ms..=to_ms.max(from_ms)))
}
