//! A caller that neglects its duties is stopped.

use crate::cluster::{CLUSTER, Cluster, Seeded, node};
use crate::memory::Memory;
use tollgate_replica::{Host, HostConfig, MonotonicTime, Storage, WriteNumber};

fn host() -> Host {
    let config = HostConfig::new(CLUSTER, node(1));
    Host::open(config, Memory::default().load().unwrap(), Box::new(Seeded(1)), MonotonicTime::from_us(0))
        .unwrap()
}

#[test]
#[should_panic(expected = "input comes between begin_turn and end_turn")]
fn input_outside_of_a_turn_is_a_fault() {
    host().connection_lost(node(2));
}

#[test]
#[should_panic(expected = "a turn ends before the next begins")]
fn a_turn_in_a_turn_is_a_fault() {
    let mut host = host();
    host.begin_turn(MonotonicTime::from_us(1));
    host.begin_turn(MonotonicTime::from_us(2));
}

#[test]
#[should_panic(expected = "was never handed out")]
fn a_write_that_was_never_handed_out_is_not_durable() {
    let mut host = host();
    host.begin_turn(MonotonicTime::from_us(1));
    host.persisted(WriteNumber(7));
}

#[test]
#[should_panic(expected = "writes become durable in order")]
fn writes_become_durable_in_order() {
    let mut cluster = Cluster::new(1, &[], 1);
    cluster.grant_lease(1, 10_000);
    cluster.act(1, |host| host.persisted(WriteNumber(1)));
}

#[test]
fn settings_that_cannot_work_are_refused_with_the_rule() {
    let config = HostConfig { election_timeout_ms: 150, ..HostConfig::new(CLUSTER, node(1)) };
    let error = Host::open(config, Vec::new(), Box::new(Seeded(1)), MonotonicTime::from_us(0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "election_timeout_ms must be at least 3 heartbeat_ms, or one lost heartbeat unseats a leader"
    );
}
