//! Histories of a correct server pass, however calls overlap and answers get lost.

use crate::world::{Shape, World};
use tollgate_check::{Event, History, Settings};

const SHAPE: Shape = Shape { calls: 600, names: 4, clients: 6, lost_one_in: 25 };

#[test]
fn histories_of_a_correct_server_pass() {
    let mut grants = 0;
    for seed in 1..=150 {
        let report = World::run(seed, SHAPE).judge();
        assert!(report.is_clean(), "seed {seed}: {report}");
        grants += report.stats.grants;
    }
    assert!(grants > 10_000, "{grants} grants are too few to prove anything");
}

#[test]
fn lost_answers_and_contention_pass() {
    for seed in 1..=100 {
        let report = World::run(seed, Shape { calls: 400, names: 2, clients: 10, lost_one_in: 5 }).judge();
        assert!(report.is_clean(), "seed {seed}: {report}");
    }
}

/// Returns the history with only the events that fit, judged with this `server_side`.
fn only(history: &History, server_side: bool, fits: fn(&Event) -> bool) -> History {
    let mut rest = History::new(Settings { server_side, ..history.settings().clone() });
    for (at, event) in history.events().iter().filter(|(_, event)| fits(event)) {
        rest.record(*at, event.clone());
    }
    rest
}

#[test]
fn what_is_known_of_the_clients_alone_passes() {
    for seed in 1..=100 {
        let history = World::run(seed, Shape { calls: 500, names: 3, clients: 8, lost_one_in: 8 });
        let unwatched = only(&history, true, |event| !matches!(event, Event::WatchEvents { .. }));
        let report = unwatched.judge();
        assert!(report.is_clean(), "seed {seed}, without watches: {report}");
        let clients = only(&unwatched, false, |event| {
            !matches!(event, Event::LeaseEnded { .. } | Event::Received { .. })
        });
        let report = clients.judge();
        assert!(report.is_clean(), "seed {seed}, without servers: {report}");
        assert!(report.stats.search_steps < 4 * report.stats.calls, "seed {seed}: {:?}", report.stats);
    }
}

#[test]
fn the_search_stays_near_linear() {
    let history = World::run(7, Shape { calls: 10_000, names: 20, clients: 10, lost_one_in: 50 });
    let report = history.judge();
    assert!(report.is_clean(), "{report}");
    let steps = report.stats.search_steps;
    assert!(steps < 4 * report.stats.calls, "{steps} steps for {} calls", report.stats.calls);
}
