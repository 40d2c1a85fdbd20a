//! What the callers of a run do.

use std::fmt;

/// What the callers of a run do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Each locks and unlocks names of its own.
    Uncontended,
    /// All want the same few locks, and hand them on.
    Contended,
    /// Readers and writers of some locks.
    Mix,
    /// All take a permit of a semaphore and give it back.
    Semaphore,
    /// Leases are renewed.
    Keepalive,
    /// Leases are granted and revoked.
    Leases,
    /// One writes, all others are told.
    Watch,
    /// The leader is taken out; how long until the next lock is granted.
    Failover,
}

impl Workload {
    /// All, in the order in which they are explained.
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

    /// What it is called.
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

    /// What is counted.
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

    /// What it does, in a sentence.
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

    /// By its name.
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
