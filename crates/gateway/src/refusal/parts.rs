//! What a request consists of that does not fit into a budget, and what to set so that it does.

use keywheel::ledger::{Denied, Unit};

use super::{Reason, Refusal};
use crate::route::Dialect;

/// What is reserved for a request, in tokens, as far as the gateway can tell its parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts {
    /// What it is read for.
    pub(crate) input: u64,
    /// The longest answer that it allows. `None`: it sets none, and is given the project's.
    pub(crate) max_output: Option<u64>,
    /// How many answers it asks for.
    pub(crate) candidates: u64,
}

impl Refusal {
    /// With the parts of what was asked for, where it is more than a limit, or than is left of it; unchanged where they
    /// do not add up to that, as with another model's weights or a fixed charge.
    #[must_use]
    pub(crate) fn with_parts(mut self, parts: Parts, dialect: Dialect) -> Self {
        let Some(denied) = self.denied.take() else { return self };
        if let Some(told) = told(&denied, parts, dialect) {
            let joint = if self.reason == Reason::NeverFits { ':' } else { ';' };
            self.message = format!("{}{joint} {told}", self.message);
        }
        self
    }
}

fn told(denied: &Denied, parts: Parts, dialect: Dialect) -> Option<String> {
    let Parts { input, max_output, candidates } = parts;
    let candidates = candidates.max(1);
    let output = denied.asked.checked_sub(input).filter(|output| *output > 0)?;
    let each = output / candidates;
    let adds_up = output.is_multiple_of(candidates) && max_output.is_none_or(|most| most == each);
    if denied.limit.unit != Unit::Tokens || !adds_up {
        return None;
    }
    let field = match dialect {
        Dialect::Native => "maxOutputTokens",
        Dialect::OpenAi => "max_tokens",
    };
    let answers = if candidates == 1 {
        "an answer".to_owned()
    } else {
        format!("{candidates} answers of {each}")
    };
    let why = match max_output {
        None => format!("kept for {answers} because it sets no {field}"),
        Some(_) => format!("for {answers} by its {field}"),
    };
    let consists = format!("{input} are the request's own and {output} {why}");
    if !denied.never_fits() {
        // What is reserved may be given back, and until then counts.
        let used = denied.settled.saturating_add(denied.reserved).saturating_add(input);
        let most = denied.limit.cap.saturating_sub(used) / candidates;
        // Nobody asks for an answer of no tokens.
        return (most > 0)
            .then(|| format!("{consists}; with {field} of at most {most} it fits now"));
    }
    let room = denied.limit.cap.saturating_sub(input) / candidates;
    Some(match (room, max_output) {
        (0, _) => format!("{consists}; the request has to be shorter, or the budget larger"),
        (most, None) => format!(
            "{consists}; set {field} to at most {most}, or default_max_output where the project is configured"
        ),
        (most, Some(_)) => format!("{consists}; set {field} to at most {most}"),
    })
}

#[cfg(test)]
mod tests {
    use keywheel::ledger::{AccountId, Limit, Period, Scope};

    use super::*;

    fn refused(limit: Limit, asked: u64, parts: Parts, dialect: Dialect) -> String {
        let scope = Scope::Account(AccountId::new("triage").unwrap());
        let denied = Denied { scope, limit, settled: 0, reserved: 0, asked, retry_at: None };
        Refusal::denied(&denied, "triage").with_parts(parts, dialect).message
    }

    const DAY: fn(u64) -> Limit = |cap| Limit::tokens(Period::Day, cap);
    const WHOLE: &str = "tokens do not fit into project triage's 5000 tokens a day: that is more than the whole limit";

    #[test]
    fn a_request_without_a_bound_is_told_its_parts_and_what_to_set() {
        let parts = Parts { input: 12, max_output: None, candidates: 1 };
        assert_eq!(
            refused(DAY(5_000), 8_204, parts, Dialect::Native),
            format!(
                "8204 {WHOLE}: 12 are the request's own and 8192 kept for an answer because it sets no \
                 maxOutputTokens; set maxOutputTokens to at most 4988, or default_max_output where the project \
                 is configured"
            )
        );
        let told = refused(DAY(5_000), 8_204, parts, Dialect::OpenAi);
        assert!(
            told.contains("; set max_tokens to at most 4988, or default_max_output where"),
            "{told}"
        );
    }

    #[test]
    fn what_it_is_told_to_set_fits_and_a_token_more_does_not() {
        for (candidates, output, most) in [(1, 9_000, 4_000), (3, 27_000, 1_333)] {
            let parts = Parts { input: 1_000, max_output: Some(9_000), candidates };
            let told = refused(DAY(5_000), 1_000 + output, parts, Dialect::Native);
            assert!(told.ends_with(&format!("; set maxOutputTokens to at most {most}")), "{told}");
            assert!(1_000 + most * candidates <= 5_000 && 1_000 + (most + 1) * candidates > 5_000);
        }
        let parts = Parts { input: 5_000, max_output: None, candidates: 1 };
        let told = refused(DAY(5_000), 13_192, parts, Dialect::Native);
        assert!(told.ends_with("the request has to be shorter, or the budget larger"), "{told}");
    }

    #[test]
    fn what_is_kept_for_an_answer_is_told_where_most_of_the_budget_is_left() {
        let refused = |settled, reserved, max_output| {
            let scope = Scope::Account(AccountId::new("triage").unwrap());
            let (limit, asked) = (DAY(8_290), 8_198);
            let denied = Denied { scope, limit, settled, reserved, asked, retry_at: None };
            let parts = Parts { input: 6, max_output, candidates: 1 };
            Refusal::denied(&denied, "triage").with_parts(parts, Dialect::Native).message
        };
        let told = refused(101, 0, None);
        let parts = "; 6 are the request's own and 8192 kept for an answer because it sets no maxOutputTokens; \
            with maxOutputTokens of at most 8183 it fits now";
        assert!(told.contains("101 are spent") && told.ends_with(parts), "{told}");
        assert!(
            refused(0, 101, Some(8_192))
                .ends_with("with maxOutputTokens of at most 8183 it fits now")
        );
        let full = refused(8_284, 0, None);
        assert!(!full.contains("maxOutputTokens"), "nothing is left: {full}");
    }

    #[test]
    fn parts_that_do_not_add_up_are_not_told() {
        for (asked, max_output, candidates) in
            [(8_000, Some(100), 1), (6_001, None, 2), (5_500, None, 1)]
        {
            let parts = Parts { input: 5_500, max_output, candidates };
            let told = refused(DAY(5_000), asked, parts, Dialect::Native);
            assert_eq!(told, format!("{asked} {WHOLE}"));
        }
        let parts = Parts { input: 0, max_output: None, candidates: 1 };
        let told = refused(Limit::calls(Period::Day, 0), 1, parts, Dialect::Native);
        assert!(!told.contains("maxOutputTokens"), "{told}");
    }
}
