//! Keeps a line to the leader, or to a node that passes operations on to it; and lines to the leaders of other groups.
//!
//! Any node is usable: a node that does not lead passes operations on. So the first node that answers is taken, and
//! then exchanged for the leader of the first group once that is known. Invariant: while any endpoint can be reached
//! there is a line, or one is being opened; a line that was exchanged is kept until the operations on it are answered.
//! Operations for another group go straight to that group's leader if there is a line to it (`tender`), else over the
//! first line. A line to a gateway is never exchanged, and no node behind it is learned, because the client may be
//! unable to reach the nodes. Not here: the traffic on lines (`line`), the repetition of operations (`call`).

mod tender;

use crate::chart::Chart;
use crate::endpoint::Endpoint;
use crate::endpoints::Endpoints;
use crate::error::Error;
use crate::line::Line;
use crate::random;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tender::{Lines, Tender};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::{Consistency, GroupsRequest, Member, MemberKind, MembersRequest, operation::Op};
use tollgate_types::{GroupId, LeaseId};
use tonic::transport::Channel;

/// Maximum time to open one line.
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

/// Keeps a line open as long as the pilot lives.
#[derive(Debug)]
pub(crate) struct Pilot {
    endpoints: Arc<Endpoints>,
    current: watch::Receiver<Option<Arc<Line>>>,
    /// Lines to the leaders of other groups.
    others: watch::Receiver<Lines>,
    chart: watch::Sender<Arc<Chart>>,
    hints: Arc<Hints>,
    /// Number of leases that end when a line closes that kept them alive: lines stay open while it is above zero.
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
        self.leader.lock().expect("nobody panics with it").take()
    }
}

impl Pilot {
    /// Starts to open a line.
    pub(crate) fn start(endpoints: Endpoints) -> Pilot {
        let endpoints = Arc::new(endpoints);
        let (publish, current) = watch::channel(None);
        let (chart, charted) = watch::channel(Arc::new(Chart::blank()));
        let (lines, others) = watch::channel(Lines::new());
        let hints = Arc::new(Hints::default());
        let kept = Arc::new(AtomicUsize::new(0));
        let helm = Helm {
            endpoints: Arc::clone(&endpoints),
            hints: Arc::clone(&hints),
            publish,
            chart: chart.clone(),
            retired: Vec::new(),
            kept: Arc::clone(&kept),
        };
        let tender = Tender {
            endpoints: Arc::clone(&endpoints),
            chart: charted,
            main: current.clone(),
            lines,
            hints: Arc::clone(&hints),
            kept: Arc::clone(&kept),
        };
        let tasks = [tokio::spawn(helm.run()), tokio::spawn(tender.run())];
        Pilot { endpoints, current, others, chart, hints, kept, tasks }
    }

    pub(crate) fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// Returns a line, once there is one.
    pub(crate) async fn line(&self) -> Arc<Line> {
        // The usual case; waiting has the cost of registering as a waiter.
        if let Some(line) = self.line_now() {
            return line;
        }
        let mut current = self.current.clone();
        let works = |line: &Option<Arc<Line>>| line.as_ref().is_some_and(|line| !line.is_broken());
        let Ok(line) = current.wait_for(works).await else {
            // Only while the runtime shuts down.
            return std::future::pending().await;
        };
        line.clone().expect("that is what was waited for")
    }

    /// Returns the group of an operation, as far as is known.
    pub(crate) fn group_of(&self, op: &Op) -> GroupId {
        self.chart.borrow().group_of(op)
    }

    /// Returns the home group of a lease, as far as is known.
    pub(crate) fn home_of(&self, lease: LeaseId) -> GroupId {
        self.chart.borrow().home_of(lease)
    }

    /// Returns the line for a group: to its leader if there is one, else any, once there is one.
    pub(crate) async fn line_to(&self, group: GroupId) -> Arc<Line> {
        match self.leaders_line(group) {
            Some(line) => line,
            None => self.line().await,
        }
    }

    /// Returns the line that [`Pilot::line_to`] would return, if there is one now.
    pub(crate) fn line_to_now(&self, group: GroupId) -> Option<Arc<Line>> {
        self.leaders_line(group).or_else(|| self.line_now())
    }

    /// Returns the line to the leader of a group, other than the first line.
    fn leaders_line(&self, group: GroupId) -> Option<Arc<Line>> {
        let chart = self.chart.borrow();
        if chart.is_single() {
            return None;
        }
        let line = self.others.borrow().get(chart.leader(group)?).cloned();
        line.filter(|line| !line.is_broken())
    }

    /// Returns the first line, if there is one now.
    pub(crate) fn line_now(&self) -> Option<Arc<Line>> {
        self.current.borrow().clone().filter(|line| !line.is_broken())
    }

    /// Completes when another line has replaced this one.
    pub(crate) async fn replaced(&self, line: &Arc<Line>) {
        let mut current = self.current.clone();
        let other = |now: &Option<Arc<Line>>| now.as_ref().is_some_and(|now| !Arc::ptr_eq(now, line));
        if current.wait_for(other).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// True if the line goes to a gateway, so that nodes may be out of reach.
    pub(crate) fn is_behind_gateway(&self) -> bool {
        self.line_now().is_some_and(|line| line.is_to_gateway())
    }

    /// Keeps all lines open until [`Pilot::let_lines_go`] was called as often as this.
    pub(crate) fn keep_lines(&self) {
        self.kept.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn let_lines_go(&self) {
        self.kept.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records a node's answer about the leader of a group; an empty address means that the node knows no leader.
    pub(crate) fn hint(&self, group: GroupId, leader: &str) {
        let leader = Endpoint::parse(leader).ok().filter(|_| !self.is_behind_gateway());
        let Some(leader) = leader else { return self.look_again() };
        if group != GroupId::MAP {
            self.chart.send_if_modified(|chart| {
                let news = !chart.is_single() && chart.leader(group) != Some(&leader);
                if news {
                    Arc::make_mut(chart).note_leader(group, leader.clone());
                }
                news
            });
            return;
        }
        *self.hints.leader.lock().expect("nobody panics with it") = Some(leader);
        self.hints.told.notify_one();
    }

    /// Starts a search for the leader: the present line's node may not lead.
    pub(crate) fn look_again(&self) {
        self.hints.told.notify_one();
    }
}

impl Drop for Pilot {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Task behind a pilot.
struct Helm {
    endpoints: Arc<Endpoints>,
    hints: Arc<Hints>,
    publish: watch::Sender<Option<Arc<Line>>>,
    chart: watch::Sender<Arc<Chart>>,
    /// Lines to nodes that turned out not to lead, with operations in progress.
    retired: Vec<Arc<Line>>,
    kept: Arc<AtomicUsize>,
}

impl Helm {
    async fn run(mut self) {
        loop {
            let line = self.open_any().await;
            self.publish.send_replace(Some(Arc::clone(&line)));
            self.hold(line).await;
            self.publish.send_replace(None);
        }
    }

    /// Opens a line to whichever endpoint answers first, however long that takes.
    async fn open_any(&self) -> Arc<Line> {
        let mut pause = PAUSE_MIN;
        loop {
            if let Some(line) = self.race().await {
                return line;
            }
            tokio::time::sleep(random::jittered(pause)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Tries all endpoints, each a little after the one before, or as soon as that one has failed.
    async fn race(&self) -> Option<Arc<Line>> {
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
                Ok(line) => {
                    self.endpoints.note(&endpoint, None);
                    return Some(line);
                }
                Err(error) => {
                    // A node that was removed names another, which may be the only way to the cluster from the given
                    // endpoints.
                    let named = error.wire().map(|wire| Endpoint::parse(&wire.leader_address));
                    if let Some(Ok(named)) = named {
                        *self.hints.leader.lock().expect("nobody panics with it") = Some(named);
                    }
                    self.endpoints.note(&endpoint, Some(error.message().to_owned()));
                }
            }
        }
    }

    /// Holds a line until it breaks: checks whether it goes to the leader, and exchanges it if not.
    async fn hold(&mut self, mut line: Arc<Line>) {
        let mut look_in = Duration::ZERO;
        loop {
            let broken = line.until_broken();
            let better = tokio::select! {
                () = broken => {
                    self.endpoints.note(line.endpoint(), Some("the connection broke".to_owned()));
                    return;
                }
                better = self.look_for_better(&line, &mut look_in) => better,
            };
            let kept = self.kept.load(Ordering::Relaxed) > 0;
            self.retired.retain(|line| !line.is_broken() && (kept || line.under_way() > 0));
            if let Some(better) = better {
                self.retired.retain(|line| !Arc::ptr_eq(line, &better));
                self.publish.send_replace(Some(Arc::clone(&better)));
                self.retired.push(std::mem::replace(&mut line, better));
            }
        }
    }

    /// Checks, after a while or after a hint, whether another node leads; returns a line to that node, if so.
    async fn look_for_better(&self, line: &Line, look_in: &mut Duration) -> Option<Arc<Line>> {
        let told = tokio::select! {
            () = self.hints.told.notified() => true,
            () = tokio::time::sleep(random::jittered(*look_in)) => false,
        };
        if told {
            *look_in = LOOK_MIN;
        }
        let found = match self.hints.take() {
            Some(leader) => Found::Elsewhere(leader),
            None => self.look(line).await,
        };
        match found {
            Found::Elsewhere(leader) if leader != *line.endpoint() => {
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
            Found::Here | Found::Elsewhere(_) if self.chart.borrow().lacks_leaders() => {
                *look_in = (*look_in * 2).clamp(LOOK_MIN, LOOK_MAX);
                None
            }
            Found::Here | Found::Elsewhere(_) => {
                *look_in = LOOK_MAX;
                None
            }
        }
    }

    /// Returns a line to this endpoint: a retired one, or a new one.
    async fn reach(&self, endpoint: Endpoint) -> Option<Arc<Line>> {
        let reaches = |line: &&Arc<Line>| *line.endpoint() == endpoint && !line.is_broken();
        if let Some(line) = self.retired.iter().find(reaches) {
            return Some(Arc::clone(line));
        }
        let (endpoint, opened) = open(endpoint).await;
        let trouble = opened.as_ref().err().map(|error| error.message().to_owned());
        self.endpoints.note(&endpoint, trouble);
        opened.ok()
    }

    /// Asks the line's node for the leader and for the other nodes.
    async fn look(&self, line: &Line) -> Found {
        if line.is_to_gateway() {
            self.endpoints.learn(&[]);
            // The gateway knows the way to every leader, so the client need not.
            self.chart.send_replace(Arc::new(Chart::blank()));
            return Found::Here;
        }
        let asked = tokio::time::timeout(LOOK_PATIENCE, ask_who_leads(line.channel(), &self.endpoints)).await;
        let Ok((found, chart)) = asked else { return Found::Nowhere };
        // A map older than the known one comes from a node that lags behind.
        self.chart.send_if_modified(|known| match chart {
            Some(chart) if (chart.epoch() >= known.epoch() || chart.is_blank()) && **known != chart => {
                *known = Arc::new(chart);
                true
            }
            _ => false,
        });
        found
    }
}

async fn open(endpoint: Endpoint) -> (Endpoint, Result<Arc<Line>, Error>) {
    let opened = Line::open(endpoint.clone(), OPEN_PATIENCE).await;
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

async fn ask_who_leads(channel: Channel, endpoints: &Endpoints) -> (Found, Option<Chart>) {
    let mut admin = AdminServiceClient::new(channel);
    let consistency = Consistency::Stale.into();
    let request = GroupsRequest { consistency, ..Default::default() };
    let Ok(groups) = admin.groups(request).await else { return (Found::Nowhere, None) };
    let groups = groups.into_inner();
    if groups.via_gateway {
        // A load balancer between client and cluster distributes connections among gateways.
        endpoints.learn(&[]);
        return (Found::Here, Some(Chart::blank()));
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
    (found, Chart::read(&groups))
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
