//! One upload, chunk by chunk.

use std::{fmt, future::IntoFuture, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::HeaderMap;
use keywheel_pool::Ask;
use keywheel_provider::{
    WireResponse,
    api::{File, FileEnvelope, Upload as Steps, UploadStep},
    upstream::{Call, CallError, Upstream},
};

use super::{ALL, ROUTE, Source, owner_of, remember};
use crate::{
    Error, Gemini,
    attempt::{
        perform,
        work::{Brought, Sight, Work, route},
    },
    calls::{
        end_ms,
        owner::owned,
        simple::{only_gemini, setting},
        within,
    },
    gemini::{CallOptions, Inner},
    time::sleep,
};

/// So many failures in a row, without a byte that arrives, end an upload.
const MOST_FAILURES: u32 = 5;

/// The pause after a failure; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

type Progress = dyn FnMut(u64, u64) + Send;

/// An upload that has not begun: see [`Files::upload`](super::Files::upload).
#[must_use = "an upload does nothing until it is awaited"]
pub struct Upload {
    gemini: Gemini,
    source: Source,
    mime_type: String,
    display_name: Option<String>,
    progress: Option<Box<Progress>>,
    deadline: Option<Duration>,
    /// A file or cache whose owner is to have this file, too.
    beside: Option<String>,
    options: CallOptions,
}

impl Upload {
    pub(super) fn new(gemini: &Gemini, source: Source, mime_type: String) -> Self {
        Self {
            gemini: gemini.clone(),
            source,
            mime_type,
            display_name: None,
            progress: None,
            deadline: None,
            beside: None,
            options: gemini.options(),
        }
    }

    /// The file's name for people.
    pub fn display_name(mut self, name: impl Into<String>) -> Self {
        self.display_name = Some(name.into());
        self
    }

    /// Is told how many bytes have arrived, of how many, after each chunk.
    pub fn progress(mut self, progress: impl FnMut(u64, u64) + Send + 'static) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Uploads to the quota project that has `file`, given by its name or its address: one request can name both then.
    /// Defaults to whichever project's turn it is.
    ///
    /// ```no_run
    /// # async fn run(gemini: keywheel::Gemini) -> Result<(), keywheel::Error> {
    /// use std::path::Path;
    /// use keywheel::{Content, Part};
    ///
    /// let files = gemini.files();
    /// let before = files.upload(Path::new("before.png"), "image/png").await?;
    /// let name = before.name.clone().unwrap_or_default();
    /// let after = files.upload(Path::new("after.png"), "image/png").beside(name).await?;
    /// let parts = [before, after].into_iter().filter_map(|file| file.to_part());
    /// let question = Content::user(parts.chain([Part::from_text("What has changed?")]));
    /// let reply = gemini.generate("gemini-3.5-flash-lite", question).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A file that nobody knows the owner of is looked for as by [`Files::get`](super::Files::get).
    pub fn beside(mut self, file: impl Into<String>) -> Self {
        self.beside = Some(file.into());
        self
    }

    /// Uploads to this quota project. Defaults to whichever project's turn it is.
    pub fn owner(mut self, quota_project: impl Into<Arc<str>>) -> Self {
        self.options.owner = Some(quota_project.into());
        self
    }

    /// How long the whole upload may take. Defaults to as long as it takes; each of its requests has the client's
    /// deadline.
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Lets a paid key's quota project have the file, if no free key can begin the upload. Defaults to no.
    pub const fn allow_paid(mut self) -> Self {
        self.options.allow_paid = true;
        self
    }
}

impl IntoFuture for Upload {
    type Output = Result<File, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let inner = Arc::clone(&self.gemini.inner);
        Box::pin(async move { upload(&inner, self).await })
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload")
            .field("source", &self.source)
            .field("mime_type", &self.mime_type)
            .field("display_name", &self.display_name)
            .finish_non_exhaustive()
    }
}

async fn upload(inner: &Inner, upload: Upload) -> Result<File, Error> {
    only_gemini(inner, "files")?;
    let Upload {
        mut source, mime_type, display_name, mut progress, deadline, beside, options, ..
    } = upload;
    let size = source.size().await.map_err(unreadable)?;
    let mut limits = Limits::new(inner, deadline, options);
    if let Some(file) = beside {
        let owner = owner_of(inner, &file, limits.now()).await?;
        limits.options = owned(limits.options, owner);
    }

    let file = File { display_name, ..File::default() };
    let version = inner.upstream.version();
    let start = Steps::start(version, &file, &mime_type, size).map_err(setting)?;
    let begun = perform(inner, ROUTE.into(), &Step::repeatable(start), &limits.now()).await?;
    let owner = begun.quota_project;
    let headers = &begun.answer.headers;
    let mut steps = Steps::begin(&inner.upstream, headers, size).map_err(setting)?;
    let limits = Limits { options: owned(limits.options, Arc::clone(&owner)), ..limits };

    let mut chunk = Chunk::default();
    let mut failures = 0;
    let answer = loop {
        let bytes = chunk.read(&mut source, &steps).await.map_err(unreadable)?;
        let step = Step::once(steps.chunk(bytes).map_err(setting)?);
        let error = match perform(inner, ROUTE.into(), &step, &limits.now()).await {
            Ok(done) => match steps.sent(&done.answer.headers).map_err(setting)? {
                UploadStep::Done => break done.answer,
                UploadStep::More => {
                    failures = 0;
                    tell(&mut progress, &steps);
                    continue;
                }
            },
            Err(error) => error,
        };
        failures += 1;
        if failures > MOST_FAILURES || !can_go_on(&error) || limits.are_over() {
            return Err(error);
        }
        sleep(&*inner.clock, limits.pause(failures)).await;
        if limits.are_over() {
            return Err(error);
        }
        let query = Step::repeatable(steps.query());
        let Ok(done) = perform(inner, ROUTE.into(), &query, &limits.now()).await else {
            // Nobody knows what has arrived; the next try finds out.
            return Err(error);
        };
        let before = steps.offset();
        if steps.resume(&done.answer.headers).map_err(setting)? == UploadStep::Done {
            break done.answer;
        }
        if steps.offset() > before {
            failures = 0;
            tell(&mut progress, &steps);
        }
    };
    if let Some(progress) = &mut progress {
        progress(size, size);
    }
    let read: Result<FileEnvelope, _> = serde_json::from_slice(&answer.body);
    let uploaded = match read {
        Ok(FileEnvelope { file: named @ File { name: Some(_), .. }, .. }) => named,
        // The reply that named it is lost; asked again, the upload says only that it has ended.
        _ => find(
            inner,
            &File { size_bytes: Some(size), mime_type: Some(mime_type), ..file },
            &limits,
        )
        .await?
        .ok_or_else(|| {
            let reason = "the file has arrived, and nobody can say under which name: see list()";
            Error::Unreadable { reason: reason.to_owned(), attempts: begun.attempts }
        })?,
    };
    remember(inner, &uploaded, &owner).await;
    Ok(uploaded)
}

/// The one file of the project that looks like `wanted` and that nobody knows yet. Two of them cannot be told apart.
async fn find(inner: &Inner, wanted: &File, limits: &Limits<'_>) -> Result<Option<File>, Error> {
    let looks_like_it = |file: &File| {
        file.size_bytes == wanted.size_bytes
            && file.mime_type == wanted.mime_type
            && (wanted.display_name.is_none() || file.display_name == wanted.display_name)
    };
    let mut found = None;
    for file in ALL.of_owner(inner, &limits.now()).await?.into_iter().filter(looks_like_it) {
        let name = file.name.as_deref().unwrap_or_default();
        if inner.owners.owner(name).await.is_some() {
            continue;
        }
        if found.is_some() {
            return Ok(None);
        }
        found = Some(file);
    }
    Ok(found)
}

/// How long the upload and each of its requests may take.
struct Limits<'a> {
    inner: &'a Inner,
    /// Of the whole.
    end_ms: Option<i64>,
    /// Of each request.
    options: CallOptions,
}

impl<'a> Limits<'a> {
    fn new(inner: &'a Inner, whole: Option<Duration>, options: CallOptions) -> Self {
        let whole = CallOptions { deadline: whole, ..options.clone() };
        Self { inner, end_ms: end_ms(&*inner.clock, &whole), options }
    }

    /// For the next request.
    fn now(&self) -> CallOptions {
        let left = within(&*self.inner.clock, &self.options, self.end_ms).deadline;
        let each = self.options.deadline;
        let deadline = match (left, each) {
            (Some(left), Some(each)) => Some(left.min(each)),
            (left, each) => left.or(each),
        };
        CallOptions { deadline, ..self.options.clone() }
    }

    /// How long to pause after so many failures in a row.
    fn pause(&self, failures: u32) -> Duration {
        let pause = FIRST_PAUSE * (1 << (failures - 1));
        let left = within(&*self.inner.clock, &self.options, self.end_ms).deadline;
        left.map_or(pause, |left| left.min(pause))
    }

    fn are_over(&self) -> bool {
        self.end_ms.is_some_and(|at| at <= self.inner.clock.unix_ms())
    }
}

/// The bytes on their way. What has not arrived of them is still here when it is asked for again.
#[derive(Default)]
struct Chunk {
    start: u64,
    bytes: Bytes,
}

impl Chunk {
    async fn read(&mut self, source: &mut Source, steps: &Steps) -> std::io::Result<Bytes> {
        let wanted = steps.next_range();
        let end = self.start + self.bytes.len() as u64;
        let kept = match usize::try_from(wanted.start.saturating_sub(self.start)) {
            Ok(skip) if wanted.start >= self.start && wanted.start <= end => {
                self.bytes.slice(skip..)
            }
            _ => Bytes::new(),
        };
        let more = wanted.start + kept.len() as u64..wanted.end;
        let bytes = if kept.is_empty() {
            source.read(wanted.clone()).await?
        } else if more.is_empty() {
            kept
        } else {
            [kept, source.read(more).await?].concat().into()
        };
        (self.start, self.bytes) = (wanted.start, bytes.clone());
        Ok(bytes)
    }
}

/// Whether what has arrived is worth asking for: anything may have cut the chunk but want of a key.
fn can_go_on(error: &Error) -> bool {
    matches!(
        error,
        Error::UpstreamDown { .. } | Error::Rejected { .. } | Error::DeadlineReached { .. }
    )
}

fn tell(progress: &mut Option<Box<Progress>>, steps: &Steps) {
    if let Some(progress) = progress {
        progress(steps.offset(), steps.size());
    }
}

fn unreadable(error: std::io::Error) -> Error {
    Error::Setting(format!("what is to be uploaded cannot be read: {error}"))
}

/// One request of an upload.
struct Step {
    call: Call,
    repeatable: bool,
}

impl Step {
    const fn repeatable(call: Call) -> Self {
        Self { call, repeatable: true }
    }

    /// What was cut is not sent again as it is: a part of it may have arrived.
    const fn once(call: Call) -> Self {
        Self { call, repeatable: false }
    }
}

/// What came back: the headers tell what is next.
struct Answer {
    headers: HeaderMap,
    body: Bytes,
}

/// The most of an answer that is read: a file's description.
const MAX_ANSWER: usize = 1 << 20;

impl Work for Step {
    type Answer = Answer;

    fn ask(&self, _model: &Arc<str>) -> Ask {
        Ask::new(route(ROUTE))
    }

    fn call(&self, _upstream: &Upstream, _model: &str) -> Result<Call, CallError> {
        Ok(self.call.clone())
    }

    async fn read(&self, _sight: &Sight<'_>, response: WireResponse) -> Brought<Answer> {
        let (status, headers) = (response.status, response.headers.clone());
        match response.bytes(MAX_ANSWER).await {
            Ok(body) => Brought::Answer(Answer { headers, body }),
            Err(error) => Brought::Nothing {
                sent: keywheel_provider::Sent::Maybe,
                status: Some(status),
                reason: error.to_string(),
            },
        }
    }

    fn is_repeatable(&self) -> bool {
        self.repeatable
    }
}
