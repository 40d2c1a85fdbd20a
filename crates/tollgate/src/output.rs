//! Output of commands: tables for people, JSON for programs.
//!
//! Results go to stdout, messages about them to stderr. A reader that went away ends the command quietly, as it would
//! any other program. Text of clients (names, reasons) is escaped for people, and left as it is for programs.
//! Invariant: to print a message takes no time, even if nobody reads it (`speaker`); to print a result may block for
//! ever. Not here: the content (each command).

mod paint;
mod speaker;
mod table;

pub(crate) use paint::{Colour, Paint};
pub(crate) use table::{Look, Table, cell};

use crate::exit::{Exit, WithExit};
use crate::screen;
use crate::words::{cut, wrapped};
use clap::ValueEnum;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;
use speaker::Speaker;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::Duration;
use tollgate_types::escaped;

/// Number of the signal that would have ended the process if it were not ignored.
const SIGPIPE: i32 = 13;

/// Maximum time that a result waits for earlier messages on the same terminal, so that they appear in order.
const ORDER_PATIENCE: Duration = Duration::from_millis(50);

/// Maximum time that the end of the process waits for unwritten messages.
pub(crate) const END_PATIENCE: Duration = Duration::from_secs(2);

static SPEAKER: OnceLock<Option<Speaker>> = OnceLock::new();

/// Format of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns for people
    Table,
    /// One JSON document, indented
    Json,
    /// One JSON object a line
    Jsonl,
}

/// Format, colours and width of results on stdout.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) format: Format,
    /// Colours on stdout.
    pub(crate) paint: Paint,
    /// Width of the terminal in columns; `None` if stdout is no terminal.
    width: Option<usize>,
}

impl Output {
    pub(crate) fn new(format: Format, colour: Colour) -> Output {
        let stdout = std::io::stdout();
        Output { format, paint: Paint::new(colour, stdout.is_terminal()), width: screen::width(&stdout) }
    }

    /// True if a person reads the output.
    pub(crate) fn is_table(self) -> bool {
        self.format == Format::Table
    }

    /// Prints a list: a table, or an array, or its objects line by line.
    pub(crate) fn list(self, table: &Table, items: Vec<Value>) -> anyhow::Result<()> {
        match self.format {
            Format::Table => text(&self.render(table)),
            Format::Json => text(&indented(&Value::Array(items))),
            Format::Jsonl => items.iter().try_for_each(|item| line(&item.to_string())),
        }
    }

    /// Renders a table, as wide as fits.
    pub(crate) fn render(self, table: &Table) -> String {
        table.render(self.paint, self.width)
    }

    /// Wraps a sentence into lines that fit, with all but the first indented; unchanged if there is no terminal.
    pub(crate) fn wrap(self, sentence: &str, indent: &str) -> String {
        self.width.map_or_else(|| sentence.to_owned(), |width| wrapped(sentence, width, indent))
    }

    /// Cuts an unpainted line to the width of the terminal.
    pub(crate) fn fit(self, line: &str) -> String {
        self.width.map_or_else(|| line.to_owned(), |width| cut(line, width))
    }

    /// Prints a single item.
    pub(crate) fn one(self, for_people: &str, item: &Value) -> anyhow::Result<()> {
        match self.format {
            Format::Table => line(for_people),
            Format::Json => text(&indented(item)),
            Format::Jsonl => line(&item.to_string()),
        }
    }

    /// Prints one item of a stream.
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

/// Prints text on stdout as it is, and flushes it.
pub(crate) fn text(text: &str) -> anyhow::Result<()> {
    let_said_be_seen();
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(nobody_reads()),
        Err(error) => Err(anyhow::Error::new(error).context("can't write to stdout")),
    }
}

/// Returns the error that quietly ends a command whose reader went away.
fn nobody_reads() -> anyhow::Error {
    WithExit(Exit::signal(SIGPIPE), String::new()).into()
}

/// Runs work that prints now and then and may wait for long in between. If its reader goes away, the command ends at
/// once, and not only with the next line.
pub(crate) async fn while_read<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::select! {
        done = work => done,
        () = reader_gone() => Err(nobody_reads()),
    }
}

/// Completes once nobody can read stdout any more: the other end of its pipe is closed, or its terminal is gone.
async fn reader_gone() {
    let (tell, told) = tokio::sync::oneshot::channel();
    let look = move || {
        let stdout = std::io::stdout();
        // No events are requested: errors are reported all the same.
        let mut looked = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
        while poll(&mut looked, PollTimeout::NONE) == Err(Errno::EINTR) {}
        let gone =
            looked[0].revents().is_some_and(|told| told.intersects(PollFlags::POLLERR | PollFlags::POLLHUP));
        if gone {
            let _ = tell.send(());
        }
    };
    // The thread mostly waits until the process ends. Without a thread, the next line finds the reader gone.
    let looks = std::thread::Builder::new().name("reader".to_owned()).spawn(look);
    if looks.is_err() || told.await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Prints a message on stderr without waiting; there may be nobody to read it.
pub(crate) fn say(text: &str) {
    let lines: Vec<String> = text.split('\n').map(|line| escaped(line).to_string()).collect();
    say_as_it_is(format!("{}\n", lines.join("\n")));
}

/// Prints a message like `say`, but with no line end added and with control characters for the cursor.
pub(crate) fn say_as_it_is(text: String) {
    match speaker() {
        Some(speaker) => speaker.say(text),
        None => speaker::write_what_fits(&mut std::io::stderr(), &text),
    }
}

/// Starts the speaker. To be called before work that must not wait begins: later there may be no thread available.
pub(crate) fn get_ready_to_say() {
    let _ = speaker();
}

/// Returns the speaker; `None` if its thread can't be started.
fn speaker() -> Option<&'static Speaker> {
    SPEAKER.get_or_init(|| Speaker::start(std::io::stderr())).as_ref()
}

/// Waits briefly until messages are written, if somebody reads them. To be called before others write to the same
/// terminal.
pub(crate) fn let_said_be_seen() {
    wait(ORDER_PATIENCE);
}

/// Waits for unwritten messages at the end of the process; the rest is dropped.
pub(crate) fn finish_saying() {
    wait(END_PATIENCE);
}

fn wait(patience: Duration) {
    if let Some(speaker) = SPEAKER.get().and_then(Option::as_ref) {
        speaker.wait(patience);
    }
}
