//! Draws the faults of a seed: their kinds and number, and the target, begin and end of each.
//!
//! Invariant: a fault begins and ends between the quiet first two seconds and the healing. Each kind of fault is drawn
//! from a stream of its own. Not here: the rest of the world (`scenario`).

use crate::fault::{Fault, FaultKind, Target};
use crate::network::{Links, Weather};
use crate::rng::Rng;
use crate::types::At;

/// Properties of the world that the schedule depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stage {
    pub(crate) seed: u64,
    pub(crate) nodes: u64,
    pub(crate) groups: u32,
    pub(crate) rho_ppm: u32,
    pub(crate) ttl_ms_max: u64,
    pub(crate) faults_end: At,
}

/// End of the quiet time in which nothing goes wrong, so that a first leader can be elected.
const CALM_US: At = 2_000_000;

/// A kind of fault: its chance to occur in a seed, its maximum number there, and the function that draws one.
struct Drawer {
    percent: u32,
    times_max: u64,
    draw: fn(&mut Rng, &Stage) -> (u64, FaultKind),
}

/// Returns the faults of a seed, in order of time.
pub(crate) fn faults(stage: &Stage) -> Vec<Fault> {
    let mut choose = Rng::stream(stage.seed, "fault kinds", 0);
    let mut faults = Vec::new();
    for (number, drawer) in (0..).zip(DRAWERS) {
        if !choose.percent(drawer.percent) {
            continue;
        }
        let mut rng = Rng::stream(stage.seed, "faults", number);
        for _ in 0..rng.range(1, drawer.times_max) {
            let at = rng.range(CALM_US, stage.faults_end - 1_000_000);
            let (length, kind) = (drawer.draw)(&mut rng, stage);
            faults.push(Fault { at, until: (at + length).min(stage.faults_end), kind });
        }
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}

const DRAWERS: [Drawer; 29] = [
    Drawer { percent: 45, times_max: 4, draw: weather },
    Drawer { percent: 15, times_max: 2, draw: client_weather },
    Drawer { percent: 40, times_max: 3, draw: |rng, stage| cut(rng, stage, false) },
    Drawer { percent: 30, times_max: 2, draw: |rng, stage| cut(rng, stage, true) },
    Drawer { percent: 35, times_max: 6, draw: |rng, stage| (0, FaultKind::Reset(target(rng, stage, 40))) },
    Drawer { percent: 50, times_max: 5, draw: crash },
    Drawer { percent: 25, times_max: 2, draw: crash_some },
    Drawer { percent: 30, times_max: 2, draw: |rng, _| (rng.range(10_000, 2_000_000), FaultKind::CrashAll) },
    Drawer { percent: 12, times_max: 1, draw: |_, _| (0, FaultKind::RollingRestart) },
    Drawer { percent: 35, times_max: 3, draw: pause },
    Drawer { percent: 25, times_max: 3, draw: fsync_error },
    Drawer { percent: 25, times_max: 2, draw: fsync_stall },
    Drawer { percent: 20, times_max: 2, draw: disk_full },
    Drawer { percent: 15, times_max: 2, draw: |rng, stage| (0, FaultKind::BitRot(target(rng, stage, 20))) },
    Drawer { percent: 12, times_max: 1, draw: disk_loss },
    Drawer { percent: 30, times_max: 4, draw: clock_rate },
    Drawer { percent: 20, times_max: 3, draw: clock_still },
    Drawer { percent: 20, times_max: 3, draw: clock_back },
    Drawer { percent: 20, times_max: 3, draw: clock_ahead },
    Drawer { percent: 40, times_max: 8, draw: |rng, stage| (0, FaultKind::Snapshot(target(rng, stage, 40))) },
    Drawer { percent: 40, times_max: 4, draw: |_, _| (0, FaultKind::Transfer) },
    Drawer { percent: 25, times_max: 3, draw: membership },
    Drawer {
        percent: 12,
        times_max: 1,
        draw: |rng, _| (rng.range(1_000_000, 8_000_000), FaultKind::PassingLearner),
    },
    Drawer { percent: 10, times_max: 1, draw: |_, _| (5_000_000, FaultKind::ApplyVersion) },
    Drawer { percent: 85, times_max: 8, draw: |rng, _| (0, FaultKind::ClientCrash(rng.bits())) },
    Drawer { percent: 60, times_max: 6, draw: client_pause },
    Drawer { percent: 25, times_max: 2, draw: isolated_leader },
    Drawer { percent: 30, times_max: 3, draw: election_crashes },
    Drawer { percent: 20, times_max: 2, draw: stolen_votes },
];

fn target(rng: &mut Rng, stage: &Stage, leader_percent: u32) -> Target {
    let place = rng.below(stage.nodes);
    let group = u32::try_from(rng.below(u64::from(stage.groups))).expect("a group's number");
    if rng.percent(leader_percent) { Target::Leader(group) } else { Target::Place(place) }
}

fn weather(rng: &mut Rng, stage: &Stage) -> (u64, FaultKind) {
    let links = if rng.percent(50) { Links::All } else { Links::OfNode(rng.range(1, stage.nodes)) };
    (rng.range(500_000, 8_000_000), FaultKind::Weather(links, bad_weather(rng)))
}

fn client_weather(rng: &mut Rng, _: &Stage) -> (u64, FaultKind) {
    (rng.range(1_000_000, 15_000_000), FaultKind::Weather(Links::Clients, bad_weather(rng)))
}

fn bad_weather(rng: &mut Rng) -> Weather {
    let mut sometimes = |percent, ppm_max: u64| {
        let ppm = rng.log_range(1_000, ppm_max);
        if rng.percent(percent) { u32::try_from(ppm).expect("below a million") } else { 0 }
    };
    Weather {
        drop_ppm: sometimes(70, 300_000),
        duplicate_ppm: sometimes(50, 300_000),
        delay_ppm: sometimes(50, 500_000),
        delay_us_max: rng.log_range(1_000, 500_000),
        reorder: rng.percent(50),
    }
}

fn cut(rng: &mut Rng, stage: &Stage, one_way: bool) -> (u64, FaultKind) {
    let nodes = rng.bits() & ((1 << stage.nodes) - 1);
    let clients = u8::try_from(rng.below(4)).expect("below 4");
    let breaks = rng.percent(30);
    (rng.range(200_000, 8_000_000), FaultKind::Cut { nodes, clients, one_way, breaks })
}

fn isolated_leader(rng: &mut Rng, stage: &Stage) -> (u64, FaultKind) {
    let group = u32::try_from(rng.below(u64::from(stage.groups))).expect("a group's number");
    (rng.range(800_000, 4_000_000), FaultKind::IsolatedLeader(group))
}

fn stolen_votes(rng: &mut Rng, stage: &Stage) -> (u64, FaultKind) {
    let group = u32::try_from(rng.below(u64::from(stage.groups))).expect("a group's number");
    (rng.range(4_000_000, 8_000_000), FaultKind::StolenVotes(group))
}

fn election_crashes(rng: &mut Rng, stage: &Stage) -> (u64, FaultKind) {
    (rng.range(1_000_000, 6_000_000), FaultKind::ElectionCrashes(target(rng, stage, 80)))
}

fn crash(rng: &mut Rng, stage: &Stage) -> (u64, FaultKind) {
    (rng.log_range(5_000, 8_000_000), FaultKind::Crash(target(rng, stage, 50)))
}

fn crash_some(rng: &mut Rng, stage: &Stage) -> (u64, FaultKind) {
    (rng.log_range(5_000, 5_000_000), FaultKind::CrashSome(rng.range(1, stage.nodes)))
}

fn pause(rng: &mut Rng, stage: &Stage) -> (u64, FaultKind) {
    (rng.log_range(50_000, 3 * stage.ttl_ms_max * 1_000), FaultKind::Pause(target(rng, stage, 60)))
}

fn fsync_error(rng: &mut Rng, stage: &Stage) -> (u64, FaultKind) {
    (rng.log_range(20_000, 4_000_000), FaultKind::FsyncError(target(rng, stage, 40)))
}

fn fsync_stall(rng: &mut Rng, stage: &Stage) -> (u64, FaultKind) {
    (rng.log_range(50_000, 10_000_000), FaultKind::FsyncStall(target(rng, stage, 40)))
}

fn disk_full(rng: &mut Rng, stage: &Stage) -> (u64, FaultKind) {
    (rng.range(200_000, 6_000_000), FaultKind::DiskFull(target(rng, stage, 50)))
}

fn disk_loss(rng: &mut Rng, stage: &Stage) -> (u64, FaultKind) {
    (0, FaultKind::DiskLoss(target(rng, stage, 30), rng.percent(50)))
}

fn clock_rate(rng: &mut Rng, stage: &Stage) -> (u64, FaultKind) {
    let off = i64::try_from(rng.below(u64::from(stage.rho_ppm) * 2 + 1)).expect("small");
    let off = off - i64::from(stage.rho_ppm);
    (rng.range(500_000, 15_000_000), FaultKind::ClockRate(target(rng, stage, 50), off))
}

fn clock_still(rng: &mut Rng, stage: &Stage) -> (u64, FaultKind) {
    (rng.log_range(10_000, 3_000_000), FaultKind::ClockStill(target(rng, stage, 50)))
}

fn clock_back(rng: &mut Rng, stage: &Stage) -> (u64, FaultKind) {
    let back_us = rng.log_range(1_000, 3_000_000);
    (back_us, FaultKind::ClockBack(target(rng, stage, 50), back_us))
}

fn clock_ahead(rng: &mut Rng, stage: &Stage) -> (u64, FaultKind) {
    (0, FaultKind::ClockAhead(target(rng, stage, 0), rng.log_range(1_000, 30_000_000)))
}

fn membership(rng: &mut Rng, stage: &Stage) -> (u64, FaultKind) {
    let kind = match rng.below(4) {
        0 => FaultKind::AddNode,
        1 => FaultKind::RemoveNode(target(rng, stage, 30)),
        _ => FaultKind::ReplaceNode(target(rng, stage, 30)),
    };
    (0, kind)
}

fn client_pause(rng: &mut Rng, stage: &Stage) -> (u64, FaultKind) {
    (rng.log_range(50_000, 3 * stage.ttl_ms_max * 1_000), FaultKind::ClientPause(rng.bits()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_many_seeds_every_kind_of_fault_comes_and_stays_within_its_time() {
        let mut seen = std::collections::BTreeSet::new();
        let mut most = 0;
        for seed in 0..300 {
            let stage = Stage {
                seed,
                nodes: 3,
                groups: 1,
                rho_ppm: 10_000,
                ttl_ms_max: 3_000,
                faults_end: 20_000_000,
            };
            let faults = faults(&stage);
            most = most.max(faults.len());
            for fault in &faults {
                assert!(
                    CALM_US <= fault.at && fault.at <= fault.until && fault.until <= 20_000_000,
                    "{fault}"
                );
                seen.insert(fault.kind.label());
            }
            assert!(faults.is_sorted_by_key(|fault| fault.at));
        }
        for label in FaultKind::LABELS {
            assert!(seen.contains(label), "{label}");
        }
        assert!(most > 20, "{most}");
    }
}
