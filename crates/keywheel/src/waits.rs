//! The wait hook: whoever shows a call to people can say what it waits for.

use std::{fmt, sync::Arc};

use chrono::{DateTime, Utc};

/// A call waits: what [`GeminiBuilder::on_wait`](crate::GeminiBuilder::on_wait) is told.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wait {
    /// The model that can be asked first.
    pub model: String,
    /// Until when, as far as can be said.
    pub until: DateTime<Utc>,
    /// What for.
    pub reason: WaitReason,
}

/// What a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitReason {
    /// A key that can serve.
    Quota,
    /// The next try of a model that fails again and again.
    BreakerOpen,
    /// A retry.
    Retry,
}

/// The user's hook.
#[derive(Clone)]
pub(crate) struct OnWait(Arc<dyn Fn(&Wait) + Send + Sync>);

impl OnWait {
    pub(crate) fn new(hook: impl Fn(&Wait) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hook))
    }

    pub(crate) fn say(&self, model: &str, until: DateTime<Utc>, reason: WaitReason) {
        (self.0)(&Wait { model: model.to_owned(), until, reason });
    }
}

impl fmt::Debug for OnWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnWait")
    }
}
