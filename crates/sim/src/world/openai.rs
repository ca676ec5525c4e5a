//! OpenAI-style routes: the same calls, in another form.

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use keywheel_core::Cause;
use serde_json::Value;

use super::{Caller, World, call::Call};
use crate::{
    bodies,
    openai::{self, Chat, Embeddings},
    reply::SimReply,
    request::SimRequest,
    route::{OpenAiRoute, Verb},
    shape::Shape,
};

impl World {
    pub(super) fn openai(
        &mut self,
        caller: Caller,
        route: OpenAiRoute<'_>,
        request: &SimRequest,
        now: DateTime<Utc>,
    ) -> SimReply {
        let shape = self.openai_shape();
        let project = &self.config.projects[caller.project];
        match route {
            OpenAiRoute::Models => {
                let shown = openai::models(&self.config, &project.closed_models, shape);
                self.looked_up(caller.fingerprint, &shown)
            }
            OpenAiRoute::Model { id } => {
                let id = id.strip_prefix("models/").unwrap_or(id);
                let closed = project.closed_models.iter().any(|closed| closed == id);
                if closed || !self.config.models.contains_key(id) {
                    let body = bodies::model_not_found(id, "v1main", Verb::Generate);
                    let key = Some(caller.fingerprint);
                    return self.turned_away(key, Cause::ModelNotFound, &body, shape);
                }
                self.looked_up(caller.fingerprint, &openai::model(id, shape))
            }
            OpenAiRoute::Chat => match Chat::read(&request.body) {
                Ok(Chat { model, streams, wishes, body }) => {
                    let verb = if streams { Verb::Stream { sse: true } } else { Verb::Generate };
                    let shape = shape.with(wishes);
                    self.call(&call(caller, &model, verb, shape, body), now)
                }
                Err(message) => self.nonsense(caller, message, shape),
            },
            OpenAiRoute::Embeddings => match Embeddings::read(&request.body) {
                Ok(Embeddings { model, wishes, body }) => {
                    let shape = shape.with(wishes);
                    self.call(&call(caller, &model, Verb::BatchEmbed, shape, body), now)
                }
                Err(message) => self.nonsense(caller, message, shape),
            },
        }
    }

    fn nonsense(&mut self, caller: Caller, message: String, shape: Shape) -> SimReply {
        let body = bodies::bad_request(message);
        self.turned_away(Some(caller.fingerprint), Cause::BadRequest, &body, shape)
    }
}

fn call(
    Caller { fingerprint, project }: Caller,
    model: &str,
    verb: Verb,
    shape: Shape,
    body: Result<Value, String>,
) -> Call<'_> {
    let body = body.map(|body| Cow::Owned(body.to_string().into_bytes()));
    // Google's layer calls its inner version so (115).
    Call { fingerprint, project, version: "v1main", model, verb, shape, body }
}
