//! The kinds of faults. Each is a file; to add one, write it, and add a line to the table and another to `run`.
//!
//! Invariant: a fault leaves the cluster as it found it, or reports what did not heal. Not here: the timing of faults
//! (`lane`).

mod clock;
mod disk;
mod gateway;
mod kill;
mod majority;
mod membership;
mod network;
mod pause;
mod restart;
mod transfer;

use super::arena::Arena;
use crate::rng::Rng;
use std::time::Duration;

/// Part of the cluster that a fault breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// At most one node.
    Node,
    /// A gateway, and no node.
    Gateway,
    /// More than one node: no other fault may run meanwhile.
    Cluster,
}

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FaultKind {
    Kill,
    Pause,
    Isolate,
    OneWay,
    Flap,
    Split,
    SlowDisk,
    FailingDisk,
    FullDisk,
    Clock,
    Transfer,
    Replace,
    GrowAndShrink,
    GatewayKill,
    GatewayPause,
    GatewayRestart,
    RollingRestart,
    Majority,
}

/// Table of all kinds: the name, the reach, and the weight with which the kind is drawn.
const TABLE: [(FaultKind, &str, Reach, u64); 18] = [
    (FaultKind::Kill, "kill -9", Reach::Node, 20),
    (FaultKind::Pause, "pause", Reach::Node, 14),
    (FaultKind::Isolate, "partition, both ways", Reach::Node, 10),
    (FaultKind::OneWay, "partition, one way", Reach::Node, 10),
    (FaultKind::Flap, "partition, flapping", Reach::Node, 7),
    (FaultKind::Split, "partition, several nodes", Reach::Cluster, 4),
    (FaultKind::SlowDisk, "slow fsync", Reach::Node, 8),
    (FaultKind::FailingDisk, "failing fsync", Reach::Node, 8),
    (FaultKind::FullDisk, "full disk", Reach::Node, 7),
    (FaultKind::Clock, "clock off by less than rho", Reach::Node, 5),
    (FaultKind::Transfer, "leadership transfer", Reach::Node, 8),
    (FaultKind::Replace, "node lost with its disk, and replaced", Reach::Node, 5),
    (FaultKind::GrowAndShrink, "node added, another removed", Reach::Node, 5),
    (FaultKind::GatewayKill, "gateway kill -9", Reach::Gateway, 7),
    (FaultKind::GatewayPause, "gateway pause", Reach::Gateway, 4),
    (FaultKind::GatewayRestart, "gateway restart", Reach::Gateway, 3),
    (FaultKind::RollingRestart, "rolling restart", Reach::Cluster, 2),
    (FaultKind::Majority, "majority lost for a short time", Reach::Cluster, 4),
];

impl FaultKind {
    fn row(self) -> &'static (FaultKind, &'static str, Reach, u64) {
        TABLE.iter().find(|(kind, ..)| *kind == self).expect("every kind has a line")
    }

    pub(crate) fn name(self) -> &'static str {
        self.row().1
    }

    pub(crate) fn reach(self) -> Reach {
        self.row().2
    }
}

/// Random choices for one fault, drawn before anything is known of the cluster: so a seed brings the same faults.
#[derive(Debug)]
pub(crate) struct Draw {
    pub(crate) kind: FaultKind,
    /// True if the fault is for a leader, rather than for any node.
    pub(crate) of_leader: bool,
    pub(crate) pick: u64,
    /// Source for the other choices of the kind.
    pub(crate) rng: Rng,
}

impl Draw {
    pub(crate) fn from(rng: &mut Rng) -> Draw {
        let mut rest = rng.below(TABLE.iter().map(|(.., weight)| weight).sum());
        let drawn = TABLE.iter().find(|(.., weight)| match rest.checked_sub(*weight) {
            Some(left) => {
                rest = left;
                false
            }
            None => true,
        });
        let kind = drawn.expect("below the sum of all weights").0;
        Draw { kind, of_leader: rng.percent(50), pick: rng.next(), rng: Rng::new(rng.next()) }
    }

    /// Draws the length of the fault.
    pub(crate) fn span_ms(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.rng.below(most - least))
    }
}

/// Makes a fault happen, and waits until it is over.
pub(crate) async fn run(arena: &Arena, draw: Draw) -> Result<(), String> {
    match draw.kind {
        FaultKind::Kill => kill::run(arena, draw).await,
        FaultKind::Pause => pause::run(arena, draw).await,
        FaultKind::Isolate | FaultKind::OneWay | FaultKind::Flap | FaultKind::Split => {
            network::run(arena, draw).await
        }
        FaultKind::SlowDisk | FaultKind::FailingDisk | FaultKind::FullDisk => disk::run(arena, draw).await,
        FaultKind::Clock => clock::run(arena, draw).await,
        FaultKind::Transfer => transfer::run(arena, draw).await,
        FaultKind::Replace | FaultKind::GrowAndShrink => membership::run(arena, draw).await,
        FaultKind::GatewayKill | FaultKind::GatewayPause | FaultKind::GatewayRestart => {
            gateway::run(arena, draw).await
        }
        FaultKind::RollingRestart => restart::run(arena, draw).await,
        FaultKind::Majority => majority::run(arena, draw).await,
    }
}

#[test]
fn every_kind_is_drawn_and_a_seed_draws_the_same_again() {
    let kinds_of = |seed| {
        let mut rng = Rng::new(seed);
        (0..400).map(|_| Draw::from(&mut rng).kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds_of(3), kinds_of(3));
    let drawn = kinds_of(4);
    for (kind, name, ..) in TABLE {
        assert!(drawn.contains(&kind), "{name} is never drawn");
    }
}
