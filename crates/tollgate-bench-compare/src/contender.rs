//! The services that are compared: how each is started, asked, hit and made whole.
//!
//! A file for each. Invariant: durable settings are the ones that a service comes with; what is set otherwise is said
//! on the page (`document`).

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

/// A service that has not come up by then has failed.
pub(crate) const READY_PATIENCE: Duration = Duration::from_mins(1);

/// Between two looks at something that is waited for.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// After that much quiet a node that came back has what it missed.
pub(crate) const REST: Duration = Duration::from_secs(1);

/// Which service, and how it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Three nodes, sessions over the client
    Tollgate,
    /// Three nodes, Lock and Unlock of its lock service
    Etcd,
    /// Three nodes, the recipe: an ephemeral sequential node, and a watch on the one before
    Zookeeper,
    /// Three nodes, an ephemeral node created and deleted: nobody can wait for it
    ZookeeperBare,
    /// One server that writes nothing to disk
    RedisMemory,
    /// One server that syncs each write
    RedisAof,
    /// Five servers without disk, of which three must agree
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

    /// In tables.
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

    /// As a flag.
    pub(crate) fn flag(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether it has what a figure is about.
    pub(crate) fn has(self, figure: Figure) -> bool {
        let is_redis = matches!(self, Kind::RedisMemory | Kind::RedisAof | Kind::Redlock);
        match figure {
            Figure::Pairs { .. } | Figure::Apart { .. } => true,
            Figure::Handoff { .. } | Figure::Grants { .. } => self != Kind::ZookeeperBare,
            // Its client pings by itself, and only for the session as a whole.
            Figure::Keepalives { .. } => !matches!(self, Kind::Zookeeper | Kind::ZookeeperBare),
            // There is no leader that another server could take over from.
            Figure::Kill | Figure::Stop => !is_redis && self != Kind::ZookeeperBare,
        }
    }
}

/// A service that runs.
pub(crate) trait Contender: Patient {
    type Peer: Peer;

    /// Its processes.
    fn pids(&self) -> Vec<u32>;

    /// Connects to it, for callers that share so many connections. With `restless`, requests that nobody answers are
    /// given up after a while, so that a caller can ask again: for losses of the leader.
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

/// Brings it back.
fn mend(server: &mut Server, blow: Blow) -> Result<(), Failure> {
    let mended = match blow {
        Blow::Kill => server.start_again(),
        Blow::Stop => server.signal(Signal::SIGCONT),
    };
    mended.map_err(|error| Failure::says(format!("{error:#}")))
}
