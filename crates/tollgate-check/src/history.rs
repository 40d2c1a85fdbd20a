//! A recorded run.
//!
//! Invariant: events stand in the order of true time. Not here: what they mean together (`checks`).

use crate::at::At;
use crate::checks;
use crate::event::Event;
use crate::report::Report;
use crate::settings::Settings;

/// What happened in a run, in order of true time.
#[derive(Debug, Clone)]
pub struct History {
    settings: Settings,
    events: Vec<(At, Event)>,
}

impl History {
    /// Nothing has happened yet.
    pub fn new(settings: Settings) -> History {
        History { settings, events: Vec::new() }
    }

    /// Appends what happened at `at`, which is not before the last event.
    pub fn record(&mut self, at: At, event: Event) {
        let last = self.events.last().map_or(At::ZERO, |(at, _)| *at);
        assert!(last <= at, "events are recorded in order of true time: {at} comes after {last}");
        self.events.push((at, event));
    }

    /// Everything recorded; violations name events by their place here.
    pub fn events(&self) -> &[(At, Event)] {
        &self.events
    }

    /// What the promises are judged by.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Judges it all.
    pub fn judge(&self) -> Report {
        checks::judge(&self.settings, &self.events)
    }
}
