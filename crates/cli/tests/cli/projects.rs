//! `keywheel init` and `keywheel project`.

use std::fs;
#[cfg(unix)]
use std::process::Stdio;

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
    for name in ["", "a b", "../x", "a/b", ".hidden", "größe", &"x".repeat(129)] {
        place.run(&["project", "add", "--", name]).ends(2).complains("is made of letters");
    }
    place.run(&["project", "add", "kw_x"]).ends(2).complains("looks like a token");
    assert_eq!(place.read("keywheel.toml"), text, "a refusal changes nothing");
}

/// Clients show it until the first project with a token of its own is added; then they are refused.
#[test]
fn a_token_of_the_environment_that_stands_for_nobody_from_now_on_is_told() {
    let place = Place::new().with("KEYWHEEL_TOKEN", "a-token-of-my-own-EXAMPLE");
    place.write("keywheel.toml", "# mine\n");
    let added = place.command(&["project", "add", "triage"]).output().unwrap();
    let added =
        Ended::with_token(added).ends(0).complains("warning: KEYWHEEL_TOKEN: stands for nobody");
    assert!(!added.stderr.contains("a-token-of-my-own"), "it says the token");
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
fn limits_are_changed_one_by_one_and_every_remark_stays() {
    let place = Place::new();
    let text = "# mine\n[projects.app] # and its remark\n# as was agreed\ntokens_per_day = 5_000_000 # for now\n\
                in_flight = 2\n# what a minute may bring\nrequests_per_minute = 9 # not more\n#priority = 3\n\n\
                [projects.app.per_model.\"a\"]\ncalls_per_day = 7\n\n# of all\n[queue]\nwait = \"0s\"\n";
    place.write("keywheel.toml", text);
    let set = |more: &[&str]| {
        let ended = place.run(&[&["project", "set", "app"], more].concat()).ends(0);
        (ended.stdout.clone(), place.read("keywheel.toml"))
    };
    let (said, changed) = set(&["--tokens-per-day", "300000", "--calls-per-day=20"]);
    assert_eq!(said, "app has other limits now in keywheel.toml\n");
    let wanted = text
        .replace("5_000_000", "300000")
        .replace("# not more\n", "# not more\ncalls_per_day = 20\n");
    assert_eq!(changed, wanted);
    let (_, less) = set(&["--requests-per-minute", "none", "--in-flight", "none"]);
    let wanted = wanted.replace("in_flight = 2\n", "");
    assert_eq!(less, wanted.replace("requests_per_minute = 9 # not more", "# not more"));
    set(&["--models", "a,b", "--priority", "0"]);
    let list = place.run(&["project", "list", "--json"]).ends(0).json("project list");
    let app = &list["projects"][0];
    let limits = ["300000 tokens a day", "20 calls a day", "7 calls a day for a"];
    assert_eq!(app["limits"], serde_json::json!(limits));
    assert_eq!(app["models"], serde_json::json!(["a", "b"]));
    assert!(app["in_flight"].is_null() && app["requests_per_minute"].is_null(), "{app}");
    assert!(!set(&["--models", "all"]).1.contains("models ="));

    let before = place.read("keywheel.toml");
    let complaints: [(&[&str], _); 5] = [
        (&["app"], "no limit is named"),
        (&["app", "--in-flight", "0"], "a whole number from 1 on, or `none`"),
        (&["app", "--tokens-per-day", "many"], "a whole number from 0 on, or `none`"),
        (&["app", "--priority", "101"], "0..=100"),
        (&["none", "--priority", "1"], "there is app"),
    ];
    for (arguments, complaint) in complaints {
        place.run(&[&["project", "set"], arguments].concat()).ends(2).complains(complaint);
    }
    assert_eq!(place.read("keywheel.toml"), before, "a refusal changes nothing");
}

#[test]
fn limits_are_changed_however_a_project_is_written() {
    for text in [
        "[projects]\napp = { tokens_per_day = 5, in_flight = 2 }\n",
        "[projects]\napp.tokens_per_day = 5\napp.in_flight = 2\n",
        "[projects.app]\ntokens_per_day = 5\nin_flight = 2",
        "[projects.app.per_model.a]\ncalls_per_day = 9\n[queue]\nwait = \"1s\"\n",
    ] {
        let place = Place::new();
        place.write("keywheel.toml", text);
        let limits = ["--tokens-per-day", "none", "--in-flight", "none", "--calls-per-day", "3"];
        place.run(&[&["project", "set", "app"], &limits[..]].concat()).ends(0);
        let list = place.run(&["project", "list", "--json"]).ends(0).json("project list");
        assert_eq!(list["projects"][0]["limits"][0], "3 calls a day", "{text}");
        assert!(list["projects"][0]["in_flight"].is_null(), "{text}");
    }
}

#[test]
fn what_was_added_can_be_removed_and_the_file_is_as_it_was() {
    let place = Place::new().with("GEMINI_API_KEY_1", "AQ.EXAMPLE-project");
    place.run(&["init"]).ends(0);
    token(&place, &["project", "add", "first", "--models", "a"]);
    let before = place.read("keywheel.toml");
    token(&place, &["project", "add", "second"]);
    let with_second = place.read("keywheel.toml");
    token(&place, &["project", "add", "third", "--in-flight", "2"]);
    let ended = place.run(&["project", "remove", "third"]).ends(0).complains("in the ledger");
    assert_eq!(ended.stdout, "third is no more in keywheel.toml\n");
    assert_eq!(place.read("keywheel.toml"), with_second);
    let json = place.run(&["project", "remove", "second", "--json"]).ends(0);
    let json = json.json("project remove");
    assert_eq!((&json["project"], &json["config"]), (&"second".into(), &"keywheel.toml".into()));
    assert_eq!(place.read("keywheel.toml"), before);
    place.run(&["project", "remove", "first"]).ends(2).complains("the last project");
    place.run(&["project", "remove", "second"]).ends(2).complains("there is first");
    assert_eq!(place.read("keywheel.toml"), before, "a refusal changes nothing");
}

#[test]
fn what_cannot_be_told_from_its_neighbours_is_not_removed() {
    for text in [
        "[projects]\napp = { in_flight = 2 }\nb = {}\n",
        "[projects]\napp.in_flight = 2\nb.in_flight = 1\n",
    ] {
        let place = Place::new();
        place.write("keywheel.toml", text);
        place.run(&["project", "remove", "app"]).ends(2).complains("by hand");
        assert_eq!(place.read("keywheel.toml"), text);
    }
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

#[cfg(unix)]
#[test]
fn a_file_stays_its_owners_whoever_changes_it() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

    let place = Place::new();
    let file = place.write("keywheel.toml", "[projects.app]\n[projects.other]\n");
    // Only root can give files away; whoever else runs this finds that its own stays its own.
    let own = fs::metadata(&file).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    let (owner, group) = if is_root { (65_534, 65_534) } else { (own.uid(), own.gid()) };
    chown(&file, Some(owner), Some(group)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    place.run(&["project", "set", "app", "--priority", "3"]).ends(0);
    token(&place, &["project", "add", "third"]);
    token(&place, &["project", "rotate", "app"]);
    place.run(&["project", "remove", "other"]).ends(0);
    let about = fs::metadata(&file).unwrap();
    assert_eq!((about.uid(), about.gid(), about.mode() & 0o777), (owner, group, 0o600));
}

#[test]
fn what_the_gateway_would_refuse_is_not_written() {
    let place = Place::new().with("GEMINI_API_KEY_1", "AQ.EXAMPLE-project");
    place.write("keywheel.toml", "[projects.app]\nmodels = [\"a\"]\n");
    token(&place, &["project", "rotate", "app"]);
    let before = place.read("keywheel.toml");
    for models in ["--models=", "--models=a,,b", "--models=x\"y", "--models=a b"] {
        for (command, name) in [("set", "app"), ("add", "another")] {
            let ended = place.run(&["project", command, name, models]).ends(2);
            let fault = format!("projects.{name}.models: ");
            ended.complains("keywheel.toml is as it was").complains(&fault);
        }
    }
    assert_eq!(place.read("keywheel.toml"), before, "a refusal changes nothing");
}

#[test]
fn faults_that_were_there_before_keep_nobody_from_a_change() {
    let key = "[[key]]\nenv = \"NOT_SET_EXAMPLE\"\n";
    let place = Place::new();
    place.write("keywheel.toml", &format!("listn = 1\n[projects.a]\n[projects.b]\n{key}"));
    place.run(&["project", "set", "a", "--priority", "3"]).ends(0).complains("listn");
    place.run(&["project", "set", "a", "--models="]).ends(2).complains("projects.a.models");
    // Projects get their tokens one by one.
    place.write("keywheel.toml", "[projects.a]\n[projects.b]\n");
    token(&place, &["project", "rotate", "a"]);
    token(&place, &["project", "rotate", "b"]);
    let list = place.run(&["project", "list", "--json"]).ends(0).json("project list");
    assert_eq!(
        (&list["projects"][0]["tokens"], &list["projects"][1]["tokens"]),
        (&1.into(), &1.into())
    );
}

#[test]
fn lines_of_windows_stay_so() {
    let place = Place::new();
    let text = "# mine\r\n[projects.app] # and its remark\r\nin_flight = 2\r\n\r\n[queue]\r\nwait = \"0s\"\r\n";
    place.write("keywheel.toml", text);
    let set = ["project", "set", "app", "--priority", "3", "--in-flight", "none"];
    place.run(&set).ends(0);
    assert_eq!(place.read("keywheel.toml"), text.replace("in_flight = 2", "priority = 3"));
    let before = place.read("keywheel.toml");
    token(&place, &["project", "add", "other"]);
    let text = place.read("keywheel.toml");
    assert!(text.starts_with(&before) && text.contains("\r\n[projects.other]\r\n"), "{text:?}");
    assert_eq!(text.matches('\n').count(), text.matches("\r\n").count(), "{text:?}");
    place.run(&["project", "remove", "other"]).ends(0);
    assert_eq!(place.read("keywheel.toml"), before);
}

#[cfg(unix)]
#[test]
fn of_changes_at_the_same_time_none_is_lost() {
    let place = Place::new();
    let names: Vec<_> = (1..=8).map(|number| format!("app-{number}")).collect();
    let text: String = names.iter().map(|name| format!("[projects.{name}]\n")).collect();
    place.write("keywheel.toml", &text);
    let run = |name: &String| {
        let mut command = place.command(&["project", "set", name, "--priority", "7"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let running: Vec<_> = names.iter().map(run).collect();
    for child in running {
        Ended::of(child.wait_with_output().unwrap()).ends(0);
    }
    let wanted = text.replace("]\n", "]\npriority = 7\n");
    assert_eq!(place.read("keywheel.toml"), wanted);
}

/// What is left holds the keys of the file, or a part of them.
#[cfg(unix)]
#[test]
fn what_a_killed_edit_left_behind_goes_with_the_next() {
    use std::{os::unix::process::ExitStatusExt as _, process::Command};

    let place = Place::new();
    let key = "[[key]]\nkey = \"AQ.EXAMPLE-in-the-file\"\n";
    let text = format!("[projects.app]\n{key}{}", "# all that has to be remarked\n".repeat(200));
    place.write("keywheel.toml", &text);
    let left = || {
        let names = fs::read_dir(place.path("")).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.filter(|name| name.to_str().unwrap().starts_with(".keywheel.toml."));
        names.count()
    };
    let set = ["project", "set", "app", "--priority", "3"];
    // The system kills whoever writes more than it may: in the midst of the file.
    let inner = place.command(&set);
    let mut killed = Command::new("/bin/sh");
    killed.args(["-c", "ulimit -c 0; ulimit -f 1; exec \"$0\" \"$@\""]);
    killed.arg(inner.get_program()).args(inner.get_args());
    killed.current_dir(place.path("")).env_clear();
    killed.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = killed.output().unwrap();
    assert_eq!(output.status.signal(), Some(rustix::process::Signal::XFSZ.as_raw()));
    assert_eq!(left(), 1, "it was not killed while it wrote");
    assert!(place.read("keywheel.toml") == text, "the file itself is as it was");

    place.run(&["project", "set", "app", "--models="]).ends(2);
    assert_eq!(left(), 1, "a refusal changes nothing");
    place.run(&set).ends(0);
    assert_eq!(left(), 0);
    let wanted = text.replacen("]\n", "]\npriority = 3\n", 1);
    assert!(place.read("keywheel.toml") == wanted, "it is another one");
}

#[test]
fn the_mark_of_windows_editors_stays() {
    let place = Place::new();
    let text = "\u{feff}# mine\r\n[projects.app]\r\nin_flight = 2\r\n";
    place.write("keywheel.toml", text);
    place.run(&["project", "set", "app", "--in-flight", "3"]).ends(0);
    let changed = text.replace("= 2", "= 3");
    assert_eq!(place.read("keywheel.toml"), changed);
    token(&place, &["project", "add", "other"]);
    place.run(&["project", "remove", "other"]).ends(0);
    assert_eq!(place.read("keywheel.toml"), changed);
    place.write("keywheel.toml", "\u{feff}[projects.app\n");
    place.run(&["project", "set", "app", "--in-flight", "3"]).ends(2).complains("toml:1:14:");
}

#[test]
fn what_is_no_toml_is_told_by_its_place_and_never_quoted() {
    let place = Place::new();
    place.write("client.toml", "[keys]\nkey = AQ.EXAMPLE-pasted-key\n");
    let arguments = ["--config", "client.toml", "project", "add", "app"];
    place.run(&arguments).ends(2).complains("client.toml:2:");
}
