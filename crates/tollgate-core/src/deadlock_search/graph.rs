//! The wait graph: its nodes are waits and owners.
//!
//! An owner goes on when each of its waits is over; a wait is over when each wait ahead of it is over and each owner in
//! its way has gone on. All of these are needed, none of them is an alternative: so a cycle is a deadlock.

use super::{BlockedBy, BlockedWait, Blocker, Victim, WaitEdges, Who};
use crate::command::EndDeadlock;
use crate::reply::CycleStep;
use std::collections::{BTreeMap, VecDeque};
use tollgate_types::{GroupId, Revision, Token};

/// Number of a node.
type Node = usize;

/// Edge from a node to another node that must go first.
#[derive(Clone, Copy)]
struct Edge<'a> {
    to: Node,
    /// None for an edge from an owner to its wait.
    why: Option<&'a Blocker>,
}

impl Edge<'_> {
    /// Token of the grant in the way, if the edge is a grant.
    fn token(&self) -> Option<Token> {
        match self.why?.by {
            BlockedBy::Grant(token) => Some(token),
            BlockedBy::Ahead { .. } => None,
        }
    }
}

pub(super) struct Graph<'a> {
    /// In order of (group, create revision), each with the node of its owner, if the owner has a name. The nodes of the
    /// waits come before those of the owners.
    waits: Vec<(GroupId, &'a BlockedWait, Option<Node>)>,
    edges: Vec<Vec<Edge<'a>>>,
    removed: Vec<bool>,
}

impl<'a> Graph<'a> {
    /// Builds the graph of the edges that both passes saw alike.
    pub(super) fn new(
        first: &'a BTreeMap<GroupId, WaitEdges>,
        second: &'a BTreeMap<GroupId, WaitEdges>,
    ) -> Graph<'a> {
        let mut waits: Vec<(GroupId, &BlockedWait, &BlockedWait)> = Vec::new();
        for (group, edges) in second {
            let Some(earlier) = first.get(group) else { continue };
            let before: BTreeMap<Revision, &BlockedWait> =
                earlier.waits.iter().map(|wait| (wait.create_revision, wait)).collect();
            let known = |wait: &'a BlockedWait| Some((*group, wait, *before.get(&wait.create_revision)?));
            waits.extend(edges.waits.iter().filter_map(known).filter(|(_, now, then)| now.who == then.who));
        }
        waits.sort_by_key(|(group, wait, _)| (*group, wait.create_revision));
        Graph::over(&waits)
    }

    fn over(waits: &[(GroupId, &'a BlockedWait, &'a BlockedWait)]) -> Graph<'a> {
        let numbers: BTreeMap<(GroupId, Revision), Node> = waits
            .iter()
            .enumerate()
            .map(|(node, (group, wait, _))| ((*group, wait.create_revision), node))
            .collect();
        let mut owners: BTreeMap<&Who, Node> = BTreeMap::new();
        for (_, wait, _) in waits.iter().filter(|(_, wait, _)| !wait.who.owner.is_empty()) {
            let next = waits.len() + owners.len();
            owners.entry(&wait.who).or_insert(next);
        }
        let mut edges = vec![Vec::new(); waits.len() + owners.len()];
        for (node, (group, wait, before)) in waits.iter().enumerate() {
            if let Some(owner) = owners.get(&wait.who) {
                edges[*owner].push(Edge { to: node, why: None });
            }
            for blocker in wait.blockers.iter().filter(|blocker| before.blockers.contains(blocker)) {
                // An owner without a wait is not stuck.
                let owner = owners.get(&blocker.who).copied();
                let (ahead, owner) = match blocker.by {
                    BlockedBy::Grant(_) => (None, owner),
                    BlockedBy::Ahead { create_revision, excludes } => {
                        (numbers.get(&(*group, create_revision)).copied(), owner.filter(|_| excludes))
                    }
                };
                edges[node].extend(ahead.into_iter().chain(owner).map(|to| Edge { to, why: Some(blocker) }));
            }
        }
        let removed = vec![false; edges.len()];
        let waits = waits.iter().map(|(group, wait, _)| (*group, *wait, owners.get(&wait.who).copied()));
        Graph { waits: waits.collect(), edges, removed }
    }

    /// Removes a wait, as if it had ended.
    pub(super) fn remove(&mut self, wait: Node) {
        self.removed[wait] = true;
    }

    /// The youngest wait that can be ended to break a cycle.
    pub(super) fn youngest_victim(&self) -> Option<(Node, Victim)> {
        let knots = self.knots();
        let ends = self.waits_for_a_grant(&knots);
        let stuck = |wait: &Node| {
            let owner = self.waits[*wait].2;
            ends[*wait] && owner.is_some_and(|owner| knots[owner] == knots[*wait])
        };
        let wait = (0..self.waits.len()).rev().find(stuck)?;
        Some((wait, self.victim(wait, &knots)))
    }

    /// Edges of a node that stay within its knot.
    fn inner<'s>(&'s self, node: Node, knots: &'s [Option<usize>]) -> impl Iterator<Item = Edge<'a>> + 's {
        let inside = move |edge: &Edge<'a>| knots[node].is_some() && knots[edge.to] == knots[node];
        self.edges[node].iter().copied().filter(inside)
    }

    /// Knot of each node, that is, the nodes that lead to each other; none for a node in no cycle.
    fn knots(&self) -> Vec<Option<usize>> {
        let mut search = Knots::new(self.edges.len());
        for node in 0..self.edges.len() {
            if !self.removed[node] && search.order[node].is_none() {
                search.walk(self, node);
            }
        }
        search.found
    }

    /// For each wait, true if a grant within its knot is in its way, or in the way of a wait ahead of it.
    fn waits_for_a_grant(&self, knots: &[Option<usize>]) -> Vec<bool> {
        let mut behind: Vec<Vec<Node>> = vec![Vec::new(); self.waits.len()];
        let mut waits = vec![false; self.waits.len()];
        let mut next = Vec::new();
        for wait in 0..self.waits.len() {
            for edge in self.inner(wait, knots) {
                if edge.to < self.waits.len() {
                    behind[edge.to].push(wait);
                } else if edge.token().is_some() && !waits[wait] {
                    waits[wait] = true;
                    next.push(wait);
                }
            }
        }
        while let Some(ahead) = next.pop() {
            for wait in std::mem::take(&mut behind[ahead]) {
                if !waits[wait] {
                    waits[wait] = true;
                    next.push(wait);
                }
            }
        }
        waits
    }

    /// The shortest path from a wait over places in queues to a grant, and from the grant's holder back.
    fn victim(&self, wait: Node, knots: &[Option<usize>]) -> Victim {
        let (group, ended, owner) = self.waits[wait];
        let owner = owner.expect("the caller found it in the knot");
        let first = self.way(wait, knots, |from, edge| from < self.waits.len() && edge.token().is_some());
        let (_, grant) = *first.last().expect("the caller knows that there is one");
        let mut way = first;
        if grant.to != owner {
            way.extend(self.way(grant.to, knots, |_, edge| edge.to == owner));
        }
        let blocker = grant.token().expect("the way ends with a grant");
        let end = EndDeadlock { name: ended.name.clone(), create_revision: ended.create_revision, blocker };
        Victim { group, end, cycle: self.steps(&way) }
    }

    /// Shortest path from a node to the first edge for which `is_last` is true: each edge with the node that it begins
    /// at. A wait leads to an owner by a grant or by an earlier wait; a path that begins at a wait passes over waits
    /// only.
    fn way(
        &self,
        from: Node,
        knots: &[Option<usize>],
        is_last: impl Fn(Node, &Edge<'a>) -> bool,
    ) -> Vec<(Node, Edge<'a>)> {
        let to_a_grant = from < self.waits.len();
        let mut came: BTreeMap<Node, (Node, Edge<'a>)> = BTreeMap::new();
        let mut next = VecDeque::from([from]);
        while let Some(node) = next.pop_front() {
            for edge in self.inner(node, knots) {
                if is_last(node, &edge) {
                    return way_back(&came, from, (node, edge));
                }
                let allowed = !to_a_grant || edge.to < self.waits.len();
                if allowed && edge.to != from && !came.contains_key(&edge.to) {
                    came.insert(edge.to, (node, edge));
                    next.push_back(edge.to);
                }
            }
        }
        unreachable!("nodes of a knot lead to each other")
    }

    /// One step for each owner on the path, however many places in queues lie between.
    fn steps(&self, way: &[(Node, Edge<'a>)]) -> Vec<CycleStep> {
        let mut steps = Vec::new();
        let mut begun: Option<(&BlockedWait, &Blocker)> = None;
        for (from, edge) in way {
            let Some(why) = edge.why else { continue };
            let (waits, seen) = *begun.get_or_insert((self.waits[*from].1, why));
            if edge.to < self.waits.len() {
                continue;
            }
            let who = |who: &Who| (who.lease, who.owner.clone());
            steps.push(CycleStep {
                waiter: who(&waits.who),
                wants: seen.name.clone(),
                mode: waits.mode,
                blocker: who(&why.who),
                blocker_token: edge.token(),
            });
            begun = None;
        }
        steps
    }
}

fn way_back<'a>(
    came: &BTreeMap<Node, (Node, Edge<'a>)>,
    from: Node,
    last: (Node, Edge<'a>),
) -> Vec<(Node, Edge<'a>)> {
    let mut way = vec![last];
    let mut at = last.0;
    while at != from {
        way.push(came[&at]);
        at = came[&at].0;
    }
    way.reverse();
    way
}

/// Tarjan's search for strongly connected components, with a stack of its own.
struct Knots {
    /// Order in which each node was first seen.
    order: Vec<Option<usize>>,
    /// For each node, the earliest node on the stack that it leads to.
    low: Vec<usize>,
    on_stack: Vec<bool>,
    stack: Vec<Node>,
    seen: usize,
    /// Knot of each node.
    found: Vec<Option<usize>>,
}

impl Knots {
    fn new(nodes: usize) -> Knots {
        Knots {
            order: vec![None; nodes],
            low: vec![0; nodes],
            on_stack: vec![false; nodes],
            stack: Vec::new(),
            seen: 0,
            found: vec![None; nodes],
        }
    }

    fn walk(&mut self, graph: &Graph<'_>, start: Node) {
        // Nodes on the path, each with the number of its edges that were looked at.
        let mut path: Vec<(Node, usize)> = Vec::new();
        self.enter(start, &mut path);
        while let Some((node, looked)) = path.last_mut() {
            let node = *node;
            if let Some(edge) = graph.edges[node].get(*looked) {
                *looked += 1;
                match self.order[edge.to] {
                    _ if graph.removed[edge.to] => {}
                    None => self.enter(edge.to, &mut path),
                    Some(order) if self.on_stack[edge.to] => self.low[node] = self.low[node].min(order),
                    Some(_) => {}
                }
                continue;
            }
            path.pop();
            if let Some((before, _)) = path.last() {
                self.low[*before] = self.low[*before].min(self.low[node]);
            }
            if self.order[node] == Some(self.low[node]) {
                self.close(graph, node);
            }
        }
    }

    fn enter(&mut self, node: Node, path: &mut Vec<(Node, usize)>) {
        (self.order[node], self.low[node]) = (Some(self.seen), self.seen);
        self.seen += 1;
        self.stack.push(node);
        self.on_stack[node] = true;
        path.push((node, 0));
    }

    /// Closes a component: all nodes above `root` on the stack lead to `root`, and `root` to them. A single node is no
    /// knot: nothing is in its own way without another node between.
    fn close(&mut self, graph: &Graph<'_>, root: Node) {
        let from = self.stack.iter().rposition(|node| *node == root).expect("it was put there");
        let alone = from + 1 == self.stack.len();
        assert!(
            !alone || graph.edges[root].iter().all(|edge| edge.to != root),
            "an owner and its wait are two"
        );
        for node in self.stack.split_off(from) {
            self.on_stack[node] = false;
            self.found[node] = (!alone).then_some(root);
        }
    }
}
