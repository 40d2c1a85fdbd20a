//! Deadlock, decided by simulation: imagine the request in its queues, let every owner go on until nothing moves, and
//! see if the requester still waits in a circle.

use super::Oracle;
use super::claims::goes_with;
use std::collections::BTreeSet;
use tollgate_core::{CycleStep, Rejection};
use tollgate_types::{LeaseId, Mode, Name, Names, Owner, Revision, Token};

/// A request that is about to queue.
pub(super) struct Wish<'a> {
    /// The claim to upgrade; none for a new claim.
    pub(super) claim: Option<Revision>,
    pub(super) lease: LeaseId,
    pub(super) owner: &'a Owner,
    pub(super) names: &'a Names,
    pub(super) mode: Mode,
}

/// A thread of control: a named owner with all its claims, or one claim of the empty owner.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    Thread(LeaseId, Owner),
    Claim(Revision),
}

/// A living claim in the simulation.
#[derive(Clone)]
struct Player {
    node: Node,
    lease: LeaseId,
    owner: Owner,
    names: Names,
    held: Option<Mode>,
    token: Option<Token>,
    wanted: Option<Mode>,
    /// Place in the queues: upgrades (0) before the rest (1), then by revision.
    order: (u8, Revision),
}

/// The players at the moment of a refusal, the refused request among them.
pub(super) struct Impasse {
    players: Vec<Player>,
    requester: Player,
}

impl Oracle {
    pub(super) fn check_deadlock(&mut self, wish: &Wish<'_>) -> Result<(), Rejection> {
        let (players, requester) = self.imagine(wish);
        // The page allows skipping the search for a node that has nothing yet; here the node is simulated like any
        // other.
        let stuck = play_out(players.clone());
        if waits(&stuck, &requester.node) && leads_back(&stuck, &requester.node) {
            let cycle = find_cycle(&players, &requester.node);
            self.impasse = Some(Impasse { players, requester });
            return Err(Rejection::Deadlock { cycle });
        }
        Ok(())
    }

    /// The living claims with the request in its queues, and the requester.
    fn imagine(&self, wish: &Wish<'_>) -> (Vec<Player>, Player) {
        let mut players = Vec::new();
        for claim in self.claims.iter().filter(|claim| self.claim_death(claim).is_none()) {
            let id = claim.create_revision;
            let upgrade = claim.upgrade.as_ref().filter(|_| self.upgrade_death(claim).is_none());
            players.push(Player {
                node: node_of(claim.lease, &claim.owner, id),
                lease: claim.lease,
                owner: claim.owner.clone(),
                names: claim.names.clone(),
                held: claim.token.map(|_| claim.mode),
                token: claim.token,
                wanted: upgrade.map(|it| it.mode).or(claim.token.is_none().then_some(claim.mode)),
                order: upgrade.map_or((1, id), |it| (0, it.queued_at)),
            });
            if wish.claim == Some(id) {
                let upgraded = players.last_mut().expect("pushed just now");
                upgraded.wanted = Some(wish.mode);
                upgraded.order = (0, self.revision.next());
            }
        }
        if wish.claim.is_none() {
            let id = self.revision.next();
            players.push(Player {
                node: node_of(wish.lease, wish.owner, id),
                lease: wish.lease,
                owner: wish.owner.clone(),
                names: wish.names.clone(),
                held: None,
                token: None,
                wanted: Some(wish.mode),
                order: (1, id),
            });
        }
        let requester = players.iter().find(|player| player.order.1 == self.revision.next());
        let requester = requester.expect("only the requester has the next revision").clone();
        (players, requester)
    }

    /// Judges the cycle of a deadlock that the oracle found too: each step must be true of the moment of the refusal.
    pub(crate) fn check_cycle(&self, cycle: &[CycleStep]) -> Result<(), String> {
        let impasse = self.impasse.as_ref().ok_or("the oracle found no deadlock in this entry")?;
        let requester = (impasse.requester.lease, impasse.requester.owner.clone());
        let (Some(first), Some(last)) = (cycle.first(), cycle.last()) else {
            return Err("the cycle has no step".to_owned());
        };
        if first.waiter != requester || last.blocker != requester {
            return Err(format!("the cycle does not lead from {requester:?} back to it"));
        }
        let mut node = impasse.requester.node.clone();
        for step in cycle {
            let waiter = impasse.waiter(step).ok_or_else(|| format!("nobody waits like that: {step:?}"))?;
            if waiter.node != node {
                return Err(format!("the waiter is not the blocker of the step before: {step:?}"));
            }
            let blocker = impasse.blocker(step, waiter).ok_or_else(|| format!("not in the way: {step:?}"))?;
            node = blocker.node.clone();
        }
        if node == impasse.requester.node {
            Ok(())
        } else {
            Err("the last blocker is another claim of the requester's lease".to_owned())
        }
    }
}

impl Impasse {
    fn waiter(&self, step: &CycleStep) -> Option<&Player> {
        self.players.iter().find(|player| {
            player.is(&step.waiter) && player.names.contains(&step.wants) && player.wanted == Some(step.mode)
        })
    }

    fn blocker(&self, step: &CycleStep, waiter: &Player) -> Option<&Player> {
        let mut there = self.players.iter().filter(|p| p.is(&step.blocker) && p.names.contains(&step.wants));
        // The token of a holder that is in the way only by its upgrade is correct: it does hold the lock with that
        // token.
        there.find(|player| match step.blocker_token {
            Some(token) => {
                player.token == Some(token) && (player.keeps_out(step.mode) || player.is_ahead_of(waiter))
            }
            None => player.is_ahead_of(waiter),
        })
    }
}

impl Player {
    fn is(&self, who: &(LeaseId, Owner)) -> bool {
        self.lease == who.0 && self.owner == who.1
    }

    /// True if the player holds in a mode that `mode` is not compatible with. In a semaphore any holder counts.
    fn keeps_out(&self, mode: Mode) -> bool {
        self.held.is_some_and(|held| matches!(held, Mode::Permit { .. }) || !held.compatible(mode))
    }

    fn is_ahead_of(&self, other: &Player) -> bool {
        self.wanted.is_some() && self.order < other.order
    }
}

fn node_of(lease: LeaseId, owner: &Owner, claim: Revision) -> Node {
    if owner.is_empty() { Node::Claim(claim) } else { Node::Thread(lease, owner.clone()) }
}

fn waits(players: &[Player], node: &Node) -> bool {
    players.iter().any(|player| player.node == *node && player.wanted.is_some())
}

/// Grants and gives back until nothing moves. Only the first of a queue is ever granted and nothing but giving back
/// makes room, so the order of the moves makes no difference.
fn play_out(mut players: Vec<Player>) -> Vec<Player> {
    loop {
        let mut moved = false;
        for i in 0..players.len() {
            if can_go_on(&players, i) {
                players[i].held = players[i].wanted.take();
                moved = true;
            }
        }
        let before = players.len();
        let waiting: BTreeSet<Node> = players
            .iter()
            .filter(|player| player.wanted.is_some())
            .map(|player| player.node.clone())
            .collect();
        players.retain(|player| waiting.contains(&player.node));
        if !moved && players.len() == before {
            return players;
        }
    }
}

fn can_go_on(players: &[Player], i: usize) -> bool {
    let me = &players[i];
    let Some(wanted) = me.wanted else { return false };
    me.names.as_slice().iter().all(|name| {
        let others = || others_on(players, i, name);
        let first = !others().any(|other| other.is_ahead_of(me));
        first && goes_with(wanted, others().filter_map(|other| other.held))
    })
}

fn others_on<'a>(players: &'a [Player], i: usize, name: &'a Name) -> impl Iterator<Item = &'a Player> {
    let others = players.iter().enumerate().filter(move |(j, _)| *j != i).map(|(_, player)| player);
    others.filter(move |player| player.names.contains(name))
}

/// Finds a cycle to report, by breadth first search. The comparer looks only at the core's cycle.
fn find_cycle(players: &[Player], start: &Node) -> Vec<CycleStep> {
    let mut paths: Vec<(Node, Vec<CycleStep>)> = vec![(start.clone(), Vec::new())];
    let mut reached: BTreeSet<Node> = BTreeSet::new();
    let mut at = 0;
    while at < paths.len() {
        let (from, path) = paths[at].clone();
        at += 1;
        for (blocker, step) in steps_from(players, &from) {
            let longer: Vec<CycleStep> = path.iter().cloned().chain([step]).collect();
            if blocker == *start {
                return longer;
            }
            if reached.insert(blocker.clone()) {
                paths.push((blocker, longer));
            }
        }
    }
    unreachable!("whoever is in the way at the end was in the way at the beginning")
}

fn steps_from(players: &[Player], node: &Node) -> Vec<(Node, CycleStep)> {
    let mut steps = Vec::new();
    for (i, me) in players.iter().enumerate().filter(|(_, player)| player.node == *node) {
        let Some(mode) = me.wanted else { continue };
        for name in me.names.as_slice() {
            for other in others_on(players, i, name) {
                let blocker_token = other.token.filter(|_| other.keeps_out(mode));
                if blocker_token.is_none() && !other.is_ahead_of(me) {
                    continue;
                }
                let waiter = (me.lease, me.owner.clone());
                let blocker = (other.lease, other.owner.clone());
                let step = CycleStep { waiter, wants: name.clone(), mode, blocker, blocker_token };
                steps.push((other.node.clone(), step));
            }
        }
    }
    steps
}

/// True if waits lead from `node` back to it. Reading: among the players that are left at the end.
fn leads_back(players: &[Player], node: &Node) -> bool {
    let mut reached: BTreeSet<Node> = BTreeSet::new();
    let mut next = vec![node.clone()];
    while let Some(from) = next.pop() {
        for blocker in blockers(players, &from) {
            if blocker == *node {
                return true;
            }
            if reached.insert(blocker.clone()) {
                next.push(blocker);
            }
        }
    }
    false
}

fn blockers(players: &[Player], node: &Node) -> BTreeSet<Node> {
    let mut found = BTreeSet::new();
    for (i, me) in players.iter().enumerate().filter(|(_, player)| player.node == *node) {
        let Some(wanted) = me.wanted else { continue };
        for name in me.names.as_slice() {
            let in_the_way = |other: &&Player| other.keeps_out(wanted) || other.is_ahead_of(me);
            found.extend(others_on(players, i, name).filter(in_the_way).map(|other| other.node.clone()));
        }
    }
    found
}
