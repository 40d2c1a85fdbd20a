//! Snapshot transfers: a window of pieces, repeated from the receiver's position.
//!
//! The sender reads pieces of its newest file and keeps a few of them in flight. The receiver stores them in order and
//! reports the offset of the next one; it drops pieces at any other offset. When there was no progress for a while, and
//! no piece is still being read, the sender starts again from the receiver's last report, and after a longer while it
//! gives up and tells Raft, which requests a new transfer. There is one transfer per peer and group; a newer one
//! replaces the older one.
//!
//! Not here: the use of a complete snapshot (`replica`), and the bytes on disk (`storage`).

use crate::config::HostConfig;
use crate::frame::{Chunk, ChunkStatus};
use crate::monotonic_time::MonotonicTime;
use crate::storage::{Job, SnapshotFile, TransferId};
use bytes::Bytes;
use tollgate_types::{GroupId, NodeId};

/// After this long without progress the sender repeats pieces that may have been lost.
const RESEND_MS: u64 = 500;

#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) transfer: TransferId,
    pub(crate) file: SnapshotFile,
    /// The sender's term at the start of the transfer; Raft at the receiver ignores messages of an old term.
    pub(crate) term: u64,
    /// True if Raft waits for the end; false for a snapshot that is sent to a witness without Raft's request.
    pub(crate) for_raft: bool,
    acked: u64,
    /// Offset up to which pieces were read, or are being read.
    sent: u64,
    /// Number of pieces that are being read. While there are any, no piece is read twice: otherwise a slow disk would
    /// have more to do the later it is.
    reading: u32,
    moved: MonotonicTime,
    resent: MonotonicTime,
}

impl Sending {
    pub(crate) fn new(
        transfer: TransferId,
        file: SnapshotFile,
        term: u64,
        for_raft: bool,
        now: MonotonicTime,
    ) -> Sending {
        Sending { transfer, file, term, for_raft, acked: 0, sent: 0, reading: 0, moved: now, resent: now }
    }

    /// Adds jobs for the pieces to read next.
    pub(crate) fn jobs(&mut self, group: GroupId, peer: NodeId, config: &HostConfig, jobs: &mut Vec<Job>) {
        let window = u64::from(config.chunk_bytes) * u64::from(config.chunks_in_flight_max);
        while self.sent < self.file.size && self.sent.saturating_sub(self.acked) < window {
            let length = (self.file.size - self.sent).min(u64::from(config.chunk_bytes));
            let length = u32::try_from(length).expect("at most chunk_bytes");
            jobs.push(Job::Read {
                group,
                transfer: self.transfer,
                peer,
                index: self.file.meta.index,
                offset: self.sent,
                length,
            });
            self.sent += u64::from(length);
            self.reading += 1;
        }
    }

    /// Records that a piece was read, or will not be. The receiver has not answered it yet.
    pub(crate) fn was_read(&mut self, now: MonotonicTime) {
        self.reading = self.reading.saturating_sub(1);
        self.resent = now;
    }

    /// Forgets reads that may never be answered.
    pub(crate) fn forget_reads(&mut self) {
        self.reading = 0;
    }

    pub(crate) fn chunk(&self, group: GroupId, offset: u64, bytes: Bytes) -> Chunk {
        Chunk { group, transfer: self.transfer, term: self.term, file: self.file.clone(), offset, bytes }
    }

    /// Bytes that the receiver has reported as received.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.acked
    }

    /// Records that the receiver wants the piece at `next`.
    pub(crate) fn acked(&mut self, next: u64, now: MonotonicTime) {
        if next == self.file.size {
            self.moved = now; // The receiver checks and loads it, which may take long.
        }
        if next > self.acked && next <= self.file.size {
            self.acked = next;
            self.sent = self.sent.max(next);
            self.moved = now;
            self.resent = now;
        }
    }

    /// Starts again from the receiver's last report if there is no progress. Returns false once the transfer has timed
    /// out.
    pub(crate) fn is_alive(&mut self, now: MonotonicTime, config: &HostConfig) -> bool {
        if self.reading == 0 && now >= self.resent.after_ms(RESEND_MS) {
            // If the receiver has everything, the last byte is sent again to ask for its status.
            self.sent = self.acked.min(self.file.size - 1);
            self.resent = now;
        }
        now < self.moved.after_ms(config.transfer_timeout_ms)
    }
}

#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) peer: NodeId,
    pub(crate) transfer: TransferId,
    pub(crate) file: SnapshotFile,
    pub(crate) term: u64,
    /// Offset up to which pieces were passed to the storage.
    next: u64,
    /// True once everything was passed to the storage, which checks it.
    completing: bool,
    moved: MonotonicTime,
}

/// Handling of a received piece.
pub(crate) enum Arrival {
    /// Store the piece.
    Store { offset: u64, bytes: Bytes },
    /// The piece is not the next one: report the next one.
    Repeat(ChunkStatus),
    /// Drop the piece.
    Ignore,
}

impl Receiving {
    pub(crate) fn new(peer: NodeId, chunk: &Chunk, now: MonotonicTime) -> Receiving {
        Receiving {
            peer,
            transfer: chunk.transfer,
            file: chunk.file.clone(),
            term: chunk.term,
            next: 0,
            completing: false,
            moved: now,
        }
    }

    pub(crate) fn is(&self, peer: NodeId, transfer: TransferId) -> bool {
        self.peer == peer && self.transfer == transfer
    }

    pub(crate) fn arrived(&mut self, chunk: Chunk, now: MonotonicTime) -> Arrival {
        if chunk.file != self.file {
            return Arrival::Ignore;
        }
        if self.completing {
            return Arrival::Repeat(ChunkStatus::Next(self.file.size)); // It is all here, and being checked.
        }
        if chunk.offset != self.next || chunk.bytes.is_empty() {
            return Arrival::Repeat(ChunkStatus::Next(self.next));
        }
        let end = chunk.offset + chunk.bytes.len() as u64;
        if end > self.file.size {
            return Arrival::Ignore;
        }
        self.next = end;
        self.moved = now;
        Arrival::Store { offset: chunk.offset, bytes: chunk.bytes }
    }

    /// Records that the piece up to `next` is stored. Returns true if that was the last one.
    pub(crate) fn stored(&mut self, next: u64) -> bool {
        let complete = next == self.file.size && !self.completing;
        self.completing |= complete;
        complete
    }

    pub(crate) fn is_alive(&self, now: MonotonicTime, timeout_ms: u64) -> bool {
        self.completing || now < self.moved.after_ms(timeout_ms)
    }
}
