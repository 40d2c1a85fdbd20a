//! Conversions of locks, their holders and waiters.

use super::{duration, duration_or_none, lease_id, metadata, mode, node, revision, strange, token};
use crate::error::Error;
use crate::lock_info::{Explanation, Holder, LockInfo, Waiter};
use tollgate_proto::v1;
use tollgate_types::{GroupId, Revision, Slot};

pub(crate) fn lock_info(
    wire: v1::LockState,
    missing: &[v1::Missing],
    revision: Revision,
) -> Result<LockInfo, Error> {
    // In a list, `missing` is about all locks together: a lock gets it only if some of its own data is missing.
    let lacks = wire.holders.iter().any(|holder| holder.remaining_ms < 0)
        || wire.waiters.iter().any(|waiter| waiter.address.is_empty());
    Ok(LockInfo {
        missing: super::missing(if lacks { missing } else { &[] }),
        name: wire.name,
        holders: holders(wire.holders)?,
        waiters: wire.waiters.into_iter().map(waiter).collect::<Result<_, _>>()?,
        holder_count: wire.holder_count,
        waiter_count: wire.waiter_count,
        closed_for: duration(wire.closed_ms),
        restored: wire.restored,
        revision,
    })
}

pub(crate) fn holders(wire: Vec<v1::Holder>) -> Result<Vec<Holder>, Error> {
    wire.into_iter().map(holder).collect()
}

fn holder(wire: v1::Holder) -> Result<Holder, Error> {
    Ok(Holder {
        lease: lease_id(wire.lease_id)?,
        mode: mode(wire.mode, wire.permits, wire.of)?,
        token: token(wire.fencing_token)?,
        create_revision: revision(wire.create_revision)?,
        mod_revision: revision(wire.mod_revision)?,
        held: duration_or_none(wire.held_ms),
        remaining: duration_or_none(wire.remaining_ms),
        key: wire.key,
        owner: wire.owner,
        client_id: wire.client_id,
        address: wire.address,
        metadata: metadata(&wire.metadata, wire.metadata_bytes),
        why: wire.metadata,
    })
}

fn waiter(wire: v1::Waiter) -> Result<Waiter, Error> {
    Ok(Waiter {
        lease: lease_id(wire.lease_id)?,
        mode: mode(wire.mode, wire.permits, wire.of)?,
        create_revision: revision(wire.create_revision)?,
        waited: duration_or_none(wire.waited_ms),
        remaining: duration_or_none(wire.remaining_ms),
        predecessor_key: (!wire.predecessor_key.is_empty()).then_some(wire.predecessor_key),
        key: wire.waiter_key,
        position: wire.position,
        owner: wire.owner,
        upgrade: wire.upgrade,
        client_id: wire.client_id,
        address: wire.address,
        metadata: metadata(&wire.metadata, wire.metadata_bytes),
        why: wire.metadata,
    })
}

pub(crate) fn explanation(wire: v1::ExplainResponse) -> Result<Explanation, Error> {
    let at = super::header_revision(wire.header.as_ref())?;
    let slot = u16::try_from(wire.slot).map_err(strange)?;
    Ok(Explanation {
        lock: lock_info(wire.lock.unwrap_or_default(), &wire.missing, at)?,
        slot: Slot::new(slot).map_err(strange)?,
        group: GroupId::new(wire.group_id),
        leader: node(wire.leader_id),
        lines: wire.lines,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn a_holder_that_no_server_would_tell_of_is_an_error_and_no_panic() {
        let good = v1::Holder { lease_id: 1, fencing_token: 2, remaining_ms: -1, ..Default::default() };
        let read = holder(good.clone()).unwrap();
        assert_eq!((read.remaining, read.held), (None, Some(std::time::Duration::ZERO)));
        for wrong in [
            v1::Holder { lease_id: 0, ..good.clone() },
            v1::Holder { fencing_token: u64::MAX, ..good.clone() },
            v1::Holder { mode: 99, ..good.clone() },
            v1::Holder { create_revision: u64::MAX, ..good },
        ] {
            assert_eq!(holder(wrong).unwrap_err().kind(), ErrorKind::Internal);
        }
    }
}
