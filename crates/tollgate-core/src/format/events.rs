//! Events as bytes, in snapshots and in the ring. Not here: the event's revision, which is written before it.

use super::{DecodeError, Reader, Writer};
use crate::event::{Change, ClaimState, LockChange, RegisterChange, RegisterState};
use crate::reply::EndReason;
use tollgate_types::{LeaseId, Metadata, Name, Owner, Reason, Revision, Value};

/// A [`LockChange`] with borrowed fields.
pub(crate) struct LockChanged<'a> {
    pub(crate) name: &'a Name,
    pub(crate) lease: LeaseId,
    pub(crate) owner: &'a Owner,
    pub(crate) metadata: &'a Metadata,
    pub(crate) create_revision: Revision,
    pub(crate) now: Option<ClaimState>,
    pub(crate) prev: Option<ClaimState>,
    pub(crate) end: Option<EndReason>,
    pub(crate) note: &'a Reason,
    pub(crate) value: Option<&'a Value>,
    pub(crate) vacant: bool,
}

const HAS_NOW: u8 = 1;
const HAS_PREV: u8 = 2;
const HAS_END: u8 = 4;
const VACANT: u8 = 8;
const REGISTER: u8 = 16;
const HAS_VALUE: u8 = 32;
const KNOWN: u8 = 63;

fn flag(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}

pub(crate) fn write_lock_changed(writer: &mut Writer<'_>, changed: &LockChanged<'_>) {
    let flags = flag(changed.now.is_some(), HAS_NOW)
        | flag(changed.prev.is_some(), HAS_PREV)
        | flag(changed.end.is_some(), HAS_END)
        | flag(changed.value.is_some(), HAS_VALUE)
        | flag(changed.vacant, VACANT);
    writer.u8(flags);
    writer.name(changed.name);
    writer.lease_id(changed.lease);
    writer.owner(changed.owner);
    // In the format of the state, which has no metadata that its format has no place for.
    writer.bytes(changed.metadata.as_bytes());
    writer.revision(changed.create_revision);
    for state in [&changed.now, &changed.prev].into_iter().flatten() {
        write_claim_state(writer, state);
    }
    if let Some(reason) = changed.end {
        writer.u8(reason_number(reason));
    }
    writer.reason(changed.note);
    if let Some(value) = changed.value {
        writer.value(value);
    }
}

pub(crate) fn write_register_change(writer: &mut Writer<'_>, change: &RegisterChange) {
    writer.u8(REGISTER | flag(change.now.is_some(), HAS_NOW) | flag(change.prev.is_some(), HAS_PREV));
    writer.key(&change.key);
    for state in [&change.now, &change.prev].into_iter().flatten() {
        write_register_state(writer, state);
    }
}

/// The fields of a change that decide which watches see it.
pub(crate) enum Watched<'a> {
    /// A claim on the lock with this name, and the claim's lease.
    Lock(&'a [u8], LeaseId),
    /// The register with this key.
    Register(&'a [u8]),
}

/// Reads only the fields of a change that decide which watches see it.
pub(crate) fn watched<'a>(reader: &mut Reader<'a>) -> Result<Watched<'a>, DecodeError> {
    let flags = reader.flags("kind of change", KNOWN)?;
    let left = reader.remaining();
    let name = reader.bytes("name", left)?;
    if flags & REGISTER != 0 {
        Ok(Watched::Register(name))
    } else {
        Ok(Watched::Lock(name, reader.lease_id()?))
    }
}

/// Reads an event in the format of the state that wrote it.
pub(crate) fn read_event(reader: &mut Reader<'_>, format: u8) -> Result<Change, DecodeError> {
    let at = reader.at();
    let flags = reader.flags("kind of change", KNOWN)?;
    let has = |flag: u8| flags & flag != 0;
    if has(REGISTER) {
        if has(HAS_END) || has(VACANT) || has(HAS_VALUE) {
            return Err(DecodeError::UnknownTag { what: "kind of change", tag: flags, at });
        }
        return Ok(Change::Register(RegisterChange {
            key: reader.key()?,
            now: has(HAS_NOW).then(|| read_register_state(reader)).transpose()?,
            prev: has(HAS_PREV).then(|| read_register_state(reader)).transpose()?,
        }));
    }
    Ok(Change::Lock(LockChange {
        name: reader.name()?,
        lease: reader.lease_id()?,
        owner: reader.owner()?,
        metadata: reader.metadata(format)?,
        create_revision: reader.revision()?,
        now: has(HAS_NOW).then(|| read_claim_state(reader)).transpose()?,
        prev: has(HAS_PREV).then(|| read_claim_state(reader)).transpose()?,
        end: has(HAS_END).then(|| reader.tag("end reason", reason_from)).transpose()?,
        note: reader.reason()?,
        value: has(HAS_VALUE).then(|| reader.value()).transpose()?,
        vacant: has(VACANT),
    }))
}

fn write_claim_state(writer: &mut Writer<'_>, state: &ClaimState) {
    writer.mode(state.mode);
    writer.token_option(state.token);
    writer.option(state.wants, Writer::mode);
    writer.revision(state.mod_revision);
    writer.varint(state.version);
}

fn read_claim_state(reader: &mut Reader<'_>) -> Result<ClaimState, DecodeError> {
    Ok(ClaimState {
        mode: reader.mode()?,
        token: reader.token_option()?,
        wants: reader.option("wants", Reader::mode)?,
        mod_revision: reader.revision()?,
        version: reader.varint()?,
    })
}

pub(super) fn write_register_state(writer: &mut Writer<'_>, state: &RegisterState) {
    writer.value(&state.value);
    writer.lease_id_option(state.lease);
    writer.revision(state.create_revision);
    writer.revision(state.mod_revision);
    writer.varint(state.version);
}

pub(super) fn read_register_state(reader: &mut Reader<'_>) -> Result<RegisterState, DecodeError> {
    Ok(RegisterState {
        value: reader.value()?,
        lease: reader.lease_id_option()?,
        create_revision: reader.revision()?,
        mod_revision: reader.revision()?,
        version: reader.varint()?,
    })
}

const REASONS: [EndReason; 9] = [
    EndReason::Released,
    EndReason::LeaseExpired,
    EndReason::LeaseRevoked,
    EndReason::Disconnected,
    EndReason::Forced,
    EndReason::MaxHold,
    EndReason::TimedOut,
    EndReason::Cancelled,
    EndReason::Deadlock,
];

pub(crate) fn reason_number(reason: EndReason) -> u8 {
    let at = REASONS.iter().position(|r| *r == reason).expect("every reason is in the table");
    u8::try_from(at).expect("eight reasons")
}

pub(crate) fn reason_from(number: u8) -> Option<EndReason> {
    REASONS.get(usize::from(number)).copied()
}
