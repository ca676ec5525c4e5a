//! The token estimate against true counts; `data/README.md` tells where they come from.

use std::collections::HashMap;

use keywheel_core::estimate;
use proptest::prelude::*;

#[derive(serde::Deserialize)]
struct Sample {
    name: String,
    tokens: u64,
    text: String,
}

/// The kinds of text that have to be right, since budgets rest on them.
const COMMON: [&str; 29] = [
    "english_prose",
    "english_readme",
    "german",
    "french",
    "spanish",
    "turkish",
    "polish",
    "vietnamese",
    "russian",
    "greek",
    "arabic",
    "hebrew",
    "hindi",
    "thai",
    "chinese",
    "japanese",
    "korean",
    "tamil",
    "amharic",
    "python_code",
    "rust_code",
    "json_compact",
    "json_indent_2",
    "base64",
    "hex",
    "uuid",
    "digits",
    "urls",
    "emoji",
];

/// By name, estimate divided by truth; an empty text counts as right if nothing is estimated.
fn ratios() -> HashMap<String, f64> {
    let samples: Vec<Sample> =
        serde_json::from_str(include_str!("data/estimate.json")).expect("the file is JSON");
    let mut ratios = HashMap::new();
    println!("{:<20} {:>8} {:>8} {:>6}", "text", "true", "estimate", "ratio");
    for Sample { name, tokens, text } in samples {
        let estimate = estimate::tokens(&text);
        let ratio =
            if tokens == 0 { 1.0 + estimate as f64 } else { estimate as f64 / tokens as f64 };
        println!("{name:<20} {tokens:>8} {estimate:>8} {ratio:>6.2}");
        ratios.insert(name, ratio);
    }
    ratios
}

#[test]
fn no_common_kind_of_text_is_estimated_under_four_fifths() {
    let ratios = ratios();
    for name in COMMON {
        assert!(ratios[name] >= 0.8, "{name}: {:.2}", ratios[name]);
        assert!(ratios[name] <= 1.6, "{name}: {:.2}", ratios[name]);
    }
}

#[test]
fn english_prose_is_not_estimated_over_eight_fifths() {
    let ratio = ratios()["english_prose"];
    assert!((0.8..=1.6).contains(&ratio), "{ratio:.2}");
}

#[test]
fn hostile_texts_are_bounded_too() {
    for (name, ratio) in ratios() {
        // Rare ideographs cannot be told from common ones without a table of them.
        let least = if name == "rare_chinese" { 0.6 } else { 0.8 };
        assert!((least..=1.8).contains(&ratio), "{name}: {ratio:.2}");
    }
}

#[test]
fn media_is_counted_by_type_and_not_as_text() {
    for (mime, bytes, seconds, expected) in [
        ("image/png", 900, None, 258),
        ("image/jpeg", 40_000, None, 3 * 258),
        ("image/jpeg", 50_000_000, None, 16 * 258),
        ("IMAGE/WEBP; q=1", 0, None, 258),
        ("audio/mpeg", 10, Some(60.0), 60 * 32),
        ("audio/mpeg", 10, Some(0.2), 32),
        ("audio/ogg", 60_000, None, 60 * 32),
        ("video/mp4", 10, Some(10.0), 2_630),
        ("video/mp4", 8_001, None, 2 * 263),
        ("application/pdf", 40_000, None, 10 * 258),
        ("text/plain", 101, None, 51),
        ("application/json", 10, None, 5),
        ("application/zip", 10, None, 10),
        ("", 10, None, 10),
        // A duration that is none is not believed.
        ("audio/wav", 2_000, Some(f64::NAN), 64),
        ("audio/wav", 2_000, Some(-1.0), 64),
        ("audio/wav", 2_000, Some(f64::INFINITY), 64),
    ] {
        assert_eq!(estimate::media(mime, bytes, seconds), expected, "{mime} {bytes} {seconds:?}");
    }
    assert_eq!(estimate::media("video/mp4", u64::MAX, Some(f64::MAX)), u64::MAX);
}

proptest! {
    // Persistence of failures looks for a `lib.rs` beside this file.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_has_an_estimate_within_its_bytes(text: String) {
        let tokens = estimate::tokens(&text);
        prop_assert!(tokens <= 3 * text.len() as u64);
        prop_assert_eq!(tokens == 0, text.is_empty());
    }

    #[test]
    fn more_text_is_not_fewer_tokens(a in "[ -~\n\té好👍]{0,40}", b in "[ -~\n\té好👍]{0,40}") {
        // By a fraction it can be: a space that ended the text becomes part of a word.
        let both = [a.as_str(), b.as_str()].concat();
        prop_assert!(estimate::tokens(&both) + 1 >= estimate::tokens(&a));
    }
}
