//! The effect of each fault when its time comes, and its end.
//!
//! Invariant: no more disks are lost than a minority of any group's voters can spare, and the clock of a leader never
//! jumps ahead: those promises are made to the replicas. A fault that would break them is skipped and counted as
//! skipped. Not here: the kinds of faults and their times (`schedule`).

use super::{Happening, World};
use crate::fault::{Fault, FaultKind, Target};
use crate::network::{End, Links};
use crate::node::Input;
use crate::rng::Rng;
use crate::types::At;
use tollgate_replica::{Role, StorageError};
use tollgate_types::{GroupId, NodeId};

/// Number of attempts to hand leadership back to a leader that was cut off, and the time between two of them.
const HAND_BACK_TRIES: u32 = 12;
const HAND_BACK_US: At = 120_000;

impl World {
    pub(super) fn fault_begins(&mut self, number: usize) {
        if self.healing.begun {
            return;
        }
        let fault = self.scenario.faults[number].clone();
        self.say(|| format!("FAULT {fault}"));
        let happened = self.begin_fault(number, &fault);
        self.stats.fault(fault.kind.label(), happened);
        if happened && self.hits_nodes(&fault.kind) {
            self.troubled_at = self.now;
            if fault.until > self.now {
                self.active.insert(number);
            }
        }
        if happened && fault.until > self.now {
            self.plan(fault.until, Happening::FaultEnds(number));
        }
        self.look_at_leaders();
    }

    /// Begins a fault; returns false if it could not happen.
    fn begin_fault(&mut self, number: usize, fault: &Fault) -> bool {
        let rng = &mut Rng::stream(self.scenario.seed, "fault", number as u64);
        let until = fault.until;
        match &fault.kind {
            FaultKind::Weather(links, weather) => self.network.add_weather(number, links.clone(), *weather),
            FaultKind::Cut { nodes, clients, one_way, breaks } => {
                return self.cut(number, *nodes, *clients, *one_way, *breaks);
            }
            FaultKind::IsolatedLeader(group) => return self.isolate(number, *group),
            FaultKind::StolenVotes(group) => {
                let happened = self.isolate(number, *group);
                self.held.remove(&number);
                self.votes_to_steal = happened.then_some((number, GroupId::new(*group)));
                return happened;
            }
            FaultKind::ElectionCrashes(target) => {
                let crashes = rng.range(2, 10);
                return self.at_node(*target, |world, node| {
                    world.crashes_left = crashes;
                    world.crash_briefly(node);
                });
            }
            FaultKind::Reset(target) => {
                let break_for_long = rng.percent(50);
                return self.at_node(*target, |world, node| world.reset(node, break_for_long));
            }
            FaultKind::Crash(target) => {
                return self.at_node(*target, |world, node| {
                    world.take_down(number, vec![node]);
                });
            }
            FaultKind::CrashSome(count) => {
                let mut all: Vec<u64> = self.present().map(|node| node.id.number()).collect();
                while all.len() as u64 > *count {
                    all.remove(rng.index(all.len()));
                }
                return self.take_down(number, all);
            }
            FaultKind::CrashAll => {
                let all = self.present().map(|node| node.id.number()).collect();
                return self.take_down(number, all);
            }
            FaultKind::RollingRestart => self.plan(self.now, Happening::RollOn(0)),
            FaultKind::Pause(target) => {
                return self.at_node(*target, |world, node| {
                    let node = world.node(node);
                    node.paused_until = node.paused_until.max(until);
                });
            }
            FaultKind::FsyncError(target) => {
                return self.at_node(*target, |world, node| {
                    let down_us = until - world.now;
                    let node = world.node(node);
                    node.queue.fail_next();
                    node.down_us = down_us;
                });
            }
            FaultKind::FsyncStall(target) => {
                return self.at_node(*target, |world, node| world.node(node).queue.stall(until));
            }
            FaultKind::DiskFull(target) => {
                return self.at_node(*target, |world, node| {
                    world.node(node).disk.set_full(true);
                    world.held.entry(number).or_default().push(node);
                });
            }
            FaultKind::BitRot(target) => {
                return self
                    .resolve(*target)
                    .is_some_and(|node| self.may_lose_a_disk(node) && self.rot(node, rng));
            }
            FaultKind::DiskLoss(target, true) => {
                return self.resolve(*target).is_some_and(|node| self.plot(number, node));
            }
            FaultKind::DiskLoss(target, false) => {
                let able = |node: &u64| self.nodes[node].is_up() && self.may_lose_a_disk(*node);
                let Some(node) = self.resolve(*target).filter(able) else {
                    return false;
                };
                self.lose_disk(node, false);
            }
            _ => return self.begin_quiet_fault(fault, rng),
        }
        true
    }

    /// Begins a fault of clocks, operators or clients.
    fn begin_quiet_fault(&mut self, fault: &Fault, rng: &mut Rng) -> bool {
        let (now, until) = (self.now, fault.until);
        match &fault.kind {
            FaultKind::ClockRate(target, off_ppm) => self.at_node(*target, |world, node| {
                world.node(node).clock.set_rate(now, *off_ppm);
                world.replan_turn(node);
            }),
            FaultKind::ClockStill(target) => self.at_node(*target, |world, node| {
                world.node(node).clock.stand_still(now, until);
                world.replan_turn(node);
            }),
            FaultKind::ClockBack(target, us) => self.at_node(*target, |world, node| {
                world.node(node).clock.jump(now, -i64::try_from(*us).expect("seconds"));
                world.replan_turn(node);
            }),
            FaultKind::ClockAhead(target, us) => self.clock_ahead(*target, *us),
            FaultKind::Snapshot(target) => self.at_node(*target, |world, node| {
                for group in world.groups() {
                    world.give(node, Input::Snapshot(group));
                }
            }),
            FaultKind::Transfer => self.transfer(rng),
            FaultKind::AddNode => self.ask_for_a_node(true),
            FaultKind::PassingLearner => self.ask_for_a_node(false),
            FaultKind::RemoveNode(target) => {
                self.resolve(*target).is_some_and(|node| self.ask_to_remove(node))
            }
            FaultKind::ReplaceNode(target) => {
                self.resolve(*target).is_some_and(|node| self.ask_to_replace(node))
            }
            FaultKind::ApplyVersion => self.mix_versions(rng),
            FaultKind::ClientCrash(client) => self.crash_client(*client),
            FaultKind::ClientPause(client) => self.pause_client(*client, until),
            _ => unreachable!("the other faults are noisy"),
        }
    }

    pub(super) fn fault_ends(&mut self, number: usize) {
        if self.healing.begun {
            return;
        }
        let fault = self.scenario.faults[number].clone();
        self.say(|| format!("over: {fault}"));
        if self.active.remove(&number) {
            self.troubled_at = self.now;
        }
        self.network.remove(number);
        for node in self.held.remove(&number).unwrap_or_default() {
            match fault.kind {
                FaultKind::DiskFull(_) => self.node(node).disk.set_full(false),
                FaultKind::IsolatedLeader(group) => self.hand_to(GroupId::new(group), node, HAND_BACK_TRIES),
                _ => {
                    self.node(node).held_down -= 1;
                    self.boot(node);
                }
            }
        }
        match fault.kind {
            FaultKind::PassingLearner => self.dismiss_learners(),
            FaultKind::ElectionCrashes(_) => self.crashes_left = 0,
            FaultKind::StolenVotes(_) => self.votes_to_steal = None,
            _ => {}
        }
        self.look_at_leaders();
    }

    /// Returns true if the fault hits the network, the disks or the processes of nodes: only then may a leader be
    /// unable to commit. A fault of clients, clocks or snapshots is no excuse, nor is a flipped bit that nobody has
    /// read.
    fn hits_nodes(&self, kind: &FaultKind) -> bool {
        match kind {
            FaultKind::Weather(links, _) => *links != Links::Clients,
            FaultKind::Cut { nodes, .. } => {
                let far = (0..self.present().count()).filter(|place| nodes >> (place % 64) & 1 == 1).count();
                far > 0 && far < self.present().count()
            }
            FaultKind::IsolatedLeader(_)
            | FaultKind::StolenVotes(_)
            | FaultKind::ElectionCrashes(_)
            | FaultKind::Reset(_)
            | FaultKind::Crash(_)
            | FaultKind::CrashSome(_)
            | FaultKind::CrashAll
            | FaultKind::RollingRestart
            | FaultKind::Pause(_)
            | FaultKind::FsyncError(_)
            | FaultKind::FsyncStall(_)
            | FaultKind::DiskFull(_)
            | FaultKind::DiskLoss(..)
            | FaultKind::ApplyVersion => true,
            FaultKind::BitRot(_)
            | FaultKind::ClockRate(..)
            | FaultKind::ClockStill(_)
            | FaultKind::ClockBack(..)
            | FaultKind::ClockAhead(..)
            | FaultKind::Snapshot(_)
            | FaultKind::Transfer
            | FaultKind::AddNode
            | FaultKind::RemoveNode(_)
            | FaultKind::ReplaceNode(_)
            | FaultKind::PassingLearner
            | FaultKind::ClientCrash(_)
            | FaultKind::ClientPause(_) => false,
        }
    }

    /// Returns the node that a fault hits.
    fn resolve(&self, target: Target) -> Option<u64> {
        let all: Vec<u64> = self.present().map(|node| node.id.number()).collect();
        let place = match target {
            Target::Place(place) => place,
            Target::Leader(group) => match self.leadership.leader(group) {
                Some(leader) => return Some(leader),
                None => u64::from(group),
            },
        };
        let place = place.checked_rem(all.len() as u64)?;
        Some(all[usize::try_from(place).expect("small")])
    }

    fn at_node(&mut self, target: Target, act: impl FnOnce(&mut World, u64)) -> bool {
        let Some(node) = self.resolve(target).filter(|node| self.nodes[node].is_up()) else { return false };
        self.say(|| format!("...at n{node}"));
        act(self, node);
        true
    }

    fn cut(&mut self, number: usize, nodes: u64, clients: u8, one_way: bool, breaks: bool) -> bool {
        let all: Vec<u64> = self.present().map(|node| node.id.number()).collect();
        let is_far = |place: usize| nodes >> (place % 64) & 1 == 1;
        let (far, near): (Vec<_>, Vec<_>) =
            all.into_iter().enumerate().partition(|(place, _)| is_far(*place));
        let mut ends: Vec<End> = far.iter().map(|(_, node)| End::Node(*node)).collect();
        ends.extend(
            self.clients.numbers().filter(|no| clients >> (no.0 % 2) & 1 == 1).map(|no| End::Client(no.0)),
        );
        if ends.is_empty() {
            return false;
        }
        self.say(|| format!("...far: {ends:?}"));
        self.network.add_cut(number, ends, one_way);
        if breaks {
            for (_, one) in &far {
                for (_, other) in &near {
                    self.break_connection(*one, *other, true);
                }
            }
        }
        true
    }

    /// Cuts a leader off: nobody hears it any more, and it hears nobody.
    fn isolate(&mut self, number: usize, group: u32) -> bool {
        let Some(leader) = self.leadership.leader(group).filter(|_| self.present().count() > 1) else {
            return false;
        };
        self.say(|| format!("...at n{leader}"));
        self.network.add_cut(number, vec![End::Node(leader)], false);
        self.held.insert(number, vec![leader]);
        true
    }

    /// Asks the present leader of the group to hand it to the node, and plans another try a little later.
    pub(super) fn hand_to(&mut self, group: GroupId, node: u64, tries: u32) {
        let leads = self.leader_of(group).map(|(leader, _)| leader);
        if tries == 0 || leads == Some(node) {
            return;
        }
        if let Some(leader) = leads {
            self.hands_on(group);
            self.give(leader, Input::Transfer(group, NodeId::new(node)));
        }
        self.plan(self.now + HAND_BACK_US, Happening::HandTo { group, node, tries: tries - 1 });
    }

    /// Kills a process, and starts it again before the others have finished what they are doing.
    pub(super) fn crash_briefly(&mut self, number: u64) {
        self.kill(number);
        let at = self.now + self.rng.log_range(500, 10_000);
        self.plan(at, Happening::Boot(number));
    }

    /// Handles an election. If votes are to be stolen, the voters crash before they hear of the result, and are back at
    /// once.
    pub(super) fn elected(&mut self, number: u64, group: GroupId) {
        let Some((fault, _)) = self.votes_to_steal.filter(|(_, of)| *of == group) else { return };
        let winner = End::Node(number);
        if self.network.cuts_off(fault, winner) {
            return;
        }
        self.votes_to_steal = None;
        let others: Vec<u64> =
            self.present().map(|node| node.id.number()).filter(|node| *node != number).collect();
        for other in others {
            if !self.network.cuts_off(fault, End::Node(other)) && self.nodes[&other].is_up() {
                self.crash_briefly(other);
            }
        }
        self.network.remove(fault);
        self.network.add_cut(fault, vec![winner], false);
    }

    /// Handles a node that writes down a new term, and perhaps a vote: it may crash once that is done and the vote is
    /// given.
    pub(super) fn votes(&mut self, number: u64) {
        if self.crashes_left > 0 && self.rng.percent(60) {
            self.crashes_left -= 1;
            let at = self.now + self.scenario.disk.fsync_us_max + self.rng.log_range(100, 5_000);
            self.plan(at, Happening::CrashBriefly(number));
        }
    }

    fn reset(&mut self, node: u64, for_long: bool) {
        let others: Vec<u64> =
            self.present().map(|other| other.id.number()).filter(|other| *other != node).collect();
        for other in others {
            self.break_connection(node, other, for_long);
        }
    }

    /// Breaks a connection: messages under way are lost. With `for_long`, both nodes hear of it.
    fn break_connection(&mut self, one: u64, other: u64, for_long: bool) {
        self.network.reset(End::Node(one), End::Node(other));
        if for_long {
            self.plan_lost(one, other);
            self.plan_lost(other, one);
        }
    }

    /// Plans the news for a node that its connection with the peer is gone.
    fn plan_lost(&mut self, node: u64, peer: u64) {
        let Some(process) = &self.nodes[&node].process else { return };
        let boot = process.boot;
        let at = self.now + self.rng.range(500, 20_000);
        self.plan(at, Happening::Lost { node, peer, boot });
    }

    pub(super) fn connection_lost(&mut self, node: u64, peer: u64, boot: u64) {
        let process = self.node(node).process.as_mut();
        let Some(process) = process.filter(|process| process.boot == boot) else { return };
        process.lost.insert(peer);
        self.give(node, Input::Lost(NodeId::new(peer).expect("a node")));
    }

    /// Restores the connections that can be made again.
    pub(super) fn reconnect(&mut self) {
        let mut regained = Vec::new();
        for node in self.nodes.values() {
            let Some(process) = &node.process else { continue };
            for &peer in &process.lost {
                let (one, other) = (End::Node(node.id.number()), End::Node(peer));
                let is_up = self.nodes.get(&peer).is_some_and(|peer| peer.is_lively(self.now));
                if is_up && !self.network.is_cut(one, other) && !self.network.is_cut(other, one) {
                    regained.push((node.id.number(), peer));
                }
            }
        }
        for (node, peer) in regained {
            self.node(node).process.as_mut().expect("just seen").lost.remove(&peer);
            self.give(node, Input::Regained(NodeId::new(peer).expect("a node")));
        }
    }

    /// Kills nodes and holds them down until the fault ends. Returns false, and does nothing, if none of them was up.
    fn take_down(&mut self, fault: usize, nodes: Vec<u64>) -> bool {
        if !nodes.iter().any(|node| self.nodes[node].is_up()) {
            return false;
        }
        for &node in &nodes {
            self.kill(node);
            self.node(node).held_down += 1;
        }
        self.held.entry(fault).or_default().extend(nodes);
        true
    }

    /// Kills a process at once; its peers hear of it, unless the network is cut.
    pub(super) fn kill(&mut self, number: u64) {
        let Some(lost) = self.node(number).crash() else { return };
        self.say(|| format!("n{number} is down, {lost} writes lost"));
        self.stats.writes_lost += lost as u64;
        self.network.reset_all(End::Node(number));
        let others: Vec<u64> =
            self.present().map(|node| node.id.number()).filter(|node| *node != number).collect();
        for other in others {
            if !self.network.is_cut(End::Node(number), End::Node(other)) {
                self.plan_lost(other, number);
            }
        }
        self.look_at_leaders();
    }

    /// Starts a process, if nothing holds it down.
    pub(super) fn boot(&mut self, number: u64) {
        let node = &self.nodes[&number];
        if node.is_up() || node.retired || node.disk_lost || node.held_down > 0 || node.disk.is_empty() {
            return;
        }
        self.boots += 1;
        self.stats.boots += 1;
        let (boot, now) = (self.boots, self.now);
        let node = self.nodes.get_mut(&number).expect("just seen");
        match node.boot(&self.scenario, boot, now) {
            Ok(()) => {
                self.say(|| format!("n{number} is up (boot {boot})"));
                self.plan_turn(number, now + 1);
            }
            Err(StorageError::Corrupt { file, what }) => {
                self.say(|| format!("n{number} does not start: {file} is corrupt ({what})"));
                assert!(
                    self.nodes[&number].rotten,
                    "n{number} finds its disk corrupt and no bit has flipped: {what}"
                );
                self.lose_disk(number, false);
            }
            Err(error) => panic!("n{number} can't load its disk: {error}"),
        }
    }

    pub(super) fn fsync_failed(&mut self, number: u64) {
        self.say(|| format!("n{number} an fsync failed"));
        self.troubled_at = self.now;
        let down_us = self.node(number).down_us;
        self.kill(number);
        self.plan(self.now + down_us, Happening::Boot(number));
    }

    fn rot(&mut self, number: u64, rng: &mut Rng) -> bool {
        let node = self.node(number);
        let Some(rot) = node.disk.rot(rng) else { return false };
        node.rotten = true;
        self.say(|| format!("...at n{number}: {rot:?}"));
        true
    }

    /// Returns true if every group can do without this disk, and no disk is lost or rotten already.
    fn may_lose_a_disk(&self, number: u64) -> bool {
        let all_well = self.present().all(|node| !node.rotten && !node.disk_lost);
        let used = self.nodes.get(&number).is_some_and(|node| !node.disk.is_empty());
        all_well && used && self.operator.voters_wanted() >= 3 && self.members_settled()
    }

    /// Prepares the worst moment for a disk to be lost: the node and just enough others go on, while the rest lags
    /// behind.
    fn plot(&mut self, number: usize, victim: u64) -> bool {
        let Some(leader) = self.leadership.leader(0).filter(|leader| *leader != victim) else { return false };
        if !self.may_lose_a_disk(victim) {
            return false;
        }
        let mut others: Vec<u64> = self.present().map(|node| node.id.number()).collect();
        others.retain(|node| ![victim, leader].contains(node));
        let lagging = others.split_off(others.len() / 2);
        let far = lagging.into_iter().map(End::Node).collect();
        self.network.add_cut(number, far, false);
        others.push(leader);
        let at = self.now + 1_000_000;
        self.active.insert(number);
        self.plan(at, Happening::SpringPlot { fault: number, victim, others });
        true
    }

    /// Loses the disk, takes down the nodes that have what it had, and brings back the nodes that lag behind.
    pub(super) fn spring_plot(&mut self, fault: usize, victim: u64, others: Vec<u64>) {
        if self.healing.begun {
            return;
        }
        self.network.remove(fault);
        if self.present().all(|node| !node.rotten && !node.disk_lost) && !self.nodes[&victim].retired {
            self.take_down(fault, others);
            self.lose_disk(victim, true);
        }
        self.plan(self.now + 3_000_000, Happening::FaultEnds(fault));
    }

    /// Sets the clock of a node ahead, if the node is a follower in all groups.
    fn clock_ahead(&mut self, target: Target, us: u64) -> bool {
        let Some(number) = self.resolve(target) else { return false };
        let node = &self.nodes[&number];
        let leads =
            self.groups().any(|group| node.status(group).is_some_and(|status| status.role != Role::Follower));
        if leads {
            return false;
        }
        let now = self.now;
        self.node(number).clock.jump(now, i64::try_from(us).expect("seconds"));
        self.replan_turn(number);
        true
    }

    fn replan_turn(&mut self, number: u64) {
        let now = self.now;
        let node = self.node(number);
        let Some(process) = &node.process else { return };
        let at = node.clock.when(now, process.host.next_turn().us());
        self.plan_turn(number, at.max(now + 1));
    }

    fn transfer(&mut self, rng: &mut Rng) -> bool {
        let mut any = false;
        for group in self.groups() {
            if let Some((leader, status)) = self.leader_of(group) {
                let voters: Vec<NodeId> = status.members.voters.iter().copied().collect();
                let to = rng.percent(60).then(|| *rng.pick(&voters));
                self.hands_on(group);
                self.give(leader, Input::Transfer(group, to));
                any = true;
            }
        }
        any
    }

    /// Takes a step of a rolling restart: an even step asks a node to stop, an odd one stops and starts it and goes on
    /// to the next.
    pub(super) fn roll_on(&mut self, step: u64) {
        let place = usize::try_from(step / 2).expect("small");
        let Some(number) = self.present().nth(place).map(|node| node.id.number()) else { return };
        // A node that was told to stop is stopped: it counts as one that is about to go for as long as it runs.
        if self.healing.begun && step.is_multiple_of(2) {
            return;
        }
        if self.nodes[&number].is_up() {
            self.troubled_at = self.now;
        }
        if step.is_multiple_of(2) {
            for group in self.groups() {
                if self.leader_of(group).is_some_and(|(leader, _)| leader == number) {
                    self.hands_on(group);
                }
            }
            self.give(number, Input::Stop);
            self.plan(self.now + 400_000, Happening::RollOn(step + 1));
        } else {
            self.kill(number);
            let node = self.node(number);
            node.apply_version = node.apply_version.max(tollgate_core::APPLY_VERSION_SUPPORTED);
            self.plan(self.now + 300_000, Happening::Boot(number));
            self.plan(self.now + 1_200_000, Happening::RollOn(step + 1));
        }
    }

    /// Starts some nodes, never all, again with a newer version to announce.
    fn mix_versions(&mut self, rng: &mut Rng) -> bool {
        let all: Vec<u64> = self.present().map(|node| node.id.number()).collect();
        if all.len() < 2 {
            return false;
        }
        let stays = *rng.pick(&all);
        let newer = self.scenario.config.apply_version + 1;
        for number in all.into_iter().filter(|number| *number != stays) {
            let node = self.node(number);
            // A rolling restart may have brought a newer version already; a node never goes back behind the version in
            // force.
            node.apply_version = node.apply_version.max(newer);
            self.kill(number);
            self.plan(self.now + 50_000, Happening::Boot(number));
        }
        self.raise_version_at(self.now + 3_000_000);
        true
    }

    /// Ends all faults: nothing holds any node back.
    pub(super) fn end_all_faults(&mut self) {
        let now: At = self.now;
        self.network.clear();
        self.held.clear();
        self.active.clear();
        self.crashes_left = 0;
        self.votes_to_steal = None;
        self.troubled_at = now;
        let all: Vec<u64> = self.present().map(|node| node.id.number()).collect();
        for &number in &all {
            let node = self.node(number);
            node.disk.set_full(false);
            node.queue.heal(now);
            node.paused_until = node.paused_until.min(now);
            node.held_down = 0;
            self.plan_turn(number, now + 1);
            self.plan_disk(number);
            self.boot(number);
        }
    }
}
