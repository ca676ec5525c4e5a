//! `keywheel explain`: what an error reply means.

use std::{
    fs,
    io::{self, IsTerminal as _, Read as _},
    path::{Path, PathBuf},
};

use chrono::{DateTime, Utc};
use keywheel_provider::{explain, explain_bytes};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{
    exit::Exit,
    fault::Fault,
    moment,
    output::{self, say},
};

/// What `explain` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = moment::FORMS)]
pub(crate) struct Args {
    /// The file with the reply; `-` or none reads it from standard input. A body as it came, `curl -i`'s output,
    /// or a recorded case (`{"status": 429, "headers": {}, "body": "…"}`).
    file: Option<PathBuf>,
    /// The HTTP status of a bare body.
    #[arg(long)]
    status: Option<u16>,
    /// A header of a bare body: `name: value`; may be given several times.
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// The model that was asked.
    #[arg(long)]
    model: Option<String>,
    /// How many input tokens were asked for.
    #[arg(long)]
    tokens: Option<u64>,
    /// The request used search, URL or other tools of the provider.
    #[arg(long)]
    tools: bool,
    /// Who replied: gemini, openai, groq, …
    #[arg(long)]
    provider: Option<String>,
    /// When the reply came, in place of now.
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    at: Option<DateTime<Utc>>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The verdict as a document.
#[derive(Serialize)]
struct Explained {
    verdict: Value,
}

/// Explains one reply.
///
/// # Errors
/// It cannot be read, there is nothing to read, or it is no error.
pub(crate) fn run(args: &Args) -> Result<Exit, Fault> {
    let input = read(args.file.as_deref())?;
    if input.trim_ascii().is_empty() {
        let hint = "for example: curl -si … | keywheel explain, or keywheel explain reply.json";
        return Err(Fault::usage("there is no reply to explain").hint(hint));
    }
    let verdict = verdict(args, &input);
    if verdict["recognised"] == false && !is_an_error(&input, &verdict) {
        let what = "this is no error reply: it has no status, and its words are none of any provider's errors";
        let hint = "say what came with it, for example: keywheel explain --status 503 reply.txt";
        return Err(Fault::usage(what).hint(hint));
    }
    if args.json {
        output::json("explain", &Explained { verdict })?;
    } else {
        output::write(&text(&verdict))?;
    }
    Ok(Exit::Fine)
}

fn verdict(args: &Args, input: &[u8]) -> Value {
    let now = args.at.unwrap_or_else(moment::now);
    let mut case = match (args.said_of_it(), whole_reply(input)) {
        (_, Some(case)) => case,
        (false, None) => match serde_json::from_slice(input) {
            Ok(Value::Object(case)) => case,
            _ => return explain_bytes(input, now),
        },
        // Something was said of it, so that it is a bare body.
        (true, None) => {
            let body = String::from_utf8_lossy(input).into_owned();
            Map::from_iter([("body".to_owned(), Value::String(body))])
        }
    };
    args.add_to(&mut case);
    explain(&case, now)
}

/// True if the input has at least the form of an error: an object in which one is announced, or which has a message.
fn is_an_error(input: &[u8], verdict: &Value) -> bool {
    let Ok(body) = serde_json::from_slice::<Value>(input) else { return false };
    let object = body.get(0).unwrap_or(&body);
    let has_message = verdict["message"].as_str().is_some_and(|message| !message.is_empty());
    object.is_object() && (has_message || object.get("error").is_some_and(|error| !error.is_null()))
}

impl Args {
    /// True if the arguments say what a case would.
    fn said_of_it(&self) -> bool {
        self.status.is_some() || !self.headers.is_empty()
    }

    fn add_to(&self, case: &mut Map<String, Value>) {
        if let Some(status) = self.status {
            case.insert("status".into(), status.into());
        }
        if !self.headers.is_empty() {
            let headers = self.headers.iter();
            let headers = headers.map(|(name, value)| (name.clone(), value.clone().into()));
            case.insert("headers".into(), Value::Object(headers.collect()));
        }
        if let Some(provider) = &self.provider {
            case.insert("provider".into(), provider.clone().into());
        }
        if self.model.is_some() || self.tokens.is_some() || self.tools {
            let asked = json!({"model": self.model, "tokens": self.tokens, "tools": self.tools});
            case.insert("asked".into(), asked);
        }
    }
}

/// Head and body as `curl -i` prints them, as a case.
fn whole_reply(input: &[u8]) -> Option<Map<String, Value>> {
    let text = str::from_utf8(input).ok()?.trim_start();
    text.starts_with("HTTP/").then_some(())?;
    let (head, mut body) = text.split_once("\r\n\r\n").or_else(|| text.split_once("\n\n"))?;
    // A proxy's own head, or `100 Continue`, comes before the one that counts.
    if body.starts_with("HTTP/")
        && let Some(inner) = whole_reply(body.as_bytes())
    {
        return Some(inner);
    }
    let mut lines = head.lines();
    let status: u16 = lines.next()?.split_whitespace().nth(1)?.parse().ok()?;
    let headers = lines.filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(name, value)| (name.trim().to_owned(), value.trim().into()));
    let headers: Map<String, Value> = headers.collect();
    body = body.trim_end();
    let case = json!({"status": status, "headers": headers, "body": body});
    case.as_object().cloned()
}

fn read(file: Option<&Path>) -> Result<Vec<u8>, Fault> {
    /// A reply beyond this is no error; the classifier looks at 128 KB of it.
    const LARGEST: u64 = 16 << 20;
    let mut input = Vec::new();
    match file.filter(|file| *file != Path::new("-")) {
        Some(file) => {
            let unreadable = |error| Fault::unread(file, &error);
            let opened = fs::File::open(file).map_err(unreadable)?;
            opened.take(LARGEST).read_to_end(&mut input).map_err(unreadable)?;
        }
        None => {
            if io::stdin().is_terminal() {
                say("paste the reply, then press Ctrl-D");
            }
            io::stdin().lock().take(LARGEST).read_to_end(&mut input)?;
        }
    }
    Ok(input)
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it as `name: value`")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn text(verdict: &Value) -> String {
    let word = |name: &str| verdict[name].as_str().unwrap_or_default();
    let mut text = format!("{}\n", word("kind"));
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            text += &format!("  {name:<9} {value}\n");
        }
    };
    line("concerns", &word("scope").replace('_', " "));
    match (verdict["until"].as_str(), verdict["delay_s"].as_f64()) {
        (Some(until), Some(delay)) => line("until", &format!("{until}, in {delay} s")),
        _ if word("kind") == "served" => {}
        _ => line("until", "waiting is no answer"),
    }
    line("then", &word("retry").replace('_', " "));
    if verdict["key_is_dead"] == true {
        line("the key", "is dead until somebody acts");
    }
    line("to do", word("fix"));
    let strings = |name: &str| {
        let values = verdict[name].as_array().into_iter().flatten();
        values.filter_map(Value::as_str).collect::<Vec<_>>().join("; ")
    };
    let limits = verdict["limits"].as_array().into_iter().flatten();
    let limits = limits.filter_map(|limit| {
        Some(format!("{} {}", limit["value"].as_u64()?, limit["dimension"].as_str()?))
    });
    line("limits", &limits.collect::<Vec<_>>().join(", "));
    line("says", &word("message").replace('\n', " "));
    line("because", &strings("evidence"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_curl_prints_is_read_with_its_head() {
        let reply = "HTTP/1.1 100 Continue\r\n\r\nHTTP/2 429 \r\nretry-after: 7\r\ncontent-type: x\r\n\r\n{\"a\":1}\r\n";
        let case = whole_reply(reply.as_bytes()).unwrap();
        assert_eq!(case["status"], 429);
        assert_eq!(case["headers"]["retry-after"], "7");
        assert_eq!(case["body"], "{\"a\":1}");
        assert!(whole_reply(b"{}").is_none());
        assert!(whole_reply(b"HTTP/1.1 nonsense").is_none());
    }
}
