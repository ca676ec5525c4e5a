//! Every kind of call over a real socket: what the simulator in process cannot show is how the wire carries it.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::sync::Arc;

use common::{MODEL, assert_balanced, sim::world, specs};
use keywheel::{
    Content, Gemini, Part, StateLocation, SystemClock, caches::CachedContent, raw::Call,
};
use keywheel_sim::{Fault, SimServer};

const MIB: usize = 1 << 20;

async fn client(sim: &SimServer, keys: usize) -> Gemini {
    Gemini::builder()
        .keys(specs(keys))
        .state(StateLocation::None)
        .base_url(sim.base_url())
        .without_daily_checks()
        .build()
        .await
        .unwrap()
}

#[tokio::test]
async fn every_kind_of_call_works_over_a_socket() {
    let sim = SimServer::start(world(2), Arc::new(SystemClock)).await.unwrap();
    let gemini = client(&sim, 2).await;
    let mut chat = gemini.chat(MODEL);
    chat.send("hi").await.unwrap();
    let mut answer = chat.stream("more").await.unwrap();
    while let Some(part) = answer.next().await {
        part.unwrap();
    }
    drop(answer);
    assert_eq!(chat.history().len(), 4);
    let texts: Vec<_> = (0..250).map(|n| format!("text {n}")).collect();
    let answer = gemini.embed("gemini-embedding-001", &texts).await.unwrap();
    assert_eq!((answer.vectors.len(), answer.requests), (250, 250));
    assert!(gemini.count_tokens(MODEL, "hello world").await.unwrap().total_tokens > 0);
    assert_eq!(gemini.models().await.unwrap().len(), 2);
    assert_eq!(gemini.send(Call::get(format!("models/{MODEL}"))).await.unwrap().status, 200);
    assert_balanced(&gemini);
}

#[tokio::test]
async fn a_file_goes_over_a_socket_that_breaks_and_is_used_and_deleted() {
    let sim = SimServer::start(world(2), Arc::new(SystemClock)).await.unwrap();
    let gemini = client(&sim, 2).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk.bin");
    std::fs::write(&path, vec![7; 20 * MIB]).unwrap();
    let world = sim.world().clone();
    let mut broken = false;
    let upload = gemini.files().upload(&*path, "application/octet-stream");
    let upload = upload.progress(move |_, _| {
        if !broken {
            // The chunk after the first one arrives by half.
            broken = true;
            world.with(|world| world.force(Fault::Broken, 1));
        }
    });
    let file = upload.await.unwrap();
    assert_eq!(file.size_bytes, Some(20 << 20));
    let reader = tokio::fs::File::open(&path).await.unwrap();
    let source = keywheel::files::Source::reader(reader, 20 << 20);
    let name = file.name.clone().unwrap();
    let second =
        gemini.files().upload(source, "application/octet-stream").beside(&*name).await.unwrap();
    let parts = [file.to_part().unwrap(), second.to_part().unwrap(), Part::from_text("Look")];
    gemini.generate(MODEL, Content::user(parts)).await.unwrap();
    assert_eq!(gemini.files().list().await.unwrap().len(), 2);
    gemini.files().delete(&name).await.unwrap();
    assert_eq!(gemini.files().list().await.unwrap().len(), 1);
    let cache = CachedContent::new(MODEL, ["a long book ".repeat(2_000)]);
    let cache = gemini.caches().create(cache).await.unwrap();
    let mut request = keywheel::GenerateRequest::from("Who did it?");
    request.cached_content = cache.name;
    gemini.generate(MODEL, request).await.unwrap();
    assert_balanced(&gemini);
}
