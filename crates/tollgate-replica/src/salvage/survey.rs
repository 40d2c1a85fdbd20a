//! Survey of the log of one group on one disk, and the choice among several logs of the one with all acknowledged
//! entries.
//!
//! An election would choose the log with the newest last entry: by its term, then by its index. For logs that are not
//! from a majority that is not enough. One log may know an entry to be committed that another log, with a newer last
//! entry, does not have: the owner of that other log was never elected. So logs that lack an entry that some log knows
//! to be committed are skipped, and the newest of the rest is taken, to its end. Entries after the known commit were
//! acknowledged if the lost disks had them too, which can't be found out any more; the other callers were told that the
//! outcome is unknown.
//!
//! Pure. Not here: disks (`directory`), applying the entries to a state (`salvage`).

use crate::log::Log;
use crate::log_entry::{EncodedBatch, EntryKind, LogEntry};
use crate::members::{Members, added};
use crate::storage::{LoadedGroup, SnapshotFile, Vote};
use protobuf::Message as _;
use raft::RawNode;
use raft::eraftpb::ConfChangeV2;
use std::collections::BTreeSet;
use tollgate_core::{APPLY_VERSION_SUPPORTED, Command, DecodeError, Entry};
use tollgate_types::{NodeId, WallTime};

/// Survey of one group's log on one disk.
#[derive(Debug)]
pub(super) struct Survey {
    /// Index and term of the last entry in the snapshot.
    before: (u64, u64),
    /// First index of each run of entries with the same term after the snapshot, with that term.
    terms: Vec<(u64, u64)>,
    /// Index of the last entry.
    pub(super) last: u64,
    /// Index of the last entry that is known to be committed.
    pub(super) committed: u64,
    /// Wall time in the last command that has one, by the clock of the leader that made its entry.
    pub(super) wall: Option<WallTime>,
    /// The members at the known commit, and after each later change.
    members: Vec<Members>,
}

/// Reasons for which a log can't be read to its end.
#[derive(Debug)]
pub(super) enum Unreadable {
    Corrupt(String),
    /// An entry that needs a newer binary, such as a raise to an apply version that this binary does not know.
    TooNew(u32),
}

/// Two logs that know different entries to be committed at one index. The first log is the one with the higher commit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Clash {
    pub(super) index: u64,
    pub(super) logs: (usize, usize),
}

impl Survey {
    /// Surveys a loaded log. None for a blank replica.
    pub(super) fn of(loaded: &LoadedGroup) -> Result<Option<Survey>, Unreadable> {
        let Some(snapshot) = &loaded.snapshot else { return Ok(None) };
        let before = (snapshot.meta.index, snapshot.meta.term);
        let last = before.0 + loaded.entries.len() as u64;
        let committed = loaded.vote.commit.max(before.0);
        if committed > last {
            let what = format!("it knows entry {committed} to be committed, and ends with {last}");
            return Err(Unreadable::Corrupt(what));
        }
        let mut terms: Vec<(u64, u64)> = Vec::new();
        let mut wall = None;
        for entry in &loaded.entries {
            if terms.last().is_none_or(|(_, term)| *term != entry.term) {
                terms.push((entry.index, entry.term));
            }
            for command in commands(entry) {
                let command = command?;
                wall = Some(command.wall).filter(|wall| *wall != WallTime::UNKNOWN).or(wall);
            }
        }
        let members = memberships(snapshot, &loaded.entries, committed).map_err(Unreadable::Corrupt)?;
        Ok(Some(Survey { before, terms, last, committed, wall, members }))
    }

    /// Index of the last entry in the snapshot that the log follows.
    pub(super) fn snapshot_index(&self) -> u64 {
        self.before.0
    }

    /// The term of an entry, if this log knows it.
    fn term_of(&self, index: u64) -> Option<u64> {
        if index > self.last || index < self.before.0 {
            return None;
        }
        let behind = self.terms.iter().rev().find(|(first, _)| *first <= index);
        Some(behind.map_or(self.before.1, |(_, term)| *term))
    }

    /// The term of the last entry.
    pub(super) fn last_term(&self) -> u64 {
        self.terms.last().map_or(self.before.1, |(_, term)| *term)
    }

    /// The members after the last entry.
    pub(super) fn members(&self) -> &Members {
        self.members.last().expect("there are members at the known commit")
    }

    /// True if no acknowledged entry can be missing from this log, given that it was chosen among the logs of these
    /// nodes: the nodes are a majority of the members, whichever change of members was the last committed one.
    pub(super) fn is_complete(&self, nodes: &BTreeSet<NodeId>) -> bool {
        let majority = |voters: &BTreeSet<NodeId>| 2 * voters.intersection(nodes).count() > voters.len();
        self.members
            .iter()
            .all(|members| majority(&members.voters) && (!members.is_joint() || majority(&members.outgoing)))
    }
}

/// Chooses the log to take, by the rule in the module's header.
pub(super) fn newest(surveys: &[&Survey]) -> Result<usize, Clash> {
    let most = (0..surveys.len()).max_by_key(|at| surveys[*at].committed).expect("there is a log");
    let index = surveys[most].committed;
    for (other, survey) in surveys.iter().enumerate() {
        let known = surveys[most].term_of(survey.committed);
        if known.is_some() && known != survey.term_of(survey.committed) {
            return Err(Clash { index: survey.committed, logs: (most, other) });
        }
    }
    let committed = surveys[most].term_of(index);
    let newest = (0..surveys.len())
        .filter(|at| surveys[*at].term_of(index) == committed)
        .max_by_key(|at| (surveys[*at].last_term(), surveys[*at].last, std::cmp::Reverse(*at)));
    Ok(newest.expect("the log with the highest known commit has it"))
}

/// The commands of an entry; an error for a command that this binary can't apply.
pub(super) fn commands(entry: &LogEntry) -> impl Iterator<Item = Result<Entry, Unreadable>> {
    let data = if entry.kind == EntryKind::Commands { &entry.data[..] } else { &[] };
    let index = entry.index;
    EncodedBatch::new(data).map(move |command| match command {
        Ok(Entry { command: Command::RaiseApplyVersion(version), .. })
            if version > APPLY_VERSION_SUPPORTED =>
        {
            Err(Unreadable::TooNew(version))
        }
        Err(DecodeError::UnsupportedVersion { found, .. }) => Err(Unreadable::TooNew(found.into())),
        Err(error) => Err(Unreadable::Corrupt(format!("entry {index}: {error}"))),
        Ok(command) => Ok(command),
    })
}

/// The members at the known commit, and after each later change.
fn memberships(
    snapshot: &SnapshotFile,
    entries: &[LogEntry],
    committed: u64,
) -> Result<Vec<Members>, String> {
    let mut found = vec![snapshot.meta.members.clone()];
    let changes = entries.iter().filter(|entry| entry.kind == EntryKind::Membership);
    let mut raw = None;
    for entry in changes {
        let wrong = |error: &dyn std::fmt::Display| format!("entry {}: {error}", entry.index);
        let raw = match &mut raw {
            Some(raw) => raw,
            None => raw.insert(observer(snapshot).map_err(|error| wrong(&error))?),
        };
        let change = ConfChangeV2::parse_from_bytes(&entry.data).map_err(|error| wrong(&error))?;
        let added = added(&change).map_err(|error| wrong(&error))?;
        let conf = raw.apply_conf_change(&change).map_err(|error| wrong(&error))?;
        let members = found.last().expect("there are some").after(&conf, added);
        if entry.index <= committed {
            found.clear();
        }
        found.push(members);
    }
    Ok(found)
}

/// A Raft node that only applies changes of members, because Raft knows the rules of joint changes.
fn observer(snapshot: &SnapshotFile) -> raft::Result<RawNode<Log>> {
    let log = Log::new(Vote::default(), Some(snapshot.clone()), &[]);
    let settings = raft::Config { id: u64::MAX, applied: snapshot.meta.index, ..raft::Config::default() };
    RawNode::new(&settings, log, &slog::Logger::root(slog::Discard, slog::o!()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::MemberChange;
    use crate::node_addresses::NodeAddresses;
    use crate::storage::SnapshotMeta;

    /// A log after entry 10 of term 1, given by the terms of its entries and its known commit.
    fn survey(terms: &[u64], committed: u64) -> Survey {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (index, term) in (11..).zip(terms) {
            if runs.last().is_none_or(|(_, last)| last != term) {
                runs.push((index, *term));
            }
        }
        let members = vec![Members::first((1..=3).filter_map(NodeId::new), [])];
        let last = 10 + terms.len() as u64;
        Survey { before: (10, 1), terms: runs, last, committed, wall: None, members }
    }

    fn chosen(surveys: &[Survey]) -> Result<usize, Clash> {
        newest(&surveys.iter().collect::<Vec<_>>())
    }

    #[test]
    fn p4_the_newest_log_is_taken_by_the_term_of_its_end_and_then_by_its_length() {
        assert_eq!(chosen(&[survey(&[1, 1, 1, 1], 11), survey(&[1, 1, 3], 12)]), Ok(1));
        assert_eq!(chosen(&[survey(&[1, 1, 3], 11), survey(&[1, 1, 3, 3], 11)]), Ok(1));
        assert_eq!(chosen(&[survey(&[1, 1], 12), survey(&[1, 1], 11)]), Ok(0), "of equals the first given");
    }

    /// The leader of term 3 committed entry 12, of term 1, along with an entry of its own that is not on this disk. The
    /// node that was alone in term 2 has a newer end, and could not have been elected by the lost nodes.
    #[test]
    fn p4_a_log_that_lacks_what_another_knows_to_be_committed_is_passed_over() {
        assert_eq!(chosen(&[survey(&[1, 1], 12), survey(&[1, 2], 11)]), Ok(0));
        assert_eq!(chosen(&[survey(&[1, 2, 2, 2], 11), survey(&[1, 1], 12)]), Ok(1));
        // A longer log does not help either.
        assert_eq!(chosen(&[survey(&[1], 10), survey(&[1, 1], 12), survey(&[2, 2, 2], 10)]), Ok(1));
    }

    /// The changes include a joint change, which a leader ends with an entry of its own.
    #[test]
    fn the_members_behind_the_known_commit_are_those_after_each_change() {
        let node = |id| NodeId::new(id).unwrap();
        let add = MemberChange::AddLearner {
            node: node(4),
            witness: false,
            node_addresses: NodeAddresses::UNKNOWN,
        };
        let replace = MemberChange::Replace { out: node(1), by: node(4) };
        let leave = ConfChangeV2::default().write_to_bytes().unwrap();
        let changes = [add, replace].map(|change| change.to_raft().write_to_bytes().unwrap());
        let entries: Vec<LogEntry> = (11..)
            .zip(changes.into_iter().chain([leave]))
            .map(|(index, data)| LogEntry { index, term: 1, kind: EntryKind::Membership, data: data.into() })
            .collect();
        let meta = SnapshotMeta { index: 10, term: 1, members: survey(&[], 10).members().clone() };
        let snapshot = SnapshotFile { meta, size: 0, checksum: 0 };
        let voters = |committed| {
            let found = memberships(&snapshot, &entries, committed).unwrap();
            let ids = |set: &BTreeSet<NodeId>| set.iter().map(|node| node.number()).collect::<Vec<_>>();
            found.iter().map(|members| (ids(&members.voters), ids(&members.outgoing))).collect::<Vec<_>>()
        };
        let (before, joint) = ((vec![1, 2, 3], vec![]), (vec![2, 3, 4], vec![1, 2, 3]));
        let after = (vec![2, 3, 4], vec![]);
        assert_eq!(voters(10), [before.clone(), before.clone(), joint.clone(), after.clone()]);
        assert_eq!(voters(11), [before, joint.clone(), after.clone()]);
        assert_eq!(voters(12), [joint, after.clone()]);
        assert_eq!(voters(13), [after]);
    }

    #[test]
    fn logs_that_know_different_entries_to_be_committed_are_of_two_histories() {
        let clash = Clash { index: 12, logs: (0, 1) };
        assert_eq!(chosen(&[survey(&[1, 1, 1], 13), survey(&[1, 2], 12)]), Err(clash));
    }

    #[test]
    fn p4_only_a_majority_of_every_set_of_members_has_all_that_was_acknowledged() {
        let nodes = |ids: &[u64]| ids.iter().filter_map(|id| NodeId::new(*id)).collect::<BTreeSet<_>>();
        let mut log = survey(&[1], 11);
        assert!(log.is_complete(&nodes(&[1, 3])) && !log.is_complete(&nodes(&[2])));
        assert!(!log.is_complete(&nodes(&[2, 4, 5])), "strangers do not count");
        // A change from three to five members after the known commit: it is unknown whether it took effect.
        let mut joint = Members::first((1..=5).filter_map(NodeId::new), []);
        joint.outgoing = nodes(&[1, 2, 3]);
        log.members.push(joint);
        assert!(!log.is_complete(&nodes(&[1, 2])) && !log.is_complete(&nodes(&[3, 4, 5])));
        assert!(log.is_complete(&nodes(&[1, 3, 5])));
    }
}
