//! Tables: columns without borders, as wide as their cells.

use super::paint::Paint;
use crate::words::cut;
use tollgate_types::escaped;

/// Gap between two columns.
const GAP: &str = "  ";

/// Minimum width to which a column is cut.
const NARROW: usize = 10;

/// Minimum width of the first column, which names the subject of the row. It is cut further only if it stands alone.
const FIRST_NARROW: usize = 24;

/// Text of a cell, and its look.
type Cell = (String, Look);

/// Look of a cell.
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

    /// Adds a row, with a cell for each heading.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.headings.len(), "a cell for each heading");
        self.rows.push(cells.into_iter().map(|(text, look)| (escaped(&text).to_string(), look)).collect());
    }

    /// Renders the table, at most `width` wide if possible; empty without rows. A table that is too wide loses columns
    /// that hold no values, and then the ends of long cells, those on the right first. Columns on the right are dropped
    /// before the names in the first column are cut beyond recognition.
    pub(crate) fn render(&self, paint: Paint, width: Option<usize>) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let columns = self.columns(width);
        let headings = self.headings.iter().map(|heading| ((*heading).to_owned(), Look::Faint)).collect();
        let mut text = String::new();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let cells = columns.iter().map(|(column, width)| painted(&row[*column], *width, paint));
            let line = cells.collect::<Vec<_>>().join(GAP);
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// Returns the columns that are shown, with the width of each.
    fn columns(&self, width: Option<usize>) -> Vec<(usize, usize)> {
        let mut columns: Vec<(usize, usize)> =
            (0..self.headings.len()).map(|column| (column, self.width(column))).collect();
        let Some(width) = width else { return columns };
        if total(&columns) > width {
            columns.retain(|(column, _)| self.rows.iter().any(|row| row[*column].0 != "-"));
        }
        // The leftmost columns matter most.
        while columns.len() > 1 && total(&narrowest(&columns)) > width {
            columns.pop();
        }
        for column in (0..columns.len()).rev() {
            let too_wide = total(&columns).saturating_sub(width);
            let own = &mut columns[column].1;
            *own = own.saturating_sub(too_wide).max(NARROW.min(*own));
        }
        columns
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].0.chars().count());
        cells.chain([self.headings[column].len()]).max().unwrap_or(0)
    }
}

/// Returns the width of all columns, given as (column, width), with the gaps between them.
fn total(columns: &[(usize, usize)]) -> usize {
    columns.iter().map(|(_, width)| width).sum::<usize>() + GAP.len() * columns.len().saturating_sub(1)
}

/// Returns the columns, each cut as far as it may be beside others.
fn narrowest(columns: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let least = |place| if place == 0 { FIRST_NARROW } else { NARROW };
    columns.iter().enumerate().map(|(place, &(column, width))| (column, width.min(least(place)))).collect()
}

/// Pads a cell to its column: painted text first, then unpainted spaces.
fn painted((text, look): &Cell, width: usize, paint: Paint) -> String {
    let text = cut(text, width);
    let spaces = " ".repeat(width.saturating_sub(text.chars().count()));
    let text = match look {
        Look::Plain => text,
        Look::Strong => paint.strong(&text),
        Look::Faint => paint.faint(&text),
        Look::Good => paint.good(&text),
        Look::Warning => paint.warning(&text),
        Look::Bad => paint.bad(&text),
    };
    format!("{text}{spaces}")
}

/// Makes a cell without colours.
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
        assert_eq!(table.render(Paint::PLAIN, None), "NAME        TOKEN\ndb/migrate  42\nä           7\n");
    }

    #[test]
    fn what_would_garble_the_table_is_spelled_out() {
        let mut table = Table::new(&["NAME", "TOKEN"]);
        table.row(vec![cell("a\u{202e}b\u{1b}[2J\n"), cell(1)]);
        assert_eq!(
            table.render(Paint::PLAIN, None),
            "NAME                      TOKEN\na\\u{202e}b\\u{1b}[2J\\u{a}  1\n"
        );
    }

    #[test]
    fn a_table_that_is_too_wide_loses_columns_without_a_word_and_then_the_ends_of_long_cells() {
        let mut table = Table::new(&["NAME", "ZONE", "WHY"]);
        table.row(vec![cell("db/migrate"), cell("-"), cell("because of a long story")]);
        let whole = "NAME        ZONE  WHY\ndb/migrate  -     because of a long story\n";
        assert_eq!(table.render(Paint::PLAIN, Some(80)), whole);
        let dropped = "NAME        WHY\ndb/migrate  because of a long story\n";
        assert_eq!(table.render(Paint::PLAIN, Some(36)), dropped);
        let cut = "NAME        WHY\ndb/migrate  because of a lo…\n";
        assert_eq!(table.render(Paint::PLAIN, Some(28)), cut);
    }

    #[test]
    fn columns_on_the_right_go_before_names_are_cut_beyond_recognition() {
        let mut table = Table::new(&["NAME", "HOLDER", "WHY"]);
        table.row(vec![
            cell("a/lock/with/a/name/that/is/long"),
            cell("somebody@somewhere"),
            cell("of reasons"),
        ]);
        assert_eq!(
            table.render(Paint::PLAIN, Some(40)),
            "NAME                          HOLDER\na/lock/with/a/name/that/is/…  somebody@…\n"
        );
        assert_eq!(table.render(Paint::PLAIN, Some(20)), "NAME\na/lock/with/a/name/…\n");
    }

    #[test]
    fn a_table_without_rows_says_nothing() {
        assert_eq!(Table::new(&["NAME"]).render(Paint::PLAIN, None), "");
    }
}
