//! The avalanche guard: one bad request must not take the whole pool out.
//!
//! A fault of a request may look like a fault of whoever sends it: a bare 429, a key that is "not valid". Every key
//! then answers alike, and each one would be held back for it. So after the third quota project in a row that gives
//! the same answer the request is suspected.

use keywheel_core::{ApiKey, Cause};
use keywheel_provider::classify::{Kind, Verdict};

/// So many quota projects make an avalanche: two may well be spent or dead together.
const SAME_ANSWERS: usize = 3;

/// The quota projects that gave the same answer, one after the other.
#[derive(Debug, Default)]
pub(super) struct Avalanche {
    answer: Option<(u16, Kind)>,
    /// One key of each.
    blamed: Vec<(ApiKey, String)>,
}

impl Avalanche {
    /// Takes note of a refusal; true when it is the third of its sort. More of the same are believed then.
    ///
    /// A quota that is named is not suspected: eleven keys may be spent, and the twelfth is to be reached. Any other
    /// answer in between begins anew, since a fault of the request would come from everybody.
    pub(super) fn met(
        &mut self,
        key: &ApiKey,
        quota_project: String,
        status: u16,
        verdict: &Verdict,
    ) -> bool {
        let answer = is_suspicious(verdict).then_some((status, verdict.kind));
        if answer != self.answer {
            (self.answer, self.blamed) = (answer, Vec::new());
        }
        if answer.is_none() || self.blamed.iter().any(|(_, known)| *known == quota_project) {
            return false;
        }
        self.blamed.push((key.clone(), quota_project));
        self.blamed.len() == SAME_ANSWERS
    }

    /// Who gave the answer so far.
    pub(super) fn blamed(&self) -> &[(ApiKey, String)] {
        &self.blamed
    }
}

fn is_suspicious(verdict: &Verdict) -> bool {
    let unnamed = verdict.kind == Kind::Refused(Cause::UnspecifiedQuota) && !verdict.named_quota;
    unnamed || verdict.key_is_dead
}
