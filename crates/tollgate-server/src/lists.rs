//! Reads with long answers: lists of locks and leases, and the explanation of why a lock is busy.
//!
//! A list is read from a snapshot of the state, on a thread where slow work is allowed. A gateway has a node read the
//! list, and a node that can't read a group now has the group's leader do so. Not here: reads of one thing, which are
//! operations.

use tollgate_core::Snapshot;
use tollgate_gateway::operation::{self, Explain, LeaseList, ListLocks};
use tollgate_gateway::{RELAYED_BYTES_MAX, Relay, Repeat, Router, Whom, is_passed_on, passing_on};
use tollgate_node::{Consistency, Sight};
use tollgate_proto::v1::lock_service_client::LockServiceClient;
use tollgate_proto::v1::{
    Error, ErrorReason, ExplainRequest, ExplainResponse, LeaseListRequest, LeaseListResponse,
    ListLocksRequest, ListLocksResponse,
};
use tollgate_types::{GroupId, NodeId};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

/// Origin of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// A client, or a gateway for a client.
    Client,
    /// Another node that can't read the group itself: the read is not passed on again.
    Node,
}

impl Asker {
    /// Returns the origin of a call, by its metadata.
    pub(crate) fn of<T>(request: &Request<T>) -> Asker {
        if is_passed_on(request) { Asker::Node } else { Asker::Client }
    }

    /// Returns the node to pass a read of a group on to, if this node can't answer it.
    fn reader_elsewhere(self, router: &Router, group: GroupId, consistency: Consistency) -> Option<NodeId> {
        router.reader_elsewhere(group, consistency).filter(|_| self == Asker::Client)
    }
}

/// Returns a page of locks.
pub async fn locks(
    router: &Router,
    from: Asker,
    request: ListLocksRequest,
) -> Result<ListLocksResponse, Error> {
    if let Some(relay) = router.relay() {
        return passed_on(relay, request, |mut node, request| async move { node.list_locks(request).await })
            .await;
    }
    refuse_where_closed(router)?;
    let mut next = Some(ListLocks::read(&request, &router.map())?);
    let mut response = ListLocksResponse::default();
    while let Some(list) = next {
        if let Some(reader) = from.reader_elsewhere(router, list.group(), list.consistency()) {
            let read = async |channel| node(channel).list_locks(passing_on(request)).await;
            return router.read_at(reader, read).await;
        }
        let (header, snapshot) = snapshot(router, list.group(), list.consistency()).await?;
        response.header = header;
        (next, response) = aside(move || {
            let next = list.add_to(&snapshot, &mut response);
            (next, response)
        })
        .await?;
    }
    let consistency = operation::read_consistency(request.consistency)?;
    response.missing = router.complete_locks(&mut response.locks, consistency).await;
    Ok(response)
}

/// Returns a page of leases.
pub async fn leases(
    router: &Router,
    from: Asker,
    request: LeaseListRequest,
) -> Result<LeaseListResponse, Error> {
    if let Some(relay) = router.relay() {
        return passed_on(relay, request, |mut node, request| async move { node.lease_list(request).await })
            .await;
    }
    refuse_where_closed(router)?;
    let mut next = Some(LeaseList::read(&request, &router.map())?);
    let mut response = LeaseListResponse::default();
    while let Some(list) = next {
        if let Some(reader) = from.reader_elsewhere(router, list.group(), list.consistency()) {
            let read = async |channel| node(channel).lease_list(passing_on(request)).await;
            return router.read_at(reader, read).await;
        }
        let (header, snapshot) = snapshot(router, list.group(), list.consistency()).await?;
        response.header = header;
        (next, response) = aside(move || {
            let next = list.add_to(&snapshot, &mut response);
            (next, response)
        })
        .await?;
    }
    let consistency = operation::read_consistency(request.consistency)?;
    response.missing = router.complete_leases(&mut response.leases, consistency).await;
    Ok(response)
}

/// Explains one lock in words.
pub async fn explain(
    router: &Router,
    from: Asker,
    request: ExplainRequest,
) -> Result<ExplainResponse, Error> {
    if let Some(relay) = router.relay() {
        return passed_on(relay, request, |mut node, request| async move { node.explain(request).await })
            .await;
    }
    refuse_where_closed(router)?;
    let explain = Explain::read(&request, &router.map())?;
    if let Some(reader) = from.reader_elsewhere(router, explain.group, Consistency::Linearizable) {
        let read = async |channel| node(channel).explain(passing_on(request)).await;
        return router.read_at(reader, read).await;
    }
    let query = explain.query();
    let look = move |sight: Sight<'_>| query.look(sight);
    let read = router.look(explain.group, Consistency::Linearizable, look).await;
    let (header, seen) = read.map_err(|error| operation::error_of_read(&error))?;
    let homes = router.homes(explain.leases(&seen), Consistency::Linearizable).await;
    let leader = router.status().borrow().leader(explain.group);
    Ok(explain.response(&seen, &homes, &header, leader))
}

/// Refuses reads on a witness, and on a node that was removed.
fn refuse_where_closed(router: &Router) -> Result<(), Error> {
    router.closed().map_or(Ok(()), Err)
}

/// Has a node do the read, because a gateway has no state.
async fn passed_on<R: Clone, T, F>(
    relay: &Relay,
    request: R,
    read: impl Fn(LockServiceClient<Channel>, R) -> F,
) -> Result<T, Error>
where
    F: Future<Output = Result<Response<T>, Status>>,
{
    relay.ask(Whom::Any, Repeat::Look, |channel| read(node(channel), request.clone())).await
}

fn node(channel: Channel) -> LockServiceClient<Channel> {
    LockServiceClient::new(channel).max_decoding_message_size(RELAYED_BYTES_MAX)
}

async fn snapshot(
    router: &Router,
    group: GroupId,
    consistency: Consistency,
) -> Result<(Option<tollgate_proto::v1::Header>, Snapshot), Error> {
    let consistency = router.consistency_here(group, consistency);
    let read = router.look(group, consistency, |sight| sight.state.snapshot()).await;
    let (header, snapshot) = read.map_err(|error| operation::error_of_read(&error))?;
    Ok((header.at(snapshot.revision()), snapshot))
}

/// Runs slow work on a thread where it holds up nobody.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::new(ErrorReason::Internal, format!("a list failed: {error}")))
}
