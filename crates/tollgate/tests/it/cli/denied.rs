//! A cluster that denies every operation. Access control does not exist yet, so this one is a fake: it speaks the
//! protocol and refuses every operation.

use super::Cli;
use std::pin::Pin;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tollgate_proto::v1::operation_result::Result as OpResult;
use tollgate_proto::v1::session_service_server::{SessionService, SessionServiceServer};
use tollgate_proto::v1::{self, ErrorReason, OperationResult, SessionRequest, SessionResponse};
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

struct Closed;

#[tonic::async_trait]
impl SessionService for Closed {
    type SessionStream = Pin<Box<dyn Stream<Item = Result<SessionResponse, Status>> + Send>>;

    async fn session(
        &self,
        request: Request<Streaming<SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let mut requests = request.into_inner();
        let (answers, outgoing) = mpsc::channel(16);
        tokio::spawn(async move {
            // The greeting, as from every server.
            let _ = answers.send(Ok(SessionResponse::default())).await;
            while let Some(Ok(request)) = requests.next().await {
                let refused = |id| {
                    let error = v1::Error::new(ErrorReason::Denied, "you may not do this");
                    OperationResult { id, result: Some(OpResult::Error(error)) }
                };
                let results = request.operations.iter().map(|operation| refused(operation.id)).collect();
                if answers.send(Ok(SessionResponse { results, ..SessionResponse::default() })).await.is_err()
                {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(outgoing))))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_cluster_does_not_let_one_do_is_77() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cli = Cli::at(format!("http://{}", listener.local_addr().unwrap()));
    let serve = tonic::transport::Server::builder().add_service(SessionServiceServer::new(Closed));
    let serving = tokio::spawn(serve.serve_with_incoming(TcpIncoming::from(listener)));
    let run = tokio::task::spawn_blocking(move || cli.call(&["run", "denied", "--", "true"])).await.unwrap();
    let ended = run.with(77);
    assert!(ended.stderr.contains("you may not do this"), "{}", ended.stderr);
    serving.abort();
}
