//! Quotas are exact: at the boundary, over clock changes, while limits change.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod common;

use chrono::{DateTime, Utc};
use common::{
    MODEL, at, config, generate, generate_text, is_served, json, key, ms, post, status, world,
};
use keywheel_core::QuotaDay;
use keywheel_sim::{
    DayHint, Fault, Limits, ModelConfig, ProjectConfig, SimConfig, UnknownKeys, Windows, World,
};
use proptest::prelude::*;

proptest! {
    #[test]
    fn at_most_rpm_are_served_in_any_sixty_seconds_and_never_fewer(
        gaps in prop::collection::vec(0..20_000_i64, 1..120),
        rpm in 1..8_u64,
    ) {
        let mut world = world(Limits::new().rpm(rpm));
        let mut now = at("2026-11-30T07:00:00Z");
        let mut served: Vec<DateTime<Utc>> = Vec::new();
        for gap in gaps {
            now += ms(gap);
            let recent = served.iter().filter(|then| now - **then < ms(60_000)).count() as u64;
            let reply = world.handle(&generate(&key(1)), now);
            prop_assert_eq!(is_served(&reply), recent < rpm);
            if is_served(&reply) {
                served.push(now);
            }
        }
    }

    #[test]
    fn a_refused_request_fits_at_the_moment_that_was_stated_and_not_a_millisecond_before(
        gaps in prop::collection::vec(0..9_000_i64, 1..40),
        fixed in any::<bool>(),
    ) {
        let mut config = config(Limits::new().rpm(3));
        config.windows = if fixed { Windows::Fixed } else { Windows::Rolling };
        let mut world = World::new(config).unwrap();
        let mut now = at("2026-11-30T07:00:00Z");
        for gap in gaps {
            now += ms(gap);
            let reply = world.handle(&generate(&key(1)), now);
            if is_served(&reply) {
                continue;
            }
            let wait_ms = stated_ms(&json(&reply));
            now += ms(wait_ms - 1);
            prop_assert!(!is_served(&world.handle(&generate(&key(1)), now)));
            now += ms(1);
            prop_assert!(is_served(&world.handle(&generate(&key(1)), now)));
        }
    }
}

/// The whole milliseconds of the wait in the message.
fn stated_ms(body: &serde_json::Value) -> i64 {
    let message = body["error"]["message"].as_str().unwrap();
    let said = message.rsplit("Please retry in ").next().unwrap().trim_end_matches('.');
    match said.strip_suffix("ms") {
        Some(ms) => ms.parse::<f64>().unwrap() as i64,
        None => (said.strip_suffix('s').unwrap().parse::<f64>().unwrap() * 1_000.0) as i64,
    }
}

#[test]
fn fixed_minutes_turn_with_the_clock() {
    let mut config = config(Limits::new().rpm(2));
    config.windows = Windows::Fixed;
    let mut world = World::new(config).unwrap();
    let late = at("2026-11-30T07:00:59.999Z");
    let served = |world: &mut World, now| is_served(&world.handle(&generate(&key(1)), now));
    assert!(served(&mut world, late) && served(&mut world, late));
    assert!(!served(&mut world, late));
    assert!(served(&mut world, late + ms(1)));
}

/// The quota days around both clock changes of 2026, and an ordinary one.
#[test]
fn the_day_turns_at_midnight_pacific_also_when_the_clocks_change() {
    for date in ["2026-03-08T12:00:00Z", "2026-11-01T12:00:00Z", "2026-11-29T12:00:00Z"] {
        let mut world = world(Limits::new().rpd(3));
        let day = QuotaDay::containing(at(date));
        let served = |world: &mut World, now| is_served(&world.handle(&generate(&key(1)), now));
        for _ in 0..3 {
            assert!(served(&mut world, day.starts_at()));
        }
        for hours in 0..30 {
            let now = day.starts_at() + ms(hours * 3_600_000);
            if now < day.ends_at() {
                assert!(!served(&mut world, now), "{now} is still the same day");
            }
        }
        assert!(!served(&mut world, day.ends_at() - ms(1)));
        assert!(served(&mut world, day.ends_at()));
        assert_eq!(world.stats().buckets.len(), 2);
    }
}

#[test]
fn a_reset_that_comes_late_and_one_in_another_zone() {
    let project = ProjectConfig::new("late").with_key(key(1)).with_late_reset(300);
    let mut utc = ProjectConfig::new("utc").with_key(key(2));
    utc.reset_zone = chrono_tz::UTC;
    let config = SimConfig::new()
        .with_model(MODEL, ModelConfig::free(Limits::new().rpd(1)))
        .with_project(project)
        .with_project(utc);
    let mut world = World::new(config).unwrap();
    let mut served = |i, now: &str| is_served(&world.handle(&generate(&key(i)), at(now)));
    assert!(served(1, "2026-11-30T07:00:00Z"));
    assert!(!served(1, "2026-11-30T08:00:00Z"));
    assert!(!served(1, "2026-11-30T08:04:59.999Z"));
    assert!(served(1, "2026-11-30T08:05:00Z"));
    assert!(served(2, "2026-11-29T23:59:59Z"));
    assert!(!served(2, "2026-11-29T23:59:59.999Z"));
    assert!(served(2, "2026-11-30T00:00:00Z"));
}

#[test]
fn keys_of_one_project_share_its_quota_and_models_do_not() {
    let config = SimConfig::new()
        .with_model(MODEL, ModelConfig::free(Limits::new().rpd(2)))
        .with_model("gemini-other", ModelConfig::free(Limits::new().rpd(2)))
        .with_project(ProjectConfig::new("alpha").with_key(key(1)).with_key(key(2)))
        .with_project(ProjectConfig::new("beta").with_key(key(3)));
    let mut world = World::new(config).unwrap();
    let now = at("2026-11-30T07:00:00Z");
    let mut served = |request| is_served(&world.handle(&request, now));
    assert!(served(generate(&key(1))));
    assert!(served(generate(&key(2))));
    assert!(!served(generate(&key(1))));
    assert!(!served(generate(&key(2))));
    assert!(served(generate(&key(3))));
    let other = r#"{"contents":[{"parts":[{"text":"x"}]}]}"#;
    assert!(served(post("/v1beta/models/gemini-other:generateContent", &key(1), other)));
}

#[test]
fn input_tokens_are_limited_and_a_request_above_the_limit_never_fits() {
    // Four bytes are a token: 40 tokens.
    let text = "x".repeat(160);
    let mut world = world(Limits::new().tpm(100));
    let now = at("2026-11-30T07:00:00Z");
    assert!(is_served(&world.handle(&generate_text(&key(1), &text), now)));
    assert!(is_served(&world.handle(&generate_text(&key(1), &text), now + ms(10_000))));
    let refused = world.handle(&generate_text(&key(1), &text), now + ms(20_000));
    assert_eq!(stated_ms(&json(&refused)), 40_000);
    assert!(is_served(&world.handle(&generate_text(&key(1), &text), now + ms(60_000))));
    let huge = "x".repeat(404);
    let far = now + ms(3_600_000);
    assert_eq!(status(&world.handle(&generate_text(&key(1), &huge), far)), 429);
}

#[test]
fn a_batch_of_texts_counts_as_many_requests_and_more_than_a_hundred_are_refused() {
    let config = SimConfig::new()
        .with_model("gemini-embedding-001", ModelConfig::embedding(Limits::new().rpm(100)))
        .with_project(ProjectConfig::new("alpha").with_key(key(1)));
    let mut world = World::new(config).unwrap();
    let now = at("2026-11-30T07:00:00Z");
    let batch = |n: usize| {
        let one = serde_json::json!({"content": {"parts": [{"text": "a text"}]}});
        let body = serde_json::json!({"requests": vec![one; n]}).to_string();
        post("/v1beta/models/gemini-embedding-001:batchEmbedContents", &key(1), &body)
    };
    let whole = world.handle(&batch(60), now);
    assert_eq!(json(&whole)["embeddings"].as_array().unwrap().len(), 60);
    assert_eq!(status(&world.handle(&batch(41), now)), 429);
    assert_eq!(status(&world.handle(&batch(40), now)), 200);
    assert_eq!(world.stats().bucket("alpha", "gemini-embedding-001").counted, 100);
    assert_eq!(status(&world.handle(&batch(101), now + ms(60_000))), 400);
}

#[test]
fn a_failed_request_counts_and_a_refused_one_does_not() {
    let mut world = world(Limits::new().rpd(3));
    let now = at("2026-11-30T07:00:00Z");
    world.force(Fault::Overloaded, 1);
    assert_eq!(status(&world.handle(&generate(&key(1)), now)), 503);
    let path = format!("/v1beta/models/{MODEL}:generateContent");
    assert_eq!(status(&world.handle(&post(&path, &key(1), "{"), now)), 400);
    world.force(Fault::Spurious429, 1);
    assert_eq!(status(&world.handle(&generate(&key(1)), now)), 429);
    assert_eq!(world.left_today("alpha", MODEL, now), Some(1));
    assert_eq!(status(&world.handle(&generate(&key(1)), now)), 200);
    for _ in 0..5 {
        assert_eq!(status(&world.handle(&generate(&key(1)), now)), 429);
    }
    let tally = world.stats().bucket("alpha", MODEL);
    assert_eq!((tally.counted, tally.served, tally.refused, tally.over_day), (3, 1, 6, 5));
}

/// A prompt above the model's own limit is refused with 400, and has spent a request and its tokens all the
/// same (<https://github.com/google-gemini/gemini-cli/issues/15184>).
#[test]
fn an_oversized_prompt_is_refused_and_spends_the_minutes_tokens() {
    for streamed in [false, true] {
        let mut model = ModelConfig::free(Limits::new().tpm(100).rpd(10));
        model.input_token_limit = 50;
        let mut world = World::new(config(Limits::new()).with_model(MODEL, model)).unwrap();
        let mut request = generate_text(&key(1), &"x".repeat(320));
        if streamed {
            request.path = request.path.replace("generateContent", "streamGenerateContent");
        }
        let reply = world.handle(&request, at("2026-11-30T07:00:00Z"));
        assert_eq!(status(&reply), 400);
        let said = String::from_utf8(reply.http.unwrap().bytes()).unwrap();
        let expected =
            "The input token count (80) exceeds the maximum number of tokens allowed (50).";
        assert!(said.contains(expected), "{said}");
        assert_eq!(world.stats().bucket("alpha", MODEL).counted, 1);
        // 80 of the minute's 100 tokens are gone: 40 more do not fit.
        let next =
            world.handle(&generate_text(&key(1), &"x".repeat(160)), at("2026-11-30T07:00:01Z"));
        assert_eq!(status(&next), 429);
    }
}

#[test]
fn a_limit_may_shrink_and_be_raised_while_the_day_runs() {
    let mut world = world(Limits::new().rpd(10));
    let now = at("2026-11-30T07:00:00Z");
    for _ in 0..4 {
        assert!(is_served(&world.handle(&generate(&key(1)), now)));
    }
    assert!(world.set_limits("alpha", MODEL, Limits::new().rpd(4)));
    let refused = world.handle(&generate(&key(1)), now);
    assert_eq!(violation(&json(&refused))["quotaValue"], "4");
    assert!(world.set_limits("alpha", MODEL, Limits::new().rpd(5)));
    assert!(is_served(&world.handle(&generate(&key(1)), now)));
    assert!(!is_served(&world.handle(&generate(&key(1)), now)));
    assert!(!world.set_limits("nobody", MODEL, Limits::new()));
    assert!(!world.set_limits("alpha", "gemini-none", Limits::new()));
}

#[test]
fn counting_tokens_and_listing_models_cost_nothing() {
    let mut world = world(Limits::new().rpm(1).rpd(1));
    let now = at("2026-11-30T07:00:00Z");
    let count = post(
        &format!("/v1beta/models/{MODEL}:countTokens"),
        &key(1),
        r#"{"contents":[{"parts":[{"text":"eight by"}]}]}"#,
    );
    for _ in 0..5 {
        assert_eq!(json(&world.handle(&count, now))["totalTokens"], 2);
        assert_eq!(status(&world.handle(&common::get("/v1/models", &key(1)), now)), 200);
    }
    assert!(is_served(&world.handle(&generate(&key(1)), now)));
}

#[test]
fn the_hint_of_a_spent_day_is_short_or_true_or_missing() {
    let hint = |hint: DayHint| {
        let mut config = config(Limits::new().rpd(1));
        config.day_hint = hint;
        let mut world = World::new(config).unwrap();
        let now = at("2026-11-30T02:00:00.500Z");
        assert!(is_served(&world.handle(&generate(&key(1)), now)));
        let body = json(&world.handle(&generate(&key(1)), now));
        let details = body["error"]["details"].as_array().unwrap().clone();
        details.iter().find_map(|detail| detail["retryDelay"].as_str().map(str::to_owned))
    };
    assert_eq!(hint(DayHint::Short).as_deref(), Some("59s"));
    // 06:00 h to midnight Pacific, less half a second, cut to whole seconds.
    assert_eq!(hint(DayHint::Hours).as_deref(), Some("21599s"));
    assert_eq!(hint(DayHint::None), None);
}

#[test]
fn every_unknown_key_may_get_a_project_of_its_own() {
    let mut config = config(Limits::new().rpd(1));
    config.unknown_keys = UnknownKeys::OwnProject;
    let mut world = World::new(config).unwrap();
    let now = at("2026-11-30T07:00:00Z");
    for stranger in 7..10 {
        assert!(is_served(&world.handle(&generate(&key(stranger)), now)));
        assert!(!is_served(&world.handle(&generate(&key(stranger)), now)));
    }
}

fn violation(body: &serde_json::Value) -> serde_json::Value {
    let details = body["error"]["details"].as_array().unwrap();
    let found = details.iter().find_map(|detail| detail["violations"].get(0));
    found.expect("a violation is named").clone()
}
