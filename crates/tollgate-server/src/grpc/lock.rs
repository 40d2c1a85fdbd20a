//! `LockService`: locks and leases; watches are in `watch`.

use crate::grpc::{Following, Watchers, address_of, relayed, rpc, undelivered, watch};
use crate::lists::{self, Asker};
use crate::session::{FrameStream, SendBacklog, draining};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_gateway::Router;
use tollgate_proto::v1::lock_service_server::LockService;
use tollgate_proto::v1::{
    CancelWaitRequest, CancelWaitResponse, ConvertRequest, Error, ErrorReason, ExplainRequest,
    ExplainResponse, ForceReleaseRequest, ForceReleaseResponse, GetLockRequest, GetLockResponse,
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseListRequest,
    LeaseListResponse, LeaseRevokeRequest, LeaseRevokeResponse, LeaseTimeToLiveRequest,
    LeaseTimeToLiveResponse, ListLocksRequest, ListLocksResponse, LockRequest, LockResponse, UnlockRequest,
    UnlockResponse, WatchRequest, WatchResponse, operation::Op, operation_result::Result as OpResult,
};
use tonic::{Request, Response, Status, Streaming};

/// Maximum number of keepalives under way on one stream; past it, the stream is not read any further.
const KEEPALIVES_MAX: usize = 1_024;

pub(crate) struct Locks {
    pub(crate) router: Router,
    pub(crate) following: Following,
    pub(crate) watchers: Watchers,
    pub(crate) unread: Arc<SendBacklog>,
    /// Maximum length of a client's message, in bytes.
    pub(crate) bytes_max: usize,
}

#[tonic::async_trait]
impl LockService for Locks {
    rpc!(lock, LockRequest => Lock, Lock(LockResponse));
    rpc!(try_lock, LockRequest => TryLock, Lock(LockResponse));
    rpc!(unlock, UnlockRequest => Unlock, Unlock(UnlockResponse));
    rpc!(convert, ConvertRequest => Convert, Lock(LockResponse));
    rpc!(cancel_wait, CancelWaitRequest => CancelWait, CancelWait(CancelWaitResponse));
    rpc!(lease_grant, LeaseGrantRequest => LeaseGrant, LeaseGrant(LeaseGrantResponse));
    rpc!(lease_revoke, LeaseRevokeRequest => LeaseRevoke, LeaseRevoke(LeaseRevokeResponse));
    rpc!(
        lease_time_to_live,
        LeaseTimeToLiveRequest => LeaseTimeToLive,
        LeaseTimeToLive(LeaseTimeToLiveResponse)
    );
    rpc!(get_lock, GetLockRequest => GetLock, GetLock(GetLockResponse));
    rpc!(force_release, ForceReleaseRequest => ForceRelease, ForceRelease(ForceReleaseResponse));

    type LeaseKeepAliveStream = ReceiverStream<Result<LeaseKeepAliveResponse, Status>>;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let (router, from, bytes_max) = (self.router.clone(), address_of(&request), self.bytes_max);
        let mut incoming = request.into_inner();
        let (outgoing, answers) = mpsc::channel(KEEPALIVES_MAX);
        tokio::spawn(async move {
            loop {
                let keepalive = tokio::select! {
                    keepalive = incoming.next() => keepalive,
                    () = router.until_draining() => {
                        // All places are free again once every keepalive under way was answered and the answer was
                        // read.
                        if let Ok(mut places) = outgoing.reserve_many(KEEPALIVES_MAX).await
                            && let Some(place) = places.next()
                        {
                            place.send(Err(draining().into()));
                        }
                        return;
                    }
                };
                let keepalive = match keepalive {
                    Some(Ok(keepalive)) => keepalive,
                    Some(Err(status)) => {
                        if let Some(error) = undelivered(&status, bytes_max) {
                            // A client that does not read its answers misses this error.
                            let _ = outgoing.send(Err(error.into())).await;
                        }
                        return;
                    }
                    None => return,
                };
                // A place for the answer is reserved first: a client that reads no answers is not read from any
                // further.
                let Ok(place) = outgoing.clone().reserve_owned().await else { return };
                let (router, from) = (router.clone(), from.clone());
                tokio::spawn(async move {
                    let answer = match router.execute(Op::LeaseKeepAlive(keepalive), &from).await {
                        OpResult::LeaseKeepAlive(answer) => Ok(answer),
                        OpResult::Error(error) => Err(error.into()),
                        _ => {
                            let says = "a keepalive had another operation's result: report it";
                            Err(Error::new(ErrorReason::Internal, says).into())
                        }
                    };
                    place.send(answer);
                });
            }
        });
        Ok(Response::new(ReceiverStream::new(answers)))
    }

    type WatchStream = FrameStream<WatchResponse>;

    async fn watch(
        &self,
        request: Request<Streaming<WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (opened, incoming) = (self.unread.open(), request.into_inner());
        Ok(Response::new(match &self.following {
            Following::Here(node) => {
                let served = (self.router.clone(), node.clone());
                watch::serve(served, self.watchers.clone(), opened, incoming, self.bytes_max)
            }
            Following::Relayed(relay) => {
                relayed::watch(relay, (self.watchers.place()?, opened), incoming, self.bytes_max).await?
            }
        }))
    }

    async fn lease_list(
        &self,
        request: Request<LeaseListRequest>,
    ) -> Result<Response<LeaseListResponse>, Status> {
        let from = Asker::of(&request);
        Ok(Response::new(lists::leases(&self.router, from, request.into_inner()).await?))
    }

    async fn list_locks(
        &self,
        request: Request<ListLocksRequest>,
    ) -> Result<Response<ListLocksResponse>, Status> {
        let from = Asker::of(&request);
        Ok(Response::new(lists::locks(&self.router, from, request.into_inner()).await?))
    }

    async fn explain(&self, request: Request<ExplainRequest>) -> Result<Response<ExplainResponse>, Status> {
        let from = Asker::of(&request);
        Ok(Response::new(lists::explain(&self.router, from, request.into_inner()).await?))
    }
}
