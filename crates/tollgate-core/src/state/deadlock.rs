//! Decides whether a request, once queued, could ever be granted.
//!
//! Imagine the request in its queues, and then that every owner goes on: every wait that may be granted is, and every
//! owner without a wait gives back what it holds. If the requester still waits when nothing moves any more, and a cycle
//! leads from it back to itself, the wait would never end. Counting permits needs no special case: the imagined grants
//! count them.
//!
//! Invariant: only claims that the request can depend on are looked at, and no more of them than a limit allows.

use super::State;
use super::settle::Place;
use crate::claim::{Claim, Death, QueueKey};
use crate::command::AcquireLock;
use crate::lease::Lease;
use crate::lock::{Held, Lock};
use crate::planted::Bug;
use crate::reply::{CycleStep, Rejection};
use crate::slab::Id;
use smallvec::SmallVec;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use tollgate_types::{LeaseId, Mode, Owner, REVISION_END, Revision, Token};

/// A thread of control: a named owner with all its claims, or one claim of the empty owner.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum NodeKey {
    Owner(Id<Lease>, Owner),
    Claim(Id<Claim>),
}

struct Node {
    who: (LeaseId, Owner),
    waits: Vec<usize>,
    /// Number of waits that are not granted yet, in imagination.
    open: usize,
    holds: Vec<(Id<Lock>, Mode)>,
    /// True once the node gave back all it held, in imagination.
    finished: bool,
}

/// A claim in a queue.
struct Waiter {
    node: usize,
    locks: SmallVec<[Id<Lock>; 1]>,
    key: QueueKey,
    mode: Mode,
    /// Mode that the waiter holds meanwhile, if it waits for an upgrade.
    held: Option<Mode>,
    granted: bool,
}

struct Holder {
    node: usize,
    mode: Mode,
    /// None if the grant is only imagined: in truth the claim waits ahead.
    token: Option<Token>,
}

/// A lock in the search.
struct Scene {
    held: Held,
    holders: Vec<Holder>,
    queue: BTreeMap<QueueKey, usize>,
    /// Waiters before this place are part of the search.
    seen_until: Option<QueueKey>,
}

/// The request that is about to queue.
struct Wish<'a> {
    node: NodeKey,
    who: (LeaseId, Owner),
    locks: SmallVec<[Id<Lock>; 1]>,
    key: QueueKey,
    mode: Mode,
    held: Option<Mode>,
    names: &'a [tollgate_types::Name],
}

impl State {
    pub(super) fn check_deadlock_of_waiter(
        &self,
        acquire: &AcquireLock,
        lease: Id<Lease>,
        places: &[Place],
    ) -> Result<(), Rejection> {
        // An owner that has nothing yet is in nobody's way.
        if acquire.owner.is_empty() || !self.owner_has_claims(lease, &acquire.owner) {
            return Ok(());
        }
        // A name without a lock is free, and blocks nothing.
        let wish = Wish {
            node: NodeKey::Owner(lease, acquire.owner.clone()),
            who: (acquire.lease, acquire.owner.clone()),
            locks: places.iter().filter_map(|(_, lock)| *lock).collect(),
            key: QueueKey::waiter(last_revision()),
            mode: acquire.mode,
            held: None,
            names: acquire.names.as_slice(),
        };
        self.check_deadlock(&wish)
    }

    pub(super) fn check_deadlock_of_upgrade(&self, id: Id<Claim>, mode: Mode) -> Result<(), Rejection> {
        let claim = self.claims.get(id);
        let wish = Wish {
            node: node_key(id, claim),
            who: (claim.lease_id, claim.owner.clone()),
            locks: claim.locks.as_slice().into(),
            key: QueueKey::upgrade(last_revision()),
            mode,
            held: Some(claim.mode),
            names: claim.names.as_slice(),
        };
        self.check_deadlock(&wish)
    }

    fn check_deadlock(&self, wish: &Wish<'_>) -> Result<(), Rejection> {
        let mut search = Search::new(self, wish);
        if !search.look_around(wish) {
            return Ok(());
        }
        search.let_everybody_go_on();
        match search.cycle() {
            Some(cycle) => Err(Rejection::Deadlock { cycle }),
            None => Ok(()),
        }
    }
}

/// Revision behind all that are in the queue.
fn last_revision() -> Revision {
    Revision::new(REVISION_END - 1).expect("below the end")
}

fn node_key(id: Id<Claim>, claim: &Claim) -> NodeKey {
    if claim.owner.is_empty() { NodeKey::Claim(id) } else { NodeKey::Owner(claim.lease, claim.owner.clone()) }
}

struct Search<'a> {
    state: &'a State,
    keys: BTreeMap<NodeKey, usize>,
    nodes: Vec<Node>,
    waiters: Vec<Waiter>,
    scenes: BTreeMap<Id<Lock>, Scene>,
    /// Waiters whose surroundings are still to be looked at.
    frontier: VecDeque<usize>,
    visits: u64,
}

/// Node of the requester.
const REQUESTER: usize = 0;

impl<'a> Search<'a> {
    fn new(state: &'a State, wish: &Wish<'_>) -> Search<'a> {
        let mut search = Search {
            state,
            keys: BTreeMap::new(),
            nodes: Vec::new(),
            waiters: Vec::new(),
            scenes: BTreeMap::new(),
            frontier: VecDeque::new(),
            visits: 0,
        };
        let node =
            Node { who: wish.who.clone(), waits: Vec::new(), open: 0, holds: Vec::new(), finished: false };
        search.keys.insert(wish.node.clone(), REQUESTER);
        search.nodes.push(node);
        search
    }

    /// Gathers all that the request depends on. False if that is more than one search may look at.
    fn look_around(&mut self, wish: &Wish<'_>) -> bool {
        assert!(wish.names.len() >= wish.locks.len(), "locks are those of the names");
        self.add_waiter(REQUESTER, wish.locks.clone(), wish.key, wish.mode, wish.held);
        if let NodeKey::Owner(lease, owner) = &wish.node {
            self.add_waits_of_owner(REQUESTER, *lease, owner);
        }
        while let Some(waiter) = self.frontier.pop_front() {
            let (locks, key) = (self.waiters[waiter].locks.clone(), self.waiters[waiter].key);
            for lock in locks {
                self.look_at(lock, key);
                if self.is_tired() {
                    return false;
                }
            }
        }
        true
    }

    /// True once the search has looked at more than one search may.
    fn is_tired(&self) -> bool {
        self.visits > self.state.limits.deadlock_visits_max
    }

    /// Adds all claims that may be in the way of a waiter at this place in the queue.
    fn look_at(&mut self, lock: Id<Lock>, until: QueueKey) {
        let state = self.state;
        let record = state.locks.get(lock);
        if self.scenes[&lock].holders.is_empty() && self.scenes[&lock].held == Held::default() {
            for (token, id) in record.holders.iter().filter(|(_, id)| state.death(*id).is_none_or(is_upgrade))
            {
                let claim = state.claims.get(*id);
                let node = self.node_of(*id, claim);
                self.visits += 1;
                if self.is_tired() {
                    return;
                }
                self.nodes[node].holds.push((lock, claim.mode));
                let scene = self.scenes.get_mut(&lock).expect("made with its first waiter");
                scene.held.add(claim.mode);
                scene.holders.push(Holder { node, mode: claim.mode, token: Some(*token) });
            }
        }
        if state.planted(Bug::DeadlockIgnoresQueue) {
            return;
        }
        let seen = self.scenes[&lock].seen_until;
        if seen.is_some_and(|seen| seen >= until) {
            return;
        }
        let from = seen.map_or(Bound::Unbounded, Bound::Excluded);
        for (_, id) in record.queue.range((from, Bound::Excluded(until))) {
            self.visits += 1;
            if self.is_tired() {
                return;
            }
            if state.death(*id).is_none() {
                self.node_of(*id, state.claims.get(*id));
            }
        }
        self.scenes.get_mut(&lock).expect("made with its first waiter").seen_until = Some(until);
    }

    /// The node of a claim, made with all its waits if it is new.
    fn node_of(&mut self, id: Id<Claim>, claim: &Claim) -> usize {
        let key = node_key(id, claim);
        if let Some(node) = self.keys.get(&key) {
            return *node;
        }
        let node = self.nodes.len();
        let who = (claim.lease_id, claim.owner.clone());
        self.nodes.push(Node { who, waits: Vec::new(), open: 0, holds: Vec::new(), finished: false });
        self.keys.insert(key.clone(), node);
        match key {
            NodeKey::Owner(lease, owner) => self.add_waits_of_owner(node, lease, &owner),
            NodeKey::Claim(_) if claim.is_queued() => self.add_claim(node, claim),
            NodeKey::Claim(_) => {}
        }
        node
    }

    fn add_waits_of_owner(&mut self, node: usize, lease: Id<Lease>, owner: &Owner) {
        let state = self.state;
        let waiting = state.owner_waits(lease, owner);
        let mut claims: Vec<&Claim> =
            waiting.iter().filter(|id| state.death(**id).is_none()).map(|id| state.claims.get(*id)).collect();
        // The order of the list depends on history; the order of the queue does not.
        claims.sort_by_key(|claim| claim.wait_revision());
        for claim in claims {
            self.add_claim(node, claim);
            if self.is_tired() {
                return;
            }
        }
    }

    fn add_claim(&mut self, node: usize, claim: &Claim) {
        let held = claim.upgrade.as_ref().map(|_| claim.mode);
        self.add_waiter(node, claim.locks.as_slice().into(), claim.queue_key(), claim.wanted(), held);
    }

    fn add_waiter(
        &mut self,
        node: usize,
        locks: SmallVec<[Id<Lock>; 1]>,
        key: QueueKey,
        mode: Mode,
        held: Option<Mode>,
    ) {
        self.visits += 1;
        let waiter = self.waiters.len();
        for lock in &locks {
            let scene = self.scenes.entry(*lock).or_insert_with(|| Scene {
                held: Held::default(),
                holders: Vec::new(),
                queue: BTreeMap::new(),
                seen_until: None,
            });
            scene.queue.insert(key, waiter);
        }
        self.waiters.push(Waiter { node, locks, key, mode, held, granted: false });
        self.nodes[node].waits.push(waiter);
        self.nodes[node].open += 1;
        self.frontier.push_back(waiter);
    }

    /// Grants and finishes, in imagination, until nothing moves.
    fn let_everybody_go_on(&mut self) {
        let mut idle: Vec<usize> = (0..self.nodes.len()).filter(|node| self.nodes[*node].open == 0).collect();
        let mut changed: Vec<Id<Lock>> = self.scenes.keys().copied().collect();
        loop {
            if let Some(node) = idle.pop() {
                self.nodes[node].finished = true;
                for (lock, mode) in std::mem::take(&mut self.nodes[node].holds) {
                    let scene = self.scenes.get_mut(&lock).expect("holds are on locks in the search");
                    scene.held.remove(mode);
                    changed.push(lock);
                }
            } else if let Some(lock) = changed.pop() {
                while let Some(waiter) = self.first_grantable(lock) {
                    changed.extend(self.waiters[waiter].locks.iter().copied());
                    self.grant(waiter);
                    if self.nodes[self.waiters[waiter].node].open == 0 {
                        idle.push(self.waiters[waiter].node);
                    }
                }
            } else {
                return;
            }
        }
    }

    fn first_grantable(&self, lock: Id<Lock>) -> Option<usize> {
        let (_, &first) = self.scenes[&lock].queue.first_key_value()?;
        let waiter = &self.waiters[first];
        let may = waiter.locks.iter().all(|lock| {
            let scene = &self.scenes[lock];
            let is_first = scene.queue.first_key_value().is_some_and(|(_, next)| *next == first);
            is_first
                && match waiter.held {
                    Some(held) => scene.held.goes_with_others(held, waiter.mode),
                    None => scene.held.goes_with(waiter.mode),
                }
        });
        may.then_some(first)
    }

    fn grant(&mut self, index: usize) {
        let waiter = &mut self.waiters[index];
        waiter.granted = true;
        let node = &mut self.nodes[waiter.node];
        node.open -= 1;
        for lock in &waiter.locks {
            let scene = self.scenes.get_mut(lock).expect("made with the waiter");
            scene.queue.remove(&waiter.key);
            if let Some(held) = waiter.held {
                scene.held.remove(held);
                node.holds.retain(|hold| *hold != (*lock, held));
                scene.holders.iter_mut().filter(|h| h.node == waiter.node).for_each(|h| h.mode = waiter.mode);
            } else {
                scene.holders.push(Holder { node: waiter.node, mode: waiter.mode, token: None });
            }
            scene.held.add(waiter.mode);
            node.holds.push((*lock, waiter.mode));
        }
    }

    /// The shortest path from the requester back to itself, over nodes that are stuck.
    fn cycle(&self) -> Option<Vec<CycleStep>> {
        let mut reached: BTreeMap<usize, CycleEdge> = BTreeMap::new();
        let mut walked: BTreeMap<Id<Lock>, Walked> = BTreeMap::new();
        let mut next = VecDeque::from([REQUESTER]);
        while let Some(node) = next.pop_front() {
            for edge in self.edges(node, &mut walked) {
                if edge.to == REQUESTER {
                    return Some(self.way_back(&reached, &edge));
                }
                if let Entry::Vacant(place) = reached.entry(edge.to) {
                    next.push_back(edge.to);
                    place.insert(edge);
                }
            }
        }
        None
    }

    fn way_back(&self, reached: &BTreeMap<usize, CycleEdge>, last: &CycleEdge) -> Vec<CycleStep> {
        let mut steps = vec![self.step(last)];
        let mut from = last.from;
        while from != REQUESTER {
            let edge = &reached[&from];
            steps.push(self.step(edge));
            from = edge.from;
        }
        steps.reverse();
        steps
    }

    /// Edges from a stuck node to the nodes that it waits for, except those that an earlier look at the same lock has
    /// returned: they are reached already, by a path that is no longer.
    fn edges(&self, from: usize, walked: &mut BTreeMap<Id<Lock>, Walked>) -> Vec<CycleEdge> {
        let mut edges = Vec::new();
        for &index in self.nodes[from].waits.iter().filter(|index| !self.waiters[**index].granted) {
            let waiter = &self.waiters[index];
            for lock in &waiter.locks {
                let (scene, walked) = (&self.scenes[lock], walked.entry(*lock).or_default());
                let edge = |to, token| CycleEdge { from, to, waiter: index, lock: *lock, token };
                if !walked.modes.contains(&waiter.mode) {
                    let stuck = scene.holders.iter().filter(|holder| !self.nodes[holder.node].finished);
                    let in_the_way = stuck.filter(|holder| !waiter.mode.compatible(holder.mode));
                    let others = in_the_way.clone().filter(|holder| holder.node != from);
                    edges.extend(others.map(|holder| edge(holder.node, holder.token)));
                    // A node that holds the lock itself has left itself out, and another waiter in this mode would not.
                    if in_the_way.clone().all(|holder| holder.node != from) {
                        walked.modes.push(waiter.mode);
                    }
                }
                let from_key = walked.queue_until.map_or(Bound::Unbounded, Bound::Included);
                if walked.queue_until.is_none_or(|until| until < waiter.key) {
                    let ahead = scene.queue.range((from_key, Bound::Excluded(waiter.key)));
                    let ahead = ahead.map(|(_, ahead)| self.waiters[*ahead].node);
                    edges.extend(ahead.filter(|node| *node != from).map(|node| edge(node, None)));
                    walked.queue_until = Some(waiter.key);
                }
            }
        }
        edges
    }

    fn step(&self, edge: &CycleEdge) -> CycleStep {
        CycleStep {
            waiter: self.nodes[edge.from].who.clone(),
            wants: self.state.locks.get(edge.lock).name.clone(),
            mode: self.waiters[edge.waiter].mode,
            blocker: self.nodes[edge.to].who.clone(),
            blocker_token: edge.token,
        }
    }
}

/// Parts of one lock that the walk along the cycle has returned.
#[derive(Default)]
struct Walked {
    /// Modes for which all holders in the way were returned.
    modes: Vec<Mode>,
    /// Place in the queue before which all waiters were returned.
    queue_until: Option<QueueKey>,
}

/// Edge from a waiting node to a node in its way.
struct CycleEdge {
    from: usize,
    to: usize,
    waiter: usize,
    lock: Id<Lock>,
    token: Option<Token>,
}

fn is_upgrade(death: Death) -> bool {
    death == Death::Upgrade
}
