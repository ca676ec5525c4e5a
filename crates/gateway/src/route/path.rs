//! From the segments of a path to a route.

use std::borrow::Cow;

use http::Method;

use super::{Dialect, Kind, Route, Version, bad};
use crate::refusal::{Reason, Refusal};

/// More segments than any route of the API has.
const MOST_SEGMENTS: usize = 16;

/// No name in the API comes near.
const LONGEST_SEGMENT: usize = 256;

/// What OpenAI's clients ask for, right below the base URL. `models` is in both dialects.
const OPENAI_ROUTES: [&str; 7] =
    ["chat", "embeddings", "completions", "responses", "images", "videos", "audio"];

/// Where clients speak to models over a web socket.
const LIVE: &str = "google.ai.generativelanguage.";

/// The segments of `path`, decoded once, each of them harmless.
///
/// An encoded colon is one: it is what some HTTP clients make of `x:generateContent`. An encoded slash is none: it would
/// be a slash to some of those on the way, and part of a name to others.
pub(super) fn segments(path: &str) -> Result<Vec<Cow<'_, str>>, Refusal> {
    let path = path.strip_prefix('/').ok_or_else(|| bad("the path must begin with a slash"))?;
    // The base URL of some clients ends in a slash, and so does what they ask for.
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.is_empty() {
        return Err(unknown());
    }
    let segments: Vec<_> = path.split('/').map(segment).collect::<Result<_, _>>()?;
    if segments.len() > MOST_SEGMENTS {
        return Err(bad("the path has more parts than any route"));
    }
    Ok(segments)
}

fn segment(text: &str) -> Result<Cow<'_, str>, Refusal> {
    if text.len() > 3 * LONGEST_SEGMENT {
        return Err(bad("a part of the path is too long"));
    }
    let decoded = super::query::decode(text, false)
        .ok_or_else(|| bad("the path has an escape that is none, or is no text"))?;
    if decoded.is_empty() {
        return Err(bad("the path has two slashes in a row; does the base URL end in one?"));
    }
    if decoded.bytes().all(|byte| byte == b'.') {
        return Err(bad("the path has a part of dots, which leads elsewhere"));
    }
    let safe = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b':');
    if !decoded.bytes().all(safe) || decoded.len() > LONGEST_SEGMENT {
        return Err(bad(
            "the path has a character, encoded or not, that no route has: letters, digits and - . _ ~ : are allowed",
        ));
    }
    Ok(decoded)
}

/// The route of these segments. `here` says how the client calls the gateway, for what it is told of a slip.
pub(super) fn route(
    method: &Method,
    segments: &[Cow<'_, str>],
    query: Vec<(String, String)>,
    upstream: Dialect,
    here: impl FnOnce() -> String,
) -> Result<Route, Refusal> {
    let mut rest: Vec<&str> = segments.iter().map(|segment| &**segment).collect();
    let mut project = None;
    if rest.first() == Some(&"p") {
        let name = rest.get(1).ok_or_else(unknown)?;
        project = Some((*name).to_owned());
        rest.drain(..2);
    }
    if rest.first() == Some(&"ws") {
        let known = rest.get(1).is_some_and(|name| name.starts_with(LIVE)) && rest.len() == 2;
        let mut route = empty(method, query, project);
        route.kind = Kind::Live;
        route.path = rest[1..].join("/");
        return if known { Ok(route) } else { Err(unknown()) };
    }
    let is_upload = rest.first() == Some(&"upload");
    let is_download = rest.first() == Some(&"download");
    if is_upload || is_download {
        rest.remove(0);
    }
    let version = rest.first().and_then(|first| Version::named(first));
    if version.is_some() {
        rest.remove(0);
    }
    if rest.is_empty() {
        return Err(unknown());
    }
    if let Some(slip) = slip(&rest, version.is_some(), upstream) {
        return Err(slip.refusal(project.as_deref(), &here()));
    }
    let mut route = empty(method, query, project);
    route.version = version;
    (route.is_upload, route.is_download) = (is_upload, is_download);
    if is_upload || is_download {
        return if upstream == Dialect::Native { native(route, &rest) } else { Err(unknown()) };
    }
    let under_openai = rest[0] == "openai";
    if under_openai {
        rest.remove(0);
    }
    let first = rest.first().copied().ok_or_else(unknown)?;
    if under_openai || upstream == Dialect::OpenAi || OPENAI_ROUTES.contains(&first) {
        return openai(route, &rest, upstream);
    }
    native(route, &rest)
}

/// What people get wrong when they point a client here. Google would answer 404 to each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slip {
    /// The client puts a version behind the base URL, which has one already: of a client of Gemini's, and of OpenAI's.
    Version(Dialect),
    /// A client of Gemini's has the base URL of OpenAI's.
    OtherDialect,
    /// OpenAI's Responses, which Google has not.
    Responses,
}

/// The slip in what stands behind the version, if there is one there.
fn slip(rest: &[&str], has_version: bool, upstream: Dialect) -> Option<Slip> {
    let is_version = |segment: &&str| Version::named(segment).is_some();
    let (is_openai, rest) = match rest {
        ["openai", below @ ..] => (true, below),
        _ => (false, rest),
    };
    let first = rest.first()?;
    let below = rest.iter().find(|segment| !is_version(segment)).copied().unwrap_or_default();
    let speaks = match below {
        "openai" => Dialect::OpenAi,
        _ if OPENAI_ROUTES.contains(&below) => Dialect::OpenAi,
        // Both have it; under `/openai/` it is OpenAI's.
        "models" if is_openai && !rest.iter().any(|segment| segment.contains(':')) => {
            Dialect::OpenAi
        }
        _ if upstream == Dialect::OpenAi => Dialect::OpenAi,
        _ => Dialect::Native,
    };
    if is_version(first) && (has_version || is_openai) {
        let of_gemini = is_openai && speaks == Dialect::Native;
        return Some(if of_gemini { Slip::OtherDialect } else { Slip::Version(speaks) });
    }
    // What is put in front of the version, for uploads.
    if has_version && matches!(*first, "upload" | "download") && rest.get(1).is_some_and(is_version)
    {
        return Some(Slip::Version(Dialect::Native));
    }
    (*first == "responses" && upstream == Dialect::Native).then_some(Slip::Responses)
}

impl Slip {
    fn refusal(self, project: Option<&str>, here: &str) -> Refusal {
        let project = project.map(|name| format!("/p/{name}")).unwrap_or_default();
        let told = match self {
            Self::Version(Dialect::Native) => {
                format!("the base URL has a version too many: use {here}{project}")
            }
            Self::Version(Dialect::OpenAi) => {
                format!("the base URL has a version too many: use {here}{project}/v1beta/openai/")
            }
            Self::OtherDialect => format!(
                "the base URL is that of OpenAI's clients: for Gemini's use {here}{project}"
            ),
            Self::Responses => {
                "/responses is not part of Google's OpenAI layer; use chat/completions".to_owned()
            }
        };
        Refusal::new(Reason::UnknownRoute, told).should_retry(false)
    }
}

fn openai(mut route: Route, rest: &[&str], upstream: Dialect) -> Result<Route, Refusal> {
    route.dialect = Dialect::OpenAi;
    route.kind = Kind::of_openai(rest[0]);
    if matches!(route.kind, Kind::Files | Kind::Batch) && rest.len() > 1 {
        route.resource = Some(rest[..2].join("/"));
    }
    // A colon there is a verb of Gemini's own API, which the upstream does not speak.
    if upstream == Dialect::OpenAi && rest.iter().any(|segment| segment.contains(':')) {
        return Err(Refusal::new(
            Reason::UnknownRoute,
            "the upstream of this gateway speaks OpenAI's dialect only",
        )
        .should_retry(false));
    }
    match upstream {
        // Its base URL holds the version.
        Dialect::OpenAi => {
            route.version = None;
            route.path = rest.join("/");
        }
        Dialect::Native => {
            // Google has it in one version only; what clients put in front of it is their habit.
            route.version = Some(Version::V1Beta);
            route.path = format!("openai/{}", rest.join("/"));
        }
    }
    Ok(route)
}

fn native(mut route: Route, rest: &[&str]) -> Result<Route, Refusal> {
    // A verb stands behind the last segment alone.
    let (last, names) = rest.split_last().ok_or_else(unknown)?;
    if names.iter().any(|name| name.contains(':')) {
        return Err(unknown());
    }
    let (name, verb) = last.split_once(':').unwrap_or((last, ""));
    if name.is_empty() || verb.contains(':') || (last.contains(':') && verb.is_empty()) {
        return Err(bad("the verb stands behind the last part's only colon"));
    }
    let verb = Some(verb).filter(|verb| !verb.is_empty());
    route.verb = verb.map(str::to_owned);
    route.path = rest.join("/");
    let collection = rest[0].split(':').next().unwrap_or_default();
    if rest.len() > 1 {
        let id = rest[1].split(':').next().unwrap_or_default();
        route.resource = Some(format!("{collection}/{id}"));
    }
    if route.is_upload {
        route.kind = Kind::Upload;
        return Ok(route);
    }
    if matches!(collection, "models" | "tunedModels") {
        return model(route, rest, verb);
    }
    route.kind = Kind::of_collection(collection);
    if rest.contains(&"auth_tokens") {
        route.kind = Kind::AuthToken;
    }
    Ok(route)
}

/// `models`, `models/x`, `models/x:verb`, `models/x/operations/y`.
fn model(mut route: Route, rest: &[&str], verb: Option<&str>) -> Result<Route, Refusal> {
    // Everybody's models are nobody's resource.
    route.resource = None;
    let is_read = route.method == Method::GET;
    let Some(name) = rest.get(1) else {
        route.kind = if verb.is_none() && is_read { Kind::Models } else { Kind::Other };
        return Ok(route);
    };
    let name = name.split(':').next().unwrap_or_default();
    let model = if rest[0] == "models" { name.to_owned() } else { format!("{}/{name}", rest[0]) };
    route.kind = match (rest.get(2), verb) {
        (Some(&"operations"), _) => {
            route.resource = Some(rest[..rest.len().min(4)].join("/"));
            Kind::Operations
        }
        (Some(_), _) => Kind::Other,
        (None, Some(verb)) => Kind::of_verb(verb),
        (None, None) if is_read => Kind::Models,
        (None, None) => Kind::Other,
    };
    route.model = Some(model);
    Ok(route)
}

fn empty(method: &Method, query: Vec<(String, String)>, project: Option<String>) -> Route {
    Route {
        dialect: Dialect::Native,
        project,
        version: None,
        is_upload: false,
        is_download: false,
        kind: Kind::Other,
        method: method.clone(),
        model: None,
        verb: None,
        resource: None,
        path: String::new(),
        query,
    }
}

fn unknown() -> Refusal {
    Refusal::new(
        Reason::UnknownRoute,
        "there is no such route; the base URL for clients is this address, or this address with /v1beta/openai/",
    )
    .should_retry(false)
}
