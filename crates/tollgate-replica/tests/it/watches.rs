//! Watches without a start revision, served by a dispatcher beside one host of a cluster: where they begin, and when.

use crate::cluster::{Cluster, GROUP, lock, node};
use crate::snapshots::small;
use tollgate_core::{Reply, Watch};
use tollgate_replica::{Answer, Caller, CallerKey, Dispatcher, Host, HostEvent, ReadError, WatchNumber};
use tollgate_types::Revision;

const CREDIT: u64 = 100;

/// First id of the dispatcher's proposals and reads, apart from the ids of the cluster.
const FIRST_ID: u64 = 1 << 40;

#[derive(Debug, Clone)]
struct Watcher;

impl Caller for Watcher {
    fn key(&self) -> CallerKey {
        CallerKey { stream: 1, call: 1 }
    }
}

/// A cluster with a dispatcher beside one of its hosts.
struct Served {
    cluster: Cluster,
    at: u64,
    dispatcher: Dispatcher<Watcher, ()>,
    said: Vec<Answer<()>>,
}

impl Served {
    /// A dispatcher at a follower, in a cluster with a lease.
    fn by_a_follower(mut cluster: Cluster) -> Served {
        let leader = cluster.leader();
        cluster.grant_lease(1, 600_000);
        cluster.until_founded();
        Served::by(cluster, if leader == 1 { 2 } else { 1 })
    }

    fn by(cluster: Cluster, at: u64) -> Served {
        Served { cluster, at, dispatcher: Dispatcher::new(FIRST_ID), said: Vec::new() }
    }

    /// Runs one millisecond, with a call to the dispatcher in its turn.
    fn step(&mut self, act: impl FnOnce(&mut Dispatcher<Watcher, ()>, &mut Host)) {
        self.cluster.now_us += 1_000;
        let ids: Vec<_> = self.cluster.nodes.keys().copied().collect();
        let (mut act, mut sent) = (Some(act), Vec::new());
        for id in ids {
            let here = id == node(self.at);
            let dispatcher = &mut self.dispatcher;
            let output = self.cluster.turn(id, |host| {
                if let Some(act) = act.take_if(|_| here) {
                    act(dispatcher, host);
                    dispatcher.before_end_turn(host);
                }
            });
            let Some(mut output) = output else { continue };
            if here {
                output.reads = std::mem::take(&mut self.cluster.reads).into_values().collect();
                let host = self.cluster.host(self.at);
                let mut answers = Vec::new();
                self.dispatcher.after_turn(&mut output, host, &mut answers);
                self.said.extend(answers.into_iter().map(|(_, answer)| answer));
                assert!(output.reads.is_empty(), "all reads here are the dispatcher's");
            }
            sent.extend(output.frames.iter().map(|(to, bytes)| (id, *to, bytes.clone())));
        }
        self.cluster.deliver(sent);
    }

    fn run_ms(&mut self, ms: u64) {
        (0..ms).for_each(|_| self.step(|_, _| {}));
    }

    fn until(&mut self, what: &str, holds: impl Fn(&Served) -> bool) {
        for _ in 0..30_000 {
            if holds(self) {
                return;
            }
            self.run_ms(1);
        }
        panic!("not within 30 s: {what}");
    }

    fn watch(&mut self, number: WatchNumber, from: Option<Revision>, credit: u64) {
        self.step(|dispatcher, _| dispatcher.watch(Watcher, number, GROUP, from, Watch::All, credit));
    }

    /// Acquires a lock at the leader for another client; returns the revision after it.
    fn lock(&mut self, name: &str) -> Revision {
        let leader = self.cluster.leader_now().expect("somebody leads");
        let id = self.cluster.propose(leader, lock(name, 1));
        self.until("the lock is granted", |served| served.cluster.replies.contains_key(&id));
        match self.cluster.replies.remove(&id).unwrap() {
            Ok(tollgate_replica::ProposalOutcome::Applied(applied)) => {
                assert!(matches!(applied.reply, Reply::Acquired { .. }), "{:?}", applied.reply);
                applied.revision
            }
            other => panic!("the leader carries it out: {other:?}"),
        }
    }

    /// Start, number of events and end of each batch since the last call.
    fn batches(&mut self) -> Vec<(u64, usize, u64)> {
        let of = |answer: Answer<()>| match answer {
            Answer::Events { from, events, next, .. } => (from.get(), events.len(), next.get()),
            other => panic!("{other:?}"),
        };
        self.said.drain(..).map(of).collect()
    }

    fn state_revision(&self) -> u64 {
        self.cluster.host(self.at).state(GROUP).unwrap().revision().get()
    }

    /// Cuts the node off from the messages of all others.
    fn hold_back(&mut self) {
        for other in [1, 2, 3] {
            self.cluster.cut.insert((node(other), node(self.at)));
        }
    }
}

fn three() -> Served {
    Served::by_a_follower(Cluster::new(3, &[], 1))
}

#[test]
fn p11_a_watch_from_now_on_begins_behind_all_that_was_acknowledged_before_it() {
    let mut served = three();
    served.hold_back();
    let acknowledged = served.lock("a");
    assert!(served.state_revision() < acknowledged.get(), "the node is behind");
    served.watch(1, None, CREDIT);
    served.run_ms(50);
    assert_eq!(served.batches(), [], "nobody has confirmed yet where now is");
    served.cluster.heal();
    served.until("the watch has begun", |served| !served.said.is_empty());
    let begin = acknowledged.get() + 1;
    assert_eq!(served.batches(), [(begin, 0, begin)]);
    // From there on no event is missing.
    let next = served.lock("b");
    served.until("the lock is told", |served| !served.said.is_empty());
    assert_eq!(served.batches(), [(begin, 1, next.get() + 1)]);
}

#[test]
fn p11_a_watch_from_now_on_begins_behind_what_came_by_a_snapshot_meanwhile() {
    let mut served = Served::by_a_follower(Cluster::with(3, &[], 1, small));
    served.hold_back();
    served.watch(1, None, CREDIT);
    let mut acknowledged = Revision::ZERO;
    for round in 0..300 {
        acknowledged = served.lock(&format!("a{round}"));
    }
    assert_eq!(served.batches(), []);
    served.cluster.heal();
    served.until("the watch has begun", |served| !served.said.is_empty());
    let installed = |event: &HostEvent| matches!(event, HostEvent::SnapshotInstalled { .. });
    assert!(served.cluster.events.iter().any(|(id, event)| *id == node(served.at) && installed(event)));
    let begun = served.batches();
    assert!(matches!(begun[..], [(from, 0, next)] if from == next && from > acknowledged.get()), "{begun:?}");
}

#[test]
fn p11_a_watch_whose_leader_is_lost_before_it_begins_is_confirmed_by_the_next() {
    let mut served = three();
    let old = served.cluster.leader_now().unwrap();
    let acknowledged = served.lock("a");
    served.run_ms(300);
    served.cluster.isolate(old);
    served.watch(1, None, CREDIT);
    served.until("the watch has begun", |served| !served.said.is_empty());
    assert_ne!(served.cluster.leader_now(), Some(old));
    let begun = served.batches();
    assert!(matches!(begun[..], [(from, 0, _)] if from > acknowledged.get()), "{begun:?}");
}

#[test]
fn a_watch_that_nobody_confirms_is_refused_like_a_linearizable_read() {
    let mut served = three();
    served.cluster.isolate(served.at);
    served.watch(1, None, CREDIT);
    served.run_ms(4_900);
    assert_eq!((served.said.len(), served.dispatcher.watch_count()), (0, 1));
    served.run_ms(200);
    let said = std::mem::take(&mut served.said);
    let timed_out = ReadError::TimedOut { group: GROUP };
    assert!(matches!(&said[..], [Answer::NotRead { what: None, error }] if *error == timed_out), "{said:?}");
    assert_eq!(served.dispatcher.watch_count(), 0);
    served.cluster.heal();
    served.run_ms(2_000);
    assert_eq!(served.batches(), []);
}

#[test]
fn a_watch_from_a_revision_asks_nobody() {
    let mut served = three();
    let begin = served.lock("a");
    served.until("the node has it", |served| served.state_revision() == begin.get());
    served.cluster.isolate(served.at);
    served.watch(1, Some(begin), CREDIT);
    assert_eq!(served.batches(), [(begin.get(), 1, begin.get() + 1)]);
}

#[test]
fn a_watch_that_ends_before_it_begins_is_told_nothing() {
    let mut served = three();
    served.hold_back();
    served.watch(1, None, CREDIT);
    served.watch(2, None, CREDIT);
    served.step(|dispatcher, _| dispatcher.unwatch(1));
    // Another watch begins under its number, which the read of the first does not confirm.
    served.cluster.heal();
    served.watch(2, None, CREDIT);
    served.until("the watch has begun", |served| !served.said.is_empty());
    served.run_ms(500);
    assert!(matches!(served.said[..], [Answer::Events { watch: 2, .. }]), "{:?}", served.said);
    assert_eq!(served.dispatcher.watch_count(), 1);
}

#[test]
fn credit_that_comes_before_a_watch_begins_lets_nothing_out_early() {
    let mut served = three();
    served.hold_back();
    let acknowledged = served.lock("a");
    served.watch(1, None, 0);
    served.step(|dispatcher, _| dispatcher.give_credit(1, 1));
    served.run_ms(20);
    assert_eq!(served.batches(), []);
    served.cluster.heal();
    served.until("the watch has begun", |served| !served.said.is_empty());
    let begin = acknowledged.get() + 1;
    assert_eq!(served.batches(), [(begin, 0, begin)]);
    for name in ["b", "c", "d"] {
        served.lock(name);
    }
    served.run_ms(500);
    assert_eq!(served.batches(), [(begin, 1, begin + 1)]);
}

#[test]
fn p16_watches_of_one_turn_cost_one_round() {
    let mut served = three();
    served.run_ms(300);
    let rounds = |from: u64, to: u64, served: &mut Served| {
        let before = served.cluster.frames;
        served.step(|dispatcher, _| {
            (from..to).for_each(|number| dispatcher.watch(Watcher, number, GROUP, None, Watch::All, CREDIT));
        });
        served.run_ms(100);
        served.cluster.frames - before
    };
    let none = rounds(0, 0, &mut served);
    let one = rounds(0, 1, &mut served);
    let many = rounds(1, 1_001, &mut served);
    assert!(one > none && many <= one + 4, "no watch: {none} frames, one: {one}, 1,000: {many}");
    assert_eq!(served.batches().len(), 1_001);
}

#[test]
fn a_witness_refuses_a_watch_at_once() {
    let mut cluster = Cluster::new(3, &[3], 1);
    cluster.leader();
    let mut served = Served::by(cluster, 3);
    served.watch(1, None, CREDIT);
    served.watch(2, Some(Revision::ZERO.next()), CREDIT);
    let refused = |answer: &Answer<()>| {
        matches!(answer, Answer::NotRead { what: None, error: ReadError::NoState { .. } })
    };
    assert!(served.said.len() == 2 && served.said.iter().all(refused), "{:?}", served.said);
    assert_eq!((served.dispatcher.watch_count(), served.dispatcher.wants_turn()), (0, false));
}
