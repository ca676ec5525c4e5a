//! How many turns fit into a day.

use serde::Serialize;

/// How many turns of a kind the limits of one model allow in a quota day.
///
/// ```
/// use std::sync::Arc;
/// use keywheel::{
///     ApiKey, Gemini, KeySpec, Limits, StateLocation, testing::{Script, Scripted},
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let script = Script::new();
/// script.otherwise(|_| Scripted::text("Hello"));
/// let gemini = Gemini::builder()
///     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
///     .limits("*", Limits { rpd: Some(500), ..Limits::default() })
///     .state(StateLocation::None)
///     .transport(Arc::new(script))
///     .build()
///     .await?;
/// let turn = gemini.turn("question");
/// for step in ["plan", "answer"] {
///     turn.step(step).generate("gemini-3.5-flash-lite", "Say hello").await?;
/// }
/// turn.finish();
///
/// let turns = gemini.turns();
/// let capacity = turns.kinds[0].models[0].capacity.expect("it is no route");
/// assert!(capacity.is_known());
/// assert_eq!(capacity.turns_a_day, Some(250)); // two requests each
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ModelCapacity {
    /// Quota projects that may serve the model.
    pub quota_projects: usize,
    /// Those among them whose limit of requests per day is not known: neither set, nor learned from a refusal yet.
    pub unknown: usize,
    /// The sum over the quota projects whose limit is known, of the limit divided by the requests per turn, rounded
    /// down: a turn is counted in one quota project. `None` when no limit is known.
    pub turns_a_day: Option<u64>,
}

impl ModelCapacity {
    /// `requests` were taken by `turns` turns; `limits` holds the requests per day of each quota project.
    pub(super) fn new(requests: u64, turns: u64, limits: &[Option<u64>]) -> Self {
        let known: Vec<_> = limits.iter().copied().flatten().collect();
        // limit / (requests / turns), without the error of a quotient that is no fraction of two.
        let fit = |limit: u64| {
            let turns = u128::from(limit) * u128::from(turns) / u128::from(requests.max(1));
            u64::try_from(turns).unwrap_or(u64::MAX)
        };
        let sum = known.iter().fold(0_u64, |sum, limit| sum.saturating_add(fit(*limit)));
        Self {
            quota_projects: limits.len(),
            unknown: limits.len() - known.len(),
            turns_a_day: (limits.is_empty() || !known.is_empty()).then_some(sum),
        }
    }

    /// True when the limits of all quota projects are known.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.unknown == 0
    }
}

/// How many turns of a kind fit into a quota day, if nothing else is done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Capacity {
    /// The least that any of the models allows whose limits are known; more do not fit. `None` when the limits of
    /// no model are known.
    pub turns_a_day: Option<u64>,
    /// The model that allows no more than that.
    pub bound_by: Option<String>,
    /// The models whose limits are not known for all quota projects: one of them may allow less.
    pub unknown: Vec<String>,
}

impl Capacity {
    pub(super) fn new<'a>(models: impl IntoIterator<Item = (&'a str, ModelCapacity)>) -> Self {
        let mut capacity = Self::default();
        for (model, of_model) in models {
            let Some(turns) = of_model.turns_a_day.filter(|_| of_model.is_known()) else {
                capacity.unknown.push(model.to_owned());
                continue;
            };
            if capacity.turns_a_day.is_none_or(|least| turns < least) {
                capacity.turns_a_day = Some(turns);
                capacity.bound_by = Some(model.to_owned());
            }
        }
        capacity
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn twenty_one_projects_of_500_at_7_8_attempts_a_turn_make_1_344_turns() {
        let limits = [Some(500); 21];
        let capacity = ModelCapacity::new(39, 5, &limits);
        assert_eq!(capacity.turns_a_day, Some(21 * 64));
        assert_eq!(capacity.turns_a_day, Some(1_344));
        // Not the floor of the sum, which would be 1,346.
        assert_eq!(21 * 500 * 5 / 39, 1_346);
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        let none = ModelCapacity::new(10, 5, &[None, None]);
        assert_eq!((none.turns_a_day, none.unknown), (None, 2));
        let some = ModelCapacity::new(10, 5, &[Some(20), None]);
        assert_eq!((some.turns_a_day, some.unknown, some.is_known()), (Some(10), 1, false));
        let all = ModelCapacity::new(10, 5, &[Some(40), Some(21)]);
        let capacity = Capacity::new([("a", all), ("b", some), ("c", none)]);
        assert_eq!(capacity.turns_a_day, Some(30));
        assert_eq!(capacity.bound_by.as_deref(), Some("a"));
        assert_eq!(capacity.unknown, ["b", "c"]);
        assert_eq!(Capacity::new([("c", none)]).turns_a_day, None);
    }

    #[test]
    fn without_a_quota_project_nothing_fits() {
        assert_eq!(ModelCapacity::new(10, 5, &[]).turns_a_day, Some(0));
    }

    proptest! {
        #[test]
        fn so_many_turns_fit_into_each_project_and_not_one_more(
            requests in 1..100_000_u64,
            turns in 1..10_000_u64,
            limit in 1..1_000_000_u64,
        ) {
            let fit = ModelCapacity::new(requests, turns, &[Some(limit)]).turns_a_day.unwrap();
            let cost = |fit: u64| u128::from(fit) * u128::from(requests);
            prop_assert!(cost(fit) <= u128::from(limit) * u128::from(turns));
            prop_assert!(cost(fit + 1) > u128::from(limit) * u128::from(turns));
        }
    }
}
