//! A client's lease: granted, renewed, and given up when its client may no longer believe in it.
//!
//! Invariant (P7): a client believes at most until (time of sending the last acknowledged keepalive) + (TTL - 1 ms) x
//! (1 - 2 rho); after that it never believes in the lease nor renews it again, it only revokes it. Not here: the work
//! under the lease (`work`).

use crate::connection::{Acks, Again, Connection, Made, NewCall};
use crate::record::{RHO_PPM, Recorder, count};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tollgate_check::{At, Event, Op, Outcome};
use tollgate_proto::v1::{self, operation::Op as Wire};
use tollgate_types::LeaseId;

/// A lease that is renewed until it is over.
pub(crate) struct Session {
    pub(crate) connection: Connection,
    pub(crate) lease: LeaseId,
    pub(crate) acks: Arc<Acks>,
    ttl_ms: u64,
    until: Mutex<At>,
    seqs: AtomicU64,
    over: watch::Sender<bool>,
}

/// Returns the end of the belief in a lease, after a grant or keepalive that was sent at `sent` is acknowledged.
fn believed_until(sent: At, ttl_ms: u64) -> At {
    let parts = 1_000_000 - 2 * u64::from(RHO_PPM);
    sent.after_us((ttl_ms - 1) * parts / 1_000)
}

/// Distance from the end at which the history can't show which event came first.
const MARGIN_US: u64 = 5_000;

impl Session {
    /// Requests a lease until it is granted; `None` if no answer came within the TTL.
    pub(crate) async fn open(connection: &Connection, lease: LeaseId, ttl_ms: u64) -> Option<Arc<Session>> {
        let recorder = connection.recorder();
        let give_up = recorder.now().after_ms(ttl_ms);
        while recorder.now() < give_up {
            let request = v1::LeaseGrantRequest {
                id: lease.get(),
                ttl_ms: i64::try_from(ttl_ms).unwrap(),
                client_id: format!("client-{}", connection.client()),
                ..v1::LeaseGrantRequest::default()
            };
            let made = connection.make(NewCall {
                op: Op::GrantLease { lease: Some(lease), ttl_ms },
                group: recorder.group_of_lease(lease),
                wire: Wire::LeaseGrant(request),
                again: Again::Never,
                acks: Arc::default(),
                seq: None,
                loses_answer: false,
            });
            let sent = made.at;
            let patience = Duration::from_millis((ttl_ms / 3).min(700));
            match tokio::time::timeout(patience, made.outcome).await {
                Ok(Ok(Some(Outcome::LeaseGranted { ttl_ms, .. }))) => {
                    let until = believed_until(sent, ttl_ms);
                    if recorder.now() >= until {
                        continue;
                    }
                    recorder.record(Event::Believes { client: connection.client(), lease, until });
                    return Some(Arc::new(Session {
                        connection: connection.clone(),
                        lease,
                        acks: Arc::default(),
                        ttl_ms,
                        until: Mutex::new(until),
                        seqs: AtomicU64::new(0),
                        over: watch::Sender::new(false),
                    }));
                }
                Ok(Ok(Some(other))) => panic!("a grant was answered {other:?}"),
                Ok(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(_) => connection.give_up_node(),
            }
        }
        None
    }

    fn recorder(&self) -> &Recorder {
        self.connection.recorder()
    }

    /// Handles the acknowledgement of a keepalive sent at `sent`. An answer that comes after the belief is over changes
    /// nothing: tasks have by then given up what they held under the lease.
    fn acknowledged(&self, sent: At, ttl_ms: u64) {
        let until = believed_until(sent, ttl_ms);
        let mut known = self.until.lock();
        if until > *known && !*self.over.borrow() && self.recorder().now() < *known {
            *known = until;
            let client = self.connection.client();
            self.recorder().record(Event::Believes { client, lease: self.lease, until });
        }
    }

    /// True while the client believes in the lease.
    pub(crate) fn is_believed(&self) -> bool {
        !*self.over.borrow() && self.recorder().now() < *self.until.lock()
    }

    /// Waits until the lease is over.
    pub(crate) async fn ended(&self) {
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    fn end(&self) {
        if !self.over.send_replace(true) {
            let client = self.connection.client();
            let mut until = self.until.lock();
            let now = self.recorder().now();
            *until = now.min(*until);
            self.recorder().record(Event::Believes { client, lease: self.lease, until: now });
        }
    }

    /// Renews the lease until it is over.
    pub(crate) async fn keep(self: Arc<Session>) {
        let mut wait_ms = self.ttl_ms / 3;
        loop {
            let believed_until = *self.until.lock();
            let left = Duration::from_micros(believed_until.since(self.recorder().now()));
            tokio::select! {
                () = self.ended() => return,
                () = tokio::time::sleep(left.min(Duration::from_millis(wait_ms))) => {}
            }
            if !self.is_believed() {
                count(&self.recorder().counts.lapses);
                self.end();
                self.revoke();
                return;
            }
            wait_ms = match self.renew().await {
                Renewal::Done => self.ttl_ms / 3,
                Renewal::Lost => {
                    if self.is_believed() {
                        count(&self.recorder().counts.lost_leases);
                    }
                    self.end();
                    return;
                }
                Renewal::NotAnswered => (self.ttl_ms / 20).min(50),
            };
        }
    }

    async fn renew(&self) -> Renewal {
        let believed_until = *self.until.lock();
        let margin = At::from_us(believed_until.us().saturating_sub(MARGIN_US));
        let request =
            v1::LeaseKeepAliveRequest { id: self.lease.get(), ..v1::LeaseKeepAliveRequest::default() };
        let made = self.connection.make_before(
            margin,
            NewCall {
                op: Op::KeepAlive { lease: self.lease },
                group: self.recorder().group_of_lease(self.lease),
                wire: Wire::LeaseKeepAlive(request),
                again: Again::Never,
                acks: Arc::clone(&self.acks),
                seq: None,
                loses_answer: false,
            },
        );
        let Some(Made { at: sent, outcome, .. }) = made else { return Renewal::NotAnswered };
        match tokio::time::timeout(Duration::from_millis(self.ttl_ms / 4), outcome).await {
            Ok(Ok(Some(Outcome::Renewed { ttl_ms }))) => {
                count(&self.recorder().counts.renewals);
                self.acknowledged(sent, ttl_ms);
                Renewal::Done
            }
            Ok(Ok(Some(Outcome::LeaseNotFound))) => Renewal::Lost,
            Ok(Ok(Some(other))) => panic!("a keepalive was answered {other:?}"),
            Ok(_) => Renewal::NotAnswered,
            Err(_) => {
                self.connection.give_up_node();
                Renewal::NotAnswered
            }
        }
    }

    /// Ends the lease, now or whenever a node receives the request.
    pub(crate) fn revoke(&self) {
        self.end();
        drop(self.connection.make(NewCall {
            op: Op::RevokeLease { lease: self.lease },
            group: self.recorder().group_of_lease(self.lease),
            wire: Wire::LeaseRevoke(v1::LeaseRevokeRequest { id: self.lease.get() }),
            again: Again::NewCall,
            acks: Arc::default(),
            seq: None,
            loses_answer: false,
        }));
    }

    /// Returns the identity of the next request.
    pub(crate) fn next_request(&self) -> v1::Request {
        let seq = self.seqs.fetch_add(1, Ordering::Relaxed) + 1;
        v1::Request { seq, lease_id: self.lease.get(), ..v1::Request::default() }
    }

    /// Returns the outcome of a call; `None` if the session is over before. The call is still repeated in that case.
    pub(crate) async fn outcome(&self, made: Made) -> Option<Outcome> {
        tokio::select! {
            outcome = made.outcome => outcome.ok().flatten(),
            () = self.ended() => None,
        }
    }
}

enum Renewal {
    Done,
    Lost,
    NotAnswered,
}
