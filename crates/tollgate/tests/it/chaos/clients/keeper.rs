//! A client's sessions, one after the other, each with its workers, until no new session should begin.
//!
//! The client renews its lease by itself and does not report it. But it says how long it still believes, which
//! determines when the keepalive behind the belief was sent. Those keepalives are recorded, dated back, so that the
//! judge can hold the belief against them (P7) and the cluster against both (P5). Not here: the work under the lease
//! (`worker`).

use super::worker::Worker;
use super::{Common, WORKERS};
use crate::record::{RHO_PPM, count};
use crate::rng::Rng;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tollgate_check::{At, Event, Op, Outcome};
use tollgate_client::{Client, LeaseId, LostReason, Session};
use tollgate_types::{SLOTS, Slot};

const TTL_MS: u64 = 3_000;

/// Interval at which a session is asked how long it believes.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// Maximum difference between two consecutive readings of one clock.
const APART_US: u64 = 2_000;

/// Runs sessions with workers until no new session should begin.
pub(crate) async fn keep_working(
    client: Client,
    common: Arc<Common>,
    mut rng: Rng,
    ending: watch::Receiver<bool>,
) {
    while !*ending.borrow() {
        let Some((number, session)) = open(&client, &common, &mut rng).await else { continue };
        let over = watch::Sender::new(false);
        let mut workers = JoinSet::new();
        for _ in 0..WORKERS {
            let worker = Worker::new(Arc::clone(&common), session.clone(), Rng::new(rng.next()));
            workers.spawn(worker.run(over.subscribe(), ending.clone()));
        }
        let span = Duration::from_secs(20 + rng.below(60));
        let lost = keep(&common, number, &session, span, ending.clone()).await;
        over.send_replace(true);
        while let Some(ended) = workers.join_next().await {
            ended.unwrap();
        }
        if !lost {
            close(&common, number, session).await;
        }
        common.recorder.record(Event::ClientGone { client: number });
    }
}

/// Opens a session. Returns it with the number of its client in the history.
async fn open(client: &Client, common: &Common, rng: &mut Rng) -> Option<(u32, Session)> {
    let number = common.recorder.next_caller();
    let slot = Slot::new(u16::try_from(rng.below(u64::from(SLOTS))).unwrap()).unwrap();
    let lease = LeaseId::assigned(slot, common.next_lease());
    let group = common.recorder.group_of_lease(lease);
    let call = common.invoke_by(number, group, Op::GrantLease { lease: Some(lease), ttl_ms: TTL_MS });
    let opened = client.session().ttl(Duration::from_millis(TTL_MS)).lease_id(lease).open().await;
    let Ok(session) = opened else {
        // The lease may have been granted all the same, and then nobody renews it.
        tokio::time::sleep(Duration::from_millis(100)).await;
        return None;
    };
    let incarnation = session.incarnation();
    common.answer(call, Outcome::LeaseGranted { lease, incarnation, ttl_ms: TTL_MS, renewed: false });
    Some((number, session))
}

/// Records the beliefs of a session, until it is lost or its time is over. Returns true if it is lost.
async fn keep(
    common: &Common,
    number: u32,
    session: &Session,
    span: Duration,
    mut ending: watch::Receiver<bool>,
) -> bool {
    let recorder = &common.recorder;
    let over = recorder.now().after_us(u64::try_from(span.as_micros()).unwrap());
    let mut known = At::ZERO;
    loop {
        let now = recorder.now();
        let left_us = u64::try_from(session.remaining().as_micros()).unwrap();
        let until = now.after_us(left_us);
        if let Err(lost) = session.check() {
            gave_up(common, number, session, known.min(now), lost.reason);
            return true;
        }
        if until > known.after_us(APART_US) {
            renewed(common, number, session.lease_id(), until);
            known = until;
        }
        if now > over || *ending.borrow() {
            return false;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            _ = ending.changed() => {}
        }
    }
}

/// Records a keepalive: the belief has moved, so one was acknowledged, and its time of sending is known.
fn renewed(common: &Common, client: u32, lease: LeaseId, until: At) {
    let believed_us = (TTL_MS - 1) * (1_000_000 - 2 * u64::from(RHO_PPM)) / 1_000;
    let sent = At::from_us(until.us().saturating_sub(believed_us + APART_US));
    let (call, group) = (common.next_call(), common.recorder.group_of_lease(lease));
    let recorder = &common.recorder;
    count(&recorder.counts.renewals);
    recorder.record_at(sent, Event::Invoke { call, client, group, op: Op::KeepAlive { lease } });
    common.answer(call, Outcome::Renewed { ttl_ms: TTL_MS });
    recorder.record(Event::Believes { client, lease, until });
}

/// Records a lost session: the client revokes its lease from then on, whenever it reaches a node.
fn gave_up(common: &Common, client: u32, session: &Session, at: At, reason: LostReason) {
    let recorder = &common.recorder;
    let lease = session.lease_id();
    match reason {
        LostReason::Unreachable | LostReason::Paused => count(&recorder.counts.lapses),
        _ => count(&recorder.counts.lost_leases),
    }
    let (call, group) = (common.next_call(), recorder.group_of_lease(lease));
    recorder.record_at(at, Event::Invoke { call, client, group, op: Op::RevokeLease { lease } });
    recorder.record(Event::Believes { client, lease, until: recorder.now() });
}

async fn close(common: &Common, client: u32, session: Session) {
    let lease = session.lease_id();
    let group = common.recorder.group_of_lease(lease);
    let until = common.recorder.now();
    common.recorder.record(Event::Believes { client, lease, until });
    let call = common.invoke_by(client, group, Op::RevokeLease { lease });
    if session.close().await.is_ok() {
        common.answer(call, Outcome::LeaseRevoked);
    }
}
