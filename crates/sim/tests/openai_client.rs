//! The simulator's OpenAI-style faces, asked and read by the provider crate as a client would.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;

use std::sync::Arc;

use common::{MODEL, config, key};
use futures_util::StreamExt as _;
use keywheel_core::{Cause, Dimension, ManualClock};
use keywheel_provider::{
    Asked, Kind, OpenAiApi, Reply, WireResponse,
    api::{EmbedRequest, FinishReason, GenerateRequest},
    classify::{classify, limits_from_headers},
    stream::GenerateStream,
    upstream::{Call, Upstream},
};
use keywheel_sim::{Face, Limits, ModelConfig, SimTransport};

const EMBEDDER: &str = "gemini-embedding-001";

/// The simulator behind both faces: Google's layer, and a provider of its own.
fn faces(limits: Limits) -> [Upstream; 2] {
    let google = "https://generativelanguage.googleapis.com/v1beta/openai";
    let groq = "https://api.groq.com/openai/v1";
    [(Face::default(), google, OpenAiApi::google()), (Face::OpenAi, groq, OpenAiApi::new())].map(
        |(face, base, provider)| {
            let clock = ManualClock::at("2026-11-30T07:00:00Z".parse().unwrap());
            let config = config(limits)
                .with_model(EMBEDDER, ModelConfig::embedding(Limits::new()))
                .with_face(face);
            let transport = SimTransport::new(config, Arc::new(clock)).unwrap();
            Upstream::new(base, Arc::new(transport)).unwrap().with_provider(Arc::new(provider))
        },
    )
}

async fn send(upstream: &Upstream, call: &Call) -> WireResponse {
    upstream.call(&key(1), call).await.unwrap()
}

async fn body(response: WireResponse) -> Vec<u8> {
    response.bytes(1 << 20).await.unwrap().to_vec()
}

#[tokio::test]
async fn answers_are_read_whole_and_streamed() {
    let request = GenerateRequest::from("Say hello").with_system("Be brief");
    for upstream in faces(Limits::new()) {
        let provider = upstream.provider();
        let call = provider.generate(MODEL, &request).unwrap();
        let answer = provider.read_answer(&body(send(&upstream, &call).await).await).unwrap();
        assert!(!answer.text().is_empty());
        assert_eq!(answer.finish_reason(), Some(FinishReason::Stop));
        assert!(answer.usage().unwrap().total > 0);

        let call = provider.stream(MODEL, &request).unwrap();
        let mut events = GenerateStream::with(provider, send(&upstream, &call).await);
        let mut said = String::new();
        while let Some(event) = events.next().await {
            said.push_str(&event.unwrap().text());
        }
        assert_eq!(said, answer.text());
        assert_eq!(events.usage(), answer.usage());
    }
}

#[tokio::test]
async fn vectors_and_models_are_read() {
    for upstream in faces(Limits::new()) {
        let provider = upstream.provider();
        let texts: Vec<EmbedRequest> = vec!["a".into(), "b".into()];
        let call = provider.embed(EMBEDDER, &texts).unwrap();
        let vectors = provider.read_embeddings(&body(send(&upstream, &call).await).await).unwrap();
        assert_eq!(vectors.embeddings.len(), 2);
        assert_ne!(vectors.embeddings[0], vectors.embeddings[1]);

        let reply = body(send(&upstream, &provider.models(None)).await).await;
        let models = provider.read_models(&reply).unwrap().models;
        assert!(models.iter().any(|model| model.name == MODEL), "{models:?}");
        let call = provider.model(MODEL).unwrap();
        let model = provider.read_model(&body(send(&upstream, &call).await).await).unwrap();
        assert_eq!(model.name, MODEL);
    }
}

#[tokio::test]
async fn a_spent_quota_is_understood_and_its_limit_learned() {
    for upstream in faces(Limits::new().rpm(1)) {
        let call = upstream.provider().generate(MODEL, &"Say hello".into()).unwrap();
        assert_eq!(send(&upstream, &call).await.status, 200);
        let refused = send(&upstream, &call).await;
        let (status, headers) = (refused.status, refused.headers.clone());
        let body = body(refused).await;
        let now = "2026-11-30T07:00:00Z".parse().unwrap();
        let reply = Reply { status, headers: &headers, body: &body };
        let verdict = classify(upstream.dialect(), &reply, &Asked::default(), now);
        assert_eq!(verdict.kind, Kind::Refused(Cause::PerMinuteRequests), "{:?}", verdict.evidence);
        let learned = verdict.limits.iter().find(|limit| limit.dimension == Dimension::Rpm);
        assert_eq!(learned.map(|limit| limit.value), Some(1));
        let told = limits_from_headers(upstream.dialect(), &headers, now);
        assert!(told.iter().all(|limit| limit.dimension != Dimension::Rpd), "{told:?}");
    }
}
