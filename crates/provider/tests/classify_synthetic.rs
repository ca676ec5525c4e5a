//! Bodies made up from what is documented or reported, in forms that the published corpus does not
//! hold.
//!
//! All of them are synthetic: they test that the rules read names and meanings, not the wording of
//! one file.

mod support;

use serde_json::Value;
use support::now;

#[test]
fn bodies_that_nobody_has_published_follow_the_same_rules() {
    let cases: Value = serde_json::from_str(include_str!("synthetic.json")).unwrap();
    let cases = cases.as_array().unwrap();
    assert!(cases.len() > 80);
    for case in cases {
        let verdict = keywheel_provider::explain(case.as_object().unwrap(), now());
        for field in ["kind", "scope", "retry", "key_is_dead"] {
            assert_eq!(verdict[field], case[field], "{}: {field}", case["name"]);
        }
    }
}
