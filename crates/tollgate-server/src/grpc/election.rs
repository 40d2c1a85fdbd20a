//! `ElectionService`: an election is a lock that its leader holds.

use crate::grpc::{Watchers, rpc};
use crate::operation::{self, Observe};
use crate::router::Router;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tollgate_node::{Answer, Ask, Caller, Consistency, Sight, Sink};
use tollgate_proto::v1::election_service_server::ElectionService;
use tollgate_proto::v1::{
    CampaignRequest, CampaignResponse, Error, LeaderRequest, LeaderResponse, ObserveRequest, ObserveResponse,
    ProclaimRequest, ProclaimResponse, ResignRequest, ResignResponse,
};
use tollgate_replica::WatchNumber;
use tonic::{Request, Response, Status};

/// After a watch has ended: there may be nothing to watch here for a while.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

pub(crate) struct Election {
    pub(crate) router: Router,
    pub(crate) watchers: Watchers,
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
        let place = self.watchers.place()?;
        let (outgoing, answers) = mpsc::channel(4);
        let router = self.router.clone();
        tokio::spawn(async move {
            follow(router, observe, outgoing).await;
            drop(place);
        });
        Ok(Response::new(ReceiverStream::new(answers)))
    }
}

/// Hears that the election's lock changed, and nothing else of it: one who reads slowly misses leaders in between, and
/// sees the last.
#[derive(Default)]
struct Changed {
    told: Notify,
    /// The watch is over, and no other has begun.
    over: AtomicBool,
}

impl Sink for Changed {
    fn answer(&self, _: u64, answer: Answer) -> bool {
        if matches!(answer, Answer::Compacted { .. } | Answer::NotRead { .. }) {
            self.over.store(true, Ordering::Relaxed);
        }
        self.told.notify_one();
        false
    }

    fn flush(&self) {}
}

/// Follows the election's lock from now on.
fn watch(router: &Router, observe: &Observe, changed: &Arc<Changed>) -> Result<WatchNumber, Error> {
    let (watch, group) = (router.node().fresh_watch(), observe.group);
    let ask = Ask::Watch { watch, group, from: None, filter: observe.watch(), credit: u64::MAX };
    let asked = router.node().ask(Caller::Of(Arc::clone(changed) as Arc<dyn Sink>, 0), ask);
    asked.map_err(|_| operation::overloaded("the node has too much to do"))?;
    Ok(watch)
}

async fn follow(router: Router, observe: Observe, outgoing: mpsc::Sender<Result<ObserveResponse, Status>>) {
    let (changed, group) = (Arc::new(Changed::default()), observe.group);
    let mut watched = watch(&router, &observe, &changed);
    let mut told = None;
    loop {
        if let Err(error) = &watched {
            // Its reader may be gone.
            let _ = outgoing.send(Err(error.clone().into())).await;
            return;
        }
        tokio::select! {
            () = changed.told.notified() => {}
            () = outgoing.closed() => break,
        }
        // What happened in between is seen by the read below, or told by the new watch.
        if changed.over.swap(false, Ordering::Relaxed) {
            tokio::time::sleep(AGAIN_AFTER).await;
            watched = watch(&router, &observe, &changed);
        }
        let query = observe.query();
        let look = move |sight: Sight<'_>| query.look(sight);
        let Ok((header, seen)) = router.look(group, Consistency::Stale, look).await else { break };
        let response = seen.observed(&header);
        // Under one token a leader may say one thing after another.
        let now = response.leader.as_ref().map(|leader| (leader.fencing_token, leader.value_revision));
        if told == Some(now) || (told.is_none() && now.is_none()) {
            continue;
        }
        told = Some(now);
        if outgoing.send(Ok(response)).await.is_err() {
            break;
        }
    }
    if let Ok(watch) = watched {
        router.node().tell(Ask::Unwatch { watch });
    }
}
