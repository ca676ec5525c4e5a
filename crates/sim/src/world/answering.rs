//! What becomes of a call that was counted: an answer, or half of one.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use keywheel_core::Cause;

use super::{
    World,
    asked::Asked,
    call::{Call, Decision},
};
use crate::{
    answer::{Answer, AnswerKind},
    bodies,
    config::ModelConfig,
    fault::Fault,
    reply::{HttpReply, Outcome, Piece},
    route::Verb,
    shape::{Frames, Shape},
};

impl World {
    /// What becomes of a call that was counted.
    pub(super) fn counted(
        &self,
        call: &Call<'_>,
        model: &ModelConfig,
        asked: &Asked,
        fault: Option<Fault>,
        counted: u64,
        now: DateTime<Utc>,
    ) -> Decision {
        let silent = |fault| Decision { http: None, outcome: Outcome::Faulted(fault), counted };
        match fault {
            Some(Fault::Overloaded) => {
                return Decision::fault(
                    Fault::Overloaded,
                    Cause::Overloaded,
                    &bodies::overloaded(),
                    call,
                    counted,
                );
            }
            Some(Fault::Internal) => {
                return Decision::fault(
                    Fault::Internal,
                    Cause::ServerError,
                    &bodies::internal(),
                    call,
                    counted,
                );
            }
            Some(Fault::Deadline) => {
                return Decision::fault(
                    Fault::Deadline,
                    Cause::Deadline,
                    &bodies::deadline(),
                    call,
                    counted,
                );
            }
            Some(Fault::Html) => {
                let http = Some(bodies::html_502());
                return Decision { http, outcome: Outcome::Faulted(Fault::Html), counted };
            }
            Some(Fault::Reset) => return silent(Fault::Reset),
            _ => {}
        }
        let refused = |message: String| {
            let body = bodies::bad_request(message);
            Decision::error(Cause::BadRequest, &body, call, counted)
        };
        let tokens = match asked {
            Asked::Refused(cause, body) => return Decision::error(*cause, body, call, counted),
            Asked::Text(prompt) => prompt.tokens,
            Asked::Vectors(texts) => texts.iter().map(|text| text.tokens).max().unwrap_or(0),
        };
        let limit = model.input_token_limit;
        if tokens > limit {
            return refused(format!(
                "The input token count ({tokens}) exceeds the maximum number of tokens allowed \
                 ({limit})."
            ));
        }
        let prompt = match asked {
            Asked::Text(prompt) => prompt,
            Asked::Vectors(texts) => {
                let http = call.shape.vectors(call.model, model, texts, call.verb);
                // The faults of answers do not touch vectors.
                let fault = fault.filter(|fault| fault.answer() == AnswerKind::Usual);
                return whole(http, fault, counted);
            }
            Asked::Refused(..) => unreachable!("refused above"),
        };
        // Only Google signs.
        if model.signatures.are_required(call.model)
            && !call.shape.is_openai()
            && let Err(message) = prompt.functions.check_signatures()
        {
            return refused(message);
        }
        let kind = fault.map_or(AnswerKind::Usual, Fault::answer);
        let project = self.config.projects[call.project].number;
        let Ok(answer) = Answer::new(call.model, model, prompt, project, kind) else {
            let body = bodies::wrong_continuation();
            return Decision::error(Cause::BadRequest, &body, call, counted);
        };
        if matches!(call.verb, Verb::Stream { .. }) {
            return self.stream(call.shape, call.shape.frames(&answer, now), fault, counted);
        }
        whole(call.shape.answer(&answer, now), fault, counted)
    }

    /// A stream, whole or spoiled.
    fn stream(&self, shape: Shape, frames: Frames, fault: Option<Fault>, counted: u64) -> Decision {
        let Frames { mut texts, end } = frames;
        let error = |cause, body| shape.error_line(cause, &body);
        match fault {
            Some(Fault::Cut) => texts.truncate(end),
            Some(Fault::ErrorFirst) => {
                texts = vec![error(Cause::ServerError, bodies::internal())];
            }
            Some(Fault::ErrorMidway) => {
                texts.truncate(1);
                texts.push(error(Cause::Overloaded, bodies::overloaded()));
            }
            _ => {}
        }
        let mut body = Vec::new();
        for (i, text) in texts.iter().enumerate() {
            if i > 0 && !self.config.chunk_pause.is_zero() {
                body.push(Piece::Pause(self.config.chunk_pause));
            }
            body.push(Piece::Bytes(Bytes::from(shape.framed(text, i, texts.len()))));
        }
        let mut http = shape.empty_stream();
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

/// A reply that is not streamed. The faults of streams do not touch it.
fn whole(mut http: HttpReply, fault: Option<Fault>, counted: u64) -> Decision {
    let outcome = match fault.filter(Fault::spoils_unary) {
        None => Outcome::Served,
        Some(fault) => {
            spoil(&mut http, fault);
            Outcome::Faulted(fault)
        }
    };
    Decision { http: Some(http), outcome, counted }
}

/// Ends a stream in the middle of its first function call, or of its last event.
fn cut_in_call(body: &mut Vec<Piece>) {
    const CALLS: [&[u8]; 2] = [b"\"functionCall\"", b"\"tool_calls\""];
    let call = |piece: &Piece| {
        let Piece::Bytes(bytes) = piece else { return None };
        CALLS.iter().find_map(|name| bytes.windows(name.len()).position(|it| it == *name))
    };
    let at = body.iter().position(|piece| call(piece).is_some());
    body.truncate(at.map_or(body.len(), |at| at + 1));
    // Behind the opening of the call, before any of its closings.
    let half = body.last().and_then(call).map(|at| at + 20);
    if let Some(Piece::Bytes(bytes)) = body.last_mut() {
        bytes.truncate(half.unwrap_or(bytes.len() / 2));
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
        Fault::CutCall => cut_in_call(&mut http.body),
        _ => {}
    }
}
