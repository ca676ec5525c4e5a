//! `keywheel ask`: one question, its answer as it comes.

use std::io::{self, IsTerminal as _, Read as _};

use keywheel::{Attempt, FinishReason, Gemini, GeminiStream, GenerateRequest, Usage};
use serde::Serialize;

use crate::{
    exit::Exit,
    fault::Fault,
    output::{self, say},
    settings::{Settings, describe},
};

/// The model that is asked unless another one is named: it has the largest free quota
/// (`docs/measured-constraints.md`).
const MODEL: &str = "gemini-3.5-flash-lite";

/// What `ask` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The question; `-` or none reads it from standard input.
    question: Option<String>,
    /// The model to ask.
    #[arg(long, short, env = "KEYWHEEL_MODEL", default_value = MODEL)]
    model: String,
    /// The system instruction: what the model is told beforehand.
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// The answer is no longer than this, in tokens.
    #[arg(long, value_name = "TOKENS")]
    max_output: Option<u32>,
    /// The project of the configuration that is charged; by default `default`, else the first.
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// Let a paid key answer if no free one can within `overflow_after` (30 s).
    #[arg(long)]
    allow_paid: bool,
    /// Say at the end who answered, and what it took.
    #[arg(long, short)]
    verbose: bool,
    /// Print JSON, once the answer is whole.
    #[arg(long)]
    json: bool,
}

/// The answer as a document.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    text: &'a str,
    model: &'a str,
    key: Option<&'a str>,
    finish_reason: Option<FinishReason>,
    usage: Option<Usage>,
    degraded: bool,
    attempts: Vec<Tried<'a>>,
}

/// One attempt.
#[derive(Debug, Serialize)]
struct Tried<'a> {
    model: &'a str,
    key: &'a str,
    status: Option<u16>,
    kind: Option<&'a str>,
}

/// Asks, and prints the answer piece by piece.
///
/// # Errors
/// No answer came: nothing can serve, the request is at fault, the stream broke.
pub(crate) async fn run(args: Args, settings: &Settings) -> Result<Exit, Fault> {
    let question = question(args.question)?;
    let gemini = client(args.project, settings).await?;
    let mut request = GenerateRequest::from(question);
    if let Some(system) = &args.system {
        request = request.with_system(system.as_str());
    }
    if let Some(tokens) = args.max_output {
        request = request.with_max_output_tokens(tokens);
    }
    let mut asked = gemini.stream(args.model.as_str(), request);
    if args.allow_paid {
        asked = asked.allow_paid();
    }
    let mut stream = asked.await?;
    let (mut text, mut finish) = (String::new(), None);
    while let Some(part) = stream.next().await {
        let part = part?;
        let piece = part.text();
        if !args.json {
            output::write(&piece)?;
        }
        text += &piece;
        finish = part.finish_reason().or(finish);
    }
    if args.json {
        output::json("ask", &Answer::new(&text, &stream, finish))?;
    } else if !text.ends_with('\n') {
        output::write("\n")?;
    }
    if args.verbose && !args.json {
        say(account(&stream));
    }
    // What was counted is of use to whoever asks next.
    if let Err(fault) = gemini.flush().await {
        say(format!("keywheel: what was used could not be noted: {fault}"));
    }
    Ok(Exit::Fine)
}

impl<'a> Answer<'a> {
    fn new(text: &'a str, stream: &'a GeminiStream, finish_reason: Option<FinishReason>) -> Self {
        let degraded = stream.degraded().is_some();
        let attempts = stream.attempts();
        Self {
            text,
            model: stream.model(),
            key: attempts.last().filter(|_| !degraded).map(|last| last.label.as_str()),
            finish_reason,
            usage: stream.usage(),
            degraded,
            attempts: attempts.iter().map(Tried::new).collect(),
        }
    }
}

impl<'a> Tried<'a> {
    fn new(attempt: &'a Attempt) -> Self {
        Self {
            model: &attempt.model,
            key: &attempt.label,
            status: attempt.status,
            kind: attempt.kind.map(|kind| kind.as_str()),
        }
    }
}

/// Who answered, in a line.
fn account(stream: &GeminiStream) -> String {
    let by = stream.attempts().last().map_or("nobody", |last| last.label.as_str());
    let (attempts, model) = (stream.attempts().len(), stream.model());
    let tokens = stream.usage().map_or_else(|| "?".into(), |usage| usage.charged().to_string());
    format!("[{model} by {by}; {tokens} tokens, {attempts} requests]")
}

/// A client that charges what it asks to a project of the configuration: a cap that a shell passes by is none. Without
/// a configuration there is no budget.
async fn client(project: Option<String>, settings: &Settings) -> Result<Gemini, Fault> {
    let config = settings.config()?;
    let client = config.client.without_daily_checks();
    if settings.file().is_none() {
        if project.is_some() {
            let what = "without a configuration there are no projects";
            return Err(Fault::usage(what).hint("--config names it"));
        }
        return Ok(client.build().await?);
    }
    let projects = config.settings.projects;
    let found = match &project {
        Some(name) => projects.named(name),
        None => projects.default(),
    };
    let Some(found) = found else {
        let names: Vec<_> = projects.iter().map(|known| known.name.as_str()).collect();
        return Err(Fault::usage(format!(
            "no project has that name; there is {}",
            names.join(", ")
        )));
    };
    let ledger = describe(config.ledger).open().await?;
    Ok(client.ledger(ledger, found.name.as_str()).build().await?)
}

fn question(asked: Option<String>) -> Result<String, Fault> {
    if let Some(question) = asked.filter(|question| question != "-") {
        return Ok(question);
    }
    if io::stdin().is_terminal() {
        say("what is the question? End it with Ctrl-D");
    }
    let mut question = String::new();
    io::stdin().lock().read_to_string(&mut question)?;
    if question.trim().is_empty() {
        let hint = "for example: keywheel ask \"Say hello\"";
        return Err(Fault::usage("there is no question").hint(hint));
    }
    Ok(question)
}
