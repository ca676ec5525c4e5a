//! Nobody is charged: the client without the feature `ledger`.

use std::{convert::Infallible, future::Future, sync::Arc};

use futures_util::future::BoxFuture;
use keywheel_core::{Clock, Fingerprint, Usage};

use super::{Bill, Spent};
use crate::attempt::ModelFacts;

#[derive(Debug, Clone, Default)]
pub(crate) struct Purse;

#[derive(Debug, Clone, Default)]
pub(crate) struct Payer(());

#[derive(Debug)]
pub(crate) struct Tab;

#[derive(Debug)]
pub(crate) struct Slip;

/// There is none.
#[derive(Debug)]
pub(crate) enum Refusal {}

impl Purse {
    pub(crate) const fn is_there(&self) -> bool {
        false
    }

    pub(crate) const fn begin(&self, _: &mut Payer) {}

    pub(crate) const fn output_cap(&self, _: &Payer) -> Option<u64> {
        None
    }
}

impl Payer {
    pub(crate) const fn request_id(&self) -> Option<&str> {
        None
    }
}

impl Tab {
    pub(crate) const fn open(_: &Purse, _: &Payer) -> Self {
        Self
    }

    pub(crate) async fn reserve(
        &mut self,
        _: &Arc<str>,
        _: Fingerprint,
        _: Option<Bill>,
        _: ModelFacts,
    ) -> Result<Slip, Refusal> {
        Ok(Slip)
    }

    pub(crate) const fn owe(&mut self, _: Slip) {}

    pub(crate) const fn take_owed(&mut self) -> Option<Slip> {
        None
    }
}

impl Slip {
    pub(crate) const fn sent(&mut self) {}

    pub(crate) const fn is(&mut self, _: Spent, _: Option<Usage>) {}

    pub(crate) async fn settle(self) {}

    pub(crate) async fn during<F: Future>(&self, _: &Arc<dyn Clock>, future: F) -> F::Output {
        future.await
    }

    pub(crate) const fn renewing(
        &self,
        _: &Arc<dyn Clock>,
    ) -> Option<BoxFuture<'static, Infallible>> {
        None
    }
}
