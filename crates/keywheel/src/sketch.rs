//! What a request's JSON asks for and weighs, in one pass and in little memory, whatever its size.
//!
//! Parsing a body of 100 MB into values takes several times as much memory. A [`Sketch`] keeps a few numbers, names and
//! places of it; the places allow changing one field and leaving every other byte as it was.
//!
//! | to know | look in |
//! |---|---|
//! | how JSON is read from pieces | `lexer.rs` |
//! | what a value means by its place, in each API | `place.rs` |
//! | and by its kind | `value.rs` |
//! | how it is walked through | `walk.rs` |
//! | what a part, a tool, a text weighs | `frame.rs`, `feed.rs` |

mod feed;
mod frame;
mod lexer;
mod place;
mod value;
mod walk;

use std::{
    io::{self, Read as _},
    ops::Range,
};

use keywheel_provider::Body;

use self::{feed::Feed, walk::Walk};

/// Whose request it is: what its fields mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Shape {
    /// Gemini's `generateContent` and `streamGenerateContent`.
    Generate,
    /// Gemini's `countTokens`.
    CountTokens,
    /// Gemini's `embedContent`.
    Embed,
    /// Gemini's `batchEmbedContents`.
    BatchEmbed,
    /// OpenAI's chat completions, completions and responses.
    Chat,
    /// OpenAI's embeddings.
    Embeddings,
    /// Google's Interactions.
    Interaction,
    /// Anything else: weighed as the text that it is.
    #[default]
    Other,
}

impl Shape {
    /// Each of them, for tests that try them all.
    #[doc(hidden)]
    pub const ALL: &[Self] = &[
        Self::Generate,
        Self::CountTokens,
        Self::Embed,
        Self::BatchEmbed,
        Self::Chat,
        Self::Embeddings,
        Self::Interaction,
        Self::Other,
    ];
}

/// What a request's JSON asks for and weighs.
///
/// Both spellings of Gemini's fields count, `maxOutputTokens` and `max_output_tokens`, and numbers in strings. What is no
/// JSON is weighed as text: Google's servers read some of it all the same.
///
/// ```
/// use keywheel::{raw::Body, sketch::{Shape, Sketch}};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let body = Body::from(r#"{ "contents": [{"parts": [{"text": "Say hello"}]}], "tools": [{"url_context": {}}] }"#);
/// let sketch = Sketch::of(Shape::Generate, &body).await?;
/// assert!(sketch.is_json && sketch.reads);
/// assert!((4..20).contains(&sketch.input_tokens));
/// assert_eq!(sketch.max_output, None);
///
/// let bounded = sketch.with_max_output(&body, 512);
/// assert!(bounded.bytes().unwrap().starts_with(br#"{"generationConfig":{"maxOutputTokens":512}, "contents""#));
///
/// let chat = Body::from(r#"{"model":"a","messages":[],"stream":true}"#);
/// let sketch = Sketch::of(Shape::Chat, &chat).await?;
/// assert_eq!((sketch.model.as_deref(), sketch.stream), (Some("a"), true));
/// assert_eq!(sketch.with_model(&chat, "b"), r#"{"model":"b","messages":[],"stream":true}"#);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Sketch {
    /// The model, as it is named.
    pub model: Option<String>,
    /// Input tokens, upper-leaning: text by its characters, media by type and size, tools as text. What files, caches
    /// and tools bring with them is not in it.
    pub input_tokens: u64,
    /// The longest answer that is allowed, in tokens. Zero is none. Of several, the largest; none if only some parsers
    /// would find one.
    pub max_output: Option<u64>,
    /// How many answers are asked for; at least 1.
    pub candidates: u64,
    /// Tools are offered whose quota is the provider's own: anything but plain functions.
    pub uses_tools: bool,
    /// Tools are offered that read as much as they like, an earlier conversation is read again, or it is no JSON: the
    /// input is not bounded by what is seen of the request.
    pub reads: bool,
    /// What it builds on that belongs to one quota project: `files/…`, `cachedContents/…`, `interactions/…`; sorted.
    pub names: Vec<String>,
    /// The cache it builds on.
    pub cached_content: Option<String>,
    /// How many texts are to become vectors.
    pub texts: Option<usize>,
    /// It asks for a stream.
    pub stream: bool,
    /// It asks to be worked on in the background, or by an agent: nobody can tell what it costs.
    pub background: bool,
    /// It is JSON.
    pub is_json: bool,
    shape: Shape,
    spots: Spots,
}

impl Sketch {
    /// Reads `body`: what is in memory at once, a file on a thread that may block.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn of(shape: Shape, body: &Body) -> io::Result<Self> {
        if let Some(bytes) = body.bytes() {
            return Ok(Self::of_pieces(shape, &mut || std::iter::once(&**bytes)));
        }
        let body = body.clone();
        let read = tokio::task::spawn_blocking(move || Self::of_file(shape, &body));
        read.await.unwrap_or_else(|gone| Err(io::Error::other(gone)))
    }

    /// `body`, of which this is the sketch, with the longest answer set to `tokens`, and every other byte as it was.
    /// One that is no JSON object is left alone, and so is one that asks for vectors or a count.
    #[must_use]
    pub fn with_max_output(&self, body: &Body, tokens: u64) -> Body {
        changed(body, self.limiting(tokens))
    }

    /// `body`, of which this is the sketch, asking `model`, and every other byte as it was. Without a model in it, it is
    /// left alone.
    #[must_use]
    pub fn with_model(&self, body: &Body, model: &str) -> Body {
        changed(body, self.naming(model).into_iter().collect())
    }

    /// Both at once: each of them moves the other's place.
    pub(crate) fn with(&self, body: &Body, model: Option<&str>, max_output: Option<u64>) -> Body {
        let naming = model.and_then(|model| self.naming(model));
        let limiting = max_output.map(|tokens| self.limiting(tokens)).unwrap_or_default();
        changed(body, naming.into_iter().chain(limiting).collect())
    }

    /// What `countTokens` is asked, to know what this request to `model` holds; `None`: it is no JSON object.
    pub(crate) fn counting(&self, body: &Body, model: &str) -> Option<Body> {
        let (root, is_empty) = self.spots.root.filter(|_| self.is_json)?;
        let mut edits: Vec<Edit> = self.naming(model).into_iter().collect();
        if edits.is_empty() {
            let model = serde_json::Value::from(model);
            edits.push(insert(root, is_empty, format!("\"model\":{model}")));
        }
        edits.push((0..0, "{\"generateContentRequest\":".to_owned()));
        edits.push((body.len()..body.len(), "}".to_owned()));
        Some(changed(body, edits))
    }

    fn limiting(&self, tokens: u64) -> Vec<Edit> {
        let spots = &self.spots;
        let is_set = self.is_json && !spots.are_too_many;
        let Some((root, is_empty)) = spots.root.filter(|_| is_set) else { return Vec::new() };
        let limits = spots.limits.iter().map(|at| (at.clone(), tokens.to_string()));
        let mut edits: Vec<Edit> = limits.collect();
        let Some((config, name)) = self.shape.limit(spots.is_response) else { return edits };
        let field = format!("\"{name}\":{tokens}");
        let unlimited = spots.configs.iter().filter(|config| !config.is_limited);
        edits.extend(unlimited.map(|config| insert(config.at, config.is_empty, field.clone())));
        let nulls = spots.no_configs.iter();
        edits.extend(nulls.map(|null| (null.clone(), format!("{{{field}}}"))));
        if edits.is_empty() {
            let field = match config {
                Some(config) => format!("\"{config}\":{{{field}}}"),
                None => field,
            };
            edits.push(insert(root, is_empty, field));
        }
        edits
    }

    fn naming(&self, model: &str) -> Option<Edit> {
        let at = self.spots.model.clone().filter(|_| self.is_json)?;
        Some((at, serde_json::Value::from(model).to_string()))
    }

    fn of_file(shape: Shape, body: &Body) -> io::Result<Self> {
        let mut walk = Walk::new(shape);
        let is_json = each_piece(body, |piece| walk.push(piece).is_ok())?;
        let mut sketch = walk.finish();
        if !is_json || !sketch.is_json {
            let mut text = Feed::default();
            each_piece(body, |piece| {
                text.push(piece);
                true
            })?;
            sketch.is_but_text(text);
        }
        Ok(sketch)
    }

    fn of_pieces<'a, I: Iterator<Item = &'a [u8]>>(
        shape: Shape,
        pieces: &mut impl FnMut() -> I,
    ) -> Self {
        let mut walk = Walk::new(shape);
        let is_json = pieces().all(|piece| walk.push(piece).is_ok());
        let mut sketch = walk.finish();
        if !is_json || !sketch.is_json {
            let mut text = Feed::default();
            pieces().for_each(|piece| text.push(piece));
            sketch.is_but_text(text);
        }
        sketch
    }

    fn is_but_text(&mut self, text: Feed) {
        self.is_json = false;
        // Compressed, or in words of another format: nobody knows how much is in it, and what it offers.
        self.reads = true;
        self.max_output = None;
        self.input_tokens = text.tokens();
    }
}

/// What was found where.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Spots {
    /// Behind the brace that opens the request, and whether nothing is in it.
    root: Option<(u64, bool)>,
    /// Its generation config; each of them, if there are more.
    configs: Vec<Config>,
    /// Generation configs that are `null`.
    no_configs: Vec<Range<u64>>,
    /// The values of the fields that limit the answer.
    limits: Vec<Range<u64>>,
    /// There are more places of a limit than are kept.
    are_too_many: bool,
    /// The model's name with its quotes.
    model: Option<Range<u64>>,
    /// It is a request of OpenAI's Responses.
    is_response: bool,
}

/// A generation config.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Config {
    /// Behind its brace.
    at: u64,
    is_empty: bool,
    /// It has a field that limits the answer.
    is_limited: bool,
}

impl Shape {
    /// Gemini's own.
    const fn is_gemini(self) -> bool {
        matches!(self, Self::Generate | Self::CountTokens | Self::Embed | Self::BatchEmbed)
    }

    /// The field that limits the answer, and the object that holds it, if it is not the request itself. Of OpenAI's, the
    /// one that nearly all servers know. `None` where there is no answer, or nobody knows.
    const fn limit(self, is_response: bool) -> Option<(Option<&'static str>, &'static str)> {
        match self {
            Self::Generate => Some((Some("generationConfig"), "maxOutputTokens")),
            Self::Interaction => Some((Some("generation_config"), "max_output_tokens")),
            Self::Chat if is_response => Some((None, "max_output_tokens")),
            Self::Chat => Some((None, "max_tokens")),
            _ => None,
        }
    }
}

/// Bytes, and what takes their place.
type Edit = (Range<u64>, String);

/// Puts `field` at the front of an object.
fn insert(at: u64, is_empty: bool, mut field: String) -> Edit {
    if !is_empty {
        field.push(',');
    }
    (at..at, field)
}

/// From the last place to the first, so that the places still hold.
fn changed(body: &Body, mut edits: Vec<Edit>) -> Body {
    edits.sort_by_key(|(at, _)| std::cmp::Reverse(at.start));
    edits.into_iter().fold(body.clone(), |body, (at, with)| body.splice(at, with))
}

/// Reads `body` in pieces until one is refused; whether none was.
fn each_piece(body: &Body, mut take: impl FnMut(&[u8]) -> bool) -> io::Result<bool> {
    let mut buffer = vec![0; 64 << 10];
    let mut reader = body.reader();
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(true),
            Ok(length) if take(&buffer[..length]) => {}
            Ok(_) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
