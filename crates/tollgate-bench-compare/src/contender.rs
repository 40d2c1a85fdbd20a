//! The services that are compared: starting each of them, connecting to it, taking its leader out and bringing it back.
//!
//! One file for each. Invariant: a service has its default durability settings; other settings are stated on the page
//! (`document`).

mod etcd;
mod redis_server;
mod tollgate_cluster;
mod zookeeper;

pub(crate) use etcd::EtcdCluster;
pub(crate) use redis_server::{Durability, RedisServers};
pub(crate) use tollgate_cluster::TollgateCluster;
pub(crate) use zookeeper::{Recipe, ZooKeeperEnsemble};

use crate::figure::Figure;
use crate::process::Server;
use clap::ValueEnum;
use nix::sys::signal::Signal;
use std::future::Future;
use std::time::Duration;
use tollgate_bench::{Blow, Failure, Patient, Peer};

/// Maximum time for a service to come up.
pub(crate) const READY_PATIENCE: Duration = Duration::from_mins(1);

/// Pause between two checks of a condition that is waited for.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// Quiet time after which a node that came back has caught up.
pub(crate) const REST: Duration = Duration::from_secs(1);

/// Kind of service, with the way it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Three nodes, sessions over the client
    Tollgate,
    /// Three nodes, Lock and Unlock of its lock service
    Etcd,
    /// Three nodes, the recipe: an ephemeral sequential node, and a watch on the one before
    Zookeeper,
    /// Three nodes, an ephemeral node created and deleted: no client can wait for it
    ZookeeperBare,
    /// One server that writes nothing to disk
    RedisMemory,
    /// One server that syncs each write
    RedisAof,
    /// Five servers without disk, three of which must agree
    Redlock,
}

impl Kind {
    pub(crate) const ALL: [Kind; 7] = [
        Kind::Tollgate,
        Kind::Etcd,
        Kind::Zookeeper,
        Kind::ZookeeperBare,
        Kind::RedisMemory,
        Kind::RedisAof,
        Kind::Redlock,
    ];

    /// Returns the name for tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Tollgate => "Tollgate",
            Kind::Etcd => "etcd",
            Kind::Zookeeper => "ZooKeeper, recipe",
            Kind::ZookeeperBare => "ZooKeeper, bare",
            Kind::RedisMemory => "Redis, memory",
            Kind::RedisAof => "Redis, fsync always",
            Kind::Redlock => "Redlock, 5 × memory",
        }
    }

    /// Returns the name for flags.
    pub(crate) fn flag(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns true if the service has what a figure measures.
    pub(crate) fn has(self, figure: Figure) -> bool {
        let is_redis = matches!(self, Kind::RedisMemory | Kind::RedisAof | Kind::Redlock);
        match figure {
            Figure::Pairs { .. } | Figure::Apart { .. } => true,
            Figure::Handoff { .. } | Figure::Grants { .. } => self != Kind::ZookeeperBare,
            // Its client sends pings by itself, and only for the session as a whole.
            Figure::Keepalives { .. } => !matches!(self, Kind::Zookeeper | Kind::ZookeeperBare),
            // No other server could take over from a leader.
            Figure::Kill | Figure::Stop => !is_redis && self != Kind::ZookeeperBare,
        }
    }
}

/// A running service.
pub(crate) trait Contender: Patient {
    type Peer: Peer;

    /// Returns the ids of its processes.
    fn pids(&self) -> Vec<u32>;

    /// Connects to the service, for callers that share this number of connections. With `restless`, unanswered requests
    /// are given up after a while, so that a caller can ask again: for losses of the leader.
    fn connect(&self, connections: usize, restless: bool)
    -> impl Future<Output = anyhow::Result<Self::Peer>>;
}

/// Takes a server out.
fn hit(server: &mut Server, blow: Blow) -> Result<(), Failure> {
    match blow {
        Blow::Kill => server.kill(),
        Blow::Stop => server.signal(Signal::SIGSTOP).map_err(|error| Failure::says(format!("{error:#}")))?,
    }
    Ok(())
}

/// Brings a server back.
fn mend(server: &mut Server, blow: Blow) -> Result<(), Failure> {
    let mended = match blow {
        Blow::Kill => server.start_again(),
        Blow::Stop => server.signal(Signal::SIGCONT),
    };
    mended.map_err(|error| Failure::says(format!("{error:#}")))
}
