//! Any environment and any file: nothing is ever printed of a value.

use proptest::prelude::*;

use super::*;

/// Names near and at the ones that are read, and values with a secret in all the wrong places.
fn variables() -> impl Strategy<Value = Vec<(String, String)>> {
    let name = prop_oneof![
        "GEMINI_API_KEY(S|_|_[0-9A-Za-z_]{1,4}|)",
        "GEMINI_PAID_API_KEY(S|_|_[0-9]{1,2}|)",
        "GEMINI_PROJECT(_|_[0-9]{1,2}|)",
        "(GOOGLE_API_KEY|gemini_api_key_1|OTHER|)",
    ];
    let around = "[ ,;\"'$\\\\#=<>\n\r\t“\u{200b}\u{feff}a\u{0}é]{0,3}";
    let value = (around, "(SECRET[0-9]|AIzaSySECRET|)", around, "(SECRET|)", around);
    let value = value.prop_map(|(a, b, c, d, e)| [a, b, c, d, e].concat());
    proptest::collection::vec((name, value), 0..8)
}

fn shown(loader: &KeyLoader) -> String {
    match loader.load() {
        Err(error) => format!("{loader:?} {error} {error:?}"),
        Ok(loaded) => {
            // Names of quota projects are for showing, and here some hold the word by chance.
            let keys: Vec<_> = loaded.keys.iter().map(|s| (&s.key, &s.label, s.tier)).collect();
            format!(
                "{loader:?} {keys:?} {:?} {:?} {:?}",
                notes(&loaded),
                loaded.notes,
                loaded.sources
            )
        }
    }
}

proptest! {
    #[test]
    fn the_loader_takes_any_environment_and_never_prints_a_value(variables in variables()) {
        let text = shown(&KeyLoader::new().environment(variables));
        prop_assert!(!text.contains("SECRET"), "a value was printed");
    }

    #[test]
    fn the_loader_takes_any_dotenv_file_and_never_prints_a_value(variables in variables(), mix: u8) {
        let dir = TempDir::new().unwrap();
        let separator = ["=", " = ", ": ", " "][usize::from(mix % 4)];
        let text: String = variables.iter().map(|(n, v)| format!("{n}{separator}{v}\n")).collect();
        let path = file(&dir, ".env", &text);
        let text = shown(&KeyLoader::new().dotenv(&path).file(&path));
        prop_assert!(!text.contains("SECRET"), "a value was printed");
    }

    #[test]
    fn the_order_of_the_environment_does_not_matter(variables in variables(), by in 0usize..8) {
        // A name can stand only once in an environment.
        let once: std::collections::BTreeMap<_, _> = variables.into_iter().collect();
        let mut turned: Vec<_> = once.clone().into_iter().collect();
        if !turned.is_empty() {
            let by = by % turned.len();
            turned.rotate_left(by);
        }
        let (a, b) = (KeyLoader::new().environment(once).load(), KeyLoader::new().environment(turned).load());
        prop_assert!(a == b, "the order matters");
    }
}
