//! `tollgate snapshot`: saves backups of a cluster, and restores new clusters from them.
//!
//! Not here: the file's format (`tollgate_replica::backup`), the restored state (`tollgate_replica::restore`), the
//! choice among several disks (`tollgate_replica::salvage`).

mod from_disks;
mod restore;
mod save;
mod status;

use crate::exit::{Exit, WithExit};
use crate::globals::Globals;
use clap::{ArgMatches, Command, FromArgMatches, Subcommand};
use tollgate_replica::restore::RestoreError;

#[derive(Debug, Subcommand)]
enum Action {
    /// Save all groups of the cluster in one file
    #[command(after_help = "\
Each group is saved as a quorum confirms it to be. The file is there, checked and durable, or not at all; an
interrupted save leaves nothing. Locks go on being granted meanwhile.

If the quorum is lost for good and there is no backup, --from-data-dir makes one from what is left: the data directories
of stopped nodes, as many as there are, witnesses' too. Of each group the newest log is taken, to its end. It says what
may be missing, and since when. Nothing in the directories is changed; their logs are copied beside FILE meanwhile.
Directories of running nodes, of another cluster, of a newer version, or with a damaged byte are refused.

Examples:
  tollgate snapshot save backup.tollgate
  tollgate snapshot save --force /backups/latest.tollgate
  tollgate snapshot save rescued.tollgate --from-data-dir /var/lib/tollgate
  tollgate snapshot save rescued.tollgate --from-data-dir /mnt/node-2/tollgate --from-data-dir /mnt/node-3/tollgate")]
    Save(save::Save),
    /// Check a backup, byte by byte, and say what is in it
    #[command(after_help = "\
Examples:
  tollgate snapshot status backup.tollgate
  tollgate snapshot status backup.tollgate -o json | jq .groups")]
    Status(status::Status),
    /// Make the data directory of one node of a new cluster from a backup
    #[command(after_help = "\
The old cluster must be stopped for good, everywhere. Run this for every node of the new one, with the same file and
flags but for --node-id and --data-dir; the first run prints what to give the others as --above-token. Nodes restored
differently get different cluster ids and refuse each other.

The new cluster has the old one's registers and limits. Leases of the backup have ended, with their locks and
registers. Every token is above all that the old cluster can have handed out since the backup, and no lock is granted
for the grace: somebody may still believe in one from after the backup.

Examples:
  tollgate snapshot restore backup.tollgate --data-dir ./n1 --node-id 1 --members 1,2,3 --cluster-name prod-2
  tollgate snapshot restore backup.tollgate --data-dir ./n2 --node-id 2 --members 1,2,3 --cluster-name prod-2 \\
    --above-token 4302345678
  tollgate snapshot restore backup.tollgate --data-dir ./lab --node-id 1 --members 1 --cluster-name lab --grace none")]
    Restore(restore::Restore),
}

pub(crate) fn command() -> Command {
    let command = Command::new("snapshot").about("Back up a cluster, and make a new one from a backup");
    Action::augment_subcommands(command).subcommand_required(true).arg_required_else_help(true)
}

pub(crate) fn run(globals: &Globals, matches: &ArgMatches) -> anyhow::Result<Exit> {
    match Action::from_arg_matches(matches)? {
        Action::Save(arguments) if arguments.is_from_disks() => from_disks::run(globals, &arguments),
        Action::Save(arguments) => save::run(globals, &arguments),
        Action::Status(arguments) => status::run(globals, &arguments),
        Action::Restore(arguments) => restore::run(globals, &arguments),
    }
}

/// Turns an unusable backup or data directory into the end of the command.
#[allow(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
fn refused(error: RestoreError) -> anyhow::Error {
    WithExit(Exit::Failed, error.to_string()).into()
}
