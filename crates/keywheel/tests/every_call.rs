//! Every kind of call fails over, and is counted alike: by the pool as by the provider.

mod common;

use std::{future::Future, pin::Pin, time::Duration};

use common::{
    MODEL, account, fingerprint, key,
    sim::{Cut, SimRig, world},
};
use keywheel::{Attempt, Error, Gemini, embed::TaskType, raw::Call};
use keywheel_sim::{Faults, Limits, ProjectConfig, SimConfig};
use serde_json::{Value, json};

const EMBED: &str = "gemini-embedding-001";

type Attempts<'a> = Pin<Box<dyn Future<Output = Result<Vec<Attempt>, Error>> + 'a>>;

/// One kind of call: its name, the bucket that it draws on, how many requests it counts as, and how it is made.
type Kind = (&'static str, &'static str, u64, fn(&Gemini) -> Attempts<'_>);

fn kinds() -> Vec<Kind> {
    vec![
        ("generate", MODEL, 1, |gemini| {
            Box::pin(async { Ok(gemini.generate(MODEL, "hi").await?.attempts().to_vec()) })
        }),
        ("stream", MODEL, 1, |gemini| {
            Box::pin(async {
                let mut stream = gemini.stream(MODEL, "hi").await?;
                stream.text().await?;
                Ok(stream.attempts().to_vec())
            })
        }),
        ("json", MODEL, 1, |gemini| {
            Box::pin(async {
                let call = gemini.generate_with_schema::<Value>(MODEL, "hi", json!({}));
                match call.await {
                    Ok(typed) => Ok(typed.reply.attempts().to_vec()),
                    Err(Error::WrongShape { attempts, .. }) => Ok(attempts),
                    Err(error) => Err(error),
                }
            })
        }),
        ("chat", MODEL, 1, |gemini| {
            Box::pin(async { Ok(gemini.chat(MODEL).send("hi").await?.attempts().to_vec()) })
        }),
        ("chat stream", MODEL, 1, |gemini| {
            Box::pin(async {
                let mut chat = gemini.chat(MODEL);
                let mut stream = chat.stream("hi").await?;
                stream.text().await?;
                Ok(stream.attempts().to_vec())
            })
        }),
        ("embed one", EMBED, 1, |gemini| {
            Box::pin(async { Ok(gemini.embed(EMBED, "a").await?.attempts) })
        }),
        ("embed three", EMBED, 3, |gemini| {
            Box::pin(async {
                let call = gemini.embed(EMBED, ["a", "b", "c"]).task(TaskType::Clustering);
                Ok(call.await?.attempts)
            })
        }),
        ("raw generate", MODEL, 1, |gemini| {
            Box::pin(async {
                let body = r#"{"contents":[{"parts":[{"text":"hi"}]}]}"#;
                let call = Call::post(format!("models/{MODEL}:generateContent"), body);
                Ok(gemini.send(call).await?.attempts)
            })
        }),
        ("raw batch of two", EMBED, 2, |gemini| {
            Box::pin(async {
                let one = json!({
                    "model": format!("models/{EMBED}"), "content": {"parts": [{"text": "hi"}]},
                });
                let body = json!({"requests": [one, one]}).to_string();
                let call = Call::post(format!("models/{EMBED}:batchEmbedContents"), body);
                Ok(gemini.send(call).await?.attempts)
            })
        }),
    ]
}

/// Project 1 has no quota left for the day, project 2 has.
fn first_is_spent() -> SimConfig {
    let spent = ProjectConfig::new("p1")
        .with_key(key(1))
        .with_limits(MODEL, Limits::new().rpd(4))
        .with_limits(EMBED, Limits::new().rpd(4));
    let config = world(0).with_project(spent);
    config.with_project(ProjectConfig::new("p2").with_key(key(2)))
}

/// <https://github.com/openclaw/openclaw/pull/97328>: rotation existed for embeddings, but not for streams.
#[test]
fn every_kind_of_call_moves_on_from_a_spent_key_and_counts_as_the_provider_does() {
    for (name, bucket, requests, call) in kinds() {
        let rig = SimRig::new(2, first_is_spent());
        // Somebody else spends the first project's day, so that the pool does not know.
        let other = SimRig::over_world(1, rig.line.world().clone(), rig.clock.clone());
        for _ in 0..4 {
            let spent = match bucket {
                MODEL => other.run(other.gemini.generate(MODEL, "hi")).map(drop),
                _ => other.run(other.gemini.embed(EMBED, "a")).map(drop),
            };
            spent.unwrap();
        }
        let attempts = rig.run(call(&rig.gemini)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(
            account(&attempts),
            [("GEMINI_API_KEY_1", "per_day_requests"), ("GEMINI_API_KEY_2", "served")],
            "{name}"
        );
        let keys: Vec<_> = rig.line.sent().iter().map(|sent| sent.key.unwrap()).collect();
        assert_eq!(keys, [fingerprint(1), fingerprint(2)], "{name}");
        let counted = rig.line.world().stats().bucket("p2", bucket).counted;
        assert_eq!(counted, requests, "{name}: by the provider");
        let status = rig.gemini.status();
        let ours = status.buckets.iter().filter(|known| known.model == bucket);
        assert_eq!(ours.map(|known| known.day.requests).sum::<u64>(), requests, "{name}: by us");
        common::assert_balanced(&rig.gemini);
        // The second time it goes straight to the one that can serve.
        let attempts = rig.run(call(&rig.gemini)).unwrap();
        assert_eq!(account(&attempts), [("GEMINI_API_KEY_2", "served")], "{name}");
    }
}

#[test]
fn every_kind_of_call_survives_failures_and_counts_them_as_the_provider_does() {
    for (name, bucket, requests, call) in kinds() {
        let rig = SimRig::new(1, world(1));
        rig.line.cut([Some(Cut::Reply)]);
        let attempts = rig.run(call(&rig.gemini)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(attempts.len(), 2, "{name}");
        assert_eq!(rig.line.world().stats().bucket("p1", bucket).counted, 2 * requests, "{name}");
        rig.assert_counts_agree(bucket);
    }
}

/// What costs no quota of a model serves while every model is spent, and its refusals stop no model.
#[test]
fn counting_and_listing_go_on_while_the_models_are_spent() {
    let nothing = Limits::new().rpd(1);
    let config = world(0)
        .with_project(ProjectConfig::new("p1").with_key(key(1)).with_limits(MODEL, nothing));
    let rig = SimRig::new(1, config);
    rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
    let spent = rig.run(rig.gemini.generate(MODEL, "hi").deadline(Duration::from_secs(5)));
    assert!(matches!(spent, Err(Error::Exhausted { .. })));
    assert!(rig.run(rig.gemini.count_tokens(MODEL, "hello world")).unwrap().total_tokens > 0);
    assert!(rig.run(rig.gemini.models()).unwrap().len() >= 2);
    let model = rig.run(rig.gemini.model(format!("models/{MODEL}"))).unwrap();
    assert_eq!(model.name, format!("models/{MODEL}"));
    assert_eq!(rig.line.world().stats().bucket("p1", MODEL).counted, 1);
    common::assert_balanced(&rig.gemini);
}

/// Of 503s, resets and broken bodies every second request dies: what is served is whole, and both sides agree.
#[test]
fn in_a_storm_the_counts_agree() {
    let faults =
        Faults { overloaded: 0.2, reset: 0.1, broken: 0.1, empty_body: 0.1, ..Faults::default() };
    let rig = SimRig::new(3, world(3).with_faults(faults));
    let mut served = 0;
    for _ in 0..5 {
        for (_, _, _, call) in kinds() {
            served += usize::from(rig.run(call(&rig.gemini)).is_ok());
            rig.clock.advance(Duration::from_secs(30));
        }
    }
    assert!(served > 20, "{served} of 45");
    for bucket in [MODEL, EMBED] {
        rig.assert_counts_agree(bucket);
    }
}
