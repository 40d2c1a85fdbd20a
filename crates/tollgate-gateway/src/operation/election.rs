//! Elections: a lock that its leader holds exclusively; the claim's value is the leader's value.
//!
//! A campaign, its grant and the leader's value are one log entry, and so are a Proclaim and the check of its token: at
//! no moment is one candidate the leader while the value is another's. Not here: waiting, which the locks provide.

use super::context::About;
use super::lock::{is_fast, leave, prepare_acquire, read_wait, release_command, request};
use super::lock_answer::Purpose;
use super::part::whole;
use super::query::Query;
use super::{Prepared, read_consistency};
use tollgate_core::{AcquireLock, Command, HolderView, LockView, Proclaim, Watch};
use tollgate_proto::{convert, v1};
use tollgate_types::{DurationMs, GroupId, GroupMap, Metadata, Mode, Name};

pub(super) fn prepare_campaign(
    campaign: &v1::CampaignRequest,
    map: &GroupMap,
) -> Result<Prepared, v1::Error> {
    let name = convert::read_name("name", &campaign.name)?;
    let lease = convert::read_lease_id("lease_id", campaign.lease_id)?;
    let owner = convert::read_owner("owner", &campaign.owner)?;
    let identity = whole(convert::read_request(Some(lease), campaign.request.as_ref())?)?;
    let wait = read_wait(campaign.timeout_ms)?;
    let value = convert::read_value("value", &campaign.value)?;
    let fast = is_fast(wait, identity.as_ref());
    let acquire = AcquireLock {
        names: name.into(),
        lease,
        owner,
        mode: Mode::Exclusive,
        wait,
        lock_delay: DurationMs::ZERO,
        max_hold: None,
        metadata: Metadata::NONE,
        // An empty value takes no space in the claim.
        value: (!value.is_empty()).then(|| value.clone()),
        attended: false,
        request: identity.map(request),
    };
    prepare_acquire(acquire, fast, Purpose::Campaign { value }, map)
}

pub(super) fn prepare_proclaim(
    proclaim: &v1::ProclaimRequest,
    map: &GroupMap,
) -> Result<Prepared, v1::Error> {
    let name = convert::read_name("name", &proclaim.name)?;
    let lease = convert::read_lease_id("lease_id", proclaim.lease_id)?;
    let owner = convert::read_owner("owner", &proclaim.owner)?;
    let token = convert::read_token("fencing_token", proclaim.fencing_token)?;
    let value = convert::read_value("value", &proclaim.value)?;
    let identity = whole(convert::read_request(Some(lease), proclaim.request.as_ref())?)?;
    let request = identity.map(request);
    let (group, seq) = (map.group_of(name.slot()), request.as_ref().map(|request| request.seq));
    let command = Command::Proclaim(Proclaim { name, lease, owner, token, value, request });
    Ok(Prepared::command(group, command, About::Proclaim { lease, seq }))
}

pub(super) fn prepare_leader(leader: &v1::LeaderRequest, map: &GroupMap) -> Result<Prepared, v1::Error> {
    let name = convert::read_name("name", &leader.name)?;
    let consistency = read_consistency(leader.consistency)?;
    let group = map.group_of(name.slot());
    Ok(Prepared::read(group, consistency, Query::Lock(name), About::Leader))
}

/// Steps down or, if neither token nor seq can be checked, also withdraws the candidacy.
pub(super) fn prepare_resign(resign: &v1::ResignRequest, map: &GroupMap) -> Result<Prepared, v1::Error> {
    let name = convert::read_name("name", &resign.name)?;
    let group = map.group_of(name.slot());
    let by_request = resign.request.as_ref();
    let release = convert::read_release(resign.lease_id, &resign.owner, resign.fencing_token, by_request)?;
    let release = match release {
        convert::Release::Holder { lease, owner, token, request } => {
            convert::Release::Holder { lease, owner, token, request: whole(request)? }
        }
        by_token @ convert::Release::Token(_) => by_token,
    };
    if let convert::Release::Holder { lease, owner, token: None, request: None } = release {
        let about = About::Resign { lease: Some(lease), seq: None };
        return Ok(Prepared::command(group, leave(name, lease, owner), about));
    }
    let (command, lease, seq) = release_command(name.into(), release);
    Ok(Prepared::command(group, command, About::Resign { lease, seq }))
}

/// Returns the leader of an election from the view of its lock; none if there is no leader.
pub fn leader_of_lock(view: &LockView) -> Option<v1::Leader> {
    let exclusive = view.holders.iter().find(|holder| holder.mode == Mode::Exclusive);
    exclusive.map(|holder| leader_of_holder(&view.name, holder))
}

pub(super) fn leader_of_holder(name: &Name, view: &HolderView) -> v1::Leader {
    v1::Leader {
        name: name.to_string(),
        lease_id: view.lease.get(),
        owner: view.owner.to_string(),
        fencing_token: view.token.get(),
        create_revision: view.create_revision.get(),
        value: view.said.as_ref().map_or_else(Vec::new, |(value, _)| value.as_bytes().to_vec()),
        value_revision: view.said.as_ref().map_or(view.token.get(), |(_, since)| since.get()),
        client_id: view.client_id.to_string(),
    }
}

/// A subscription to an election: read its lock ([`super::Seen::observed`]) first, and again whenever the watch reports
/// a change. A reading with the token and value of the last one sent is not a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observe {
    /// The election.
    pub name: Name,
    /// Group that serves the election.
    pub group: GroupId,
}

impl Observe {
    /// Reads the request.
    pub fn read(request: &v1::ObserveRequest, map: &GroupMap) -> Result<Observe, v1::Error> {
        let name = convert::read_name("name", &request.name)?;
        let group = map.group_of(name.slot());
        Ok(Observe { name, group })
    }

    /// Returns the query that reads the election's lock.
    pub fn query(&self) -> Query {
        Query::Lock(self.name.clone())
    }

    /// Returns the watch that follows the election's lock.
    pub fn watch(&self) -> Watch {
        Watch::Lock(self.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Kind;
    use tollgate_core::{ReleaseBy, Wait};

    fn campaign() -> v1::CampaignRequest {
        v1::CampaignRequest {
            name: "boss".into(),
            lease_id: 7,
            value: b"10.0.0.2".to_vec(),
            timeout_ms: -1,
            ..Default::default()
        }
    }

    fn command(prepared: Prepared) -> Command {
        match prepared.kind {
            Kind::Command { command, .. } => command,
            kind => panic!("{kind:?}"),
        }
    }

    #[test]
    fn a_campaign_takes_the_lock_exclusively_with_its_value() {
        let Command::AcquireLock(acquire) =
            command(prepare_campaign(&campaign(), &GroupMap::single()).unwrap())
        else {
            panic!("a campaign is an acquire")
        };
        assert_eq!((acquire.mode, acquire.wait), (Mode::Exclusive, Wait::Forever));
        assert_eq!(acquire.value.unwrap().as_bytes(), b"10.0.0.2");
        let silent = v1::CampaignRequest { value: Vec::new(), ..campaign() };
        let Command::AcquireLock(acquire) = command(prepare_campaign(&silent, &GroupMap::single()).unwrap())
        else {
            panic!()
        };
        assert_eq!(acquire.value, None);
    }

    #[test]
    fn a_value_is_any_bytes_up_to_its_bound() {
        let of = |value| prepare_campaign(&v1::CampaignRequest { value, ..campaign() }, &GroupMap::single());
        assert!(of(vec![0xff; 65_536]).is_ok());
        assert_eq!(of(vec![0; 65_537]).unwrap_err().field, "value");
    }

    #[test]
    fn a_proclaim_needs_a_token_and_repeats_with_a_seq() {
        let proclaim = v1::ProclaimRequest {
            name: "boss".into(),
            lease_id: 7,
            fencing_token: 4,
            value: vec![0xff],
            ..Default::default()
        };
        let nobody = v1::ProclaimRequest { fencing_token: 0, ..proclaim.clone() };
        assert_eq!(prepare_proclaim(&nobody, &GroupMap::single()).unwrap_err().field, "fencing_token");
        let plain = prepare_proclaim(&proclaim, &GroupMap::single()).unwrap();
        assert!(!plain.context.may_repeat(), "a later one may have come between");
        assert!(matches!(command(plain), Command::Proclaim(it) if it.token.get() == 4));
        let request = Some(v1::Request { seq: 4, ..Default::default() });
        let numbered =
            prepare_proclaim(&v1::ProclaimRequest { request, ..proclaim }, &GroupMap::single()).unwrap();
        assert!(numbered.context.may_repeat());
    }

    #[test]
    fn a_resign_with_token_or_seq_releases_and_one_without_leaves() {
        let resign = v1::ResignRequest { name: "boss".into(), lease_id: 7, ..Default::default() };
        let of = |request| prepare_resign(&request, &GroupMap::single()).unwrap();
        assert!(
            matches!(command(of(resign.clone())), Command::CancelWait(cancel) if cancel.release_if_granted)
        );
        let with_token = of(v1::ResignRequest { fencing_token: 4, ..resign.clone() });
        assert!(!with_token.context.may_repeat());
        assert!(matches!(command(with_token), Command::ReleaseLock(_)));
        let request = Some(v1::Request { seq: 4, ..Default::default() });
        let with_seq = of(v1::ResignRequest { request, ..resign.clone() });
        assert!(with_seq.context.may_repeat());
        assert!(matches!(command(with_seq), Command::ReleaseLock(_)));
        let by_token = of(v1::ResignRequest { lease_id: 0, fencing_token: 4, ..resign.clone() });
        let Command::ReleaseLock(release) = command(by_token) else { panic!("a release") };
        assert!(matches!(release.by, ReleaseBy::Token(_)));
        let nothing =
            prepare_resign(&v1::ResignRequest { lease_id: 0, ..resign }, &GroupMap::single()).unwrap_err();
        assert_eq!(nothing.field, "lease_id");
    }
}
