//! Position of a watch, and the detection of repeated events in a new stream.
//!
//! Invariant: an event counts as seen once, identified by its group, its revision and its place among the events of
//! that revision. A server cuts a long revision into several answers, and a watch that resumes inside it receives its
//! beginning again; the order within a revision never changes, so that seen events can be skipped by counting.

use std::collections::BTreeMap;
use tollgate_proto::v1::WatchRequest;

/// Position of a watch.
#[derive(Debug, Default)]
pub(super) struct Position {
    /// Cursor of the last answer; empty before the first.
    cursor: String,
    seen: BTreeMap<u32, Seen>,
}

/// Position of a watch in one group.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    revision: u64,
    /// Number of seen events of that revision.
    events: u64,
    /// Number of events of that revision that the present stream has sent.
    again: u64,
}

impl Position {
    /// Returns the request that continues from here.
    pub(super) fn resume(&self, request: &WatchRequest) -> WatchRequest {
        let mut request = request.clone();
        if !self.cursor.is_empty() {
            request.cursor.clone_from(&self.cursor);
        }
        request
    }

    /// Starts a new stream, which may repeat events of the last seen revision.
    pub(super) fn begin_stream(&mut self) {
        for seen in self.seen.values_mut() {
            seen.again = 0;
        }
    }

    /// Returns true if an event is new, and marks it as seen.
    pub(super) fn take(&mut self, group: u32, revision: u64) -> bool {
        let seen = self.seen.entry(group).or_default();
        if revision < seen.revision {
            return false;
        }
        if revision > seen.revision {
            *seen = Seen { revision, events: 1, again: 1 };
            return true;
        }
        seen.again += 1;
        if seen.again <= seen.events {
            return false;
        }
        seen.events = seen.again;
        true
    }

    /// Records that all of an answer was seen, with its cursor.
    pub(super) fn advance(&mut self, cursor: &str) {
        if !cursor.is_empty() {
            cursor.clone_into(&mut self.cursor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(position: &mut Position, revisions: &[u64]) -> Vec<u64> {
        revisions.iter().copied().filter(|revision| position.take(0, *revision)).collect()
    }

    #[test]
    fn p11_a_revision_cut_in_two_by_a_broken_stream_is_told_once() {
        let mut position = Position::default();
        assert_eq!(taken(&mut position, &[4, 5, 5]), [4, 5, 5]);
        position.begin_stream();
        // The server begins revision 5 again, which has four events.
        assert_eq!(taken(&mut position, &[5, 5, 5, 5, 6]), [5, 5, 6]);
        position.begin_stream();
        assert_eq!(taken(&mut position, &[6, 7]), [7]);
    }

    #[test]
    fn p11_what_is_told_again_from_further_back_is_left_out() {
        let mut position = Position::default();
        assert_eq!(taken(&mut position, &[1, 2, 2, 3]), [1, 2, 2, 3]);
        position.begin_stream();
        assert_eq!(taken(&mut position, &[1, 2, 2, 3, 4]), [4]);
    }

    #[test]
    fn groups_count_for_themselves() {
        let mut position = Position::default();
        assert!(position.take(0, 9));
        assert!(position.take(1, 3));
        assert!(!position.take(0, 8));
    }

    #[test]
    fn a_watch_goes_on_where_the_last_answer_said() {
        let request = WatchRequest { start_revision: 7, ..Default::default() };
        let mut position = Position::default();
        assert_eq!(position.resume(&request), request);
        position.advance("0.9");
        position.advance("");
        assert_eq!(position.resume(&request).cursor, "0.9");
    }
}
