//! The example file that the documentation shows.

use std::fs;

use keywheel::{Gemini, GeminiBuilder};

use super::{Folder, built, common::key, shown};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/keywheel-client.toml");

#[tokio::test]
async fn the_documented_example_is_understood_and_every_line_of_it_is_a_setting() {
    let text = fs::read_to_string(EXAMPLE).unwrap();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains(&format!("```toml\n{text}```")), "the page shows another file");

    // As it is.
    let builder =
        GeminiBuilder::from_config_with(EXAMPLE, [("GEMINI_API_KEY_1", key(1).expose())]).unwrap();
    let (gemini, _) = built(builder).await;
    assert_eq!(gemini.status().keys.len(), 1);

    // With every setting in use, beside what it names. The key is a placeholder, and found out.
    let line = |line: &str| match line.strip_prefix('#') {
        Some(setting) if !setting.starts_with(' ') => format!("{setting}\n"),
        _ => format!("{line}\n"),
    };
    let all: String = text.lines().map(line).collect();
    let chat = [("CHAT_KEY", key(1))];
    let chat = chat.each_ref().map(|(name, key)| (*name, key.expose()));
    let error = Folder::new(&all).with(&chat).unwrap_err().to_string();
    assert!(error.ends_with("key.key: is a placeholder, not a key"), "{error}");
    let folder = Folder::new(all.replace("AQ.paste-the-key-here", key(2).expose()));
    folder.put("keys.txt", key(3).expose());
    folder.put(".env", format!("GEMINI_API_KEY_1={}", key(4).expose()));
    let (gemini, _) = built(folder.with(&chat).unwrap()).await;
    assert_eq!(gemini.status().keys.len(), 4);
    assert_eq!(gemini.key_notes(), []);

    // The defaults it shows are the defaults. What has none is left out.
    let without = [
        "fallback =",
        "watch_keys",
        "account",
        "state",
        "dotenv",
        "file",
        "unspecified",
        "tpm",
        "tpd",
        "rpm",
        "rpd",
        "[limits",
    ];
    let defaults: String = all
        .lines()
        .take_while(|line| !line.starts_with("[[key]]"))
        .chain(all.lines().skip_while(|line| !line.starts_with("[timeouts]")))
        .filter(|line| !without.iter().any(|word| line.starts_with(word)))
        .map(|line| format!("{line}\n"))
        .collect();
    let set = Folder::new(&defaults).with(&[]).unwrap();
    let google = "https://generativelanguage.googleapis.com";
    let unset = Gemini::builder().base_url(google).api_version("v1beta");
    assert_eq!(shown(set), shown(unset));
}
