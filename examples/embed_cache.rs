//! Embeddings that are not asked for twice: each text of a batch is a request of the quota.
//!
//! `cargo run --example embed_cache`

use keywheel::embed_cache::EmbedCacheConfig;
use keywheel_examples::{
    demo::Failure,
    stand::{EMBEDDING, Stand},
};
use keywheel_sim::Limits;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let stand = Stand::start(2, |_| Limits::new().rpm(100).rpd(1_000)).await?;
    let gemini = stand.client().embed_cache(EmbedCacheConfig::default()).build().await?;

    let notes: Vec<String> = (1..=150).map(|number| format!("Note {number}")).collect();
    let first = gemini.embed(EMBEDDING, &notes).dimensions(256).await?;
    println!("{} vectors took {} requests", first.vectors.len(), first.requests);

    // Ten more of them: only those are asked for.
    let more: Vec<String> = (1..=160).map(|number| format!("Note {number}")).collect();
    let second = gemini.embed(EMBEDDING, &more).dimensions(256).await?;
    println!("then {} requests, {} from the cache", second.requests, second.cache_hits);
    assert_eq!(first.vectors[..], second.vectors[..150]);

    // Another length is another vector.
    let longer = gemini.embed(EMBEDDING, "Note 1").dimensions(512).await?;
    println!("another length: {} request", longer.requests);

    let closest = nearest(&second.vectors[0], &second.vectors[1..]);
    println!("closest to the first note: {}", closest.map_or("none", |at| &more[at + 1]));
    println!("{:?}", gemini.embed_cache_stats().ok_or("there is a cache")?);
    Ok(())
}

/// The vector with the smallest angle to `to`.
fn nearest(to: &[f32], among: &[Vec<f32>]) -> Option<usize> {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let cosine = |it: &[f32]| dot(to, it) / (dot(to, to) * dot(it, it)).sqrt();
    let closer = |&a: &usize, &b: &usize| cosine(&among[a]).total_cmp(&cosine(&among[b]));
    (0..among.len()).max_by(closer)
}
