//! Whatever comes, however it is cut and however it ends: what is handed on is what came, no error is among it, and
//! the books balance.

#![cfg(feature = "ledger")]
#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use common::{
    MODEL,
    bodies::{day_spent_body, overloaded_body, part},
    ledger::Charged,
    relay::{event, events, read, streamed, whole},
    sim::{SimRig, world},
};
use keywheel::ledger::Outcome;
use keywheel_provider::{TransportKind, testing::Scripted};
use keywheel_sim::Fault;
use proptest::prelude::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bit {
    Part,
    Last,
    Comment,
    Unknown,
    Error,
    QuotaGone,
    BareError,
    Done,
}

fn text(bit: Bit) -> String {
    match bit {
        Bit::Part => event(&part("Hel", None, (8, 1))),
        Bit::Last => event(&part("lo", Some("STOP"), (8, 2))),
        Bit::Comment => ": keep alive\n\n".to_owned(),
        Bit::Unknown => "data: [1, \"new\"]\n\n".to_owned(),
        Bit::Error => event(&overloaded_body()),
        Bit::QuotaGone => event(&day_spent_body(20)),
        Bit::BareError => serde_json::to_string_pretty(&overloaded_body()).unwrap() + "\n",
        Bit::Done => "data: [DONE]\n\n".to_owned(),
    }
}

#[derive(Debug, Clone, Copy)]
enum End {
    Closed,
    Broken,
    Open,
}

fn bit() -> impl Strategy<Value = Bit> {
    prop_oneof![
        4 => Just(Bit::Part),
        2 => Just(Bit::Last),
        1 => Just(Bit::Comment),
        1 => Just(Bit::Unknown),
        1 => prop::sample::select(&[Bit::Error, Bit::QuotaGone, Bit::BareError][..]),
        1 => Just(Bit::Done),
    ]
}

fn end() -> impl Strategy<Value = End> {
    prop::sample::select(&[End::Closed, End::Broken, End::Open][..])
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_is_handed_on_is_what_came_and_the_books_balance(
        bits in prop::collection::vec(bit(), 0..8),
        cuts in prop::collection::vec(1_usize..400, 1..6),
        end in end(),
        taken in prop::option::of(0_usize..6),
    ) {
        // The first frame decides whether there is a reply at all.
        let bits: Vec<_> = std::iter::once(Bit::Part).chain(bits).collect();
        let all: String = bits.iter().copied().map(text).collect();
        let (mut pieces, mut rest) = (vec![text(Bit::Part)], &all[text(Bit::Part).len()..]);
        for cut in cuts.iter().cycle() {
            let (piece, left) = rest.split_at((*cut).min(rest.len()));
            if piece.is_empty() {
                break;
            }
            pieces.push(piece.to_owned());
            rest = left;
        }
        let it = Charged::new(1, []);
        let scripted = events(pieces);
        it.rig.script.reply(match end {
            End::Closed => scripted,
            End::Broken => scripted.fail(TransportKind::Interrupted),
            End::Open => scripted.hang(),
        });
        let mut relayed = it.rig.run(streamed(&it.rig.gemini)).unwrap();
        let error_at = bits.iter().position(|bit| matches!(bit, Bit::Error | Bit::QuotaGone | Bit::BareError));
        let before: String = bits[..error_at.unwrap_or(bits.len())].iter().copied().map(text).collect();
        match taken {
            Some(items) => {
                let mut seen = Vec::new();
                for _ in 0..items {
                    match it.rig.run(relayed.body.next()) {
                        Some(Ok(piece)) => seen.extend_from_slice(&piece),
                        _ => break,
                    }
                }
                prop_assert!(before.as_bytes().starts_with(&seen));
                drop(relayed);
            }
            None => {
                let (seen, error) = read(&it.rig.clock, &mut relayed.body);
                let seen = String::from_utf8(seen).unwrap();
                prop_assert!(before.starts_with(&seen), "{seen}");
                if error_at.is_some() {
                    prop_assert_eq!(&seen, &before, "all that came before the error");
                    prop_assert!(error.is_some());
                }
                if error.is_none() {
                    prop_assert_eq!(&seen, &all);
                }
                let row = it.rows().remove(0);
                prop_assert_eq!(row.outcome == Some(Outcome::Answered), error.is_none());
            }
        }
        it.assert_balanced();
        prop_assert_eq!(it.rows().len(), 1);
    }
}

/// The simulator enforces quotas as Google does: the pool has counted what it has.
#[test]
fn whatever_the_provider_does_to_a_relayed_call_the_counts_agree() {
    for fault in [
        Fault::Overloaded,
        Fault::Internal,
        Fault::Html,
        Fault::Deadline,
        Fault::Reset,
        Fault::Broken,
        Fault::Cut,
        Fault::ErrorFirst,
        Fault::ErrorMidway,
        Fault::EmptyBody,
        Fault::ThoughtOnly,
        Fault::Blocked,
        Fault::CutCall,
        Fault::Spurious429,
        Fault::Unreachable,
    ] {
        for is_stream in [false, true] {
            let rig = SimRig::new(2, world(2));
            rig.line.world().with(|world| world.force(fault, 1));
            let call = if is_stream { streamed(&rig.gemini) } else { whole(&rig.gemini) };
            let mut relayed = rig.run(call).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
            let (bytes, error) = read(&rig.clock, &mut relayed.body);
            assert!(!bytes.is_empty(), "{fault:?}");
            let late = [Fault::Broken, Fault::Cut, Fault::ErrorMidway, Fault::CutCall];
            assert!(error.is_none() || is_stream && late.contains(&fault), "{fault:?}: {error:?}");
            assert!(relayed.body.usage().is_some() || error.is_some(), "{fault:?}");
            drop(relayed);
            rig.assert_counts_agree(MODEL);
        }
    }
}

#[test]
fn a_saturated_minute_is_shared_out_among_relayed_calls() {
    use futures_util::future::join_all;
    use keywheel_sim::{Limits, ModelConfig};

    let config = world(3).with_model(MODEL, ModelConfig::free(Limits::new().rpm(5)));
    let rig = SimRig::new(3, config);
    let calls = (0..40).map(|_| async {
        let mut relayed = streamed(&rig.gemini).no_deadline().await.unwrap();
        while let Some(piece) = relayed.body.next().await {
            piece.unwrap();
        }
    });
    rig.run(join_all(calls));
    rig.assert_counts_agree(MODEL);
}

#[test]
fn a_scripted_error_page_is_no_reply() {
    let it = Charged::new(2, []);
    it.rig.script.reply(Scripted::status(502).piece("<html>bad gateway</html>"));
    it.rig.script.otherwise(|_| events([text(Bit::Last)]));
    let mut relayed = it.rig.run(streamed(&it.rig.gemini)).unwrap();
    assert_eq!(relayed.attempts.len(), 2);
    assert!(read(&it.rig.clock, &mut relayed.body).1.is_none());
    it.assert_balanced();
}
