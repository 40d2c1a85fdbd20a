//! The random choice of a task's next request: which locks, how, and for how long.
//!
//! Not here: carrying out the plan (`work`).

use crate::client::ClientSettings;
use crate::client::leaving::Leaving;
use crate::rng::Rng;
use crate::types::group_of;
use tollgate_core::Wait;
use tollgate_types::{DurationMs, GroupId, Key, Mode, Name, Names};

/// A planned request for locks.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) names: Names,
    pub(super) group: GroupId,
    pub(super) mode: Mode,
    pub(super) wait: Wait,
    pub(super) lock_delay_ms: u64,
    pub(super) max_hold_ms: Option<u64>,
    /// Time after which the task leaves its wait, in microseconds; none if it stays.
    pub(super) leave_after_us: Option<u64>,
    /// Way in which the task leaves.
    pub(super) leaving: Leaving,
    /// True if a single caller asks, and stands by.
    pub(super) single: bool,
}

/// Maximum number of names in one request.
const NAMES_TOGETHER_MAX: u64 = 3;

/// Number of permits of every semaphore.
const PERMITS: u32 = 3;

impl Plan {
    /// Draws a plan that uses none of the names in `taken`; none if the drawn names include one. A task that holds
    /// something already waits for ever only where a deadlock is certain to be seen: where the world looks for
    /// deadlocks, as a named owner (`takes_part`), and not for permits, because a search over groups does not see all
    /// waits for them.
    pub(super) fn draw(
        settings: &ClientSettings,
        groups: u32,
        taken: &[&Names],
        takes_part: bool,
        rng: &mut Rng,
    ) -> Option<Plan> {
        let nested = !taken.is_empty();
        let (names, mode) = if settings.semaphores > 0 && rng.percent(15) {
            semaphore(settings, rng)
        } else {
            locks(settings, groups, rng)
        };
        if names.as_slice().iter().any(|name| taken.iter().any(|taken| taken.contains(name))) {
            return None;
        }
        let group = group_of(names.as_slice()[0].slot(), groups);
        let seen = takes_part && settings.deadlocks_seen && !matches!(mode, Mode::Permit { .. });
        let wait = match rng.below(100) {
            0..25 => Wait::No,
            25..45 if !nested || seen => Wait::Forever,
            _ => Wait::For(DurationMs::from_ms(rng.range(20, settings.wait_ms_max))),
        };
        let leaves = wait != Wait::No && rng.percent(settings.cancel_percent);
        let single = rng.percent(settings.single_percent);
        Some(Plan {
            names,
            group,
            mode,
            wait,
            lock_delay_ms: if rng.percent(10) { rng.range(20, 300) } else { 0 },
            max_hold_ms: rng.percent(10).then(|| rng.range(100, 1_500)),
            leave_after_us: leaves.then(|| rng.below(800_000)),
            leaving: if single { leaving(rng) } else { Leaving::Cancels },
            single,
        })
    }
}

/// Draws the way in which a single caller leaves.
fn leaving(rng: &mut Rng) -> Leaving {
    match rng.below(100) {
        0..20 => Leaving::Cancels,
        20..50 => Leaving::HangsUp,
        50..75 => Leaving::Moves,
        _ => Leaving::Vanishes,
    }
}

fn semaphore(settings: &ClientSettings, rng: &mut Rng) -> (Names, Mode) {
    let name = name("sem", rng.below(u64::from(settings.semaphores)));
    let n = u32::try_from(rng.range(1, 2)).expect("1 or 2");
    (Names::One(name), Mode::permit(n, PERMITS).expect("fewer than there are"))
}

fn locks(settings: &ClientSettings, groups: u32, rng: &mut Rng) -> (Names, Mode) {
    let count = u64::from(settings.hot_names.max(1));
    let first = name("lock", rng.below(count));
    let mut names = vec![first.clone()];
    if rng.percent(20) {
        for _ in 0..rng.range(1, NAMES_TOGETHER_MAX - 1) {
            let other = name("lock", rng.below(count));
            if !names.contains(&other) && group_of(other.slot(), groups) == group_of(first.slot(), groups) {
                names.push(other);
            }
        }
    }
    (Names::new(names).expect("each once, and few"), mode(rng))
}

/// Draws a mode: mostly exclusive, often shared, now and then one of the others.
pub(super) fn mode(rng: &mut Rng) -> Mode {
    match rng.below(100) {
        0..60 => Mode::Exclusive,
        60..85 => Mode::Shared,
        _ => *rng.pick(&Mode::PLAIN),
    }
}

/// Draws one of the registers; returns its key and group.
pub(super) fn register(settings: &ClientSettings, groups: u32, rng: &mut Rng) -> (Key, GroupId) {
    let text = format!("reg/{}", rng.below(u64::from(settings.registers.max(1))));
    let key = Key::new(text).expect("a short text is a key");
    let group = group_of(key.slot(), groups);
    (key, group)
}

/// Draws one of the hot locks; returns its name and group.
pub(super) fn hot_lock(settings: &ClientSettings, groups: u32, rng: &mut Rng) -> (Name, GroupId) {
    let name = name("lock", rng.below(u64::from(settings.hot_names.max(1))));
    let group = group_of(name.slot(), groups);
    (name, group)
}

fn name(kind: &str, number: u64) -> Name {
    Name::new(format!("{kind}/{number}")).expect("a short text is a name")
}
