//! Text tables: the first column to the left, numbers to the right.

use std::{borrow::Cow, fmt};

/// Rows under a head; every column as wide as its widest cell.
pub(super) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(super) fn new(head: [&str; N]) -> Self {
        Self { rows: vec![head.map(str::to_owned)] }
    }

    pub(super) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells.map(|cell| printable(&cell).into_owned()));
    }
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max();
        let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
        for row in &self.rows {
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                match column {
                    0 => write!(f, "  {cell:<width$}")?,
                    _ => write!(f, "  {cell:>width$}")?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// `text` on one line: what moves the cursor, commands the terminal or turns the writing round is replaced.
pub(super) fn printable(text: &str) -> Cow<'_, str> {
    let is_bad =
        |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
    if !text.contains(is_bad) {
        return Cow::Borrowed(text);
    }
    text.replace(is_bad, "\u{FFFD}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_stands_in_a_cell_the_table_keeps_its_lines() {
        let mut table = Table::new(["step", "calls"]);
        table.row(["a\n\u{1b}[2Jb\u{202E}\r\u{2028}".to_owned(), "1".to_owned()]);
        table.row(["\u{1F600} und Größe".to_owned(), "22".to_owned()]);
        let text = table.to_string();
        assert_eq!(text.lines().count(), 3, "{text:?}");
        assert!(text.contains("  a\u{FFFD}\u{FFFD}[2Jb\u{FFFD}\u{FFFD}\u{FFFD}"), "{text:?}");
        let widths: Vec<_> = text.lines().map(|line| line.chars().count()).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{text}");
    }
}
