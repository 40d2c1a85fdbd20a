//! What a run is to do: how much of what, and for how long.

use crate::workload::Workload;
use std::time::Duration;

/// The longest that a `why` may be.
const PAYLOAD_MAX: usize = 4_096;

/// Callers of one run: past this, the generator measures itself.
const CLIENTS_MAX: usize = 100_000;

/// A lease that nobody renews must outlast a run of single calls, and none lives longer than ten minutes by default.
pub(crate) const UNARY_TTL: Duration = Duration::from_mins(10);
const UNARY_RUN_MAX: Duration = Duration::from_mins(8);

/// What a run is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What callers do.
    pub workload: Workload,
    /// How many do it at once.
    pub clients: usize,
    /// Over how many connections.
    pub connections: usize,
    /// How long it is measured.
    pub duration: Duration,
    /// How long it runs before that.
    pub warmup: Duration,
    /// How many locks there are, or as many as the workload usually has.
    pub keys: Option<usize>,
    /// Bytes of `why` with each lock.
    pub payload: usize,
    /// Whether single calls are made instead of operations on a session stream.
    pub unary: bool,
    /// How long leases live.
    pub ttl: Duration,
    /// Of a mix: how many of a hundred locks are shared.
    pub reads_percent: u32,
    /// Of a semaphore.
    pub permits: u32,
    /// How many leases are kept alive; as many as callers by default.
    pub leases: Option<usize>,
    /// Whether each lease is renewed in its own time, every third of its TTL, and not as fast as answers come.
    pub paced: bool,
    /// How often the leader is taken out, in each way.
    pub rounds: u32,
}

/// A plan that can't be carried out. Says what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WrongPlan(String);

impl Plan {
    /// A plan with usual values.
    pub fn new(workload: Workload, clients: usize) -> Plan {
        Plan {
            workload,
            clients,
            connections: 1,
            duration: Duration::from_secs(10),
            warmup: Duration::from_secs(1),
            keys: None,
            payload: 0,
            unary: false,
            ttl: Duration::from_mins(1),
            reads_percent: 90,
            permits: 8,
            leases: None,
            paced: false,
            rounds: 5,
        }
    }

    /// How many locks there are.
    pub fn keys(&self) -> usize {
        self.keys.unwrap_or(match self.workload {
            Workload::Uncontended => self.clients,
            Workload::Mix => 16,
            _ => 1,
        })
    }

    /// How many leases are kept alive.
    pub fn leases(&self) -> usize {
        self.leases.unwrap_or(self.clients)
    }

    /// Says what is wrong with it, if something is.
    pub fn validate(&self) -> Result<(), WrongPlan> {
        let rules = [
            (
                !(1..=CLIENTS_MAX).contains(&self.clients),
                format!("--clients is {}: it must be from 1 to {CLIENTS_MAX}", self.clients),
            ),
            (
                !(1..=self.clients.max(1)).contains(&self.connections),
                format!(
                    "--connections is {}: it must be from 1 to the number of clients, {}",
                    self.connections, self.clients
                ),
            ),
            (self.duration.is_zero(), "--duration is zero: nothing would be measured".to_owned()),
            (
                self.payload > PAYLOAD_MAX,
                format!("--payload is {}: a `why` has at most {PAYLOAD_MAX} bytes", self.payload),
            ),
            (self.keys() == 0, "--keys is zero: there must be a lock to take".to_owned()),
            (
                self.workload == Workload::Uncontended && self.keys() < self.clients,
                format!(
                    "--keys is {} for {} clients: each needs one of its own; `contended` has them share",
                    self.keys(),
                    self.clients
                ),
            ),
            (
                self.workload == Workload::Contended && self.clients < 2 * self.keys(),
                format!(
                    "{} clients for {} keys: a key is handed on only if two or more want it",
                    self.clients,
                    self.keys()
                ),
            ),
            (self.reads_percent > 100, format!("--reads is {}: it is a percentage", self.reads_percent)),
            (self.permits == 0, "--permits is zero: nobody would get one".to_owned()),
            (
                self.leases() < self.clients,
                format!(
                    "--leases is {} for {} clients: each renews one or more",
                    self.leases(),
                    self.clients
                ),
            ),
            (
                self.ttl < Duration::from_millis(100),
                "--ttl is below 100ms, the shortest that a cluster grants by default".to_owned(),
            ),
            (self.rounds == 0, "--rounds is zero: nothing would be measured".to_owned()),
            (
                self.unary && matches!(self.workload, Workload::Watch | Workload::Failover),
                format!("--unary makes no difference to `{}`: leave it out", self.workload),
            ),
            (
                self.unary && self.warmup + self.duration > UNARY_RUN_MAX,
                format!(
                    "with --unary a run lasts at most {} s: nobody renews its leases",
                    UNARY_RUN_MAX.as_secs()
                ),
            ),
        ];
        match rules.into_iter().find(|(broken, _)| *broken) {
            Some((_, says)) => Err(WrongPlan(says)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_plans_are_valid() {
        for workload in Workload::ALL {
            assert_eq!(Plan::new(workload, 64).validate(), Ok(()), "{workload}");
        }
        assert_eq!(Plan::new(Workload::Uncontended, 64).keys(), 64);
        assert_eq!(Plan::new(Workload::Contended, 64).keys(), 1);
    }

    #[test]
    fn a_wrong_plan_says_what_is_wrong() {
        let usual = || Plan::new(Workload::Uncontended, 64);
        let hour = Duration::from_hours(1);
        for (plan, says) in [
            (Plan { clients: 0, ..usual() }, "--clients is 0"),
            (Plan { connections: 0, ..usual() }, "--connections is 0"),
            (Plan { connections: 65, ..usual() }, "from 1 to the number of clients, 64"),
            (Plan { duration: Duration::ZERO, ..usual() }, "--duration is zero"),
            (Plan { payload: 5_000, ..usual() }, "at most 4096 bytes"),
            (Plan { keys: Some(0), ..usual() }, "--keys is zero"),
            (Plan { keys: Some(8), ..usual() }, "`contended` has them share"),
            (Plan { keys: Some(33), ..Plan::new(Workload::Contended, 64) }, "two or more"),
            (Plan { reads_percent: 101, ..usual() }, "percentage"),
            (Plan { permits: 0, ..usual() }, "--permits is zero"),
            (Plan { leases: Some(63), ..usual() }, "each renews one or more"),
            (Plan { ttl: Duration::from_millis(99), ..usual() }, "below 100ms"),
            (Plan { rounds: 0, ..usual() }, "--rounds is zero"),
            (Plan { unary: true, ..Plan::new(Workload::Watch, 64) }, "no difference to `watch`"),
            (Plan { unary: true, duration: hour, ..usual() }, "at most 480 s"),
        ] {
            let told = plan.validate().unwrap_err().to_string();
            assert!(told.contains(says), "{told}");
        }
    }
}
