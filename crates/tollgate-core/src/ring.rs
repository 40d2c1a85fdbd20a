//! The history of changes that watches resume from, bounded in bytes.
//!
//! Events are kept in chunks that a snapshot shares. Whole revisions are dropped, oldest first, and only at the start of an
//! entry: so the events of the last entry can always be read, and a reader never meets half a revision.

use crate::event::Event;
use crate::watch::Watch;
use std::collections::VecDeque;
use std::sync::Arc;
use tollgate_types::Revision;

const CHUNK_EVENTS: usize = 64;

/// How many events one read looks at before it returns with what it has.
const SCAN_MAX: usize = 10_000;

/// What a read of the history returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventBatch {
    /// In order; all events of a revision or none.
    pub events: Vec<Event>,
    /// Where to read on. Above the state's revision when there is no more.
    pub next: Revision,
}

/// The history asked for is gone: start anew from a listing, then watch from `min_revision` or later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("history before revision {min_revision} is compacted: list, then watch from there")]
pub struct Compacted {
    /// The first revision from which history is complete.
    pub min_revision: Revision,
}

pub(crate) struct Ring {
    /// Full chunks, oldest first; the first `skip` events of the first one are dropped.
    sealed: VecDeque<Arc<Vec<Event>>>,
    skip: usize,
    open: Vec<Event>,
    bytes: u64,
    min_revision: Revision,
}

impl Ring {
    pub(crate) fn new() -> Ring {
        Ring {
            sealed: VecDeque::new(),
            skip: 0,
            open: Vec::new(),
            bytes: 0,
            min_revision: Revision::ZERO.next(),
        }
    }

    pub(crate) fn restore(min_revision: Revision) -> Ring {
        Ring { min_revision, ..Ring::new() }
    }

    pub(crate) fn min_revision(&self) -> Revision {
        self.min_revision
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.bytes += event.ring_bytes();
        if self.open.capacity() == 0 {
            self.open.reserve_exact(CHUNK_EVENTS);
        }
        self.open.push(event);
        if self.open.len() == CHUNK_EVENTS {
            self.sealed.push_back(Arc::new(std::mem::take(&mut self.open)));
        }
    }

    pub(crate) fn trim(&mut self, bytes_max: u64) {
        while self.bytes > bytes_max {
            let Some(front) = self.front() else { return };
            let revision = front.revision;
            self.min_revision = revision.next();
            while self.front().is_some_and(|event| event.revision == revision) {
                self.pop_front();
            }
        }
    }

    fn front(&self) -> Option<&Event> {
        self.sealed.front().map_or(self.open.first(), |chunk| chunk.get(self.skip))
    }

    pub(crate) fn pop_front(&mut self) {
        if self.sealed.is_empty() {
            self.sealed.push_back(Arc::new(std::mem::take(&mut self.open)));
        }
        let chunk = &self.sealed[0];
        self.bytes -= chunk[self.skip].ring_bytes();
        self.skip += 1;
        if self.skip == chunk.len() {
            self.sealed.pop_front();
            self.skip = 0;
        }
    }

    /// All events from `revision` on.
    fn iter_from(&self, revision: Revision) -> impl Iterator<Item = &Event> {
        let before = |chunk: &Arc<Vec<Event>>| chunk.last().is_some_and(|event| event.revision < revision);
        let first = self.sealed.partition_point(before);
        let skip = if first == 0 { self.skip } else { 0 };
        let sealed = self.sealed.range(first..).flat_map(|chunk| chunk.iter()).skip(skip);
        sealed.chain(&self.open).skip_while(move |event| event.revision < revision)
    }

    pub(crate) fn read(
        &self,
        from: Revision,
        watch: &Watch,
        events_max: usize,
        end: Revision,
    ) -> Result<EventBatch, Compacted> {
        if from < self.min_revision {
            return Err(Compacted { min_revision: self.min_revision });
        }
        let (mut events, mut last) = (Vec::new(), None);
        for (scanned, event) in self.iter_from(from).enumerate() {
            let full = events.len() >= events_max || scanned >= SCAN_MAX;
            if full && last != Some(event.revision) {
                return Ok(EventBatch { events, next: event.revision });
            }
            last = Some(event.revision);
            if watch.matches(event) {
                events.push(event.clone());
            }
        }
        Ok(EventBatch { events, next: end.next().max(from) })
    }

    pub(crate) fn freeze(&self) -> FrozenRing {
        let mut chunks: Vec<Arc<Vec<Event>>> = self.sealed.iter().cloned().collect();
        chunks.push(Arc::new(self.open.clone()));
        FrozenRing { chunks, skip: self.skip }
    }
}

/// The history as it was when frozen.
pub(crate) struct FrozenRing {
    chunks: Vec<Arc<Vec<Event>>>,
    skip: usize,
}

impl FrozenRing {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).skip(self.skip)
    }
}
