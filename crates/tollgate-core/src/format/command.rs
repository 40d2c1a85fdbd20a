//! Entries of the log as bytes.
//!
//! An entry is the format version (one byte), the log time (varint), from version 2 on the leader's wall time (varint),
//! the command's tag (one byte) and the command's fields. Invariant: all numbers below are stable. A log that was
//! written once must decode for ever, so a tag is never given to another command and a field never changes its place. A
//! change that needs either gets a new format version.
//!
//! | tag | command             | fields |
//! |-----|---------------------|---|
//! | 1   | `Tick`              | |
//! | 2   | `GrantLease`        | flags, lease or slot, ttl, client id, address |
//! | 3   | `RenewLeases`       | list of (lease, option of address, acked) |
//! | 4   | `RevokeLease`       | lease, disconnected: option of address |
//! | 5   | `AcquireLock`       | flags, names, lease, owner, mode, \[wait\], delay, \[hold\], why, \[value, request\] |
//! | 6   | `ReleaseLock`       | flags, names, then token, or lease, owner, \[token\], \[request\] |
//! | 7   | `ConvertLock`       | flags, names, lease, owner, mode, \[wait\], \[request\] |
//! | 8   | `CancelWait`        | flags, lease, then seq, or name, owner, or name, revision; \[asks max\], acked |
//! | 9   | `ForceRelease`      | name, token, reason |
//! | 10  | `Txn`               | flags, \[lease, request\], list of compares, list of then, list of otherwise |
//! | 11  | `SetLimits`         | list of numbers |
//! | 12  | `RaiseApplyVersion` | version |
//! | 13  | `AddStub`           | lease, incarnation, client id, home |
//! | 14  | `ConfirmStub`       | lease, incarnation, added |
//! | 15  | `EndStub`           | lease, incarnation, reason |
//! | 16  | `RegisterStub`      | lease, incarnation, group |
//! | 17  | `AckLeaseEnd`       | lease, incarnation, group |
//! | 18  | `Proclaim`          | flags, name, lease, owner, token, value, \[request\] |
//! | 19  | `EndDeadlock`       | name, create revision, blocker |
//! | 20  | `SetLineage`        | lineage (8 bytes); from version 2 on |
//!
//! Fields in brackets are present if their flag is set. A request is seq, acked and, from version 2 on, an option of
//! the names of the whole request, if the command is a part of it. A cancel by seq may have a name after the seq, from
//! version 2 on. The `why` of an `AcquireLock` is any bytes from version 3 on; before, it is text without control
//! characters. The reason of an `EndStub` is the number of that end reason in the history. Tag 0 is never used, so that
//! a page of zeros is no entry. Not here: the check that this binary can apply the command; the fields of stubs
//! (`format::stubs`).

use super::{DecodeError, FORMAT_1, Reader, Writer};
use crate::command::{
    AcquireLock, Against, CancelTarget, CancelWait, Command, Compare, ConvertLock, Entry, ForceRelease,
    GrantLease, KeySelector, LeaseChoice, Op, Proclaim, RangeQuery, Relation, ReleaseBy, ReleaseLock,
    RenewLeases, Renewal, Request, RevokeLease, Scope, Sort, Txn, Wait,
};
use tollgate_types::{Key, Limit, LogTime, WallTime};

/// The newest version of the format, which a group writes once all its members can read it; see
/// [`crate::entry_format`].
pub const ENTRY_FORMAT_VERSION: u8 = 3;

/// The oldest version that [`decode_entry`] reads.
const ENTRY_FORMAT_OLDEST: u8 = FORMAT_1;

/// Most renewals that an entry has room for.
pub const RENEWALS_MAX: usize = 100_000;

/// Most compares, and most steps of either branch, that an entry has room for.
pub const TXN_STEPS_MAX: usize = 1_024;

const _: () = assert!(Limit::RenewalsPerEntry.range().1 <= RENEWALS_MAX as u64, "an entry must have room");
const _: () = assert!(Limit::TxnOps.range().1 <= TXN_STEPS_MAX as u64, "an entry must have room");

const TICK: u8 = 1;
const GRANT_LEASE: u8 = 2;
const RENEW_LEASES: u8 = 3;
const REVOKE_LEASE: u8 = 4;
pub(super) const ACQUIRE_LOCK: u8 = 5;
pub(super) const RELEASE_LOCK: u8 = 6;
pub(super) const CONVERT_LOCK: u8 = 7;
const CANCEL_WAIT: u8 = 8;
const FORCE_RELEASE: u8 = 9;
pub(super) const TXN: u8 = 10;
const SET_LIMITS: u8 = 11;
const RAISE_APPLY_VERSION: u8 = 12;
const ADD_STUB: u8 = 13;
const CONFIRM_STUB: u8 = 14;
const END_STUB: u8 = 15;
const REGISTER_STUB: u8 = 16;
const ACK_LEASE_END: u8 = 17;
pub(super) const PROCLAIM: u8 = 18;
const END_DEADLOCK: u8 = 19;
const SET_LINEAGE: u8 = 20;

/// Appends the encoding of `entry` to `out`, in the newest format.
///
/// Panics, rather than write bytes that no replica could read, if the entry has more than [`RENEWALS_MAX`] renewals or
/// [`TXN_STEPS_MAX`] compares or steps, more than `SEQ_RANGES_MAX` acked ranges, a `Names::Many` or `Mode::Permit` that
/// their constructors did not make, or a field for which the format has no place ([`Command::fit_into`]). Code that
/// takes requests from outside checks these first.
///
/// ```
/// use tollgate_core::{Command, Entry, decode_entry, encode_entry};
/// use tollgate_types::LogTime;
///
/// let entry = Entry::new(LogTime::from_ms(300), Command::Tick);
/// let mut bytes = Vec::new();
/// encode_entry(&entry, &mut bytes);
/// assert_eq!(bytes, [3, 0xac, 0x02, 0, 1]);
/// assert_eq!(decode_entry(&bytes)?, entry);
/// # Ok::<(), tollgate_core::DecodeError>(())
/// ```
pub fn encode_entry(entry: &Entry, out: &mut Vec<u8>) {
    encode_command(ENTRY_FORMAT_VERSION, (entry.at, entry.wall), &entry.command, out);
}

/// Like [`encode_entry`], for a command with its log time and wall time, in the given format.
pub fn encode_command(format: u8, (at, wall): (LogTime, WallTime), command: &Command, out: &mut Vec<u8>) {
    assert!((ENTRY_FORMAT_OLDEST..=ENTRY_FORMAT_VERSION).contains(&format), "there is no format {format}");
    // Enough for nearly every command, so that a fresh buffer grows once.
    out.reserve(128);
    let mut writer = Writer::new(out);
    writer.u8(format);
    writer.log_time(at);
    if format > FORMAT_1 {
        writer.wall_time(wall);
    }
    writer.command(command, format);
}

/// Decodes an entry from all of these bytes.
pub fn decode_entry(bytes: &[u8]) -> Result<Entry, DecodeError> {
    let mut reader = Reader::new(bytes);
    let found = reader.u8()?;
    if !(ENTRY_FORMAT_OLDEST..=ENTRY_FORMAT_VERSION).contains(&found) {
        return Err(DecodeError::UnsupportedVersion {
            what: "entry",
            found,
            supported: ENTRY_FORMAT_VERSION,
        });
    }
    let entry = Entry {
        at: reader.log_time()?,
        wall: if found > FORMAT_1 { reader.wall_time()? } else { WallTime::UNKNOWN },
        command: reader.command(found)?,
    };
    reader.finish()?;
    Ok(entry)
}

impl Writer<'_> {
    fn command(&mut self, command: &Command, format: u8) {
        match command {
            Command::Tick => self.u8(TICK),
            Command::GrantLease(grant) => self.grant_lease(grant),
            Command::RenewLeases(renew) => self.renew_leases(renew),
            Command::RevokeLease(revoke) => self.revoke_lease(revoke),
            Command::AcquireLock(acquire) => self.acquire_lock(acquire, format),
            Command::ReleaseLock(release) => self.release_lock(release, format),
            Command::ConvertLock(convert) => self.convert_lock(convert, format),
            Command::CancelWait(cancel) => self.cancel_wait(cancel, format),
            Command::ForceRelease(force) => self.force_release(force),
            Command::Proclaim(proclaim) => self.proclaim(proclaim, format),
            Command::Txn(txn) => self.txn(txn, format),
            Command::SetLimits(limits) => {
                self.u8(SET_LIMITS);
                self.limits(limits);
            }
            Command::RaiseApplyVersion(version) => {
                self.u8(RAISE_APPLY_VERSION);
                self.varint(u64::from(*version));
            }
            Command::AddStub(add) => {
                self.u8(ADD_STUB);
                self.add_stub(add);
            }
            Command::ConfirmStub(confirm) => {
                self.u8(CONFIRM_STUB);
                self.confirm_stub(*confirm);
            }
            Command::EndStub(end) => {
                self.u8(END_STUB);
                self.end_stub(*end);
            }
            Command::RegisterStub(register) => {
                self.u8(REGISTER_STUB);
                self.register_stub(*register);
            }
            Command::AckLeaseEnd(ack) => {
                self.u8(ACK_LEASE_END);
                self.ack_lease_end(*ack);
            }
            Command::EndDeadlock(end) => {
                self.u8(END_DEADLOCK);
                self.end_deadlock(end);
            }
            Command::SetLineage(lineage) => {
                assert!(format > FORMAT_1, "format {format} has no lineage");
                self.u8(SET_LINEAGE);
                self.fixed_u64(lineage.number());
            }
        }
    }
}

impl Reader<'_> {
    fn command(&mut self, format: u8) -> Result<Command, DecodeError> {
        let at = self.at();
        Ok(match self.u8()? {
            TICK => Command::Tick,
            GRANT_LEASE => Command::GrantLease(self.grant_lease()?),
            RENEW_LEASES => Command::RenewLeases(self.renew_leases()?),
            REVOKE_LEASE => Command::RevokeLease(self.revoke_lease()?),
            ACQUIRE_LOCK => Command::AcquireLock(self.acquire_lock(format)?),
            RELEASE_LOCK => Command::ReleaseLock(self.release_lock(format)?),
            CONVERT_LOCK => Command::ConvertLock(self.convert_lock(format)?),
            CANCEL_WAIT => Command::CancelWait(self.cancel_wait(format)?),
            FORCE_RELEASE => Command::ForceRelease(self.force_release()?),
            TXN => Command::Txn(self.txn(format)?),
            SET_LIMITS => Command::SetLimits(Box::new(self.limits()?)),
            RAISE_APPLY_VERSION => Command::RaiseApplyVersion(self.u32("apply version")?),
            ADD_STUB => Command::AddStub(self.add_stub()?),
            CONFIRM_STUB => Command::ConfirmStub(self.confirm_stub()?),
            END_STUB => Command::EndStub(self.end_stub()?),
            REGISTER_STUB => Command::RegisterStub(self.register_stub()?),
            ACK_LEASE_END => Command::AckLeaseEnd(self.ack_lease_end()?),
            PROCLAIM => Command::Proclaim(self.proclaim(format)?),
            END_DEADLOCK => Command::EndDeadlock(self.end_deadlock()?),
            SET_LINEAGE if format > FORMAT_1 => Command::SetLineage(self.lineage()?),
            tag => return Err(DecodeError::UnknownTag { what: "command", tag, at }),
        })
    }
}

// Leases.

const GRANT_REVOKE_ON_DISCONNECT: u8 = 1;
const GRANT_ASSIGNED: u8 = 1 << 1;

impl Writer<'_> {
    fn grant_lease(&mut self, grant: &GrantLease) {
        let GrantLease { id, ttl, client_id, address, revoke_on_disconnect } = grant;
        let assigned = matches!(id, LeaseChoice::Assigned(_));
        self.u8(GRANT_LEASE);
        self.u8(flag(*revoke_on_disconnect, GRANT_REVOKE_ON_DISCONNECT) | flag(assigned, GRANT_ASSIGNED));
        match *id {
            LeaseChoice::Chosen(lease) => self.lease_id(lease),
            LeaseChoice::Assigned(slot) => self.slot(slot),
        }
        self.duration(*ttl);
        self.client_id(client_id);
        self.address(address);
    }

    fn renew_leases(&mut self, renew: &RenewLeases) {
        self.u8(RENEW_LEASES);
        self.list("renewals", RENEWALS_MAX, &renew.renewals, |writer, renewal| {
            let Renewal { lease, address, acked } = renewal;
            writer.lease_id(*lease);
            writer.option(address.as_ref(), Writer::address);
            writer.seq_ranges(acked);
        });
    }

    fn revoke_lease(&mut self, revoke: &RevokeLease) {
        let RevokeLease { lease, disconnected } = revoke;
        self.u8(REVOKE_LEASE);
        self.lease_id(*lease);
        self.option(disconnected.as_ref(), Writer::address);
    }
}

impl Reader<'_> {
    fn grant_lease(&mut self) -> Result<GrantLease, DecodeError> {
        let flags = self.flags("flags of a grant", GRANT_REVOKE_ON_DISCONNECT | GRANT_ASSIGNED)?;
        let id = if flags & GRANT_ASSIGNED != 0 {
            LeaseChoice::Assigned(self.slot()?)
        } else {
            LeaseChoice::Chosen(self.lease_id()?)
        };
        Ok(GrantLease {
            id,
            ttl: self.duration()?,
            client_id: self.client_id()?,
            address: self.address()?,
            revoke_on_disconnect: flags & GRANT_REVOKE_ON_DISCONNECT != 0,
        })
    }

    fn renew_leases(&mut self) -> Result<RenewLeases, DecodeError> {
        let renewals = self.list("renewals", RENEWALS_MAX, 3, |reader| {
            Ok(Renewal {
                lease: reader.lease_id()?,
                address: reader.option("option of an address", Reader::address)?,
                acked: reader.seq_ranges()?,
            })
        })?;
        Ok(RenewLeases { renewals })
    }

    fn revoke_lease(&mut self) -> Result<RevokeLease, DecodeError> {
        Ok(RevokeLease {
            lease: self.lease_id()?,
            disconnected: self.option("option of a revoke", Reader::address)?,
        })
    }
}

// Locks. The lowest two flags of Acquire and Convert are the kind of wait.

const WAIT_KIND: u8 = 0b11;
const WAIT_NO: u8 = 0;
const WAIT_FOR: u8 = 1;
const WAIT_FOREVER: u8 = 2;
const LOCK_MAX_HOLD: u8 = 1 << 2;
const LOCK_REQUEST: u8 = 1 << 3;
const LOCK_ATTENDED: u8 = 1 << 4;
const LOCK_VALUE: u8 = 1 << 5;

const PROCLAIM_REQUEST: u8 = 1;

const RELEASE_BY_TOKEN: u8 = 1;
const RELEASE_TOKEN_GIVEN: u8 = 1 << 1;
const RELEASE_REQUEST: u8 = 1 << 2;

const CANCEL_RELEASE_IF_GRANTED: u8 = 1;
const CANCEL_WAITER: u8 = 1 << 1;
const CANCEL_ONE_WAIT: u8 = 1 << 2;
const CANCEL_ASKS_MAX: u8 = 1 << 3;
const CANCEL_SEQ_ON: u8 = 1 << 4;

impl Writer<'_> {
    fn acquire_lock(&mut self, acquire: &AcquireLock, format: u8) {
        let AcquireLock {
            names,
            lease,
            owner,
            mode,
            wait,
            lock_delay,
            max_hold,
            metadata,
            value,
            attended,
            request,
        } = acquire;
        let flags = flag(max_hold.is_some(), LOCK_MAX_HOLD)
            | flag(request.is_some(), LOCK_REQUEST)
            | flag(*attended, LOCK_ATTENDED)
            | flag(value.is_some(), LOCK_VALUE);
        self.u8(ACQUIRE_LOCK);
        self.u8(flags | wait_kind(*wait));
        self.names(names);
        self.lease_id(*lease);
        self.owner(owner);
        self.mode(*mode);
        self.wait_time(*wait);
        self.duration(*lock_delay);
        if let Some(max_hold) = max_hold {
            self.duration(*max_hold);
        }
        self.metadata(metadata, format);
        if let Some(value) = value {
            self.value(value);
        }
        self.request_if_given(request.as_ref(), format);
    }

    fn release_lock(&mut self, release: &ReleaseLock, format: u8) {
        let ReleaseLock { names, by } = release;
        self.u8(RELEASE_LOCK);
        match by {
            ReleaseBy::Holder { lease, owner, token, request } => {
                self.u8(flag(token.is_some(), RELEASE_TOKEN_GIVEN) | flag(request.is_some(), RELEASE_REQUEST));
                self.names(names);
                self.lease_id(*lease);
                self.owner(owner);
                if let Some(token) = token {
                    self.token(*token);
                }
                self.request_if_given(request.as_ref(), format);
            }
            ReleaseBy::Token(token) => {
                self.u8(RELEASE_BY_TOKEN);
                self.names(names);
                self.token(*token);
            }
        }
    }

    fn convert_lock(&mut self, convert: &ConvertLock, format: u8) {
        let ConvertLock { names, lease, owner, mode, wait, attended, request } = convert;
        self.u8(CONVERT_LOCK);
        let flags = flag(request.is_some(), LOCK_REQUEST) | flag(*attended, LOCK_ATTENDED);
        self.u8(flags | wait_kind(*wait));
        self.names(names);
        self.lease_id(*lease);
        self.owner(owner);
        self.mode(*mode);
        self.wait_time(*wait);
        self.request_if_given(request.as_ref(), format);
    }

    fn cancel_wait(&mut self, cancel: &CancelWait, format: u8) {
        let CancelWait { lease, target, release_if_granted, asks_max, acked } = cancel;
        let kind = match target {
            CancelTarget::Seq(_) => 0,
            CancelTarget::SeqOn { .. } => {
                assert!(format > FORMAT_1, "format {format} has no name beside the seq of a cancel");
                CANCEL_SEQ_ON
            }
            CancelTarget::Waiter { .. } => CANCEL_WAITER,
            CancelTarget::Wait { .. } => CANCEL_ONE_WAIT,
        };
        self.u8(CANCEL_WAIT);
        self.u8(kind
            | flag(*release_if_granted, CANCEL_RELEASE_IF_GRANTED)
            | flag(asks_max.is_some(), CANCEL_ASKS_MAX));
        self.lease_id(*lease);
        match target {
            CancelTarget::Seq(seq) => self.seq(*seq),
            CancelTarget::SeqOn { seq, name } => {
                self.seq(*seq);
                self.name(name);
            }
            CancelTarget::Waiter { name, owner } => {
                self.name(name);
                self.owner(owner);
            }
            CancelTarget::Wait { name, create_revision } => {
                self.name(name);
                self.revision(*create_revision);
            }
        }
        if let Some(asks_max) = asks_max {
            self.varint(u64::from(*asks_max));
        }
        self.seq_ranges(acked);
    }

    fn force_release(&mut self, force: &ForceRelease) {
        let ForceRelease { name, token, reason } = force;
        self.u8(FORCE_RELEASE);
        self.name(name);
        self.token(*token);
        self.reason(reason);
    }

    fn proclaim(&mut self, proclaim: &Proclaim, format: u8) {
        let Proclaim { name, lease, owner, token, value, request } = proclaim;
        self.u8(PROCLAIM);
        self.u8(flag(request.is_some(), PROCLAIM_REQUEST));
        self.name(name);
        self.lease_id(*lease);
        self.owner(owner);
        self.token(*token);
        self.value(value);
        self.request_if_given(request.as_ref(), format);
    }

    /// Writes the duration of a bounded wait; the flags carry the kind of wait.
    fn wait_time(&mut self, wait: Wait) {
        if let Wait::For(duration) = wait {
            self.duration(duration);
        }
    }

    /// Writes the request, if there is one; a flag was written before that says so.
    fn request_if_given(&mut self, request: Option<&Request>, format: u8) {
        let Some(Request { seq, acked, scope }) = request else { return };
        self.seq(*seq);
        self.seq_ranges(acked);
        match scope {
            Scope::Unsaid => {
                assert!(format == FORMAT_1, "format {format} says how much a command is of a request");
            }
            Scope::Whole | Scope::PartOf(_) if format == FORMAT_1 => {
                panic!("format 1 has no scope of a request")
            }
            Scope::Whole => self.bool(false),
            Scope::PartOf(names) => {
                self.bool(true);
                self.names(names);
            }
        }
    }
}

impl Reader<'_> {
    fn acquire_lock(&mut self, format: u8) -> Result<AcquireLock, DecodeError> {
        let known = LOCK_MAX_HOLD | LOCK_REQUEST | LOCK_ATTENDED | LOCK_VALUE;
        let flags = self.lock_flags("flags of an acquire", known)?;
        Ok(AcquireLock {
            names: self.names()?,
            lease: self.lease_id()?,
            owner: self.owner()?,
            mode: self.mode()?,
            wait: self.wait(flags)?,
            lock_delay: self.duration()?,
            max_hold: self.given(flags & LOCK_MAX_HOLD, Reader::duration)?,
            metadata: self.metadata(format)?,
            value: self.given(flags & LOCK_VALUE, Reader::value)?,
            attended: flags & LOCK_ATTENDED != 0,
            request: self.given(flags & LOCK_REQUEST, |reader| reader.request(format))?,
        })
    }

    fn release_lock(&mut self, format: u8) -> Result<ReleaseLock, DecodeError> {
        const WHAT: &str = "flags of a release";
        let at = self.at();
        let flags = self.flags(WHAT, RELEASE_BY_TOKEN | RELEASE_TOKEN_GIVEN | RELEASE_REQUEST)?;
        let by_token = flags & RELEASE_BY_TOKEN != 0;
        if by_token && flags != RELEASE_BY_TOKEN {
            return Err(DecodeError::UnknownTag { what: WHAT, tag: flags, at });
        }
        let names = self.names()?;
        let by = if by_token {
            ReleaseBy::Token(self.token()?)
        } else {
            ReleaseBy::Holder {
                lease: self.lease_id()?,
                owner: self.owner()?,
                token: self.given(flags & RELEASE_TOKEN_GIVEN, Reader::token)?,
                request: self.given(flags & RELEASE_REQUEST, |reader| reader.request(format))?,
            }
        };
        Ok(ReleaseLock { names, by })
    }

    fn convert_lock(&mut self, format: u8) -> Result<ConvertLock, DecodeError> {
        let flags = self.lock_flags("flags of a convert", LOCK_REQUEST | LOCK_ATTENDED)?;
        Ok(ConvertLock {
            names: self.names()?,
            lease: self.lease_id()?,
            owner: self.owner()?,
            mode: self.mode()?,
            wait: self.wait(flags)?,
            attended: flags & LOCK_ATTENDED != 0,
            request: self.given(flags & LOCK_REQUEST, |reader| reader.request(format))?,
        })
    }

    fn cancel_wait(&mut self, format: u8) -> Result<CancelWait, DecodeError> {
        const WHAT: &str = "flags of a cancel";
        let at = self.at();
        let first = CANCEL_RELEASE_IF_GRANTED | CANCEL_WAITER | CANCEL_ONE_WAIT | CANCEL_ASKS_MAX;
        let known = if format == FORMAT_1 { first } else { first | CANCEL_SEQ_ON };
        let flags = self.flags(WHAT, known)?;
        let lease = self.lease_id()?;
        let target = match flags & (CANCEL_WAITER | CANCEL_ONE_WAIT) {
            0 => {
                let seq = self.seq()?;
                match self.given(flags & CANCEL_SEQ_ON, Reader::name)? {
                    Some(name) => CancelTarget::SeqOn { seq, name },
                    None => CancelTarget::Seq(seq),
                }
            }
            _ if flags & CANCEL_SEQ_ON != 0 => {
                return Err(DecodeError::UnknownTag { what: WHAT, tag: flags, at });
            }
            CANCEL_WAITER => CancelTarget::Waiter { name: self.name()?, owner: self.owner()? },
            CANCEL_ONE_WAIT => CancelTarget::Wait { name: self.name()?, create_revision: self.revision()? },
            _ => return Err(DecodeError::UnknownTag { what: WHAT, tag: flags, at }),
        };
        let release_if_granted = flags & CANCEL_RELEASE_IF_GRANTED != 0;
        let asks_max = self.given(flags & CANCEL_ASKS_MAX, |reader| reader.u32("asks of a cancel"))?;
        Ok(CancelWait { lease, target, release_if_granted, asks_max, acked: self.seq_ranges()? })
    }

    fn force_release(&mut self) -> Result<ForceRelease, DecodeError> {
        Ok(ForceRelease { name: self.name()?, token: self.token()?, reason: self.reason()? })
    }

    fn proclaim(&mut self, format: u8) -> Result<Proclaim, DecodeError> {
        let flags = self.flags("flags of a proclaim", PROCLAIM_REQUEST)?;
        Ok(Proclaim {
            name: self.name()?,
            lease: self.lease_id()?,
            owner: self.owner()?,
            token: self.token()?,
            value: self.value()?,
            request: self.given(flags & PROCLAIM_REQUEST, |reader| reader.request(format))?,
        })
    }

    /// Reads flags whose lowest two bits are a kind of wait.
    fn lock_flags(&mut self, what: &'static str, known: u8) -> Result<u8, DecodeError> {
        let at = self.at();
        match self.flags(what, known | WAIT_KIND)? {
            tag if tag & WAIT_KIND > WAIT_FOREVER => Err(DecodeError::UnknownTag { what, tag, at }),
            flags => Ok(flags),
        }
    }

    fn wait(&mut self, flags: u8) -> Result<Wait, DecodeError> {
        Ok(match flags & WAIT_KIND {
            WAIT_NO => Wait::No,
            WAIT_FOR => Wait::For(self.duration()?),
            _ => Wait::Forever,
        })
    }

    fn request(&mut self, format: u8) -> Result<Request, DecodeError> {
        let (seq, acked) = (self.seq()?, self.seq_ranges()?);
        let scope = if format == FORMAT_1 {
            Scope::Unsaid
        } else {
            let whole = self.option("names of the whole request", Reader::names)?;
            whole.map_or(Scope::Whole, |names| Scope::PartOf(Box::new(names)))
        };
        Ok(Request { seq, acked, scope })
    }

    /// Reads a field that is present if its flag is set.
    fn given<T>(
        &mut self,
        flag: u8,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        if flag == 0 { Ok(None) } else { read(self).map(Some) }
    }
}

fn flag(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

fn wait_kind(wait: Wait) -> u8 {
    match wait {
        Wait::No => WAIT_NO,
        Wait::For(_) => WAIT_FOR,
        Wait::Forever => WAIT_FOREVER,
    }
}

// Registers.

const TXN_REQUEST: u8 = 1;

const AGAINST_CREATE: u8 = 0;
const AGAINST_MOD: u8 = 1;
const AGAINST_VERSION: u8 = 2;
const AGAINST_VALUE: u8 = 3;
const AGAINST_LEASE: u8 = 4;

const OP_PUT: u8 = 0;
const OP_GET: u8 = 1;
const OP_DELETE: u8 = 2;

const SELECT_KEY: u8 = 0;
const SELECT_PREFIX: u8 = 1;
const SELECT_ALL: u8 = 2;

/// Smallest size of a compare: its key (two bytes or more), the relation, the attribute's tag and the attribute.
const COMPARE_BYTES_MIN: usize = 5;
/// Smallest size of a step: a delete of all keys.
const OP_BYTES_MIN: usize = 2;

impl Writer<'_> {
    fn txn(&mut self, txn: &Txn, format: u8) {
        self.u8(TXN);
        self.u8(flag(txn.request.is_some(), TXN_REQUEST));
        if let Some((lease, request)) = &txn.request {
            self.lease_id(*lease);
            self.request_if_given(Some(request), format);
        }
        self.txn_content(txn);
    }

    pub(super) fn txn_content(&mut self, txn: &Txn) {
        let Txn { request: _, compares, then, otherwise } = txn;
        self.list("compares", TXN_STEPS_MAX, compares, Writer::compare);
        self.list("steps of then", TXN_STEPS_MAX, then, Writer::op);
        self.list("steps of otherwise", TXN_STEPS_MAX, otherwise, Writer::op);
    }

    fn compare(&mut self, compare: &Compare) {
        let Compare { key, relation, against } = compare;
        self.key(key);
        self.u8(match relation {
            Relation::Equal => 0,
            Relation::NotEqual => 1,
            Relation::Less => 2,
            Relation::Greater => 3,
        });
        match against {
            Against::Create(revision) => {
                self.u8(AGAINST_CREATE);
                self.revision(*revision);
            }
            Against::Mod(revision) => {
                self.u8(AGAINST_MOD);
                self.revision(*revision);
            }
            Against::Version(version) => {
                self.u8(AGAINST_VERSION);
                self.varint(*version);
            }
            Against::Value(value) => {
                self.u8(AGAINST_VALUE);
                self.value(value);
            }
            Against::Lease(lease) => {
                self.u8(AGAINST_LEASE);
                self.lease_id_option(*lease);
            }
        }
    }

    fn op(&mut self, op: &Op) {
        match op {
            Op::Put { key, value, lease } => {
                self.u8(OP_PUT);
                self.key(key);
                self.value(value);
                self.lease_id_option(*lease);
            }
            Op::Get(RangeQuery { keys, limit, sort }) => {
                self.u8(OP_GET);
                self.selector(keys);
                self.varint(u64::from(*limit));
                self.u8(match sort {
                    Sort::Key => 0,
                    Sort::KeyDescending => 1,
                    Sort::Create => 2,
                    Sort::CreateDescending => 3,
                });
            }
            Op::Delete(keys) => {
                self.u8(OP_DELETE);
                self.selector(keys);
            }
        }
    }

    fn selector(&mut self, keys: &KeySelector) {
        let (tag, key): (u8, Option<&Key>) = match keys {
            KeySelector::Key(key) => (SELECT_KEY, Some(key)),
            KeySelector::Prefix(prefix) => (SELECT_PREFIX, Some(prefix)),
            KeySelector::All => (SELECT_ALL, None),
        };
        self.u8(tag);
        if let Some(key) = key {
            self.key(key);
        }
    }
}

impl Reader<'_> {
    fn txn(&mut self, format: u8) -> Result<Txn, DecodeError> {
        let flags = self.flags("flags of a transaction", TXN_REQUEST)?;
        let request =
            self.given(flags & TXN_REQUEST, |reader| Ok((reader.lease_id()?, reader.request(format)?)))?;
        Ok(Txn {
            request,
            compares: self.list("compares", TXN_STEPS_MAX, COMPARE_BYTES_MIN, Reader::compare)?,
            then: self.list("steps of then", TXN_STEPS_MAX, OP_BYTES_MIN, Reader::op)?,
            otherwise: self.list("steps of otherwise", TXN_STEPS_MAX, OP_BYTES_MIN, Reader::op)?,
        })
    }

    fn compare(&mut self) -> Result<Compare, DecodeError> {
        let key = self.key()?;
        let relation = self.tag("relation", |tag| match tag {
            0 => Some(Relation::Equal),
            1 => Some(Relation::NotEqual),
            2 => Some(Relation::Less),
            3 => Some(Relation::Greater),
            _ => None,
        })?;
        let at = self.at();
        let against = match self.u8()? {
            AGAINST_CREATE => Against::Create(self.revision()?),
            AGAINST_MOD => Against::Mod(self.revision()?),
            AGAINST_VERSION => Against::Version(self.varint()?),
            AGAINST_VALUE => Against::Value(self.value()?),
            AGAINST_LEASE => Against::Lease(self.lease_id_option()?),
            tag => return Err(DecodeError::UnknownTag { what: "attribute of a register", tag, at }),
        };
        Ok(Compare { key, relation, against })
    }

    fn op(&mut self) -> Result<Op, DecodeError> {
        let at = self.at();
        Ok(match self.u8()? {
            OP_PUT => Op::Put { key: self.key()?, value: self.value()?, lease: self.lease_id_option()? },
            OP_GET => Op::Get(RangeQuery {
                keys: self.selector()?,
                limit: self.u32("limit of a range")?,
                sort: self.sort()?,
            }),
            OP_DELETE => Op::Delete(self.selector()?),
            tag => return Err(DecodeError::UnknownTag { what: "step of a transaction", tag, at }),
        })
    }

    fn selector(&mut self) -> Result<KeySelector, DecodeError> {
        let at = self.at();
        Ok(match self.u8()? {
            SELECT_KEY => KeySelector::Key(self.key()?),
            SELECT_PREFIX => KeySelector::Prefix(self.key()?),
            SELECT_ALL => KeySelector::All,
            tag => return Err(DecodeError::UnknownTag { what: "key selector", tag, at }),
        })
    }

    fn sort(&mut self) -> Result<Sort, DecodeError> {
        self.tag("sort order", |tag| match tag {
            0 => Some(Sort::Key),
            1 => Some(Sort::KeyDescending),
            2 => Some(Sort::Create),
            3 => Some(Sort::CreateDescending),
            _ => None,
        })
    }
}
