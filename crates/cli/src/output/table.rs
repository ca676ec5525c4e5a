//! Columns.

use std::fmt;

use comfy_table::{ContentArrangement, presets};

/// Rows in columns that fit the terminal; without a terminal as wide as they are, for `grep` and `awk`.
pub(crate) struct Table(comfy_table::Table);

impl Table {
    /// A table with this head.
    pub(crate) fn new<const N: usize>(head: [&str; N]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        if super::stdout_is_terminal() {
            table.set_content_arrangement(ContentArrangement::Dynamic);
        } else {
            table.force_no_tty();
        }
        table.set_header(head);
        Self(table)
    }

    /// Adds a row.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.0.add_row(cells);
    }

    /// True when there are no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.0.lines() {
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}
