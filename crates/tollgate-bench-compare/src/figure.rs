//! The figures that are measured for each service.

use crate::arguments::Arguments;
use clap::ValueEnum;
use tollgate_bench::{Blow, Plan, Workload};

/// A family of figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Theme {
    /// Lock and unlock, with a key for each client
    Pairs,
    /// Lock and unlock by clients with a connection of their own each, like separate programs
    Apart,
    /// One key that all clients wait for
    Handoff,
    /// Renewals of leases
    Keepalives,
    /// Leases granted, and revoked again
    Grants,
    /// kill -9 of the leader, until the next lock
    Kill,
    /// SIGSTOP of the leader, until the next lock
    Stop,
}

impl Theme {
    pub(crate) const ALL: [Theme; 7] = [
        Theme::Pairs,
        Theme::Apart,
        Theme::Handoff,
        Theme::Keepalives,
        Theme::Grants,
        Theme::Kill,
        Theme::Stop,
    ];
}

/// One figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figure {
    Pairs { clients: usize },
    Apart { clients: usize },
    Handoff { waiters: usize },
    Keepalives { clients: usize },
    Grants { clients: usize },
    Kill,
    Stop,
}

impl Figure {
    /// Returns the name for tables.
    pub(crate) fn name(self) -> String {
        match self {
            Figure::Pairs { clients: 1 } => "lock+unlock, 1 client".to_owned(),
            Figure::Pairs { clients } => format!("lock+unlock, {clients} clients"),
            Figure::Apart { clients } => format!("lock+unlock, {clients} clients with a connection each"),
            Figure::Handoff { waiters } => format!("hand-off, {waiters} waiters"),
            Figure::Keepalives { clients } => format!("keepalives, {clients} clients"),
            Figure::Grants { clients } => format!("lease grant+revoke, {clients} clients"),
            Figure::Kill => "kill -9 of the leader".to_owned(),
            Figure::Stop => "SIGSTOP of the leader".to_owned(),
        }
    }

    /// Returns the flags that measure this figure alone.
    pub(crate) fn flags(self) -> String {
        match self {
            Figure::Pairs { clients } => format!("--figures pairs --clients {clients}"),
            Figure::Apart { clients } => format!("--figures apart --apart-clients {clients}"),
            Figure::Handoff { waiters } => format!("--figures handoff --waiters {waiters}"),
            Figure::Keepalives { clients } => format!("--figures keepalives --lease-clients {clients}"),
            Figure::Grants { clients } => format!("--figures grants --lease-clients {clients}"),
            Figure::Kill => "--figures kill".to_owned(),
            Figure::Stop => "--figures stop".to_owned(),
        }
    }

    /// Returns true if each client has a connection of its own. Clients that want the same lock do: they are separate
    /// programs, and without a queue the order of a shared connection would decide which is next.
    pub(crate) fn is_apart(self) -> bool {
        matches!(self, Figure::Apart { .. } | Figure::Handoff { .. })
    }

    /// Returns the way in which the leader is lost, if the figure measures that.
    pub(crate) fn blow(self) -> Option<Blow> {
        match self {
            Figure::Kill => Some(Blow::Kill),
            Figure::Stop => Some(Blow::Stop),
            _ => None,
        }
    }

    /// Returns the plan for the generator.
    pub(crate) fn plan(self, arguments: &Arguments) -> Plan {
        let (workload, clients) = match self {
            Figure::Pairs { clients } | Figure::Apart { clients } => (Workload::Uncontended, clients),
            Figure::Handoff { waiters } => (Workload::Contended, waiters),
            Figure::Keepalives { clients } => (Workload::Keepalive, clients),
            Figure::Grants { clients } => (Workload::Leases, clients),
            Figure::Kill | Figure::Stop => (Workload::Failover, 1),
        };
        let connections = if self.is_apart() { clients } else { arguments.connections_of(clients) };
        Plan {
            connections,
            duration: arguments.duration(),
            warmup: arguments.warmup(),
            rounds: arguments.losses,
            ..Plan::new(workload, clients)
        }
    }
}
