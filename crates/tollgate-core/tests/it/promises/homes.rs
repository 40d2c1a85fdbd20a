//! P5 and P6 over groups: a lease's claims in another group never end while the lease lives, and always end after it.
//!
//! A home and two groups with stubs, each a state of its own, and leaders that act only on what the queries return. The
//! wire between them loses, repeats and delays messages; replicas are restored from their snapshots.

use super::{ensure, must_fail, must_hold};
use crate::codec::Rng;
use crate::commands::{Replica, acquire, confirm, grant, lease, lock, register, renew, revoke, stub};
use tollgate_core::{
    AckLeaseEnd, AcquireLock, AddStub, Applied, Bug, Command, ConfirmStub, EndStub, LeaseEnd, RegisterStub,
    Rejection, Reply, STUB_GROUPS_MAX, StubView, Wait,
};
use tollgate_types::{ClientId, GroupId, Limit, Limits, Revision};

const LEASES: u64 = 3;
const TTL_MS: u64 = 100;
const STEPS: u64 = 400;
const SEEDS: u64 = 60;
/// The groups with stubs; the home is group 0.
const TARGETS: [u32; 2] = [1, 2];
/// Rounds without losses after which all must be quiet: add, register, confirm or end, ack, and one more.
const ROUNDS: usize = 6;

/// A message between groups that is on its way.
#[derive(Clone, Copy)]
enum Message {
    Register { target: usize, stub: StubView },
    Confirm { target: usize, stub: StubView },
    End { target: usize, end: EndStub },
    Ack { target: usize, end: EndStub },
}

struct World {
    rng: Rng,
    now: u64,
    home: Replica,
    targets: Vec<Replica>,
    wire: Vec<Message>,
    /// Copies of delivered messages, to be delivered again: soon, or when all has changed.
    duplicates: Vec<Message>,
    /// Leases that were used once.
    past: Vec<(u64, Revision)>,
    /// Number of locks that were granted on stubs.
    granted: u64,
}

impl World {
    fn new(seed: u64, bug: Option<Bug>) -> World {
        let limits = Limits { ttl_ms_min: 1, ..Limits::DEFAULT };
        let replica = || Replica::new(&limits, bug);
        let targets = TARGETS.iter().map(|_| replica()).collect();
        let (wire, duplicates, past) = (Vec::new(), Vec::new(), Vec::new());
        let (rng, home) = (Rng::new(seed), replica());
        World { rng, now: 0, home, targets, wire, duplicates, past, granted: 0 }
    }

    fn id(&mut self) -> u64 {
        1 + self.rng.next() % LEASES
    }

    fn step(&mut self) -> Result<(), String> {
        self.now += self.rng.next() % 4;
        match self.rng.below(16) {
            0 => {
                let id = self.id();
                self.home.at(self.now, grant(id, TTL_MS));
            }
            1 => {
                let id = self.id();
                self.home.at(self.now, renew([id]));
            }
            2 if self.rng.one_in(3) => {
                let id = self.id();
                self.home.at(self.now, revoke(id));
            }
            3 | 4 => {
                let target = self.rng.below(TARGETS.len());
                self.ask_for_a_lock(target)?;
            }
            5 => self.leaders_look(),
            6 if self.rng.one_in(4) => self.restore()?,
            7 if !self.duplicates.is_empty() => {
                let late = self.rng.below(self.duplicates.len());
                let message = self.duplicates.swap_remove(late);
                self.deliver(message)?;
            }
            8 if !self.wire.is_empty() => {
                let lost = self.rng.below(self.wire.len());
                self.wire.swap_remove(lost);
            }
            _ if !self.wire.is_empty() => {
                let next = self.rng.below(self.wire.len());
                let message = self.wire.swap_remove(next);
                if self.rng.one_in(2) {
                    self.duplicates.push(message);
                }
                self.deliver(message)?;
            }
            _ => _ = self.home.at(self.now, Command::Tick),
        }
        self.check()
    }

    fn restore(&mut self) -> Result<(), String> {
        match self.rng.below(TARGETS.len() + 1) {
            0 => self.home.restore(300),
            target => self.targets[target - 1].restore(300),
        }
    }

    /// Lets a client use its lease in a group; its gateway has asked the home for the incarnation, now or long ago.
    fn ask_for_a_lock(&mut self, target: usize) -> Result<(), String> {
        let mut id = self.id();
        let text = ["a", "b", "c", "d"][self.rng.below(4)];
        let mut incarnation = self.home.state.lease(lease(id)).map(|view| view.incarnation);
        if !self.past.is_empty() && self.rng.one_in(4) {
            let (stale_id, stale) = self.past[self.rng.below(self.past.len())];
            (id, incarnation) = (stale_id, Some(stale));
        }
        if let Some(incarnation) = incarnation {
            self.past.push((id, incarnation));
            let (client_id, home) = (ClientId::NONE, GroupId::MAP);
            let add = AddStub { lease: lease(id), incarnation, client_id, home };
            self.apply(target, &Command::AddStub(add))?;
        }
        let wait = if self.rng.one_in(2) { Wait::Forever } else { Wait::No };
        let acquire = AcquireLock { wait, ..acquire(id, &[text]) };
        let reply = self.apply(target, &Command::AcquireLock(acquire))?.reply;
        self.granted += u64::from(matches!(reply, Reply::Acquired { .. }));
        Ok(())
    }

    /// P5: a lease that ends here has ended at home.
    fn apply(&mut self, target: usize, command: &Command) -> Result<Applied, String> {
        let applied = self.targets[target].at(self.now, command.clone());
        for ended in &applied.ended_leases {
            let lives = self.home.state.lease_lives(ended.lease, ended.incarnation);
            ensure!(!lives, "{command:?} ended {ended:?}, which lives");
        }
        Ok(applied)
    }

    /// Sends the messages that leaders send every now and then, for which they need no memory.
    fn leaders_look(&mut self) {
        for (target, replica) in self.targets.iter().enumerate() {
            let pending = replica.state.pending_stubs(None, 2);
            self.wire.extend(pending.into_iter().map(|stub| Message::Register { target, stub }));
        }
        for owed in self.home.state.unacked_ends(None, 4) {
            let target = TARGETS.iter().position(|group| *group == owed.group.number()).expect("a group");
            let end = EndStub { lease: owed.lease, incarnation: owed.incarnation, reason: owed.reason };
            self.wire.push(Message::End { target, end });
        }
    }

    fn deliver(&mut self, message: Message) -> Result<(), String> {
        match message {
            Message::Register { target, stub } => {
                let StubView { lease, incarnation, .. } = stub;
                let register = RegisterStub { lease, incarnation, group: GroupId::new(TARGETS[target]) };
                match self.home.at(self.now, Command::RegisterStub(register)).reply {
                    Reply::StubRegistered => self.wire.push(Message::Confirm { target, stub }),
                    Reply::LeaseUnknown => {
                        let end = EndStub { lease, incarnation, reason: LeaseEnd::Expired };
                        self.wire.push(Message::End { target, end });
                    }
                    other => return Err(format!("{register:?}: {other:?}")),
                }
            }
            Message::Confirm { target, stub } => {
                let StubView { lease, incarnation, added, .. } = stub;
                self.apply(target, &Command::ConfirmStub(ConfirmStub { lease, incarnation, added }))?;
            }
            Message::End { target, end } => {
                self.apply(target, &Command::EndStub(end))?;
                self.wire.push(Message::Ack { target, end });
            }
            Message::Ack { target, end } => {
                let EndStub { lease, incarnation, .. } = end;
                let ack = AckLeaseEnd { lease, incarnation, group: GroupId::new(TARGETS[target]) };
                self.home.at(self.now, Command::AckLeaseEnd(ack));
            }
        }
        Ok(())
    }

    /// P6: a lease that can be used here lives at home, or the home owes this group notice of its end.
    fn check(&self) -> Result<(), String> {
        let owed = self.home.state.unacked_ends(None, usize::MAX);
        for (target, replica) in self.targets.iter().enumerate() {
            let group = GroupId::new(TARGETS[target]);
            for stub in replica.state.stubs(None, usize::MAX).into_iter().filter(|stub| !stub.pending) {
                let lives = self.home.state.lease_lives(stub.lease, stub.incarnation);
                let told = owed.iter().any(|end| {
                    (end.lease, end.incarnation, end.group) == (stub.lease, stub.incarnation, group)
                });
                ensure!(lives || told, "group {group} will never hear of the end of {stub:?}");
            }
        }
        Ok(())
    }

    /// Ends all leases, without further losses: soon nothing is left anywhere.
    fn wind_down(&mut self) -> Result<(), String> {
        self.now += TTL_MS;
        self.home.at(self.now, Command::Tick);
        for _ in 0..ROUNDS {
            self.leaders_look();
            while let Some(message) = self.wire.pop() {
                self.deliver(message)?;
            }
            self.check()?;
        }
        ensure!(self.home.state.unacked_count() == 0, "somebody must still be told");
        for replica in &self.targets {
            ensure!(replica.state.stub_count() == 0, "{:?} is left", replica.state.stubs(None, 1));
            ensure!(replica.state.lock_count() == 0, "a lock is held by nobody");
        }
        Ok(())
    }
}

fn locks_end_with_the_lease_and_not_before(bug: Option<Bug>) -> Result<(), String> {
    let mut granted = 0;
    for seed in 0..SEEDS {
        let mut world = World::new(seed, bug);
        let told = |why| format!("seed {seed}: {why}");
        for _ in 0..STEPS {
            world.step().map_err(told)?;
        }
        world.wind_down().map_err(told)?;
        granted += world.granted;
    }
    ensure!(granted > 500, "only {granted} locks were granted on stubs");
    Ok(())
}

#[test]
fn p5_p6_what_a_lease_has_in_other_groups_ends_with_it_and_not_before() {
    must_hold(locks_end_with_the_lease_and_not_before);
    must_fail(locks_end_with_the_lease_and_not_before, Bug::StubEndIgnoresIncarnation);
    must_fail(locks_end_with_the_lease_and_not_before, Bug::StubConfirmedByOldAnswer);
    must_fail(locks_end_with_the_lease_and_not_before, Bug::NewerStubTakesOver);
    must_fail(locks_end_with_the_lease_and_not_before, Bug::EndedLeaseRegistered);
    must_fail(locks_end_with_the_lease_and_not_before, Bug::UnackedEndsLostInSnapshot);
    must_fail(locks_end_with_the_lease_and_not_before, Bug::OneAckForAll);
}

/// [`STUB_GROUPS_MAX`], as a group's number.
const GROUPS_MAX: u32 = 1_024;

#[test]
fn p16_a_lease_has_stubs_in_so_many_groups_only() {
    let mut replica = Replica::new(&Limits::DEFAULT, None);
    replica.at(0, grant(1, 1_000));
    // In descending order, so that each group goes to the front.
    for group in (0..GROUPS_MAX).rev() {
        assert_eq!(replica.at(0, register(1, 1, group)).reply, Reply::StubRegistered);
    }
    let max = STUB_GROUPS_MAX as u64;
    assert_eq!(max, u64::from(GROUPS_MAX));
    let refused = Reply::Rejected(Rejection::TooManyGroups { lease: lease(1), max });
    assert_eq!(replica.at(0, register(1, 1, GROUPS_MAX)).reply, refused);
    assert_eq!(replica.at(0, register(1, 1, 0)).reply, Reply::StubRegistered, "it is registered already");
    replica.restore(1_000).expect("the longest list fits a snapshot");
    replica.at(1_000, Command::Tick);
    replica.restore(1_000).expect("the longest list fits a snapshot");
    let mut seen = Vec::new();
    while let Some(last) = replica.state.unacked_ends(seen.last().copied(), 100).last() {
        seen.push((last.lease, last.incarnation, last.group));
    }
    assert_eq!(seen.len(), STUB_GROUPS_MAX.div_ceil(100), "a page at a time");
    assert_eq!(replica.state.unacked_ends(None, usize::MAX).len(), STUB_GROUPS_MAX);
    assert_eq!(replica.state.unacked_ends(None, 0).len(), 0);
}

/// Leases come and go while a group does not answer: the notices owed to it stay within the limit.
#[test]
fn p16_what_a_silent_group_is_owed_is_bounded() {
    let limits = Limits { leases_max: 10, ..Limits::DEFAULT };
    let mut replica = Replica::new(&limits, None);
    for turn in 0..50 {
        let incarnation = replica.state.revision().get() + 1;
        assert!(matches!(replica.at(turn, grant(1, 1_000)).reply, Reply::LeaseGranted { .. }));
        let reply = replica.at(turn, register(1, incarnation, 7)).reply;
        let refused = Reply::Rejected(Rejection::LimitExceeded { limit: Limit::Leases, max: 10, got: 11 });
        assert_eq!(reply, if turn < 10 { Reply::StubRegistered } else { refused });
        replica.at(turn, revoke(1));
    }
    assert_eq!(replica.state.unacked_count(), 10);
}

#[test]
fn a_stub_does_not_make_time_matter() {
    let mut replica = Replica::new(&Limits::DEFAULT, None);
    replica.at(0, stub(1, 5));
    replica.at(0, confirm(1, 5, 1));
    replica.at(0, lock(1, "jobs"));
    assert_eq!(replica.state.next_deadline(), None, "a group of stubs alone needs no ticks");
}
