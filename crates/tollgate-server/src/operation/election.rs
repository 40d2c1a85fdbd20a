//! Elections: a lock that its leader holds exclusively, with what the leader says of itself as the grant's metadata.
//!
//! So a campaign, its grant and the leader's value are one entry, and there is no moment with a leader and the value of
//! another. The price: a value is text, as metadata is, and can't be changed while its leader leads. A Proclaim would
//! have to check the lock's token and write a register in one entry, which the state machine can't. Not here: waiting,
//! which locks do.

use super::context::About;
use super::error::not_supported;
use super::lock::{is_fast, leave, prepare_acquire, read_wait, release_command, request};
use super::lock_answer::Purpose;
use super::query::Query;
use super::route::group_of;
use super::{Prepared, read_consistency};
use tollgate_core::{AcquireLock, HolderView, LockView, Watch};
use tollgate_proto::{BadField, convert, v1};
use tollgate_types::{DurationMs, GroupId, Metadata, Mode, Name};

pub(super) fn prepare_campaign(campaign: &v1::CampaignRequest, groups: u32) -> Result<Prepared, v1::Error> {
    let name = convert::read_name("name", &campaign.name)?;
    let lease = convert::read_lease_id("lease_id", campaign.lease_id)?;
    let owner = convert::read_owner("owner", &campaign.owner)?;
    let identity = convert::read_request(Some(lease), campaign.request.as_ref())?;
    let wait = read_wait(campaign.timeout_ms)?;
    let value = read_value(&campaign.value)?;
    let fast = is_fast(wait, identity.as_ref());
    let acquire = AcquireLock {
        names: name.into(),
        lease,
        owner,
        mode: Mode::Exclusive,
        wait,
        lock_delay: DurationMs::ZERO,
        max_hold: None,
        metadata: value.clone(),
        attended: false,
        request: identity.map(request),
    };
    prepare_acquire(acquire, fast, Purpose::Campaign { value }, groups)
}

fn read_value(value: &[u8]) -> Result<Metadata, BadField> {
    Metadata::new(value).map_err(|invalid| {
        let says =
            format!("{invalid}; this version keeps a leader's value as text: put bytes into a register");
        BadField::new("value", says)
    })
}

pub(super) fn prepare_proclaim(proclaim: &v1::ProclaimRequest) -> Result<Prepared, v1::Error> {
    convert::read_name("name", &proclaim.name)?;
    Err(not_supported(
        "a leader's value can't be changed yet: resign and campaign with the new one, or keep what changes in a \
         register that hangs on the leader's lease",
    ))
}

pub(super) fn prepare_leader(leader: &v1::LeaderRequest, groups: u32) -> Result<Prepared, v1::Error> {
    let name = convert::read_name("name", &leader.name)?;
    let consistency = read_consistency(leader.consistency)?;
    let group = group_of(name.slot(), groups);
    Ok(Prepared::read(group, consistency, Query::Lock(name), About::Leader))
}

/// Steps down or, if neither token nor seq is there to be checked, stops standing for election as well.
pub(super) fn prepare_resign(resign: &v1::ResignRequest, groups: u32) -> Result<Prepared, v1::Error> {
    let name = convert::read_name("name", &resign.name)?;
    let group = group_of(name.slot(), groups);
    let by_request = resign.request.as_ref();
    let release = convert::read_release(resign.lease_id, &resign.owner, resign.fencing_token, by_request)?;
    if let convert::Release::Holder { lease, owner, token: None, request: None } = release {
        let about = About::Resign { lease: Some(lease), seq: None };
        return Ok(Prepared::command(group, leave(name, lease, owner), about));
    }
    let (command, lease, seq) = release_command(name.into(), release);
    Ok(Prepared::command(group, command, About::Resign { lease, seq }))
}

/// The leader of an election, seen as a lock; none if nobody leads.
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
        value: view.metadata.as_bytes().to_vec(),
        value_revision: view.token.get(),
        client_id: view.client_id.to_string(),
    }
}

/// An election to follow: look at its lock ([`super::Seen::observed`]) at first, and again whenever the watch tells of
/// a change; what has the token of the last one sent is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observe {
    /// The election.
    pub name: Name,
    /// Where it is held.
    pub group: GroupId,
}

impl Observe {
    /// Reads the request.
    pub fn read(request: &v1::ObserveRequest, groups: u32) -> Result<Observe, v1::Error> {
        let name = convert::read_name("name", &request.name)?;
        let group = group_of(name.slot(), groups);
        Ok(Observe { name, group })
    }

    /// What to look at.
    pub fn query(&self) -> Query {
        Query::Lock(self.name.clone())
    }

    /// What to follow.
    pub fn watch(&self) -> Watch {
        Watch::Lock(self.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Kind;
    use tollgate_core::{Command, ReleaseBy, Wait};

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
        let Command::AcquireLock(acquire) = command(prepare_campaign(&campaign(), 1).unwrap()) else {
            panic!("a campaign is an acquire")
        };
        assert_eq!((acquire.mode, acquire.wait), (Mode::Exclusive, Wait::Forever));
        assert_eq!(acquire.metadata.as_bytes(), b"10.0.0.2");
    }

    #[test]
    fn a_value_that_is_no_text_is_refused() {
        let error =
            prepare_campaign(&v1::CampaignRequest { value: vec![0xff], ..campaign() }, 1).unwrap_err();
        assert_eq!(error.field, "value");
        assert!(error.message.contains("register"), "{}", error.message);
    }

    #[test]
    fn a_proclaim_is_not_supported_and_says_what_to_do() {
        let proclaim = v1::ProclaimRequest { name: "boss".into(), ..Default::default() };
        let error = prepare_proclaim(&proclaim).unwrap_err();
        assert_eq!(error.reason(), v1::ErrorReason::NotSupported);
        assert!(error.message.contains("resign and campaign"));
    }

    #[test]
    fn a_resign_with_token_or_seq_releases_and_one_without_leaves() {
        let resign = v1::ResignRequest { name: "boss".into(), lease_id: 7, ..Default::default() };
        let of = |request| prepare_resign(&request, 1).unwrap();
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
        let nothing = prepare_resign(&v1::ResignRequest { lease_id: 0, ..resign }, 1).unwrap_err();
        assert_eq!(nothing.field, "lease_id");
    }
}
