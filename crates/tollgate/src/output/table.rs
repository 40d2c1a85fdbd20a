//! Columns without borders, as wide as what is in them.

use super::paint::Paint;

/// Between two columns.
const GAP: &str = "  ";

/// A cell: its text, and how it is painted.
type Cell = (String, Look);

/// How a cell looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    Plain,
    Strong,
    Faint,
    Good,
    Warning,
    Bad,
}

/// Rows under headings.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(headings: &[&'static str]) -> Table {
        Table { headings: headings.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a row; each cell is text, or text with a look.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.headings.len(), "a cell for each heading");
        self.rows.push(cells);
    }

    /// The lines of the table; empty without rows.
    pub(crate) fn render(&self, paint: Paint) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let widths: Vec<usize> = (0..self.headings.len()).map(|column| self.width(column)).collect();
        let headings = self.headings.iter().map(|heading| ((*heading).to_owned(), Look::Faint)).collect();
        let mut text = String::new();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let cells = row.iter().zip(&widths).map(|(cell, width)| painted(cell, *width, paint));
            let line = cells.collect::<Vec<_>>().join(GAP);
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].0.chars().count());
        cells.chain([self.headings[column].len()]).max().unwrap_or(0)
    }
}

/// Text first, spaces outside the paint.
fn painted((text, look): &Cell, width: usize, paint: Paint) -> String {
    let spaces = " ".repeat(width - text.chars().count());
    let text = match look {
        Look::Plain => text.clone(),
        Look::Strong => paint.strong(text),
        Look::Faint => paint.faint(text),
        Look::Good => paint.good(text),
        Look::Warning => paint.warning(text),
        Look::Bad => paint.bad(text),
    };
    format!("{text}{spaces}")
}

/// A cell without paint.
#[allow(clippy::needless_pass_by_value, reason = "a cell takes whatever can be printed")]
pub(crate) fn cell(text: impl ToString) -> Cell {
    (text.to_string(), Look::Plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["NAME", "TOKEN"]);
        table.row(vec![cell("db/migrate"), cell(42)]);
        table.row(vec![cell("ä"), (String::from("7"), Look::Bad)]);
        assert_eq!(table.render(Paint::PLAIN), "NAME        TOKEN\ndb/migrate  42\nä           7\n");
    }

    #[test]
    fn a_table_without_rows_says_nothing() {
        assert_eq!(Table::new(&["NAME"]).render(Paint::PLAIN), "");
    }
}
