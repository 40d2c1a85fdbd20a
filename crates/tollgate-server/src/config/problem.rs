//! Problems of a configuration and their messages: the key, the place, the line with a caret, the next step.
//!
//! Not here: the checks (`kind`, `file`, `rules`).

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Reason to refuse a value, before the position of the value is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// Description of the mistake, as the rest of a sentence that begins with the key.
    pub(crate) what: String,
    /// Next step for the operator. May be empty.
    pub(crate) advice: String,
}

impl Wrong {
    pub(crate) fn new(what: impl Into<String>, advice: impl Into<String>) -> Wrong {
        Wrong { what: what.into(), advice: advice.into() }
    }
}

/// Source position of a problem.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In the configuration file.
    File {
        /// Path as the operator named it.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// Number of characters to underline, at least 1.
        width: usize,
        /// Text of the line.
        text: String,
    },
    /// In an environment variable.
    Env {
        /// Name of the variable.
        name: String,
        /// Value of the variable.
        value: String,
    },
    /// In a command-line flag.
    Flag {
        /// Name of the flag, with its dashes.
        name: String,
        /// Value of the flag.
        value: String,
    },
    /// Nowhere, because something is missing.
    Nowhere,
}

impl Place {
    /// Returns the place of a byte range of a file.
    pub(crate) fn in_file(path: &Path, text: &str, span: &Range<usize>) -> Place {
        let start = floor_char_boundary(text, span.start);
        let end = floor_char_boundary(text, span.end).max(start);
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[line_start..].find('\n').map_or(text.len(), |newline| line_start + newline);
        Place::File {
            path: path.to_path_buf(),
            line: text[..start].matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            width: text[start..end.min(line_end).max(start)].trim_end().chars().count().max(1),
            // A tab would push the caret away from the text it points at, and other controls would garble the terminal.
            text: text[line_start..line_end].trim_end().replace(char::is_control, " "),
        }
    }
}

fn floor_char_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// One problem of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Source position.
    pub place: Place,
    /// Key as `section.key`; empty if the problem concerns no key.
    pub key: String,
    /// Description of the mistake, as the rest of a sentence that begins with the key.
    pub what: String,
    /// Next step for the operator, and further settings involved.
    pub notes: Vec<String>,
}

impl Problem {
    pub(crate) fn new(place: Place, key: impl Into<String>, wrong: Wrong) -> Problem {
        let notes = if wrong.advice.is_empty() { Vec::new() } else { vec![wrong.advice] };
        Problem { place, key: key.into(), what: wrong.what, notes }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let between = if self.key.is_empty() { "" } else { " " };
        writeln!(f, "error: {}{between}{}", self.key, self.what)?;
        // The gutter is as wide as the line number.
        let mut gutter = 1;
        match &self.place {
            Place::File { path, line, column, width, text } => {
                gutter = line.to_string().len();
                writeln!(f, "{:gutter$}--> {}:{line}:{column}", "", path.display())?;
                writeln!(f, "{:gutter$} |", "")?;
                writeln!(f, "{line} | {text}")?;
                writeln!(f, "{:gutter$} | {:indent$}{}", "", "", "^".repeat(*width), indent = column - 1)?;
            }
            Place::Env { name, value } => writeln!(f, " --> env {name}={value:?}")?,
            Place::Flag { name, value } => writeln!(f, " --> flag {name}={value:?}")?,
            Place::Nowhere => {}
        }
        for note in &self.notes {
            writeln!(f, "{:gutter$} = {note}", "")?;
        }
        Ok(())
    }
}

/// All problems of a configuration, in the order of the file. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    pub(crate) fn new(mut problems: Vec<Problem>) -> Problems {
        assert!(!problems.is_empty(), "no problems are no error");
        problems.sort();
        problems.dedup();
        Problems(problems)
    }

    /// Iterates over the problems.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.0 {
            writeln!(f, "{problem}")?;
        }
        let count = self.0.len();
        let plural = if count == 1 { "" } else { "s" };
        write!(f, "{count} problem{plural} in the configuration")
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, span: Range<usize>) -> String {
        let place = Place::in_file(Path::new("t.toml"), text, &span);
        Problem::new(place, "node.id", Wrong::new("is odd", "make it even")).to_string()
    }

    #[test]
    fn a_problem_shows_its_line_with_a_caret_below_what_it_means() {
        let expected =
            "error: node.id is odd\n --> t.toml:2:6\n  |\n2 | id = 71\n  |      ^^\n  = make it even\n";
        assert_eq!(shown("[node]\nid = 71\n", 12..14), expected);
    }

    #[test]
    fn carets_stand_right_behind_letters_of_several_bytes_and_tabs() {
        assert!(shown("é\tid = 1\r\nx", 8..9).contains("1 | é id = 1\n  |        ^\n"));
    }

    #[test]
    fn places_outside_the_text_and_over_several_lines_are_cut() {
        assert!(shown("a = [\n1,\n]", 4..10).contains("1 | a = [\n  |     ^\n"));
        assert!(shown("a = 1", 90..99).contains("1 | a = 1\n  |      ^\n"));
        assert!(shown("", 0..0).contains("1 | \n  | ^\n"));
        assert!(shown("é", 1..2).contains("1 | é\n  | ^\n"));
    }
}
