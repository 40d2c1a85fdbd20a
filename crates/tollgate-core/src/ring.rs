//! The history of changes that watches resume from, bounded in bytes.
//!
//! Events are kept packed, in chunks that a snapshot shares: there is nothing to allocate or drop one by one.
//! Invariant: whole revisions leave, oldest first, and only at the start of an entry: so the events of the last entry
//! can always be read, and a reader never meets half a revision.

mod packed;

use crate::event::{Event, RegisterChange, lock_ring_bytes};
use crate::format::LockChanged;
use crate::sizes::threshold;
use crate::watch::Watch;
use std::collections::VecDeque;
use std::sync::Arc;
use tollgate_types::Revision;

/// Size at which a chunk is sealed.
const CHUNK_BYTES: usize = threshold(16 * 1024, 512);

/// Most events that one read looks at before it returns those that it has found.
const SCAN_MAX: usize = 10_000;

/// Result of a read of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventBatch {
    /// Events in order; all events of a revision or none.
    pub events: Vec<Event>,
    /// Revision to read on from. Above the state's revision if there is no more.
    pub next: Revision,
}

/// The requested history is gone: start anew from a listing, then watch from `min_revision` or later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("history before revision {min_revision} is compacted: list, then watch from there")]
pub struct Compacted {
    /// The first revision from which history is complete.
    pub min_revision: Revision,
}

/// Packed events, one after another.
#[derive(Clone)]
struct Chunk {
    bytes: Vec<u8>,
    last: Revision,
}

pub(crate) struct Ring {
    /// Full chunks, oldest first; the first `skip` bytes of the first one are dropped.
    sealed: VecDeque<Arc<Chunk>>,
    skip: usize,
    open: Chunk,
    /// The oldest event: its revision, its bytes in the count against the bound, and its end in its chunk.
    front: Option<(Revision, u64, usize)>,
    /// Buffer of a chunk that was dropped, for the next chunk.
    spare: Vec<u8>,
    /// Sum of the events' bytes in the count against the bound.
    bytes: u64,
    min_revision: Revision,
}

impl Ring {
    pub(crate) fn new() -> Ring {
        Ring::restore(Revision::ZERO.next())
    }

    pub(crate) fn restore(min_revision: Revision) -> Ring {
        let open = Chunk { bytes: Vec::new(), last: Revision::ZERO };
        Ring {
            sealed: VecDeque::new(),
            skip: 0,
            open,
            front: None,
            spare: Vec::new(),
            bytes: 0,
            min_revision,
        }
    }

    pub(crate) fn min_revision(&self) -> Revision {
        self.min_revision
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn push_lock(&mut self, revision: Revision, changed: &LockChanged<'_>) {
        let counts = lock_ring_bytes(changed);
        packed::pack_lock(revision, counts, changed, self.open());
        self.pushed(revision, counts);
    }

    pub(crate) fn push_register(&mut self, revision: Revision, change: &RegisterChange) {
        let counts = change.ring_bytes();
        packed::pack_register(revision, counts, change, self.open());
        self.pushed(revision, counts);
    }

    fn open(&mut self) -> &mut Vec<u8> {
        if self.open.bytes.capacity() == 0 {
            self.open.bytes.reserve_exact(CHUNK_BYTES + CHUNK_BYTES / 8);
        }
        &mut self.open.bytes
    }

    fn pushed(&mut self, revision: Revision, counts: u64) {
        self.open.last = revision;
        self.bytes += counts;
        if self.front.is_none() {
            self.front = Some((revision, counts, self.open.bytes.len()));
        }
        if self.open.bytes.len() >= CHUNK_BYTES {
            let next = Chunk { bytes: std::mem::take(&mut self.spare), last: revision };
            self.sealed.push_back(Arc::new(std::mem::replace(&mut self.open, next)));
        }
    }

    pub(crate) fn trim(&mut self, bytes_max: u64) {
        while self.bytes > bytes_max
            && let Some((revision, ..)) = self.front
        {
            self.min_revision = revision.next();
            while self.front.is_some_and(|(next, ..)| next == revision) {
                self.pop_front();
            }
        }
    }

    pub(crate) fn pop_front(&mut self) {
        let (_, counts, end) = self.front.take().expect("the caller saw one");
        self.bytes -= counts;
        self.skip = end;
        if self.sealed.front().is_some_and(|chunk| chunk.bytes.len() == end) {
            self.recycle_front();
            self.skip = 0;
        }
        let chunk = self.sealed.front().map_or(&self.open, |chunk| chunk);
        if self.skip < chunk.bytes.len() {
            let next = packed::head(&chunk.bytes[self.skip..]);
            self.front = Some((next.revision, next.counts, self.skip + packed::HEAD_BYTES + next.body_bytes));
        }
    }

    fn recycle_front(&mut self) {
        // Not if a snapshot still reads the chunk, or if one large value made it larger than the others.
        if let Some(Ok(mut chunk)) = self.sealed.pop_front().map(Arc::try_unwrap)
            && chunk.bytes.capacity() <= 2 * CHUNK_BYTES
        {
            chunk.bytes.clear();
            self.spare = chunk.bytes;
        }
    }

    /// All events from `revision` on.
    fn iter_from(&self, revision: Revision) -> impl Iterator<Item = Packed<'_>> {
        let first = self.sealed.partition_point(|chunk| chunk.last < revision);
        let chunks = self.sealed.range(first..).map(|chunk| &**chunk).chain([&self.open]);
        let skip = if first == 0 { self.skip } else { 0 };
        events(chunks, skip).skip_while(move |event| event.revision < revision)
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
        for (scanned, packed) in self.iter_from(from).enumerate() {
            let full = events.len() >= events_max.max(1) || scanned >= SCAN_MAX;
            if full && last != Some(packed.revision) {
                return Ok(EventBatch { events, next: packed.revision });
            }
            last = Some(packed.revision);
            if packed::matches(packed.bytes, watch) {
                events.push(packed::unpack(packed.bytes));
            }
        }
        Ok(EventBatch { events, next: end.next().max(from) })
    }

    pub(crate) fn freeze(&self) -> FrozenRing {
        let mut chunks: Vec<Arc<Chunk>> = self.sealed.iter().cloned().collect();
        chunks.push(Arc::new(self.open.clone()));
        FrozenRing { chunks, skip: self.skip }
    }
}

/// The history as it was when frozen.
pub(crate) struct FrozenRing {
    chunks: Vec<Arc<Chunk>>,
    skip: usize,
}

impl FrozenRing {
    /// All events: their revisions, and their changes in the format of a snapshot.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Revision, &[u8])> {
        let packed = events(self.chunks.iter().map(|chunk| &**chunk), self.skip);
        packed.map(|packed| (packed.revision, packed::body(packed.bytes)))
    }

    /// All events.
    pub(crate) fn events(&self) -> impl Iterator<Item = Event> {
        let packed = events(self.chunks.iter().map(|chunk| &**chunk), self.skip);
        packed.map(|packed| packed::unpack(packed.bytes))
    }
}

/// The events of some chunks, without the first `skip` bytes.
fn events<'a>(chunks: impl Iterator<Item = &'a Chunk>, skip: usize) -> impl Iterator<Item = Packed<'a>> {
    let skips = std::iter::once(skip).chain(std::iter::repeat(0));
    chunks.zip(skips).flat_map(|(chunk, skip)| Events { bytes: &chunk.bytes[skip..] })
}

/// One event in its chunk.
struct Packed<'a> {
    revision: Revision,
    /// Bytes of the event, its head first.
    bytes: &'a [u8],
}

struct Events<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for Events<'a> {
    type Item = Packed<'a>;

    fn next(&mut self) -> Option<Packed<'a>> {
        if self.bytes.is_empty() {
            return None;
        }
        let head = packed::head(self.bytes);
        let (bytes, rest) = self.bytes.split_at(packed::HEAD_BYTES + head.body_bytes);
        self.bytes = rest;
        Some(Packed { revision: head.revision, bytes })
    }
}
