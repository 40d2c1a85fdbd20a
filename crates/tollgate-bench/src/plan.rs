//! The plan of a run: the workload, its size and its duration.

use crate::workload::Workload;
use std::time::Duration;

/// Maximum length of a lock's `why`, in bytes.
const PAYLOAD_MAX: usize = 4_096;

/// Maximum number of callers in one run; with more, the generator would measure itself.
const CLIENTS_MAX: usize = 100_000;

/// TTL of leases in a run of single calls. Nobody renews them, so they must outlast the run, and a cluster grants at
/// most ten minutes by default.
pub(crate) const UNARY_TTL: Duration = Duration::from_mins(10);
const UNARY_RUN_MAX: Duration = Duration::from_mins(8);

/// The plan of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Workload of the callers.
    pub workload: Workload,
    /// Number of concurrent callers.
    pub clients: usize,
    /// Number of connections that the callers share.
    pub connections: usize,
    /// Measured time.
    pub duration: Duration,
    /// Time that the load runs before it is measured.
    pub warmup: Duration,
    /// Number of locks, or the workload's default.
    pub keys: Option<usize>,
    /// Bytes of `why` sent with each lock.
    pub payload: usize,
    /// True to make single calls instead of operations on a session stream.
    pub unary: bool,
    /// TTL of leases.
    pub ttl: Duration,
    /// Percentage of locks that a mix acquires in shared mode.
    pub reads_percent: u32,
    /// Total permits of a semaphore.
    pub permits: u32,
    /// Number of leases that are kept alive; by default, as many as callers.
    pub leases: Option<usize>,
    /// True to renew each lease on a schedule, every third of its TTL, and not as fast as answers come.
    pub paced: bool,
    /// Number of times that the leader is taken out, in each way.
    pub rounds: u32,
}

/// A plan that can't be carried out. The message says what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WrongPlan(String);

impl Plan {
    /// Creates a plan with default values.
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

    /// Returns the number of locks.
    pub fn keys(&self) -> usize {
        self.keys.unwrap_or(match self.workload {
            Workload::Uncontended => self.clients,
            Workload::Mix => 16,
            _ => 1,
        })
    }

    /// Returns the number of leases that are kept alive.
    pub fn leases(&self) -> usize {
        self.leases.unwrap_or(self.clients)
    }

    /// Checks the plan; the error describes the first mistake.
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
