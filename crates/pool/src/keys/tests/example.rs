//! The repository's `.env.example`.

use super::*;

/// The lines of `.env.example` that begin with `# NAME=`, without the `# `.
fn example_lines() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.env.example");
    let text = fs::read_to_string(path).unwrap();
    let assignment = |line: &str| {
        let line = line.strip_prefix("# ")?;
        let name = line.strip_prefix("export ").unwrap_or(line).split('=').next()?;
        let is_name =
            name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
        (is_name && line.contains('=')).then(|| line.to_owned())
    };
    assert!(text.lines().all(|line| line.is_empty() || line.starts_with('#')), "all commented out");
    text.lines().filter_map(assignment).collect()
}

#[test]
fn the_example_file_as_it_is_gives_no_keys_and_no_faults() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.env.example");
    let error = KeyLoader::new().dotenv(path).load().unwrap_err();
    let KeysError::NoKeys(none) = error else { panic!("{error}") };
    assert_eq!(none.sources[0].keys, Some(0));
    assert_eq!(none.notes, []);
}

#[test]
fn the_example_files_placeholders_are_all_refused_by_name() {
    let dir = TempDir::new().unwrap();
    let path = file(&dir, ".env", example_lines().join("\n"));
    let KeysError::Faults(found) = KeyLoader::new().dotenv(&path).load().unwrap_err() else {
        panic!("no faults")
    };
    assert_eq!(found.len(), 11);
    assert!(found.iter().all(|fault| fault.problem == Problem::Placeholder));
}

#[test]
fn the_example_file_filled_in_shows_every_variable() {
    let dir = TempDir::new().unwrap();
    let mut text = example_lines().join("\n");
    for n in 0.. {
        let Some(at) = text.find("your-key-here") else { break };
        text.replace_range(at..at + "your-key-here".len(), &key(n));
    }
    let loaded = KeyLoader::new().dotenv(file(&dir, ".env", text)).load().unwrap();
    let expected = [
        ("GEMINI_API_KEY_1", Some("my-first-project"), Tier::Free),
        ("GEMINI_API_KEY_2", Some("my-first-project"), Tier::Free),
        ("GEMINI_API_KEY_10", None, Tier::Free),
        ("GEMINI_API_KEY_WORK", None, Tier::Free),
        ("GEMINI_API_KEY", None, Tier::Free),
        ("GEMINI_API_KEYS#1", None, Tier::Free),
        ("GEMINI_API_KEYS#2", None, Tier::Free),
        ("GEMINI_API_KEYS#3", None, Tier::Free),
        ("GOOGLE_API_KEY", None, Tier::Free),
        ("GEMINI_PAID_API_KEY_BACKUP", Some("my-paid-project"), Tier::Paid),
        ("GEMINI_PAID_API_KEY", None, Tier::Paid),
    ];
    let found: Vec<_> =
        loaded.keys.iter().map(|s| (s.label.as_str(), s.project.as_deref(), s.tier)).collect();
    assert_eq!(found, expected);
    assert_eq!(loaded.notes, []);
}
