//! Conversions of events.

use super::register::register;
use super::{lease_id, metadata, mode, revision, strange, token_or_none};
use crate::error::Error;
use crate::event::{Change, Claim, EndReason, Event};
use tollgate_proto::v1::{self, key_value::Kv};

pub(crate) fn event(wire: v1::Event) -> Result<Event, Error> {
    let deleted = match wire.r#type() {
        v1::EventType::Put => false,
        v1::EventType::Delete => true,
        v1::EventType::Unspecified => return Err(strange(())),
    };
    let reason = wire.end_reason();
    let before = wire.prev_kv.and_then(|before| before.kv);
    let change = match wire.kv.and_then(|kv| kv.kv).ok_or_else(|| strange(()))? {
        Kv::Claim(gone) if deleted => Change::ClaimEnded {
            lease: lease_id(gone.lease_id)?,
            create_revision: revision(gone.create_revision)?,
            name: gone.name,
            owner: gone.owner,
            before: claim_before(before)?,
            reason: end_reason(reason),
            note: (!wire.note.is_empty()).then_some(wire.note),
            vacant: wire.vacant,
        },
        Kv::Claim(now) => Change::Claim {
            claim: claim(now)?,
            before: claim_before(before)?,
            wait_ended: (reason != v1::EndReason::Unspecified).then(|| end_reason(reason)),
        },
        Kv::Register(gone) if deleted => {
            Change::RegisterDeleted { key: gone.key, before: register_before(before)? }
        }
        Kv::Register(now) => Change::Register { register: register(now)?, before: register_before(before)? },
    };
    Ok(Event { revision: revision(wire.revision)?, change })
}

fn claim_before(before: Option<Kv>) -> Result<Option<Claim>, Error> {
    match before {
        Some(Kv::Claim(before)) => claim(before).map(Some),
        _ => Ok(None),
    }
}

fn register_before(before: Option<Kv>) -> Result<Option<crate::Register>, Error> {
    match before {
        Some(Kv::Register(before)) => register(before).map(Some),
        _ => Ok(None),
    }
}

fn claim(wire: v1::Claim) -> Result<Claim, Error> {
    let wants = wire.wants() != v1::Mode::Unspecified;
    Ok(Claim {
        lease: lease_id(wire.lease_id)?,
        mode: mode(wire.mode, wire.permits, wire.of)?,
        token: token_or_none(wire.fencing_token)?,
        wants: wants.then(|| mode(wire.wants, 0, 0)).transpose()?,
        create_revision: revision(wire.create_revision)?,
        mod_revision: revision(wire.mod_revision)?,
        name: wire.name,
        owner: wire.owner,
        version: wire.version,
        metadata: metadata(&wire.metadata, wire.metadata_bytes),
        why: wire.metadata,
    })
}

fn end_reason(wire: v1::EndReason) -> EndReason {
    match wire {
        v1::EndReason::Released => EndReason::Released,
        v1::EndReason::LeaseExpired => EndReason::LeaseExpired,
        v1::EndReason::LeaseRevoked => EndReason::LeaseRevoked,
        v1::EndReason::Disconnected => EndReason::Disconnected,
        v1::EndReason::Forced => EndReason::Forced,
        v1::EndReason::MaxHold => EndReason::MaxHold,
        v1::EndReason::TimedOut => EndReason::TimedOut,
        v1::EndReason::Cancelled => EndReason::Cancelled,
        v1::EndReason::Deadlock => EndReason::Deadlock,
        v1::EndReason::Unspecified => EndReason::Unknown,
    }
}
