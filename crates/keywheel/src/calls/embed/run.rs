//! Asks for all vectors that are not known, a few requests at a time, until they are there or cannot be had.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use keywheel_core::Cause;

use super::{
    Embed, Embeddings, Partial, Settings,
    batch::Batch,
    batches::{Batches, Most},
};
use crate::{
    Error,
    attempt::{Done, perform},
    calls::{end_ms, within},
    embed_cache::{Claim, EmbedCache, EmbedKey, Space, Wait},
    gemini::{CallOptions, Inner},
    time::{from_now_ms, until},
};

/// So many requests of one call are under way at once, at most.
const MOST_IN_FLIGHT: usize = 4;

/// How long another call is waited for: one that nobody polls any more, but that was not dropped, never ends.
const PATIENCE: Duration = Duration::from_secs(120);

/// The duty to fetch texts that others wait for, too.
type Claims = HashMap<Arc<str>, Claim>;

pub(super) async fn embed(call: Embed) -> Result<Embeddings, Error> {
    let Embed { gemini, model, texts, settings, resume, mut options } = call;
    // One call, however many requests it takes.
    gemini.inner.purse.begin(&mut options.payer);
    let texts = texts.as_slice();
    if let Some(empty) = texts.iter().position(|text| text.trim().is_empty()) {
        // Google answers it with a 429 that names no quota.
        return Err(Error::Setting(format!("text {empty} is empty: it has no vector")));
    }
    let inner = &*gemini.inner;
    let done = Partial::begin(&model, settings, resume)?;
    let end_ms = end_ms(&*inner.clock, &options);
    let mut run = Run { inner, options: &options, end_ms, done, earned: false };
    let ended = run.all(texts).await;
    let Run { done, .. } = run;
    inner.counters.cache_hits(done.cache_hits);
    if let Some(recorder) = &options.recorder {
        recorder.call();
        recorder.embedded(done.fetched);
        recorder.cache_hits(done.cache_hits);
    }
    match ended {
        Err(error) if done.is_empty() => return Err(error.with_attempts(done.attempts)),
        Err(error) => {
            return Err(Error::Incomplete { done: Box::new(done), source: Box::new(error) });
        }
        Ok(()) => {}
    }
    let vector = |text: &Arc<str>| done.vectors[text].to_vec();
    Ok(Embeddings {
        vectors: texts.iter().map(vector).collect(),
        model: model.as_ref().to_owned(),
        usage: done.usage,
        requests: done.requests,
        cache_hits: done.cache_hits,
        attempts: done.attempts,
    })
}

/// One call on its way.
struct Run<'a> {
    inner: &'a Inner,
    options: &'a CallOptions,
    end_ms: Option<i64>,
    done: Partial,
    /// A request of this call was made.
    earned: bool,
}

impl Run<'_> {
    /// Until every text has its vector.
    async fn all(&mut self, texts: &[Arc<str>]) -> Result<(), Error> {
        let mut batches = Batches::new(texts, |text| self.done.vectors.contains_key(text));
        self.done.total = batches.different();
        self.done.cache_hits = (batches.different() - batches.left()) as u64;
        let Some(cache) = &self.inner.embed_cache else {
            return self.fetch(&mut batches, None, &mut Claims::new()).await;
        };
        loop {
            let open: Vec<_> = batches.take_all();
            if open.is_empty() {
                return Ok(());
            }
            let keys: Vec<_> = open.iter().map(|text| self.key(text)).collect();
            let looked = cache.look(&keys).await;
            for (place, vector) in looked.hits {
                self.done.take_known(Arc::clone(&open[place]), vector);
            }
            let claims = looked.claims.into_iter();
            let mut claims: Claims =
                claims.map(|(place, claim)| (Arc::clone(&open[place]), claim)).collect();
            let claimed = open.iter().filter(|text| claims.contains_key(*text));
            let mut fetched = Batches::of(claimed.cloned());
            self.fetch(&mut fetched, Some(cache), &mut claims).await?;
            // Only now: whoever fetches these may be waiting for what was ours to fetch.
            let waits = looked.waits.into_iter();
            let waits = waits.map(|(place, wait)| (Arc::clone(&open[place]), wait)).collect();
            self.wait(waits, &mut batches).await?;
        }
    }

    /// Waits for what others fetch, all of it at once. What they do not bring is put back: it is ours to fetch, or
    /// somebody else's.
    async fn wait(
        &mut self,
        waits: Vec<(Arc<str>, Wait)>,
        batches: &mut Batches,
    ) -> Result<(), Error> {
        let clock = &*self.inner.clock;
        let patience_ms = from_now_ms(clock, PATIENCE);
        let at_ms = self.end_ms.map_or(patience_ms, |end_ms| end_ms.min(patience_ms));
        let done = &mut self.done;
        let told = waits.iter().map(async |(text, wait)| (text, wait.vector().await));
        let mut told: FuturesUnordered<_> = told.collect();
        let all = async {
            while let Some((text, vector)) = told.next().await {
                if let Some(vector) = vector {
                    done.take_known(Arc::clone(text), vector);
                }
            }
        };
        let in_time = until(clock, Some(at_ms), all).await.is_some();
        if !in_time && self.end_ms.is_some_and(|end_ms| end_ms <= clock.unix_ms()) {
            return Err(Error::DeadlineReached { attempts: Vec::new() });
        }
        drop(told);
        for (text, wait) in waits {
            if !self.done.vectors.contains_key(&text) {
                wait.give_up();
                batches.put_back_one(text);
            }
        }
        Ok(())
    }

    /// Asks for all of `batches`. What stands in the way of one request ends the call, once those that are under way
    /// have ended.
    async fn fetch(
        &mut self,
        batches: &mut Batches,
        cache: Option<&EmbedCache>,
        claims: &mut Claims,
    ) -> Result<(), Error> {
        let (inner, options, end_ms) = (self.inner, self.options, self.end_ms);
        let clock = &*inner.clock;
        let mut stopped = None;
        let mut flights = FuturesUnordered::new();
        loop {
            while stopped.is_none() && flights.len() < MOST_IN_FLIGHT {
                let most = Most::now(inner, &self.done.model, options.allow_paid);
                let Some(texts) = batches.next(&most) else { break };
                let requests = inner.upstream.provider().embed_weight(texts.len());
                let requests = u32::try_from(requests).unwrap_or(u32::MAX);
                let work = Batch { texts, settings: self.done.settings.clone(), requests };
                let model = Arc::clone(&self.done.model);
                // However many requests it takes, it is one call.
                let earned = std::mem::replace(&mut self.earned, true);
                let options = CallOptions { earned, ..within(clock, options, end_ms) };
                flights.push(async move {
                    let outcome = perform(inner, model, &work, &options).await;
                    (work, outcome)
                });
            }
            let Some((work, outcome)) = flights.next().await else { break };
            match outcome {
                Ok(Done { answer, attempts, .. }) => {
                    self.done.attempts.extend(attempts);
                    batches.went_well(work.texts.len());
                    self.done.take(&work, answer);
                    if let Some(cache) = cache {
                        self.share(cache, claims, &work.texts).await;
                    }
                }
                Err(error) => {
                    self.done.attempts.extend_from_slice(error.attempts());
                    let is_late = end_ms.is_some_and(|at| at <= clock.unix_ms());
                    let smaller = work.texts.len() > 1 && !is_late && wants_fewer(&error);
                    batches.put_back(work.texts);
                    if !smaller {
                        stopped.get_or_insert(error);
                    }
                }
            }
        }
        stopped.map_or(Ok(()), Err)
    }

    /// Hands what was fetched to the cache, and to everybody who waits for it.
    async fn share(&self, cache: &EmbedCache, claims: &mut Claims, texts: &[Arc<str>]) {
        let claimed = texts.iter().filter_map(|text| {
            Some((claims.remove(text)?, Arc::clone(self.done.vectors.get(text)?)))
        });
        let fetched = claimed.collect();
        cache.fill(fetched).await;
    }

    fn key(&self, text: &str) -> EmbedKey {
        let Settings { task, dimensions, title } = &self.done.settings;
        let space = Space {
            provider: self.inner.upstream.provider().name(),
            base_url: self.inner.upstream.base_url(),
            model: &self.done.model,
            task: task.as_ref().map(super::TaskType::as_str),
            dimensions: *dimensions,
            title: title.as_deref(),
        };
        EmbedKey::new(&space, text)
    }
}

/// True if fewer texts at once may be served: the rest of a day's quota, or of a minute's, is no round number.
fn wants_fewer(error: &Error) -> bool {
    match error {
        Error::Exhausted { .. } | Error::TooLarge { .. } => true,
        Error::Rejected { rejected, .. } => rejected.cause == Cause::RequestTooLarge,
        // What is left of a budget is no round number either.
        #[cfg(feature = "ledger")]
        Error::OverBudget { denied, .. } => {
            denied.limit.unit == keywheel_ledger::Unit::Tokens && denied.left() > 0
        }
        _ => false,
    }
}
