//! Conversions of leases and their locks.

use super::{duration, lease_id, mode, revision, token_or_none};
use crate::error::Error;
use crate::lease_info::{LeaseClaim, LeaseGranted, LeaseInfo};
use crate::missing::Silent;
use tollgate_proto::v1;
use tollgate_types::{GroupId, Seq};

pub(crate) fn lease_granted(wire: &v1::LeaseGrantResponse) -> Result<LeaseGranted, Error> {
    Ok(LeaseGranted {
        id: lease_id(wire.id)?,
        ttl: duration(wire.ttl_ms),
        renewed: wire.renewed,
        incarnation: revision(wire.incarnation)?,
        next_seq: Seq::new(wire.next_seq).ok(),
    })
}

pub(crate) fn lease_info(wire: v1::Lease, missing: &[v1::Missing]) -> Result<LeaseInfo, Error> {
    let mut missing = super::missing(missing);
    missing.retain(|missing| {
        matches!(missing.who, Silent::Group(group) if wire.other_group_ids.contains(&group.number()))
    });
    Ok(LeaseInfo {
        id: lease_id(wire.id)?,
        ttl: duration(wire.granted_ttl_ms),
        remaining: duration(wire.remaining_ms),
        client_id: wire.client_id,
        address: wire.address,
        last_seen: duration(wire.last_seen_ms),
        revoke_on_disconnect: wire.revoke_on_disconnect,
        claims: wire.claims,
        incarnation: revision(wire.incarnation)?,
        group: GroupId::new(wire.group_id),
        other_groups: wire.other_group_ids.into_iter().map(GroupId::new).collect(),
        missing,
    })
}

pub(crate) fn lease_claim(wire: v1::LeaseClaim) -> Result<LeaseClaim, Error> {
    Ok(LeaseClaim {
        mode: mode(wire.mode, wire.permits, wire.of)?,
        token: token_or_none(wire.fencing_token)?,
        name: wire.name,
        owner: wire.owner,
    })
}
