//! The workloads of a run.

use std::fmt;

/// A workload of a run's callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Each caller locks and unlocks names of its own.
    Uncontended,
    /// All callers want the same few locks, and hand them on.
    Contended,
    /// Readers and writers of some locks.
    Mix,
    /// All callers acquire and release a permit of a semaphore.
    Semaphore,
    /// Leases are renewed.
    Keepalive,
    /// Leases are granted and revoked.
    Leases,
    /// One caller writes, all others are notified.
    Watch,
    /// The leader is taken out; measured is the time until the next lock is granted.
    Failover,
}

impl Workload {
    /// All workloads, in the order in which they are explained.
    pub const ALL: [Workload; 8] = [
        Workload::Uncontended,
        Workload::Contended,
        Workload::Mix,
        Workload::Semaphore,
        Workload::Keepalive,
        Workload::Leases,
        Workload::Watch,
        Workload::Failover,
    ];

    /// Returns the workload's name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Uncontended => "uncontended",
            Workload::Contended => "contended",
            Workload::Mix => "mix",
            Workload::Semaphore => "semaphore",
            Workload::Keepalive => "keepalive",
            Workload::Leases => "leases",
            Workload::Watch => "watch",
            Workload::Failover => "failover",
        }
    }

    /// Returns the name of the operations that are counted.
    pub fn operations(self) -> &'static str {
        match self {
            Workload::Uncontended | Workload::Mix | Workload::Semaphore => "lock+unlock pairs",
            Workload::Contended => "hand-offs",
            Workload::Keepalive => "keepalives",
            Workload::Leases => "grants",
            Workload::Watch => "deliveries",
            Workload::Failover => "losses of the leader",
        }
    }

    /// Returns a description of the workload, in one sentence.
    pub fn about(self) -> &'static str {
        match self {
            Workload::Uncontended => "Each client locks and unlocks a key of its own",
            Workload::Contended => {
                "All clients wait for the same key: hand-offs, and the time from a release to the next grant"
            }
            Workload::Mix => "Clients lock keys at random, most of them shared, some exclusively",
            Workload::Semaphore => "All clients take one of a semaphore's permits and give it back",
            Workload::Keepalive => "Leases are renewed, as fast as answers come or each in its own time",
            Workload::Leases => "Leases are granted, and revoked again",
            Workload::Watch => "One writes, all clients watch: the time from the request until each is told",
            Workload::Failover => {
                "The leader is killed, then stopped: the time until a client's next grant; needs --own-cluster"
            }
        }
    }

    /// Returns the workload with this name.
    pub fn of_name(name: &str) -> Option<Workload> {
        Workload::ALL.into_iter().find(|workload| workload.name() == name)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_found_by_its_name() {
        for workload in Workload::ALL {
            assert_eq!(Workload::of_name(workload.name()), Some(workload));
        }
        assert_eq!(Workload::of_name("nonsense"), None);
    }
}
