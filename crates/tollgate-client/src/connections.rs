//! Keeps a stream to the leader, or to a node that passes operations on to it; and streams to the leaders of other
//! groups.
//!
//! Any node is usable: a node that does not lead passes operations on. So the first node that answers is taken, and
//! then exchanged for the leader of the first group once that is known. Invariant: while any endpoint can be reached
//! there is a stream, or one is being opened; a stream that was exchanged is kept until the operations on it are
//! answered. Operations for another group go straight to that group's leader if there is a stream to it
//! (`group_connections`), else over the first stream. A stream to a gateway is never exchanged, and no node behind it
//! is learned, because the client may be unable to reach the nodes. Not here: the stream itself (`session_stream`),
//! the repetition of operations (`call`).

mod group_connections;

use crate::endpoint::Endpoint;
use crate::endpoints::Endpoints;
use crate::error::Error;
use crate::random;
use crate::routing_table::RoutingTable;
use crate::session_stream::SessionStream;
use group_connections::{GroupConnections, Streams};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::{Consistency, GroupsRequest, Member, MemberKind, MembersRequest, operation::Op};
use tollgate_types::{GroupId, LeaseId};
use tonic::transport::Channel;

/// Maximum time to open one stream.
const OPEN_PATIENCE: Duration = Duration::from_secs(1);

/// Delay after which the next endpoint is tried in parallel with the one before.
const STAGGER: Duration = Duration::from_millis(100);

/// Pause between two rounds over all endpoints: doubles from the first value up to the second.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Interval between two searches for the leader: doubles in the same way; the second value also applies while all is
/// well.
const LOOK_MIN: Duration = Duration::from_millis(30);
const LOOK_MAX: Duration = Duration::from_secs(5);

/// Maximum time for a node to report the leader.
const LOOK_PATIENCE: Duration = Duration::from_secs(1);

/// Keeps a stream open as long as the connections are used.
#[derive(Debug)]
pub(crate) struct Connections {
    endpoints: Arc<Endpoints>,
    current: watch::Receiver<Option<Arc<SessionStream>>>,
    /// Streams to the leaders of other groups.
    others: watch::Receiver<Streams>,
    routing_table: watch::Sender<Arc<RoutingTable>>,
    hints: Arc<Hints>,
    /// Number of leases that end when a stream closes that kept them alive: streams stay open while it is above zero.
    kept: Arc<AtomicUsize>,
    tasks: [JoinHandle<()>; 2],
}

/// Hints about the leader from answers to callers.
#[derive(Debug, Default)]
struct Hints {
    leader: Mutex<Option<Endpoint>>,
    told: Notify,
}

impl Hints {
    fn take(&self) -> Option<Endpoint> {
        self.leader.lock().take()
    }
}

impl Connections {
    /// Starts to open a stream.
    pub(crate) fn start(endpoints: Endpoints) -> Connections {
        let endpoints = Arc::new(endpoints);
        let (publish, current) = watch::channel(None);
        let (routing_table, charted) = watch::channel(Arc::new(RoutingTable::blank()));
        let (streams, others) = watch::channel(Streams::new());
        let hints = Arc::new(Hints::default());
        let kept = Arc::new(AtomicUsize::new(0));
        let maintainer = Maintainer {
            endpoints: Arc::clone(&endpoints),
            hints: Arc::clone(&hints),
            publish,
            routing_table: routing_table.clone(),
            retired: Vec::new(),
            kept: Arc::clone(&kept),
        };
        let group_connections = GroupConnections {
            endpoints: Arc::clone(&endpoints),
            routing_table: charted,
            main: current.clone(),
            streams,
            hints: Arc::clone(&hints),
            kept: Arc::clone(&kept),
        };
        let tasks = [tokio::spawn(maintainer.run()), tokio::spawn(group_connections.run())];
        Connections { endpoints, current, others, routing_table, hints, kept, tasks }
    }

    pub(crate) fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// Returns a stream, once there is one.
    pub(crate) async fn stream(&self) -> Arc<SessionStream> {
        // The usual case; waiting has the cost of registering as a waiter.
        if let Some(stream) = self.stream_now() {
            return stream;
        }
        let mut current = self.current.clone();
        let works =
            |stream: &Option<Arc<SessionStream>>| stream.as_ref().is_some_and(|stream| !stream.is_broken());
        let Ok(stream) = current.wait_for(works).await else {
            // Only while the runtime shuts down.
            return std::future::pending().await;
        };
        stream.clone().expect("that is what was waited for")
    }

    /// Returns the group of an operation, as far as is known.
    pub(crate) fn group_of(&self, op: &Op) -> GroupId {
        self.routing_table.borrow().group_of(op)
    }

    /// Returns the home group of a lease, as far as is known.
    pub(crate) fn home_of(&self, lease: LeaseId) -> GroupId {
        self.routing_table.borrow().home_of(lease)
    }

    /// Returns the stream for a group: to its leader if there is one, else any, once there is one.
    pub(crate) async fn stream_to(&self, group: GroupId) -> Arc<SessionStream> {
        match self.leaders_stream(group) {
            Some(stream) => stream,
            None => self.stream().await,
        }
    }

    /// Returns the stream that [`Connections::stream_to`] would return, if there is one now.
    pub(crate) fn stream_to_now(&self, group: GroupId) -> Option<Arc<SessionStream>> {
        self.leaders_stream(group).or_else(|| self.stream_now())
    }

    /// Returns the stream to the leader of a group, other than the first stream.
    fn leaders_stream(&self, group: GroupId) -> Option<Arc<SessionStream>> {
        let routing_table = self.routing_table.borrow();
        if routing_table.is_single() {
            return None;
        }
        let stream = self.others.borrow().get(routing_table.leader(group)?).cloned();
        stream.filter(|stream| !stream.is_broken())
    }

    /// Returns the first stream, if there is one now.
    pub(crate) fn stream_now(&self) -> Option<Arc<SessionStream>> {
        self.current.borrow().clone().filter(|stream| !stream.is_broken())
    }

    /// Completes when another stream has replaced this one.
    pub(crate) async fn replaced(&self, stream: &Arc<SessionStream>) {
        let mut current = self.current.clone();
        let other =
            |now: &Option<Arc<SessionStream>>| now.as_ref().is_some_and(|now| !Arc::ptr_eq(now, stream));
        if current.wait_for(other).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// True if the stream goes to a gateway, so that nodes may be out of reach.
    pub(crate) fn is_behind_gateway(&self) -> bool {
        self.stream_now().is_some_and(|stream| stream.is_to_gateway())
    }

    /// Keeps all streams open until [`Connections::let_streams_go`] was called as often as this.
    pub(crate) fn keep_streams(&self) {
        self.kept.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn let_streams_go(&self) {
        self.kept.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records a node's answer about the leader of a group; an empty address means that the node knows no leader.
    pub(crate) fn hint(&self, group: GroupId, leader: &str) {
        let leader = Endpoint::parse(leader).ok().filter(|_| !self.is_behind_gateway());
        let Some(leader) = leader else { return self.look_again() };
        if group != GroupId::MAP {
            self.routing_table.send_if_modified(|routing_table| {
                let news = !routing_table.is_single() && routing_table.leader(group) != Some(&leader);
                if news {
                    Arc::make_mut(routing_table).note_leader(group, leader.clone());
                }
                news
            });
            return;
        }
        *self.hints.leader.lock() = Some(leader);
        self.hints.told.notify_one();
    }

    /// Starts a search for the leader: the present stream's node may not lead.
    pub(crate) fn look_again(&self) {
        self.hints.told.notify_one();
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The task that opens streams and keeps them open.
struct Maintainer {
    endpoints: Arc<Endpoints>,
    hints: Arc<Hints>,
    publish: watch::Sender<Option<Arc<SessionStream>>>,
    routing_table: watch::Sender<Arc<RoutingTable>>,
    /// Streams to nodes that turned out not to lead, with operations in progress.
    retired: Vec<Arc<SessionStream>>,
    kept: Arc<AtomicUsize>,
}

impl Maintainer {
    async fn run(mut self) {
        loop {
            let stream = self.open_any().await;
            self.publish.send_replace(Some(Arc::clone(&stream)));
            self.hold(stream).await;
            self.publish.send_replace(None);
        }
    }

    /// Opens a stream to whichever endpoint answers first, however long that takes.
    async fn open_any(&self) -> Arc<SessionStream> {
        let mut pause = PAUSE_MIN;
        loop {
            if let Some(stream) = self.race().await {
                return stream;
            }
            tokio::time::sleep(random::jittered(pause)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Tries all endpoints, each a little after the one before, or as soon as that one has failed.
    async fn race(&self) -> Option<Arc<SessionStream>> {
        let mut order = self.endpoints.to_try();
        if let Some(leader) = self.hints.take() {
            order.retain(|endpoint| *endpoint != leader);
            order.insert(0, leader);
        }
        let mut order = order.into_iter();
        let mut opening = JoinSet::new();
        loop {
            if let Some(endpoint) = order.next() {
                opening.spawn(open(endpoint));
            } else if opening.is_empty() {
                return None;
            }
            let next_in = if order.len() > 0 { STAGGER } else { OPEN_PATIENCE * 2 };
            let opened = tokio::time::timeout(next_in, opening.join_next()).await;
            let Ok(Some(Ok((endpoint, opened)))) = opened else { continue };
            match opened {
                Ok(stream) => {
                    self.endpoints.note(&endpoint, None);
                    return Some(stream);
                }
                Err(error) => {
                    // A node that was removed names another, which may be the only way to the cluster from the given
                    // endpoints.
                    let named = error.wire().map(|wire| Endpoint::parse(&wire.leader_address));
                    if let Some(Ok(named)) = named {
                        *self.hints.leader.lock() = Some(named);
                    }
                    self.endpoints.note(&endpoint, Some(error.message().to_owned()));
                }
            }
        }
    }

    /// Holds a stream until it breaks: checks whether it goes to the leader, and exchanges it if not.
    async fn hold(&mut self, mut stream: Arc<SessionStream>) {
        let mut look_in = Duration::ZERO;
        loop {
            let broken = stream.until_broken();
            let better = tokio::select! {
                () = broken => {
                    self.endpoints.note(stream.endpoint(), Some("the connection broke".to_owned()));
                    return;
                }
                better = self.look_for_better(&stream, &mut look_in) => better,
            };
            let kept = self.kept.load(Ordering::Relaxed) > 0;
            self.retired.retain(|stream| !stream.is_broken() && (kept || stream.under_way() > 0));
            if let Some(better) = better {
                self.retired.retain(|stream| !Arc::ptr_eq(stream, &better));
                self.publish.send_replace(Some(Arc::clone(&better)));
                self.retired.push(std::mem::replace(&mut stream, better));
            }
        }
    }

    /// Checks, after a while or after a hint, whether another node leads; returns a stream to that node, if so.
    async fn look_for_better(
        &self,
        stream: &SessionStream,
        look_in: &mut Duration,
    ) -> Option<Arc<SessionStream>> {
        let told = tokio::select! {
            () = self.hints.told.notified() => true,
            () = tokio::time::sleep(random::jittered(*look_in)) => false,
        };
        if told {
            *look_in = LOOK_MIN;
        }
        let found = match self.hints.take() {
            Some(leader) => Found::Elsewhere(leader),
            None => self.look(stream).await,
        };
        match found {
            Found::Elsewhere(leader) if leader != *stream.endpoint() => {
                *look_in = (*look_in * 2).clamp(LOOK_MIN, LOOK_MAX);
                let better = self.reach(leader).await;
                if better.is_some() {
                    *look_in = Duration::ZERO;
                }
                better
            }
            Found::Nowhere => {
                *look_in = (*look_in * 2).clamp(LOOK_MIN, LOOK_MAX);
                None
            }
            // A leader will be elected soon.
            Found::Here | Found::Elsewhere(_) if self.routing_table.borrow().lacks_leaders() => {
                *look_in = (*look_in * 2).clamp(LOOK_MIN, LOOK_MAX);
                None
            }
            Found::Here | Found::Elsewhere(_) => {
                *look_in = LOOK_MAX;
                None
            }
        }
    }

    /// Returns a stream to this endpoint: a retired one, or a new one.
    async fn reach(&self, endpoint: Endpoint) -> Option<Arc<SessionStream>> {
        let reaches = |stream: &&Arc<SessionStream>| *stream.endpoint() == endpoint && !stream.is_broken();
        if let Some(stream) = self.retired.iter().find(reaches) {
            return Some(Arc::clone(stream));
        }
        let (endpoint, opened) = open(endpoint).await;
        let trouble = opened.as_ref().err().map(|error| error.message().to_owned());
        self.endpoints.note(&endpoint, trouble);
        opened.ok()
    }

    /// Asks the stream's node for the leader and for the other nodes.
    async fn look(&self, stream: &SessionStream) -> Found {
        if stream.is_to_gateway() {
            self.endpoints.learn(&[]);
            // The gateway knows the way to every leader, so the client need not.
            self.routing_table.send_replace(Arc::new(RoutingTable::blank()));
            return Found::Here;
        }
        let asked =
            tokio::time::timeout(LOOK_PATIENCE, ask_who_leads(stream.channel(), &self.endpoints)).await;
        let Ok((found, routing_table)) = asked else { return Found::Nowhere };
        // A map older than the known one comes from a node that lags behind.
        self.routing_table.send_if_modified(|known| match routing_table {
            Some(routing_table)
                if (routing_table.epoch() >= known.epoch() || routing_table.is_blank())
                    && **known != routing_table =>
            {
                *known = Arc::new(routing_table);
                true
            }
            _ => false,
        });
        found
    }
}

async fn open(endpoint: Endpoint) -> (Endpoint, Result<Arc<SessionStream>, Error>) {
    let opened = SessionStream::open(endpoint.clone(), OPEN_PATIENCE).await;
    (endpoint, opened)
}

/// Location of the leader, from a node's point of view.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Here,
    Elsewhere(Endpoint),
    Nowhere,
}

/// True if a member serves clients: a witness refuses them, and a node that has just been added may have nothing for
/// them yet.
fn serves_clients(member: &Member) -> bool {
    !matches!(member.kind(), MemberKind::Witness | MemberKind::Learner)
}

async fn ask_who_leads(channel: Channel, endpoints: &Endpoints) -> (Found, Option<RoutingTable>) {
    let mut admin = AdminServiceClient::new(channel);
    let consistency = Consistency::Stale.into();
    let request = GroupsRequest { consistency, ..Default::default() };
    let Ok(groups) = admin.groups(request).await else { return (Found::Nowhere, None) };
    let groups = groups.into_inner();
    if groups.via_gateway {
        // A load balancer between client and cluster distributes connections among gateways.
        endpoints.learn(&[]);
        return (Found::Here, Some(RoutingTable::blank()));
    }
    if let Ok(members) = admin.members(MembersRequest { consistency }).await {
        let members = members.into_inner().members;
        let members: Vec<Endpoint> = members
            .iter()
            .filter(|member| serves_clients(member))
            .filter_map(|member| Endpoint::parse(&member.client_address).ok())
            .collect();
        if !members.is_empty() {
            endpoints.learn(&members);
        }
    }
    let here = groups.header.map_or(0, |header| header.member_id);
    let found = match groups.groups.first() {
        Some(group) if group.leader_id != 0 && group.leader_id == here => Found::Here,
        Some(group) => Endpoint::parse(&group.leader_address).map_or(Found::Nowhere, Found::Elsewhere),
        None => Found::Nowhere,
    };
    (found, RoutingTable::read(&groups))
}

/// Pause before an operation that found no leader is repeated.
#[derive(Debug)]
pub(crate) struct Pause {
    next: Duration,
}

impl Pause {
    /// Creates a pause that is short at first.
    pub(crate) fn new() -> Pause {
        Pause { next: Duration::from_millis(2) }
    }

    /// Waits; longer each time, but never long, because a leader is elected soon.
    pub(crate) async fn wait(&mut self, at_least: Duration) {
        tokio::time::sleep(random::jittered(self.next).max(at_least.min(PAUSE_MAX))).await;
        self.next = (self.next * 2).min(Duration::from_millis(100));
    }
}
