//! What a command prints: a table for people, or JSON for programs.
//!
//! Results go to stdout, everything said about them to stderr. A reader that went away ends the command quietly, as it
//! would any other. Text of clients (names, reasons) goes to people escaped, and to programs as it is. Invariant: to
//! say something takes no time, even if nobody reads it (`speaker`); to print a result may take for ever. Not here:
//! what is printed (each command).

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
    /// In columns, if a terminal shows it.
    width: Option<usize>,
}

impl Output {
    pub(crate) fn new(format: Format, colour: Colour) -> Output {
        let stdout = std::io::stdout();
        Output { format, paint: Paint::new(colour, stdout.is_terminal()), width: screen::width(&stdout) }
    }

    /// Whether a person reads it.
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

    /// A table, as wide as fits.
    pub(crate) fn render(self, table: &Table) -> String {
        table.render(self.paint, self.width)
    }

    /// A sentence in lines that fit, those after the first indented; as it is where no terminal shows it.
    pub(crate) fn wrap(self, sentence: &str, indent: &str) -> String {
        self.width.map_or_else(|| sentence.to_owned(), |width| wrapped(sentence, width, indent))
    }

    /// A line that fits, cut if it must be: nothing that is painted.
    pub(crate) fn fit(self, line: &str) -> String {
        self.width.map_or_else(|| line.to_owned(), |width| cut(line, width))
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
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(nobody_reads()),
        Err(error) => Err(anyhow::Error::new(error).context("can't write to stdout")),
    }
}

/// The quiet end of a command whose reader went away.
fn nobody_reads() -> anyhow::Error {
    WithExit(Exit::signal(SIGPIPE), String::new()).into()
}

/// Does something that prints now and then and may wait for long in between, unless whoever reads it goes away: then
/// the command ends at once, and not only with the next line.
pub(crate) async fn while_read<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::select! {
        done = work => done,
        () = reader_gone() => Err(nobody_reads()),
    }
}

/// Completes once nobody can read stdout any more: the other end of its pipe is closed, or its terminal gone.
async fn reader_gone() {
    let (tell, told) = tokio::sync::oneshot::channel();
    let look = move || {
        let stdout = std::io::stdout();
        // Nothing is asked for: errors are told all the same.
        let mut looked = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
        while poll(&mut looked, PollTimeout::NONE) == Err(Errno::EINTR) {}
        let gone =
            looked[0].revents().is_some_and(|told| told.intersects(PollFlags::POLLERR | PollFlags::POLLHUP));
        if gone {
            let _ = tell.send(());
        }
    };
    // Waits to the end of the process, most of the time. Without a thread the next line finds out.
    let looks = std::thread::Builder::new().name("reader".to_owned()).spawn(look);
    if looks.is_err() || told.await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Says something on stderr; nobody may be there to read it, and nobody waits for that.
pub(crate) fn say(text: &str) {
    let lines: Vec<String> = text.split('\n').map(|line| escaped(line).to_string()).collect();
    say_as_it_is(format!("{}\n", lines.join("\n")));
}

/// As above, without the end of a line, and with what moves the cursor.
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
