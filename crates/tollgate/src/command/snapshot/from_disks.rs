//! `tollgate snapshot save --from-data-dir`: makes a backup from the disks of stopped nodes.
//!
//! Not here: the choice of data from each disk (`tollgate_replica::salvage`).

use super::save::{Save, directory, finish, named_unfinished, refuse_present, unfinished};
use super::status::{origins, summary_json};
use crate::command::status::bytes_text;
use crate::exit::{Exit, WithExit};
use crate::globals::Globals;
use crate::signals::Signals;
use crate::utc;
use anyhow::Context;
use serde_json::json;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tollgate_replica::EngineConfig;
use tollgate_replica::backup::{GroupOrigin, TimeSource};
use tollgate_replica::restore::{GroupSummary, Summary};
use tollgate_replica::salvage::{Salvage, SalvageError};

/// Size of the buffer that gathers the output of the backup's writer.
const BUFFER_BYTES: usize = 1 << 20;

/// Shared flag that is set when the user asks to stop.
#[derive(Debug, Clone, Default)]
struct Stop(Arc<AtomicBool>);

pub(super) fn run(globals: &Globals, arguments: &Save) -> anyhow::Result<Exit> {
    refuse_present(arguments)?;
    let dir = directory(&arguments.file).display().to_string();
    globals.remark(&format!(
        "copying logs to {dir}, for as long as they are read: the data directories stay as they are"
    ));
    let summary = Globals::block_on(async {
        let (mut signals, stop) = (Signals::new()?, Stop::default());
        let (file, force) = (arguments.file.clone(), arguments.force);
        let (from, told) = (arguments.from_data_dir.clone(), stop.clone());
        let mut work = tokio::task::spawn_blocking(move || made(&file, force, &from, &told));
        tokio::select! {
            done = &mut work => done?,
            number = signals.next() => {
                stop.0.store(true, Ordering::Relaxed);
                // The work removes what it has written, unless it was done already: then the file exists.
                match work.await? {
                    Ok(summary) => Ok(summary),
                    Err(_) => Err(WithExit(Exit::signal(number), "interrupted: nothing was saved".to_owned()).into()),
                }
            }
        }
    })?;
    let warnings = warnings(&summary);
    let mut item = summary_json(&summary);
    item["warnings"] = json!(warnings);
    globals.output.one(&for_people(globals, arguments, &summary), &item)?;
    for warning in &warnings {
        globals.remark(&format!("warning: {warning}"));
    }
    Ok(Exit::Done)
}

/// Writes the backup: the file is named and durable, or nothing of it is left; the copies are removed in either case.
fn made(file: &std::path::Path, force: bool, from: &[PathBuf], stop: &Stop) -> anyhow::Result<Summary> {
    let dir = directory(file);
    let copies = named_unfinished().tempdir_in(&dir);
    let copies = copies.with_context(|| format!("can't write to {}", dir.display()))?;
    let mut salvage = Salvage::new(copies.path(), EngineConfig::default());
    for path in from {
        stop.check()?;
        salvage.add(path).map_err(refused)?;
    }
    let plan = salvage.plan().map_err(refused)?;
    let mut unfinished = unfinished(&dir)?;
    let out = io::BufWriter::with_capacity(BUFFER_BYTES, Stoppable { out: unfinished.as_file_mut(), stop });
    plan.write(out, env!("CARGO_PKG_VERSION")).map_err(refused)?;
    stop.check()?;
    finish(unfinished, file, force)
}

#[allow(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
fn refused(error: SalvageError) -> anyhow::Error {
    WithExit(Exit::Failed, error.to_string()).into()
}

impl Stop {
    fn check(&self) -> io::Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(io::Error::other("interrupted")) } else { Ok(()) }
    }
}

/// A writer that fails once the user has asked to stop.
struct Stoppable<'a, W> {
    out: W,
    stop: &'a Stop,
}

impl<W: Write> Write for Stoppable<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stop.check()?;
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn for_people(globals: &Globals, arguments: &Save, summary: &Summary) -> String {
    let bytes: u64 = summary.groups.iter().map(|group| group.group.bytes).sum();
    let of = if summary.groups.len() == 1 {
        "1 group".to_owned()
    } else {
        format!("{} groups", summary.groups.len())
    };
    format!(
        "saved {of} of cluster {}, {} of state, in {}\n{}",
        summary.head.cluster,
        bytes_text(bytes),
        arguments.file.display(),
        globals.output.render(&origins(summary)).trim_end()
    )
}

/// Returns the warnings that an operator must know before going on.
fn warnings(summary: &Summary) -> Vec<String> {
    let mut warnings = Vec::new();
    let incomplete = summary.groups.iter().filter_map(|group| Some((group, group.group.origin.as_ref()?)));
    for (group, origin) in incomplete.filter(|(_, origin)| !origin.complete) {
        warnings.push(missing(group, origin));
    }
    let by_file = |group: &&GroupSummary| {
        group.group.origin.as_ref().is_some_and(|origin| origin.time_source == TimeSource::SnapshotFile)
    };
    for group in summary.groups.iter().filter(by_file) {
        warnings.push(format!(
            "no entry of group {} has a wall time: how old it is follows from the time of its snapshot file. If the \
             directory was copied without its times, restore with --above-token",
            group.group.group
        ));
    }
    let strangers: Vec<String> = {
        let members = summary.head.members.all();
        summary.head.disks.iter().filter(|node| !members.contains(node)).map(ToString::to_string).collect()
    };
    if !strangers.is_empty() {
        warnings.push(format!(
            "by the newest log, node {} is no member any more: its disk may be old",
            strangers.join(", ")
        ));
    }
    warnings
}

fn missing(group: &GroupSummary, origin: &GroupOrigin) -> String {
    format!(
        "group {}: what the others acknowledged after {} (entry {}) may be missing: these are not a majority's disks",
        group.group.group,
        utc::text(origin.current_unix_ms),
        group.group.index
    )
}
