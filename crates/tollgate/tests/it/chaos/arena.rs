//! The cluster under faults: which nodes are broken, which connections are cut, and what was done.
//!
//! There are as many places as the cluster has nodes; in a place one node may follow another, under another id. A
//! gateway has a mutex of its own as well. Invariant: a node belongs to the one fault that holds its mutex; the
//! connections are the combination of all cuts that are in effect. A node that joined later is dialled at one entrance,
//! so a cut that only some of the others should notice is made on its own side alone. Not here: the timing of faults
//! (`lane`) and their effects (`faults`).

use super::access::Access;
use super::arrival::{Arrival, Cradle, Seat};
use super::fault_log::FaultLog;
use super::faults::{Draw, FaultKind};
use crate::cluster::{Cluster, Node, NodePorts};
use crate::proxy::{Links, Way};
use crate::record::Recorder;
use parking_lot::Mutex as Plain;
use std::collections::BTreeMap;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, MutexGuard, RwLock};
use tollgate_proto::v1::Role;

/// A node that is well again and not ready after this time never will be.
pub(crate) const RECOVERY: Duration = Duration::from_mins(1);

/// Connections that one fault cuts: from, to, and the state of the connection.
pub(crate) type Cut = Vec<(usize, usize, Way)>;

pub(crate) struct Arena {
    nodes: Vec<Mutex<Node>>,
    gateways: Vec<Mutex<Node>>,
    /// Facts about the nodes that can be read without their mutexes.
    seats: Plain<Vec<Seat>>,
    cradle: Cradle,
    pub(crate) access: Access,
    links: Plain<Links>,
    cuts: Plain<BTreeMap<u64, Cut>>,
    /// Shared by faults of one node; locked exclusively by faults of the whole cluster.
    pub(crate) gate: RwLock<()>,
    /// Locked by the one change of members that is under way.
    pub(crate) membership: Mutex<()>,
    recorder: Arc<Recorder>,
    log: Plain<FaultLog>,
    problems: Plain<Vec<String>>,
}

/// Number of last log lines of a node that are repeated when something is wrong with it.
const LINES_TOLD: usize = 12;

impl Arena {
    /// Takes the nodes and gateways of a cluster, until they are given back. `flags` are for nodes that join the
    /// cluster.
    pub(crate) fn around(
        cluster: &mut Cluster,
        access: Access,
        flags: &[&str],
        recorder: Arc<Recorder>,
    ) -> Arc<Arena> {
        let nodes = std::mem::take(&mut cluster.nodes);
        let gateways = std::mem::take(&mut cluster.gateways);
        let links = cluster.links.take().expect("the nodes of this cluster meet through proxies");
        let cradle = Cradle {
            cluster: cluster.name().to_owned(),
            dir: cluster.dir.path().to_owned(),
            flags: flags.iter().map(ToString::to_string).collect(),
        };
        Arc::new(Arena {
            seats: Plain::new(nodes.iter().map(|node| Seat { id: node.id, ports: node.ports }).collect()),
            nodes: nodes.into_iter().map(Mutex::new).collect(),
            gateways: gateways.into_iter().map(Mutex::new).collect(),
            cradle,
            access,
            links: Plain::new(links),
            cuts: Plain::default(),
            gate: RwLock::new(()),
            membership: Mutex::new(()),
            recorder,
            log: Plain::default(),
            problems: Plain::default(),
        })
    }

    /// Gives nodes and gateways back once all is well again. Returns the log of faults, and problems other than broken
    /// promises.
    pub(crate) async fn give_back(self: Arc<Arena>, cluster: &mut Cluster) -> (FaultLog, Vec<String>) {
        let arena = Arc::into_inner(self).expect("all lanes have ended");
        let links = arena.links.into_inner();
        links.heal();
        cluster.links = Some(links);
        let mut problems = arena.problems.into_inner();
        let mut well = |node: Mutex<Node>| {
            let mut node = node.into_inner();
            problems.extend(node.exited().map(|status| ended(&node, status)));
            node
        };
        cluster.nodes = arena.nodes.into_iter().map(&mut well).collect();
        cluster.gateways = arena.gateways.into_iter().map(&mut well).collect();
        cluster.until_ready().await;
        (arena.log.into_inner(), problems)
    }

    /// Returns the number of places.
    pub(crate) fn size(&self) -> usize {
        self.nodes.len()
    }

    fn seats(&self) -> Vec<Seat> {
        self.seats.lock().clone()
    }

    pub(crate) fn ports(&self, index: usize) -> NodePorts {
        self.seats()[index].ports
    }

    /// Returns the id of the node in a place.
    pub(crate) fn id(&self, index: usize) -> u64 {
        self.seats()[index].id
    }

    pub(crate) fn ids(&self, places: impl IntoIterator<Item = usize>) -> Vec<u64> {
        places.into_iter().map(|index| self.id(index)).collect()
    }

    /// Prepares a node that will take a place, with its connections to and from the others.
    pub(crate) async fn prepare_arrival(&self, index: usize) -> Arrival {
        let others = self.seats().into_iter().enumerate().filter(|(place, _)| *place != index);
        let (arrival, (entrance, to_others)) =
            Arrival::prepare(self.cradle.clone(), &others.collect::<Vec<_>>()).await;
        self.links.lock().add(index, entrance, to_others);
        self.set_ways();
        arrival
    }

    /// Puts a new node in the place of one that has ended.
    pub(crate) fn seat(&self, index: usize, node: &mut Node, newcomer: Node) {
        self.access.moved(&node.endpoint(), &newcomer.endpoint());
        self.seats.lock()[index] = Seat { id: newcomer.id, ports: newcomer.ports };
        *node = newcomer;
    }

    /// Returns the gateway that a draw is for, or another one that no fault holds; `None` if there are no gateways.
    pub(crate) async fn pick_gateway(&self, draw: &Draw) -> Option<MutexGuard<'_, Node>> {
        let first = usize::try_from(draw.pick.checked_rem(self.gateways.len() as u64)?).unwrap();
        let (before, after) = self.gateways.split_at(first);
        let free = after.iter().chain(before).find_map(|gateway| gateway.try_lock().ok());
        let mut gateway = match free {
            Some(gateway) => gateway,
            None => self.gateways[first].lock().await,
        };
        if let Some(status) = gateway.exited() {
            self.problem(ended(&gateway, status));
            self.start_gateway(&mut gateway);
        }
        Some(gateway)
    }

    /// Starts a gateway again, with the present nodes.
    pub(crate) fn start_gateway(&self, gateway: &mut Node) {
        gateway.set_flag("--nodes", &self.access.nodes.all().join(","));
        gateway.start(&[]);
    }

    /// Returns the node that a draw is for. All are taken only if more faults of single nodes run than there are nodes.
    pub(crate) async fn pick(&self, draw: &Draw) -> (usize, MutexGuard<'_, Node>) {
        let leaders = self.leaders().await;
        let number = usize::try_from(draw.pick % leaders.len().max(1) as u64).unwrap();
        let leader = leaders.values().nth(number).filter(|_| draw.of_leader).copied();
        let first = leader.unwrap_or(usize::try_from(draw.pick % self.size() as u64).unwrap());
        for index in (0..self.size()).map(|offset| (first + offset) % self.size()) {
            if let Ok(mut node) = self.nodes[index].try_lock() {
                self.must_run(&mut node);
                return (index, node);
            }
        }
        panic!("every node has a fault of its own");
    }

    /// Returns a node, once no fault holds it.
    pub(crate) async fn node(&self, index: usize) -> MutexGuard<'_, Node> {
        self.nodes[index].lock().await
    }

    /// Reports a problem if a node has ended that no fault was applied to.
    fn must_run(&self, node: &mut Node) {
        if let Some(status) = node.exited() {
            self.problem(ended(node, status));
            node.start(&[]);
        }
    }

    /// True if there is a problem already: then nothing more can be learned.
    pub(crate) fn has_problems(&self) -> bool {
        !self.problems.lock().is_empty()
    }

    /// Returns the node that leads each group, as far as any node says so; the one with the highest term, should there
    /// be two.
    pub(crate) async fn leaders(&self) -> BTreeMap<u32, usize> {
        let asked: Vec<_> =
            self.seats().into_iter().map(|seat| tokio::spawn(seat.ports.replicas())).collect();
        let mut found: BTreeMap<u32, (u64, usize)> = BTreeMap::new();
        for (index, answer) in asked.into_iter().enumerate() {
            for replica in answer.await.unwrap_or_default() {
                if replica.role() == Role::Leader && replica.serves {
                    let newest = found.entry(replica.group_id).or_default();
                    *newest = (*newest).max((replica.raft_term, index));
                }
            }
        }
        found.into_iter().map(|(group, (_, index))| (group, index)).collect()
    }

    /// Names a node for people, with the groups that it leads.
    pub(crate) async fn title(&self, index: usize) -> String {
        let leads: Vec<String> = self
            .leaders()
            .await
            .into_iter()
            .filter(|(_, leader)| *leader == index)
            .map(|(group, _)| format!("group {group}"))
            .collect();
        let leads =
            if leads.is_empty() { String::new() } else { format!(" (leader of {})", leads.join(", ")) };
        format!("node {}{leads}", self.id(index))
    }

    /// Records the beginning of a fault, described by `says`. Returns the number by which its end is recorded.
    pub(crate) fn begin(&self, kind: FaultKind, says: &str) -> usize {
        let at = self.recorder.now();
        println!("t={:.1}s fault {says}", Duration::from_micros(at.us()).as_secs_f64());
        self.log.lock().begin(kind, at)
    }

    pub(crate) fn end(&self, number: usize) {
        self.log.lock().end(number, self.recorder.now());
    }

    /// Records a problem that no history shows.
    pub(crate) fn problem(&self, says: String) {
        println!("t={:.1}s {says}", Duration::from_micros(self.recorder.now().us()).as_secs_f64());
        self.problems.lock().push(says);
    }

    /// Cuts connections, in addition to other cuts, until they are mended by the same number.
    pub(crate) fn cut(&self, number: usize, cut: Cut) {
        self.cuts.lock().insert(number as u64, cut);
        self.set_ways();
    }

    pub(crate) fn mend(&self, number: usize) {
        self.cuts.lock().remove(&(number as u64));
        self.set_ways();
    }

    fn set_ways(&self) {
        let (cuts, links) = (self.cuts.lock(), self.links.lock());
        for to in 0..self.size() {
            let mut into = Vec::new();
            for from in (0..self.size()).filter(|from| *from != to) {
                let here = cuts.values().flatten().filter(|(a, b, _)| (*a, *b) == (from, to));
                let way = here.map(|(_, _, way)| *way).next_back().unwrap_or(Way::Open);
                links.set(from, to, way);
                into.push(way);
            }
            let all_cut = into.iter().all(|way| *way != Way::Open);
            links.set_entrance(to, if all_cut { into[0] } else { Way::Open });
        }
    }

    /// Waits until a node or gateway serves again after a fault.
    pub(crate) async fn recovered(&self, node: &mut Node) -> Result<(), String> {
        let until = Instant::now() + RECOVERY;
        while !node.is_ready().await {
            if let Some(status) = node.exited() {
                return Err(format!("when all was well again: {}", ended(node, status)));
            }
            if Instant::now() > until {
                let why = node.http("GET", "/readyz?verbose", "").await;
                return Err(format!("{} is not ready after {RECOVERY:?}: {why:?}", node.title()));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

fn ended(node: &Node, status: ExitStatus) -> String {
    let log = node.log();
    let lines: Vec<&str> = log.lines().collect();
    let last = lines[lines.len().saturating_sub(LINES_TOLD)..].join("\n    ");
    format!("{} ended by itself with {status}; it said\n    {last}", node.title())
}
