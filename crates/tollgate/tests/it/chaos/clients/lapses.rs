//! Holders that fall silent: measures how long after the lease was due the next in line gets the lock (P5, P6).
//!
//! A lease is granted by a single call and never renewed; another client waits for its lock and sees when the lease
//! ends. Their answers go into the history, where P5 is judged; the lateness is computed by the report, from the events
//! of locks that begin with [`PREFIX`]. Not here: that report.

use super::Common;
use crate::doors::Doors;
use crate::rng::Rng;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tollgate_check::{Event, Op, Outcome, Wait};
use tollgate_client::{Client, LeaseId};
use tollgate_proto::v1::lock_service_client::LockServiceClient;
use tollgate_proto::v1::{LeaseGrantRequest, LockRequest};
use tollgate_types::{Mode, Name, Names, Owner, Revision, SLOTS, Slot, Token};
use tonic::transport::Endpoint;

/// Prefix of the names of these locks.
pub(crate) const PREFIX: &str = "lapse/";

/// TTL of each of these leases, in milliseconds.
pub(crate) const TTL_MS: u64 = 1_500;

/// Runs one silent holder after the other.
pub(crate) async fn run(client: Client, doors: Doors, common: Arc<Common>, ending: watch::Receiver<bool>) {
    let mut rng = Rng::new(0x001a_75e5);
    for number in 0_usize.. {
        if *ending.borrow() {
            return;
        }
        let name = Name::new(format!("{PREFIX}{}", number % 8)).unwrap();
        if hold_in_silence(&doors.nth(number), &name, &common, &mut rng).await.is_some() {
            wait_for(&client, &name, &common).await;
        } else {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Takes a lock under a lease that is not renewed. `None` if the grant is not known to have happened.
async fn hold_in_silence(endpoint: &str, name: &Name, common: &Common, rng: &mut Rng) -> Option<()> {
    let endpoint = Endpoint::from_shared(endpoint.to_owned()).ok()?;
    let endpoint = endpoint.connect_timeout(Duration::from_millis(300)).timeout(Duration::from_secs(1));
    let mut service = LockServiceClient::new(endpoint.connect().await.ok()?);
    let slot = Slot::new(u16::try_from(rng.below(u64::from(SLOTS))).unwrap()).unwrap();
    let lease = LeaseId::assigned(slot, common.next_lease());
    let caller = common.recorder.next_caller();
    let group = common.recorder.group_of_lease(lease);
    let call = common.invoke_by(caller, group, Op::GrantLease { lease: Some(lease), ttl_ms: TTL_MS });
    let ttl_ms = i64::try_from(TTL_MS).unwrap();
    let asked = LeaseGrantRequest { id: lease.get(), ttl_ms, ..LeaseGrantRequest::default() };
    let granted = service.lease_grant(asked).await.ok()?.into_inner();
    let incarnation = Revision::new(granted.incarnation).ok()?;
    common
        .answer(call, Outcome::LeaseGranted { lease, incarnation, ttl_ms: TTL_MS, renewed: granted.renewed });
    let (owner, mode, wait) = (Owner::LEASE, Mode::Exclusive, Wait::No);
    let op = Op::Lock { names: Names::One(name.clone()), lease, owner, mode, wait, max_hold_ms: None };
    let call = common.invoke_by(caller, common.recorder.group_of_name(name), op);
    let asked = LockRequest { name: name.to_string(), lease_id: lease.get(), ..LockRequest::default() };
    let locked = service.try_lock(asked).await;
    // The client no longer waits for an answer that did not come.
    common.recorder.record(Event::ClientGone { client: caller });
    let locked = locked.ok()?.into_inner();
    let token = Token::new(locked.fencing_token).ok().filter(|_| locked.acquired)?;
    common.answer(call, Outcome::Granted { token, create_revision: None, mode });
    Some(())
}

/// Waits in line for the lock, and releases it.
async fn wait_for(client: &Client, name: &Name, common: &Common) {
    let slot = name.slot();
    let (caller, lease) = (common.recorder.next_caller(), LeaseId::assigned(slot, common.next_lease()));
    let group = common.recorder.group_of_lease(lease);
    let ttl = Duration::from_mins(1);
    let ttl_ms = u64::try_from(ttl.as_millis()).unwrap();
    let call = common.invoke_by(caller, group, Op::GrantLease { lease: Some(lease), ttl_ms });
    let Ok(session) = client.session().ttl(ttl).lease_id(lease).open().await else { return };
    let incarnation = session.incarnation();
    common.answer(call, Outcome::LeaseGranted { lease, incarnation, ttl_ms, renewed: false });
    let (owner, names) = (Owner::new("next").unwrap(), Names::One(name.clone()));
    let (mode, wait) = (Mode::Exclusive, Wait::Forever);
    let op = Op::Lock { names: names.clone(), lease, owner: owner.clone(), mode, wait, max_hold_ms: None };
    let (call, waiter) = common.invoke(group, op);
    match session.owner(owner.to_string()).lock(name.to_string()).acquire().await {
        Ok(guard) => {
            if let Ok(token) = guard.token() {
                common.answer(call, Outcome::Granted { token, create_revision: None, mode });
            }
            let (call, _) = common.invoke(group, Op::Unlock { names, lease, owner, token: None });
            if let Ok(Some(revision)) = guard.release_at().await {
                common.answer(call, Outcome::Released { revision });
            }
        }
        Err(_) => {
            common.recorder.record(Event::ClientGone { client: waiter });
        }
    }
    common.invoke_by(caller, group, Op::RevokeLease { lease });
    let _ = session.close().await;
}
