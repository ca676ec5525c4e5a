//! What a request may cost at most: its input as it is weighed, and the longest answer that it allows.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use keywheel_core::Usage;
use keywheel_provider::api::{GenerateRequest, Json, TokenCount};
use serde::de::IgnoredAny;

use crate::{
    Error, calls,
    gemini::{CallOptions, Inner},
    time::from_now_ms,
    weigh::input_tokens,
};

/// What a model reads at most where nothing else is known: 1,048,576 tokens, as most of Gemini's do
/// (`inputTokenLimit` of `GET models`, November 2026).
pub(crate) const LONGEST_INPUT: u64 = 1 << 20;

/// What a model writes at most where nothing else is known: 65,536 tokens, as most of Gemini's do
/// (`outputTokenLimit` of `GET models`, November 2026).
pub(crate) const LONGEST_OUTPUT: u64 = 1 << 16;

/// How long the provider's own count of a file or cache is waited for.
const COUNT_PATIENCE: Duration = Duration::from_secs(10);

/// Google's tools that read for the model, as much as they like; it is charged as input
/// (<https://ai.google.dev/gemini-api/docs/url-context>, <https://ai.google.dev/gemini-api/docs/file-search>).
pub(crate) const READERS: [&str; 7] = [
    "urlContext",
    "url_context",
    "fileSearch",
    "file_search",
    "retrieval",
    "mcpServers",
    "mcp_servers",
];

/// The most that one request to a model may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bill {
    /// Input tokens, upper-leaning; the ledger corrects them by what it has seen of the model.
    pub(crate) input: u64,
    /// Output tokens of each answer; `None`: as many as the model can write.
    pub(crate) output: Option<u64>,
    /// How many answers are asked for.
    pub(crate) candidates: u64,
}

impl Bill {
    /// So much input, and vectors, which are no output.
    pub(crate) const fn input(tokens: u64) -> Self {
        Self { input: tokens, output: Some(0), candidates: 1 }
    }

    /// So much input, and whatever the model writes.
    pub(crate) const fn unbounded(tokens: u64) -> Self {
        Self { input: tokens, output: None, candidates: 1 }
    }
}

/// Sets the account's longest answer into a request that sets none, if the client wants that: what is reserved is then
/// what can be used at most. That field alone. Returns what was set.
///
/// No longer than the shortest answer of the models that may be asked, as far as it is known: they refuse more.
pub(crate) fn cap(
    inner: &Inner,
    model: &str,
    request: &mut GenerateRequest,
    options: &CallOptions,
) -> Option<u64> {
    if limit(request).is_some() {
        return None;
    }
    let cap = u32::try_from(longest_answer(inner, model, options)?).unwrap_or(u32::MAX);
    request.config().max_output_tokens = Some(cap);
    Some(cap.into())
}

/// The longest answer that may be set into a request, if the client wants that.
pub(crate) fn longest_answer(inner: &Inner, model: &str, options: &CallOptions) -> Option<u64> {
    let longest = inner.purse.output_cap(&options.payer)?;
    let others = options.fallback.iter().flat_map(|models| models.iter().map(|model| &**model));
    let known = std::iter::once(model).chain(others);
    let known = known.filter_map(|model| inner.facts.of(model).output_token_limit);
    Some(known.fold(longest, u64::min))
}

/// What `request` may cost; and `options` with what is left of its time, if somebody had to be asked.
///
/// Text and inline media are weighed here. What a file or a cache holds, the provider is asked for by `countTokens`,
/// which costs nothing; if it does not say, and for tools that read as much as they like, it is the model's input
/// limit.
pub(crate) async fn bill(
    inner: &Inner,
    model: &Arc<str>,
    request: &GenerateRequest,
    options: CallOptions,
) -> (Bill, CallOptions) {
    let builds_on =
        BuildsOn { whatever: request.tools.iter().any(reads), names: names_more(request) };
    let count = |options| calls::count_tokens(inner, Arc::clone(model), request, options);
    bounded(inner, model, of_the_request(request), builds_on, options, count).await
}

/// What a request builds on that is not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BuildsOn {
    /// Tools that read as much as they like.
    pub(crate) whatever: bool,
    /// Files or a cache.
    pub(crate) names: bool,
}

/// `bill` with what the request builds on, for which `count` asks the provider.
pub(crate) async fn bounded<F>(
    inner: &Inner,
    model: &Arc<str>,
    mut bill: Bill,
    builds_on: BuildsOn,
    options: CallOptions,
    count: impl FnOnce(CallOptions) -> F,
) -> (Bill, CallOptions)
where
    F: Future<Output = Result<TokenCount, Error>>,
{
    if !inner.purse.is_there() {
        return (bill, options);
    }
    let longest = || inner.facts.of(model).input_token_limit.unwrap_or(LONGEST_INPUT);
    if builds_on.whatever {
        bill.input = bill.input.max(longest());
        return (bill, options);
    }
    if !builds_on.names {
        return (bill, options);
    }
    let clock = &*inner.clock;
    let end_ms = options.deadline.map(|span| from_now_ms(clock, span));
    let patience = options.deadline.map_or(COUNT_PATIENCE, |span| span.min(COUNT_PATIENCE));
    let asking = CallOptions { deadline: Some(patience), on_sent: None, ..options.clone() };
    bill.input = match count(asking).await {
        Ok(count) => bill.input.max(count.total_tokens),
        Err(error) => {
            tracing::debug!(%error, "files and caches are taken for as much as the model reads");
            bill.input.max(longest())
        }
    };
    let left = |end_ms: i64| u64::try_from(end_ms.saturating_sub(clock.unix_ms())).unwrap_or(0);
    let deadline = end_ms.map(left).map(Duration::from_millis);
    (bill, CallOptions { deadline, ..options })
}

/// What the next request of an answer may cost, after one that used so much: it reads what was written before.
pub(crate) fn gone_on(bill: Bill, used: Option<Usage>) -> Bill {
    let written = match used {
        Some(used) => used.output.saturating_add(used.thinking),
        None => bill.output.unwrap_or(LONGEST_OUTPUT),
    };
    Bill { input: bill.input.saturating_add(written), ..bill }
}

/// As far as the request itself says.
fn of_the_request(request: &GenerateRequest) -> Bill {
    let config = request.generation_config.as_ref();
    Bill {
        input: input_tokens(request),
        output: limit(request).map(u64::from),
        candidates: config.and_then(|config| config.candidate_count).map_or(1, u64::from).max(1),
    }
}

/// The longest answer that it allows itself. A limit of 0 is none, as in [`Sketch`](crate::sketch::Sketch): Google's
/// range begins at 1, and nobody says that 0 is always refused.
fn limit(request: &GenerateRequest) -> Option<u32> {
    request.generation_config.as_ref()?.max_output_tokens.filter(|tokens| *tokens > 0)
}

/// True if it builds on what is not in it.
fn names_more(request: &GenerateRequest) -> bool {
    let contents = request.contents.iter().chain(&request.system_instruction);
    let mut parts = contents.flat_map(|content| &content.parts);
    request.cached_content.is_some()
        || parts.any(|part| part.text().is_none() && part.file_data().is_some())
}

fn reads(tool: &Json) -> bool {
    let names = tool.parse::<BTreeMap<String, IgnoredAny>>().unwrap_or_default();
    READERS.iter().any(|reader| names.contains_key(*reader))
}
