//! The pages of a list: read once each, and not without end.

use std::collections::HashSet;

use crate::Error;

/// The most pages of a list that are read. Google's list of models has one of a hundred.
const MOST_PAGES: usize = 1_000;

/// The tokens of the pages of one list that were asked for.
#[derive(Debug, Default)]
pub(super) struct Pages {
    seen: HashSet<String>,
}

impl Pages {
    /// The page after the one just read; `None` at the list's end. A token met before leads round in a circle, all
    /// of which was read by then.
    ///
    /// # Errors
    /// [`Error::Unreadable`] for a list of over a thousand pages.
    pub(super) fn next(&mut self, token: Option<String>) -> Result<Option<String>, Error> {
        let Some(token) = token.filter(|token| !token.is_empty()) else { return Ok(None) };
        if !self.seen.insert(token.clone()) {
            return Ok(None);
        }
        if self.seen.len() >= MOST_PAGES {
            let reason = format!("the list has over {MOST_PAGES} pages, each with a next one");
            return Err(Error::Unreadable { reason, attempts: Vec::new() });
        }
        Ok(Some(token))
    }
}
