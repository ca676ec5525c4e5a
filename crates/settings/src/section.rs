//! One table of a text.

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{Faults, words};

/// One table of a text: settings are taken out by their names, and what is left at its [`end`](Self::end) is unknown.
///
/// Each reader notes what is wrong in the text's [`Faults`] and answers `None`, as for a setting that is not there.
///
/// ```
/// use keywheel_settings::{read, words};
///
/// let text = r#"
///     on = true
///     hosts = ["a", "b"]
///     door_keys = "brass"
///     mode = "fast"
///     file = "x.db"
///     [rooms."the blue one"]
///     seats = 3
///     [[door]]
///     [[door]]
/// "#;
/// let faults = read(text, |mut whole| {
///     assert_eq!(whole.boolean("on"), Some(true));
///     assert_eq!(whole.texts("hosts", "hosts", |host| Ok(host.len())), Some(vec![1, 1]));
///     assert_eq!(whole.one_or_more("door_keys", "keys", |key| Ok(key.len())), Some(vec![5]));
///     assert_eq!(whole.choice("mode", &[("fast", 1), ("slow", 2)]), Some(1));
///     assert_eq!(whole.text_at("file", "a path", words::path).unwrap().1, "x.db");
///     assert!(whole.has("rooms") && whole.place_of("windows").is_none());
///     assert_eq!(whole.peek_text("rooms", "seats"), None);
///     for (name, mut room) in whole.table("rooms").unwrap().named("room") {
///         assert!(!room.has_tables() && name == "the blue one");
///         assert_eq!((room.number("seats", 1), room.line()), (Some(3), 7));
///         room.own_fault("is painted");
///         room.fault(room.at(), "seats", "creak");
///     }
///     assert_eq!(whole.tables("door").len(), 2);
///     whole.refuse("roof", "belongs to the house");
///     whole.end();
/// })
/// .unwrap_err();
/// let faults: Vec<_> = faults.into_iter().map(|fault| fault.what).collect();
/// assert_eq!(faults, ["rooms.(a name): is painted", "rooms.(a name).seats: creak"]);
/// ```
#[derive(Debug)]
pub struct Section<'t> {
    table: DeTable<'t>,
    /// How its settings are called in faults: empty for the whole text.
    name: String,
    /// Where it begins.
    at: usize,
    /// Every setting that was asked for, so: that there is.
    known: Vec<&'static str>,
    faults: &'t Faults<'t>,
}

impl<'t> Section<'t> {
    /// The whole text of `faults`. `None` if it is no TOML, which is noted there.
    #[must_use]
    pub fn parse(faults: &'t Faults<'t>) -> Option<Self> {
        match DeTable::parse(faults.text()) {
            Ok(table) => Some(Self {
                table: table.into_inner(),
                name: String::new(),
                at: 0,
                known: Vec::new(),
                faults,
            }),
            Err(error) => {
                // Not the error's own `Display`: it quotes the line, which may hold a key.
                let span = error.span().unwrap_or_default();
                let what = error.message().trim_end().replace('\n', ", ");
                let name = faults.text().get(span.clone()).unwrap_or_default().trim();
                if what == "duplicate key" && !name.is_empty() {
                    faults.add(span.start, format!("{}: {what}", words::shown(name)));
                } else {
                    faults.add(span.start, what);
                }
                None
            }
        }
    }

    /// What was found wrong so far in the whole text.
    #[must_use]
    pub const fn faults(&self) -> &'t Faults<'t> {
        self.faults
    }

    /// The byte at which it begins.
    #[must_use]
    pub const fn at(&self) -> usize {
        self.at
    }

    /// The line on which it begins.
    #[must_use]
    pub fn line(&self) -> usize {
        self.faults.line(self.at)
    }

    /// A text that `read` understands; `expected` describes it.
    pub fn text<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.text_at(name, expected, read).map(|(_, value)| value)
    }

    /// The same, and where it stands.
    pub fn text_at<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<(usize, T)> {
        let (at, value) = self.take(name)?;
        let DeValue::String(text) = value else {
            self.fault(at, name, format!("must be {expected}, in quotes"));
            return None;
        };
        match read(&text) {
            Ok(value) => Some((at, value)),
            Err(what) => {
                self.fault(at, name, what);
                None
            }
        }
    }

    /// A list of texts, each of which `read` understands; `expected` describes one.
    pub fn texts<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let (at, value) = self.take(name)?;
        let fault = || format!("must be a list of {expected}, each in quotes: [\"…\", \"…\"]");
        let DeValue::Array(values) = value else {
            self.fault(at, name, fault());
            return None;
        };
        let mut out = Vec::new();
        for value in values {
            let at = value.span().start;
            match value.into_inner() {
                DeValue::String(text) => match read(&text) {
                    Ok(value) => out.push(value),
                    Err(what) => self.fault(at, name, what),
                },
                _ => self.fault(at, name, fault()),
            }
        }
        Some(out)
    }

    /// One text, or a list of them, each of which `read` understands; `expected` describes one.
    pub fn one_or_more<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let is_list = self.table.get(name).is_some_and(|value| value.get_ref().is_array());
        if is_list {
            return self.texts(name, expected, read);
        }
        self.text(name, expected, read).map(|one| vec![one])
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&mut self, name: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
        let expected = words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>();
        let expected = format!("one of {}", expected.join(", "));
        self.text(name, &expected, |text| {
            if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == text) {
                return Ok(*choice);
            }
            let meant = words::meant(text, &words);
            let meant = meant.map_or(String::new(), |word| format!("; did you mean \"{word}\"?"));
            Err(format!("must be {expected}{meant}"))
        })
    }

    /// `true` or `false`.
    pub fn boolean(&mut self, name: &'static str) -> Option<bool> {
        let (at, value) = self.take(name)?;
        let DeValue::Boolean(value) = value else {
            self.fault(at, name, "must be true or false, without quotes");
            return None;
        };
        Some(value)
    }

    /// A whole number from `least` on.
    pub fn number(&mut self, name: &'static str, least: u64) -> Option<u64> {
        let (at, value) = self.take(name)?;
        let number = match &value {
            DeValue::Integer(digits) => u64::from_str_radix(digits.as_str(), digits.radix()).ok(),
            _ => None,
        };
        let number = number.filter(|&number| number >= least);
        if number.is_none() {
            self.fault(at, name, format!("must be a whole number from {least} on, without quotes"));
        }
        number
    }

    /// True if `name` is set, to whatever.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.table.contains_key(name)
    }

    /// Where `name` stands, if it is set.
    #[must_use]
    pub fn place_of(&self, name: &str) -> Option<usize> {
        self.table.get(name).map(|value| value.span().start)
    }

    /// The text `name` of the table `table`, if both are there: for those who need to know what somebody else reads.
    #[must_use]
    pub fn peek_text(&self, table: &str, name: &str) -> Option<String> {
        let table = self.table.get(table)?.get_ref().as_table()?;
        Some(table.get(name)?.get_ref().as_str()?.to_owned())
    }

    /// True if something inside is a table.
    #[must_use]
    pub fn has_tables(&self) -> bool {
        self.table.values().any(|value| value.get_ref().is_table())
    }

    /// The table `name`.
    pub fn table(&mut self, name: &'static str) -> Option<Self> {
        let (at, value) = self.take(name)?;
        let DeValue::Table(table) = value else {
            self.fault(at, name, format!("must be a section: write [{}]", self.path(name)));
            return None;
        };
        Some(self.open(at, table, name))
    }

    /// The tables `[[name]]`.
    pub fn tables(&mut self, name: &'static str) -> Vec<Self> {
        let Some((at, value)) = self.take(name) else { return Vec::new() };
        let DeValue::Array(values) = value else {
            self.fault(at, name, format!("must be a list: write [[{}]]", self.path(name)));
            return Vec::new();
        };
        let mut out = Vec::new();
        for value in values {
            let at = value.span().start;
            match value.into_inner() {
                DeValue::Table(table) => out.push(self.open(at, table, name)),
                _ => self.fault(
                    at,
                    name,
                    format!("must be a section: write [[{}]]", self.path(name)),
                ),
            }
        }
        out
    }

    /// The tables inside, by names that are the user's own, in the order of the text. `what` says whose names: `model`.
    #[must_use]
    pub fn named(mut self, what: &str) -> Vec<(String, Self)> {
        let mut out = Vec::new();
        for (name, value) in self.rest() {
            let (at, name) = (name.span().start, name.into_inner());
            let called = words::shown(&name);
            let value_at = value.span().start;
            match value.into_inner() {
                DeValue::Table(table) => out.push((name, self.open(at, table, &called))),
                _ => {
                    let form = format!("must be a section: write [{}.\"<{what}>\"]", self.name);
                    self.fault(value_at, &called, form);
                }
            }
        }
        out
    }

    /// Notes `what` if `name` is set: for what people write there, and belongs elsewhere. It counts as no setting.
    pub fn refuse(&mut self, name: &str, what: &str) {
        if let Some(value) = self.table.remove(name) {
            self.fault(value.span().start, name, what);
        }
    }

    /// Notes what is left as unknown.
    pub fn end(mut self) {
        for (name, _) in self.rest() {
            let (at, name) = (name.span().start, name.into_inner());
            let hint = if let Some(known) = words::meant(&name, &self.known) {
                format!("; did you mean \"{known}\"?")
            } else if self.faults.is_of_the_whole(&name) {
                "; it belongs to the whole file: put it above the first section".to_owned()
            } else {
                format!("; there are {}", self.known.join(", "))
            };
            self.fault(at, &words::shown(&name), format!("is not a setting{hint}"));
        }
    }

    /// Notes that the setting `name` is at fault.
    pub fn fault(&self, at: usize, name: &str, what: impl AsRef<str>) {
        self.faults.add(at, format!("{}: {}", self.path(name), what.as_ref()));
    }

    /// Notes that this section is at fault.
    pub fn own_fault(&self, what: &str) {
        self.faults.add(self.at, format!("{}: {what}", self.name));
    }

    /// A table inside this one that begins at the byte `at`, under the name it has in faults.
    fn open(&self, at: usize, table: DeTable<'t>, name: &str) -> Self {
        Self { table, name: self.path(name), at, known: Vec::new(), faults: self.faults }
    }

    /// All that is left, in the order of the text.
    fn rest(&mut self) -> Vec<(Spanned<String>, Spanned<DeValue<'t>>)> {
        let rest = std::mem::take(&mut self.table).into_iter();
        let mut rest: Vec<_> = rest
            .map(|(name, value)| {
                let (span, name) = (name.span(), name.into_inner().into_owned());
                (Spanned::new(span, name), value)
            })
            .collect();
        rest.sort_by_key(|(name, _)| name.span().start);
        rest
    }

    fn take(&mut self, name: &'static str) -> Option<(usize, DeValue<'t>)> {
        self.known.push(name);
        let value = self.table.remove(name)?;
        Some((value.span().start, value.into_inner()))
    }

    fn path(&self, name: &str) -> String {
        if self.name.is_empty() { name.to_owned() } else { format!("{}.{name}", self.name) }
    }
}
