//! Calls with their answers.

use super::Timeline;
use crate::call::{CallId, Op, Outcome};
use crate::event::Event;
use crate::report::{Promise, Report};
use std::collections::BTreeMap;
use tollgate_types::{GroupId, Names};

/// One call, from the first attempt to the answer.
pub(crate) struct Call<'a> {
    pub(crate) id: CallId,
    pub(crate) client: u32,
    pub(crate) group: GroupId,
    pub(crate) op: &'a Op,
    pub(crate) invoked: usize,
    /// Place and content of the first answer.
    pub(crate) returned: Option<(usize, &'a Outcome)>,
    /// Places and contents of further answers; true for a second return to the client, false for an answered repeat.
    pub(crate) again: Vec<(usize, &'a Outcome, bool)>,
    /// Place at which a leader last received the call before the answer.
    pub(crate) received: Option<usize>,
    /// Place at which a leader last received the call at all.
    pub(crate) received_last: Option<usize>,
}

impl<'a> Call<'a> {
    /// Returns the answer to the client, if there is one.
    pub(crate) fn outcome(&self) -> Option<&'a Outcome> {
        self.returned.map(|(_, outcome)| outcome)
    }

    /// Returns the last place at which the call may take effect: its answer, or `usize::MAX` without one.
    pub(crate) fn close(&self) -> usize {
        self.returned.map_or(usize::MAX, |(place, _)| place)
    }

    /// Returns the places of the call and of its answer.
    pub(crate) fn events(&self) -> Vec<usize> {
        [Some(self.invoked), self.returned.map(|(place, _)| place)].into_iter().flatten().collect()
    }

    /// Returns the locks of a request, conversion or release, with the lease and owner that they are for.
    pub(crate) fn claim(&self) -> Option<(&'a Names, super::Who<'a>)> {
        match self.op {
            Op::Lock { names, lease, owner, .. }
            | Op::Convert { names, lease, owner, .. }
            | Op::Unlock { names, lease, owner, .. } => Some((names, (*lease, owner))),
            _ => None,
        }
    }
}

/// All calls, in the order in which they were made.
pub(crate) struct Calls<'a> {
    pub(crate) all: Vec<Call<'a>>,
    by_id: BTreeMap<CallId, usize>,
}

impl<'a> Calls<'a> {
    pub(super) fn read(timeline: Timeline<'a>, report: &mut Report) -> Calls<'a> {
        let mut calls = Calls { all: Vec::new(), by_id: BTreeMap::new() };
        for (place, event) in timeline.iter() {
            match event {
                Event::Invoke { call, client, group, op } => {
                    if calls.by_id.insert(*call, calls.all.len()).is_some() {
                        report.malformed(Promise::P10, vec![place], format!("{call} is made twice"));
                    }
                    calls.all.push(Call {
                        id: *call,
                        client: *client,
                        group: *group,
                        op,
                        invoked: place,
                        returned: None,
                        again: Vec::new(),
                        received: None,
                        received_last: None,
                    });
                }
                Event::Return { call, .. } | Event::AnsweredAgain { call, .. } | Event::Received { call } => {
                    match calls.by_id.get(call) {
                        Some(&index) => take_in(&mut calls.all[index], place, event),
                        None => {
                            report.malformed(Promise::P10, vec![place], format!("{call} was never made"));
                        }
                    }
                }
                _ => {}
            }
        }
        report.stats.calls = calls.all.len() as u64;
        report.stats.calls_unanswered =
            calls.all.iter().filter(|call| call.returned.is_none()).count() as u64;
        calls
    }

    /// Returns a call by its id.
    pub(crate) fn get(&self, id: CallId) -> Option<&Call<'a>> {
        self.by_id.get(&id).map(|&index| &self.all[index])
    }
}

fn take_in<'a>(call: &mut Call<'a>, place: usize, event: &'a Event) {
    match event {
        Event::Return { outcome, .. } if call.returned.is_none() => call.returned = Some((place, outcome)),
        Event::Return { outcome, .. } => call.again.push((place, outcome, true)),
        Event::AnsweredAgain { outcome, .. } => call.again.push((place, outcome, false)),
        Event::Received { .. } => {
            call.received_last = Some(place);
            if call.returned.is_none() {
                call.received = Some(place);
            }
        }
        _ => {}
    }
}
