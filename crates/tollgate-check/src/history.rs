//! A recorded run.
//!
//! Invariant: events are in the order of true time. Not here: their meaning as a whole (`checks`).

use crate::at::At;
use crate::checks;
use crate::event::Event;
use crate::report::Report;
use crate::settings::Settings;

/// Events of a run, in order of true time.
#[derive(Debug, Clone)]
pub struct History {
    settings: Settings,
    events: Vec<(At, Event)>,
}

impl History {
    /// Creates a history without events.
    pub fn new(settings: Settings) -> History {
        History { settings, events: Vec::new() }
    }

    /// Appends an event that happened at `at`, which must not be before the last event.
    pub fn record(&mut self, at: At, event: Event) {
        let last = self.events.last().map_or(At::ZERO, |(at, _)| *at);
        assert!(last <= at, "events are recorded in order of true time: {at} comes after {last}");
        self.events.push((at, event));
    }

    /// Returns all recorded events; violations name events by their index here.
    pub fn events(&self) -> &[(At, Event)] {
        &self.events
    }

    /// Returns the settings by which the promises are judged.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Judges the whole history.
    pub fn judge(&self) -> Report {
        checks::judge(&self.settings, &self.events)
    }
}
