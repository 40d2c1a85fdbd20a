//! Colours for text: only on a terminal, never if the user does not want them.

use clap::ValueEnum;

/// Policy for the use of colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless the user wants none
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Adds colours to text, or leaves it unchanged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint(bool);

impl Paint {
    /// Decides whether a stream gets colours; `is_terminal` says if the stream is a terminal.
    pub(crate) fn new(colour: Colour, is_terminal: bool) -> Paint {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Paint(match colour {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => is_terminal && !unwanted,
        })
    }

    #[cfg(test)]
    pub(crate) const PLAIN: Paint = Paint(false);

    fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    pub(crate) fn strong(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(crate) fn faint(self, text: &str) -> String {
        self.with("2", text)
    }

    pub(crate) fn good(self, text: &str) -> String {
        self.with("32", text)
    }

    pub(crate) fn warning(self, text: &str) -> String {
        self.with("33", text)
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.with("31", text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_painted_only_where_it_shall_be() {
        assert_eq!(Paint(true).bad("x"), "\u{1b}[31mx\u{1b}[0m");
        assert_eq!(Paint::new(Colour::Never, true).bad("x"), "x");
        assert_eq!(Paint::new(Colour::Auto, false).strong("x"), "x");
    }
}
