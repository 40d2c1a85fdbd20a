//! Changes of membership.

use crate::cluster::{Cluster, GROUP, node};
use crate::snapshots::small;
use tollgate_core::Reply;
use tollgate_replica::{
    HostEvent, MemberChange, MemberRefusal, NodeAddresses, ProposalOutcome, ProposeError, ReplicaKind,
};
use tollgate_types::{HostPort, Zone};

fn changed(cluster: &mut Cluster, change: MemberChange) -> Result<(), ProposeError> {
    let leader = cluster.leader();
    let id = cluster.change(leader, change);
    match cluster.answer(id)? {
        ProposalOutcome::Members(_) => Ok(()),
        ProposalOutcome::Applied(applied) => panic!("a change of members: {applied:?}"),
    }
}

fn refused(cluster: &mut Cluster, change: MemberChange) -> MemberRefusal {
    match changed(cluster, change).unwrap_err() {
        ProposeError::Refused(refusal) => refusal,
        other => panic!("a refusal: {other:?}"),
    }
}

fn add_and_promote(cluster: &mut Cluster, number: u64) {
    changed(
        cluster,
        MemberChange::AddLearner {
            node: node(number),
            witness: false,
            node_addresses: NodeAddresses::UNKNOWN,
        },
    )
    .unwrap();
    cluster.add_joining(number, ReplicaKind::Full, 1);
    cluster.until("the learner has caught up", |cluster| {
        let leader = cluster.leader_now().map(|leader| cluster.status(leader));
        leader.is_some_and(|leader| cluster.status(number).applied == leader.applied)
    });
    cluster.run_ms(200);
    changed(cluster, MemberChange::Promote { node: node(number) }).unwrap();
}

#[test]
fn a_cluster_grows_from_one_to_three_and_shrinks_again() {
    let mut cluster = Cluster::new(1, &[], 1);
    cluster.grant_lease(1, 600_000);
    assert!(matches!(cluster.lock("jobs", 1), Reply::Acquired { .. }));
    add_and_promote(&mut cluster, 2);
    add_and_promote(&mut cluster, 3);
    cluster.run_ms(300);
    assert!(cluster.agree());
    cluster.crash(1);
    cluster.run_ms(100);
    let leader = cluster.leader();
    assert_ne!(leader, 1);
    assert!(matches!(cluster.lock("jobs", 1), Reply::Acquired { .. }), "the lock is still the lease's");
    changed(&mut cluster, MemberChange::Remove { node: node(1) }).unwrap();
    let leader = cluster.leader();
    assert_eq!(cluster.status(leader).members.voters.len(), 2);
}

#[test]
fn a_learner_has_no_vote_until_it_has_caught_up() {
    let mut cluster = Cluster::new(3, &[], 1);
    cluster.grant_lease(1, 600_000);
    changed(
        &mut cluster,
        MemberChange::AddLearner { node: node(4), witness: false, node_addresses: NodeAddresses::UNKNOWN },
    )
    .unwrap();
    let refusal = refused(&mut cluster, MemberChange::Promote { node: node(4) });
    assert!(matches!(refusal, MemberRefusal::NotCaughtUp { .. }), "{refusal:?}");
}

#[test]
fn a_learner_that_needs_a_snapshot_has_no_vote_however_few_entries_it_lacks() {
    let mut cluster = Cluster::with(3, &[], 1, small);
    cluster.grant_lease(1, 600_000);
    let add =
        MemberChange::AddLearner { node: node(4), witness: false, node_addresses: NodeAddresses::UNKNOWN };
    changed(&mut cluster, add).unwrap();
    cluster.add_joining(4, ReplicaKind::Full, 1);
    let leader = cluster.leader();
    cluster.until("it has some log", |cluster| cluster.status(4).applied > 0);
    cluster.run_ms(1_000);
    cluster.crash(4);
    let before = cluster.status(leader).last_index;
    for round in 0..300 {
        cluster.lock(&format!("job{round}"), 1);
    }
    let status = cluster.status(leader);
    assert!(status.first_index > before + 1 && status.last_index - before < 1_000, "{status:?}");
    // It answers, and can't install the snapshot.
    cluster.nodes.get_mut(&node(4)).unwrap().jobs_held = true;
    cluster.start(4);
    cluster.run_ms(1_000);
    let refusal = refused(&mut cluster, MemberChange::Promote { node: node(4) });
    assert!(matches!(refusal, MemberRefusal::NotCaughtUp { .. }), "{refusal:?}");
    cluster.nodes.get_mut(&node(4)).unwrap().jobs_held = false;
    cluster.until("it has caught up", |cluster| cluster.status(4).applied == cluster.status(leader).applied);
    cluster.run_ms(200);
    changed(&mut cluster, MemberChange::Promote { node: node(4) }).unwrap();
}

#[test]
fn p4_a_removed_node_votes_for_one_that_crashed_before_its_disk_knew_of_the_removal() {
    let mut cluster = Cluster::new(1, &[], 1);
    cluster.grant_lease(1, 600_000);
    add_and_promote(&mut cluster, 2);
    let (stays, goes) = match cluster.leader() {
        1 => (1, 2),
        _ => (2, 1),
    };
    cluster.run_ms(300);
    // The entry is written in this turn, and the index up to which entries are committed is not.
    cluster.change(stays, MemberChange::Remove { node: node(goes) });
    cluster.nodes.get_mut(&node(stays)).unwrap().disk_held = true;
    cluster.until("it is removed", |cluster| cluster.host(goes).is_removed());
    cluster.crash(stays);
    cluster.nodes.get_mut(&node(stays)).unwrap().disk_held = false;
    cluster.start(stays);
    let members = &cluster.status(stays).members;
    assert!(members.contains(node(goes)), "its disk does not know of the removal: {members:?}");
    cluster.until("it leads alone", |cluster| {
        cluster.leader_now() == Some(stays) && cluster.status(stays).members.voters.len() == 1
    });
    assert!(matches!(cluster.lock("jobs", 1), Reply::Acquired { .. }));
}

#[test]
fn a_node_id_is_never_used_twice() {
    let mut cluster = Cluster::new(3, &[], 1);
    add_and_promote(&mut cluster, 4);
    let gone = if cluster.leader() == 4 { 3 } else { 4 };
    changed(&mut cluster, MemberChange::Remove { node: node(gone) }).unwrap();
    cluster.run_ms(100);
    for number in [1, gone] {
        let refusal = refused(
            &mut cluster,
            MemberChange::AddLearner {
                node: node(number),
                witness: false,
                node_addresses: NodeAddresses::UNKNOWN,
            },
        );
        assert_eq!(refusal, MemberRefusal::IdUsed { node: node(number), next: 5 });
    }
}

#[test]
fn a_removal_that_would_lose_the_quorum_is_refused() {
    let mut cluster = Cluster::new(3, &[], 1);
    let leader = cluster.leader();
    cluster.run_ms(300);
    let others: Vec<u64> = (1..=3).filter(|&number| number != leader).collect();
    cluster.crash(others[0]);
    cluster.run_ms(1_100);
    let refusal = refused(&mut cluster, MemberChange::Remove { node: node(others[1]) });
    assert_eq!(refusal, MemberRefusal::WouldLoseQuorum { active: 1, voters: 2 });
    changed(&mut cluster, MemberChange::Remove { node: node(others[0]) }).unwrap();
}

#[test]
fn one_whose_connection_has_just_broken_does_not_count_as_one_that_answers() {
    let mut cluster = Cluster::new(3, &[], 1);
    let leader = cluster.leader();
    cluster.run_ms(300);
    let others: Vec<u64> = (1..=3).filter(|&number| number != leader).collect();
    cluster.crash(others[0]);
    // The node was heard from a moment ago, far less than an election timeout.
    cluster.act(leader, |host| host.connection_lost(node(others[0])));
    let told = cluster.host(leader).progress(GROUP).unwrap();
    assert!(told.iter().all(|told| told.active == (told.node == node(others[1]))), "{told:?}");
    let refusal = refused(&mut cluster, MemberChange::Remove { node: node(others[1]) });
    assert_eq!(refusal, MemberRefusal::WouldLoseQuorum { active: 1, voters: 2 });
}

#[test]
fn unknown_nodes_and_wrong_roles_are_refused() {
    let mut cluster = Cluster::new(3, &[], 1);
    cluster.leader();
    cluster.run_ms(300);
    let leader = cluster.leader();
    let other = if leader == 1 { 2 } else { 1 };
    assert_eq!(
        refused(&mut cluster, MemberChange::Remove { node: node(9) }),
        MemberRefusal::NotMember { node: node(9) }
    );
    assert_eq!(
        refused(&mut cluster, MemberChange::Promote { node: node(other) }),
        MemberRefusal::NotLearner { node: node(other) }
    );
    assert_eq!(
        refused(&mut cluster, MemberChange::Replace { out: node(9), by: node(8) }),
        MemberRefusal::NotVoter { node: node(9) }
    );
}

#[test]
fn a_leader_that_is_to_be_removed_hands_leadership_on() {
    let mut cluster = Cluster::new(3, &[], 1);
    let old = cluster.leader();
    cluster.run_ms(300);
    let error = changed(&mut cluster, MemberChange::Remove { node: node(old) }).unwrap_err();
    assert!(matches!(error, ProposeError::NotLeader { .. }), "{error:?}");
    cluster.until("another leads", |cluster| cluster.leader_now().is_some_and(|leader| leader != old));
    cluster.run_ms(300);
    changed(&mut cluster, MemberChange::Remove { node: node(old) }).unwrap();
    cluster.until("it knows", |cluster| {
        cluster.events.contains(&(node(old), HostEvent::Removed { group: GROUP }))
    });
}

#[test]
fn a_voter_is_replaced_in_one_joint_step() {
    let mut cluster = Cluster::new(3, &[], 1);
    cluster.grant_lease(1, 600_000);
    let leader = cluster.leader();
    let out = if leader == 1 { 2 } else { 1 };
    changed(
        &mut cluster,
        MemberChange::AddLearner { node: node(4), witness: false, node_addresses: NodeAddresses::UNKNOWN },
    )
    .unwrap();
    cluster.add_joining(4, ReplicaKind::Full, 1);
    cluster.until("the learner has caught up", |cluster| {
        cluster.status(4).applied == cluster.status(leader).applied
    });
    cluster.run_ms(200);
    cluster.crash(out);
    changed(&mut cluster, MemberChange::Replace { out: node(out), by: node(4) }).unwrap();
    cluster.until("the joint step is over", |cluster| {
        let leader = cluster.leader_now().map(|leader| cluster.status(leader).members);
        leader.is_some_and(|members| !members.is_joint())
    });
    let members = cluster.status(cluster.leader_now().unwrap()).members;
    assert!(members.voters.contains(&node(4)) && !members.contains(node(out)));
    // Only the new members count now.
    cluster.lock("jobs", 1);
}

#[test]
fn members_survive_a_restart_with_and_without_a_snapshot() {
    let mut cluster = Cluster::new(1, &[], 1);
    add_and_promote(&mut cluster, 2);
    for snapshot in [false, true] {
        let leader = cluster.leader();
        let before = cluster.status(leader).members;
        if snapshot {
            cluster.act(1, |host| host.take_snapshot(GROUP));
            cluster.act(2, |host| host.take_snapshot(GROUP));
            cluster.run_ms(50);
            assert!(cluster.status(leader).snapshot_index > 1);
        }
        for number in [1, 2] {
            cluster.crash(number);
            cluster.start(number);
        }
        let leader = cluster.leader();
        assert_eq!(cluster.status(leader).members, before);
    }
}

#[test]
fn a_voter_that_comes_back_with_an_empty_disk_is_refused() {
    let mut cluster = Cluster::new(3, &[], 1);
    cluster.grant_lease(1, 600_000);
    let leader = cluster.leader();
    let lost = if leader == 1 { 2 } else { 1 };
    cluster.crash(lost);
    cluster.nodes.remove(&node(lost));
    let kept = if leader == 1 { 3 } else { 6 - leader - lost };
    let config = cluster.nodes[&node(kept)].config.clone();
    let mut disk = crate::memory::Memory::default();
    tollgate_replica::join(&mut disk, GROUP, ReplicaKind::Full).unwrap();
    cluster.add_node(lost, disk, tollgate_replica::HostConfig { node: node(lost), ..config });
    cluster.until("it is told", |cluster| {
        cluster.events.contains(&(node(lost), HostEvent::DiskLost { group: GROUP }))
    });
    cluster.run_ms(1_000);
    assert_eq!(cluster.status(lost).snapshot_index, 0, "nothing was brought to it");
    // The node gives no vote either: the remaining node alone elects no leader.
    cluster.crash(leader);
    cluster.run_ms(6_000);
    assert_eq!(cluster.leader_now(), None);
}

#[test]
fn an_apply_version_is_raised_only_when_all_members_are_there_and_know_it() {
    use tollgate_core::Command::RaiseApplyVersion;
    let version = tollgate_core::APPLY_VERSION_SUPPORTED + 1;
    let mut cluster = Cluster::with(3, &[], 1, |config| {
        config.apply_version = if config.node == node(3) { version - 1 } else { version };
    });
    cluster.leader();
    cluster.run_ms(300);
    let refused = |cluster: &mut Cluster| {
        let leader = cluster.leader();
        let id = cluster.propose(leader, RaiseApplyVersion(version));
        cluster.replies.remove(&id).map(Result::unwrap_err)
    };
    assert_eq!(refused(&mut cluster), Some(ProposeError::VersionUnsupported { node: node(3), version }));
    // An upgraded node counts once it has announced its version; an absent node does not.
    cluster.crash(3);
    cluster.nodes.get_mut(&node(3)).unwrap().config.apply_version = version;
    cluster.run_ms(1_500);
    assert_eq!(refused(&mut cluster), Some(ProposeError::VersionUnsupported { node: node(3), version }));
    cluster.start(3);
    cluster.run_ms(500);
    for number in 1..=2 {
        cluster.act(number, |host| host.connection_lost(node(3)));
    }
    let known = refused(&mut cluster);
    assert_eq!(
        known,
        Some(ProposeError::VersionUnsupported { node: node(3), version }),
        "it has to speak again"
    );
}

#[test]
fn a_group_that_shrank_to_one_member_starts_again_alone() {
    for other_is_off in [true, false] {
        let mut cluster = Cluster::new(2, &[], 1);
        let last = cluster.leader();
        let other = 3 - last;
        cluster.run_ms(300);
        changed(&mut cluster, MemberChange::Remove { node: node(other) }).unwrap();
        cluster.run_ms(1_000);
        if other_is_off {
            cluster.crash(other);
        }
        cluster.crash(last);
        cluster.start(last);
        // With the old members it would need the other's vote, which it can't get.
        cluster.until("the only member leads", |cluster| cluster.leader_now() == Some(last));
    }
}

/// Restarts a node with an empty disk.
pub(crate) fn lose_disk(cluster: &mut Cluster, number: u64) {
    cluster.crash(number);
    let mut disk = crate::memory::Memory::default();
    tollgate_replica::join(&mut disk, GROUP, ReplicaKind::Full).unwrap();
    cluster.nodes.get_mut(&node(number)).unwrap().disk = disk;
    cluster.start(number);
}

#[test]
fn a_voter_without_its_disk_does_not_count_when_another_is_removed() {
    let mut cluster = Cluster::new(3, &[], 1);
    let leader = cluster.leader();
    let others: Vec<u64> = (1..=3).filter(|&number| number != leader).collect();
    cluster.grant_lease(1, 600_000);
    lose_disk(&mut cluster, others[1]);
    cluster.run_ms(2_000);
    let refusal = refused(&mut cluster, MemberChange::Remove { node: node(others[0]) });
    assert_eq!(refusal, MemberRefusal::WouldLoseQuorum { active: 1, voters: 2 });
}

#[test]
fn a_learner_that_lost_its_disk_begins_again() {
    let mut cluster = Cluster::new(3, &[], 1);
    cluster.grant_lease(1, 600_000);
    changed(
        &mut cluster,
        MemberChange::AddLearner { node: node(4), witness: false, node_addresses: NodeAddresses::UNKNOWN },
    )
    .unwrap();
    cluster.add_joining(4, ReplicaKind::Full, 1);
    cluster.until("the learner has caught up", Cluster::agree);
    cluster.run_ms(200);
    lose_disk(&mut cluster, 4);
    for round in 0..10 {
        cluster.lock(&format!("job{round}"), 1);
    }
    cluster.until("it has caught up again", Cluster::agree);
}

#[test]
fn the_last_node_id_is_refused() {
    let mut cluster = Cluster::new(1, &[], 1);
    let refusal = refused(
        &mut cluster,
        MemberChange::AddLearner {
            node: node(u64::MAX),
            witness: false,
            node_addresses: NodeAddresses::UNKNOWN,
        },
    );
    assert!(matches!(refusal, MemberRefusal::IdUsed { .. }), "{refusal:?}");
}

fn at(host: &str) -> NodeAddresses {
    let address = |port: u16| HostPort::new(format!("{host}:{port}")).unwrap();
    NodeAddresses { peer: address(7401), client: address(7400), zone: Zone::new("west").unwrap() }
}

#[test]
fn where_a_member_is_found_is_known_to_all_witnesses_and_newcomers_included() {
    let mut cluster = Cluster::new(3, &[3], 1);
    cluster.grant_lease(1, 600_000);
    let add = |number, host| MemberChange::AddLearner {
        node: node(number),
        witness: false,
        node_addresses: at(host),
    };
    changed(&mut cluster, add(4, "d")).unwrap();
    // Node 4 learns of node 5 by the log, node 5 of node 4 by a snapshot.
    cluster.add_joining(4, ReplicaKind::Full, 1);
    let leader = cluster.leader();
    cluster.act(leader, |host| host.take_snapshot(GROUP));
    changed(&mut cluster, add(5, "e")).unwrap();
    cluster.add_joining(5, ReplicaKind::Full, 1);
    cluster.until("everybody knows", |cluster| {
        (1..=5).all(|number| {
            let members = cluster.host(number).members(GROUP).unwrap();
            (members.addresses_of(node(4)), members.addresses_of(node(5))) == (&at("d"), &at("e"))
        })
    });
    // The addresses also survive a restart, from the disk.
    cluster.crash(3);
    cluster.start(3);
    assert!(cluster.host(3).members(GROUP).is_some());
    cluster.until("the witness knows again", |cluster| {
        cluster.host(3).members(GROUP).unwrap().addresses_of(node(5)) == &at("e")
    });
}

#[test]
fn a_leader_tells_how_far_each_member_is_and_others_tell_nothing() {
    let mut cluster = Cluster::new(3, &[], 1);
    cluster.grant_lease(1, 600_000);
    changed(
        &mut cluster,
        MemberChange::AddLearner { node: node(4), witness: false, node_addresses: NodeAddresses::UNKNOWN },
    )
    .unwrap();
    let leader = cluster.leader();
    let follower = if leader == 1 { 2 } else { 1 };
    assert_eq!(cluster.host(follower).progress(GROUP), None);
    let of = |cluster: &Cluster| {
        let progress = cluster.host(leader).progress(GROUP).unwrap();
        assert!(progress.len() == 3 && progress.iter().all(|told| told.node != node(leader)));
        progress.into_iter().find(|told| told.node == node(4)).unwrap()
    };
    let absent = of(&cluster);
    assert!(absent.matched == 0 && absent.behind > 0 && !absent.active && !absent.caught_up, "{absent:?}");
    cluster.add_joining(4, ReplicaKind::Full, 1);
    cluster.until("it has caught up", |cluster| of(cluster).caught_up);
    assert!(of(&cluster).matched > 0 && of(&cluster).active);
}

#[test]
fn a_leader_tells_how_much_of_its_first_snapshot_a_new_member_has() {
    let mut cluster = Cluster::with(1, &[], 1, |config| config.chunk_bytes = 64);
    cluster.grant_lease(1, 600_000);
    for round in 0..50 {
        cluster.lock(&format!("job{round}"), 1);
    }
    cluster.act(1, |host| host.take_snapshot(GROUP));
    cluster.run_ms(50);
    changed(
        &mut cluster,
        MemberChange::AddLearner { node: node(2), witness: false, node_addresses: NodeAddresses::UNKNOWN },
    )
    .unwrap();
    let of = |cluster: &Cluster| cluster.host(1).progress(GROUP).unwrap()[0];
    let absent = of(&cluster);
    assert!(!absent.connected && absent.snapshot_received_bytes == 0, "{absent:?}");
    cluster.add_joining(2, ReplicaKind::Full, 1);
    let mut received = Vec::new();
    cluster.until("it has caught up", |cluster| {
        let told = of(cluster);
        if told.snapshot_bytes > 0 && told.snapshot_received_bytes > 0 {
            assert!(told.connected && !told.active && !told.caught_up, "{told:?}");
            assert!(told.snapshot_received_bytes <= told.snapshot_bytes, "{told:?}");
            received.push(told.snapshot_received_bytes);
        }
        told.caught_up
    });
    assert!(received.is_sorted(), "{received:?}");
    received.dedup();
    assert!(received.len() > 5, "{received:?}");
    let there = of(&cluster);
    assert!(there.active && there.connected && there.snapshot_bytes == 0, "{there:?}");
}

#[test]
fn nobody_is_removed_without_whom_the_locks_would_be_gone() {
    let mut cluster = Cluster::new(1, &[], 1);
    cluster.grant_lease(1, 600_000);
    // The leader refuses at once, and looks for no successor.
    let refusal = refused(&mut cluster, MemberChange::Remove { node: node(1) });
    assert_eq!(refusal, MemberRefusal::NobodyKeepsLocks);
    let mut cluster = Cluster::new(2, &[2], 1);
    let refusal = refused(&mut cluster, MemberChange::Remove { node: node(1) });
    assert_eq!(refusal, MemberRefusal::NobodyKeepsLocks);
    assert!(refusal.to_string().contains("add a full member"));
}
