//! A call of a model: quota, faults, answer.

use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use keywheel_core::{Cause, Dimension, Fingerprint, clock::from_unix_ms};
use serde_json::Value;

use super::{World, bucket_day};
use crate::{
    answer::{Answer, AnswerKind},
    answers,
    bodies::{self, ErrorBody, QuotaRefusal},
    config::{DayHint, Limits, ModelConfig},
    fault::{DrawFor, Fault},
    prompt::{Prompt, Text},
    quota::{Ask, Violation},
    reply::{HttpReply, JSON, Outcome, Piece, SSE, SimReply},
    route::Verb,
};

/// A call whose key is in order.
pub(super) struct Call<'a> {
    pub(super) fingerprint: Fingerprint,
    pub(super) project: usize,
    pub(super) version: &'a str,
    pub(super) model: &'a str,
    pub(super) verb: Verb,
    pub(super) body: &'a [u8],
}

/// What is decided about a call.
struct Decision {
    http: Option<HttpReply>,
    outcome: Outcome,
    /// Requests counted against the quota.
    counted: u64,
}

impl Decision {
    fn error(cause: Cause, body: &ErrorBody, call: &Call<'_>, counted: u64) -> Self {
        let http = Some(body.reply(call.verb.errors_in_array()));
        Self { http, outcome: Outcome::Refused(cause), counted }
    }

    fn fault(fault: Fault, body: &ErrorBody, call: &Call<'_>, counted: u64) -> Self {
        let http = Some(body.reply(call.verb.errors_in_array()));
        Self { http, outcome: Outcome::Faulted(fault), counted }
    }
}

/// What the body asks for.
enum Asked {
    Text(Box<Prompt>),
    Vectors(Vec<Text>),
    /// Nothing that can be answered.
    Refused(Cause, Box<ErrorBody>),
}

impl Asked {
    fn read(call: &Call<'_>) -> Self {
        let read = if call.verb.embeds() {
            Text::read(call.body, call.verb == Verb::BatchEmbed).map(Self::Vectors)
        } else {
            Prompt::read(call.body).map(|prompt| Self::Text(Box::new(prompt)))
        };
        read.unwrap_or_else(|message| {
            Self::Refused(Cause::BadRequest, Box::new(bodies::bad_request(message)))
        })
    }

    /// Every text of a batch is a request. A request that makes no sense is one too.
    fn ask(&self) -> Ask {
        match self {
            Self::Text(prompt) => Ask { requests: 1, tokens: prompt.tokens },
            Self::Vectors(texts) => Ask {
                requests: texts.len() as u64,
                tokens: texts.iter().map(|text| text.tokens).sum(),
            },
            Self::Refused(..) => Ask { requests: 1, tokens: 0 },
        }
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
        let latency = between(&mut rng, self.config.latency) / if answered { 1 } else { 10 };
        if let Some(http) = &mut http
            && rng.f64() < self.draws.faults().split
        {
            http.split(&mut rng);
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
            Some(fault) => return Decision::fault(fault, &bodies::bare_429(), call, 0),
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
        let ask = asked.ask();
        let rules = self.rules(call.project);
        let limits = self.limits(call.project, call.model).unwrap_or_default();
        let state = self.bucket(call.project, call.model);
        if let Err(violations) = state.bucket.admit(&limits, &rules, ask, now_ms) {
            let number = state.refused;
            state.refused += 1;
            let draw = DrawFor { number, ..arrival };
            return self.over_limit(call, &model, limits, violations, draw, now_ms);
        }
        let number = state.counted;
        state.counted += 1;
        let mut fault =
            self.forced_or(false, |draws| draws.on_counted(DrawFor { number, ..arrival }));
        let now = from_unix_ms(now_ms);
        if self.config.outages.iter().any(|outage| outage.covers(call.model, now)) {
            fault = Some(Fault::Overloaded);
        }
        self.counted(call, &model, &asked, fault, ask.requests)
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
        limits: Limits,
        mut violations: Vec<Violation>,
        draw: DrawFor<'_>,
        now_ms: i64,
    ) -> Decision {
        let dimensions = violations.iter().map(|violation| violation.dimension).collect();
        let (bare, several) = self.draws.on_refusal(draw);
        if bare {
            let outcome = Outcome::OverLimit { dimensions, told: Cause::UnspecifiedQuota };
            let http = Some(bodies::bare_429().reply(call.verb.errors_in_array()));
            return Decision { http, outcome, counted: 0 };
        }
        let hint = self.hint(call.project, &violations, draw, now_ms);
        if several {
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
        let http = Some(body.reply(call.verb.errors_in_array()));
        Decision { http, outcome, counted: 0 }
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

    /// What becomes of a call that was counted.
    fn counted(
        &self,
        call: &Call<'_>,
        model: &ModelConfig,
        asked: &Asked,
        fault: Option<Fault>,
        counted: u64,
    ) -> Decision {
        let silent = |fault| Decision { http: None, outcome: Outcome::Faulted(fault), counted };
        match fault {
            Some(Fault::Overloaded) => {
                return Decision::fault(Fault::Overloaded, &bodies::overloaded(), call, counted);
            }
            Some(Fault::Internal) => {
                return Decision::fault(Fault::Internal, &bodies::internal(), call, counted);
            }
            Some(Fault::Deadline) => {
                return Decision::fault(Fault::Deadline, &bodies::deadline(), call, counted);
            }
            Some(Fault::Html) => {
                let http = Some(bodies::html_502());
                return Decision { http, outcome: Outcome::Faulted(Fault::Html), counted };
            }
            Some(Fault::Reset) => return silent(Fault::Reset),
            _ => {}
        }
        let (tokens, value) = match asked {
            Asked::Refused(cause, body) => {
                return Decision::error(*cause, body, call, counted);
            }
            Asked::Text(prompt) => {
                if model.signatures.are_required(call.model)
                    && let Err(message) = prompt.functions.check_signatures()
                {
                    let body = bodies::bad_request(message);
                    return Decision::error(Cause::BadRequest, &body, call, counted);
                }
                let kind = fault.map_or(AnswerKind::Usual, Fault::answer);
                let project = self.config.projects[call.project].number;
                let Ok(answer) = Answer::new(call.model, model, prompt, project, kind) else {
                    let body = bodies::wrong_continuation();
                    return Decision::error(Cause::BadRequest, &body, call, counted);
                };
                if let Verb::Stream { sse } = call.verb
                    && prompt.tokens <= model.input_token_limit
                {
                    return self.stream(&answer.chunks(), sse, fault, counted);
                }
                (prompt.tokens, answer.whole())
            }
            Asked::Vectors(texts) => {
                let longest = texts.iter().map(|text| text.tokens).max().unwrap_or(0);
                let batch = call.verb == Verb::BatchEmbed;
                (longest, answers::embedded(call.model, model, texts, batch))
            }
        };
        let limit = model.input_token_limit;
        if tokens > limit {
            let message = format!(
                "The input token count ({tokens}) exceeds the maximum number of tokens allowed \
                 ({limit})."
            );
            let body = bodies::bad_request(message);
            return Decision::error(Cause::BadRequest, &body, call, counted);
        }
        let mut http = HttpReply::whole(200, JSON, bodies::pretty(&value));
        // The faults of streams do not touch a whole reply.
        // Those of text do not touch vectors.
        let touched = |fault: &Fault| !call.verb.embeds() || fault.answer() == AnswerKind::Usual;
        let outcome = match fault.filter(Fault::spoils_unary).filter(touched) {
            None => Outcome::Served,
            Some(fault) => {
                spoil(&mut http, fault);
                Outcome::Faulted(fault)
            }
        };
        Decision { http: Some(http), outcome, counted }
    }

    /// A stream, whole or spoiled.
    fn stream(&self, chunks: &[Value], sse: bool, fault: Option<Fault>, counted: u64) -> Decision {
        let mut texts: Vec<String> = chunks.iter().map(Value::to_string).collect();
        match fault {
            Some(Fault::Cut) => {
                texts.pop();
            }
            Some(Fault::ErrorFirst) => texts = vec![bodies::internal().one_line()],
            Some(Fault::ErrorMidway) => {
                texts.truncate(1);
                texts.push(bodies::overloaded().one_line());
            }
            Some(Fault::CutCall) => cut_in_call(&mut texts),
            _ => {}
        }
        let last = texts.len().saturating_sub(1);
        let mut body = Vec::new();
        for (i, text) in texts.iter().enumerate() {
            if i > 0 && !self.config.chunk_pause.is_zero() {
                body.push(Piece::Pause(self.config.chunk_pause));
            }
            let broken_off = fault == Some(Fault::CutCall) && i == last;
            let framed = match sse {
                _ if broken_off => format!("{}{text}", if sse { "data: " } else { "" }),
                true => format!("data: {text}\r\n\r\n"),
                false => {
                    let open = if i == 0 { "[" } else { "" };
                    let close = if i == last { "]\n" } else { ",\r\n" };
                    format!("{open}{text}\n{close}")
                }
            };
            body.push(Piece::Bytes(Bytes::from(framed)));
        }
        let mut http = HttpReply::whole(200, if sse { SSE } else { JSON }, Bytes::new());
        http.body = body;
        let outcome = match fault {
            None | Some(Fault::ThoughtOnly | Fault::Blocked) => Outcome::Served,
            Some(fault) => {
                spoil(&mut http, fault);
                Outcome::Faulted(fault)
            }
        };
        Decision { http: Some(http), outcome, counted }
    }
}

/// `countTokens` costs no quota: "Requests to the GetTokens API … don't count against inference quota",
/// <https://ai.google.dev/gemini-api/docs/billing>.
fn count_tokens(call: &Call<'_>, asked: &Asked) -> Decision {
    match asked {
        Asked::Text(prompt) => {
            let body = bodies::pretty(&answers::counted(prompt));
            let http = Some(HttpReply::whole(200, JSON, body));
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

/// Ends a stream in the middle of its first function call, or of its last event.
fn cut_in_call(texts: &mut Vec<String>) {
    let call = texts.iter().position(|text| text.contains("\"functionCall\""));
    let at = call.unwrap_or(texts.len().saturating_sub(1));
    texts.truncate(at + 1);
    if let Some(text) = texts.last_mut() {
        // Behind the opening of the call, before any of its closings.
        let half = text.find("\"functionCall\"").map_or(text.len() / 2, |at| at + 20);
        text.truncate(half);
    }
}

/// Breaks off a reply that was whole so far.
fn spoil(http: &mut HttpReply, fault: Fault) {
    match fault {
        Fault::Stall => http.body = vec![Piece::Stall],
        Fault::Broken => {
            let bytes = Bytes::from(http.bytes());
            http.body = vec![Piece::Bytes(bytes.slice(..bytes.len() / 2)), Piece::Break];
        }
        Fault::EmptyBody => http.body.clear(),
        _ => {}
    }
}

fn between(rng: &mut fastrand::Rng, (from, to): (Duration, Duration)) -> Duration {
    let from_ms = u64::try_from(from.as_millis()).unwrap_or(u64::MAX);
    let to_ms = u64::try_from(to.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(rng.u64(from_ms..=to_ms.max(from_ms)))
}
