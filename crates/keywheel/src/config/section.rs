//! A table of the file being read: settings are taken out one by one, faults are noted with their place, and what is
//! left at the end is unknown.

use std::cell::RefCell;

use keywheel_core::{ApiKey, scrub::scrub};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{ConfigFault, settings::WHOLE, words};

/// The faults found so far, and the keys that none of them may repeat.
pub(super) struct Faults<'t> {
    text: &'t str,
    found: RefCell<Vec<(usize, String)>>,
    secrets: RefCell<Vec<ApiKey>>,
}

impl<'t> Faults<'t> {
    pub(super) const fn new(text: &'t str) -> Self {
        Self { text, found: RefCell::new(Vec::new()), secrets: RefCell::new(Vec::new()) }
    }

    /// The whole file.
    #[cfg(feature = "ledger")]
    pub(super) const fn text(&self) -> &'t str {
        self.text
    }

    /// Notes that something is wrong at the byte `at`.
    pub(super) fn add(&self, at: usize, what: impl Into<String>) {
        self.found.borrow_mut().push((at, what.into()));
    }

    /// Keeps `key` out of every fault.
    pub(super) fn keep_secret(&self, key: ApiKey) {
        self.secrets.borrow_mut().push(key);
    }

    pub(super) fn is_secret(&self, text: &str) -> bool {
        let secrets = self.secrets.borrow();
        let secrets: Vec<_> = secrets.iter().collect();
        scrub(text, &secrets) != text
    }

    pub(super) fn are_none(&self) -> bool {
        self.found.borrow().is_empty()
    }

    /// All of them, in the order of the file.
    pub(super) fn take(&self) -> Vec<ConfigFault> {
        let mut found = self.found.take();
        found.sort_by_key(|(at, _)| *at);
        let secrets = self.secrets.borrow();
        let secrets: Vec<_> = secrets.iter().collect();
        let fault = |(at, what): (usize, String)| ConfigFault {
            position: Some(position(self.text, at)),
            what: scrub(&what, &secrets).into_owned(),
        };
        found.into_iter().map(fault).collect()
    }

    pub(super) fn line(&self, at: usize) -> usize {
        position(self.text, at).0
    }
}

/// Line and column of the byte `at`, counted from 1.
pub(super) fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

/// One table.
pub(super) struct Section<'t> {
    table: DeTable<'t>,
    /// How its settings are called in faults: empty for the whole file.
    name: String,
    /// Where it begins.
    pub(super) at: usize,
    /// Every setting that was asked for, so: that there is.
    known: Vec<&'static str>,
    faults: &'t Faults<'t>,
}

impl<'t> Section<'t> {
    pub(super) const fn whole(table: DeTable<'t>, faults: &'t Faults<'t>) -> Self {
        Self { table, name: String::new(), at: 0, known: Vec::new(), faults }
    }

    /// A table inside this one that begins at the byte `at`, under the name it has in faults.
    pub(super) fn open(&self, at: usize, table: DeTable<'t>, name: &str) -> Self {
        Self { table, name: self.path(name), at, known: Vec::new(), faults: self.faults }
    }

    pub(super) const fn faults(&self) -> &'t Faults<'t> {
        self.faults
    }

    /// A text that `read` understands; `expected` describes it.
    pub(super) fn text<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.text_at(name, expected, read).map(|(_, value)| value)
    }

    /// The same, and where it stands.
    pub(super) fn text_at<T>(
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
    pub(super) fn texts<T>(
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

    /// One of a few words.
    pub(super) fn choice<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(&str, T)],
    ) -> Option<T> {
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

    pub(super) fn boolean(&mut self, name: &'static str) -> Option<bool> {
        let (at, value) = self.take(name)?;
        let DeValue::Boolean(value) = value else {
            self.fault(at, name, "must be true or false, without quotes");
            return None;
        };
        Some(value)
    }

    /// A whole number from `least` on.
    pub(super) fn number(&mut self, name: &'static str, least: u64) -> Option<u64> {
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
    pub(super) fn has(&self, name: &str) -> bool {
        self.table.contains_key(name)
    }

    /// The table `name`.
    pub(super) fn table(&mut self, name: &'static str) -> Option<Self> {
        let (at, value) = self.take(name)?;
        let DeValue::Table(table) = value else {
            self.fault(at, name, format!("must be a section: write [{name}]"));
            return None;
        };
        Some(self.open(at, table, name))
    }

    /// The tables `[[name]]`.
    pub(super) fn tables(&mut self, name: &'static str) -> Vec<Self> {
        let Some((at, value)) = self.take(name) else { return Vec::new() };
        let DeValue::Array(values) = value else {
            self.fault(at, name, format!("must be a list: write [[{name}]]"));
            return Vec::new();
        };
        let mut out = Vec::new();
        for value in values {
            let at = value.span().start;
            match value.into_inner() {
                DeValue::Table(table) => out.push(self.open(at, table, name)),
                _ => self.fault(at, name, format!("must be a section: write [[{name}]]")),
            }
        }
        out
    }

    /// All that is left, in the order of the file: for tables whose names are the user's own.
    pub(super) fn rest(&mut self) -> Vec<(Spanned<String>, Spanned<DeValue<'t>>)> {
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

    /// Notes what is left as unknown.
    pub(super) fn end(mut self) {
        for (name, _) in self.rest() {
            let (at, name) = (name.span().start, name.into_inner());
            let hint = if let Some(known) = words::meant(&name, &self.known) {
                format!("; did you mean \"{known}\"?")
            } else if WHOLE.contains(&name.as_str()) {
                // In TOML everything below a section's head belongs to it, which is easily forgotten.
                "; it belongs to the whole file: put it above the first section".to_owned()
            } else {
                format!("; there are {}", self.known.join(", "))
            };
            self.fault(at, &words::shown(&name), format!("is not a setting{hint}"));
        }
    }

    /// Notes that the setting `name` is at fault.
    pub(super) fn fault(&self, at: usize, name: &str, what: impl AsRef<str>) {
        self.faults.add(at, format!("{}: {}", self.path(name), what.as_ref()));
    }

    /// Notes that this section is at fault.
    pub(super) fn own_fault(&self, what: &str) {
        self.faults.add(self.at, format!("{}: {what}", self.name));
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
