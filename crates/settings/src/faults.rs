//! What is wrong with a text, and where.

use std::{cell::RefCell, fmt};

use keywheel_core::{ApiKey, scrub::scrub};

/// One thing that is wrong with a text. `Display` is `line:column: what`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The byte of the text at which it stands.
    pub at: usize,
    /// Its line, from 1.
    pub line: usize,
    /// Its column in characters, from 1.
    pub column: usize,
    /// What is wrong, beginning with the setting's name where it is about one. Never what stands in the line, which
    /// may be a key.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.what)
    }
}

/// The faults of one text that were found so far, and the keys that none of them may repeat.
///
/// ```
/// use keywheel_core::ApiKey;
/// use keywheel_settings::{Faults, Section};
///
/// let faults = Faults::new("listen = 1\nkey = \"s3cret-EXAMPLE\"");
/// faults.keep_secret(ApiKey::new("s3cret-EXAMPLE").unwrap());
/// faults.add(11, "key: s3cret-EXAMPLE is not used");
/// assert_eq!((faults.line(11), faults.are_none()), (2, false));
/// assert!(faults.is_secret("is it s3cret-EXAMPLE?"));
/// assert_eq!(faults.take()[0].to_string(), "2:1: key: [REDACTED] is not used");
/// assert!(Section::parse(&faults).is_some_and(|whole| whole.faults().text().starts_with("listen")));
/// ```
pub struct Faults<'t> {
    text: &'t str,
    whole: &'static [&'static str],
    found: RefCell<Vec<(usize, String)>>,
    secrets: RefCell<Vec<ApiKey>>,
}

impl<'t> Faults<'t> {
    /// None yet, of `text`.
    #[must_use]
    pub const fn new(text: &'t str) -> Self {
        Self {
            text,
            whole: &[],
            found: RefCell::new(Vec::new()),
            secrets: RefCell::new(Vec::new()),
        }
    }

    /// With the names of the settings that are in no section.
    ///
    /// In TOML everything below a section's head belongs to it, which is easily forgotten, and then told.
    ///
    /// ```
    /// use keywheel_settings::{Faults, Section};
    ///
    /// let faults = Faults::new("[a]\nlisten = 1").of_the_whole(&["listen"]);
    /// let mut whole = Section::parse(&faults).unwrap();
    /// whole.table("a").unwrap().end();
    /// assert!(faults.take()[0].what.ends_with("put it above the first section"));
    /// ```
    #[must_use]
    pub const fn of_the_whole(mut self, settings: &'static [&'static str]) -> Self {
        self.whole = settings;
        self
    }

    /// The whole text.
    #[must_use]
    pub const fn text(&self) -> &'t str {
        self.text
    }

    /// Notes that something is wrong at the byte `at`.
    pub fn add(&self, at: usize, what: impl Into<String>) {
        self.found.borrow_mut().push((at, what.into()));
    }

    /// Keeps `key` out of every fault.
    pub fn keep_secret(&self, key: ApiKey) {
        self.secrets.borrow_mut().push(key);
    }

    /// True if `text` holds such a key, or something else that looks like one.
    #[must_use]
    pub fn is_secret(&self, text: &str) -> bool {
        let secrets = self.secrets.borrow();
        let secrets: Vec<_> = secrets.iter().collect();
        scrub(text, &secrets) != text
    }

    /// True if nothing was found wrong.
    #[must_use]
    pub fn are_none(&self) -> bool {
        self.found.borrow().is_empty()
    }

    /// All of them, in the order of the text.
    #[must_use]
    pub fn take(&self) -> Vec<Fault> {
        let mut found = self.found.take();
        found.sort_by_key(|(at, _)| *at);
        let secrets = self.secrets.borrow();
        let secrets: Vec<_> = secrets.iter().collect();
        let fault = |(at, what): (usize, String)| {
            let (line, column) = position(self.text, at);
            Fault { at, line, column, what: scrub(&what, &secrets).into_owned() }
        };
        found.into_iter().map(fault).collect()
    }

    /// The line of the byte `at`, from 1.
    #[must_use]
    pub fn line(&self, at: usize) -> usize {
        position(self.text, at).0
    }

    pub(crate) fn is_of_the_whole(&self, name: &str) -> bool {
        self.whole.contains(&name)
    }
}

/// How many there are: what they say may be half read.
impl fmt::Debug for Faults<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faults({})", self.found.borrow().len())
    }
}

/// Line and column of the byte `at` of `text`, counted from 1, the column in characters.
///
/// ```
/// assert_eq!(keywheel_settings::position("a\nä = 1", 5), (2, 3));
/// ```
#[must_use]
pub fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}
