//! What goes wrong, and how often.

use crate::fault::Fault;

/// The share of requests that meet each fault, from 0 to 1.
///
/// The rates of faults of counted requests are exclusive: they add up to at most 1. A request that fails with
/// a 4xx or 5xx other than 429 counts against the quota, as Google's do
/// (<https://ai.google.dev/gemini-api/docs/billing>).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Faults {
    /// 503 "high demand".
    pub overloaded: f64,
    /// 500 "Internal error encountered."
    pub internal: f64,
    /// 502 with an HTML page.
    pub html: f64,
    /// 504 "Deadline expired".
    pub deadline: f64,
    /// The connection ends without a reply.
    pub reset: f64,
    /// The head of the reply comes, its body never does.
    pub stall: f64,
    /// The connection breaks in the middle of the body.
    pub broken: f64,
    /// Streams end without a `finishReason`.
    pub cut: f64,
    /// Streams have an error as their first event.
    pub error_first: f64,
    /// Streams have an error after some text.
    pub error_midway: f64,
    /// Replies of status 200 without a body.
    pub empty_body: f64,
    /// Candidates without content.
    pub no_content: f64,
    /// Answers of thoughts alone. They are successes.
    pub thought_only: f64,
    /// Prompts that are blocked. The replies are successes.
    pub blocked: f64,
    /// Streams end in the middle of a function call.
    pub cut_call: f64,
    /// Requests that met no limit get a 429 without details all the same. They are not counted.
    pub spurious_429: f64,
    /// Requests never arrive: no connection. They are not counted.
    pub unreachable: f64,
    /// Of the refusals for a quota, the share that comes without details.
    pub bare_429: f64,
    /// Of the refusals for a quota, the share that names every quota of the bucket.
    pub several_violations: f64,
    /// Of all replies, the share whose body arrives in pieces of 1 to 7 bytes.
    pub split: f64,
}

impl Faults {
    /// All rates by the names they have in TOML.
    ///
    /// ```
    /// use keywheel_sim::Faults;
    ///
    /// let faults = Faults { overloaded: 0.02, ..Faults::default() };
    /// let met: Vec<_> = faults.rates().filter(|(_, rate)| *rate > 0.0).collect();
    /// assert_eq!(met, [("overloaded", 0.02)]);
    /// ```
    pub fn rates(&self) -> impl Iterator<Item = (&'static str, f64)> + use<> {
        let mut faults = self.clone();
        faults.named().map(|(name, rate)| (name, *rate)).into_iter()
    }

    /// The faults that exclude each other, with their rates.
    pub(crate) const fn exclusive(&self) -> [(Fault, f64); 17] {
        [
            (Fault::Overloaded, self.overloaded),
            (Fault::Internal, self.internal),
            (Fault::Html, self.html),
            (Fault::Deadline, self.deadline),
            (Fault::Reset, self.reset),
            (Fault::Stall, self.stall),
            (Fault::Broken, self.broken),
            (Fault::Cut, self.cut),
            (Fault::ErrorFirst, self.error_first),
            (Fault::ErrorMidway, self.error_midway),
            (Fault::EmptyBody, self.empty_body),
            (Fault::NoContent, self.no_content),
            (Fault::ThoughtOnly, self.thought_only),
            (Fault::Blocked, self.blocked),
            (Fault::CutCall, self.cut_call),
            (Fault::Spurious429, self.spurious_429),
            (Fault::Unreachable, self.unreachable),
        ]
    }

    /// The same, to be set.
    pub(crate) fn named(&mut self) -> [(&'static str, &mut f64); 20] {
        [
            ("overloaded", &mut self.overloaded),
            ("internal", &mut self.internal),
            ("html", &mut self.html),
            ("deadline", &mut self.deadline),
            ("reset", &mut self.reset),
            ("stall", &mut self.stall),
            ("broken", &mut self.broken),
            ("cut", &mut self.cut),
            ("error_first", &mut self.error_first),
            ("error_midway", &mut self.error_midway),
            ("empty_body", &mut self.empty_body),
            ("no_content", &mut self.no_content),
            ("thought_only", &mut self.thought_only),
            ("blocked", &mut self.blocked),
            ("cut_call", &mut self.cut_call),
            ("spurious_429", &mut self.spurious_429),
            ("unreachable", &mut self.unreachable),
            ("bare_429", &mut self.bare_429),
            ("several_violations", &mut self.several_violations),
            ("split", &mut self.split),
        ]
    }
}
