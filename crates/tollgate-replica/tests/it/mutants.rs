//! Planted bugs that the simulator hardly ever detects, and that these tests detect.

#![cfg(feature = "planted-bugs")]

use crate::cluster::{Cluster, GROUP, grant_lease, node, renew};
use crate::membership::lose_disk;
use tollgate_replica::{Bug, MemberChange, NodeAddresses, ReplicaKind, Role};

fn plant(cluster: &mut Cluster, number: u64, bug: Bug) {
    cluster.nodes.get_mut(&node(number)).unwrap().host.as_mut().unwrap().plant(bug);
}

#[test]
fn a_clamp_that_is_caught_up_ends_leases_after_a_pause() {
    let lives_on = |bug: Option<Bug>| {
        let mut cluster = Cluster::new(1, &[], 1);
        cluster.grant_lease(1, 2_000);
        if let Some(bug) = bug {
            plant(&mut cluster, 1, bug);
        }
        cluster.run_ms(300);
        cluster.nodes.get_mut(&node(1)).unwrap().paused = true;
        cluster.run_ms(60_000);
        cluster.nodes.get_mut(&node(1)).unwrap().paused = false;
        let id = cluster.propose(1, renew(1));
        cluster.answer(id).unwrap();
        cluster.run_ms(500);
        cluster.host(1).state(GROUP).unwrap().lease_count() == 1
    };
    assert!(lives_on(None));
    assert!(!lives_on(Some(Bug::ClampCaughtUp)));
}

#[test]
fn a_term_that_the_disk_may_forget_reaches_a_learner() {
    let heard = |bug: Option<Bug>| {
        let mut cluster = Cluster::new(1, &[], 1);
        cluster.leader();
        cluster.change(
            1,
            MemberChange::AddLearner {
                node: node(2),
                witness: false,
                node_addresses: NodeAddresses::UNKNOWN,
            },
        );
        cluster.add_joining(2, ReplicaKind::Full, 1);
        cluster.until("the learner has a snapshot", |cluster| cluster.status(2).snapshot_index > 0);
        cluster.run_ms(300);
        let term = cluster.status(2).term;
        cluster.crash(1);
        cluster.start(1);
        if let Some(bug) = bug {
            plant(&mut cluster, 1, bug);
        }
        cluster.nodes.get_mut(&node(1)).unwrap().disk_held = true;
        cluster.until("it leads", |cluster| cluster.status(1).role == Role::Leader);
        cluster.run_ms(500);
        cluster.status(2).term > term
    };
    assert!(!heard(None));
    assert!(heard(Some(Bug::LeadsInLostTerm)));
}

#[test]
fn a_proposal_that_is_put_into_the_log_twice_shows_without_a_seq() {
    let renewed = |bug: Option<Bug>| {
        let mut cluster = Cluster::new(1, &[], 1);
        cluster.leader();
        cluster.until_founded();
        if let Some(bug) = bug {
            plant(&mut cluster, 1, bug);
        }
        let before = cluster.host(1).state(GROUP).unwrap().revision();
        let mut assigned = grant_lease(1, 10_000);
        if let tollgate_core::Command::GrantLease(grant) = &mut assigned {
            grant.id = tollgate_core::LeaseChoice::Assigned(tollgate_types::Slot::of(b"x"));
        }
        let id = cluster.propose(1, assigned);
        cluster.answer(id).unwrap();
        cluster.host(1).state(GROUP).unwrap().revision().get() - before.get()
    };
    assert_eq!(renewed(None), 1);
    assert_eq!(renewed(Some(Bug::ProposedTwice)), 2);
}

#[test]
fn a_voter_that_lost_its_disk_is_brought_up_to_date() {
    let served = |bug: Option<Bug>| {
        let mut cluster = Cluster::new(3, &[], 1);
        let leader = cluster.leader();
        cluster.grant_lease(1, 600_000);
        if let Some(bug) = bug {
            plant(&mut cluster, leader, bug);
        }
        let other = if leader == 1 { 2 } else { 1 };
        lose_disk(&mut cluster, other);
        cluster.run_ms(3_000);
        cluster.status(other).snapshot_index > 0
    };
    assert!(!served(None));
    assert!(served(Some(Bug::BlankVoterServed)));
}

#[test]
fn a_broken_connection_that_still_counts_lets_a_change_lose_the_quorum() {
    let goes_on = |bug: Option<Bug>| {
        let mut cluster = Cluster::new(3, &[], 1);
        let leader = cluster.leader();
        cluster.run_ms(300);
        if let Some(bug) = bug {
            plant(&mut cluster, leader, bug);
        }
        let others: Vec<u64> = (1..=3).filter(|&number| number != leader).collect();
        cluster.crash(others[0]);
        cluster.act(leader, |host| host.connection_lost(node(others[0])));
        cluster.change(leader, MemberChange::Remove { node: node(others[1]) });
        cluster.run_ms(5_000);
        cluster.leader_now().is_some()
    };
    assert!(goes_on(None));
    assert!(!goes_on(Some(Bug::BrokenConnectionAnswers)));
}

#[test]
fn a_commit_that_nobody_is_told_of_waits_for_a_heartbeat() {
    let told_after_ms = |bug: Option<Bug>| {
        let mut cluster = Cluster::new(3, &[], 1);
        let leader = cluster.leader();
        cluster.run_ms(300);
        if let Some(bug) = bug {
            plant(&mut cluster, leader, bug);
        }
        // The longest of several times: a single one may coincide with a heartbeat.
        let longest = (1..=5).map(|lease| {
            let id = cluster.propose(leader, grant_lease(lease, 600_000));
            cluster.answer(id).unwrap();
            let index = cluster.status(leader).applied;
            let behind = |cluster: &Cluster| (1..=3).any(|number| cluster.status(number).applied < index);
            let mut ms = 0;
            while behind(&cluster) {
                cluster.step();
                ms += 1;
            }
            cluster.run_ms(37);
            ms
        });
        longest.max().unwrap()
    };
    let told = told_after_ms(None);
    assert!(told <= 5, "{told} ms");
    let not_told = told_after_ms(Some(Bug::CommitNotTold));
    assert!(not_told > 20, "{not_told} ms");
}
