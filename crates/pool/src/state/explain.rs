//! Why nothing serves: the answer's reasons, bucket by bucket, soonest first.

use keywheel_core::{Cause, clock::from_unix_ms};

use super::{
    bucket::{Bucket, Need, Place},
    model::{Model, need_of},
};
use crate::{Ask, Exhausted, ExhaustedKind, Reason, Source, limits::Effective};

impl Model {
    /// The reasons for which `ask` cannot be served; `blocked` is until when the whole host is. `soonest` is left
    /// to the caller, who knows more, and so are the words for what is dead.
    pub(crate) fn explain(
        &mut self,
        ask: &Ask,
        blocked: Option<(i64, Source)>,
        now_ms: i64,
    ) -> Exhausted {
        let need = need_of(ask);
        let mut total = 0;
        let mut indices = Vec::new();
        for lane in self.lanes().iter().take(1 + usize::from(ask.allow_paid)) {
            let ready = |index: &u32| self.buckets[*index as usize].place == Place::Ready;
            let awake: Vec<u32> = lane.ring.iter().filter(ready).collect();
            total += awake.len() + lane.sleepers.len();
            indices.extend(awake.into_iter().take(Exhausted::MAX_REASONS));
            let asleep = lane.sleepers.iter().map(|(_, index)| *index);
            indices.extend(asleep.take(Exhausted::MAX_REASONS));
        }
        if let Some(name) = &ask.affinity {
            indices = self.find_bucket(name).into_iter().collect();
            total = indices.len();
        }
        let mut reasons: Vec<(i64, Reason)> = indices
            .into_iter()
            .map(|index| &self.buckets[index as usize])
            .filter(|bucket| bucket.is_alive())
            .map(|bucket| reason(bucket, &need, blocked, now_ms))
            .collect();
        reasons.sort_by_key(|(at_ms, _)| *at_ms);
        reasons.truncate(Exhausted::MAX_REASONS);
        let kind = if !reasons.is_empty() {
            let by_others = |(at_ms, reason): &(i64, Reason)| {
                reason.cause.is_none() && (*at_ms == i64::MAX || *at_ms <= now_ms)
            };
            let busy = reasons.iter().any(by_others);
            if busy { ExhaustedKind::Busy } else { ExhaustedKind::Cooling }
        } else if self.has_keys_for(ask) {
            (total, reasons) = self.dead_reasons(ask);
            ExhaustedKind::AllDead
        } else {
            ExhaustedKind::NoKeys
        };
        let omitted = total.saturating_sub(reasons.len());
        let reasons = reasons.into_iter().map(|(_, reason)| reason).collect();
        Exhausted { model: ask.model.as_ref().into(), kind, soonest: None, reasons, omitted }
    }

    /// Some bucket that the ask may use has a call in flight, or could serve and is kept for others.
    pub(crate) fn someone_is_in_flight(&self, ask: &Ask) -> bool {
        let lanes = self.lanes().iter().take(1 + usize::from(ask.allow_paid));
        let mut indices = lanes.flat_map(|lane| {
            // Those without a moment are last among the sleepers.
            let open = lane.sleepers.range((i64::MAX, 0)..).map(|(_, index)| *index);
            lane.ring.iter().chain(open)
        });
        indices.any(|index| {
            let bucket = &self.buckets[index as usize];
            let kept = bucket.place == Place::Ready && !self.line.is_empty();
            bucket.has_key(&ask.exclude) && (bucket.in_flight > 0 || kept)
        })
    }

    /// Some bucket that the ask may use is kept from serving by nothing but its calls in flight.
    pub(crate) fn waits_for_an_answer(&self, ask: &Ask) -> bool {
        let waits = |index: u32| {
            let bucket = &self.buckets[index as usize];
            bucket.in_flight > 0 && bucket.has_key(&ask.exclude)
        };
        let lanes = self.lanes().iter().take(1 + usize::from(ask.allow_paid));
        let mut open = lanes.flat_map(|lane| lane.sleepers.range((i64::MAX, 0)..));
        match &ask.affinity {
            None => open.any(|(_, index)| waits(*index)),
            Some(name) => self
                .find_bucket(name)
                .is_some_and(|own| open.any(|(_, index)| *index == own) && waits(own)),
        }
    }

    /// The most input tokens a minute that any key has for `ask`, if it is known of all that may serve it.
    pub(crate) fn minute_tokens(&self, ask: &Ask) -> Option<u64> {
        let serving =
            self.buckets.iter().filter(|bucket| bucket.is_alive() && may_use(bucket, ask));
        let most = serving.map(|bucket| bucket.limits.tpm).max()?;
        (most != Effective::UNKNOWN).then_some(most)
    }

    fn has_keys_for(&self, ask: &Ask) -> bool {
        self.buckets.iter().any(|bucket| may_use(bucket, ask))
    }

    fn dead_reasons(&self, ask: &Ask) -> (usize, Vec<(i64, Reason)>) {
        let dead: Vec<_> = self.buckets.iter().filter(|bucket| may_use(bucket, ask)).collect();
        let reasons = dead.iter().take(Exhausted::MAX_REASONS).map(|bucket| {
            let dead = bucket.keys.iter().find_map(|key| Some((key, key.quarantined()?)));
            let cause = dead.map(|(_, cause)| cause);
            let detail = dead.map_or_else(String::new, |(key, _)| key.why_quarantined());
            (i64::MAX, Reason { cause, detail, ..named(bucket) })
        });
        (dead.len(), reasons.collect())
    }
}

fn may_use(bucket: &Bucket, ask: &Ask) -> bool {
    !bucket.keys.is_empty()
        && bucket.lane <= u8::from(ask.allow_paid)
        && ask.affinity.as_ref().is_none_or(|name| *name == bucket.project.name)
}

fn reason(
    bucket: &Bucket,
    need: &Need<'_>,
    blocked: Option<(i64, Source)>,
    now_ms: i64,
) -> (i64, Reason) {
    let (mut at_ms, (mut cause, mut source)) =
        (bucket.free_at(need, now_ms), bucket.reason(need, now_ms));
    if let Some((until_ms, how)) = blocked
        && (until_ms > at_ms || cause.is_none() && at_ms == i64::MAX)
    {
        (at_ms, cause, source) = (until_ms, Some(Cause::IpBlock), how);
    }
    let available_at = (at_ms != i64::MAX && at_ms > now_ms).then(|| from_unix_ms(at_ms));
    (at_ms, Reason { cause, available_at, source, ..named(bucket) })
}

fn named(bucket: &Bucket) -> Reason {
    Reason {
        quota_project: bucket.project.name.as_ref().into(),
        labels: bucket.keys.iter().map(|key| key.label.as_ref().into()).collect(),
        cause: None,
        available_at: None,
        source: Source::Counted,
        detail: String::new(),
    }
}
