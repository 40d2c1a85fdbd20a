//! Log time over leaders, pauses and bad clocks.

use crate::cluster::{Cluster, GROUP, grant_lease, node, renew};
use tollgate_types::LogTime;

fn log_time(cluster: &Cluster, number: u64) -> LogTime {
    cluster.host(number).state(GROUP).unwrap().now()
}

#[test]
fn p6_a_silent_lease_ends_in_time() {
    let mut cluster = Cluster::new(3, &[], 1);
    cluster.grant_lease(1, 2_000);
    let granted_us = cluster.now_us;
    let leader = cluster.leader();
    cluster.until("the lease has ended", |cluster| {
        cluster.host(leader).state(GROUP).unwrap().lease_count() == 0
    });
    let took_ms = (cluster.now_us - granted_us) / 1_000;
    assert!((1_990..2_500).contains(&took_ms), "a lease of 2 s took {took_ms} ms to end");
}

#[test]
fn p5_time_stands_still_while_nobody_leads() {
    let mut cluster = Cluster::new(3, &[], 1);
    cluster.grant_lease(1, 3_000);
    let leader = cluster.leader();
    let before = log_time(&cluster, leader);
    let down: Vec<u64> = (1..=3).filter(|&number| number != leader).collect();
    for &number in &down {
        cluster.crash(number);
    }
    cluster.run_ms(20_000);
    for &number in &down {
        cluster.start(number);
    }
    let leader = cluster.leader();
    cluster.until("time moves again", |cluster| log_time(cluster, leader) > before);
    let moved = log_time(&cluster, leader).ms() - before.ms();
    assert!(moved < 2_600, "an outage of 20 s moved log time by {moved} ms");
    assert_eq!(
        cluster.host(leader).state(GROUP).unwrap().lease_count(),
        1,
        "the outage did not eat the lease"
    );
}

#[test]
fn a_new_leader_goes_on_from_the_last_stamp_of_the_log() {
    let mut cluster = Cluster::new(3, &[], 1);
    cluster.grant_lease(1, 600_000);
    cluster.run_ms(5_000);
    let old = cluster.leader();
    let before = log_time(&cluster, old);
    assert!(before.ms() > 4_000);
    cluster.crash(old);
    let leader = cluster.leader();
    cluster.until("the new leader has stamped", |cluster| log_time(cluster, leader) > before);
    assert!(log_time(&cluster, leader).ms() < before.ms() + 1_000);
}

#[test]
fn a_stamp_that_was_truncated_does_not_count() {
    let mut cluster = Cluster::new(3, &[], 1);
    cluster.grant_lease(1, 600_000);
    cluster.run_ms(2_000);
    let old = cluster.leader();
    cluster.isolate(old);
    let committed = log_time(&cluster, old);
    // The old leader continues to stamp entries that reach no other node, until it notices that it is alone.
    cluster.run_ms(900);
    let others: Vec<u64> = (1..=3).filter(|&number| number != old).collect();
    cluster.until("the others have a leader", |cluster| {
        others.iter().any(|&number| cluster.status(number).serves)
    });
    cluster.heal();
    cluster.run_ms(500);
    cluster.act(cluster.leader_now().unwrap(), |host| host.transfer_leadership(GROUP, Some(node(old))));
    cluster.until("the old one leads again", |cluster| cluster.leader_now() == Some(old));
    let moved = log_time(&cluster, old).ms() - committed.ms();
    let passed = (cluster.now_us / 1_000) - 1_000;
    assert!(committed.ms() + moved <= passed, "log time ran ahead of real time");
    cluster.run_ms(300);
    assert!(cluster.agree());
}

#[test]
fn p5_a_leader_that_was_paused_reads_its_keepalives_before_it_ends_a_lease() {
    let mut cluster = Cluster::new(1, &[], 1);
    cluster.grant_lease(1, 2_000);
    cluster.run_ms(300);
    cluster.nodes.get_mut(&node(1)).unwrap().paused = true;
    cluster.run_ms(60_000);
    cluster.nodes.get_mut(&node(1)).unwrap().paused = false;
    // The unread input in its sockets is read in the first turn.
    let id = cluster.propose(1, renew(1));
    cluster.answer(id).unwrap();
    assert_eq!(cluster.host(1).state(GROUP).unwrap().lease_count(), 1);
}

#[test]
fn keepalives_go_before_everything_else_of_a_turn() {
    let mut cluster = Cluster::new(1, &[], 1);
    cluster.leader();
    let order = |cluster: &mut Cluster| {
        cluster.act(1, |host| {
            host.propose(GROUP, tollgate_replica::ProposalId(70), grant_lease(9, 5_000));
            host.propose(GROUP, tollgate_replica::ProposalId(71), renew(9));
        });
        cluster.answer(tollgate_replica::ProposalId(71)).unwrap()
    };
    let tollgate_replica::ProposalOutcome::Applied(applied) = order(&mut cluster) else {
        panic!("a command")
    };
    let tollgate_core::Reply::LeasesRenewed(renewed) = applied.reply else { panic!("a renewal") };
    assert!(renewed[0].result.is_none(), "the renewal was applied first, when there was no such lease");
}

#[test]
fn a_clock_that_jumps_back_moves_nothing_back() {
    let mut cluster = Cluster::new(1, &[], 1);
    cluster.nodes.get_mut(&node(1)).unwrap().clock_offset_us = 100_000_000;
    cluster.grant_lease(1, 600_000);
    cluster.run_ms(1_000);
    let before = log_time(&cluster, 1);
    cluster.nodes.get_mut(&node(1)).unwrap().clock_offset_us = 0;
    cluster.run_ms(1_000);
    assert!(log_time(&cluster, 1) >= before, "applying would have refused it");
    cluster.nodes.get_mut(&node(1)).unwrap().clock_offset_us = 100_000_000;
    cluster.run_ms(1_000);
    assert!(log_time(&cluster, 1).ms() <= before.ms() + 3_000);
}

#[test]
fn nothing_ticks_while_no_deadline_is_pending() {
    let mut cluster = Cluster::new(3, &[], 1);
    let leader = cluster.leader();
    cluster.run_ms(500);
    let before = cluster.status(leader).last_index;
    cluster.run_ms(5_000);
    assert_eq!(cluster.status(leader).last_index, before);
}

#[test]
fn p6_more_ends_than_an_entry_has_room_for_follow_each_other_at_once() {
    let mut cluster = Cluster::new(1, &[], 1);
    let mut limits = tollgate_types::Limits::DEFAULT;
    limits.set(tollgate_types::Limit::ReapsPerEntry, 1);
    cluster.apply(tollgate_core::Command::SetLimits(Box::new(limits)));
    for lease in 1..=40 {
        cluster.grant_lease(lease, 3_000);
    }
    let lives = |cluster: &Cluster| cluster.host(1).state(GROUP).unwrap().lease_count();
    cluster.until("the first has ended", |cluster| lives(cluster) < 40);
    let begun_us = cluster.now_us;
    cluster.until("all have ended", |cluster| lives(cluster) == 0);
    let took_ms = (cluster.now_us - begun_us) / 1_000;
    assert!(took_ms < 500, "40 leases took {took_ms} ms to end");
}
