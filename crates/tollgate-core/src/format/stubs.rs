//! Messages between a lease's home and the groups with stubs of the lease, as bytes: the fields of the commands, and
//! the records of a snapshot.

use super::events::{reason_from, reason_number};
use super::record::Tag;
use super::{DecodeError, Reader, Writer};
use crate::command::{AckLeaseEnd, AddStub, ConfirmStub, EndStub, RegisterStub};
use crate::lease::{Lease, Residence, Stub, Unacked};
use crate::reply::{EndReason, LeaseEnd};
use crate::requests::Requests;
use crate::state::STUB_GROUPS_MAX;
use tollgate_types::{Address, DurationMs, GroupId, Invalid, LogTime};

impl Writer<'_> {
    pub(super) fn add_stub(&mut self, add: &AddStub) {
        let AddStub { lease, incarnation, client_id, home } = add;
        self.lease_id(*lease);
        self.revision(*incarnation);
        self.client_id(client_id);
        self.group_id(*home);
    }

    pub(super) fn confirm_stub(&mut self, confirm: ConfirmStub) {
        let ConfirmStub { lease, incarnation, added } = confirm;
        self.lease_id(lease);
        self.revision(incarnation);
        self.revision(added);
    }

    pub(super) fn end_stub(&mut self, end: EndStub) {
        let EndStub { lease, incarnation, reason } = end;
        self.lease_id(lease);
        self.revision(incarnation);
        self.lease_end(reason);
    }

    pub(super) fn register_stub(&mut self, register: RegisterStub) {
        let RegisterStub { lease, incarnation, group } = register;
        self.lease_id(lease);
        self.revision(incarnation);
        self.group_id(group);
    }

    pub(super) fn ack_lease_end(&mut self, ack: AckLeaseEnd) {
        let AckLeaseEnd { lease, incarnation, group } = ack;
        self.lease_id(lease);
        self.revision(incarnation);
        self.group_id(group);
    }

    fn lease_end(&mut self, end: LeaseEnd) {
        self.u8(reason_number(end.into()));
    }

    fn groups(&mut self, groups: &[GroupId]) {
        self.list("groups", STUB_GROUPS_MAX, groups, |writer, group| writer.group_id(*group));
    }
}

impl Reader<'_> {
    pub(super) fn add_stub(&mut self) -> Result<AddStub, DecodeError> {
        Ok(AddStub {
            lease: self.lease_id()?,
            incarnation: self.revision()?,
            client_id: self.client_id()?,
            home: self.group_id()?,
        })
    }

    pub(super) fn confirm_stub(&mut self) -> Result<ConfirmStub, DecodeError> {
        Ok(ConfirmStub { lease: self.lease_id()?, incarnation: self.revision()?, added: self.revision()? })
    }

    pub(super) fn end_stub(&mut self) -> Result<EndStub, DecodeError> {
        Ok(EndStub { lease: self.lease_id()?, incarnation: self.revision()?, reason: self.lease_end()? })
    }

    pub(super) fn register_stub(&mut self) -> Result<RegisterStub, DecodeError> {
        Ok(RegisterStub { lease: self.lease_id()?, incarnation: self.revision()?, group: self.group_id()? })
    }

    pub(super) fn ack_lease_end(&mut self) -> Result<AckLeaseEnd, DecodeError> {
        Ok(AckLeaseEnd { lease: self.lease_id()?, incarnation: self.revision()?, group: self.group_id()? })
    }

    fn lease_end(&mut self) -> Result<LeaseEnd, DecodeError> {
        self.tag("end of a lease", |number| reason_from(number).and_then(LeaseEnd::from_reason))
    }
}

/// Writes a stub without its requests. The lease's terms are not written, because only the home has them.
pub(super) fn write_stub(writer: &mut Writer<'_>, lease: &Lease, stub: Stub) {
    let Stub { home, incarnation, pending } = stub;
    writer.u8(Tag::Stub as u8);
    writer.lease_id(lease.id);
    writer.revision(lease.incarnation);
    writer.revision(incarnation);
    writer.group_id(home);
    writer.bool(pending);
    let ended = (lease.deadline != LogTime::NEVER).then_some((lease.deadline, lease.end_reason));
    writer.option(ended, |writer, (at, reason)| {
        writer.log_time(at);
        writer.u8(reason_number(reason));
    });
    writer.client_id(&lease.client_id);
    writer.log_time(lease.last_seen);
}

pub(super) fn read_stub(reader: &mut Reader<'_>) -> Result<Lease, DecodeError> {
    let (id, added, incarnation) = (reader.lease_id()?, reader.revision()?, reader.revision()?);
    let stub = Stub { incarnation, home: reader.group_id()?, pending: reader.bool("pending")? };
    let ended = reader.option("end of a stub", |r| Ok((read_end_time(r)?, r.lease_end()?)))?;
    let (deadline, reason) = ended.unwrap_or((LogTime::NEVER, LeaseEnd::Expired));
    Ok(Lease {
        id,
        incarnation: added,
        ttl: DurationMs::ZERO,
        deadline,
        end_reason: EndReason::from(reason),
        client_id: reader.client_id()?,
        address: Address::NONE,
        last_seen: reader.log_time()?,
        revoke_on_disconnect: false,
        requests: Requests::default(),
        seqs_from: 0,
        residence: Residence::Elsewhere(stub),
        oldest: None,
        youngest: None,
        claims: 0,
        counted: false,
    })
}

/// Reads the log time at which a stub ended. It can't be never, which marks a stub that has not ended.
fn read_end_time(reader: &mut Reader<'_>) -> Result<LogTime, DecodeError> {
    let at = reader.at();
    let (time, max) = (reader.log_time()?, LogTime::NEVER.ms() - 1);
    let late = Invalid::OutOfRange { what: "end of a stub", value: time.ms(), min: 0, max };
    if time.ms() > max { Err(DecodeError::Invalid { at, source: late }) } else { Ok(time) }
}

pub(super) fn write_groups(writer: &mut Writer<'_>, lease: &Lease) {
    writer.u8(Tag::Groups as u8);
    writer.revision(lease.incarnation);
    writer.groups(lease.groups());
}

/// Reads at least one group, in order.
pub(super) fn read_groups(reader: &mut Reader<'_>) -> Result<Vec<GroupId>, DecodeError> {
    let at = reader.at();
    let groups = reader.list("groups", STUB_GROUPS_MAX, 1, Reader::group_id)?;
    if let Some(pair) = groups.windows(2).find(|pair| pair[0] >= pair[1]) {
        let (value, min) = (u64::from(pair[1].number()), u64::from(pair[0].number()) + 1);
        let source = Invalid::OutOfRange { what: "group after another", value, min, max: u32::MAX.into() };
        return Err(DecodeError::Invalid { at, source });
    }
    if groups.is_empty() {
        let (min, max) = (1, STUB_GROUPS_MAX as u64);
        let source = Invalid::OutOfRange { what: "number of groups", value: 0, min, max };
        return Err(DecodeError::Invalid { at, source });
    }
    Ok(groups)
}

pub(super) fn write_unacked(writer: &mut Writer<'_>, unacked: &Unacked) {
    let Unacked { lease, incarnation, reason, groups } = unacked;
    writer.u8(Tag::Unacked as u8);
    writer.lease_id(*lease);
    writer.revision(*incarnation);
    writer.lease_end(*reason);
    writer.groups(groups);
}

pub(super) fn read_unacked(reader: &mut Reader<'_>) -> Result<Unacked, DecodeError> {
    Ok(Unacked {
        lease: reader.lease_id()?,
        incarnation: reader.revision()?,
        reason: reader.lease_end()?,
        groups: read_groups(reader)?.into(),
    })
}
