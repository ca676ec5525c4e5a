//! That everything wrong is told, each with its place, and that nothing of the text is repeated.

use keywheel_core::ApiKey;
use keywheel_settings::{Faults, Section, read, words};
use proptest::prelude::*;

const KEY: &str = "AIzaSyEXAMPLE0000000000000000000000000001";

/// One setting of each kind, and a section of each.
fn every_kind(mut whole: Section<'_>) {
    whole.text("text", "a text", |text| Ok(text.len()));
    whole.texts("texts", "texts", words::path);
    whole.one_or_more("some", "texts", |text| Ok(text.len()));
    whole.choice("choice", &[("fast", 1), ("slow", 2)]);
    whole.boolean("boolean");
    whole.number("number", 1);
    if let Some(mut table) = whole.table("table") {
        table.number("inner", 0);
        table.end();
    }
    for mut door in whole.tables("door") {
        door.text("name", "a name", |name| Err::<(), _>(format!("{} is none", words::shown(name))));
        door.end();
    }
    for (_, mut room) in whole.table("room").map(|room| room.named("room")).unwrap_or_default() {
        room.boolean("light");
        room.end();
    }
    whole.refuse("moved", "is elsewhere now");
    whole.end();
}

fn faults(text: &str) -> Vec<String> {
    read(text, every_kind).err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

/// The line alone does not say which: two settings may stand far apart.
#[test]
fn a_setting_that_stands_twice_is_named_unless_it_may_be_a_secret() {
    for (text, fault) in [
        ("number = 1\ntext = \"a\"\nnumber = 2", "3:1: number: duplicate key"),
        ("[room.a]\n[room.b]\n[room.a]", "3:7: a: duplicate key"),
    ] {
        assert_eq!(faults(text), [fault]);
    }
    let secret = faults(&format!("{KEY} = 1\n{KEY} = 2"));
    assert_eq!(secret, ["2:1: (a name): duplicate key"]);
}

#[test]
fn a_value_of_another_kind_is_told_with_its_place_and_what_belongs_there() {
    for (text, fault) in [
        ("text = 1", "1:8: text: must be a text, in quotes"),
        ("texts = \"a\"", "1:9: texts: must be a list of texts, each in quotes: [\"…\", \"…\"]"),
        (
            "texts = [\"a\", 1]",
            "1:15: texts: must be a list of texts, each in quotes: [\"…\", \"…\"]",
        ),
        ("texts = [\"a\", \"\"]", "1:15: texts: must not be empty"),
        (
            "\u{feff}texts = 1",
            "1:9: texts: must be a list of texts, each in quotes: [\"…\", \"…\"]",
        ),
        ("some = 1", "1:8: some: must be texts, in quotes"),
        ("some = [1]", "1:9: some: must be a list of texts, each in quotes: [\"…\", \"…\"]"),
        (
            "choice = \"fsat\"",
            "1:10: choice: must be one of \"fast\", \"slow\"; did you mean \"fast\"?",
        ),
        (
            "choice = \"Fast\"",
            "1:10: choice: must be one of \"fast\", \"slow\"; did you mean \"fast\"?",
        ),
        ("choice = true", "1:10: choice: must be one of \"fast\", \"slow\", in quotes"),
        ("boolean = \"true\"", "1:11: boolean: must be true or false, without quotes"),
        ("number = 0", "1:10: number: must be a whole number from 1 on, without quotes"),
        ("number = -1", "1:10: number: must be a whole number from 1 on, without quotes"),
        ("number = 1.5", "1:10: number: must be a whole number from 1 on, without quotes"),
        (
            "number = 99999999999999999999",
            "1:10: number: must be a whole number from 1 on, without quotes",
        ),
        ("table = 1", "1:9: table: must be a section: write [table]"),
        ("[[table]]", "1:1: table: must be a section: write [table]"),
        (
            "[table]\n  inner = \"ä\"",
            "2:11: table.inner: must be a whole number from 0 on, without quotes",
        ),
        ("[table]\ninnner = 1", "2:1: table.innner: is not a setting; did you mean \"inner\"?"),
        ("[table]\nzzz = 1", "2:1: table.zzz: is not a setting; there are inner"),
        ("door = {}", "1:8: door: must be a list: write [[door]]"),
        ("door = [1]", "1:9: door: must be a section: write [[door]]"),
        ("[[door]]\n[[door]]\nname = \"x\"", "3:8: door.name: x is none"),
        ("room.a = 1", "1:10: room.a: must be a section: write [room.\"<room>\"]"),
        ("[room.a]\nlight = 1", "2:9: room.a.light: must be true or false, without quotes"),
        ("moved = 1", "1:9: moved: is elsewhere now"),
    ] {
        assert_eq!(faults(text), [fault], "{text}");
    }
    assert_eq!(faults("\u{feff}text = \"\"\nnumber = 0xff\nsome = \"a\""), [""; 0]);
    assert_eq!(faults("number = 1"), [""; 0]);
}

#[test]
fn a_section_knows_what_is_in_it_and_where_it_stands() {
    let text = "on = 1\n[a]\nfile = \"x\"\n[[b]]\n[[b]]\n[c.two]\n[c.one]\n";
    let told = read(text, |mut whole| {
        assert!(whole.has("on") && !whole.has("off"));
        assert_eq!((whole.place_of("on"), whole.place_of("off")), (Some(5), None));
        assert_eq!(whole.peek_text("a", "file").as_deref(), Some("x"));
        assert_eq!(whole.number("on", 0), Some(1));
        assert!(whole.has_tables());
        let mut table = whole.table("a").unwrap();
        assert!(table.text("file", "a path", words::path).is_some() && !table.has_tables());
        table.own_fault("is odd");
        let doors = whole.tables("b");
        assert_eq!(doors.iter().map(Section::line).collect::<Vec<_>>(), [4, 5]);
        let rooms = whole.table("c").unwrap().named("room");
        let lines = rooms.iter().map(|(name, room)| (name.as_str(), room.line()));
        assert_eq!(
            lines.collect::<Vec<_>>(),
            [("two", 6), ("one", 7)],
            "as they stand in the text"
        );
        rooms[1].1.own_fault("is painted");
        whole.end();
    });
    let told: Vec<_> = told.unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(told, ["2:1: a: is odd", "7:4: c.one: is painted"]);
}

#[test]
fn what_was_kept_as_a_secret_is_in_no_fault_and_each_fault_is_told_once() {
    let text = "b = 1\n[a]\nlisten = 1\n\"two words\" = 1";
    let faults = Faults::new(text).of_the_whole(&["listen"]);
    assert!(faults.are_none() && !faults.is_secret("brass"));
    faults.keep_secret(ApiKey::new("brass-EXAMPLE").unwrap());
    assert!(faults.is_secret("it is brass-EXAMPLE."));
    faults.add(0, "brass-EXAMPLE is not used");
    assert!(!faults.are_none());
    Section::parse(&faults).unwrap().table("a").unwrap().end();
    let told: Vec<_> = faults.take().iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert_eq!(told[0], "1:1: [REDACTED] is not used");
    assert!(told[1].starts_with("3:1: a.listen: is not a setting; it belongs to the whole file"));
    assert!(told[2].starts_with("4:1: a.(a name): is not a setting"), "{}", told[2]);
    assert!(faults.take().is_empty());
}

#[test]
fn all_of_them_are_told_at_once_in_the_order_of_the_text() {
    let told = faults("zzz = 1\nnumber = 0\ntext = 5\n[table]\ninner = -1\n");
    let places: Vec<_> = told.iter().map(|fault| &fault[..3]).collect();
    assert_eq!(places, ["1:1", "2:1", "3:8", "5:9"], "{told:?}");
}

#[test]
fn what_is_no_toml_is_told_with_its_place_and_without_the_line() {
    let told = faults(&format!("text = \"a\"\nkey = \"{KEY}\" oops"));
    assert!(told[0].starts_with("2:"), "{told:?}");
    assert!(!told[0].contains(&KEY[4..20]), "it repeats the line");
    assert!(!told[0].contains("oops"), "nor what it stumbled over");
}

/// Wherever a key is put, in whatever form.
#[test]
fn no_fault_repeats_a_key() {
    for form in [
        "text = KEY",
        "number = \"KEY\"",
        "choice = \"KEY\"",
        "\"KEY\" = 1",
        "KEY = 1",
        "KEY oops",
        "[KEY]",
        "[table]\nKEY = 1",
        "[room.KEY]\nlight = 1",
        "[room]\nKEY = 1",
        "[[door]]\nname = \"KEY\"",
        "moved = \"KEY\"",
        "KEY",
    ] {
        let told = faults(&form.replace("KEY", KEY));
        assert!(!told.is_empty(), "{form} is in order");
        assert!(!told.concat().contains(&KEY[4..20]), "{form} is repeated");
    }
}

proptest! {
    /// Whatever stands in a file, it is read or told what is wrong, at a place that is there.
    #[test]
    fn any_text_is_answered(lines in prop::collection::vec(line(), 0..8)) {
        let text = lines.join("\n");
        let Err(found) = read(&text, every_kind) else { return Ok(()) };
        prop_assert!(!found.is_empty());
        for fault in found {
            let line = text.split('\n').nth(fault.line - 1);
            let length = line.map(|line| line.chars().count());
            prop_assert!(length.is_some_and(|length| fault.column <= length + 1), "{}", fault);
            prop_assert!(!fault.what.contains('\n'), "more than a line: {}", fault);
        }
    }
}

fn line() -> impl Strategy<Value = String> {
    const NAMES: &[&str] =
        &["text", "texts", "some", "choice", "boolean", "number", "inner", "moved", "lihgt", "ä"];
    const VALUES: &[&str] = &[
        "1",
        "0",
        "-5",
        "true",
        "\"fast\"",
        "'ö'",
        "[]",
        "[\"a\", 1]",
        "{}",
        "{ a = 1 }",
        "1.5",
        "2026-11-30",
        "\"",
    ];
    const HEADS: &[&str] = &["[table]", "[[door]]", "[room.a]", "[room.\"b c\"]", "[", "# a", ""];
    prop_oneof![
        4 => (prop::sample::select(NAMES), prop::sample::select(VALUES))
            .prop_map(|(name, value)| format!("{name} = {value}")),
        1 => prop::sample::select(HEADS).prop_map(str::to_owned),
        1 => "\\PC{0,12}",
    ]
}
