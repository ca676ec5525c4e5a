//! What is known of models' sizes, so that a request that cannot fit is not sent: it would be counted all the same,
//! and take a minute's tokens with it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use keywheel_pool::Ask;
use keywheel_provider::api::Model;

use super::{
    Run,
    chain::{Ending, SkipReason},
    judge::surely_asked,
    work::is_route,
};
use crate::Error;

/// More models than anybody uses.
const MOST_MODELS: usize = 1_000;

/// What a model can read and write, in tokens.
///
/// ```
/// use keywheel::{Gemini, ModelFacts};
///
/// let tiny = ModelFacts { input_token_limit: Some(8_192), ..ModelFacts::default() };
/// let builder = Gemini::builder().model_facts("gemma-3-1b-it", tiny);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ModelFacts {
    /// The largest prompt. `None`: unknown.
    pub input_token_limit: Option<u64>,
    /// The longest answer. `None`: unknown.
    pub output_token_limit: Option<u64>,
}

impl ModelFacts {
    /// These, and what `other` knows besides.
    fn or(self, other: Self) -> Self {
        Self {
            input_token_limit: self.input_token_limit.or(other.input_token_limit),
            output_token_limit: self.output_token_limit.or(other.output_token_limit),
        }
    }
}

/// What is known of every model that was set or described.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    set: HashMap<Arc<str>, ModelFacts>,
    /// What the provider says, by `GET models` and `GET models/x`.
    told: Mutex<HashMap<Arc<str>, ModelFacts>>,
}

impl Facts {
    pub(crate) fn new(set: HashMap<Arc<str>, ModelFacts>) -> Self {
        Self { set, told: Mutex::default() }
    }

    /// Takes note of what the provider says of `model`, under the name that calls use.
    pub(crate) fn learn(&self, name: &str, model: &Model) {
        let facts = ModelFacts {
            input_token_limit: model.input_token_limit.filter(|&limit| limit > 0),
            output_token_limit: model.output_token_limit.filter(|&limit| limit > 0),
        };
        let mut told = self.lock();
        if facts != ModelFacts::default() && (told.len() < MOST_MODELS || told.contains_key(name)) {
            told.insert(name.into(), facts);
        }
    }

    /// What was set, and else what the provider said.
    pub(crate) fn of(&self, model: &str) -> ModelFacts {
        let set = self.set.get(model).copied().unwrap_or_default();
        set.or(self.lock().get(model).copied().unwrap_or_default())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, ModelFacts>> {
        // Numbers only: a panic elsewhere leaves them whole.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Run<'_> {
    /// Leaves out every model that surely cannot take the request.
    pub(super) fn leave_out_the_small(&mut self) -> Result<(), Error> {
        for at in 0..self.chain.len() {
            let ask = &self.chain[at].ask;
            if is_route(&ask.model) {
                continue;
            }
            let (estimated, surely) = (ask.tokens, surely_asked(ask.tokens));
            // Of a call made of several requests, the model reads each by itself.
            let of_the_model = self.inner.facts.of(&ask.model).input_token_limit;
            let of_the_model = of_the_model.filter(|_| ask.requests == 1);
            let limits = [of_the_model, self.minute_limit(ask, surely)];
            let Some(limit) = limits.into_iter().flatten().min().filter(|&limit| surely > limit)
            else {
                continue;
            };
            self.at = at;
            self.leave(SkipReason::TooLarge, Ending::TooLarge { estimated, limit })?;
        }
        self.at = 0;
        Ok(())
    }

    fn minute_limit(&self, ask: &Ask, surely: u64) -> Option<u64> {
        if surely == 0 {
            return None;
        }
        let ask = Ask { allow_paid: self.options.allow_paid, exclude: Vec::new(), ..ask.clone() };
        self.inner.pool.minute_tokens(&ask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_goes_before_what_the_provider_says() {
        let set = ModelFacts { input_token_limit: Some(100), ..ModelFacts::default() };
        let facts = Facts::new(HashMap::from([("m".into(), set)]));
        let told = Model {
            input_token_limit: Some(1_000),
            output_token_limit: Some(50),
            ..Model::default()
        };
        facts.learn("m", &told);
        facts.learn("n", &told);
        let both = ModelFacts { input_token_limit: Some(100), output_token_limit: Some(50) };
        assert_eq!(facts.of("m"), both);
        assert_eq!(facts.of("n").input_token_limit, Some(1_000));
        assert_eq!(facts.of("o"), ModelFacts::default());
    }

    #[test]
    fn a_limit_of_zero_is_no_limit() {
        let facts = Facts::default();
        facts.learn("m", &Model { input_token_limit: Some(0), ..Model::default() });
        assert_eq!(facts.of("m"), ModelFacts::default());
    }
}
