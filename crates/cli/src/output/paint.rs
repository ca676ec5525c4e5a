//! A few colours, where somebody sees them.

/// Colours words, or leaves them alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// For standard output.
    pub(crate) fn stdout() -> Self {
        Self { on: super::stdout_is_colored() }
    }

    /// All is well.
    pub(crate) fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// Time will mend it.
    pub(crate) fn waiting(self, text: &str) -> String {
        self.wrap("33", text)
    }

    /// Somebody has to act.
    pub(crate) fn bad(self, text: &str) -> String {
        self.wrap("31", text)
    }

    /// What can be passed over.
    pub(crate) fn faint(self, text: &str) -> String {
        self.wrap("2", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.on { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}
