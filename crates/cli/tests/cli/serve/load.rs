//! Clients of a gateway.

use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::Gateway;
use crate::common::MODEL;

/// How many requests are under way at once.
const AT_ONCE: usize = 20;

/// A client with one token.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    token: String,
}

/// What it got; status 0: no answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Client {
    pub(crate) fn new(gateway: &Gateway, token: &str) -> Self {
        let url = format!("{}/v1beta/models/{MODEL}:generateContent", gateway.base());
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { http, url, token: token.to_owned() }
    }

    pub(crate) async fn ask(&self, question: &str) -> Answer {
        self.ask_for(question, 64).await
    }

    pub(crate) async fn ask_for(&self, question: &str, tokens: u64) -> Answer {
        let body = json!({
            "contents": [{"role": "user", "parts": [{"text": question}]}],
            "generationConfig": {"maxOutputTokens": tokens},
        });
        let request = self.http.post(&self.url).header("x-goog-api-key", &self.token);
        let request = request.header("content-type", "application/json").body(body.to_string());
        let Ok(response) = request.send().await else {
            return Answer { status: 0, body: String::new() };
        };
        let status = response.status().as_u16();
        match response.text().await {
            Ok(body) => Answer { status, body },
            Err(_) => Answer { status: 0, body: String::new() },
        }
    }

    /// So many requests, twenty at a time.
    pub(crate) async fn many(self, count: usize) -> Vec<Answer> {
        let ask = |number: usize| {
            let client = self.clone();
            async move { client.ask(&format!("Say {number}")).await }
        };
        stream::iter(0..count).map(ask).buffer_unordered(AT_ONCE).collect().await
    }
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        body["candidates"][0]["content"]["parts"][0]["text"].as_str().unwrap_or_default().to_owned()
    }
}
