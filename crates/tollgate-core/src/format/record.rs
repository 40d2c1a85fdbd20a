//! Records of a snapshot as bytes.

use super::events::{read_event, read_register_state, reason_from, reason_number, write_register_state};
use super::snapshot::{Header, Snapshot, write_header};
use super::{DecodeError, FORMAT_1, Reader, TXN_STEPS_MAX, Writer, stubs};
use crate::claim::{Claim, Extras, Locks, Said, Upgrade};
use crate::event::{Change, RegisterState};
use crate::fingerprint::{Fingerprint, Slots, Subject};
use crate::lease::{Lease, Residence, Unacked};
use crate::lock::Closure;
use crate::planted::Bug;
use crate::register::Register;
use crate::reply::RejectionCode;
use crate::requests::{Kept, KeptFor, Outcome, Part, Requests};
use crate::state::Restore;
use tollgate_types::{GroupId, Key, LogTime, Name, Revision, Seq};

/// Most seqs that the limits can leave on one claim or in one lease: those in flight, and those that waited.
const SEQS_MAX: usize = 2 * 65_536 + 64;

/// Most slots that one request can be about: each compare and step of a transaction names one.
const SLOTS_MAX: usize = 3 * TXN_STEPS_MAX;

/// Flag in the tag of a kept outcome or part: the request had to wait.
const WAITED: u8 = 0x80;

/// Bound of an event's size: a register's value before and after.
const EVENT_BYTES_MAX: usize = 256 * 1024;

/// Kind of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Tag {
    Header = 1,
    Lease = 2,
    Claim = 3,
    Closure = 4,
    Register = 5,
    Dirty = 6,
    Event = 7,
    End = 8,
    /// A lease that lives in another group. Its place is among the leases, which are in the order of their creation.
    Stub = 9,
    /// The groups with stubs of a lease.
    Groups = 10,
    /// The groups that must be told of a lease's end.
    Unacked = 11,
    /// Log time until which nothing is granted, after a restore from a backup.
    Closed = 12,
}

/// Sections in their order: a record comes after those that it refers to.
const SECTIONS: [&[Tag]; 11] = [
    &[Tag::Header],
    &[Tag::Closed],
    &[Tag::Lease, Tag::Stub],
    &[Tag::Groups],
    &[Tag::Unacked],
    &[Tag::Claim],
    &[Tag::Closure],
    &[Tag::Register],
    &[Tag::Dirty],
    &[Tag::Event],
    &[Tag::End],
];

impl Tag {
    pub(super) fn from_number(number: u8) -> Option<Tag> {
        SECTIONS.into_iter().flatten().copied().find(|tag| *tag as u8 == number)
    }

    fn section(self) -> usize {
        SECTIONS.iter().position(|tags| tags.contains(&self)).expect("every tag has its section")
    }
}

/// A record to be written.
#[allow(clippy::large_enum_variant, reason = "one at a time, on the stack")]
pub(super) enum Record<'a> {
    Header(&'a Header),
    Closed(LogTime),
    Lease(&'a Lease),
    Groups(&'a Lease),
    Unacked(&'a Unacked),
    Claim(&'a Claim),
    Closure(&'a Closure),
    Register(&'a Register),
    Dirty(&'a Name),
    /// The event's revision, and its change, already encoded.
    Event((Revision, &'a [u8])),
}

/// Place of a record in the canonical order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    section: usize,
    number: Revision,
    key: Vec<u8>,
}

impl Place {
    pub(super) fn header() -> Place {
        Place { section: Tag::Header.section(), number: Revision::ZERO, key: Vec::new() }
    }

    /// True if `next` may follow: places ascend, and only events may share a place, those of one revision.
    pub(super) fn may_precede(&self, next: &Place) -> bool {
        self < next || (self == next && self.section == Tag::Event.section())
    }
}

pub(super) fn encode(snapshot: &Snapshot, record: &Record<'_>, out: &mut Vec<u8>) {
    let mut writer = Writer::new(out);
    match record {
        Record::Header(header) => {
            writer.u8(Tag::Header as u8);
            write_header(header, !snapshot.planted(Bug::LineageLostInSnapshot), out);
        }
        Record::Closed(until) => {
            writer.u8(Tag::Closed as u8);
            writer.log_time(*until);
        }
        Record::Lease(lease) => {
            match lease.stub() {
                None => write_lease(&mut writer, lease),
                Some(stub) => stubs::write_stub(&mut writer, lease, stub),
            }
            write_requests(&mut writer, lease, snapshot);
        }
        Record::Groups(lease) => stubs::write_groups(&mut writer, lease),
        Record::Unacked(unacked) => stubs::write_unacked(&mut writer, unacked),
        Record::Claim(claim) => {
            writer.u8(Tag::Claim as u8);
            let lease = snapshot.leases.get(claim.lease);
            writer.revision(lease.incarnation);
            write_claim(&mut writer, claim, &lease.requests, snapshot);
        }
        Record::Closure(closure) => {
            writer.u8(Tag::Closure as u8);
            writer.name(&closure.name);
            writer.log_time(closure.until);
        }
        Record::Register(register) => {
            writer.u8(Tag::Register as u8);
            writer.key(&register.key);
            writer.option(register.lease, |w, lease| w.revision(snapshot.leases.get(lease).incarnation));
            write_register_state(&mut writer, &register.state);
        }
        Record::Dirty(name) => {
            writer.u8(Tag::Dirty as u8);
            writer.name(name);
        }
        Record::Event((revision, change)) => {
            writer.u8(Tag::Event as u8);
            writer.revision(*revision);
            writer.bytes(change);
        }
    }
}

/// Outcome that a lease keeps for a request without a claim, the content of the request, and true if the request had to
/// wait.
pub(crate) type KeptOutcome = (Seq, Outcome, Subject, bool);

/// Content of a request that a claim answers, and true if the request had to wait.
pub(crate) type SeqOnClaim = (Seq, Subject, bool);

/// A record that was read.
#[allow(clippy::large_enum_variant, reason = "one at a time, on the stack")]
pub(super) enum Parsed {
    Closed(LogTime),
    Lease { lease: Lease, kept: Vec<KeptOutcome> },
    Groups { incarnation: Revision, groups: Vec<GroupId> },
    Unacked(Unacked),
    Claim { incarnation: Revision, claim: ClaimParts, seqs: Vec<SeqOnClaim> },
    Closure { name: Name, until: LogTime },
    Register { key: Key, lease: Option<Revision>, state: RegisterState },
    Dirty(Name),
    Event { revision: Revision, change: Change },
}

impl Parsed {
    pub(super) fn place(&self) -> Place {
        let (tag, number, key) = match self {
            Parsed::Closed(_) => (Tag::Closed, Revision::ZERO, Vec::new()),
            Parsed::Lease { lease, .. } => (Tag::Lease, lease.incarnation, Vec::new()),
            Parsed::Groups { incarnation, .. } => (Tag::Groups, *incarnation, Vec::new()),
            Parsed::Unacked(unacked) => {
                (Tag::Unacked, unacked.incarnation, unacked.lease.get().to_be_bytes().to_vec())
            }
            Parsed::Claim { claim, .. } => (Tag::Claim, claim.create_revision, Vec::new()),
            Parsed::Closure { name, .. } => (Tag::Closure, Revision::ZERO, name.as_bytes().to_vec()),
            Parsed::Register { key, .. } => (Tag::Register, Revision::ZERO, key.as_bytes().to_vec()),
            Parsed::Dirty(name) => (Tag::Dirty, Revision::ZERO, name.as_bytes().to_vec()),
            Parsed::Event { revision, .. } => (Tag::Event, *revision, Vec::new()),
        };
        Place { section: tag.section(), number, key }
    }

    pub(super) fn restore(self, restore: &mut Restore) -> Result<(), String> {
        match self {
            Parsed::Closed(until) => restore.closed(until),
            Parsed::Lease { lease, kept } => restore.lease(lease, kept),
            Parsed::Groups { incarnation, groups } => restore.groups(incarnation, groups),
            Parsed::Unacked(unacked) => restore.unacked(unacked),
            Parsed::Claim { incarnation, claim, seqs } => restore.claim(incarnation, claim, seqs),
            Parsed::Closure { name, until } => restore.closure(&name, until),
            Parsed::Register { key, lease, state } => restore.register(key, state, lease),
            Parsed::Dirty(name) => restore.dirty(name),
            Parsed::Event { revision, change } => restore.event(revision, &change),
        }
    }
}

pub(super) fn parse(tag: Tag, reader: &mut Reader<'_>, format: u8) -> Result<Parsed, DecodeError> {
    Ok(match tag {
        Tag::Closed => Parsed::Closed(reader.log_time()?),
        Tag::Lease => read_requests(reader, format, |reader| read_lease(reader, format))?,
        Tag::Stub => read_requests(reader, format, stubs::read_stub)?,
        Tag::Groups => {
            Parsed::Groups { incarnation: reader.revision()?, groups: stubs::read_groups(reader)? }
        }
        Tag::Unacked => Parsed::Unacked(stubs::read_unacked(reader)?),
        Tag::Claim => {
            let incarnation = reader.revision()?;
            let (claim, seqs) = read_claim(reader, format)?;
            Parsed::Claim { incarnation, claim, seqs }
        }
        Tag::Closure => Parsed::Closure { name: reader.name()?, until: reader.log_time()? },
        Tag::Register => Parsed::Register {
            key: reader.key()?,
            lease: reader.option("lease", Reader::revision)?,
            state: read_register_state(reader)?,
        },
        Tag::Dirty => Parsed::Dirty(reader.name()?),
        Tag::Event => {
            let revision = reader.revision()?;
            let mut body = Reader::new(reader.bytes("event", EVENT_BYTES_MAX)?);
            let change = read_event(&mut body, format)?;
            body.finish()?;
            Parsed::Event { revision, change }
        }
        Tag::Header | Tag::End => unreachable!("the caller deals with both"),
    })
}

/// Reads the hash in the last record.
pub(super) fn end(reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
    reader.fixed_u64()
}

fn write_lease(writer: &mut Writer<'_>, lease: &Lease) {
    writer.u8(Tag::Lease as u8);
    writer.lease_id(lease.id);
    writer.revision(lease.incarnation);
    writer.duration(lease.ttl);
    writer.log_time(lease.deadline);
    writer.u8(reason_number(lease.end_reason));
    writer.client_id(&lease.client_id);
    writer.address(&lease.address);
    writer.log_time(lease.last_seen);
    writer.bool(lease.revoke_on_disconnect);
}

/// Writes the requests of a lease or stub, except those that its claims carry.
fn write_requests(writer: &mut Writer<'_>, lease: &Lease, snapshot: &Snapshot) {
    if snapshot.format() > FORMAT_1 && lease.stub().is_none() {
        writer.varint(lease.seqs_from);
    }
    writer.seq_ranges_unbounded(lease.requests.seen());
    let with_kept = !snapshot.planted(Bug::OutcomesLostInSnapshot);
    let outcomes = lease.requests.kept().iter().filter_map(|kept| match kept.kept {
        Kept::Outcome(outcome) if with_kept => Some((kept, outcome)),
        _ => None,
    });
    let outcomes: Vec<(&KeptFor, Outcome)> = outcomes.collect();
    writer.list("kept outcomes", SEQS_MAX, &outcomes, |w, (kept, outcome)| {
        w.seq(kept.seq);
        write_outcome(w, outcome, if kept.waited { WAITED } else { 0 });
        write_subject(w, &kept.subject, snapshot);
    });
}

/// Writes the content of a request, from format 2 on: the fingerprint, 0 for none; then the slots.
fn write_subject(writer: &mut Writer<'_>, subject: &Subject, snapshot: &Snapshot) {
    if snapshot.format() == FORMAT_1 {
        return;
    }
    let fingerprint = subject.fingerprint.filter(|_| !snapshot.planted(Bug::FingerprintsLostInSnapshot));
    writer.fixed_u64(fingerprint.map_or(0, Fingerprint::number));
    writer.list("slots", SLOTS_MAX, subject.slots.as_slice(), |w, slot| w.slot(*slot));
}

fn read_subject(reader: &mut Reader<'_>, format: u8) -> Result<Subject, DecodeError> {
    if format == FORMAT_1 {
        return Ok(Subject::UNKNOWN);
    }
    let fingerprint = Fingerprint::from_number(reader.fixed_u64()?);
    let mut last = None;
    let slots = reader.list("slots", SLOTS_MAX, 1, |reader| {
        let at = reader.at();
        let slot = reader.slot()?;
        if last.replace(slot).is_some_and(|last| last >= slot) {
            return Err(DecodeError::Unsorted { what: "slots", at });
        }
        Ok(slot)
    })?;
    Ok(Subject { fingerprint, slots: Slots::new(slots) })
}

fn read_lease(reader: &mut Reader<'_>, format: u8) -> Result<Lease, DecodeError> {
    Ok(Lease {
        id: reader.lease_id()?,
        incarnation: reader.revision()?,
        ttl: reader.duration()?,
        deadline: reader.log_time()?,
        end_reason: reader.tag("end reason", reason_from)?,
        client_id: reader.client_id()?,
        address: reader.address()?,
        last_seen: reader.log_time()?,
        revoke_on_disconnect: reader.bool("revoke on disconnect")?,
        requests: Requests::default(),
        seqs_from: if format > FORMAT_1 { read_seqs_from(reader)? } else { 0 },
        residence: Residence::Here,
        oldest: None,
        youngest: None,
        claims: 0,
        counted: false,
    })
}

/// Reads 0 or a seq.
fn read_seqs_from(reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let at = reader.at();
    let from = reader.varint()?;
    if from > 0 {
        Reader::valid(at, Seq::new(from))?;
    }
    Ok(from)
}

fn read_requests(
    reader: &mut Reader<'_>,
    format: u8,
    read: impl FnOnce(&mut Reader<'_>) -> Result<Lease, DecodeError>,
) -> Result<Parsed, DecodeError> {
    let mut lease = read(reader)?;
    lease.requests = Requests::from_parts(reader.seq_ranges_unbounded()?);
    let read = |r: &mut Reader<'_>| {
        let seq = r.seq()?;
        let (outcome, waited) = read_outcome(r)?;
        Ok((seq, outcome, read_subject(r, format)?, waited))
    };
    let kept = reader.list("kept outcomes", SEQS_MAX, 2, read)?;
    Ok(Parsed::Lease { lease, kept })
}

/// Writes an outcome; `waited` is the flag of a request that had to wait, or 0.
fn write_outcome(writer: &mut Writer<'_>, outcome: &Outcome, waited: u8) {
    match outcome {
        Outcome::Acquired { token, create_revision, mode } => {
            writer.u8(waited | 1);
            writer.token(*token);
            writer.revision(*create_revision);
            writer.mode(*mode);
        }
        Outcome::Busy => writer.u8(waited | 2),
        Outcome::Released { revision } => {
            writer.u8(waited | 3);
            writer.revision(*revision);
        }
        Outcome::Ended { token, reason } => {
            writer.u8(waited | 4);
            writer.token_option(*token);
            writer.u8(reason_number(*reason));
        }
        Outcome::TxnDone { succeeded, revision } => {
            writer.u8(waited | 5);
            writer.bool(*succeeded);
            writer.revision(*revision);
        }
        Outcome::Proclaimed { revision } => {
            writer.u8(waited | 7);
            writer.revision(*revision);
        }
        Outcome::Rejected(code) => {
            writer.u8(waited | 6);
            writer.u8(*code as u8);
        }
    }
}

fn read_outcome(reader: &mut Reader<'_>) -> Result<(Outcome, bool), DecodeError> {
    let at = reader.at();
    let tag = reader.u8()?;
    let outcome = match tag & !WAITED {
        1 => Outcome::Acquired {
            token: reader.token()?,
            create_revision: reader.revision()?,
            mode: reader.mode()?,
        },
        2 => Outcome::Busy,
        3 => Outcome::Released { revision: reader.revision()? },
        4 => Outcome::Ended { token: reader.token_option()?, reason: reader.tag("end reason", reason_from)? },
        5 => Outcome::TxnDone { succeeded: reader.bool("succeeded")?, revision: reader.revision()? },
        6 => Outcome::Rejected(reader.tag("rejection", RejectionCode::from_number)?),
        7 => Outcome::Proclaimed { revision: reader.revision()? },
        _ => return Err(DecodeError::UnknownTag { what: "outcome", tag, at }),
    };
    Ok((outcome, tag & WAITED != 0))
}

/// A claim as it was read, without the links to other records that only a state can give it.
pub(crate) type ClaimParts = Box<Claim>;

/// Flags of a claim and of its upgrade, for the callers that asked for it.
const ANONYMOUS: u8 = 1;
const ATTENDED: u8 = 1 << 1;
/// Flag of a claim that was asked for more than once: the number of requests follows.
const ASKED_AGAIN: u8 = 1 << 2;
/// Flag of a claim with a value: the value follows, and the revision that set it.
const SAYS: u8 = 1 << 3;

fn flag(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}

fn write_claim(writer: &mut Writer<'_>, claim: &Claim, requests: &Requests, snapshot: &Snapshot) {
    let with_value = !snapshot.planted(Bug::ValuesLostInSnapshot);
    let subject = |seq| requests.subject(seq).expect("a lease keeps what its claims answer");
    writer.lease_id(claim.lease_id);
    writer.names(&claim.names);
    writer.owner(&claim.owner);
    writer.metadata(&claim.metadata, snapshot.format());
    writer.mode(claim.mode);
    writer.token_option(claim.token);
    writer.revision(claim.create_revision);
    writer.revision(claim.mod_revision);
    writer.varint(claim.version);
    writer.log_time(claim.since);
    writer.log_time(claim.until);
    writer.duration(claim.max_hold());
    writer.duration(claim.lock_delay());
    writer.list("seqs", SEQS_MAX, &claim.seqs, |w, (seq, part)| {
        w.seq(*seq);
        let waited = if requests.has_waited(*seq) { WAITED } else { 0 };
        w.u8(waited | u8::from(*part == Part::Convert));
        write_subject(w, subject(*seq), snapshot);
    });
    let (again, said) = (claim.asks != 1, claim.said().filter(|_| with_value));
    writer.u8(flag(claim.anonymous, ANONYMOUS)
        | flag(claim.attended, ATTENDED)
        | flag(again, ASKED_AGAIN)
        | flag(said.is_some(), SAYS));
    if again {
        writer.varint(u64::from(claim.asks));
    }
    if let Some(said) = said {
        writer.value(&said.value);
        writer.revision(said.revision);
    }
    writer.option(claim.upgrade.as_ref(), |w, upgrade| {
        w.mode(upgrade.mode);
        w.revision(upgrade.queued_at);
        w.log_time(upgrade.since);
        w.log_time(upgrade.wait_until);
        w.list("seqs", SEQS_MAX, &upgrade.seqs, |w, seq| {
            w.seq(*seq);
            write_subject(w, subject(*seq), snapshot);
        });
        w.u8(flag(upgrade.anonymous, ANONYMOUS) | flag(upgrade.attended, ATTENDED));
    });
}

/// Reads a claim and the requests on it, those of its upgrade last.
fn read_claim(reader: &mut Reader<'_>, format: u8) -> Result<(ClaimParts, Vec<SeqOnClaim>), DecodeError> {
    let mut seqs = Vec::new();
    let mut claim = Claim {
        lease_id: reader.lease_id()?,
        names: reader.names()?,
        owner: reader.owner()?,
        metadata: reader.metadata(format)?,
        mode: reader.mode()?,
        token: reader.token_option()?,
        create_revision: reader.revision()?,
        mod_revision: reader.revision()?,
        version: reader.varint()?,
        since: reader.log_time()?,
        until: reader.log_time()?,
        extras: Extras { max_hold: reader.duration()?, lock_delay: reader.duration()?, said: None }.packed(),
        seqs: reader.list("seqs", SEQS_MAX, 2, |r| read_part(r, format, &mut seqs))?.into(),
        anonymous: false,
        attended: false,
        asks: 1,
        upgrade: None,
        locks: Locks::new(Vec::new()),
        lease: crate::slab::Id::UNSET,
        older: None,
        younger: None,
    };
    let flags = reader.flags("flags of a claim", ANONYMOUS | ATTENDED | ASKED_AGAIN | SAYS)?;
    (claim.anonymous, claim.attended) = (flags & ANONYMOUS != 0, flags & ATTENDED != 0);
    if flags & ASKED_AGAIN != 0 {
        let (what, at) = ("asks of a claim", reader.at());
        claim.asks = reader.u32(what)?;
        if claim.asks < 2 {
            return Err(DecodeError::UnknownTag { what, tag: claim.asks.to_le_bytes()[0], at });
        }
    }
    if flags & SAYS != 0 {
        let said = Said { value: reader.value()?, revision: reader.revision()? };
        claim.extras.get_or_insert_default().said = Some(said);
    }
    claim.upgrade = reader.option("upgrade", |r| read_upgrade(r, format, &mut seqs))?.map(Box::new);
    Ok((Box::new(claim), seqs))
}

fn read_part(
    reader: &mut Reader<'_>,
    format: u8,
    seqs: &mut Vec<SeqOnClaim>,
) -> Result<(Seq, Part), DecodeError> {
    let (seq, at) = (reader.seq()?, reader.at());
    let tag = reader.u8()?;
    let part = match tag & !WAITED {
        0 => Part::Acquire,
        1 => Part::Convert,
        _ => return Err(DecodeError::UnknownTag { what: "part", tag, at }),
    };
    seqs.push((seq, read_subject(reader, format)?, tag & WAITED != 0));
    Ok((seq, part))
}

fn read_upgrade(
    reader: &mut Reader<'_>,
    format: u8,
    seqs: &mut Vec<SeqOnClaim>,
) -> Result<Upgrade, DecodeError> {
    let read_seq = |reader: &mut Reader<'_>| {
        let seq = reader.seq()?;
        seqs.push((seq, read_subject(reader, format)?, true));
        Ok(seq)
    };
    let mut upgrade = Upgrade {
        mode: reader.mode()?,
        queued_at: reader.revision()?,
        since: reader.log_time()?,
        wait_until: reader.log_time()?,
        seqs: reader.list("seqs", SEQS_MAX, 1, read_seq)?.into(),
        anonymous: false,
        attended: false,
    };
    let flags = reader.flags("flags of an upgrade", ANONYMOUS | ATTENDED)?;
    (upgrade.anonymous, upgrade.attended) = (flags & ANONYMOUS != 0, flags & ATTENDED != 0);
    Ok(upgrade)
}
