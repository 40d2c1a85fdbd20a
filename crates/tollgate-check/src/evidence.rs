//! The history, read once and put in order for the checks: calls, leases, and what happened to each lock.
//!
//! Moments are places in the history (indices of events): what stands earlier happened earlier. A bound that no event
//! stands for is turned into the place of the first event at or after it. Not here: any judgement but that of
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

/// Who holds or waits.
pub(crate) type Who<'a> = (LeaseId, &'a Owner);

/// Everything that the checks look at.
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

/// The events as they stand.
#[derive(Clone, Copy)]
pub(crate) struct Timeline<'a>(pub(crate) &'a [(At, Event)]);

impl<'a> Timeline<'a> {
    /// The true time at a place.
    pub(crate) fn at(self, place: usize) -> At {
        self.0.get(place).map_or(At::NEVER, |(at, _)| *at)
    }

    /// The place of the first event at or after a moment.
    pub(crate) fn place(self, at: At) -> usize {
        self.0.partition_point(|(other, _)| *other < at)
    }

    /// Every event with its place.
    pub(crate) fn iter(self) -> impl Iterator<Item = (usize, &'a Event)> {
        self.0.iter().enumerate().map(|(place, (_, event))| (place, event))
    }
}
