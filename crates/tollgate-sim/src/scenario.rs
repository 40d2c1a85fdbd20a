//! A world before it begins: its nodes and clients, their speed and distance, and the faults that will happen.
//!
//! Invariant: everything follows from the seed; the list of faults may be cut down afterwards, and nothing else changes
//! by that. Not here: drawing the faults (`schedule`).

use crate::disk_queue::DiskSpeed;
use crate::fault::{Fault, FaultKind};
use crate::network::{Latency, Links};
use crate::planting::Planted;
use crate::rng::Rng;
use crate::schedule::{self, Stage};
use crate::types::At;
use tollgate_replica::HostConfig;
use tollgate_types::{ClusterId, Limits, NodeId};

/// The longest time to live of any lease.
const TTL_MS_MAX: u64 = 4_000;

/// Complete description of a world.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The seed that everything is drawn from.
    pub seed: u64,
    /// Number of nodes at the beginning; they are numbered from 1.
    pub nodes: u64,
    /// Number of these nodes, the last ones, that are witnesses and keep no lock state.
    pub witnesses: u64,
    /// Number of groups.
    pub groups: u32,
    /// Number of clients at any time.
    pub clients: u32,
    /// The shortest time to live of a lease.
    pub ttl_ms_min: u64,
    /// The longest time to live of a lease.
    pub ttl_ms_max: u64,
    /// Maximum deviation of clock rates, in parts per million.
    pub rho_ppm: u32,
    /// Time at which all faults are over.
    pub faults_end: At,
    /// Latency of the network.
    pub latency: Latency,
    /// Speed of the disks.
    pub disk: DiskSpeed,
    /// Maximum time from an input to the turn in which the node looks at it.
    pub turn_us_max: u64,
    /// Settings of every host, except its node and apply version.
    pub config: HostConfig,
    /// Limits of the groups.
    pub limits: Limits,
    /// Faults of the run.
    pub faults: Vec<Fault>,
    /// Bug that is planted in every node.
    pub planted: Option<Planted>,
}

impl Scenario {
    /// Draws the scenario of a seed.
    pub fn new(seed: u64) -> Scenario {
        let rng = &mut Rng::stream(seed, "scenario", 0);
        let (nodes, witnesses) =
            *rng.pick(&[(1, 0), (3, 0), (3, 0), (3, 0), (3, 0), (3, 0), (3, 1), (3, 1), (5, 0), (5, 2)]);
        let groups = if rng.percent(25) { 4 } else { 1 };
        let ttl_ms_min = rng.log_range(500, 3_000);
        // The lease of a client that is gone ends, and all waiters behind it are served, within the time for healing.
        let ttl_ms_max = rng.log_range(ttl_ms_min, (ttl_ms_min * 4).min(TTL_MS_MAX));
        let rho_ppm = *rng.pick(&[1_000, 10_000, 50_000]);
        let faults_end = rng.range(20, 40) * 1_000_000;
        let latency = if rng.percent(80) {
            Latency { us_min: 50, us_max: 1_000 }
        } else {
            Latency { us_min: 1_000, us_max: 30_000 }
        };
        let fsync_us_max = rng.log_range(200, 5_000);
        let stage = Stage { seed, nodes, groups, rho_ppm, ttl_ms_max, faults_end };
        let faults = schedule::faults(&stage);
        // Where lost messages are sent again with the next heartbeat only, a commit takes that long too.
        let slow = latency.us_max > 1_000 || faults.iter().any(loses_much);
        Scenario {
            seed,
            nodes,
            witnesses,
            groups,
            clients: u32::try_from(rng.range(3, 8)).expect("small"),
            ttl_ms_min,
            ttl_ms_max,
            rho_ppm,
            faults_end,
            latency,
            disk: DiskSpeed { fsync_us_min: 50, fsync_us_max, job_us_max: fsync_us_max * 4 },
            turn_us_max: rng.log_range(50, 800),
            config: of_version(&paced(&config(rng), seed), seed),
            limits: limits(rng, slow),
            faults,
            planted: None,
        }
    }

    /// Returns the settings of one node's host.
    pub(crate) fn host_config(&self, node: NodeId, apply_version: u32) -> HostConfig {
        HostConfig { node, apply_version, ..self.config.clone() }
    }

    /// Returns a description of the scenario in a line.
    pub fn describe(&self) -> String {
        format!(
            "{} nodes ({} witnesses), {} groups, {} clients, ttl {} to {} ms, rho {} ppm, {} faults in {} s",
            self.nodes,
            self.witnesses,
            self.groups,
            self.clients,
            self.ttl_ms_min,
            self.ttl_ms_max,
            self.rho_ppm,
            self.faults.len(),
            self.faults_end / 1_000_000
        )
    }
}

/// Draws the settings of the hosts, often with numbers so small that what is rare in production happens all the time.
fn config(rng: &mut Rng) -> HostConfig {
    let node = NodeId::new(1).expect("1 is a node");
    let mut config = HostConfig::new(ClusterId::new(rng.bits()), node);
    if rng.percent(70) {
        config.snapshot_log_bytes = rng.log_range(500, 50_000);
        config.log_kept_bytes = rng.log_range(1, 20_000);
    }
    if rng.percent(30) {
        config.snapshot_age_ms = rng.range(500, 10_000);
    }
    if rng.percent(50) {
        config.chunk_bytes = u32::try_from(rng.log_range(64, 16_000)).expect("small");
        config.chunks_in_flight_max = u32::try_from(rng.range(1, 4)).expect("small");
        config.transfer_timeout_ms = rng.range(500, 5_000);
    }
    if rng.percent(30) {
        config.entry_bytes_max = usize::try_from(rng.log_range(1, 2_000)).expect("small");
    }
    if rng.percent(20) {
        config.messages_in_flight_max = usize::try_from(rng.range(2, 8)).expect("small");
        // Not so small that catching up takes seconds: that would be a bad setting, not a fault.
        config.message_bytes_max = rng.log_range(1_000, 10_000);
    }
    if rng.percent(15) {
        config.uncommitted_bytes_max = config.message_bytes_max + rng.log_range(500, 20_000);
        config.proposals_max = usize::try_from(rng.range(2, 40)).expect("small");
        config.reads_max = usize::try_from(rng.range(1, 20)).expect("small");
    }
    // `compare_ms` is not drawn: worlds from before there were comparisons stay what they were. `audit_ms` is short
    // enough that every lease is asked about while it lives.
    config.compare_ms = 1_000;
    config.audit_ms = rng.log_range(300, 5_000);
    config.balance_ms = rng.log_range(200, 20_000);
    // Often shorter than clients need to ask again, and short enough to pass within a run.
    config.unattended_ms = rng.log_range(400, 3_000);
    config.validate().expect("the drawn settings keep the rules");
    config
}

/// Draws for how long proposals are gathered, and how soon followers are told of a commit. From a stream of its own, so
/// that everything else drawn for a seed stays what it was.
fn paced(config: &HostConfig, seed: u64) -> HostConfig {
    let rng = &mut Rng::stream(seed, "pace", 0);
    HostConfig {
        gather_ms: *rng.pick(&[0, 2, 2, 20]),
        commit_told_ms: *rng.pick(&[0, 1, 1, 20]),
        ..config.clone()
    }
}

/// Draws the version of the binary that all nodes begin with: in some worlds an older one, mostly the one before the
/// newest, and a rolling restart brings the newest. From a stream of its own, as above.
fn of_version(config: &HostConfig, seed: u64) -> HostConfig {
    let rng = &mut Rng::stream(seed, "version", 0);
    let newest = config.apply_version;
    let apply_version = match (rng.percent(25), rng.percent(30)) {
        (false, _) => newest,
        (true, false) => newest - 1,
        (true, true) => 1,
    };
    HostConfig { apply_version, ..config.clone() }
}

/// Returns true if the fault loses a tenth or more of the messages between nodes.
fn loses_much(fault: &Fault) -> bool {
    matches!(&fault.kind, FaultKind::Weather(links, weather)
        if *links != Links::Clients && weather.drop_ppm >= 100_000)
}

fn limits(rng: &mut Rng, slow: bool) -> Limits {
    let mut limits = Limits::DEFAULT;
    // A short history, because otherwise every snapshot would be full of it.
    limits.ring_bytes_max = rng.log_range(4_096, 16_384);
    if rng.percent(30) {
        // Where a commit takes tens of milliseconds, one commit for each of a dozen claims would be a bad setting, not
        // a fault.
        limits.reaps_per_entry_max = rng.range(1, 5) * if slow { 8 } else { 1 };
    }
    limits.validate().expect("the drawn limits keep the rules");
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_scenario_each_time() {
        for seed in 0..50 {
            assert_eq!(format!("{:?}", Scenario::new(seed)), format!("{:?}", Scenario::new(seed)));
        }
    }
}
