//! Binaries of two apply versions in one group (P12): all make the same state from the same entries, the version is
//! raised when the last old member is gone and not before, and a binary that does not know it stops.
//!
//! The upgrade is from the version before the newest to the newest; with the feature `next-version`, to one that does
//! not exist yet.

use crate::cluster::{Cluster, GROUP, lock, node};
use tollgate_core::{
    APPLY_VERSION_SUPPORTED, CancelTarget, CancelWait, Command, Rejection, Reply, Request, Scope,
};
use tollgate_replica::{MemberChange, MemberRefusal, NodeAddresses, ProposeError, ReplicaKind};
use tollgate_types::{ClusterId, GroupId, LeaseId, Metadata, Name, Names, Seq, SeqRanges};

const NEW: u32 = APPLY_VERSION_SUPPORTED;
const OLD: u32 = NEW - 1;

/// Three members that run the old binary.
fn old_cluster() -> Cluster {
    cluster_of(OLD)
}

fn cluster_of(version: u32) -> Cluster {
    let mut cluster = Cluster::with(3, &[], 1, |config| config.apply_version = version);
    cluster.until("the group is at its version", |cluster| versions(cluster) == [version; 3]);
    cluster.leader();
    cluster.run_ms(300);
    cluster
}

/// Stops a node, and restarts it with this version.
fn replace(cluster: &mut Cluster, number: u64, version: u32) {
    cluster.crash(number);
    cluster.run_ms(200);
    cluster.nodes.get_mut(&node(number)).unwrap().config.apply_version = version;
    cluster.start(number);
    // Connected nodes learn that it is gone.
    for other in cluster.nodes.keys().map(|id| id.number()).collect::<Vec<_>>() {
        if other != number && cluster.nodes[&node(other)].host.is_some() {
            cluster.act(other, |host| host.connection_lost(node(number)));
        }
    }
    cluster.run_ms(4_000);
}

fn versions(cluster: &Cluster) -> Vec<u32> {
    let hosts = cluster.nodes.values().filter_map(|node| node.host.as_ref());
    hosts.filter_map(|host| Some(host.state(GROUP)?.apply_version())).collect()
}

/// A node whose addition is in the log but not applied yet was not checked for the version: it would have to stop.
#[test]
fn p12_no_version_is_raised_behind_an_addition_that_is_not_applied() {
    let mut cluster = cluster_of(NEW);
    cluster.add_joining(4, ReplicaKind::Full, 1);
    let leader = cluster.leader();
    let add =
        MemberChange::AddLearner { node: node(4), witness: false, node_addresses: NodeAddresses::UNKNOWN };
    let added = cluster.change(leader, add);
    let raised = cluster.propose(leader, Command::RaiseApplyVersion(NEW));
    assert_eq!(
        cluster.replies.remove(&raised).map(Result::unwrap_err),
        Some(ProposeError::Refused(MemberRefusal::Busy))
    );
    cluster.until("the learner is added", |cluster| cluster.replies.contains_key(&added));
}

/// Applies some commands, and checks that all running replicas agree.
fn work(cluster: &mut Cluster, round: u64) {
    for number in 0..5 {
        cluster.grant_lease(round * 10 + number + 1, 600_000);
        cluster.lock(&format!("job/{round}/{number}"), round * 10 + number + 1);
    }
    cluster.until("all have applied the same", |cluster| {
        let mut applied = cluster.nodes.keys().map(|id| cluster.status(id.number()).applied);
        let first = applied.next();
        applied.all(|other| Some(other) == first)
    });
    assert!(cluster.agree(), "P12: the same entries made different states");
}

/// Commands that newer versions decide in another way than older ones, on a lease that is to live for 600 s and holds a
/// lock of its own.
#[cfg(not(feature = "next-version"))]
fn show_rules(cluster: &mut Cluster, lease: u64) {
    // By the old rules a client without an id renews the lease of another client without an id; by the new rules it
    // does not.
    for ttl_ms in [600_000, 599_000] {
        let mut command = crate::cluster::grant_lease(lease, ttl_ms);
        if let Command::GrantLease(grant) = &mut command {
            grant.client_id = tollgate_types::ClientId::NONE;
        }
        cluster.apply(command);
    }
    lock_with(cluster, lease, ANY_BYTES);
}

#[cfg(feature = "next-version")]
fn show_rules(cluster: &mut Cluster, lease: u64) {
    cluster.grant_lease(lease, 600_000);
    lock_with(cluster, lease, ANY_BYTES);
}

/// Metadata that is not text.
const ANY_BYTES: &[u8] = b"{\n\"a\": \xff}";
const AS_TEXT: &[u8] = b"{ \"a\": ?}";

fn lock_with(cluster: &mut Cluster, lease: u64, metadata: &[u8]) {
    let mut command = lock(&format!("of/{lease}"), lease);
    if let Command::AcquireLock(acquire) = &mut command {
        acquire.metadata = Metadata::new(metadata).unwrap();
    }
    let reply = cluster.apply(command).reply;
    assert!(matches!(reply, Reply::Acquired { .. }), "{reply:?}");
}

/// The TTL of the lease and the metadata of its lock, by the rules of a version.
fn by_rules_of(version: u32) -> (u64, Vec<u8>) {
    let rehearsed = cfg!(feature = "next-version");
    let ttl_ms = match version {
        NEW if rehearsed => 600_001,
        1 if !rehearsed => 599_000,
        _ => 600_000,
    };
    (ttl_ms, if version >= 3 { ANY_BYTES } else { AS_TEXT }.to_vec())
}

fn shown(cluster: &Cluster, number: u64, lease: u64) -> (u64, Vec<u8>) {
    let state = cluster.host(number).state(GROUP).unwrap();
    let ttl_ms = state.lease(LeaseId::new(lease).unwrap()).unwrap().ttl.ms();
    let lock = state.lock(&Name::new(format!("of/{lease}")).unwrap()).unwrap();
    (ttl_ms, lock.holders[0].metadata.as_bytes().to_vec())
}

#[test]
fn p12_old_and_new_binaries_make_the_same_state_and_the_last_to_be_replaced_raises_the_version() {
    (1..NEW).for_each(upgrade_from);
}

fn upgrade_from(old: u32) {
    let mut cluster = cluster_of(old);
    work(&mut cluster, 0);
    for number in 1..=3 {
        assert_eq!(versions(&cluster), [old; 3], "{} of 3 are replaced", number - 1);
        if number == 3 {
            show_rules(&mut cluster, 1_001);
        }
        replace(&mut cluster, number, NEW);
        work(&mut cluster, number);
    }
    cluster.until("the group moves on by itself", |cluster| versions(cluster) == [NEW; 3]);
    show_rules(&mut cluster, 1_002);
    work(&mut cluster, 4);
    // Each entry was applied on every replica by the rules in force at its index.
    for number in 1..=3 {
        assert_eq!(shown(&cluster, number, 1_001), by_rules_of(old), "granted while one was old");
        assert_eq!(shown(&cluster, number, 1_002), by_rules_of(NEW), "granted by the new rules");
    }
    // The result is the same after all replicas have read the entries again.
    for number in 1..=3 {
        replace(&mut cluster, number, NEW);
    }
    work(&mut cluster, 5);
    assert_eq!(versions(&cluster), [NEW; 3]);
}

#[test]
fn p12_a_member_that_is_away_and_a_learner_that_is_old_hold_the_version_back() {
    let mut cluster = old_cluster();
    cluster.add_joining(4, ReplicaKind::Full, 1);
    let leader = cluster.leader();
    let add =
        MemberChange::AddLearner { node: node(4), witness: false, node_addresses: NodeAddresses::UNKNOWN };
    let id = cluster.change(leader, add);
    cluster.until("the learner is added", |cluster| cluster.replies.contains_key(&id));
    cluster.run_ms(1_000);
    for number in 1..=3 {
        replace(&mut cluster, number, NEW);
    }
    cluster.run_ms(3_000);
    assert_eq!(versions(&cluster), [OLD; 4], "the learner is old");
    let leader = cluster.leader();
    let id = cluster.propose(leader, Command::RaiseApplyVersion(NEW));
    let refused = cluster.replies.remove(&id).map(Result::unwrap_err);
    assert_eq!(refused, Some(ProposeError::VersionUnsupported { node: node(4), version: NEW }));
    cluster.crash(4);
    cluster.run_ms(5_000);
    assert_eq!(versions(&cluster), [OLD; 3], "the learner is away, and may come back as it was");
    cluster.nodes.get_mut(&node(4)).unwrap().config.apply_version = NEW;
    cluster.start(4);
    cluster.until("all are there and know it", |cluster| versions(cluster) == [NEW; 4]);
}

/// The names of the whole request that a part belongs to have no place in the log of an old group: the leader, which
/// keeps its commands, must not know more than the replicas that decode them.
#[test]
fn p12_what_the_old_format_has_no_place_for_is_forgotten_by_the_leader_too() {
    for version in [1, 2, NEW] {
        let mut cluster = Cluster::with(3, &[], 1, |config| config.apply_version = version);
        cluster.until("the group is at its version", |cluster| versions(cluster) == [version; 3]);
        cluster.grant_lease(1, 600_000);
        let mut command = lock("job", 1);
        if let Command::AcquireLock(acquire) = &mut command {
            let whole = Names::new(vec![Name::new("job").unwrap(), Name::new("other").unwrap()]).unwrap();
            let scope = Scope::PartOf(Box::new(whole));
            acquire.request = Some(Request { seq: Seq::new(1).unwrap(), acked: SeqRanges::default(), scope });
        }
        cluster.apply(command);
        let cancel = CancelWait {
            lease: LeaseId::new(1).unwrap(),
            target: CancelTarget::SeqOn { seq: Seq::new(2).unwrap(), name: Name::new("x").unwrap() },
            release_if_granted: true,
            asks_max: None,
            acked: SeqRanges::default(),
        };
        cluster.apply(Command::CancelWait(cancel));
        work(&mut cluster, 7);
        // The result is the same after all replicas have read the entries again.
        for number in 1..=3 {
            replace(&mut cluster, number, version);
        }
        work(&mut cluster, 8);
    }
}

/// Commands that a new leader proposes before it has applied its log come after the raise in that log, and are decided
/// by the raised version's rules.
#[test]
fn p10_a_leader_that_has_not_applied_its_log_yet_proposes_by_the_version_in_it() {
    let mut cluster = Cluster::with(3, &[], 1, |_| {});
    cluster.until("the group is at the newest version", |cluster| versions(cluster) == [NEW; 3]);
    cluster.grant_lease(1, 600_000);
    (1..=3).for_each(|number| cluster.crash(number));
    (1..=3).for_each(|number| cluster.start(number));
    let leads = |cluster: &Cluster| (1..=3).find(|number| cluster.host(*number).leads(GROUP));
    cluster.until("somebody leads", |cluster| leads(cluster).is_some());
    let leader = leads(&cluster).unwrap();
    let numbered = |name: &str| {
        let mut command = lock(name, 1);
        if let Command::AcquireLock(acquire) = &mut command {
            let (seq, acked, scope) = (Seq::new(1).unwrap(), SeqRanges::default(), Scope::Whole);
            acquire.request = Some(Request { seq, acked, scope });
        }
        command
    };
    let first = cluster.propose(leader, numbered("job"));
    cluster.answer(first).unwrap();
    let reply = cluster.apply(numbered("another")).reply;
    assert!(matches!(reply, Reply::Rejected(Rejection::SeqReused { .. })), "{reply:?}");
}

#[test]
fn a_group_of_version_2_gets_a_lineage_as_it_did_before_there_was_another() {
    let mut cluster = cluster_of(2);
    let of = |cluster: &Cluster| cluster.host(1).state(GROUP).unwrap().lineage();
    cluster.until("it has one", |cluster| of(cluster).is_some());
    assert_eq!(versions(&cluster), [2; 3]);
}

/// P12: a member that is not upgraded yet reads only plain-text metadata; with any other it would have to stop.
#[test]
fn p12_an_old_member_is_never_given_metadata_that_it_does_not_read() {
    overfill_an_old_group(|_| {});
}

/// Proves that the test above can fail.
#[cfg(feature = "planted-bugs")]
#[test]
#[should_panic(expected = "has no place for")]
fn p12_a_leader_that_gives_an_old_member_what_it_does_not_read_is_noticed() {
    overfill_an_old_group(|host| host.plant(tollgate_replica::Bug::OldFormatOverfilled));
}

fn overfill_an_old_group(plant: fn(&mut tollgate_replica::Host)) {
    let mut cluster = cluster_of(2);
    // All members but one are new, and one of the new ones leads.
    for number in 2..=3 {
        replace(&mut cluster, number, NEW);
    }
    if cluster.leader() == 1 {
        cluster.crash(1);
        cluster.until("another leads", |cluster| cluster.leader_now().is_some());
        cluster.start(1);
    }
    let leader = cluster.leader();
    assert_ne!(leader, 1);
    plant(cluster.nodes.get_mut(&node(leader)).unwrap().host.as_mut().unwrap());
    cluster.grant_lease(1, 600_000);
    lock_with(&mut cluster, 1, ANY_BYTES);
    work(&mut cluster, 7);
    // The result is the same after the old member has read the entries again.
    replace(&mut cluster, 1, 2);
    work(&mut cluster, 8);
    for number in 1..=3 {
        assert_eq!(shown(&cluster, number, 1).1, AS_TEXT, "node {number}");
    }
    // A later repeat counts as a repeat, whatever it carries.
    replace(&mut cluster, 1, NEW);
    cluster.until("the group moves on", |cluster| versions(cluster) == [NEW; 3]);
    lock_with(&mut cluster, 1, ANY_BYTES);
    work(&mut cluster, 9);
    assert_eq!(shown(&cluster, 1, 1).1, AS_TEXT, "what was kept stays as it is");
}

#[test]
fn groups_of_a_cluster_are_of_one_lineage_once_all_members_know_lineages() {
    let mut cluster = Cluster::with(3, &[], 3, |config| config.apply_version = 1);
    cluster.leader();
    cluster.run_ms(3_000);
    let lineages = |cluster: &Cluster| -> Vec<_> {
        let groups = (0..3).map(GroupId::new);
        let of = |group| {
            let hosts = cluster.nodes.values().filter_map(|node| node.host.as_ref());
            hosts.map(move |host| host.state(group).unwrap().lineage()).collect::<Vec<_>>()
        };
        groups.flat_map(of).collect()
    };
    assert_eq!(lineages(&cluster), [None; 9], "one is old");
    for number in 1..=3 {
        replace(&mut cluster, number, NEW);
    }
    cluster.until("all have one", |cluster| lineages(cluster).iter().all(Option::is_some));
    let drawn = lineages(&cluster);
    assert!(drawn.iter().all(|lineage| *lineage == drawn[0]), "{drawn:?}");
    for number in 1..=3 {
        replace(&mut cluster, number, NEW);
    }
    work(&mut cluster, 1);
    assert_eq!(lineages(&cluster), drawn, "it stays");
    // Another cluster with the same settings has another lineage.
    let mut other = Cluster::with(1, &[], 3, |config| config.cluster = ClusterId::new(77));
    // The drawn number depends on the number of starts.
    for _ in 0..5 {
        other.crash(1);
        other.start(1);
    }
    other.until("it has one", |other| lineages(other).iter().all(Option::is_some));
    assert_ne!(lineages(&other)[0], drawn[0]);
}

/// P12: replicas make the same state from the same entries, whatever the leader's wall clock showed.
#[test]
fn p12_entries_carry_the_leaders_wall_time_and_nothing_is_decided_by_it() {
    let run = |wall: fn(u64) -> u64| {
        let mut cluster = Cluster::with(3, &[], 1, |_| {});
        cluster.wall = Some(wall);
        cluster.until("the group is at the newest version", |cluster| versions(cluster) == [NEW; 3]);
        work(&mut cluster, 1);
        assert!(cluster.agree(), "each has another clock");
        let state = cluster.host(1).state(GROUP).unwrap();
        (state.revision(), state.lock_count(), state.lease_count(), state.snapshot().hash())
    };
    let (skewed, none) = (run(|node| 1_800_000_000_000 + node * 7_777_777), run(|_| 0));
    assert_eq!(skewed, none);
}

#[test]
#[should_panic(expected = "upgrade it")]
fn an_old_binary_that_meets_a_newer_version_in_the_log_stops() {
    let mut cluster = Cluster::with(3, &[], 1, |config| config.apply_version = NEW);
    cluster.until("the group is at the new version", |cluster| versions(cluster) == [NEW; 3]);
    cluster.crash(3);
    cluster.nodes.get_mut(&node(3)).unwrap().config.apply_version = OLD;
    // The entries in its log are applied in its first turns.
    cluster.start(3);
    cluster.run_ms(3_000);
}

#[test]
#[should_panic(expected = "upgrade it")]
fn an_old_binary_that_meets_a_newer_version_in_a_snapshot_stops() {
    let mut cluster = Cluster::with(3, &[], 1, |config| {
        config.apply_version = NEW;
        (config.snapshot_log_bytes, config.log_kept_bytes) = (2_000, 0);
    });
    cluster.until("the group is at the new version", |cluster| versions(cluster) == [NEW; 3]);
    for round in 1..=20 {
        work(&mut cluster, round);
    }
    assert!(cluster.status(cluster.leader_now().unwrap()).first_index > 10, "the log was shortened");
    // A new member with an old binary must receive the state.
    cluster.add_joining(4, ReplicaKind::Full, 1);
    cluster.crash(4);
    cluster.nodes.get_mut(&node(4)).unwrap().config.apply_version = OLD;
    cluster.start(4);
    let leader = cluster.leader();
    cluster.change(
        leader,
        MemberChange::AddLearner { node: node(4), witness: false, node_addresses: NodeAddresses::UNKNOWN },
    );
    cluster.run_ms(5_000);
}

/// Proves that the test above can fail.
#[cfg(all(feature = "planted-bugs", feature = "next-version"))]
#[test]
#[should_panic(expected = "P12: the same entries made different states")]
fn p12_a_binary_that_applies_what_it_knows_instead_of_what_is_in_force_is_noticed() {
    let mut cluster = old_cluster();
    replace(&mut cluster, 2, NEW);
    let host = cluster.nodes.get_mut(&node(2)).unwrap().host.as_mut().unwrap();
    host.plant_in_states(tollgate_core::Bug::RulesNotInForce);
    work(&mut cluster, 1);
}
