//! A small web app: it answers by model while it can, and with its own words and the moment of return when not.
//!
//! `cargo run --example axum_app` serves it over a simulator with a quota of three questions;
//! `-- --ask N` asks itself N times and stops.

use axum::{
    Router,
    extract::{Query, State},
    http::{HeaderMap, HeaderValue, StatusCode, header::RETRY_AFTER},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use clap::Parser;
use keywheel::{Clock as _, Gemini, SystemClock};
use keywheel_examples::{
    demo::Failure,
    show,
    stand::{LITE, Stand},
};
use keywheel_sim::Limits;
use tokio::net::TcpListener;

#[derive(Parser)]
struct Args {
    /// Ask itself so many times, print the pages, and stop.
    #[arg(long, value_name = "N")]
    ask: Option<usize>,
}

#[derive(serde::Deserialize)]
struct Asked {
    question: Option<String>,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let args = Args::parse();
    let stand = Stand::start(3, |_| Limits::new().rpd(1)).await?;
    let gemini = stand
        .client() // in a program of your own: Gemini::builder()
        .on_exhausted(|spent| async move {
            spent.next_available_at().map(|at| format!("I am resting until {}.", show::moment(at)))
        })
        .build()
        .await?;
    let app = Router::new().route("/", get(page)).with_state(gemini);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    println!("Serving {url}");
    let serve = tokio::spawn(async move { axum::serve(listener, app).await });
    let Some(times) = args.ask else { return Ok(serve.await??) };
    for number in 1..=times {
        let reply = reqwest::get(format!("{url}?question=Is%20{number}%20prime%3F")).await?;
        let rest = reply.headers().get(RETRY_AFTER).map_or("", |_| " and Retry-After");
        println!("{}{rest}: {}", reply.status(), reply.text().await?.lines().last().unwrap_or(""));
    }
    Ok(())
}

async fn page(State(gemini): State<Gemini>, Query(asked): Query<Asked>) -> Response {
    let Some(question) = asked.question else { return html("").into_response() };
    match gemini.generate(LITE, question).await {
        Ok(reply) => (rest(reply.degraded()), html(&reply.text())).into_response(),
        Err(_) => (StatusCode::BAD_GATEWAY, html("Out of order.")).into_response(),
    }
}

/// How long a client had better wait, where no model answered.
fn rest(spent: Option<&keywheel::Exhausted>) -> HeaderMap {
    let until = spent.and_then(|spent| spent.soonest);
    let wait = until.map(|at| HeaderValue::from((at - SystemClock.now()).num_seconds().max(1)));
    wait.map(|wait| (RETRY_AFTER, wait)).into_iter().collect()
}

fn html(answer: &str) -> Html<String> {
    let answer = answer.replace('&', "&amp;").replace('<', "&lt;");
    let form = "<form><input name=question autofocus> <button>Ask</button></form>";
    Html(format!("<!doctype html><title>Ask</title>{form}\n<p>{answer}</p>"))
}
