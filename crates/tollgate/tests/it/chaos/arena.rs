//! The cluster while faults are at it: who is broken, which ways are cut, what was done.
//!
//! Invariant: a node belongs to the one fault that has its lock; ways are what all cuts that last make of them
//! together. Not here: when faults come (`lane`) and what they do (`faults`).

use super::fault_log::FaultLog;
use super::faults::{Draw, FaultKind};
use crate::cluster::{Cluster, Node, NodePorts};
use crate::proxy::{Links, Way};
use crate::record::Recorder;
use std::collections::BTreeMap;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex as Plain};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, MutexGuard, RwLock};
use tollgate_proto::v1::Role;

/// A node that is well again and not ready by then never will be.
const RECOVERY: Duration = Duration::from_mins(1);

/// What one fault cuts: who no longer reaches whom, and how.
pub(crate) type Cut = Vec<(usize, usize, Way)>;

pub(crate) struct Arena {
    nodes: Vec<Mutex<Node>>,
    ports: Vec<NodePorts>,
    links: Links,
    cuts: Plain<BTreeMap<u64, Cut>>,
    /// Shared by faults of one node; had alone by those of the whole cluster.
    pub(crate) gate: RwLock<()>,
    recorder: Arc<Recorder>,
    log: Plain<FaultLog>,
    problems: Plain<Vec<String>>,
}

/// How much of what a node said last is repeated when something is wrong with it.
const LINES_TOLD: usize = 12;

impl Arena {
    /// Takes the nodes of a cluster, until they are given back.
    pub(crate) fn around(cluster: &mut Cluster, recorder: Arc<Recorder>) -> Arc<Arena> {
        let nodes = std::mem::take(&mut cluster.nodes);
        Arc::new(Arena {
            ports: nodes.iter().map(|node| node.ports).collect(),
            nodes: nodes.into_iter().map(Mutex::new).collect(),
            links: cluster.links.take().expect("the nodes of this cluster meet through proxies"),
            cuts: Plain::default(),
            gate: RwLock::new(()),
            recorder,
            log: Plain::default(),
            problems: Plain::default(),
        })
    }

    /// Gives the nodes back once all is well again: which faults there were, and what went wrong beside promises.
    pub(crate) async fn give_back(self: Arc<Arena>, cluster: &mut Cluster) -> (FaultLog, Vec<String>) {
        let arena = Arc::into_inner(self).expect("all lanes have ended");
        arena.links.heal();
        let mut problems = arena.problems.into_inner().unwrap();
        for (index, node) in arena.nodes.into_iter().enumerate() {
            let mut node = node.into_inner();
            if let Some(status) = node.exited() {
                problems.push(ended(index, &node, status));
            }
            cluster.nodes.push(node);
        }
        cluster.links = Some(arena.links);
        cluster.until_ready().await;
        (arena.log.into_inner().unwrap(), problems)
    }

    pub(crate) fn size(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn ports(&self, index: usize) -> NodePorts {
        self.ports[index]
    }

    /// The node that a draw is for. None is free only if more faults of single nodes run than there are nodes.
    pub(crate) async fn pick(&self, draw: &Draw) -> (usize, MutexGuard<'_, Node>) {
        let leaders = self.leaders().await;
        let number = usize::try_from(draw.pick % leaders.len().max(1) as u64).unwrap();
        let leader = leaders.values().nth(number).filter(|_| draw.of_leader).copied();
        let first = leader.unwrap_or(usize::try_from(draw.pick % self.size() as u64).unwrap());
        for index in (0..self.size()).map(|offset| (first + offset) % self.size()) {
            if let Ok(mut node) = self.nodes[index].try_lock() {
                self.must_run(index, &mut node);
                return (index, node);
            }
        }
        panic!("every node has a fault of its own");
    }

    /// A node, once no fault has it.
    pub(crate) async fn node(&self, index: usize) -> MutexGuard<'_, Node> {
        self.nodes[index].lock().await
    }

    /// A node that nobody did anything to has not ended.
    fn must_run(&self, index: usize, node: &mut Node) {
        if let Some(status) = node.exited() {
            self.problem(ended(index, node, status));
            node.start(&[]);
        }
    }

    /// Whether something is wrong already: then no more is to be learned.
    pub(crate) fn has_problems(&self) -> bool {
        !self.problems.lock().unwrap().is_empty()
    }

    /// The node that leads each group, as far as anybody says so: the newest, should two.
    pub(crate) async fn leaders(&self) -> BTreeMap<u32, usize> {
        let asked = self.ports.iter().map(|ports| tokio::spawn(ports.replicas()));
        let asked: Vec<_> = asked.collect();
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

    /// A node as people call it, and what it leads.
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
        format!("node {}{leads}", index + 1)
    }

    /// A fault begins, which is what this says; by which number its end is told.
    pub(crate) fn begin(&self, kind: FaultKind, says: &str) -> usize {
        let at = self.recorder.now();
        println!("t={:.1}s fault {says}", Duration::from_micros(at.us()).as_secs_f64());
        self.log.lock().unwrap().begin(kind, at)
    }

    pub(crate) fn end(&self, number: usize) {
        self.log.lock().unwrap().end(number, self.recorder.now());
    }

    /// Something must not be that no history shows.
    pub(crate) fn problem(&self, says: String) {
        println!("t={:.1}s {says}", Duration::from_micros(self.recorder.now().us()).as_secs_f64());
        self.problems.lock().unwrap().push(says);
    }

    /// Cuts ways, beside those that others have cut, until it is mended by the same number.
    pub(crate) fn cut(&self, number: usize, cut: Cut) {
        self.cuts.lock().unwrap().insert(number as u64, cut);
        self.set_ways();
    }

    pub(crate) fn mend(&self, number: usize) {
        self.cuts.lock().unwrap().remove(&(number as u64));
        self.set_ways();
    }

    fn set_ways(&self) {
        let cuts = self.cuts.lock().unwrap();
        for from in 0..self.size() {
            for to in (0..self.size()).filter(|to| *to != from) {
                let here = cuts.values().flatten().filter(|(a, b, _)| (*a, *b) == (from, to));
                let way = here.map(|(_, _, way)| *way).next_back().unwrap_or(Way::Open);
                self.links.set(from, to, way);
            }
        }
    }

    /// Waits until a node serves again after what was done to it.
    pub(crate) async fn recovered(&self, index: usize, node: &mut Node) -> Result<(), String> {
        let until = Instant::now() + RECOVERY;
        while !node.is_ready().await {
            if let Some(status) = node.exited() {
                return Err(format!(
                    "node {} ended by itself with {status} when it was well again",
                    index + 1
                ));
            }
            if Instant::now() > until {
                let why = node.http("GET", "/readyz?verbose", "").await;
                return Err(format!("node {} is not ready after {RECOVERY:?}: {why:?}", index + 1));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

fn ended(index: usize, node: &Node, status: ExitStatus) -> String {
    let log = node.log();
    let lines: Vec<&str> = log.lines().collect();
    let last = lines[lines.len().saturating_sub(LINES_TOLD)..].join("\n    ");
    format!("node {} ended by itself with {status}; it said\n    {last}", index + 1)
}
