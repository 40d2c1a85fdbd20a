//! `ElectionService`: an election is a lock that its leader holds.

use crate::grpc::{Following, Watchers, relayed, rpc, watch::backlog_too_large};
use crate::session::{Charge, FrameSender, FrameStream, OpenAccount, SendBacklog, frames_queue};
use parking_lot::Mutex;
use prost::Message;
use std::sync::Arc;
use tokio::sync::Notify;
use tollgate_gateway::Router;
use tollgate_gateway::operation::{self, Observe};
use tollgate_node::{Answer, Ask, Caller, Consistency, NodeHandle, Sight, Sink};
use tollgate_proto::v1::election_service_server::ElectionService;
use tollgate_proto::v1::{
    CampaignRequest, CampaignResponse, Error, LeaderRequest, LeaderResponse, ObserveRequest, ObserveResponse,
    ProclaimRequest, ProclaimResponse, ResignRequest, ResignResponse,
};
use tollgate_replica::{ReadError, WatchNumber};
use tonic::{Request, Response, Status};

pub(crate) struct Election {
    pub(crate) router: Router,
    pub(crate) following: Following,
    pub(crate) watchers: Watchers,
    pub(crate) unread: Arc<SendBacklog>,
}

#[tonic::async_trait]
impl ElectionService for Election {
    rpc!(campaign, CampaignRequest => Campaign, Campaign(CampaignResponse));
    rpc!(proclaim, ProclaimRequest => Proclaim, Proclaim(ProclaimResponse));
    rpc!(leader, LeaderRequest => Leader, Leader(LeaderResponse));
    rpc!(resign, ResignRequest => Resign, Resign(ResignResponse));

    type ObserveStream = FrameStream<ObserveResponse>;

    async fn observe(
        &self,
        request: Request<ObserveRequest>,
    ) -> Result<Response<Self::ObserveStream>, Status> {
        let request = request.into_inner();
        let observe = Observe::read(&request, &self.router.map())?;
        let (place, opened) = (self.watchers.place()?, self.unread.open());
        let node = match &self.following {
            Following::Here(node) => node.clone(),
            Following::Relayed(relay) => {
                return Ok(Response::new(relayed::observe(relay, (place, opened), request).await?));
            }
        };
        let (outgoing, answers) = frames_queue();
        let (router, group) = (self.router.clone(), observe.group);
        tokio::spawn(async move {
            let behind = router.clone();
            let watched = Watched { router, node, observe, changed: Arc::default(), watch: None };
            let ended = tokio::select! {
                ended = watched.follow(&outgoing, &opened) => ended,
                // The client would be left in silence.
                error = behind.until_behind(group) => Err(error),
                () = opened.until_cut() => Err(backlog_too_large(opened.bytes_max())),
            };
            if let Err(error) = ended {
                outgoing.cut(error.into());
            }
            drop(place);
        });
        Ok(Response::new(answers))
    }
}

/// Notices that the election's lock changed, and keeps nothing else of it: a client that reads slowly misses leaders in
/// between, and sees the last one.
#[derive(Default)]
struct Changed {
    told: Notify,
    /// Reason why the watch is over, until another one was opened.
    over: Mutex<Option<Over>>,
}

/// Reason why a node's watch is over.
enum Over {
    /// History up to the watch's position was compacted.
    Compacted,
    /// The watch did not begin, or this node keeps no state any more.
    Refused(ReadError),
}

impl Changed {
    fn take_over(&self) -> Option<Over> {
        self.over.lock().take()
    }
}

impl Sink for Changed {
    fn answer(&self, _: u64, answer: Answer) -> bool {
        let over = match answer {
            Answer::Compacted { .. } => Some(Over::Compacted),
            Answer::NotRead { error, .. } => Some(Over::Refused(error)),
            _ => None,
        };
        if over.is_some() {
            *self.over.lock() = over;
        }
        self.told.notify_one();
        false
    }

    fn flush(&self) {}
}

/// An observed election, and the node's watch on its lock.
struct Watched {
    router: Router,
    node: NodeHandle,
    observe: Observe,
    changed: Arc<Changed>,
    watch: Option<WatchNumber>,
}

impl Watched {
    /// Starts to watch the election's lock from now on.
    fn watch(&mut self) -> Result<(), Error> {
        let (watch, group) = (self.node.fresh_watch(), self.observe.group);
        let ask =
            Ask::Watch { watch, group, from: None, filter: Box::new(self.observe.watch()), credit: u64::MAX };
        let caller = Caller::Of(Arc::clone(&self.changed) as Arc<dyn Sink>, 0);
        let asked = self.node.ask(caller, ask);
        asked.map_err(|error| operation::error_of_not_answered(error.into(), group))?;
        self.watch = Some(watch);
        Ok(())
    }

    /// Sends the leader, first as a quorum confirmed it and then after every change, until nobody listens. The absence
    /// of a leader is sent as well, so that silence never stands for it. Fails if the leader can't be known any more.
    async fn follow(
        mut self,
        outgoing: &FrameSender<ObserveResponse>,
        opened: &OpenAccount,
    ) -> Result<(), Error> {
        self.watch()?;
        let mut told = None;
        loop {
            tokio::select! {
                () = self.changed.told.notified() => {}
                () = outgoing.closed() => return Ok(()),
                () = self.router.removed() => return Err(self.router.closed().unwrap_or_default()),
            }
            match self.changed.take_over() {
                Some(Over::Refused(error)) => return Err(operation::error_of_read(&error)),
                Some(Over::Compacted) => {
                    // The read that follows the first answer of the new watch sees the changes in between.
                    self.watch()?;
                    continue;
                }
                // The watch has begun, so this node has applied everything that was known when the watch was opened.
                None => {}
            }
            let query = self.observe.query();
            let look = move |sight: Sight<'_>| query.look(sight);
            let read = self.router.look(self.observe.group, Consistency::Stale, look).await;
            let (header, seen) = read.map_err(|error| operation::error_of_read(&error))?;
            let response = seen.observed(&header);
            // A leader may change its value under the same token.
            let now = response.leader.as_ref().map(|leader| (leader.fencing_token, leader.value_revision));
            if told == Some(now) {
                continue;
            }
            told = Some(now);
            let charge: Charge = opened.account().charge(response.encoded_len());
            if outgoing.send(response, charge).await.is_err() {
                return Ok(());
            }
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(watch) = self.watch {
            self.node.tell(Ask::Unwatch { watch });
        }
    }
}
