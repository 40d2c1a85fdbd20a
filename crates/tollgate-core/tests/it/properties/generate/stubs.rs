//! Commands about leases over groups: leases of this group with stubs elsewhere, and stubs of other groups' leases.

use super::Generator;
use crate::oracle::Oracle;
use crate::properties::texts;
use tollgate_core::{
    AckLeaseEnd, AddStub, Command, ConfirmStub, EndStub, LeaseEnd, RegisterStub, StubView, UnackedEnd,
};
use tollgate_types::{GroupId, LeaseId, Revision};

/// Number of groups: few, so that they meet.
const GROUPS: u64 = 3;

impl Generator {
    pub(super) fn stub_command(&mut self, oracle: &Oracle) -> Command {
        let stubs = oracle.stubs();
        let pending: Vec<StubView> = stubs.iter().copied().filter(|stub| stub.pending).collect();
        // A stub that is never confirmed is of little use.
        if !pending.is_empty() && self.rng.percent(35) {
            return self.confirm_stub(&pending);
        }
        match self.rng.weighted(&[30, 6, 20, 30, 14]) {
            0 => self.add_stub(&stubs),
            1 => self.confirm_stub(&stubs),
            2 => self.end_stub(&stubs),
            3 => self.register_stub(oracle),
            _ => self.ack_lease_end(&oracle.unacked_ends()),
        }
    }

    fn group(&mut self) -> GroupId {
        GroupId::new(u32::try_from(self.rng.below(GROUPS)).expect("few"))
    }

    /// Mostly a lease that is only ever a stub.
    fn stub_lease(&mut self) -> LeaseId {
        if self.rng.percent(85) {
            *self.rng.pick(&texts::stub_lease_ids())
        } else {
            *self.rng.pick(&self.leases)
        }
    }

    fn incarnation(&mut self) -> Revision {
        Revision::new(self.rng.between(1, 3)).expect("small")
    }

    /// The given revision or, now and then, its neighbour.
    fn about(&mut self, number: Revision) -> Revision {
        match self.rng.weighted(&[85, 8, 7]) {
            0 => number,
            1 => number.next(),
            _ => Revision::new(number.get().saturating_sub(1)).expect("small"),
        }
    }

    fn add_stub(&mut self, stubs: &[StubView]) -> Command {
        let lease = self.stub_lease();
        let stands = stubs.iter().find(|stub| stub.lease == lease).map(|stub| stub.incarnation);
        let incarnation = match stands {
            Some(stands) if self.rng.percent(60) => self.about(stands),
            _ => self.incarnation(),
        };
        let client_id = self.rng.pick(&self.client_ids).clone();
        Command::AddStub(AddStub { lease, incarnation, client_id, home: self.group() })
    }

    fn confirm_stub(&mut self, stubs: &[StubView]) -> Command {
        let (lease, incarnation, added) = if stubs.is_empty() {
            (self.stub_lease(), self.incarnation(), self.incarnation())
        } else {
            let stub = *self.rng.pick(stubs);
            (stub.lease, self.about(stub.incarnation), self.about(stub.added))
        };
        Command::ConfirmStub(ConfirmStub { lease, incarnation, added })
    }

    fn end_stub(&mut self, stubs: &[StubView]) -> Command {
        let (lease, incarnation) = if stubs.is_empty() || self.rng.percent(10) {
            (self.stub_lease(), self.incarnation())
        } else {
            let stub = *self.rng.pick(stubs);
            (stub.lease, self.about(stub.incarnation))
        };
        let reason = *self.rng.pick(&[LeaseEnd::Expired, LeaseEnd::Revoked, LeaseEnd::Disconnected]);
        Command::EndStub(EndStub { lease, incarnation, reason })
    }

    fn register_stub(&mut self, oracle: &Oracle) -> Command {
        let lease = self.lease(oracle);
        let incarnation = match oracle.lease(lease) {
            Some(view) => self.about(view.incarnation),
            None => self.incarnation(),
        };
        Command::RegisterStub(RegisterStub { lease, incarnation, group: self.group() })
    }

    fn ack_lease_end(&mut self, ends: &[UnackedEnd]) -> Command {
        let (lease, incarnation, group) = if ends.is_empty() {
            (self.stub_lease(), self.incarnation(), self.group())
        } else {
            let end = *self.rng.pick(ends);
            let group = if self.rng.percent(80) { end.group } else { self.group() };
            (end.lease, self.about(end.incarnation), group)
        };
        Command::AckLeaseEnd(AckLeaseEnd { lease, incarnation, group })
    }
}
