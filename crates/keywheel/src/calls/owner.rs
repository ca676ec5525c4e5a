//! Files and caches belong to the quota project whose key made them, and no other can use them: which one a call is
//! bound to, and how those are found of whom nobody knows.

use std::{collections::BTreeMap, sync::Arc};

use keywheel_provider::{
    api::{Content, GenerateRequest, file_name},
    upstream::Call,
};

use super::{
    end_ms,
    pages::Pages,
    simple::{Parse, Simple},
    within,
};
use crate::{
    Error,
    attempt::{Done, perform},
    gemini::{CallOptions, Inner},
};

/// Binds a call to the owner of what `request` names, where one is known.
///
/// # Errors
/// [`Error::MixedOwners`]: no key could serve it.
pub(crate) async fn bind(
    inner: &Inner,
    request: &GenerateRequest,
    options: CallOptions,
) -> Result<CallOptions, Error> {
    let contents = request.contents.iter().chain(&request.system_instruction);
    bind_to(inner, contents, request.cached_content.as_deref(), options).await
}

/// The same for contents and a cache.
pub(super) async fn bind_to(
    inner: &Inner,
    contents: impl Iterator<Item = &Content>,
    cache: Option<&str>,
    options: CallOptions,
) -> Result<CallOptions, Error> {
    bind_to_names(inner, names(contents, cache), options).await
}

/// The same for what is known by its name.
pub(super) async fn bind_to_names(
    inner: &Inner,
    names: Vec<String>,
    options: CallOptions,
) -> Result<CallOptions, Error> {
    let mut owners: BTreeMap<Arc<str>, String> = BTreeMap::new();
    let mut first = None;
    for name in names {
        let Some(owner) = inner.owners.owner(&name).await else { continue };
        first.get_or_insert_with(|| Arc::clone(&owner));
        owners.entry(owner).or_insert(name);
    }
    if owners.len() > 1 {
        let owners = owners.into_iter().map(|(owner, name)| (name, owner.as_ref().to_owned()));
        return Err(Error::MixedOwners { owners: owners.collect() });
    }
    Ok(CallOptions { owner: first.or(options.owner.clone()), ..options })
}

/// What belongs to somebody, by the name that it is remembered under.
fn names<'a>(contents: impl Iterator<Item = &'a Content>, cache: Option<&str>) -> Vec<String> {
    let parts = contents.flat_map(|content| &content.parts);
    // Texts, by far the most of all parts, are not looked into again.
    let files = parts.filter(|part| part.text().is_none()).filter_map(|part| part.file_data());
    let files = files.filter_map(|file| file_name(&file.file_uri).map(str::to_owned));
    files.chain(cache.map(str::to_owned)).collect()
}

/// Asks the owner of `name`; or, if nobody here knows it, one quota project after another until one has it.
///
/// # Errors
/// Those of the owner; or, where nobody is found to have it, of the first who could not be asked, or of the last.
pub(super) async fn ask_owner<T: Send>(
    inner: &Inner,
    name: &str,
    work: &Simple<T>,
    options: CallOptions,
) -> Result<Done<T>, Error> {
    if let Some(owner) = inner.owners.owner(name).await {
        return perform(inner, name.into(), work, &owned(options, owner)).await;
    }
    let (clock, end_ms) = (&*inner.clock, end_ms(&*inner.clock, &options));
    let (mut missing, mut trouble) = (None, None);
    for project in projects(inner) {
        let options = owned(within(clock, &options, end_ms), project);
        match perform(inner, name.into(), work, &options).await {
            Err(error @ Error::DeadlineReached { .. }) => return Err(error),
            Err(error) if is_elsewhere(&error) => missing = Some(error),
            Err(error) => drop(trouble.get_or_insert(error)),
            done => return done,
        }
    }
    // Those who could not be asked may have it, so that none has it is certain only without them.
    match trouble.or(missing) {
        Some(error) => Err(error),
        // Without any project the pool says best what is the matter.
        None => perform(inner, name.into(), work, &options).await,
    }
}

/// One page of a list: what is on it, and how the next one is asked for.
pub(super) struct Page<T> {
    pub(super) items: Vec<T>,
    pub(super) next: Option<String>,
}

/// A list, page by page.
pub(super) struct Listing<T> {
    /// The route that it draws on.
    pub(super) route: &'static str,
    /// Asks for the page that a token stands for; the first one without.
    pub(super) call: fn(Option<&str>) -> Call,
    pub(super) read: Parse<Page<T>>,
}

impl<T: Send> Listing<T> {
    /// All that each quota project has, with its owner.
    ///
    /// # Errors
    /// That of the first project, if not one of them answers.
    pub(super) async fn of_everybody(
        &self,
        inner: &Inner,
        options: &CallOptions,
    ) -> Result<Vec<(Arc<str>, T)>, Error> {
        let (clock, end_ms) = (&*inner.clock, end_ms(&*inner.clock, options));
        let (mut all, mut fault, mut answered) = (Vec::new(), None, false);
        for project in projects(inner) {
            let options = owned(within(clock, options, end_ms), Arc::clone(&project));
            match self.of_owner(inner, &options).await {
                Ok(items) => {
                    answered = true;
                    all.extend(items.into_iter().map(|item| (Arc::clone(&project), item)));
                }
                Err(error) => drop(fault.get_or_insert(error)),
            }
        }
        match fault {
            Some(error) if !answered => Err(error),
            _ => Ok(all),
        }
    }

    /// All that the quota project has that `options` are bound to.
    pub(super) async fn of_owner(
        &self,
        inner: &Inner,
        options: &CallOptions,
    ) -> Result<Vec<T>, Error> {
        let (clock, end_ms) = (&*inner.clock, end_ms(&*inner.clock, options));
        let (mut all, mut pages, mut token) = (Vec::new(), Pages::default(), None::<String>);
        loop {
            let work = Simple::new(self.route, (self.call)(token.as_deref()), self.read);
            let options = within(clock, options, end_ms);
            let page = perform(inner, self.route.into(), &work, &options).await?.answer;
            all.extend(page.items);
            token = pages.next(page.next)?;
            if token.is_none() {
                return Ok(all);
            }
        }
    }
}

/// Every quota project that has a key in use, in the order of their keys.
fn projects(inner: &Inner) -> Vec<Arc<str>> {
    let mut projects: Vec<Arc<str>> = Vec::new();
    for key in inner.pool.status().keys {
        if key.quarantine.is_none() && !projects.iter().any(|known| **known == *key.quota_project) {
            projects.push(key.quota_project.into());
        }
    }
    projects
}

/// Options of a call that costs nothing, for what belongs to `owner`, whose keys may be paid ones.
pub(super) fn owned(options: CallOptions, owner: Arc<str>) -> CallOptions {
    CallOptions { owner: Some(owner), allow_paid: true, ..options }
}

/// What Google says of things that do not exist, or that another project made: it does not tell which
/// (<https://github.com/snailyp/gemini-balance/issues/401>).
fn is_elsewhere(error: &Error) -> bool {
    matches!(error, Error::Rejected { rejected, .. } if matches!(rejected.status, 403 | 404))
}
