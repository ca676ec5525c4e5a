//! Files, uploads, caches, batches, interactions and the like belong to the quota project whose key made them, and no
//! other key can use them. Until they are remembered one by one, all of them are kept by one quota project.
//!
//! `affinity.rs` is the place for the owners of each: what made it, kept on disk before the answer goes out, and lists
//! that walk over all quota projects. [`owner`] is where it would be asked.

use keywheel::{Gemini, sketch::Sketch};

use crate::{
    config::Settings,
    gateway::{App, Current},
    handle::Asked,
    refusal::{Reason, Refusal},
};

/// The one quota project that can do it. `None`: any.
pub(crate) fn owner(app: &App, now: &Current, asked: &Asked, sketch: &Sketch) -> Option<String> {
    if let Some(begun) = &asked.begun {
        return Some(begun.owner.clone());
    }
    if !asked.route.is_stateful() && sketch.names.is_empty() {
        return None;
    }
    now.settings
        .quota_project
        .clone()
        .or_else(|| app.gemini.status().keys.first().map(|key| key.quota_project.clone()))
}

/// What is told of a `[stateful] quota_project` that no key belongs to: nothing could ever serve it.
pub(crate) fn warning(settings: &Settings, gemini: &Gemini) -> Option<String> {
    let own = settings.quota_project.as_deref()?;
    let status = gemini.status();
    if status.keys.iter().any(|key| key.quota_project == own) {
        return None;
    }
    let mut known: Vec<_> = status.keys.iter().map(|key| &*key.quota_project).collect();
    known.dedup();
    known.truncate(5);
    Some(format!(
        "stateful.quota_project: no key belongs to {own}, so that nothing can serve files, caches, batches and \
         interactions; there are {}",
        known.join(", ")
    ))
}

/// Says what `owner` has to do with it, where it is the reason that nothing can serve.
pub(crate) fn explained(mut refusal: Refusal, owner: Option<&str>) -> Refusal {
    let concerns = matches!(
        refusal.reason,
        Reason::Exhausted | Reason::NoKeys | Reason::AllKeysDead | Reason::UpstreamDown
    );
    if let (Some(owner), true) = (owner, concerns) {
        refusal.message = format!(
            "files, caches, batches and interactions are kept by the quota project {owner}, and \
             no other can serve them: {}",
            refusal.message
        );
        refusal.scope = format!("quota project {owner}");
    }
    refusal
}
