//! What a command prints: a table for people, or JSON for programs.
//!
//! Results go to stdout, everything said about them to stderr. A reader that went away ends the command quietly, as it
//! would any other. Invariant: to say something takes no time, even if nobody reads it (`speaker`); to print a result
//! may take for ever. Not here: what is printed (each command).

mod paint;
mod speaker;
mod table;

pub(crate) use paint::{Colour, Paint};
pub(crate) use table::{Look, Table, cell};

use crate::exit::{Exit, WithExit};
use clap::ValueEnum;
use serde_json::Value;
use speaker::Speaker;
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::OnceLock;
use std::time::Duration;

/// What SIGPIPE would have ended the process with.
const SIGPIPE: i32 = 13;

/// How long what was said may hold up what comes after it on the same terminal, so that they stand there in order.
const ORDER_PATIENCE: Duration = Duration::from_millis(50);

/// How long it may hold up the end of the process.
pub(crate) const END_PATIENCE: Duration = Duration::from_secs(2);

static SPEAKER: OnceLock<Option<Speaker>> = OnceLock::new();

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
    let_said_be_seen();
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            Err(WithExit(Exit::signal(SIGPIPE), String::new()).into())
        }
        Err(error) => Err(anyhow::Error::new(error).context("can't write to stdout")),
    }
}

/// Says something on stderr; nobody may be there to read it, and nobody waits for that.
pub(crate) fn say(text: &str) {
    say_as_it_is(format!("{text}\n"));
}

/// As above, without the end of a line.
pub(crate) fn say_as_it_is(text: String) {
    match speaker() {
        Some(speaker) => speaker.say(text),
        None => speaker::write_what_fits(&mut std::io::stderr(), &text),
    }
}

/// To be called before there is something that must not wait: later there may be no thread to be had.
pub(crate) fn get_ready_to_say() {
    let _ = speaker();
}

/// None where there can't be one.
fn speaker() -> Option<&'static Speaker> {
    SPEAKER.get_or_init(|| Speaker::start(std::io::stderr())).as_ref()
}

/// To be called before others write where we have: what was said stands first then, if somebody reads it.
pub(crate) fn let_said_be_seen() {
    wait(ORDER_PATIENCE);
}

/// To be called at the end of the process: what is not written by then is dropped.
pub(crate) fn finish_saying() {
    wait(END_PATIENCE);
}

fn wait(patience: Duration) {
    if let Some(speaker) = SPEAKER.get().and_then(Option::as_ref) {
        speaker.wait(patience);
    }
}
