//! One request for the vectors of several texts.

use std::sync::Arc;

use keywheel_core::{Usage, estimate};
use keywheel_pool::Ask;
use keywheel_provider::{
    WireResponse,
    api::{BatchEmbedResponse, EmbedRequest},
    upstream::{Call, CallError, Upstream},
};

use super::Settings;
use crate::{
    attempt::work::{Brought, Sight, Work},
    charging::Bill,
};

/// One request for the vectors of several texts.
pub(super) struct Batch {
    pub(super) texts: Vec<Arc<str>>,
    pub(super) settings: Settings,
    /// As how many requests it counts.
    pub(super) requests: u32,
}

impl Work for Batch {
    type Answer = BatchEmbedResponse;

    fn ask(&self, model: &Arc<str>) -> Ask {
        let tokens = self.texts.iter().map(|text| estimate::tokens(text)).sum();
        Ask::new(Arc::clone(model)).with_requests(self.requests).with_tokens(tokens)
    }

    fn call(&self, upstream: &Upstream, model: &str) -> Result<Call, CallError> {
        let Settings { task, dimensions, title } = &self.settings;
        let request = |text: &Arc<str>| EmbedRequest {
            task_type: task.clone(),
            title: title.clone(),
            output_dimensionality: *dimensions,
            // A content of its own: several parts in one content make one vector.
            ..EmbedRequest::from(&**text)
        };
        let requests: Vec<_> = self.texts.iter().map(request).collect();
        upstream.provider().embed(model, &requests)
    }

    async fn read(&self, sight: &Sight<'_>, response: WireResponse) -> Brought<Self::Answer> {
        let status = response.status;
        let parse = |body: &[u8]| sight.upstream.provider().read_embeddings(body);
        let is_answer = |answer: &BatchEmbedResponse| {
            !answer.embeddings.is_empty() && !answer.extra.contains_key("error")
        };
        let brought = sight.whole(response, parse, is_answer).await;
        let Brought::Answer(answer) = &brought else { return brought };
        let (asked, came) = (self.texts.len(), answer.embeddings.len());
        if came != asked {
            let reason = format!("{came} vectors came for {asked} texts");
            return Brought::Unreadable { status, reason };
        }
        if answer.embeddings.iter().any(|embedding| embedding.values.is_empty()) {
            let reason = "a vector came without numbers".to_owned();
            return Brought::Unreadable { status, reason };
        }
        if answer.embeddings.windows(2).any(|two| two[0].values.len() != two[1].values.len()) {
            let reason = "the vectors are of different lengths".to_owned();
            return Brought::Unreadable { status, reason };
        }
        brought
    }

    /// Vectors are no output.
    fn bill(&self, ask: &Ask) -> Option<Bill> {
        Some(Bill::input(ask.tokens))
    }

    fn usage(&self, answer: &Self::Answer) -> Option<Usage> {
        answer.usage()
    }
}
