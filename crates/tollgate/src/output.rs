//! What a command prints: a table for people, or JSON for programs.
//!
//! Results go to stdout, everything said about them to stderr. A reader that went away ends the command quietly, as it
//! would any other. Not here: what is printed (each command).

mod paint;
mod table;

pub(crate) use paint::{Colour, Paint};
pub(crate) use table::{Look, Table, cell};

use crate::exit::{Exit, WithExit};
use clap::ValueEnum;
use serde_json::Value;
use std::io::{ErrorKind, IsTerminal, Write};

/// What SIGPIPE would have ended the process with.
const SIGPIPE: i32 = 13;

/// How results look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns for people
    Table,
    /// One JSON document, indented
    Json,
    /// One JSON object a line
    Jsonl,
}

/// Where results go, and how they look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) format: Format,
    /// Of what goes to stdout.
    pub(crate) paint: Paint,
}

impl Output {
    pub(crate) fn new(format: Format, colour: Colour) -> Output {
        Output { format, paint: Paint::new(colour, std::io::stdout().is_terminal()) }
    }

    /// Whether a person reads it.
    pub(crate) fn is_table(self) -> bool {
        self.format == Format::Table
    }

    /// Prints a list: a table, or an array, or its objects line by line.
    pub(crate) fn list(self, table: &Table, items: Vec<Value>) -> anyhow::Result<()> {
        match self.format {
            Format::Table => text(&table.render(self.paint)),
            Format::Json => text(&indented(&Value::Array(items))),
            Format::Jsonl => items.iter().try_for_each(|item| line(&item.to_string())),
        }
    }

    /// Prints one thing.
    pub(crate) fn one(self, for_people: &str, item: &Value) -> anyhow::Result<()> {
        match self.format {
            Format::Table => line(for_people),
            Format::Json => text(&indented(item)),
            Format::Jsonl => line(&item.to_string()),
        }
    }

    /// Prints one thing of many that come as time goes by.
    pub(crate) fn next(self, for_people: &str, item: &Value) -> anyhow::Result<()> {
        match self.format {
            Format::Table => line(for_people),
            Format::Json | Format::Jsonl => line(&item.to_string()),
        }
    }
}

fn indented(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Prints a line on stdout.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    self::text(&format!("{text}\n"))
}

/// Prints text on stdout as it is, at once.
pub(crate) fn text(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            Err(WithExit(Exit::signal(SIGPIPE), String::new()).into())
        }
        Err(error) => Err(anyhow::Error::new(error).context("can't write to stdout")),
    }
}

/// Says something on stderr; nobody may be there to read it.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
