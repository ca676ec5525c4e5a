//! A request whose body was looked into: which model it asks, and what the project's settings say of it.

use http::Method;
use keywheel::{raw::Relay, sketch::Sketch};

use super::{Asked, allowed};
use crate::{
    gateway::App,
    project::{Project, Unbounded, bare},
    refusal::{Parts, Reason, Refusal},
    route::{Kind, Route},
};

/// A request of which everything is known that the gateway has to know before it is sent.
pub(super) struct Looked<'a> {
    app: &'a App,
    route: &'a Route,
    project: &'a Project,
    sketch: &'a Sketch,
    /// As projects are allowed it: without `models/`.
    pub(super) model: Option<&'a str>,
}

impl<'a> Looked<'a> {
    /// Of `asked`, whose body `sketch` is of.
    ///
    /// # Errors
    /// Nobody can tell which model the body asks, or the project may not use that one.
    pub(super) fn of(
        app: &'a App,
        asked: &'a Asked,
        sketch: &'a Sketch,
        has_body: bool,
    ) -> Result<Self, Refusal> {
        let Asked { route, project, .. } = asked;
        match ModelInBody::of(route) {
            ModelInBody::None => {}
            // Servers that read more than JSON may find a model in it that is not seen here.
            _ if has_body && !sketch.is_json => {
                let told = "the body is no JSON, so nobody can tell which model it asks";
                return Err(Refusal::new(Reason::BadBody, told));
            }
            ModelInBody::Always if sketch.model.is_none() => {
                let told = "the body names no model";
                return Err(Refusal::new(Reason::BadBody, told).should_retry(false));
            }
            ModelInBody::Always | ModelInBody::Perhaps => {}
        }
        let model = route.model.as_deref().or(sketch.model.as_deref()).map(bare);
        if let Some(model) = model {
            allowed(project, model)?;
        }
        Ok(Self { app, route, project, sketch, model })
    }

    /// Sets what the project's settings say of such a call.
    ///
    /// # Errors
    /// There is a budget that it may go past, and no charge is set for it.
    pub(super) fn set_up(&self, mut relay: Relay) -> Result<Relay, Refusal> {
        if let Some(tokens) = self.fixed_charge()? {
            relay = relay.fixed_charge(tokens);
        }
        if self.project.allow_paid {
            relay = relay.allow_paid();
        }
        if let Some(model) = self.model.filter(|_| !self.project.models.is_empty()) {
            relay = relay.fallback(self.project.instead_of(model).iter().map(String::as_str));
        }
        Ok(relay)
    }

    /// `refusal`, which is of this request, with what would be reserved for it, by its parts. Without where they cannot
    /// be told from it alone: files and caches are weighed by the provider.
    pub(super) fn with_parts(&self, refusal: Refusal) -> Refusal {
        let sketch = self.sketch;
        let answers = matches!(self.route.kind, Kind::Generate | Kind::Stream | Kind::Chat);
        let reads = sketch.reads || sketch.cached_content.is_some() || !sketch.names.is_empty();
        let Some(model) = self.model.filter(|_| answers && !reads) else { return refusal };
        let (account, input) = (self.project.name.as_str(), sketch.input_tokens);
        let input = self.app.ledger.estimate(account, model, input, Some(0), 1).input;
        let (max_output, candidates) = (sketch.max_output, sketch.candidates);
        refusal.with_parts(Parts { input, max_output, candidates }, self.route.dialect)
    }

    /// What a call is charged whose tokens nobody can tell beforehand.
    fn fixed_charge(&self) -> Result<Option<u64>, Refusal> {
        let Self { app, route, project, sketch, .. } = self;
        // What a collection costs that is not known here, nobody knows.
        let unknown = route.kind == Kind::Other && route.method == Method::POST;
        let unbounded = route.unbounded(sketch.background).or(unknown.then_some(Unbounded::Other));
        let Some(unbounded) = unbounded else { return Ok(None) };
        if let Some(charge) = project.fixed_charges.get(&unbounded) {
            return Ok(Some(*charge));
        }
        let rules = app.ledger.rules();
        let has_budget = rules
            .limits_for(&project.name, route.model.as_deref().unwrap_or_default())
            .is_ok_and(|mut limits| limits.next().is_some());
        if !has_budget {
            return Ok(None);
        }
        let (kind, name) = (unbounded.as_str(), project.name.as_str());
        let fault = format!(
            "nobody can tell beforehand what this costs ({kind}), and the project {name} has a budget; \
             the operator can allow it at a fixed charge: [unbounded] {kind} = <tokens>"
        );
        let refusal = Refusal::new(Reason::UnboundedRoute, fault);
        Err(refusal.scope(format!("project {name}")).should_retry(false))
    }
}

/// Whether the body of a request says which model is asked; of an interaction, an agent is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModelInBody {
    /// Without it, it would be charged to no model, and no list of models would hold for it.
    Always,
    Perhaps,
    None,
}

impl ModelInBody {
    fn of(route: &Route) -> Self {
        let path = route.path.strip_prefix("openai/").unwrap_or(&route.path);
        match (path, route.kind) {
            (
                "chat/completions" | "completions" | "responses" | "embeddings" | "interactions",
                _,
            ) if route.method == Method::POST => Self::Always,
            (_, Kind::Chat | Kind::Embeddings | Kind::Interactions) => Self::Perhaps,
            _ => Self::None,
        }
    }
}
