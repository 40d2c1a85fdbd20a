//! Lease requests and their answers.
//!
//! A keepalive of a lease that is gone gets an answer, not an error: a time to live of 0. Not here: lists of leases
//! (`listing`).

use super::context::{About, HeaderInfo, Replied};
use super::query::Query;
use super::rejection::error_of_rejection;
use super::{Kind, Prepared};
use tollgate_core::{Command, GrantLease, LeaseChoice, Rejection, Renewal, Renewed, Reply, RevokeLease};
use tollgate_node::Consistency;
use tollgate_proto::convert::{self, write_duration, write_seconds};
use tollgate_proto::v1::{self, operation_result::Result as Wire};
use tollgate_types::{Address, ClientId, GroupMap, Revision, Slot};

pub(super) fn prepare_grant(
    grant: &v1::LeaseGrantRequest,
    map: &GroupMap,
    from: &Address,
) -> Result<Prepared, v1::Error> {
    let choice = convert::read_lease_choice(grant.id, &grant.near)?;
    let ttl = convert::read_ttl(grant.ttl, grant.ttl_ms)?;
    let client_id = convert::read_client_id("client_id", &grant.client_id)?;
    let (id, slot, chosen) = match choice {
        convert::LeaseChoice::Chosen(id) => (LeaseChoice::Chosen(id), id.slot(), Some(id)),
        convert::LeaseChoice::Near(name) => (LeaseChoice::Assigned(name.slot()), name.slot(), None),
        convert::LeaseChoice::Anywhere => {
            let slot = slot_of_client(&client_id, from);
            (LeaseChoice::Assigned(slot), slot, None)
        }
    };
    let address = from.clone();
    let revoke_on_disconnect = grant.revoke_on_disconnect;
    // A client without a client id can't grant its own lease again: the second attempt could be another client's.
    let repeats = chosen.is_some() && !client_id.is_empty();
    let command = Command::GrantLease(GrantLease { id, ttl, client_id, address, revoke_on_disconnect });
    Ok(Prepared::command(map.group_of(slot), command, About::LeaseGrant { chosen, repeats }))
}

/// Spreads clients over the slots deterministically: all leases of a client live in the same slot.
fn slot_of_client(client_id: &ClientId, from: &Address) -> Slot {
    Slot::of(&[client_id.as_bytes(), b"@", from.as_bytes()].concat())
}

pub(super) fn prepare_revoke(revoke: v1::LeaseRevokeRequest, map: &GroupMap) -> Result<Prepared, v1::Error> {
    let lease = convert::read_lease_id("id", revoke.id)?;
    let command = Command::RevokeLease(RevokeLease { lease, disconnected: None });
    Ok(Prepared::command(map.group_of(lease.slot()), command, About::LeaseRevoke(lease)))
}

pub(super) fn prepare_keep_alive(
    keep: &v1::LeaseKeepAliveRequest,
    map: &GroupMap,
    from: &Address,
) -> Result<Prepared, v1::Error> {
    let lease = convert::read_lease_id("id", keep.id)?;
    let acked = convert::read_seq_ranges("acked", &keep.acked)?;
    let address = Some(from.clone()).filter(|address| !address.is_empty());
    let group = map.group_of(lease.slot());
    let kind = Kind::KeepAlive(Renewal { lease, address, acked });
    Ok(Prepared::new(group, kind, About::KeepAlive { lease, seq: keep.seq }))
}

pub(super) fn prepare_time_to_live(
    asked: v1::LeaseTimeToLiveRequest,
    map: &GroupMap,
) -> Result<Prepared, v1::Error> {
    let lease = convert::read_lease_id("id", asked.id)?;
    let query = Query::Lease { lease, keys: asked.keys };
    let group = map.group_of(lease.slot());
    Ok(Prepared::read(
        group,
        Consistency::Linearizable,
        query,
        About::LeaseTimeToLive { lease, keys: asked.keys },
    ))
}

pub(super) fn granted(replied: &Replied<'_>) -> Wire {
    match replied.reply {
        Reply::LeaseGranted { lease, ttl, incarnation, renewed, next_seq, .. } => {
            Wire::LeaseGrant(v1::LeaseGrantResponse {
                header: replied.head(),
                id: lease.get(),
                ttl: write_seconds(ttl),
                ttl_ms: write_duration(ttl),
                incarnation: incarnation.get(),
                renewed,
                next_seq: next_seq.get(),
            })
        }
        _ => replied.does_not_fit(),
    }
}

pub(super) fn revoked(replied: &Replied<'_>) -> Wire {
    match replied.reply {
        Reply::LeaseRevoked => Wire::LeaseRevoke(v1::LeaseRevokeResponse { header: replied.head() }),
        _ => replied.does_not_fit(),
    }
}

pub(super) fn kept_alive(renewed: Renewed, seq: u64, header: &HeaderInfo, revision: Revision) -> Wire {
    let (ttl, ttl_ms) = match (renewed.result, renewed.home) {
        (Some((ttl, _)), _) => (write_seconds(ttl), write_duration(ttl)),
        // The lease may well live: the client must not be told that it has ended.
        (None, Some(home)) => {
            let rejection = Rejection::NotHome { lease: renewed.lease, home };
            return Wire::Error(error_of_rejection(&rejection, header.group));
        }
        (None, None) => (0, 0),
    };
    let (header, id) = (header.at(revision), renewed.lease.get());
    Wire::LeaseKeepAlive(v1::LeaseKeepAliveResponse { header, id, seq, ttl, ttl_ms })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_types::{DurationMs, GroupId, LeaseId, Name, SeqRanges};

    fn from() -> Address {
        Address::new("10.0.0.9:4000").unwrap()
    }

    fn grant() -> v1::LeaseGrantRequest {
        v1::LeaseGrantRequest { ttl_ms: 5_000, client_id: "w1".into(), ..Default::default() }
    }

    fn field(result: Result<Prepared, v1::Error>) -> String {
        result.unwrap_err().field
    }

    fn granted_in(request: &v1::LeaseGrantRequest, map: &GroupMap) -> (GrantLease, GroupId) {
        let prepared = prepare_grant(request, map, &from()).unwrap();
        let Kind::Command { command: Command::GrantLease(grant), fast: false } = prepared.kind else {
            panic!("a grant is a command")
        };
        (grant, prepared.group)
    }

    #[test]
    fn a_chosen_id_says_where_the_lease_lives() {
        let id = LeaseId::assigned(Slot::new(9_000).unwrap(), 5);
        let (grant, group) =
            granted_in(&v1::LeaseGrantRequest { id: id.get(), ..grant() }, &GroupMap::even(8).unwrap());
        assert_eq!(
            (grant.id, group),
            (LeaseChoice::Chosen(id), GroupMap::even(8).unwrap().group_of(id.slot()))
        );
        assert_eq!((grant.ttl, grant.address), (DurationMs::from_ms(5_000), from()));
    }

    #[test]
    fn a_lease_near_a_lock_lives_in_its_slot() {
        let slot = Name::new("jobs").unwrap().slot();
        let (grant, group) = granted_in(
            &v1::LeaseGrantRequest { near: "jobs".into(), ..grant() },
            &GroupMap::even(8).unwrap(),
        );
        assert_eq!(
            (grant.id, group),
            (LeaseChoice::Assigned(slot), GroupMap::even(8).unwrap().group_of(slot))
        );
    }

    #[test]
    fn leases_that_may_live_anywhere_spread_by_client() {
        let slot = |client: &str| slot_of_client(&ClientId::new(client).unwrap(), &from());
        assert_eq!(slot("a"), slot("a"));
        assert_ne!(slot("a"), slot("b"));
        let (grant, group) = granted_in(&grant(), &GroupMap::even(8).unwrap());
        assert_eq!(
            (grant.id, group),
            (LeaseChoice::Assigned(slot("w1")), GroupMap::even(8).unwrap().group_of(slot("w1")))
        );
    }

    #[test]
    fn bad_fields_of_lease_requests_are_named() {
        let refused = |request| field(prepare_grant(&request, &GroupMap::single(), &from()));
        assert_eq!(refused(v1::LeaseGrantRequest { ttl_ms: 0, ..grant() }), "ttl_ms");
        assert_eq!(refused(v1::LeaseGrantRequest { id: u64::MAX, ..grant() }), "id");
        assert_eq!(refused(v1::LeaseGrantRequest { client_id: "\n".into(), ..grant() }), "client_id");
        assert_eq!(refused(v1::LeaseGrantRequest { id: 3, near: "a".into(), ..grant() }), "near");
        assert_eq!(field(prepare_revoke(v1::LeaseRevokeRequest { id: 0 }, &GroupMap::single())), "id");
        let keep = v1::LeaseKeepAliveRequest {
            id: 3,
            acked: vec![v1::SeqRange { first: 2, last: 1 }],
            ..Default::default()
        };
        assert_eq!(field(prepare_keep_alive(&keep, &GroupMap::single(), &from())), "acked");
        assert_eq!(
            field(prepare_time_to_live(
                v1::LeaseTimeToLiveRequest { id: 0, keys: true },
                &GroupMap::single()
            )),
            "id"
        );
    }

    #[test]
    fn a_keepalive_says_where_its_client_is_if_that_is_known() {
        let keep = v1::LeaseKeepAliveRequest { id: 3, seq: 8, ..Default::default() };
        let renewal =
            |from: &Address| match prepare_keep_alive(&keep, &GroupMap::single(), from).unwrap().kind {
                Kind::KeepAlive(renewal) => renewal,
                kind => panic!("{kind:?}"),
            };
        assert_eq!(renewal(&from()).address, Some(from()));
        let lease = LeaseId::new(3).unwrap();
        let silent = Renewal { lease, address: None, acked: SeqRanges::default() };
        assert_eq!(renewal(&Address::NONE), silent);
    }
}
