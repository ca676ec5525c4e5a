//! Reads `.env` files line by line.
//!
//! The dialect (quotes, escapes, comments, `export`) is `dotenvy`'s. It is fed one logical line at
//! a time, for three reasons: its errors carry the text of the line, which may be a key, and not
//! its number; an open quote would swallow the rest of the file; and nothing may reach the process
//! environment.

/// Lines a quoted value may run over before its opening quote is taken for a mistake.
const MOST_LINES: usize = 64;

/// What stands on one logical line.
#[derive(PartialEq, Eq)]
pub(super) struct Entry {
    /// Counted from 1; the first one of a value that runs over several lines.
    pub(super) line: usize,
    /// The name, as far as it can be read.
    pub(super) name: String,
    /// `None`: the line is not `NAME=value`.
    pub(super) value: Option<String>,
    /// The value refers to another variable (`$NAME`), which is not followed.
    pub(super) refers: bool,
}

/// Every assignment in `text`, and every line that is none, in order.
pub(super) fn parse(text: &str) -> Vec<Entry> {
    let lines: Vec<&str> = text.lines().map(|line| line.trim_matches(is_stray)).collect();
    let mut entries = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let (taken, found) = logical_line(&lines[at..]);
        let refers = lines[at..at + taken].iter().any(|line| line.contains('$'));
        match found {
            Found::Nothing => {}
            Found::Assignment(name, value) => {
                entries.push(Entry { line: at + 1, name, value: Some(value), refers });
            }
            Found::Malformed => {
                entries.push(Entry { line: at + 1, name: name_of(lines[at]), value: None, refers });
            }
        }
        at += taken;
    }
    entries
}

enum Found {
    Nothing,
    Assignment(String, String),
    Malformed,
}

/// How many of `lines` belong together, at least one, and what they say.
fn logical_line(lines: &[&str]) -> (usize, Found) {
    let opens_quote = lines[0]
        .split_once('=')
        .is_some_and(|(_, value)| value.trim_start().starts_with(['"', '\'']));
    let most = if opens_quote { lines.len().min(MOST_LINES) } else { 1 };
    let mut text = String::new();
    for (i, line) in lines[..most].iter().enumerate() {
        text.push_str(line);
        text.push('\n');
        match read(&text) {
            Found::Malformed => {}
            found => return (i + 1, found),
        }
    }
    (1, Found::Malformed)
}

fn read(text: &str) -> Found {
    let mut entries = dotenvy::from_read_iter(text.as_bytes());
    match (entries.next(), entries.next()) {
        (None, _) => Found::Nothing,
        (Some(Ok((name, value))), None) => Found::Assignment(name, value),
        _ => Found::Malformed,
    }
}

/// The name at the front of a line that cannot be read.
fn name_of(line: &str) -> String {
    let line = line.trim_start();
    let line = line.strip_prefix("export ").unwrap_or(line).trim_start();
    line.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
}

/// Invisible characters that editors and web pages leave behind. Only they are trimmed here: the
/// rest is up to the dialect.
fn is_stray(c: char) -> bool {
    matches!(c, '\u{feff}' | '\u{200b}'..='\u{200f}' | '\u{2060}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `(line, name, value)`, with `-` as the value of what cannot be read.
    fn read_all(text: &str) -> Vec<(usize, String, String)> {
        let entry = |e: Entry| (e.line, e.name, e.value.unwrap_or_else(|| "-".into()));
        parse(text).into_iter().map(entry).collect()
    }

    fn row(line: usize, name: &str, value: &str) -> (usize, String, String) {
        (line, name.into(), value.into())
    }

    #[test]
    fn the_usual_dialect_is_read() {
        let text =
            "\u{feff}A=1\r\n\n# comment\nexport B=\"two\" # why\n C = 'three'\nD=\nE=x#y\nF=z #c";
        let expected = [
            row(1, "A", "1"),
            row(4, "B", "two"),
            row(5, "C", "three"),
            row(6, "D", ""),
            row(7, "E", "x#y"),
            row(8, "F", "z"),
        ];
        assert_eq!(read_all(text), expected);
    }

    #[test]
    fn a_quoted_value_may_run_over_lines() {
        let expected = [row(1, "A", "1\n2\n3"), row(4, "B", "4")];
        assert_eq!(read_all("A=\"1\n2\n3\"\nB=4"), expected);
    }

    #[test]
    fn a_malformed_line_has_its_number_and_does_not_stop_the_others() {
        let text = "A=1\nno assignment\nexport B: 2\nC=\"open\nD='4'\nE=don't\nF=6";
        let expected = [
            row(1, "A", "1"),
            row(2, "no", "-"),
            row(3, "B", "-"),
            row(4, "C", "-"),
            row(5, "D", "4"),
            row(6, "E", "-"),
            row(7, "F", "6"),
        ];
        assert_eq!(read_all(text), expected);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic_and_in_order(text in "([ -~“\u{feff}]{0,12}\n?){0,12}") {
            let lines: Vec<usize> = parse(&text).iter().map(|entry| entry.line).collect();
            prop_assert!(lines.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(lines.iter().all(|line| (1..=text.lines().count()).contains(line)));
        }

        #[test]
        fn a_line_is_read_whatever_stands_before_it(text in "([ !#-&(-~]{0,12}\n){0,6}") {
            // No quotes, since one that is open could be closed by this line.
            let entries = parse(&format!("{text}LAST=value"));
            let last = entries.last().map(|entry| (entry.name.as_str(), entry.value.as_deref()));
            prop_assert_eq!(last, Some(("LAST", Some("value"))));
        }
    }
}
