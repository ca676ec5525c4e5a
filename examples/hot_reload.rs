//! New keys without a restart: the file with the keys is read again, and keys that stay keep all that is known.
//!
//! `cargo run --example hot_reload`

use std::{fs, time::Duration};

use keywheel::{Error, KeyLoader, KeySpec};
use keywheel_core::ApiKey;
use keywheel_examples::{
    demo::Failure,
    stand::{LITE, Stand},
};
use keywheel_sim::{Limits, ModelConfig, SimConfig};

const OLD: &str = "GEMINI_API_KEY_1=AQ.EXAMPLE-the-old-one\n";
const NEW: &str = "GEMINI_API_KEY_2=AQ.EXAMPLE-the-new-one\n";

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let known = |key| Ok::<_, Failure>(KeySpec::new(ApiKey::new(key)?, key));
    let keys = vec![known("AQ.EXAMPLE-the-old-one")?, known("AQ.EXAMPLE-the-new-one")?];
    let config = SimConfig::new().with_model(LITE, ModelConfig::free(Limits::new().rpd(1)));
    let stand = Stand::with(config, keys).await?;

    let folder = tempfile::tempdir()?;
    let env = folder.path().join(".env");
    fs::write(&env, OLD)?;
    let gemini = stand
        .without_keys()
        .key_loader(KeyLoader::new().dotenv(&env))
        .watch_keys(Duration::from_secs(1))
        .build()
        .await?;
    println!("1: by {}", gemini.generate(LITE, "one").await?.served_by().unwrap_or("nobody"));
    match gemini.generate(LITE, "two").await {
        Err(Error::Exhausted { .. }) => println!("2: the only key is spent"),
        other => return Err(format!("expected a spent day, got {other:?}").into()),
    }

    // A file that makes no sense changes nothing, and the log says why. By hand: `gemini.reload()`.
    fs::write(&env, "GEMINI_API_KEY_1=your-key-here\n")?;
    if let Err(fault) = gemini.reload().await {
        println!("kept the old key: {fault}");
    }

    fs::write(&env, format!("{OLD}{NEW}"))?;
    while gemini.status().keys.len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("3: by {}", gemini.generate(LITE, "three").await?.served_by().unwrap_or("nobody"));
    Ok(())
}
