//! Messages that are sent before the disk has their entries, and messages that are held back; proposals and their
//! answers.

use crate::cluster::{Cluster, GROUP, grant_lease, lock, node, unlock};
use tollgate_core::Reply;
use tollgate_replica::{ProposalId, ProposalOutcome, ProposeError};
use tollgate_types::GroupId;

#[test]
fn p4_a_leader_sends_before_its_own_disk_has_written() {
    let mut cluster = Cluster::new(3, &[], 1);
    let leader = cluster.leader();
    cluster.nodes.get_mut(&node(leader)).unwrap().disk_held = true;
    let id = cluster.propose(leader, grant_lease(1, 10_000));
    // Two of three disks are a majority: the leader's own disk is not needed.
    cluster.until("both followers have it", |cluster| {
        let reached = |number: &u64| cluster.status(*number).last_index >= cluster.status(leader).last_index;
        (1..=3).filter(reached).count() == 3
    });
    cluster.run_ms(20);
    // The entry commits, but a leader applies no entry that its own disk lacks.
    assert!(!cluster.replies.contains_key(&id));
    assert!(cluster.status(leader).committed > cluster.status(leader).applied);
    cluster.nodes.get_mut(&node(leader)).unwrap().disk_held = false;
    assert!(matches!(cluster.answer(id), Ok(ProposalOutcome::Applied(_))));
}

#[test]
fn p4_a_follower_acknowledges_only_what_its_disk_has() {
    let mut cluster = Cluster::new(3, &[], 1);
    let leader = cluster.leader();
    for number in (1..=3).filter(|&number| number != leader) {
        cluster.nodes.get_mut(&node(number)).unwrap().disk_held = true;
    }
    let before = cluster.status(leader).committed;
    let id = cluster.propose(leader, grant_lease(1, 10_000));
    cluster.run_ms(300);
    assert_eq!(cluster.status(leader).committed, before, "nobody but the leader has it on disk");
    assert!(!cluster.replies.contains_key(&id));
    for number in (1..=3).filter(|&number| number != leader) {
        cluster.nodes.get_mut(&node(number)).unwrap().disk_held = false;
    }
    assert!(matches!(cluster.answer(id), Ok(ProposalOutcome::Applied(_))));
}

/// A leader that has just sent four commands in one entry, which its disk does not get yet; proposals are gathered for
/// 50 ms.
fn with_four_on_their_way() -> (Cluster, u64, u64) {
    let mut cluster = Cluster::with(3, &[], 1, |config| config.gather_ms = 50);
    cluster.grant_lease(1, 10_000);
    cluster.until_founded();
    let leader = cluster.leader();
    cluster.nodes.get_mut(&node(leader)).unwrap().disk_held = true;
    let before = cluster.status(leader).last_index;
    cluster.act(leader, |host| {
        for number in 1..=4 {
            host.propose(GROUP, ProposalId(1_000 + number), lock(&format!("first-{number}"), 1));
        }
    });
    assert_eq!(cluster.status(leader).last_index, before + 1, "nothing else is on its way");
    (cluster, leader, before + 1)
}

#[test]
fn what_is_proposed_is_gathered_until_as_much_has_come_as_is_on_its_way() {
    let (mut cluster, leader, sent) = with_four_on_their_way();
    for number in 1..=3 {
        cluster.propose(leader, lock(&format!("second-{number}"), 1));
        assert_eq!(cluster.status(leader).last_index, sent);
    }
    let last = cluster.propose(leader, lock("second-4", 1));
    assert_eq!(cluster.status(leader).last_index, sent + 1, "the four of them in one entry");
    cluster.nodes.get_mut(&node(leader)).unwrap().disk_held = false;
    assert!(matches!(cluster.answer(last), Ok(ProposalOutcome::Applied(_))));
}

#[test]
fn what_is_gathered_waits_no_longer_than_a_moment() {
    let (mut cluster, leader, sent) = with_four_on_their_way();
    cluster.propose(leader, lock("second", 1));
    cluster.run_ms(49);
    assert_eq!(cluster.status(leader).last_index, sent);
    let next = cluster.host(leader).next_turn().us() - cluster.nodes[&node(leader)].clock_offset_us;
    assert!(next <= cluster.now_us + 1_000, "the host asks for a turn in time");
    cluster.run_ms(2);
    assert_eq!(cluster.status(leader).last_index, sent + 1);
}

#[test]
fn what_is_gathered_goes_when_what_was_on_its_way_is_answered() {
    let (mut cluster, leader, sent) = with_four_on_their_way();
    let gathered = cluster.propose(leader, lock("second", 1));
    cluster.run_ms(5);
    cluster.nodes.get_mut(&node(leader)).unwrap().disk_held = false;
    cluster.step();
    assert_eq!(cluster.status(leader).last_index, sent, "the disk has it at the end of this turn");
    cluster.step();
    assert_eq!(cluster.status(leader).last_index, sent + 1, "it goes in the turn that hears of it");
    assert!(matches!(cluster.answer(gathered), Ok(ProposalOutcome::Applied(_))));
}

#[test]
fn what_is_gathered_goes_before_leadership_is_handed_on() {
    let (mut cluster, leader, sent) = with_four_on_their_way();
    let gathered = cluster.propose(leader, lock("second", 1));
    cluster.act(leader, |host| host.transfer_leadership(GROUP, None));
    assert_eq!(cluster.status(leader).last_index, sent + 1);
    assert!(!cluster.replies.contains_key(&gathered), "it was not refused");
    cluster.nodes.get_mut(&node(leader)).unwrap().disk_held = false;
    cluster.until("another leads", |cluster| cluster.leader_now().is_some_and(|now| now != leader));
    let now = cluster.leader();
    let revision = cluster.host(now).state(GROUP).unwrap().revision();
    let Reply::Acquired { token, .. } = cluster.lock("second", 1) else { panic!("it is its own") };
    assert!(token.get() <= revision.get(), "it held it before it asked again");
}

#[test]
fn p4_an_acknowledged_grant_survives_the_crash_of_every_node() {
    let mut cluster = Cluster::new(3, &[], 1);
    cluster.grant_lease(1, 60_000);
    let Reply::Acquired { token, .. } = cluster.lock("jobs", 1) else { panic!("free") };
    for number in 1..=3 {
        cluster.crash(number);
    }
    for number in 1..=3 {
        cluster.start(number);
    }
    cluster.grant_lease(2, 60_000);
    let Reply::Acquired { token: again, .. } = cluster.lock("jobs", 1) else { panic!("held by the same") };
    assert_eq!(token, again);
    assert!(matches!(cluster.lock("jobs", 2), Reply::Queued { .. }));
}

#[test]
fn one_write_carries_all_groups_of_a_turn() {
    let mut cluster = Cluster::new(1, &[], 8);
    cluster.until("it leads all groups", |cluster| {
        let host = cluster.host(1);
        host.groups().all(|group| host.status(group).unwrap().serves)
    });
    cluster.run_ms(5);
    cluster.nodes.get_mut(&node(1)).unwrap().disk_held = true;
    cluster.act(1, |host| {
        for group in 0..8 {
            let id = ProposalId(1_000 + u64::from(group));
            host.propose(GroupId::new(group), id, grant_lease(1, 10_000));
        }
    });
    let writes = &cluster.nodes[&node(1)].writes;
    assert_eq!(writes.len(), 1, "one write, so one fsync");
    assert_eq!(writes[0].groups.len(), 8);
}

#[test]
fn a_follower_refuses_proposals_and_names_the_leader() {
    let mut cluster = Cluster::new(3, &[], 1);
    let leader = cluster.leader();
    cluster.run_ms(300);
    let follower = if leader == 1 { 2 } else { 1 };
    let id = cluster.propose(follower, lock("jobs", 1));
    let expected = ProposeError::NotLeader { group: GROUP, leader: Some(node(leader)) };
    assert_eq!(cluster.answer(id).unwrap_err(), expected);
}

#[test]
fn a_deposed_leader_answers_indeterminate_for_what_may_still_commit() {
    let mut cluster = Cluster::new(3, &[], 1);
    let old = cluster.leader();
    cluster.isolate(old);
    let id = cluster.propose(old, grant_lease(1, 10_000));
    let expected = ProposeError::Indeterminate { group: GROUP };
    assert_eq!(cluster.answer(id).unwrap_err(), expected);
    cluster.heal();
    cluster.leader();
    cluster.until("all agree", Cluster::agree);
    let leases = |number: u64| cluster.host(number).state(GROUP).unwrap().lease_count();
    assert!((1..=3).all(|number| leases(number) == 0), "the entry was never committed, and is gone");
}

#[test]
fn outcomes_find_those_who_asked_within_a_batch() {
    let mut cluster = Cluster::new(3, &[], 1);
    cluster.grant_lease(1, 60_000);
    cluster.grant_lease(2, 60_000);
    let leader = cluster.leader();
    let ids: Vec<_> = (0..4).map(|number| ProposalId(5_000 + number)).collect();
    cluster.act(leader, |host| {
        host.propose(GROUP, ids[0], lock("a", 1));
        host.propose(GROUP, ids[1], lock("a", 2));
        host.propose(GROUP, ids[2], lock("b", 2));
        host.propose(GROUP, ids[3], unlock("a", 1));
    });
    let mut reply = |at: usize| match cluster.answer(ids[at]) {
        Ok(ProposalOutcome::Applied(applied)) => applied.reply,
        other => panic!("{other:?}"),
    };
    assert!(matches!(reply(0), Reply::Acquired { .. }));
    assert!(matches!(reply(1), Reply::Queued { position: 1, .. }));
    assert!(matches!(reply(2), Reply::Acquired { .. }));
    assert!(matches!(reply(3), Reply::Released { .. }));
}

#[test]
fn p16_proposals_past_the_limit_are_refused() {
    let mut cluster = Cluster::with(3, &[], 1, |config| config.proposals_max = 10);
    let leader = cluster.leader();
    cluster.until_founded();
    cluster.act(leader, |host| {
        for number in 0..11 {
            host.propose(GROUP, ProposalId(100 + number), grant_lease(1 + number, 10_000));
        }
    });
    let refused = cluster.replies.remove(&ProposalId(110)).unwrap();
    assert_eq!(refused.unwrap_err(), ProposeError::Overloaded { group: GROUP });
    assert!(matches!(cluster.answer(ProposalId(109)), Ok(ProposalOutcome::Applied(_))));
}

#[test]
fn p12_the_same_seeds_give_the_same_bytes() {
    let run = || {
        let mut cluster = Cluster::new(3, &[], 2);
        cluster.grant_lease(1, 2_000);
        cluster.lock("jobs", 1);
        let leader = cluster.leader();
        cluster.crash(leader);
        cluster.run_ms(4_000);
        cluster.start(leader);
        cluster.run_ms(1_000);
        assert!(cluster.agree());
        cluster.trace
    };
    assert_eq!(run(), run());
}
