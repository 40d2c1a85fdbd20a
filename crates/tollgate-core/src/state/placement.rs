//! Refuses commands for other groups: a group serves the slots that the group map gives to it (P14).
//!
//! Invariant: placement is checked before anything else is done with a command, so that a command for another group
//! leaves no trace here except that time passed. Not here: commands about a lease whose home is another group
//! (`leases`, `homes`): this group has a stub of such a lease, which names the home.

use super::State;
use crate::command::{CancelTarget, Command, GrantLease, LeaseChoice};
use crate::planted::Bug;
use crate::reply::Rejection;
use std::sync::Arc;
use tollgate_types::{GroupId, GroupMap, Key, Name, Slot};

/// The group's id, and the group map that says which slots are its own.
pub(super) struct Placement {
    group: GroupId,
    map: Arc<GroupMap>,
    /// True if the map has no other group: no name needs to be hashed.
    serves_all: bool,
}

impl Placement {
    pub(super) fn new(group: GroupId, map: Arc<GroupMap>) -> Placement {
        let serves_all = map.groups() == [group];
        Placement { group, map, serves_all }
    }

    pub(super) fn group(&self) -> GroupId {
        self.group
    }

    pub(super) fn map(&self) -> &Arc<GroupMap> {
        &self.map
    }

    /// Refuses slots that another group serves. The slots are not even computed if this group serves all.
    fn check(&self, mut slots: impl Iterator<Item = Slot>) -> Result<(), Rejection> {
        if self.serves_all {
            return Ok(());
        }
        let other = slots.find_map(|slot| Some(self.map.group_of(slot)).filter(|group| *group != self.group));
        let epoch = self.map.epoch();
        other.map_or(Ok(()), |group| Err(Rejection::WrongGroup { epoch, group }))
    }

    pub(super) fn check_names(&self, names: &[Name]) -> Result<(), Rejection> {
        self.check(names.iter().map(Name::slot))
    }
}

impl State {
    /// Returns the id of the group.
    pub fn group(&self) -> GroupId {
        self.placement.group()
    }

    /// Returns the group map.
    pub fn map(&self) -> &Arc<GroupMap> {
        self.placement.map()
    }

    /// Refuses a command with names, keys or lease ids that another group serves.
    #[inline]
    pub(super) fn check_placement(&self, command: &Command) -> Result<(), Rejection> {
        if self.placement.serves_all || self.planted(Bug::WrongGroupServed) {
            return Ok(());
        }
        self.check_slots(command)
    }

    /// P14: no lock, register or lease is here that another group serves.
    pub(super) fn check_placed(&self) -> Result<(), String> {
        let placement = &self.placement;
        let elsewhere = |what: &dyn std::fmt::Display, why: Rejection| format!("{what} is here, but {why}");
        for (_, lock) in self.locks.iter() {
            let placed = placement.check_names(std::slice::from_ref(&lock.name));
            placed.map_err(|why| elsewhere(&lock.name, why))?;
        }
        for key in self.keys.keys() {
            placement.check(std::iter::once_with(|| key.slot())).map_err(|why| elsewhere(key, why))?;
        }
        for (_, lease) in self.leases.iter().filter(|(_, lease)| lease.stub().is_none()) {
            let placed = placement.check(std::iter::once_with(|| lease.id.slot()));
            placed.map_err(|why| elsewhere(&lease.id, why))?;
        }
        Ok(())
    }

    fn check_slots(&self, command: &Command) -> Result<(), Rejection> {
        let placement = &self.placement;
        let one = |name: &Name| placement.check_names(std::slice::from_ref(name));
        match command {
            Command::GrantLease(GrantLease { id: LeaseChoice::Chosen(id), .. }) => {
                placement.check(std::iter::once(id.slot()))
            }
            Command::GrantLease(GrantLease { id: LeaseChoice::Assigned(slot), .. }) => {
                placement.check(std::iter::once(*slot))
            }
            Command::AcquireLock(acquire) if self.planted(Bug::PlacedByFirstName) => {
                placement.check_names(&acquire.names.as_slice()[..1])
            }
            Command::AcquireLock(acquire) => placement.check_names(acquire.names.as_slice()),
            Command::ReleaseLock(release) => placement.check_names(release.names.as_slice()),
            Command::ConvertLock(convert) => placement.check_names(convert.names.as_slice()),
            Command::CancelWait(cancel) => match &cancel.target {
                CancelTarget::Waiter { name, .. }
                | CancelTarget::Wait { name, .. }
                | CancelTarget::SeqOn { name, .. } => one(name),
                CancelTarget::Seq(_) => Ok(()),
            },
            Command::ForceRelease(force) => one(&force.name),
            Command::Proclaim(proclaim) => one(&proclaim.name),
            Command::EndDeadlock(end) => one(&end.name),
            Command::Txn(txn) => placement.check(txn.single_keys().map(Key::slot)),
            Command::Tick
            | Command::RenewLeases(_)
            | Command::RevokeLease(_)
            | Command::SetLimits(_)
            | Command::RaiseApplyVersion(_)
            | Command::AddStub(_)
            | Command::ConfirmStub(_)
            | Command::EndStub(_)
            | Command::RegisterStub(_)
            | Command::AckLeaseEnd(_)
            | Command::SetLineage(_) => Ok(()),
        }
    }
}
