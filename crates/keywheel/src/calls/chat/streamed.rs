//! An answer in a conversation, part by part.

use std::{
    fmt,
    ops::Deref,
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::{Stream, StreamExt};
use keywheel_provider::api::{Content, GenerateResponse, Part};
use serde::de::IgnoredAny;

use super::{Chat, says_something};
use crate::{Error, GeminiStream};

/// The parts of a streamed answer in a [`Chat`].
///
/// Read to its end, it puts both sides of the exchange into the history. Dropped before, or broken, it leaves the
/// history as it was: a function call of an answer that was cut is in no history, and is not to be answered.
///
/// Dereferences to the [`GeminiStream`], for its model, usage and attempts.
///
/// # Cancel safety
/// As [`GeminiStream`].
pub struct ChatStream<'a> {
    chat: &'a mut Chat,
    /// What was said; `None` once the exchange is remembered.
    message: Option<Content>,
    events: GeminiStream,
    answer: Vec<Part>,
    /// Text that came in pieces after the last of those, and becomes one part.
    text: String,
}

impl<'a> ChatStream<'a> {
    pub(super) const fn new(chat: &'a mut Chat, message: Content, events: GeminiStream) -> Self {
        Self { chat, message: Some(message), events, answer: Vec::new(), text: String::new() }
    }

    /// The next part; `None` after a whole answer, which is in the history then.
    ///
    /// # Errors
    /// As [`GeminiStream::next`].
    ///
    /// # Cancel safety
    /// As [`GeminiStream::next`].
    pub async fn next(&mut self) -> Option<Result<GenerateResponse, Error>> {
        StreamExt::next(self).await
    }

    /// Reads to the end and returns the whole text, thoughts excluded.
    ///
    /// # Errors
    /// As [`GeminiStream::next`]: a broken answer is an error, not a shorter text.
    ///
    /// # Cancel safety
    /// Dropping the future loses the text that it has read, but not what the history will hold.
    pub async fn text(&mut self) -> Result<String, Error> {
        let mut text = String::new();
        while let Some(part) = self.next().await {
            text.push_str(&part?.text());
        }
        Ok(text)
    }
}

impl ChatStream<'_> {
    /// Adds a part to the answer. Texts that came in pieces become one; what holds anything else, such as a signature,
    /// is kept byte for byte.
    fn take(&mut self, part: &Part) {
        if let Some(text) = plain(part) {
            return self.text.push_str(text);
        }
        if says_something(part) {
            self.end_text();
            self.answer.push(part.clone());
        }
    }

    fn end_text(&mut self) {
        if !self.text.is_empty() {
            self.answer.push(Part::from_text(std::mem::take(&mut self.text)));
        }
    }
}

impl Stream for ChatStream<'_> {
    type Item = Result<GenerateResponse, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let event = std::task::ready!(this.events.poll_next_unpin(cx));
        match &event {
            Some(Ok(event)) => {
                let parts = event.content().into_iter().flat_map(|content| &content.parts);
                parts.for_each(|part| this.take(part));
            }
            Some(Err(_)) => this.message = None,
            None => {
                if let Some(message) = this.message.take()
                    && this.events.degraded().is_none()
                {
                    this.end_text();
                    let answer = Content::model(std::mem::take(&mut this.answer));
                    this.chat.remember(vec![message], Some(&answer));
                }
            }
        }
        Poll::Ready(event)
    }
}

impl Deref for ChatStream<'_> {
    type Target = GeminiStream;

    fn deref(&self) -> &GeminiStream {
        &self.events
    }
}

impl fmt::Debug for ChatStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatStream").field("events", &self.events).finish_non_exhaustive()
    }
}

/// The text of a part that has nothing else.
fn plain(part: &Part) -> Option<&str> {
    let fields: std::collections::BTreeMap<String, IgnoredAny> = part.json().parse().ok()?;
    part.text().filter(|_| fields.len() == 1)
}
