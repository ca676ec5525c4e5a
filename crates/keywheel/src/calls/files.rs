//! Files that requests can name: uploaded once, kept by Google for 48 hours, at most 2 GB each.
//!
//! A file belongs to the quota project whose key uploaded it, and no other project's key can read it
//! (<https://github.com/snailyp/gemini-balance/issues/401>). The client remembers who made which file, beside the
//! pool's state file, and sends every request that names one with a key of that project. A request that names files
//! of several projects is [`Error::MixedOwners`]: nothing is sent.

mod source;
mod upload;

use std::{sync::Arc, time::Duration};

use keywheel_provider::{
    api::{FileList, FileState},
    upstream::Call,
};

pub use keywheel_provider::api::File;

pub use self::{source::Source, upload::Upload};
use super::{
    Pending, end_ms,
    owner::{Listing, Page, ask_owner},
    simple::{Simple, json, nothing, only_gemini, setting},
    within,
};
use crate::{
    Error, Gemini,
    gemini::{CallOptions, Inner},
    time::sleep,
};

/// The route that all of this draws on.
const ROUTE: &str = "files";

/// The most files of a page of a list.
const PAGE: u32 = 100;

/// Pauses between two looks at a file that is not ready yet.
const FIRST_LOOK: Duration = Duration::from_secs(1);
const SLOWEST_LOOK: Duration = Duration::from_secs(10);

/// The list of them.
const ALL: Listing<File> = Listing {
    route: ROUTE,
    call: |token| Call::files_page(token, Some(PAGE)),
    read: |provider, body| {
        let FileList { files, next_page_token, .. } = json(provider, body)?;
        Ok(Page { items: files, next: next_page_token })
    },
};

impl Gemini {
    /// Files: to upload, to look at, to delete.
    ///
    /// ```no_run
    /// # async fn run(gemini: keywheel::Gemini) -> Result<(), keywheel::Error> {
    /// use keywheel::{Content, Part};
    ///
    /// let file = gemini.files().upload(std::path::Path::new("talk.mp3"), "audio/mpeg").await?;
    /// let file = gemini.files().wait_active(file.name.unwrap_or_default()).await?;
    /// let parts = [file.to_part().expect("it has an address"), Part::from_text("Summarise it")];
    /// let reply = gemini.generate("gemini-3.5-flash-lite", Content::user(parts)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn files(&self) -> Files {
        Files { gemini: self.clone() }
    }
}

/// The files of all quota projects of the pool, made by [`Gemini::files`].
///
/// Only Gemini's own API has files: with another provider every call is [`Error::Setting`].
///
/// ```
/// # use std::sync::Arc;
/// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let script = Script::new();
/// # script.reply(Scripted::json(200, r#"{"files":[{"name":"files/a","state":"ACTIVE"}]}"#));
/// # script.reply(Scripted::json(200, r#"{"name":"files/a","state":"ACTIVE"}"#));
/// # script.reply(Scripted::json(200, r#"{"name":"files/a","state":"ACTIVE"}"#));
/// # script.reply(Scripted::json(200, "{}"));
/// # let gemini = Gemini::builder()
/// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
/// #     .state(StateLocation::None)
/// #     .transport(Arc::new(script))
/// #     .build()
/// #     .await?;
/// let files = gemini.files();
/// for file in files.list().await? {
///     let name = file.name.unwrap_or_default();
///     println!("{name}: {:?} bytes", files.get(&name).await?.size_bytes);
///     files.wait_active(&name).await?;
///     files.delete(&name).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "it is a handle, and does nothing by itself"]
pub struct Files {
    gemini: Gemini,
}

impl Files {
    /// Uploads bytes, a file of the disk, or what a reader gives. Await it, or set something first.
    ///
    /// Sent in chunks of 8 MiB, one in memory at a time. After a cut it goes on from what has arrived. Another quota
    /// project takes over only if the upload cannot be begun.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use keywheel::{ApiKey, Gemini, KeySpec, StateLocation, testing::{Script, Scripted}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let script = Script::new();
    /// # let header = |name: &'static str| http::HeaderName::from_static(name);
    /// # let value = |value: &'static str| http::HeaderValue::from_static(value);
    /// # script.reply(Scripted::json(200, "{}").header(header("x-goog-upload-url"),
    /// #     value("https://generativelanguage.googleapis.com/upload/v1beta/files?upload_id=1")));
    /// # script.reply(Scripted::json(200, r#"{"file":{"name":"files/abc","state":"ACTIVE"}}"#)
    /// #     .header(header("x-goog-upload-status"), value("final")));
    /// # let gemini = Gemini::builder()
    /// #     .keys([KeySpec::new(ApiKey::new("AQ.EXAMPLE-key-1")?, "KEY_1")])
    /// #     .state(StateLocation::None)
    /// #     .transport(Arc::new(script))
    /// #     .build()
    /// #     .await?;
    /// let file = gemini
    ///     .files()
    ///     .upload(b"hello".to_vec(), "text/plain")
    ///     .display_name("greeting")
    ///     .progress(|sent, total| println!("{sent} of {total} bytes"))
    ///     .await?;
    /// assert_eq!(file.name.as_deref(), Some("files/abc"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Setting`] if the source cannot be read, and those of [`Gemini::generate`].
    ///
    /// # Cancel safety
    /// Dropping the future ends the upload; what has arrived is forgotten by the provider.
    pub fn upload(&self, source: impl Into<Source>, mime_type: impl Into<String>) -> Upload {
        Upload::new(&self.gemini, source.into(), mime_type.into())
    }

    /// What is known of a file, by its name (`files/x` or `x`) or its address.
    ///
    /// A file that somebody else uploaded, with a key of this pool, is looked for in one quota project after the
    /// other; found, its owner is remembered.
    ///
    /// # Errors
    /// [`Error::Rejected`] if it does not exist, or belongs to somebody else: the API does not tell which.
    ///
    /// # Cancel safety
    /// Dropping the future ends the request.
    pub fn get(&self, name: impl AsRef<str>) -> Pending<File> {
        let call = Call::file(name.as_ref());
        Pending::new(&self.gemini, |inner, options| async move {
            look(&inner, call.map_err(setting)?, options).await
        })
    }

    /// All files of all quota projects that have a key in use.
    ///
    /// # Errors
    /// As [`Gemini::generate`], if not one project's files can be listed.
    ///
    /// # Cancel safety
    /// Dropping the future ends the request.
    pub fn list(&self) -> Pending<Vec<File>> {
        Pending::new(&self.gemini, |inner, options| async move { list(&inner, options).await })
    }

    /// Deletes a file, by its name or its address.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// # Cancel safety
    /// Dropping the future ends the request. The file may be gone all the same.
    pub fn delete(&self, name: impl AsRef<str>) -> Pending<()> {
        let call = Call::delete_file(name.as_ref());
        Pending::new(&self.gemini, |inner, options| async move {
            only_gemini(&inner, "files")?;
            let call = call.map_err(setting)?;
            let name = call.path.clone();
            ask_owner(&inner, &name, &Simple::new(ROUTE, call, nothing), options).await?;
            forget(&inner, &name).await;
            Ok(())
        })
    }

    /// Waits until a file can be used. Videos take a while; most others can be used at once.
    ///
    /// # Errors
    /// [`Error::FileFailed`] if it never can; [`Error::DeadlineReached`] if it cannot in time; those of
    /// [`get`](Self::get).
    ///
    /// # Cancel safety
    /// Dropping the future ends the request.
    pub fn wait_active(&self, name: impl AsRef<str>) -> Pending<File> {
        let call = Call::file(name.as_ref());
        Pending::new(&self.gemini, |inner, options| async move {
            wait_active(&inner, call.map_err(setting)?, options).await
        })
    }
}

async fn look(inner: &Inner, call: Call, options: CallOptions) -> Result<File, Error> {
    only_gemini(inner, "files")?;
    let name = call.path.clone();
    let is_known = inner.owners.owner(&name).await.is_some();
    let done = ask_owner(inner, &name, &Simple::new(ROUTE, call, json::<File>), options).await?;
    if !is_known {
        remember(inner, &done.answer, &done.quota_project).await;
    }
    Ok(done.answer)
}

/// The quota project that has a file.
async fn owner_of(inner: &Inner, file: &str, options: CallOptions) -> Result<Arc<str>, Error> {
    let call = Call::file(file).map_err(setting)?;
    let name = call.path.clone();
    if let Some(owner) = inner.owners.owner(&name).await {
        return Ok(owner);
    }
    look(inner, call, options).await?;
    let owner = inner.owners.owner(&name).await;
    owner.ok_or_else(|| setting(format!("nobody knows whose {name} is")))
}

async fn list(inner: &Inner, options: CallOptions) -> Result<Vec<File>, Error> {
    only_gemini(inner, "files")?;
    let mut files = Vec::new();
    for (project, file) in ALL.of_everybody(inner, &options).await? {
        if let Some(name) = &file.name
            && inner.owners.owner(name).await.is_none()
        {
            remember(inner, &file, &project).await;
        }
        files.push(file);
    }
    Ok(files)
}

async fn wait_active(inner: &Inner, call: Call, options: CallOptions) -> Result<File, Error> {
    let clock = &*inner.clock;
    let end_ms = end_ms(clock, &options);
    let mut pause = FIRST_LOOK;
    loop {
        let file = look(inner, call.clone(), within(clock, &options, end_ms)).await?;
        match file.state {
            Some(FileState::Failed) => {
                let reason =
                    file.error.as_ref().map_or_else(String::new, |error| error.get().into());
                let name = file.name.unwrap_or_default();
                return Err(Error::FileFailed { name, reason });
            }
            Some(FileState::Processing) => {}
            _ => return Ok(file),
        }
        if end_ms.is_some_and(|at| crate::time::from_now_ms(clock, pause) >= at) {
            return Err(Error::DeadlineReached { attempts: Vec::new() });
        }
        sleep(clock, pause).await;
        pause = (pause * 2).min(SLOWEST_LOOK);
    }
}

/// Remembers who made `file`. A disk that refuses is said, and no reason to fail: this process knows it.
async fn remember(inner: &Inner, file: &File, quota_project: &str) {
    let Some(name) = &file.name else { return };
    if let Err(error) = inner.owners.record(name, quota_project, file.expires_at()).await {
        tracing::warn!(name, %error, "who made this file is known to this process only");
    }
}

async fn forget(inner: &Inner, name: &str) {
    if let Err(error) = inner.owners.forget(name).await {
        tracing::debug!(name, %error, "a file that is gone is still remembered");
    }
}
