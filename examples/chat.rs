//! A conversation on the terminal: streamed answers, remembered turns, and a history that can be saved.
//!
//! `cargo run --example chat` reads what you say line by line. `-- --save FILE` goes on there next time.

use std::{
    io::{BufRead as _, Write as _},
    path::PathBuf,
};

use clap::Parser;
use keywheel::{Content, Error};
use keywheel_examples::{
    demo::Failure,
    show,
    stand::{LITE, Stand},
};
use keywheel_sim::Limits;

#[derive(Parser)]
struct Args {
    /// Where the conversation is kept between runs.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let args = Args::parse();
    let stand = Stand::start(2, |_| Limits::new().rpd(3)).await?;
    let gemini = stand.client().build().await?;
    let history: Vec<Content> = match &args.save {
        Some(file) if file.exists() => serde_json::from_slice(&std::fs::read(file)?)?,
        _ => Vec::new(),
    };
    let mut chat = gemini.chat(LITE).with_system("Be brief.").with_history(history);

    for line in std::io::stdin().lock().lines() {
        let mut stream = match chat.stream(line?).await {
            Ok(stream) => stream,
            // What was said is not in the history: it can be said again later.
            Err(Error::Exhausted { exhausted, .. }) => {
                let at = exhausted.soonest.map_or_else(String::new, show::moment);
                println!("(resting until {at})");
                break;
            }
            Err(error) => return Err(error.into()),
        };
        while let Some(part) = stream.next().await {
            print!("{}", part?.text());
            std::io::stdout().flush()?;
        }
        println!();
    }
    println!("({} messages)", chat.history().len());
    match args.save {
        Some(file) => std::fs::write(file, serde_json::to_vec_pretty(chat.history())?)?,
        None => println!("(forgotten now; `-- --save chat.json` keeps them and goes on next time)"),
    }
    Ok(())
}
