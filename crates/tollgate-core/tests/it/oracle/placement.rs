//! Placement of slots: "Slots and groups" of the page.

use super::Oracle;
use tollgate_core::{CancelTarget, Command, KeySelector, LeaseChoice, Op, Rejection, Txn};
use tollgate_types::{GroupId, Name, Slot};

impl Oracle {
    /// The first slot that a command names and another group serves, as a refusal.
    pub(super) fn misplaced(&self, command: &Command) -> Option<Rejection> {
        let other = named_slots(command).into_iter().map(|slot| self.server_of(slot));
        let group = other.into_iter().find(|group| *group != self.group)?;
        Some(Rejection::WrongGroup { epoch: self.map.epoch(), group })
    }

    /// The one group whose range has the slot.
    fn server_of(&self, slot: Slot) -> GroupId {
        let serving: Vec<GroupId> = self
            .map
            .ranges()
            .filter(|range| (range.first..=range.last).contains(&slot))
            .map(|range| range.group)
            .collect();
        assert_eq!(serving.len(), 1, "a slot is served by exactly one group: {slot}");
        serving[0]
    }
}

/// The slots of all names, keys and lease ids in a command, in the order of the page.
fn named_slots(command: &Command) -> Vec<Slot> {
    let of = |names: &[Name]| names.iter().map(|name| Slot::of(name.as_bytes())).collect();
    match command {
        Command::GrantLease(grant) => match grant.id {
            LeaseChoice::Chosen(id) => vec![id.slot()],
            LeaseChoice::Assigned(slot) => vec![slot],
        },
        Command::AcquireLock(acquire) => of(acquire.names.as_slice()),
        Command::ReleaseLock(release) => of(release.names.as_slice()),
        Command::ConvertLock(convert) => of(convert.names.as_slice()),
        Command::ForceRelease(force) => of(std::slice::from_ref(&force.name)),
        Command::Proclaim(proclaim) => of(std::slice::from_ref(&proclaim.name)),
        Command::EndDeadlock(end) => of(std::slice::from_ref(&end.name)),
        Command::CancelWait(cancel) => match &cancel.target {
            CancelTarget::Seq(_) => Vec::new(),
            CancelTarget::Waiter { name, .. }
            | CancelTarget::Wait { name, .. }
            | CancelTarget::SeqOn { name, .. } => of(std::slice::from_ref(name)),
        },
        Command::Txn(txn) => slots_of_txn(txn),
        _ => Vec::new(),
    }
}

fn slots_of_txn(txn: &Txn) -> Vec<Slot> {
    let mut slots: Vec<Slot> = txn.compares.iter().map(|compare| compare.key.slot()).collect();
    for op in txn.then.iter().chain(&txn.otherwise) {
        match op {
            Op::Put { key, .. } => slots.push(key.slot()),
            Op::Get(query) => slots.extend(single(&query.keys)),
            Op::Delete(keys) => slots.extend(single(keys)),
        }
    }
    slots
}

fn single(keys: &KeySelector) -> Option<Slot> {
    match keys {
        KeySelector::Key(key) => Some(key.slot()),
        KeySelector::Prefix(_) | KeySelector::All => None,
    }
}
