//! `SessionService`.

use crate::grpc::address_of;
use crate::metrics::Metrics;
use crate::session::{self, FrameStream, SendBacklog};
use std::sync::Arc;
use tollgate_gateway::Purpose;
use tollgate_gateway::Router;
use tollgate_proto::v1::SessionRequest;
use tollgate_proto::v1::session_service_server::SessionService;
use tonic::{Request, Response, Status, Streaming};

pub(crate) struct Sessions {
    pub(crate) router: Router,
    pub(crate) metrics: Arc<Metrics>,
    /// Account of unread results, for clients.
    pub(crate) unread: Arc<SendBacklog>,
    /// Account of unread results, for callers that claim to be other nodes. Anybody can claim that.
    pub(crate) forwarded_backlog: Arc<SendBacklog>,
    /// Maximum length of a client's operation, in bytes.
    pub(crate) bytes_max: usize,
}

#[tonic::async_trait]
impl SessionService for Sessions {
    type SessionStream = FrameStream;

    async fn session(
        &self,
        request: Request<Streaming<SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        if let Some(closed) = self.router.closed() {
            return Err(closed.into());
        }
        // A gateway leads no group: a caller that claims to have looked up the leader has not found it here.
        let purpose = Purpose::of(&request).filter(|_| self.router.node().is_some());
        let from = address_of(&request);
        let (outgoing, frames) = session::frames_queue();
        let unread = if purpose.is_none() { &self.unread } else { &self.forwarded_backlog };
        let out = (outgoing, unread.open());
        let (router, open, bytes_max) = (self.router.clone(), self.metrics.session(), self.bytes_max);
        tokio::spawn(async move {
            session::serve(router, from, purpose, bytes_max, request.into_inner(), out).await;
            drop(open);
        });
        Ok(Response::new(frames))
    }
}
