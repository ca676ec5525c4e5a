//! The loader against maps and files. The process environment is never changed.

use std::{fs, path::PathBuf};

use keywheel_core::{ApiKey, Tier};
use tempfile::TempDir;

use super::*;

mod any_input;
mod example;

fn key(n: u32) -> String {
    format!("AQ.EXAMPLE-key-{n}")
}

fn env<const N: usize>(variables: [(&str, &str); N]) -> KeyLoader {
    KeyLoader::new().environment(variables)
}

fn labels(loaded: &LoadedKeys) -> Vec<&str> {
    loaded.keys.iter().map(|spec| spec.label.as_str()).collect()
}

fn notes(loaded: &LoadedKeys) -> Vec<String> {
    loaded.notes.iter().map(KeyNote::to_string).collect()
}

fn faults(error: KeysError) -> Vec<String> {
    match error {
        KeysError::Faults(faults) => faults.iter().map(KeyFault::to_string).collect(),
        KeysError::NoKeys(none) => panic!("no faults, but: {none}"),
    }
}

fn file(dir: &TempDir, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn keys_come_in_natural_order_then_bare_list_google_paid() {
    let names = [
        "GEMINI_API_KEY_WORK",
        "GEMINI_PAID_API_KEY",
        "GOOGLE_API_KEY",
        "GEMINI_API_KEY_10",
        "GEMINI_API_KEYS",
        "GEMINI_PAID_API_KEY_10",
        "GEMINI_API_KEY",
        "GEMINI_PAID_API_KEY_9",
        "GEMINI_API_KEY_2",
    ];
    let loaded = KeyLoader::new()
        .environment(names.into_iter().zip(1..).map(|(name, n)| (name, key(n))))
        .load()
        .unwrap();
    let expected = [
        "GEMINI_API_KEY_2",
        "GEMINI_API_KEY_10",
        "GEMINI_API_KEY_WORK",
        "GEMINI_API_KEY",
        "GEMINI_API_KEYS#1",
        "GOOGLE_API_KEY",
        "GEMINI_PAID_API_KEY_9",
        "GEMINI_PAID_API_KEY_10",
        "GEMINI_PAID_API_KEY",
    ];
    assert_eq!(labels(&loaded), expected);
    let paid = loaded.keys.iter().filter(|spec| spec.tier == Tier::Paid).count();
    assert_eq!(paid, 3);
    assert_eq!(loaded.notes, []);
}

// https://github.com/hydropix/TranslateBooksWithLLMs/issues/163: several keys in `.env` were read
// as one key.
#[test]
fn several_keys_are_never_read_as_one() {
    let dir = TempDir::new().unwrap();
    let several = format!("{},{};{}", key(1), key(2), key(3));
    let listed = file(&dir, "listed", format!("GEMINI_API_KEYS={several}\n"));
    let loaded = KeyLoader::new().dotenv(&listed).load().unwrap();
    assert_eq!(labels(&loaded), ["GEMINI_API_KEYS#1", "GEMINI_API_KEYS#2", "GEMINI_API_KEYS#3"]);
    assert_eq!(loaded.sources[0].keys, Some(3));

    let hint = "seems to hold several keys; use GEMINI_API_KEYS for a list of them, or a suffix for each (_1, _2, ...)";
    for separator in [",", ", ", ";", " ", "\n", "\t"] {
        let value = format!("{}{separator}{}", key(1), key(2));
        let error = env([("GEMINI_API_KEY", value.as_str())]).load().unwrap_err();
        assert_eq!(faults(error), [format!("GEMINI_API_KEY: {hint}")], "{separator:?}");
    }
    let quoted = file(&dir, "quoted", format!("# two\nGEMINI_API_KEY=\"{} {}\"", key(1), key(2)));
    let error = KeyLoader::new().dotenv(&quoted).load().unwrap_err();
    let place = format!("GEMINI_API_KEY (line 2 of {})", quoted.display());
    assert_eq!(faults(error), [format!("{place}: {hint}")]);
}

#[test]
fn a_name_set_twice_in_one_file_is_a_fault_and_not_one_key() {
    let dir = TempDir::new().unwrap();
    let path =
        file(&dir, ".env", format!("GEMINI_API_KEY={}\n\nGEMINI_API_KEY={}", key(1), key(2)));
    let error = KeyLoader::new().dotenv(&path).load().unwrap_err();
    let place = format!("GEMINI_API_KEY (line 3 of {})", path.display());
    let expected =
        "is set on line 1 already, to something else; give each key its own suffix (_1, _2, ...)";
    assert_eq!(faults(error), [format!("{place}: {expected}")]);

    let same = file(&dir, "same", format!("GEMINI_API_KEY={0}\nGEMINI_API_KEY='{0}'", key(1)));
    assert_eq!(KeyLoader::new().dotenv(&same).load().unwrap().keys.len(), 1);
}

// https://github.com/ultimatejimmy/xray.koplugin/issues/72: keys that begin with `AQ.` were
// refused.
#[test]
fn keys_of_both_forms_are_loaded() {
    let old = "AIzaSyEXAMPLE0000000000000000000000000001";
    let loaded =
        env([("GEMINI_API_KEY_1", old), ("GEMINI_API_KEY_2", "AQ.EXAMPLE")]).load().unwrap();
    assert_eq!(labels(&loaded), ["GEMINI_API_KEY_1", "GEMINI_API_KEY_2"]);
}

#[test]
fn all_faults_are_listed_at_once_each_with_its_name() {
    let error = env([
        ("GEMINI_API_KEY_1", "your-key-here"),
        ("GEMINI_API_KEY_2", "AQ.EXAMPLE"),
        ("GEMINI_API_KEY_3", "AQ.EXA MPLE"),
        ("GEMINI_API_KEY_4", "AQ.EXÄMPLE"),
        ("GEMINI_API_KEY_5", "\"AQ.EXA'MPLE\""),
        ("GEMINI_API_KEY_6", "AQ.EXA\u{200b}MPLE"),
        ("GEMINI_API_KEY_", "AQ.EXAMPLE"),
        ("GEMINI_API_KEYS", "AQ.EXAMPLE;changeme;AQ.EXA MPLE"),
        ("GOOGLE_API_KEY", "<key>"),
        ("GEMINI_PAID_API_KEY", "xxx"),
        ("GEMINI_PROJECT_2", "AIzaSyEXAMPLE0000000000000000000000000001"),
    ])
    .file("/nowhere/keys")
    .load()
    .unwrap_err();
    let text = error.to_string();
    let expected = "\
12 things are wrong with the API keys:
  GEMINI_PROJECT_2: is no name for a quota project: it looks like a key, begins with \"key:\" or has control characters
  GEMINI_API_KEY_1: is a placeholder, not a key
  GEMINI_API_KEY_3: seems to hold several keys; use GEMINI_API_KEYS for a list of them, or a suffix for each (_1, _2, ...)
  GEMINI_API_KEY_4: has a character inside that is not ASCII
  GEMINI_API_KEY_5: has a quote inside
  GEMINI_API_KEY_6: has an invisible character inside; copy the key again
  GEMINI_API_KEYS#2: is a placeholder, not a key
  GEMINI_API_KEYS#3: seems to hold several keys; use commas between them
  GOOGLE_API_KEY: is a placeholder, not a key
  GEMINI_PAID_API_KEY: is a placeholder, not a key
  GEMINI_API_KEY_: lacks the suffix after its last underscore
  /nowhere/keys: cannot be read: entity not found";
    assert_eq!(text, expected);
    assert_eq!(faults(error).len(), 12);
}

#[test]
fn a_duplicate_is_loaded_once_and_both_names_are_reported() {
    let (one, two) = (key(1), key(2));
    let loaded = env([
        ("GEMINI_API_KEY_1", one.as_str()),
        ("GEMINI_API_KEY_2", two.as_str()),
        ("GEMINI_API_KEY", one.as_str()),
        ("GEMINI_API_KEYS", format!("{two},{two}").as_str()),
    ])
    .keys([KeySpec::new(ApiKey::new(one.as_str()).unwrap(), "mine")])
    .load()
    .unwrap();
    assert_eq!(labels(&loaded), ["GEMINI_API_KEY_1", "GEMINI_API_KEY_2"]);
    let expected = [
        "GEMINI_API_KEY is the same key as GEMINI_API_KEY_1; it counts once",
        "GEMINI_API_KEYS#1 is the same key as GEMINI_API_KEY_2; it counts once",
        "GEMINI_API_KEYS#2 is the same key as GEMINI_API_KEY_2; it counts once",
        "mine (given in code) is the same key as GEMINI_API_KEY_1; it counts once",
    ];
    assert_eq!(notes(&loaded), expected);
}

#[test]
fn a_key_given_as_free_and_as_paid_costs_no_money_unasked() {
    let loaded = env([("GEMINI_API_KEY_1", "AQ.EXAMPLE"), ("GEMINI_PAID_API_KEY", "AQ.EXAMPLE")])
        .load()
        .unwrap();
    assert_eq!(loaded.keys.len(), 1);
    assert_eq!(loaded.keys[0].tier, Tier::Paid);
    let expected = "GEMINI_PAID_API_KEY and GEMINI_API_KEY_1 are one key, given as free and as paid; it is taken as paid";
    assert_eq!(notes(&loaded), [expected]);
}

#[test]
fn a_project_goes_to_the_keys_with_its_suffix() {
    let keys: Vec<String> = (0..5).map(key).collect();
    let loaded = env([
        ("GEMINI_API_KEY_1", keys[0].as_str()),
        ("GEMINI_API_KEY_2", keys[1].as_str()),
        ("GEMINI_API_KEY", keys[2].as_str()),
        ("GEMINI_PAID_API_KEY_x", keys[3].as_str()),
        ("GEMINI_API_KEY_X", keys[4].as_str()),
        ("GEMINI_PROJECT_2", " 'home' "),
        ("GEMINI_PROJECT", "bare"),
        ("GEMINI_PROJECT_x", "paid"),
        ("GEMINI_PROJECT_3", "nobody's"),
        ("GEMINI_PROJECT_1", ""),
    ])
    .load()
    .unwrap();
    let projects: Vec<_> =
        loaded.keys.iter().map(|spec| (spec.label.as_str(), spec.project.as_deref())).collect();
    let expected = [
        ("GEMINI_API_KEY_1", None),
        ("GEMINI_API_KEY_2", Some("home")),
        ("GEMINI_API_KEY_X", None),
        ("GEMINI_API_KEY", Some("bare")),
        ("GEMINI_PAID_API_KEY_x", Some("paid")),
    ];
    assert_eq!(projects, expected);
    let expected = [
        "GEMINI_PROJECT_1 is set, but empty",
        "GEMINI_PROJECT_3 names a quota project, but there is no key with that suffix",
    ];
    assert_eq!(notes(&loaded), expected);
}

#[test]
fn a_key_that_slipped_into_a_projects_name_is_refused() {
    let error =
        env([("GEMINI_API_KEY_1", "sk-EXAMPLE1"), ("GEMINI_PROJECT_1", "sk-EXAMPLE1")]).load();
    assert_eq!(faults(error.unwrap_err()).len(), 1);
}

#[test]
fn a_real_variable_wins_over_dotenv_even_when_empty() {
    let dir = TempDir::new().unwrap();
    let path = file(
        &dir,
        ".env",
        "GEMINI_API_KEY_1=AQ.EXAMPLE-file-1\nGEMINI_API_KEY_2=AQ.EXAMPLE-file-2\nGEMINI_API_KEY_3=AQ.EXAMPLE-file-3\n",
    );
    let variables = [("GEMINI_API_KEY_1", "AQ.EXAMPLE-real-1"), ("GEMINI_API_KEY_2", "")];
    let loaded = KeyLoader::new().dotenv(&path).environment(variables).load().unwrap();
    assert_eq!(labels(&loaded), ["GEMINI_API_KEY_1", "GEMINI_API_KEY_3"]);
    assert!(loaded.keys[0].key.expose() == "AQ.EXAMPLE-real-1", "the file won");
    let hidden = |line, name| {
        format!(
            "GEMINI_API_KEY_{name} (line {line} of {}) is not used: the environment or an earlier file sets it otherwise",
            path.display()
        )
    };
    let expected = [hidden(1, 1), hidden(2, 2), "GEMINI_API_KEY_2 is set, but empty".into()];
    assert_eq!(notes(&loaded), expected);
    let sources: Vec<_> = loaded.sources.iter().map(KeySource::to_string).collect();
    assert_eq!(sources, ["the environment (1 key)".into(), format!("{} (1 key)", path.display())]);
}

#[test]
fn one_variable_is_read_alone_by_the_rules_of_all() {
    let dir = TempDir::new().unwrap();
    let text = "MY_KEY=AQ.EXAMPLE-file\nMY_KEY_2=AQ.EXAMPLE-2\nMY_KEYS=AQ.EXAMPLE-3\n";
    let path = file(&dir, ".env", text);
    let only = || KeyLoader::new().only("MY_KEY").dotenv(&path);
    assert_eq!(labels(&only().load().unwrap()), ["MY_KEY"]);
    let real = only().environment([("MY_KEY", "'AQ.EXAMPLE-real'")]).load().unwrap();
    assert!(real.keys[0].key.expose() == "AQ.EXAMPLE-real", "the file won");

    let none = KeyLoader::new().only("YOUR_KEY").dotenv(&path).load().unwrap_err().to_string();
    assert!(none.starts_with("no API key found. Looked for YOUR_KEY in "), "{none}");
    let two =
        KeyLoader::new().only("MY_KEY").environment([("MY_KEY", "AQ.EXAMPLE-a, AQ.EXAMPLE-b")]);
    let found = faults(two.load().unwrap_err());
    assert_eq!(found, ["MY_KEY: seems to hold several keys; use a variable for each"]);
}

#[test]
fn a_malformed_dotenv_line_is_reported_by_number_and_stops_nothing() {
    let dir = TempDir::new().unwrap();
    let path = file(
        &dir,
        "a",
        "some words\nGEMINI_API_KEY_1=AQ.EXAMPLE\nOTHER=\"open\nGEMINI_API_KEY_2=AQ.EXAMPLE2",
    );
    let loaded = KeyLoader::new().dotenv(&path).load().unwrap();
    assert_eq!(labels(&loaded), ["GEMINI_API_KEY_1", "GEMINI_API_KEY_2"]);
    let expected = [1, 3]
        .map(|n| format!("line {n} of {} was passed over: it is not NAME=value", path.display()));
    assert_eq!(notes(&loaded), expected);

    // About keys: a fault, since a key would be missing.
    let path = file(
        &dir,
        "b",
        "GEMINI_API_KEY_1: AQ.EXAMPLE\nGEMINI_API_KEY_2=$OTHER\nGEMINI_API_KEY_3=AQ.E XAMPLE",
    );
    let found = faults(KeyLoader::new().dotenv(&path).load().unwrap_err());
    assert_eq!(found.len(), 3);
    for (line, fault) in (1..).zip(&found) {
        assert!(fault.starts_with(&format!("GEMINI_API_KEY_{line} (line {line} of ")), "{fault}");
    }
}

#[test]
fn a_key_file_holds_one_key_a_line() {
    let dir = TempDir::new().unwrap();
    let text = "\u{feff}# ours\r\nAQ.EXAMPLE-1\r\n\r\n  'AQ.EXAMPLE-2'  # the second\r\n#AQ.EXAMPLE-3\r\nAQ.EXAMPLE-1";
    let path = file(&dir, "keys.txt", text);
    let loaded = env([("GEMINI_API_KEY", "AQ.EXAMPLE-0")]).file(&path).load().unwrap();
    assert_eq!(labels(&loaded), ["GEMINI_API_KEY", "keys.txt:2", "keys.txt:4"]);
    let duplicate =
        format!("line 6 of {} is the same key as keys.txt:2; it counts once", path.display());
    assert_eq!(notes(&loaded), [duplicate]);

    let path = file(&dir, "bad.txt", "AQ.EXAMPLE-1\nAQ.EXAMPLE-2, AQ.EXAMPLE-3\n");
    let error = KeyLoader::new().file(&path).load().unwrap_err();
    let expected =
        format!("line 2 of {}: seems to hold several keys; use a line for each", path.display());
    assert_eq!(faults(error), [expected]);
}

#[test]
fn a_file_in_another_encoding_is_named() {
    let dir = TempDir::new().unwrap();
    let utf16: Vec<u8> =
        "GEMINI_API_KEY=AQ.EXAMPLE\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let path = file(&dir, ".env", utf16);
    let error = KeyLoader::new().dotenv(&path).load().unwrap_err();
    assert_eq!(faults(error), [format!("{}: is not UTF-8 text", path.display())]);

    let latin1 = file(&dir, "latin1", b"# caf\xe9\nGEMINI_API_KEY=AQ.EXAMPLE\n");
    assert_eq!(KeyLoader::new().dotenv(&latin1).load().unwrap().keys.len(), 1);

    let error = KeyLoader::new().dotenv(dir.path()).load().unwrap_err();
    assert!(error.to_string().contains("cannot be read"), "a folder is no .env file");
}

#[test]
fn no_keys_says_what_was_looked_for_and_where() {
    let dir = TempDir::new().unwrap();
    let here = file(&dir, "here", "OTHER=1\n");
    let absent = dir.path().join("absent");
    let error = env([("GEMINI_API_KEY", " "), ("GEMINI_API_KEY2", "AQ.EXAMPLE")])
        .dotenv(&here)
        .dotenv(&absent)
        .load()
        .unwrap_err();
    let expected = format!(
        "no API key found. Looked for GEMINI_API_KEY_<ANY SUFFIX>, GEMINI_API_KEY, GEMINI_API_KEYS, GOOGLE_API_KEY, \
         GEMINI_PAID_API_KEY_<ANY SUFFIX>, GEMINI_PAID_API_KEY in the environment (0 keys), {} (0 keys), {} (does not \
         exist)\n  GEMINI_API_KEY is set, but empty\n  GEMINI_API_KEY2 is not read; if it is meant to be a key, put an \
         underscore before the suffix and keep the case",
        here.display(),
        absent.display(),
    );
    assert_eq!(error.to_string(), expected);

    let nowhere = KeyLoader::new().load().unwrap_err().to_string();
    assert!(nowhere.ends_with("nowhere: the loader was given no place to look in"), "{nowhere}");
}

#[test]
fn another_prefix_reads_its_own_variables_only() {
    let variables = [
        ("ACME_API_KEY_1", "AQ.EXAMPLE-1"),
        ("ACME_PAID_API_KEY", "AQ.EXAMPLE-2"),
        ("ACME_PROJECT_1", "acme"),
        ("GEMINI_API_KEY", "AQ.EXAMPLE-3"),
        ("GOOGLE_API_KEY", "AQ.EXAMPLE-4"),
    ];
    let loaded = env(variables).prefix("ACME_API_KEY_").load().unwrap();
    assert_eq!(labels(&loaded), ["ACME_API_KEY_1", "ACME_PAID_API_KEY"]);
    assert_eq!(loaded.keys[0].project.as_deref(), Some("acme"));
}

#[test]
fn the_process_environment_is_read_and_not_changed() {
    let before: Vec<_> = std::env::vars_os().collect();
    let dir = TempDir::new().unwrap();
    let path = file(&dir, ".env", "KEYWHEEL_TEST_KEY_1=AQ.EXAMPLE\nexport OTHER=1\n");
    let loaded = KeyLoader::new()
        .prefix("KEYWHEEL_TEST_KEY")
        .process_environment()
        .dotenv(&path)
        .load()
        .unwrap();
    assert_eq!(labels(&loaded), ["KEYWHEEL_TEST_KEY_1"]);
    assert!(before == std::env::vars_os().collect::<Vec<_>>(), "the environment changed");

    // `PATH` is set wherever tests run, and too odd for a key or a placeholder to be more than
    // read.
    let path = KeyLoader::new().prefix("PATH").process_environment().load();
    let seen = match path {
        Ok(loaded) => !loaded.keys.is_empty(),
        Err(error) => matches!(error, KeysError::Faults(_)),
    };
    assert!(seen, "PATH was not read");
}

/// Whoever writes the whole setup into `.env` believes that it all holds.
#[test]
fn a_setting_that_dotenv_files_do_not_have_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let text =
        "GEMINI_API_KEY_1=AQ.EXAMPLE-a\nGOOGLE_GEMINI_BASE_URL=http://127.0.0.1:1\nOTHER=1\n";
    let loaded = KeyLoader::new().dotenv(file(&dir, ".env", text)).load().unwrap();
    let [note] = &*notes(&loaded) else { panic!("{:?}", loaded.notes) };
    assert!(note.starts_with("GOOGLE_GEMINI_BASE_URL (line 2 of "), "{note}");
    assert!(note.ends_with(
        "is not read: only keys and tokens are read from .env; set it in the environment"
    ));
    let alone = KeyLoader::new().only("GEMINI_API_KEY_1").dotenv(dir.path().join(".env"));
    assert_eq!(alone.load().unwrap().notes, []);
}
