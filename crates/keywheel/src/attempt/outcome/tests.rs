use std::{collections::BTreeSet, fs, path::PathBuf};

use http::{HeaderMap, HeaderName, HeaderValue};
use keywheel_core::{Effect, Window};
use keywheel_provider::classify::{Asked, Kind, Reply, Retry, classify};
use serde_json::Value;

use super::*;

/// A verdict without anything but its cause, as the rules give it most simply.
fn refused(cause: Cause, scope: Scope, wait: Wait) -> Refused {
    let verdict = Verdict {
        kind: Kind::Refused(cause),
        effects: vec![Effect::new(scope, cause, wait)],
        limits: Vec::new(),
        key_is_dead: false,
        recognised: true,
        retry: Retry::Never,
        named_quota: false,
        project_number: None,
        clamped: false,
        message: "said".to_owned(),
        fix: None,
        evidence: Vec::new(),
    };
    Refused { cause, verdict, headers: HeaderMap::new() }
}

/// The published corpus: every case's id, the verdict on it, and what the corpus expects to be done.
fn corpus() -> Vec<(String, Refused, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../corpus");
    let read = |file: &str| -> Value {
        serde_json::from_slice(&fs::read(folder.join(file)).unwrap()).unwrap()
    };
    let index = read("index.json");
    let files = index["cases"].as_array().unwrap().iter();
    files
        .filter_map(|entry| {
            let case = read(entry["file"].as_str().unwrap());
            let mut headers = HeaderMap::new();
            for (name, value) in case["headers"].as_object().into_iter().flatten() {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let name: HeaderName = name.parse().unwrap();
                headers.append(name, HeaderValue::from_str(&value).unwrap());
            }
            let reply = Reply {
                status: u16::try_from(case["status"].as_u64().unwrap()).unwrap(),
                headers: &headers,
                body: case["body"].as_str().unwrap().as_bytes(),
            };
            let provider = case["provider"].as_str().unwrap_or("gemini").parse().unwrap();
            let now = case["now"].as_str().unwrap_or("2026-10-02T13:54:20Z").parse().unwrap();
            let asked = Asked { model: Some("asked"), ..Asked::default() };
            let verdict = classify(provider, &reply, &asked, now);
            let Kind::Refused(cause) = verdict.kind else { return None };
            let id = case["id"].as_str().unwrap().to_owned();
            let retry = case["expected"]["retry"].as_str().unwrap().to_owned();
            Some((id, Refused { cause, verdict, headers: HeaderMap::new() }, retry))
        })
        .collect()
}

/// Two tables that say the same in two crates: they must not drift apart.
#[test]
fn what_is_done_agrees_with_what_the_classifier_advises_for_every_case_of_the_corpus() {
    let cases = corpus();
    assert!(cases.len() > 100, "only {} cases were read", cases.len());
    for (id, refused, expected) in &cases {
        let advised = refused.verdict.retry;
        let (told, _, next) = decide(refused);
        let agrees = match advised {
            // The pool knows until when: the next lease comes then.
            Retry::OtherKey | Retry::Later => next == Next::OtherKey,
            Retry::BackOff => matches!(next, Next::Retry { .. }),
            // There is no chain of models yet, so the next model is the caller's to choose.
            Retry::Never | Retry::OtherModel => next == Next::HandBack,
        };
        assert!(agrees, "{id}: advised {advised}, done {next:?}");
        assert_eq!(advised.as_str(), expected, "{id}");
        // Whoever moves on to the next key has told the pool why, or the same key comes again.
        let blamed = matches!(told, PoolOutcome::Refused(_));
        assert_eq!(blamed, next == Next::OtherKey, "{id}: {told:?}, then {next:?}");
        assert!(!refused.verdict.key_is_dead || blamed, "{id}: a dead key stays in use");
    }
    let causes: BTreeSet<_> = cases.iter().map(|(_, refused, _)| refused.cause).collect();
    assert!(causes.len() >= 18, "the corpus covers {causes:?} only");
}

#[test]
fn every_cause_has_its_outcome() {
    for cause in Cause::ALL {
        let (told, spent, next) = decide(&refused(cause, Scope::Model, Wait::None));
        let expected = match cause {
            Cause::Overloaded | Cause::ServerError | Cause::Deadline | Cause::Cancelled => {
                Next::Retry { hint: None }
            }
            Cause::LocationUnsupported
            | Cause::CredentialFault
            | Cause::ModelNotFound
            | Cause::RequestTooLarge
            | Cause::BadRequest => Next::HandBack,
            _ => Next::OtherKey,
        };
        assert_eq!(next, expected, "{cause}");
        let blamed = matches!(told, PoolOutcome::Refused(_));
        assert_eq!(blamed, next == Next::OtherKey, "{cause}");
        // Both cost no tokens; only of the second is it known that the provider took it for a call.
        let failed = matches!(next, Next::Retry { .. });
        assert_eq!(spent, if failed { Spent::ServerError } else { Spent::Refused }, "{cause}");
    }
}

/// <https://github.com/tbphp/gpt-load/issues/278>
#[test]
fn no_failure_of_the_server_reaches_a_key() {
    for cause in [Cause::Overloaded, Cause::ServerError, Cause::Deadline, Cause::Cancelled] {
        let wait = Wait::Stated(Duration::from_secs(7));
        let (told, spent, next) = decide(&refused(cause, Scope::Model, wait));
        assert_eq!(spent, Spent::ServerError, "{cause}");
        assert!(matches!(told, PoolOutcome::Failed), "{cause}");
        assert_eq!(next, Next::Retry { hint: Some(Duration::from_secs(7)) });
    }
}

#[test]
fn what_is_bound_to_a_project_moves_on_and_what_is_bound_to_us_is_handed_back() {
    let here = refused(Cause::LocationUnsupported, Scope::Nobody, Wait::None);
    assert_eq!(decide(&here).2, Next::HandBack);
    let mut country = refused(Cause::LocationUnsupported, Scope::QuotaProject, Wait::None);
    country.verdict.key_is_dead = true;
    assert_eq!(decide(&country).2, Next::OtherKey);

    let gone = refused(Cause::ModelNotFound, Scope::Model, Wait::None);
    assert_eq!(decide(&gone).2, Next::HandBack);
    let closed = refused(Cause::ModelNotFound, Scope::Bucket, Wait::None);
    assert_eq!(decide(&closed).2, Next::OtherKey);
}

#[test]
fn the_pool_is_told_everything_that_the_verdict_knows() {
    let mut day = refused(Cause::PerDayRequests, Scope::Bucket, Wait::Reset(Window::Day));
    day.verdict.named_quota = true;
    day.verdict.project_number = Some("projects/1".to_owned());
    day.verdict.limits = vec![keywheel_core::LimitSeen::new(keywheel_core::Dimension::Rpd, 500)];
    let (PoolOutcome::Refused(refusal), Spent::Refused, Next::OtherKey) = decide(&day) else {
        panic!("a spent day moves on")
    };
    let Refusal { effects, limits, named_quota, project_number, detail } = refusal;
    assert_eq!(effects, day.verdict.effects);
    assert_eq!(limits, day.verdict.limits);
    assert!(named_quota);
    assert_eq!(project_number.as_deref(), Some("projects/1"));
    assert_eq!(detail, "said");
}

#[test]
fn what_brought_no_verdict_is_charged_by_how_far_it_got() {
    for (sent, status, expected) in [
        (Sent::No, None, Spent::NotSent),
        (Sent::Maybe, None, Spent::Lost),
        (Sent::Maybe, Some(200), Spent::CutShort),
        (Sent::Maybe, Some(302), Spent::Refused),
        (Sent::Maybe, Some(502), Spent::ServerError),
    ] {
        assert_eq!(of_nothing(sent, status), expected, "{sent:?} {status:?}");
    }
}
