//! `SessionService`.

use crate::grpc::address_of;
use crate::link::Purpose;
use crate::router::Router;
use crate::session;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_proto::v1::session_service_server::SessionService;
use tollgate_proto::v1::{SessionRequest, SessionResponse};
use tonic::{Request, Response, Status, Streaming};

pub(crate) struct Sessions {
    pub(crate) router: Router,
}

#[tonic::async_trait]
impl SessionService for Sessions {
    type SessionStream = ReceiverStream<Result<SessionResponse, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (from, purpose) = (address_of(&request), Purpose::of(&request));
        let (outgoing, frames) = session::frames_channel();
        tokio::spawn(session::serve(self.router.clone(), from, purpose, request.into_inner(), outgoing));
        Ok(Response::new(ReceiverStream::new(frames)))
    }
}
