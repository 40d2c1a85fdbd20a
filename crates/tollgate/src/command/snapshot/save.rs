//! `tollgate snapshot save`: saves a backup to a file, as a whole or not at all.

use super::refused;
use super::status::summary_json;
use crate::command::status::bytes_text;
use crate::exit::{Exit, WithExit};
use crate::failure::failed;
use crate::globals::{Globals, stderr_is_terminal};
use crate::output::say;
use crate::signals::Signals;
use anyhow::Context;
use clap::Args;
use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;
use tollgate_client::{BackupPiece, Client, Error, ErrorKind};
use tollgate_replica::restore::{Summary, inspect};

/// Maximum number of attempts: as many nodes may go away before a backup is complete.
const ATTEMPTS_MAX: u32 = 5;

/// Pause between two attempts: about as long as the election of another leader takes.
const PAUSE: Duration = Duration::from_millis(500);

/// Interval of the progress display.
const TELL_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub(super) struct Save {
    /// The file to save to
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,

    /// Replace the file if it is there
    #[arg(long)]
    pub(super) force: bool,

    /// Save what is on the disk of a stopped node, not what a cluster says; may be given several times
    #[arg(long, value_name = "DIR")]
    pub(super) from_data_dir: Vec<PathBuf>,
}

impl Save {
    pub(super) fn is_from_disks(&self) -> bool {
        !self.from_data_dir.is_empty()
    }
}

pub(super) fn run(globals: &Globals, arguments: &Save) -> anyhow::Result<Exit> {
    refuse_present(arguments)?;
    let dir = directory(&arguments.file);
    let summary = globals.with_client(async |client| {
        let mut signals = Signals::new()?;
        let unfinished = tokio::select! {
            received = receive(globals, &client, &dir) => received?,
            number = signals.next() => {
                return Err(WithExit(Exit::signal(number), "interrupted: nothing was saved".to_owned()).into());
            }
        };
        // All of the backup is here: a signal from now on does not keep it from being saved.
        let (target, force) = (arguments.file.clone(), arguments.force);
        tokio::task::spawn_blocking(move || finish(unfinished, &target, force)).await?
    })?;
    let bytes: u64 = summary.groups.iter().map(|group| group.group.bytes).sum();
    let (file, groups) = (arguments.file.display(), summary.groups.len());
    let cluster = &summary.head.cluster_name;
    let of = if groups == 1 { "1 group".to_owned() } else { format!("{groups} groups") };
    let for_people = format!("saved {of} of {cluster}, {} of state, in {file}", bytes_text(bytes));
    globals.output.one(&for_people, &summary_json(&summary))?;
    Ok(Exit::Done)
}

pub(super) fn refuse_present(arguments: &Save) -> anyhow::Result<()> {
    if arguments.force || !arguments.file.exists() {
        return Ok(());
    }
    let says =
        format!("{} is there already: give another name, or --force to replace it", arguments.file.display());
    Err(WithExit(Exit::Usage, says).into())
}

/// Returns the directory that the file will be in.
pub(super) fn directory(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

/// Creates a temporary file in the directory, removed on drop.
pub(super) fn unfinished(dir: &Path) -> anyhow::Result<NamedTempFile> {
    let unfinished = named_unfinished().tempfile_in(dir);
    unfinished.with_context(|| format!("can't write to {}", dir.display()))
}

pub(super) fn named_unfinished() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".tollgate-").suffix(".unfinished");
    builder
}

/// Receives the whole backup into a temporary file. An incomplete file is removed.
async fn receive(globals: &Globals, client: &Client, dir: &Path) -> anyhow::Result<NamedTempFile> {
    let mut unfinished = unfinished(dir)?;
    for attempt in 1.. {
        let Some(error) = receive_from_one(globals, client, &mut unfinished, dir).await? else { break };
        let passes = matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::TimedOut);
        if !passes || attempt >= ATTEMPTS_MAX {
            return Err(failed(error));
        }
        if !globals.quiet {
            say(&format!("{error}: beginning anew"));
        }
        tokio::time::sleep(PAUSE).await;
        // A backup from another node differs in its bytes, so the file starts over.
        let file = unfinished.as_file_mut();
        let begun = file.set_len(0).and_then(|()| file.rewind());
        begun.with_context(|| format!("can't write to {}", dir.display()))?;
    }
    Ok(unfinished)
}

/// Receives the backup from one node. Returns the error if that broke off.
async fn receive_from_one(
    globals: &Globals,
    client: &Client,
    unfinished: &mut NamedTempFile,
    dir: &Path,
) -> anyhow::Result<Option<Error>> {
    let mut backup = client.admin().backup().await.map_err(failed)?;
    let mut progress = Progress::new(globals);
    loop {
        match backup.next().await {
            Ok(Some(piece)) => {
                let written = unfinished.write_all(&piece.bytes);
                written.with_context(|| format!("can't write to {}", dir.display()))?;
                progress.tell(&piece);
            }
            ended => {
                progress.end();
                return Ok(ended.err());
            }
        }
    }
}

/// Checks the file as a restore would, and gives it its final name once it is durable.
pub(super) fn finish(unfinished: NamedTempFile, target: &Path, force: bool) -> anyhow::Result<Summary> {
    let dir = directory(target);
    let summary = inspect(unfinished.path()).map_err(refused)?;
    unfinished.as_file().sync_all().with_context(|| format!("can't write to {}", target.display()))?;
    let named = if force { unfinished.persist(target) } else { unfinished.persist_noclobber(target) };
    named.map_err(|error| error.error).with_context(|| format!("can't make {}", target.display()))?;
    File::open(&dir)
        .and_then(|dir| dir.sync_all())
        .with_context(|| format!("can't sync {}", dir.display()))?;
    Ok(summary)
}

/// Progress display, on one line of the terminal.
struct Progress {
    shown: bool,
    bytes: u64,
    told: Instant,
}

impl Progress {
    fn new(globals: &Globals) -> Progress {
        Progress { shown: !globals.quiet && stderr_is_terminal(), bytes: 0, told: Instant::now() }
    }

    fn tell(&mut self, piece: &BackupPiece) {
        self.bytes += piece.bytes.len() as u64;
        if self.shown && self.told.elapsed() >= TELL_EVERY {
            self.told = Instant::now();
            let (bytes, done, groups) = (bytes_text(self.bytes), piece.groups_done, piece.groups);
            let _ = write!(std::io::stderr(), "\r\u{1b}[Ksaving: {done} of {groups} groups, {bytes}");
        }
    }

    /// Clears the line.
    fn end(&self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        }
    }
}
