//! When a call could be served, for those who want to know before they make one.

use std::{pin::pin, sync::Arc};

use chrono::{DateTime, Utc};
use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use keywheel_core::clock::from_unix_ms;
use keywheel_pool::{Ask, Exhausted};

use super::breaker::Gate;
use crate::{gemini::Inner, time::sleep_until};

/// Waits until `model`, or another one of the client's chain, can serve.
pub(crate) async fn until_available(inner: &Inner, model: Arc<str>) -> Result<(), Exhausted> {
    let waiting = models(inner, model).into_iter().map(|model| one(inner, model));
    let mut waiting: FuturesUnordered<BoxFuture<'_, _>> = waiting.map(|one| one.boxed()).collect();
    let mut first = None;
    while let Some(available) = waiting.next().await {
        match available {
            Ok(()) => return Ok(()),
            // What is said of the model that was asked for tells more than what is said of the others.
            Err((place, exhausted)) => match &first {
                Some((known, _)) if *known < place => {}
                _ => first = Some((place, exhausted)),
            },
        }
    }
    match first {
        Some((_, exhausted)) => Err(exhausted),
        None => Ok(()),
    }
}

/// When one of them can serve, as far as can be said.
pub(crate) fn next_available(inner: &Inner, model: Arc<str>) -> Option<DateTime<Utc>> {
    let now_ms = inner.clock.unix_ms();
    let moment = |(_, model): (usize, Arc<str>)| {
        let at = inner.pool.next_available(&model)?;
        match inner.breakers.gate(&model, now_ms) {
            Gate::ShutUntil(until_ms) => Some(at.max(from_unix_ms(until_ms))),
            Gate::Open | Gate::Probing => Some(at),
        }
    };
    models(inner, model).into_iter().filter_map(moment).min()
}

fn models(inner: &Inner, model: Arc<str>) -> Vec<(usize, Arc<str>)> {
    let others = inner.fallback.iter().flat_map(|models| models.iter().cloned());
    std::iter::once(model).chain(others).enumerate().collect()
}

/// Waits for one model: for its keys, and until it is not left alone any more.
async fn one(inner: &Inner, (place, model): (usize, Arc<str>)) -> Result<(), (usize, Exhausted)> {
    loop {
        let mut changed = pin!(inner.breakers.changed());
        changed.as_mut().enable();
        match inner.breakers.gate(&model, inner.clock.unix_ms()) {
            Gate::Open => {}
            Gate::Probing => {
                changed.await;
                continue;
            }
            Gate::ShutUntil(at_ms) => {
                let moment = pin!(sleep_until(&*inner.clock, at_ms));
                futures_util::future::select(changed, moment).await;
                continue;
            }
        }
        let available = inner.pool.available(&Ask::new(Arc::clone(&model))).await;
        available.map_err(|exhausted| (place, exhausted))?;
        // The model may have failed meanwhile.
        if inner.breakers.gate(&model, inner.clock.unix_ms()) == Gate::Open {
            return Ok(());
        }
    }
}
