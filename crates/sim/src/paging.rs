//! Lists that are told page by page.

use serde_json::{Value, json};

use crate::request::SimRequest;

/// The page of a list that a request asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paging<'a> {
    size: usize,
    /// The id that the page begins with.
    token: Option<&'a str>,
}

impl<'a> Paging<'a> {
    /// As `request` has it: of `usual` entries if it does not say, of `most` at most.
    pub(crate) fn asked(request: &'a SimRequest, usual: usize, most: usize) -> Self {
        let size = request.parameter("pageSize").and_then(|size| size.parse().ok());
        Self { size: size.unwrap_or(usual).clamp(1, most), token: request.parameter("pageToken") }
    }

    /// The reply: the page's `entries`, which are in the order of their ids, as `resource` shows them in `field`. A page
    /// without entries has no `field`.
    pub(crate) fn page<'e, T>(
        self,
        field: &str,
        entries: impl Iterator<Item = (&'e String, T)>,
        resource: impl Fn(&'e str, T) -> Value,
    ) -> Value {
        let mut shown =
            entries.skip_while(|(id, _)| self.token.is_some_and(|token| id.as_str() < token));
        let page: Vec<_> =
            shown.by_ref().take(self.size).map(|(id, entry)| resource(id, entry)).collect();
        let mut out = json!({});
        if !page.is_empty() {
            out[field] = page.into();
        }
        if let Some((next, _)) = shown.next() {
            out["nextPageToken"] = next.as_str().into();
        }
        out
    }
}
