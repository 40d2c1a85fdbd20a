//! The history, read once and indexed for the checks: calls, leases, and the grants and releases of each lock.
//!
//! Moments are places in the history (indices of events): an event at a lower place happened earlier. A time at which
//! no event happened is replaced by the place of the first event at or after it. Not here: any judgement, except on
//! histories that contradict themselves.

mod allowances;
mod calls;
mod grants;
mod leases;

pub(crate) use allowances::Allowances;
pub(crate) use calls::{Call, Calls};
pub(crate) use grants::{Grant, Release, Seen, Track, Tracks, View, Weakening, listed};
pub(crate) use leases::{Lease, Leases};

use crate::at::At;
use crate::event::Event;
use crate::report::Report;
use crate::settings::Settings;
use tollgate_types::{LeaseId, Owner};

/// Lease and owner of a holder or waiter.
pub(crate) type Who<'a> = (LeaseId, &'a Owner);

/// All evidence that the checks use.
pub(crate) struct Evidence<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) timeline: Timeline<'a>,
    pub(crate) calls: Calls<'a>,
    pub(crate) leases: Leases,
    pub(crate) tracks: Tracks<'a>,
    pub(crate) allowances: Allowances,
}

impl<'a> Evidence<'a> {
    pub(crate) fn read(settings: &'a Settings, events: &'a [(At, Event)], report: &mut Report) -> Self {
        let timeline = Timeline(events);
        let calls = Calls::read(timeline, report);
        let leases = Leases::read(settings, timeline, &calls);
        let tracks = Tracks::read(settings, timeline, &calls, &leases, report);
        Evidence { settings, timeline, calls, leases, tracks, allowances: Allowances::read(timeline) }
    }
}

/// The recorded events, in order.
#[derive(Clone, Copy)]
pub(crate) struct Timeline<'a>(pub(crate) &'a [(At, Event)]);

impl<'a> Timeline<'a> {
    /// Returns the true time at a place.
    pub(crate) fn at(self, place: usize) -> At {
        self.0.get(place).map_or(At::NEVER, |(at, _)| *at)
    }

    /// Returns the place of the first event at or after a moment.
    pub(crate) fn place(self, at: At) -> usize {
        self.0.partition_point(|(other, _)| *other < at)
    }

    /// Iterates over all events with their places.
    pub(crate) fn iter(self) -> impl Iterator<Item = (usize, &'a Event)> {
        self.0.iter().enumerate().map(|(place, (_, event))| (place, event))
    }
}
