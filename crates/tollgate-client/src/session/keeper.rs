//! Keeps a lease alive, and ends the session when the lease can no longer be believed in.
//!
//! A keepalive goes out every third of the TTL, or at the interval that was set, before all other traffic. If it is
//! not answered soon, others follow over other nodes, until one is answered or the belief ends: a node that hangs must
//! not cost the lease. Invariant: nothing is renewed once the belief has ended; the lease is revoked then, unless it
//! belongs to another session. Not here: the end of the belief (`belief`).

use super::core::Core;
use crate::call::{Answered, Call};
use crate::error::Error;
use crate::multiplexer::Urgency;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};

/// Bounds for the time that a keepalive may be unanswered before another way is tried: a tenth of the TTL within these
/// bounds.
const PATIENCE_MIN: Duration = Duration::from_millis(20);
const PATIENCE_MAX: Duration = Duration::from_millis(500);

/// Outcome of a keepalive.
enum Kept {
    /// The keepalive was sent at `sent`, and the lease lives for `ttl` from there.
    Alive { sent: Duration, ttl: Duration },
    /// The lease is gone.
    Gone,
}

/// Keeps the lease alive until the session is lost or closed, and then revokes it. If the session joined the lease,
/// releases its own locks instead.
pub(super) async fn keep(core: Arc<Core>) -> Result<(), Error> {
    tokio::select! {
        () = renew_for_ever(&core) => {}
        () = until_disbelieved(&core) => core.lose(core.disbelieved()),
        _ = core.until_lost() => {}
    }
    // A lease in which the client no longer believes may live on at the cluster: its locks need not wait for its end.
    if !core.joined {
        return core.revoke().await;
    }
    // A lease that lives on keeps its locks until they are released.
    let mut releases: JoinSet<()> =
        core.client.revocation_watcher().of(&core).iter().map(|grant| grant.take_away()).collect();
    while releases.join_next().await.is_some() {}
    // It also keeps the requests that were given up.
    core.until_returned().await;
    Ok(())
}

/// Completes when the belief in the lease has ended.
async fn until_disbelieved(core: &Core) {
    loop {
        let until = core.believed_until();
        core.client.clock().sleep_until(until).await;
        if core.believed_until() == until {
            return;
        }
    }
}

/// Completes when the lease is gone.
async fn renew_for_ever(core: &Core) {
    let mut next = core.now() + core.keepalive_interval;
    loop {
        core.client.clock().sleep_until(next).await;
        // The belief may be over, for example after a sleep of the whole machine.
        if core.check().is_err() {
            return;
        }
        core.asks(Some(next));
        match renew(core).await {
            Kept::Alive { sent, ttl } => {
                core.renewed(sent, ttl);
                core.asks(None);
                next = sent + core.keepalive_interval;
            }
            Kept::Gone => {
                core.lose(core.ended_early());
                return;
            }
        }
    }
}

/// Renews the lease once, by whichever way answers first, however long it takes.
async fn renew(core: &Core) -> Kept {
    let patience = (core.ttl / 10).clamp(PATIENCE_MIN, PATIENCE_MAX);
    let straight = straight(core);
    tokio::pin!(straight);
    if let Ok(kept) = tokio::time::timeout(patience, &mut straight).await {
        return kept;
    }
    tokio::select! {
        kept = &mut straight => kept,
        kept = by_fallback(core, patience) => kept,
    }
}

/// Renews the lease over the stream that all operations use.
async fn straight(core: &Core) -> Kept {
    loop {
        let keepalive = v1::LeaseKeepAliveRequest { id: core.lease.get(), ..Default::default() };
        let mut op = Op::LeaseKeepAlive(keepalive);
        let call =
            Call { op: &mut op, until: None, urgency: Urgency::Urgent, seqs: Some(&core.seqs), begun: None };
        match core.client.carry_out(call).await {
            Ok(Answered { result: OpResult::LeaseKeepAlive(kept), last_sent, .. }) => {
                core.told(kept.header.as_ref());
                return kept_of(&kept, last_sent);
            }
            Ok(_) => return failed(core, &Error::unexpected("a keepalive")).await,
            Err(error) => match error.cause() {
                Some(v1::ErrorReason::LeaseNotFound) => return Kept::Gone,
                _ => tokio::time::sleep(PATIENCE_MAX).await,
            },
        }
    }
}

/// Waits for ever after a failed keepalive: another way may still renew the lease; and if not, the belief ends by
/// itself.
async fn failed(core: &Core, error: &Error) -> Kept {
    tracing::warn!(lease = %core.lease, %error, "a keepalive failed");
    std::future::pending().await
}

/// Renews the lease over other nodes, one after the other.
async fn by_fallback(core: &Core, patience: Duration) -> Kept {
    let connections = core.client.connections();
    let stream = connections.stream_to_now(connections.home_of(core.lease));
    loop {
        let mut others = connections.endpoints().to_try();
        if let Some(stream) = stream.as_ref().filter(|_| others.len() > 1) {
            others.retain(|endpoint| endpoint != stream.endpoint());
        }
        for endpoint in others {
            if core.check().is_err() {
                return std::future::pending().await;
            }
            let sent = core.now();
            let asked = core.client.fallback_keepalives().keep_alive(&endpoint, core.lease);
            let Ok(Ok(kept)) = tokio::time::timeout(patience, asked).await else { continue };
            if let Some(stream) = stream.as_ref().filter(|stream| stream.silence() >= patience) {
                // Other nodes answer, and this one has been silent all the while.
                stream.abandon();
            }
            return kept_of(&kept, sent);
        }
        tokio::time::sleep(PATIENCE_MIN).await;
    }
}

fn kept_of(kept: &v1::LeaseKeepAliveResponse, sent: Duration) -> Kept {
    match u64::try_from(kept.ttl_ms) {
        Ok(ttl_ms) if ttl_ms > 0 => Kept::Alive { sent, ttl: Duration::from_millis(ttl_ms) },
        _ => Kept::Gone,
    }
}
