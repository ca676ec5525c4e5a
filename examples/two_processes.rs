//! Two processes, one state file: neither loses what the other learned, and nothing is counted twice.
//!
//! The program starts itself twice. The children take turns by chance; between them each limit is met once.

use std::{path::Path, process::Stdio};

use keywheel::{Error, Gemini};
use keywheel_examples::demo::{self, Failure, MODEL};
use tokio::process::{Child, Command};

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [name, base_url, state] => child(name, base_url, Path::new(state)).await,
        _ => parent().await,
    }
}

async fn parent() -> Result<(), Failure> {
    let server = demo::start().await?;
    let folder = tempfile::tempdir()?;
    let state = folder.path().join("pool.json");
    let start = |name: &str| -> std::io::Result<Child> {
        Command::new(std::env::current_exe()?)
            .args([name, &server.base_url()])
            .arg(&state)
            .stdout(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
    };
    let (mut first, mut second) = (start("first")?, start("second")?);
    let (first, second) = (first.wait().await?, second.wait().await?);
    if !first.success() || !second.success() {
        return Err("a child failed".into());
    }

    let served = demo::served(&server);
    let counted = demo::counted_in(&state)?;
    println!("the simulator served {served} calls, the state file counts {counted}");
    println!("refused in all: {}", demo::refused(&server));
    if served == counted { Ok(()) } else { Err("the state file lost or doubled a call".into()) }
}

async fn child(name: &str, base_url: &str, state: &Path) -> Result<(), Failure> {
    let gemini =
        Gemini::builder().keys(demo::keys()?).state_file(state).base_url(base_url).build().await?;
    let mut served = 0;
    let spent = loop {
        match gemini.generate(MODEL, format!("call {served} of the {name} process")).await {
            Ok(_) => served += 1,
            Err(Error::Exhausted { exhausted, .. }) => break exhausted,
            Err(other) => return Err(other.into()),
        }
    };
    gemini.flush().await?;
    println!("the {name} process got {served} answers; {} buckets are spent", spent.reasons.len());
    Ok(())
}
