//! `ElectionService`: an election is a lock that its leader holds.

use crate::grpc::rpc;
use crate::operation::{self, Observe};
use crate::router::Router;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tollgate_node::{Answer, Ask, Caller, Consistency, Sink};
use tollgate_proto::v1::election_service_server::ElectionService;
use tollgate_proto::v1::{
    CampaignRequest, CampaignResponse, LeaderRequest, LeaderResponse, ObserveRequest, ObserveResponse,
    ProclaimRequest, ProclaimResponse, ResignRequest, ResignResponse,
};
use tonic::{Request, Response, Status};

pub(crate) struct Election {
    pub(crate) router: Router,
}

#[tonic::async_trait]
impl ElectionService for Election {
    rpc!(campaign, CampaignRequest => Campaign, Campaign(CampaignResponse));
    rpc!(proclaim, ProclaimRequest => Proclaim, Proclaim(ProclaimResponse));
    rpc!(leader, LeaderRequest => Leader, Leader(LeaderResponse));
    rpc!(resign, ResignRequest => Resign, Resign(ResignResponse));

    type ObserveStream = ReceiverStream<Result<ObserveResponse, Status>>;

    async fn observe(
        &self,
        request: Request<ObserveRequest>,
    ) -> Result<Response<Self::ObserveStream>, Status> {
        let observe = Observe::read(&request.into_inner(), self.router.groups())?;
        let (outgoing, answers) = mpsc::channel(4);
        tokio::spawn(follow(self.router.clone(), observe, outgoing));
        Ok(Response::new(ReceiverStream::new(answers)))
    }
}

/// Hears that the election's lock changed, and nothing else of it: one who reads slowly misses leaders in between, and
/// sees the last.
#[derive(Default)]
struct Changed(Notify);

impl Sink for Changed {
    fn answer(&self, _: u64, _: Answer) -> bool {
        self.0.notify_one();
        false
    }

    fn flush(&self) {}
}

async fn follow(router: Router, observe: Observe, outgoing: mpsc::Sender<Result<ObserveResponse, Status>>) {
    let changed = Arc::new(Changed::default());
    let (watch, group) = (router.node().fresh_watch(), observe.group);
    let ask = Ask::Watch { watch, group, from: None, filter: observe.watch(), credit: u64::MAX };
    if router.node().ask(Caller::Of(Arc::clone(&changed) as Arc<dyn Sink>, 0), ask).is_err() {
        // Its reader may be gone.
        let _ = outgoing.send(Err(operation::overloaded("the node has too much to do").into())).await;
        return;
    }
    let mut told = None;
    loop {
        tokio::select! {
            () = changed.0.notified() => {}
            () = outgoing.closed() => break,
        }
        let query = observe.query();
        let look = move |state: &tollgate_core::State| query.look(state);
        let Ok((header, seen)) = router.look(group, Consistency::Stale, look).await else { break };
        let response = seen.observed(&header);
        let token = response.leader.as_ref().map_or(0, |leader| leader.fencing_token);
        if told == Some(token) || (told.is_none() && token == 0) {
            continue;
        }
        told = Some(token);
        if outgoing.send(Ok(response)).await.is_err() {
            break;
        }
    }
    router.node().tell(Ask::Unwatch { watch });
}
