//! Takes lines out of a configuration, and no remark of another section with them.

use std::ops::Range;

use toml_edit::{Document, Item, Table, TomlError};

/// `text` without the sections of `project`, those within it included. What is remarked right above a section goes with
/// it, and what is turned off or remarked right below it, up to an empty line or a section that is turned off. The head of
/// the file stays.
///
/// # Errors
/// It is no TOML.
pub(super) fn project(text: &str, project: &str) -> Result<String, TomlError> {
    let document = Document::parse(text)?;
    let mut sections = Vec::new();
    collect(document.as_table(), &mut Vec::new(), &["projects", project], &mut sections);
    sections.sort_by_key(|section| section.header.start);
    let next = sections.iter().skip(1).map(|section| Some(section.header.start)).chain([None]);
    let lines = |(section, next): (&Section, Option<usize>)| {
        section.is_meant.then(|| section.lines(text, next))
    };
    let cut: Vec<_> = sections.iter().zip(next).filter_map(lines).collect();
    let mut left = text.to_owned();
    for lines in cut.into_iter().rev() {
        let lines = with_an_empty_line(&left, lines);
        left.replace_range(lines, "");
    }
    Ok(left)
}

/// `text` without the line of this setting of `project`. The remark behind it gets a line of its own.
///
/// # Errors
/// It is no TOML.
pub(super) fn setting(text: &str, project: &str, setting: &str) -> Result<String, TomlError> {
    let document = Document::parse(text)?;
    let own = document.get("projects").and_then(|projects| projects.get(project));
    let found = own.and_then(Item::as_table).and_then(|own| own.get_key_value(setting));
    let Some((key, value)) = found.and_then(|(key, value)| Some((key.span()?, value.span()?)))
    else {
        return Ok(text.to_owned());
    };
    let remark = text[value.end..line_end(text, value.end)].trim_start();
    Ok([&text[..line_start(text, key.start)], remark, &text[line_end(text, value.end)..]].concat())
}

/// A section of the file.
struct Section {
    /// Where `[its.name]` stands.
    header: Range<usize>,
    /// Where its last setting ends.
    end: usize,
    is_meant: bool,
}

impl Section {
    fn of(table: &Table, is_meant: bool) -> Option<Self> {
        let header = table.span()?;
        Some(Self { end: last_setting(table).unwrap_or(header.end), header, is_meant })
    }

    /// All that goes with it, when the `next` section begins there.
    fn lines(&self, text: &str, next: Option<usize>) -> Range<usize> {
        let start = remarks_above(text, line_start(text, self.header.start));
        let tail_end = next.map_or(text.len(), |next| line_start(text, next));
        let mut end = line_end(text, self.end);
        while end < tail_end {
            let line = end..line_end(text, end);
            let what = text[line.clone()].trim();
            if what.is_empty() {
                return start..end;
            }
            // A section that is turned off is another one, and has remarks of its own.
            if what.starts_with("#[") {
                return start..remarks_above(text, end);
            }
            end = line.end;
        }
        // No empty line tells what is whose.
        start..next.map_or(end, |_| remarks_above(text, tail_end))
    }
}

/// Every section of `table` and within it, of which those at `meant` and within it are meant.
fn collect<'a>(
    table: &'a Table,
    path: &mut Vec<&'a str>,
    meant: &[&str],
    found: &mut Vec<Section>,
) {
    for (name, item) in table {
        path.push(name);
        let is_meant = path.starts_with(meant);
        match item {
            Item::Table(own) => {
                if !own.is_implicit() && !own.is_dotted() {
                    found.extend(Section::of(own, is_meant));
                }
                collect(own, path, meant, found);
            }
            Item::ArrayOfTables(all) => {
                for own in all {
                    found.extend(Section::of(own, is_meant));
                    collect(own, path, meant, found);
                }
            }
            _ => {}
        }
        path.pop();
    }
}

/// Where the last of the settings ends that stand in the section itself.
fn last_setting(table: &Table) -> Option<usize> {
    let end = |item: &Item| match item {
        Item::Table(own) if own.is_dotted() => last_setting(own),
        Item::Value(value) => value.span().map(|span| span.end),
        _ => None,
    };
    table.iter().filter_map(|(_, item)| end(item)).max()
}

/// Where the remarks begin that end at the line at `start`, without an empty line between. At the head of the file they
/// are about the file, and `start` comes back.
fn remarks_above(text: &str, start: usize) -> usize {
    let mut at = start;
    while at > 0 {
        let above = line_start(text, at - 1);
        if !is_remark(text[above..at].trim()) {
            return at;
        }
        at = above;
    }
    start
}

/// True for a remark. Without a space behind the `#` it may be a setting that is turned off, or a part of one.
fn is_remark(line: &str) -> bool {
    line.strip_prefix('#').is_some_and(|rest| {
        rest.is_empty() || rest.starts_with(' ') || !rest.contains(['=', '[', ']'])
    })
}

/// `lines` with one of the two empty lines that would meet when they are gone.
fn with_an_empty_line(text: &str, lines: Range<usize>) -> Range<usize> {
    let behind = lines.end..line_end(text, lines.end);
    if !text[behind.clone()].trim().is_empty() {
        return lines;
    }
    if lines.start == 0 {
        return lines.start..behind.end;
    }
    let above = line_start(text, lines.start - 1);
    let is_empty = text[above..lines.start].trim().is_empty();
    if is_empty { above..lines.end } else { lines }
}

/// Where the line begins in which `at` is.
fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |end| end + 1)
}

/// Where the line after it begins.
fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |end| at + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# All about this file.
#
[projects.first] # the oldest
tokens_per_day = 5
#in_flight = 3

# How often failures are retried.
[retry]
max_retries = 1
#max_pause = \"20s\"
# As the shop asked for it.
[projects.chat]
# As was agreed.
tokens_per_day = 5 # for now
models = [
    \"a\", # the best
    \"b\",
]
#priority = 3
# The one that is dear.
[projects.chat.per_model.\"a\"]
calls_per_day = 3

#[reset]
#tool = \"fixed 1h\"

[queue]
wait = \"0s\"
# Its images are dear.
[projects.chat.unbounded]
images = 1
# Nobody knows why.
[cors]
origins = []
";

    #[test]
    fn a_project_goes_with_all_that_is_its_own_and_nothing_else() {
        let left = project(FILE, "chat").unwrap();
        assert_eq!(
            left,
            "\
# All about this file.
#
[projects.first] # the oldest
tokens_per_day = 5
#in_flight = 3

# How often failures are retried.
[retry]
max_retries = 1
#max_pause = \"20s\"

#[reset]
#tool = \"fixed 1h\"

[queue]
wait = \"0s\"
# Nobody knows why.
[cors]
origins = []
"
        );
        let left = project(FILE, "first").unwrap();
        let own = FILE.find("[projects.first]").unwrap()..FILE.find("\n# How").unwrap();
        assert_eq!(left, FILE.replace(&FILE[own], ""), "the head of the file stays");
        assert_eq!(project(FILE, "none").unwrap(), FILE);
    }

    /// Not everybody writes a space, and a setting that is turned off has none.
    #[test]
    fn remarks_right_above_go_and_what_an_empty_line_parts_stays() {
        let before = "[queue]\n#wait = \"0s\"\n";
        let own = "#The shop's.\n# It asks for little.\n##\n[projects.b]\n";
        let parted = "# These are the small ones.\n\n";
        let file = format!("{before}{own}[projects.c]\n");
        assert_eq!(project(&file, "b").unwrap(), format!("{before}[projects.c]\n"));
        let file = format!("{before}\n{parted}{own}[projects.c]\n");
        assert_eq!(project(&file, "b").unwrap(), format!("{before}\n{parted}[projects.c]\n"));
    }

    #[test]
    fn a_setting_goes_alone() {
        let left = setting(FILE, "chat", "tokens_per_day").unwrap();
        assert_eq!(left, FILE.replace("tokens_per_day = 5 # for now", "# for now"));
        let left = setting(FILE, "chat", "models").unwrap();
        assert!(left.contains("# for now\n#priority"), "{left}");
        assert_eq!(setting(FILE, "chat", "in_flight").unwrap(), FILE);
        let dotted = "[projects]\na.in_flight = 1\na.priority = 2";
        assert_eq!(setting(dotted, "a", "priority").unwrap(), "[projects]\na.in_flight = 1\n");
    }

    #[test]
    fn a_section_that_is_turned_off_is_somebody_elses() {
        let own = "[projects.a]\nin_flight = 1\n#priority = 3\n# It is an old one.\n";
        let others = "#[queue]\n#wait = \"0s\"\n#[projects.c]\n#in_flight = 2\n";
        let next = "# And this.\n[projects.b]\n";
        for rest in [others.to_owned(), format!("{others}{next}"), format!("{others}\n{next}")] {
            assert_eq!(
                project(&format!("{own}{rest}"), "a").unwrap(),
                format!("# It is an old one.\n{rest}")
            );
        }
        let right_below = format!("[projects.b]\n[projects.a]\n{others}");
        assert_eq!(project(&right_below, "a").unwrap(), format!("[projects.b]\n{others}"));
    }

    #[test]
    fn empty_lines_do_not_add_up() {
        let file = "[projects.a]\n\n[projects.b]\n\n[projects.c]\n";
        for (name, left) in [
            ("a", "[projects.b]\n\n[projects.c]\n"),
            ("b", "[projects.a]\n\n[projects.c]\n"),
            ("c", "[projects.a]\n\n[projects.b]\n"),
        ] {
            assert_eq!(project(file, name).unwrap(), left);
            let other = file.replace('\n', "\r\n");
            assert_eq!(project(&other, name).unwrap(), left.replace('\n', "\r\n"));
        }
        assert_eq!(project("a = 1\n\n[projects.a]", "a").unwrap(), "a = 1\n");
        assert_eq!(
            project("# mine\n[projects.a]\n[projects.b]", "a").unwrap(),
            "# mine\n[projects.b]"
        );
    }
}
