//! Availability probe of a group: a lock that nobody else wants is taken and released several times a second. While
//! that has gaps, the group was not available.
//!
//! Not here: measuring the gaps (`report`).

use super::Common;
use crate::record::count;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tollgate_check::{Op, Outcome, Wait};
use tollgate_client::{Client, LeaseId, Session};
use tollgate_types::{GroupId, Mode, Name, Names, Owner};

/// Far longer than any fault lasts, so that the probe measures the cluster and not its own lease.
const TTL: Duration = Duration::from_mins(2);

/// Pause between two successful grants.
const EVERY: Duration = Duration::from_millis(100);

pub(crate) async fn run(client: Client, group: GroupId, common: Arc<Common>, ending: watch::Receiver<bool>) {
    let name = common.recorder.name_in(group, "probe");
    while !*ending.borrow() {
        let caller = common.recorder.next_caller();
        let lease = LeaseId::assigned(name.slot(), common.next_lease());
        let ttl_ms = u64::try_from(TTL.as_millis()).unwrap();
        let group = common.recorder.group_of_lease(lease);
        let call = common.invoke_by(caller, group, Op::GrantLease { lease: Some(lease), ttl_ms });
        let Ok(session) = client.session().ttl(TTL).lease_id(lease).open().await else { continue };
        let incarnation = session.incarnation();
        common.answer(call, Outcome::LeaseGranted { lease, incarnation, ttl_ms, renewed: false });
        while !*ending.borrow() && session.check().is_ok() {
            take_and_give_back(&session, &name, &common).await;
            tokio::time::sleep(EVERY).await;
        }
        common.invoke_by(caller, group, Op::RevokeLease { lease });
        let _ = session.close().await;
    }
}

async fn take_and_give_back(session: &Session, name: &Name, common: &Common) {
    let (lease, owner) = (session.lease_id(), Owner::new("probe").unwrap());
    let (group, names) = (common.recorder.group_of_name(name), Names::One(name.clone()));
    let (mode, wait) = (Mode::Exclusive, Wait::Forever);
    let op = Op::Lock { names: names.clone(), lease, owner: owner.clone(), mode, wait, max_hold_ms: None };
    let (call, caller) = common.invoke(group, op);
    let Ok(guard) = session.owner(owner.to_string()).lock(name.to_string()).acquire().await else {
        common.recorder.record(tollgate_check::Event::ClientGone { client: caller });
        return;
    };
    let Ok(token) = guard.token() else { return };
    common.answer(call, Outcome::Granted { token, create_revision: None, mode });
    count(&common.recorder.counts.grants);
    let (call, _) = common.invoke(group, Op::Unlock { names, lease, owner, token: None });
    if let Ok(Some(revision)) = guard.release_at().await {
        common.answer(call, Outcome::Released { revision });
    }
}
