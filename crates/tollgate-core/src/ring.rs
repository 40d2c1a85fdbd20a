//! The history of changes that watches resume from, bounded in bytes.
//!
//! Events are kept encoded, in chunks that a snapshot shares: a tenth of the memory traffic of keeping them as values, and
//! nothing to drop one by one. Whole revisions leave, oldest first, and only at the start of an entry: so the
//! events of the last entry can always be read, and a reader never meets half a revision.

use crate::event::Event;
use crate::format::{Reader, Writer, read_event};
use crate::watch::Watch;
use std::collections::VecDeque;
use std::sync::Arc;
use tollgate_types::Revision;

/// A chunk is sealed once it has this much.
const CHUNK_BYTES: usize = 16 * 1024;

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

/// Encoded events, one after another: revision, what it counts against the bound, length, bytes.
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
    /// What the events count against the bound.
    bytes: u64,
    min_revision: Revision,
}

/// One encoded event.
pub(crate) struct Encoded<'a> {
    pub(crate) revision: Revision,
    ring_bytes: u64,
    pub(crate) body: &'a [u8],
}

impl Encoded<'_> {
    fn decode(&self) -> Event {
        let mut reader = Reader::new(self.body);
        let change = read_event(&mut reader).expect("the ring holds what it was given");
        Event { revision: self.revision, change }
    }
}

impl Ring {
    pub(crate) fn new() -> Ring {
        Ring::restore(Revision::ZERO.next())
    }

    pub(crate) fn restore(min_revision: Revision) -> Ring {
        let open = Chunk { bytes: Vec::new(), last: Revision::ZERO };
        Ring { sealed: VecDeque::new(), skip: 0, open, bytes: 0, min_revision }
    }

    pub(crate) fn min_revision(&self) -> Revision {
        self.min_revision
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds an event that `write` encodes. `ring_bytes` is what it counts, by a rule that all replicas share.
    pub(crate) fn push(&mut self, revision: Revision, ring_bytes: u64, write: impl FnOnce(&mut Writer<'_>)) {
        if self.open.bytes.capacity() == 0 {
            self.open.bytes.reserve_exact(CHUNK_BYTES + CHUNK_BYTES / 8);
        }
        let mut writer = Writer::new(&mut self.open.bytes);
        writer.revision(revision);
        writer.varint(ring_bytes);
        writer.with_length(write);
        self.open.last = revision;
        self.bytes += ring_bytes;
        if self.open.bytes.len() >= CHUNK_BYTES {
            let next = Chunk { bytes: Vec::new(), last: revision };
            self.sealed.push_back(Arc::new(std::mem::replace(&mut self.open, next)));
        }
    }

    pub(crate) fn trim(&mut self, bytes_max: u64) {
        while self.bytes > bytes_max {
            let Some(revision) = self.front().map(|event| event.revision) else { return };
            self.min_revision = revision.next();
            while self.front().is_some_and(|event| event.revision == revision) {
                self.pop_front();
            }
        }
    }

    fn front(&self) -> Option<Encoded<'_>> {
        let chunk = self.sealed.front().map_or(&self.open, |chunk| chunk);
        Events { bytes: &chunk.bytes[self.skip..] }.next()
    }

    pub(crate) fn pop_front(&mut self) {
        if self.sealed.is_empty() {
            let next = Chunk { bytes: Vec::new(), last: self.open.last };
            self.sealed.push_back(Arc::new(std::mem::replace(&mut self.open, next)));
        }
        let mut events = Events { bytes: &self.sealed[0].bytes[self.skip..] };
        self.bytes -= events.next().expect("the caller saw one").ring_bytes;
        let left = events.bytes.len();
        self.skip = self.sealed[0].bytes.len() - left;
        if left == 0 {
            self.sealed.pop_front();
            self.skip = 0;
        }
    }

    /// All events from `revision` on.
    fn iter_from(&self, revision: Revision) -> impl Iterator<Item = Encoded<'_>> {
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
        for (scanned, encoded) in self.iter_from(from).enumerate() {
            let full = events.len() >= events_max || scanned >= SCAN_MAX;
            if full && last != Some(encoded.revision) {
                return Ok(EventBatch { events, next: encoded.revision });
            }
            last = Some(encoded.revision);
            let event = encoded.decode();
            if watch.matches(&event) {
                events.push(event);
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
    pub(crate) fn iter(&self) -> impl Iterator<Item = Encoded<'_>> {
        events(self.chunks.iter().map(|chunk| &**chunk), self.skip)
    }

    /// The events with what each counts, for checking.
    pub(crate) fn counted(&self) -> impl Iterator<Item = (Event, u64)> {
        self.iter().map(|encoded| (encoded.decode(), encoded.ring_bytes))
    }
}

/// The events of some chunks, without the first `skip` bytes.
fn events<'a>(chunks: impl Iterator<Item = &'a Chunk>, skip: usize) -> impl Iterator<Item = Encoded<'a>> {
    let skips = std::iter::once(skip).chain(std::iter::repeat(0));
    chunks.zip(skips).flat_map(|(chunk, skip)| Events { bytes: &chunk.bytes[skip..] })
}

struct Events<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for Events<'a> {
    type Item = Encoded<'a>;

    fn next(&mut self) -> Option<Encoded<'a>> {
        if self.bytes.is_empty() {
            return None;
        }
        let whole = "the ring holds what it was given";
        let mut reader = Reader::new(self.bytes);
        let revision = reader.revision().expect(whole);
        let ring_bytes = reader.varint().expect(whole);
        let body = reader.bytes("event", usize::MAX).expect(whole);
        self.bytes = &self.bytes[reader.at()..];
        Some(Encoded { revision, ring_bytes, body })
    }
}
