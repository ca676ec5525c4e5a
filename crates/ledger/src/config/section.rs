//! A table of the text being read: settings are taken out one by one, faults are noted with their
//! place, and what is left at the end is unknown.

use std::{borrow::Cow, cell::RefCell};

use keywheel_core::scrub::scrub;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::ConfigFault;

/// The faults found so far.
pub(super) struct Faults<'t> {
    text: &'t str,
    found: RefCell<Vec<(usize, String)>>,
}

impl<'t> Faults<'t> {
    pub(super) const fn new(text: &'t str) -> Self {
        Self { text, found: RefCell::new(Vec::new()) }
    }

    /// Notes that something is wrong at the byte `at`.
    pub(super) fn add(&self, at: usize, what: String) {
        self.found.borrow_mut().push((at, what));
    }

    /// All of them, in the order of the text.
    pub(super) fn take(&self) -> Vec<ConfigFault> {
        let mut found = self.found.take();
        found.sort_by_key(|(at, _)| *at);
        let fault = |(at, what): (usize, String)| {
            let (line, column) = position(self.text, at);
            ConfigFault { at, line, column, what: scrub(&what, &[]).into_owned() }
        };
        found.into_iter().map(fault).collect()
    }
}

/// Line and column of the byte `at`, counted from 1, the column in characters.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

/// One table.
pub(super) struct Section<'t, 'f> {
    table: DeTable<'t>,
    /// How its settings are called in faults: empty for the whole text.
    name: String,
    /// Where it begins.
    at: usize,
    /// Every setting that was asked for, so: that there is.
    known: Vec<&'static str>,
    faults: &'f Faults<'t>,
}

impl<'t, 'f> Section<'t, 'f> {
    pub(super) const fn whole(table: DeTable<'t>, faults: &'f Faults<'t>) -> Self {
        Self { table, name: String::new(), at: 0, known: Vec::new(), faults }
    }

    /// True if `name` is set, to whatever.
    pub(super) fn has(&self, name: &str) -> bool {
        self.table.contains_key(name)
    }

    /// A text that `read` understands; `expected` describes it.
    pub(super) fn text<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let (at, value) = self.take(name)?;
        let read = match value {
            DeValue::String(text) => read(&text),
            _ => Err(format!("must be {expected}, in quotes")),
        };
        read.map_err(|what| self.fault(at, name, &what)).ok()
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(&str, T)],
    ) -> Option<T> {
        let words: Vec<_> = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        let expected = format!("one of {}", words.join(", "));
        self.text(name, &expected, |text| {
            let found = choices.iter().find(|(word, _)| *word == text);
            found.map(|(_, choice)| *choice).ok_or_else(|| format!("must be {expected}"))
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
            let what = format!("must be a whole number from {least} on, without quotes");
            self.fault(at, name, &what);
        }
        number
    }

    /// The table `name`.
    pub(super) fn table(&mut self, name: &'static str) -> Option<Self> {
        let (at, value) = self.take(name)?;
        self.inner(at, value, name)
    }

    /// The tables inside, by names that are the user's own, in the order of the text.
    pub(super) fn tables(mut self) -> Vec<(String, Self)> {
        let found = std::mem::take(&mut self.table);
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort_by_key(|(name, _)| name.span().start);
        let table = |(name, value): (Spanned<Cow<'t, str>>, Spanned<DeValue<'t>>)| {
            let at = name.span().start;
            let name = name.into_inner().into_owned();
            let table = self.inner(at, value.into_inner(), &shown(&name))?;
            Some((name, table))
        };
        found.into_iter().filter_map(table).collect()
    }

    /// Notes what is left as unknown.
    pub(super) fn end(mut self) {
        for (name, _) in std::mem::take(&mut self.table) {
            let what = format!("is not a setting; there are {}", self.known.join(", "));
            self.fault(name.span().start, &shown(name.get_ref()), &what);
        }
    }

    /// Notes that this section is at fault.
    pub(super) fn own_fault(&self, what: &str) {
        self.faults.add(self.at, format!("{}: {what}", self.name));
    }

    fn inner(&self, at: usize, value: DeValue<'t>, name: &str) -> Option<Self> {
        let DeValue::Table(table) = value else {
            self.fault(at, name, "must be a section of its own");
            return None;
        };
        let name = self.path(name);
        Some(Self { table, name, at, known: Vec::new(), faults: self.faults })
    }

    fn take(&mut self, name: &'static str) -> Option<(usize, DeValue<'t>)> {
        self.known.push(name);
        let value = self.table.remove(name)?;
        Some((value.span().start, value.into_inner()))
    }

    fn fault(&self, at: usize, name: &str, what: &str) {
        self.faults.add(at, format!("{}: {what}", self.path(name)));
    }

    fn path(&self, name: &str) -> String {
        if self.name.is_empty() { name.to_owned() } else { format!("{}.{name}", self.name) }
    }
}

/// `name` as a fault may show it. Whoever puts a key where a name belongs does not see it repeated.
fn shown(name: &str) -> String {
    const LONGEST: usize = 40;
    let plain = |c: char| c.is_alphanumeric() || "_-.*/: ".contains(c);
    let harmless = name.len() <= LONGEST && name.chars().all(plain) && scrub(name, &[]) == name;
    if harmless && !name.starts_with("AQ.") { name.to_owned() } else { "(a name)".to_owned() }
}
