//! `keywheel init` and `keywheel project`.

use std::fs;

use crate::common::{Ended, Place, assert_form};

/// The token that a run printed.
fn token(place: &Place, arguments: &[&str]) -> String {
    let ended = Ended::with_token(place.command(arguments).output().unwrap()).ends(0);
    let token = ended.stdout.trim_end().to_owned();
    assert!(token.starts_with("kw_") && token.len() == 46, "not a token alone");
    token
}

#[test]
fn init_writes_a_commented_file_that_holds_and_overwrites_none() {
    let place = Place::new().with("GEMINI_API_KEY_1", "AQ.EXAMPLE-init");
    place.run(&["init"]).ends(0).says("keywheel.toml").complains("project add");
    let text = place.read("keywheel.toml");
    assert!(text.lines().filter(|line| line.starts_with('#')).count() > 20);
    // Every default, so it changes nothing.
    place.run(&["status"]).ends(0);
    place.run(&["init"]).ends(2).complains("already");
    assert_eq!(place.read("keywheel.toml"), text);
    assert_eq!(place.run(&["init", "--print"]).ends(0).stdout, text);
    place.run(&["init", "another.toml"]).ends(0);
    assert_eq!(place.read("another.toml"), text);
}

#[test]
fn a_token_is_printed_once_and_the_file_keeps_its_hash_and_every_comment() {
    let place = Place::new().with("GEMINI_API_KEY_1", "AQ.EXAMPLE-project");
    place.run(&["init"]).ends(0);
    let before = place.read("keywheel.toml");
    let given = ["project", "add", "triage", "--tokens-per-day", "300000", "--models", "a,b"];
    let token = token(&place, &given);
    let after = place.read("keywheel.toml");
    assert!(!after.contains(&token), "the token is in the file");
    assert!(before.lines().all(|line| after.contains(line)), "a line was lost");
    let hash = keywheel_gateway::Token::chosen(&token).unwrap().hash().to_string();
    assert!(after.contains(&hash), "not the hash of the token");
    let list = place.run(&["project", "list", "--json"]).ends(0).json("project list");
    let triage = &list["projects"][0];
    assert_eq!((&triage["name"], &triage["tokens"]), (&"triage".into(), &1.into()));
    assert_eq!(triage["limits"][0], "300000 tokens a day");
    assert_eq!(triage["models"], serde_json::json!(["a", "b"]));
    assert_form("project-list", &[&list]);
    place.run(&["project", "list"]).ends(0).says("triage").says("300000 tokens a day");
}

#[test]
fn settings_that_are_turned_on_later_stay_out_of_a_project_that_was_added() {
    let place = Place::new().with("GEMINI_API_KEY_1", "AQ.EXAMPLE-project");
    place.run(&["init"]).ends(0);
    token(&place, &["project", "add", "triage"]);
    let text = place.read("keywheel.toml");
    let mut on = text.clone();
    for (setting, value) in [
        ("listen", "listen = \"127.0.0.1:8787\""),
        ("[allowance]", "[allowance]"),
        ("tokens_per_day", "tokens_per_day = 1_000_000"),
    ] {
        let off = format!("\n#{value}\n");
        assert!(on.contains(&off), "{setting} is not in the file");
        on = on.replacen(&off, &format!("\n{value}\n"), 1);
    }
    place.write("keywheel.toml", &on);
    let list = place.run(&["project", "list", "--json"]).ends(0).json("project list");
    let limits = list["projects"][0]["limits"].as_array().unwrap();
    assert!(limits.iter().all(|limit| !limit.as_str().unwrap().contains("1000000")), "{list}");
    // Each goes to the end, and only there.
    token(&place, &["project", "add", "batch"]);
    let more = place.read("keywheel.toml");
    assert!(
        more.starts_with(&on) && more[on.len()..].starts_with("\n[projects.batch]\n"),
        "{more}"
    );
}

#[test]
fn a_project_is_added_once_and_by_a_plain_name() {
    let place = Place::new();
    place.run(&["project", "add", "triage"]).ends(2).complains("keywheel init");
    place.write("keywheel.toml", "# mine\n");
    token(&place, &["project", "add", "triage"]);
    let text = place.read("keywheel.toml");
    place.run(&["project", "add", "triage"]).ends(2).complains("rotate");
    for name in ["", "a b", "../x", "a/b", ".hidden", "größe", "kw_x"] {
        place.run(&["project", "add", "--", name]).ends(2).complains("letters");
    }
    assert_eq!(place.read("keywheel.toml"), text, "a refusal changes nothing");
}

#[test]
fn a_rotation_ends_the_old_token_or_keeps_it_for_the_change() {
    let place = Place::new();
    place.write("keywheel.toml", "# mine\n[projects.app] # and its comment\ntokens_per_day = 5\n");
    let first = token(&place, &["project", "rotate", "app"]);
    let both = token(&place, &["project", "rotate", "app", "--keep"]);
    let hash = |token: &str| keywheel_gateway::Token::chosen(token).unwrap().hash().to_string();
    let text = place.read("keywheel.toml");
    assert!(text.contains(&hash(&first)) && text.contains(&hash(&both)), "one of both is gone");
    assert!(text.contains("# mine") && text.contains("# and its comment"));
    let list = place.run(&["project", "list", "--json"]).ends(0).json("project list");
    assert_eq!(list["projects"][0]["tokens"], 2);
    let last = token(&place, &["project", "rotate", "app"]);
    let text = place.read("keywheel.toml");
    assert!(text.contains(&hash(&last)) && !text.contains(&hash(&both)), "the old one stays");
    place.run(&["project", "rotate", "none"]).ends(2).complains("app");
}

#[test]
fn a_file_keeps_its_permissions_and_a_link_stays_a_link() {
    let place = Place::new();
    place.write("real.toml", "# mine\n");
    #[cfg(unix)]
    {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        fs::set_permissions(place.path("real.toml"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("real.toml", place.path("keywheel.toml")).unwrap();
        token(&place, &["project", "add", "app"]);
        assert!(fs::symlink_metadata(place.path("keywheel.toml")).unwrap().is_symlink());
        let mode = fs::metadata(place.path("real.toml")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }
}

#[test]
fn what_is_no_toml_is_told_by_its_place_and_never_quoted() {
    let place = Place::new();
    place.write("client.toml", "[keys]\nkey = AQ.EXAMPLE-pasted-key\n");
    let arguments = ["--config", "client.toml", "project", "add", "app"];
    place.run(&arguments).ends(2).complains("client.toml:2:");
}
