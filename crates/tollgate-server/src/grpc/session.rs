//! `SessionService`.

use crate::grpc::address_of;
use crate::link::Purpose;
use crate::router::Router;
use crate::session::{self, FrameStream, Unread};
use std::sync::Arc;
use tollgate_proto::v1::SessionRequest;
use tollgate_proto::v1::session_service_server::SessionService;
use tonic::{Request, Response, Status, Streaming};

pub(crate) struct Sessions {
    pub(crate) router: Router,
    /// Of clients.
    pub(crate) unread: Arc<Unread>,
    /// Of those who say that they are other nodes. Anybody can say so.
    pub(crate) forwarded_unread: Arc<Unread>,
}

#[tonic::async_trait]
impl SessionService for Sessions {
    type SessionStream = FrameStream;

    async fn session(
        &self,
        request: Request<Streaming<SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (from, purpose) = (address_of(&request), Purpose::of(&request));
        let (outgoing, frames) = session::frames_queue();
        let unread = if purpose.is_none() { &self.unread } else { &self.forwarded_unread };
        let out = (outgoing, unread.open());
        tokio::spawn(session::serve(self.router.clone(), from, purpose, request.into_inner(), out));
        Ok(Response::new(frames))
    }
}
