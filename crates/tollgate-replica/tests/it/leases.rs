//! Leases that live in one group and hold locks in another.

use crate::cluster::{Cluster, GROUP, client_id, grant_lease, lease_id, lock, node, renew};
use tollgate_core::{AddStub, Command, Rejection, Reply, RevokeLease};
use tollgate_replica::{HostEvent, MemberChange, ProposalId, ProposalOutcome};
use tollgate_types::{GroupId, Revision};

const OTHER: GroupId = GroupId::new(1);
/// Name of a lock whose slot belongs to the other one of two groups.
const ELSEWHERE: &str = "orders";

/// The leader of a group.
fn leader_of(cluster: &mut Cluster, group: GroupId) -> u64 {
    let find = |cluster: &Cluster| {
        let running = cluster.nodes.iter().filter_map(|(id, node)| Some((id, node.host.as_ref()?)));
        let leads = running.filter_map(|(id, host)| {
            let status = host.status(group)?;
            status.serves.then_some((status.term, id.number()))
        });
        leads.max().map(|(_, number)| number)
    };
    cluster.until("the group is led", |cluster| find(cluster).is_some());
    find(cluster).unwrap()
}

fn apply(cluster: &mut Cluster, group: GroupId, command: Command) -> Reply {
    let leader = leader_of(cluster, group);
    let id = cluster.propose_in(leader, group, command);
    match cluster.answer(id) {
        Ok(ProposalOutcome::Applied(applied)) => applied.reply,
        other => panic!("{other:?}"),
    }
}

fn granted(cluster: &mut Cluster, lease: u64, ttl_ms: u64) -> Revision {
    match apply(cluster, GROUP, grant_lease(lease, ttl_ms)) {
        Reply::LeaseGranted { incarnation, .. } => incarnation,
        other => panic!("{other:?}"),
    }
}

fn add_stub(cluster: &mut Cluster, lease: u64, incarnation: Revision) -> Reply {
    let stub = AddStub { lease: lease_id(lease), incarnation, client_id: client_id(), home: GROUP };
    apply(cluster, OTHER, Command::AddStub(stub))
}

/// Locks in the other group as soon as the stub is confirmed.
fn lock_elsewhere(cluster: &mut Cluster, name: &str, lease: u64) -> Reply {
    loop {
        match apply(cluster, OTHER, lock(name, lease)) {
            Reply::Rejected(Rejection::StubPending { .. }) => cluster.run_ms(10),
            reply => return reply,
        }
    }
}

fn stubs(cluster: &Cluster) -> u64 {
    let hosts = cluster.nodes.values().filter_map(|node| node.host.as_ref());
    hosts.filter_map(|host| host.state(OTHER)).map(tollgate_core::State::stub_count).max().unwrap()
}

/// Two groups led by different nodes.
fn two_groups() -> Cluster {
    let mut cluster = Cluster::with(3, &[], 2, |config| config.audit_ms = 2_000);
    let home = leader_of(&mut cluster, GROUP);
    let to = if home == 1 { 2 } else { 1 };
    cluster.run_ms(300);
    let from = leader_of(&mut cluster, OTHER);
    cluster.act(from, |host| host.transfer_leadership(OTHER, Some(node(to))));
    cluster.run_ms(300);
    assert_ne!(leader_of(&mut cluster, GROUP), leader_of(&mut cluster, OTHER));
    cluster
}

#[test]
fn a_lock_in_another_group_ends_after_its_lease_and_soon() {
    let mut cluster = two_groups();
    let incarnation = granted(&mut cluster, 1, 2_000);
    add_stub(&mut cluster, 1, incarnation);
    assert!(matches!(lock_elsewhere(&mut cluster, ELSEWHERE, 1), Reply::Acquired { .. }));
    // One keepalive serves both groups.
    for _ in 0..4 {
        cluster.run_ms(1_000);
        apply(&mut cluster, GROUP, renew(1));
    }
    assert_eq!(stubs(&cluster), 1);
    let home = leader_of(&mut cluster, GROUP);
    cluster
        .until("the lease has ended", |cluster| cluster.host(home).state(GROUP).unwrap().lease_count() == 0);
    let ended_us = cluster.now_us;
    assert_eq!(stubs(&cluster), 1, "the home ends it first");
    cluster.until("the stub has ended", |cluster| stubs(cluster) == 0);
    let took_ms = (cluster.now_us - ended_us) / 1_000;
    assert!(took_ms < 100, "took {took_ms} ms");
    cluster.until("it was acknowledged", |cluster| {
        cluster.host(home).state(GROUP).unwrap().unacked_count() == 0
    });
}

#[test]
fn groups_led_by_one_node_correspond_too() {
    let mut cluster = Cluster::new(1, &[], 2);
    let incarnation = granted(&mut cluster, 1, 60_000);
    add_stub(&mut cluster, 1, incarnation);
    assert!(matches!(lock_elsewhere(&mut cluster, ELSEWHERE, 1), Reply::Acquired { .. }));
    let revoke = RevokeLease { lease: lease_id(1), disconnected: None };
    apply(&mut cluster, GROUP, Command::RevokeLease(revoke));
    cluster.until("the stub has ended", |cluster| stubs(cluster) == 0);
}

#[test]
fn a_stub_of_a_lease_that_ended_before_it_registered_ends() {
    let mut cluster = two_groups();
    let incarnation = granted(&mut cluster, 1, 60_000);
    let revoke = RevokeLease { lease: lease_id(1), disconnected: None };
    apply(&mut cluster, GROUP, Command::RevokeLease(revoke));
    add_stub(&mut cluster, 1, incarnation);
    cluster.until("the stub has ended", |cluster| stubs(cluster) == 0);
    assert!(matches!(
        apply(&mut cluster, OTHER, lock(ELSEWHERE, 1)),
        Reply::Rejected(Rejection::LeaseNotFound { .. })
    ));
}

#[test]
fn letters_are_written_again_until_they_arrive() {
    let mut cluster = two_groups();
    let incarnation = granted(&mut cluster, 1, 60_000);
    let (home, other) = (leader_of(&mut cluster, GROUP), leader_of(&mut cluster, OTHER));
    // Raft continues through the third node; the two leaders can't reach each other.
    cluster.cut.insert((node(home), node(other)));
    cluster.cut.insert((node(other), node(home)));
    add_stub(&mut cluster, 1, incarnation);
    cluster.run_ms(700);
    cluster.heal();
    assert!(matches!(lock_elsewhere(&mut cluster, ELSEWHERE, 1), Reply::Acquired { .. }));
}

/// The removed node still leads another group, and does not learn of the later leader.
#[test]
fn p6_a_node_that_was_removed_from_a_group_tells_its_later_leader_of_ends() {
    let mut cluster = Cluster::with(3, &[], 2, |config| {
        (config.audit_ms, config.balance_ms) = (600_000, 0);
    });
    let home = leader_of(&mut cluster, GROUP);
    let others: Vec<u64> = (1..=3).filter(|number| *number != home).collect();
    cluster.run_ms(300);
    let hand_to = |cluster: &mut Cluster, to: u64| {
        let from = leader_of(cluster, OTHER);
        cluster.act(from, |host| host.transfer_leadership(OTHER, Some(node(to))));
        cluster.until("it leads", |cluster| cluster.host(to).leads(OTHER));
        cluster.run_ms(300);
    };
    if leader_of(&mut cluster, OTHER) != others[0] {
        hand_to(&mut cluster, others[0]);
    }
    let incarnation = granted(&mut cluster, 1, 2_000);
    add_stub(&mut cluster, 1, incarnation);
    assert!(matches!(lock_elsewhere(&mut cluster, ELSEWHERE, 1), Reply::Acquired { .. }));
    let remove = MemberChange::Remove { node: node(home) };
    cluster.act(others[0], |host| host.change_members(OTHER, ProposalId(1_000_000), &remove));
    assert!(matches!(cluster.answer(ProposalId(1_000_000)), Ok(ProposalOutcome::Members(_))));
    cluster.until("it hears of it", |cluster| {
        cluster.events.contains(&(node(home), HostEvent::Removed { group: OTHER }))
    });
    hand_to(&mut cluster, others[1]);
    assert!(cluster.host(home).leads(GROUP));
    cluster
        .until("the lease has ended", |cluster| cluster.host(home).state(GROUP).unwrap().lease_count() == 0);
    let ended_us = cluster.now_us;
    cluster.until("the stub has ended", |cluster| {
        cluster.host(others[1]).state(OTHER).unwrap().stub_count() == 0
    });
    let took_ms = (cluster.now_us - ended_us) / 1_000;
    assert!(took_ms < 500, "took {took_ms} ms");
    cluster.until("it was acknowledged", |cluster| {
        cluster.host(home).state(GROUP).unwrap().unacked_count() == 0
    });
}

#[test]
fn what_is_owed_survives_both_leaders() {
    let mut cluster = two_groups();
    let incarnation = granted(&mut cluster, 1, 3_000);
    add_stub(&mut cluster, 1, incarnation);
    assert!(matches!(lock_elsewhere(&mut cluster, ELSEWHERE, 1), Reply::Acquired { .. }));
    for number in 1..=3 {
        cluster.crash(number);
    }
    for number in 1..=3 {
        cluster.start(number);
    }
    cluster.until("lease and stub have ended", |cluster| stubs(cluster) == 0);
}

#[test]
fn an_audit_finds_stubs_whose_home_knows_nothing_of_them() {
    let mut cluster = two_groups();
    // A stub that is confirmed although its lease never existed, as after a restore of the home alone.
    let incarnation = Revision::new(999).unwrap();
    let (home, other) = (leader_of(&mut cluster, GROUP), leader_of(&mut cluster, OTHER));
    cluster.cut.insert((node(other), node(home)));
    let Reply::Stub(stub) = add_stub(&mut cluster, 7, incarnation) else { panic!("added") };
    let confirm = tollgate_core::ConfirmStub { lease: lease_id(7), incarnation, added: stub.added };
    apply(&mut cluster, OTHER, Command::ConfirmStub(confirm));
    assert_eq!(stubs(&cluster), 1);
    cluster.heal();
    cluster.until("the stub has ended", |cluster| stubs(cluster) == 0);
}
