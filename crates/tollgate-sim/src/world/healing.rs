//! The end of a run: all faults are over, and everything must make progress again.
//!
//! Within the time that the checker allows, every client gets an answer to everything it asked, every group is led and
//! has the members that the operator wants, and every replica has caught up. Then the groups are read once more,
//! linearizably, for the checker. Not here: the judgement (`tollgate-check`).

use super::operator::IDS_FROM;
use super::{Happening, PATROL_US, World};
use crate::front::seen_holder;
use crate::node::Input;
use crate::types::At;
use std::collections::BTreeMap;
use tollgate_check::{Event, FinalLock};
use tollgate_core::State;
use tollgate_replica::{ReadId, ReadReply};
use tollgate_types::GroupId;

/// Maximum time for the last reads, once everything is well.
const READS_US: At = 5_000_000;

/// Progress of the healing.
#[derive(Default)]
pub(super) struct Healing {
    pub(super) begun: bool,
    pub(super) ended: bool,
    /// Maximum time for the healing, and (`deadline`) the moment by which everything must be well.
    within_us: At,
    deadline: At,
    /// Last reads under way: by id, the group and the moment at which the read began.
    reads: BTreeMap<ReadId, (GroupId, At)>,
    read_ids: u64,
    /// Time since which the groups are read.
    reading_since: Option<At>,
    read: BTreeMap<GroupId, bool>,
}

impl Healing {
    pub(super) fn within(within_us: At) -> Healing {
        Healing { within_us, ..Healing::default() }
    }
}

impl World {
    pub(super) fn heal(&mut self) {
        self.say(|| "HEALED".to_owned());
        self.healing.begun = true;
        self.healing.deadline = self.now + self.healing.within_us;
        self.dismiss_learners();
        self.end_all_faults();
        self.record(Event::Healed);
        self.heal_clients();
        self.look_at_leaders();
    }

    pub(super) fn patrol(&mut self) {
        self.plan(self.now + PATROL_US, Happening::Patrol);
        self.look_at_leaders();
        self.look_at_waits();
        self.reconnect();
        if self.healing.begun {
            self.watch_healing();
        }
    }

    fn watch_healing(&mut self) {
        if let Some(since) = self.healing.reading_since {
            return self.watch_reads(since);
        }
        let trouble = self.trouble();
        // Leases of clients that are gone have expired by then; leases of other clients may stay.
        let expired_us = self.scenario.ttl_ms_max * 1_100 + 1_500_000;
        let waited = self.now + self.healing.within_us >= self.healing.deadline + expired_us;
        if trouble.is_empty() && (waited || self.leases_left() == 0) {
            self.healing.reading_since = Some(self.now);
            self.read_groups();
        } else if self.now >= self.healing.deadline {
            for says in trouble {
                self.violation(format!("not healed after {} s: {says}", self.healing.within_us / 1_000_000));
            }
            self.over = true;
        }
    }

    /// Returns descriptions of everything that is not well yet.
    fn trouble(&self) -> Vec<String> {
        let mut trouble = Vec::new();
        let busy = self.clients.busy();
        if !busy.is_empty() {
            trouble.push(format!("clients {busy:?} still wait for something"));
        }
        if !self.leadership.all_led() {
            trouble.push(format!("groups {:?} are not led", self.leadership.unled()));
        } else if !self.members_settled() {
            trouble.push("the members are not those that the operator wants".to_owned());
        }
        for node in self.present() {
            let leaving = node.process.as_ref().map_or(0, |process| process.front.leaving_count());
            if leaving > 0 {
                trouble.push(format!(
                    "{leaving} callers of n{} hung up and were told nothing",
                    node.id.number()
                ));
            }
        }
        for group in self.groups() {
            let Some((leader, status)) = self.leader_of(group) else { continue };
            for node in self.present().filter(|node| !node.witness && !node.disk_lost) {
                let applied = node.status(group).map_or(0, |status| status.applied);
                if status.members.contains(node.id) && applied < status.committed {
                    let number = node.id.number();
                    trouble.push(format!(
                        "n{number} has applied {applied} of group {group}, n{leader} committed {}",
                        status.committed
                    ));
                }
            }
        }
        trouble
    }

    fn leases_left(&self) -> u64 {
        let leases = |group| {
            let (leader, _) = self.leader_of(group)?;
            let state = self.nodes[&leader].process.as_ref()?.host.state(group)?;
            Some(state.lease_count())
        };
        self.groups().map(|group| leases(group).unwrap_or(1)).sum()
    }

    fn watch_reads(&mut self, since: At) {
        if self.healing.read.len() == self.scenario.groups as usize {
            self.compare_states();
            self.record(Event::End);
            self.healing.ended = true;
            self.over = true;
        } else if self.now > since + READS_US {
            self.violation("the last linearizable reads were not answered".to_owned());
            self.over = true;
        } else if self.healing.reads.is_empty() {
            self.read_groups();
        }
    }

    /// Asks a random node to read each group that has not been read.
    fn read_groups(&mut self) {
        for group in self.groups() {
            if self.healing.read.contains_key(&group) {
                continue;
            }
            let Some((_, status)) = self.leader_of(group) else { continue };
            let able: Vec<u64> = self
                .present()
                .filter(|node| node.is_lively(self.now) && !node.witness && status.members.contains(node.id))
                .map(|node| node.id.number())
                .collect();
            if able.is_empty() {
                continue;
            }
            let number = *self.rng.pick(&able);
            self.healing.read_ids += 1;
            let read = ReadId(IDS_FROM + self.healing.read_ids);
            self.healing.reads.insert(read, (group, self.now));
            self.give(number, Input::Read(group, read));
        }
    }

    pub(super) fn final_reads(&mut self, number: u64, reads: Vec<ReadReply>) {
        for reply in reads {
            let Some((group, asked)) = self.healing.reads.remove(&reply.read) else { continue };
            self.say(|| format!("n{number} last read of group {group}: {:?}", reply.result));
            let process = self.nodes[&number].process.as_ref();
            let state = process.and_then(|process| process.host.state(group));
            if let (Ok(()), Some(state)) = (&reply.result, state) {
                let event = final_state(group, asked, state);
                self.record(event);
                self.healing.read.insert(group, true);
            }
        }
    }

    /// Records the hashes of all states at the end of the run.
    fn compare_states(&mut self) {
        let mut events = Vec::new();
        for node in self.nodes.values() {
            let Some(process) = &node.process else { continue };
            for group in self.groups() {
                if let (Some(state), Some(status)) = (process.host.state(group), process.host.status(group)) {
                    state.assert_invariants();
                    let number = u32::try_from(node.id.number()).expect("few nodes");
                    let hash = state.snapshot().hash();
                    events.push(Event::Applied { node: number, group, index: status.applied, hash });
                }
            }
        }
        for event in events {
            self.record(event);
        }
    }
}

fn final_state(group: GroupId, asked: At, state: &State) -> Event {
    let snapshot = state.snapshot();
    let locks = snapshot
        .locks(b"", None, usize::MAX)
        .into_iter()
        .filter(|lock| !lock.holders.is_empty() || !lock.waiters.is_empty())
        .map(|lock| FinalLock {
            name: lock.name,
            holders: lock.holders.into_iter().map(seen_holder).collect(),
            waiters: lock.waiters.into_iter().map(|waiter| (waiter.lease, waiter.owner)).collect(),
        })
        .collect();
    let leases = snapshot.leases(None, usize::MAX).into_iter();
    Event::FinalState {
        group,
        asked: tollgate_check::At::from_us(asked),
        revision: state.revision(),
        locks,
        leases: leases
            .filter(|lease| lease.stub.is_none())
            .map(|lease| (lease.lease, lease.incarnation))
            .collect(),
    }
}
