//! What a request's JSON asks for and weighs, in one pass and in little memory, whatever its size.
//!
//! Parsing a body of 100 MB into values takes several times as much memory. A [`Sketch`] keeps a few numbers, names and
//! places of it; the places allow changing one field and leaving every other byte as it was.
//!
//! | to know | look in |
//! |---|---|
//! | how JSON is read from pieces | `lexer.rs` |
//! | what a value means by its place, in each API | `place.rs` |
//! | how it is walked through | `walk.rs` |
//! | what a part, a tool, a text weighs | `frame.rs`, `feed.rs` |

mod feed;
mod frame;
mod lexer;
mod place;
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
/// assert!((4..10).contains(&sketch.input_tokens));
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
    /// The longest answer that is allowed, in tokens.
    pub max_output: Option<u64>,
    /// How many answers are asked for; at least 1.
    pub candidates: u64,
    /// Tools are offered whose quota is the provider's own: anything but plain functions.
    pub uses_tools: bool,
    /// Tools are offered that read as much as they like, or an earlier conversation is read again: the input is not
    /// bounded by the request.
    pub reads: bool,
    /// What it builds on that belongs to one quota project: `files/…`, `cachedContents/…`, `interactions/…`; sorted.
    pub names: Vec<String>,
    /// The cache it builds on.
    pub cached_content: Option<String>,
    /// How many texts are to become vectors.
    pub texts: Option<usize>,
    /// It asks for a stream.
    pub stream: bool,
    /// It asks to be worked on in the background.
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
    /// One that is no JSON object is left alone.
    #[must_use]
    pub fn with_max_output(&self, body: &Body, tokens: u64) -> Body {
        let spots = &self.spots;
        let Some((root, is_empty)) = spots.root.filter(|_| self.is_json) else {
            return body.clone();
        };
        if !spots.limits.is_empty() {
            // From the last to the first, so that the places still hold.
            let in_order = spots.limits.iter().rev();
            return in_order
                .fold(body.clone(), |body, at| body.splice(at.clone(), tokens.to_string()));
        }
        let name = self.shape.limit(spots.is_response);
        let Some(config) = self.shape.config() else {
            return insert(body, root, is_empty, format!("\"{name}\":{tokens}"));
        };
        match (&spots.config, &spots.no_config) {
            (Some((at, is_empty)), _) => {
                insert(body, *at, *is_empty, format!("\"{name}\":{tokens}"))
            }
            (None, Some(null)) => body.splice(null.clone(), format!("{{\"{name}\":{tokens}}}")),
            (None, None) => {
                insert(body, root, is_empty, format!("\"{config}\":{{\"{name}\":{tokens}}}"))
            }
        }
    }

    /// `body`, of which this is the sketch, asking `model`, and every other byte as it was. Without a model in it, it is
    /// left alone.
    #[must_use]
    pub fn with_model(&self, body: &Body, model: &str) -> Body {
        let Some(at) = self.spots.model.clone().filter(|_| self.is_json) else {
            return body.clone();
        };
        body.splice(at, serde_json::Value::from(model).to_string())
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
        self.input_tokens = text.tokens();
    }
}

/// What was found where.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Spots {
    /// Behind the brace that opens the request, and whether nothing is in it.
    root: Option<(u64, bool)>,
    /// The same of its generation config.
    config: Option<(u64, bool)>,
    /// A generation config that is `null`.
    no_config: Option<Range<u64>>,
    /// The values of the fields that limit the answer.
    limits: Vec<Range<u64>>,
    /// The model's name with its quotes.
    model: Option<Range<u64>>,
    /// It is a request of OpenAI's Responses.
    is_response: bool,
}

impl Shape {
    /// Gemini's own.
    const fn is_gemini(self) -> bool {
        matches!(self, Self::Generate | Self::CountTokens | Self::Embed | Self::BatchEmbed)
    }

    /// The object that holds the limit of the answer, if it is not the request itself.
    const fn config(self) -> Option<&'static str> {
        match self {
            Self::Interaction => Some("generation_config"),
            Self::Chat | Self::Other | Self::Embeddings => None,
            _ => Some("generationConfig"),
        }
    }

    /// The field that limits the answer. Of OpenAI's, the one that nearly all servers know.
    const fn limit(self, is_response: bool) -> &'static str {
        match self {
            Self::Interaction => "max_output_tokens",
            Self::Chat if is_response => "max_output_tokens",
            Self::Chat | Self::Other | Self::Embeddings => "max_tokens",
            _ => "maxOutputTokens",
        }
    }
}

/// Puts `field` at the front of an object.
fn insert(body: &Body, at: u64, is_empty: bool, mut field: String) -> Body {
    if !is_empty {
        field.push(',');
    }
    body.splice(at..at, field)
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
