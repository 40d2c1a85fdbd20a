//! P14: a slot is served by exactly one group per map epoch.
//!
//! Three groups of one map get the same commands. The group that serves a slot is computed here without the map. Not
//! here: moving slots, and with it a second epoch, which does not exist yet.

use super::{ensure, must_fail, must_hold};
use crate::codec::Rng;
use crate::commands::{Replica, acquire, at, key, lease, name, names, owner, put, request, revision};
use std::collections::BTreeSet;
use std::sync::Arc;
use tollgate_core::{
    AcquireLock, AddStub, Bug, CancelTarget, CancelWait, Command, ConfirmStub, ConvertLock, ForceRelease,
    GrantLease, KeySelector, LeaseChoice, Op, Proclaim, RangeQuery, Rejection, ReleaseBy, ReleaseLock, Reply,
    Sort, Txn, Wait,
};
use tollgate_types::{
    Address, ClientId, DurationMs, GroupId, GroupMap, LeaseId, Limits, Mode, Reason, SeqRanges, Slot, Token,
    Value,
};

const GROUPS: u32 = 3;
const SEEDS: u64 = 20;
const STEPS: u64 = 300;
const NAMES: [&str; 9] = ["a", "b", "c", "d", "e", "jobs", "orders", "{orders}/1", "sem"];

struct World {
    rng: Rng,
    groups: Vec<Replica>,
    seq: u64,
    served: u64,
    refused: u64,
}

/// The group that serves a slot: equal parts, in order.
fn server_of(slot: Slot) -> GroupId {
    GroupId::new(u32::from(slot.number()) * GROUPS / 16_384)
}

/// A lease whose home is this group.
fn lease_in(group: u32) -> LeaseId {
    let first = (0..16_384).map(|number| Slot::new(number).expect("below SLOTS"));
    let slot = first.into_iter().find(|slot| server_of(*slot).number() == group).expect("it has slots");
    LeaseId::assigned(slot, 7)
}

impl World {
    /// Every group knows one lease of each group: one is its own, the others are stubs.
    fn new(seed: u64, bug: Option<Bug>) -> World {
        let map = Arc::new(GroupMap::even(GROUPS).expect("few"));
        let of_group = |number| Replica::of_group(&Limits::DEFAULT, GroupId::new(number), &map, bug);
        let mut groups: Vec<Replica> = (0..GROUPS).map(of_group).collect();
        for (number, group) in (0..GROUPS).zip(&mut groups) {
            for home in 0..GROUPS {
                let lease = lease_in(home);
                if home == number {
                    group.at(0, grant(LeaseChoice::Chosen(lease)));
                    continue;
                }
                let (incarnation, client_id, home) = (revision(1), ClientId::NONE, GroupId::new(home));
                group.at(0, Command::AddStub(AddStub { lease, incarnation, client_id, home }));
                let added = group.state.revision();
                group.at(0, Command::ConfirmStub(ConfirmStub { lease, incarnation, added }));
            }
        }
        World { rng: Rng::new(seed), groups, seq: 0, served: 0, refused: 0 }
    }

    fn text(&mut self) -> &'static str {
        NAMES[self.rng.below(NAMES.len())]
    }

    fn lease(&mut self) -> LeaseId {
        lease_in(u32::try_from(self.rng.below(GROUPS as usize)).expect("few"))
    }

    /// A random command, and the slots of its names, keys and lease ids.
    fn command(&mut self) -> (Command, Vec<Slot>) {
        let (text, id, owner) = (self.text(), self.lease(), owner(["", "w"][self.rng.below(2)]));
        let token = Token::new(1 + self.rng.next() % 40).expect("above 0");
        self.seq += 1;
        let request = if self.rng.one_in(2) { request(self.seq) } else { None };
        let slots = vec![name(text).slot()];
        let command = match self.rng.below(9) {
            0 => return self.lease_command(),
            1 => return self.txn(),
            2 => Command::ReleaseLock(ReleaseLock { names: names(&[text]), by: ReleaseBy::Token(token) }),
            3 => {
                let by = ReleaseBy::Holder { lease: id, owner, token: None, request };
                Command::ReleaseLock(ReleaseLock { names: names(&[text]), by })
            }
            4 => Command::ConvertLock(ConvertLock {
                names: names(&[text]),
                lease: id,
                owner,
                mode: Mode::Exclusive,
                wait: Wait::Forever,
                attended: false,
                request,
            }),
            5 => {
                let target = CancelTarget::Waiter { name: name(text), owner };
                let (release_if_granted, asks_max, acked) = (true, None, SeqRanges::default());
                Command::CancelWait(CancelWait { lease: id, target, release_if_granted, asks_max, acked })
            }
            6 => Command::ForceRelease(ForceRelease { name: name(text), token, reason: Reason::NONE }),
            7 => {
                let (name, value) = (name(text), Value::new("v").expect("short"));
                Command::Proclaim(Proclaim { name, lease: id, owner, token, value, request })
            }
            _ => {
                let texts: BTreeSet<&str> = (0..=self.rng.below(3)).map(|_| self.text()).collect();
                let texts: Vec<&str> = texts.into_iter().collect();
                let mode = [Mode::Exclusive, Mode::Shared][self.rng.below(2)];
                let acquire = AcquireLock { lease: id, owner, mode, request, ..acquire(1, &texts) };
                let slots = texts.iter().map(|text| name(text).slot()).collect();
                return (Command::AcquireLock(acquire), slots);
            }
        };
        (command, slots)
    }

    fn lease_command(&mut self) -> (Command, Vec<Slot>) {
        let slot = Slot::new(u16::try_from(self.rng.below(16_384)).expect("14 bits")).expect("below SLOTS");
        let chosen = LeaseChoice::Chosen(LeaseId::assigned(slot, 1));
        let id = if self.rng.one_in(2) { chosen } else { LeaseChoice::Assigned(slot) };
        (grant(id), vec![slot])
    }

    fn txn(&mut self) -> (Command, Vec<Slot>) {
        let (one, other) = (self.text(), self.text());
        let get = |keys| Op::Get(RangeQuery { keys, limit: 0, sort: Sort::Key });
        let (then, slots) = match self.rng.below(4) {
            0 => (vec![put(one, b"v", None), get(KeySelector::All)], vec![key(one).slot()]),
            1 => (vec![Op::Delete(KeySelector::Key(key(one)))], vec![key(one).slot()]),
            2 => (vec![Op::Delete(KeySelector::Prefix(key(one)))], vec![]),
            _ => (
                vec![put(one, b"v", None), get(KeySelector::Key(key(other)))],
                vec![key(one).slot(), key(other).slot()],
            ),
        };
        (Command::Txn(Txn { request: None, compares: Vec::new(), then, otherwise: Vec::new() }), slots)
    }

    fn step(&mut self) -> Result<(), String> {
        let (command, slots) = self.command();
        let servers: BTreeSet<GroupId> = slots.iter().map(|slot| server_of(*slot)).collect();
        let mut serving = 0;
        for (number, group) in (0..GROUPS).map(GroupId::new).zip(&mut self.groups) {
            let (hash, now) = (group.hash(), group.state.now().ms());
            let applied = group.apply(&at(now, command.clone()));
            let refused = match applied.reply {
                Reply::Rejected(Rejection::WrongGroup { epoch, group: other }) => {
                    let right = epoch == 1 && other != number && servers.contains(&other);
                    ensure!(right, "group {number} sends {command:?} to {other} by epoch {epoch}");
                    ensure!(group.hash() == hash, "group {number} refused {command:?}, and changed");
                    true
                }
                _ => false,
            };
            let own = servers.iter().all(|server| *server == number);
            ensure!(refused != own, "group {number} of {servers:?} answers {command:?}: {:?}", applied.reply);
            serving += u64::from(!refused);
        }
        self.served += u64::from(serving == 1);
        self.refused += u64::from(serving == 0);
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        for text in NAMES {
            let locks = self.groups.iter().filter(|group| group.state.lock(&name(text)).is_some()).count();
            let keys = self.groups.iter().filter(|group| group.state.register(&key(text)).is_some()).count();
            ensure!(locks <= 1 && keys <= 1, "{text} is in {locks} groups, its register in {keys}");
        }
        Ok(())
    }
}

fn grant(id: LeaseChoice) -> Command {
    let (ttl, client_id, address) = (DurationMs::from_secs(60), ClientId::NONE, Address::NONE);
    Command::GrantLease(GrantLease { id, ttl, client_id, address, revoke_on_disconnect: false })
}

fn each_slot_is_served_by_one_group(bug: Option<Bug>) -> Result<(), String> {
    let (mut served, mut refused) = (0, 0);
    for seed in 0..SEEDS {
        let mut world = World::new(seed, bug);
        let told = |why| format!("seed {seed}: {why}");
        for _ in 0..STEPS {
            world.step().map_err(told)?;
            world.check().map_err(told)?;
        }
        (served, refused) = (served + world.served, refused + world.refused);
    }
    ensure!(served > 2_000 && refused > 200, "{served} were served by one group, {refused} by none");
    Ok(())
}

#[test]
fn p14_a_slot_is_served_by_exactly_one_group() {
    must_hold(each_slot_is_served_by_one_group);
    must_fail(each_slot_is_served_by_one_group, Bug::WrongGroupServed);
    must_fail(each_slot_is_served_by_one_group, Bug::PlacedByFirstName);
}

/// The map is a part of the state: a restored replica serves the same slots.
#[test]
fn p14_a_snapshot_carries_the_group_and_its_map() {
    let slot = |number| Slot::new(number).expect("below SLOTS");
    let ranges =
        vec![(slot(0), GroupId::new(4)), (slot(100), GroupId::new(300)), (slot(9_000), GroupId::MAP)];
    let map = Arc::new(GroupMap::new(1 << 40, ranges).expect("a good map"));
    let mut replica = Replica::of_group(&Limits::DEFAULT, GroupId::new(300), &map, None);
    let alone = Replica::new(&Limits::DEFAULT, None);
    let other = Replica::of_group(&Limits::DEFAULT, GroupId::new(4), &map, None);
    assert!(replica.hash() != alone.hash() && replica.hash() != other.hash(), "the hash tells them apart");
    replica.restore(16).expect("its own snapshot");
    assert_eq!((replica.state.group(), replica.state.map()), (GroupId::new(300), &map));
    let refused = replica.at(0, grant(LeaseChoice::Chosen(lease(1)))).reply;
    assert_eq!(
        refused,
        Reply::Rejected(Rejection::WrongGroup { epoch: 1 << 40, group: GroupId::new(4) }),
        "lease 1 is in slot 0"
    );
    assert!(matches!(
        replica.at(0, grant(LeaseChoice::Assigned(slot(100)))).reply,
        Reply::LeaseGranted { .. }
    ));
}

/// Records that only a map that changed without them could leave behind.
#[test]
fn p14_a_snapshot_with_what_another_group_serves_is_refused() {
    let map = Arc::new(GroupMap::even(GROUPS).expect("few"));
    let mut replica = Replica::of_group(&Limits::DEFAULT, GroupId::new(2), &map, Some(Bug::WrongGroupServed));
    replica.at(0, grant(LeaseChoice::Chosen(lease(1))));
    let why = replica.restore(1_000).expect_err("the lease is another group's");
    assert!(why.contains("group 0 serves that"), "{why}");
}
