//! Snapshots on their way: a window of pieces, repeated from where the receiver is.
//!
//! The sender reads pieces of its newest file and keeps a few of them on the way. The receiver stores them in order
//! and says where the next one begins; anything else it lets fall. When nothing has moved for a while, and no piece is
//! still being read, the sender begins again at the receiver's last word, and after a longer while it gives up and
//! tells Raft, which asks anew. One transfer a peer and group; a newer one takes the older one's place.
//!
//! Not here: what becomes of a complete snapshot (`replica`), and the bytes on disk (`storage`).

use crate::config::HostConfig;
use crate::frame::{Chunk, ChunkStatus};
use crate::moment::Moment;
use crate::storage::{Job, SnapshotFile, TransferId};
use bytes::Bytes;
use tollgate_types::{GroupId, NodeId};

/// Without progress for this long the sender repeats what may have been lost.
const RESEND_MS: u64 = 500;

#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) transfer: TransferId,
    pub(crate) file: SnapshotFile,
    /// The sender's term when it began; Raft on the other side ignores what is of an old one.
    pub(crate) term: u64,
    /// Whether Raft waits for the end; a courtesy to a witness it knows nothing of.
    pub(crate) for_raft: bool,
    acked: u64,
    /// Read, or being read, up to here.
    sent: u64,
    /// Pieces that are being read. While there are any, none is read twice: a disk that is slow would have the more to
    /// do the later it is.
    reading: u32,
    moved: Moment,
    resent: Moment,
}

impl Sending {
    pub(crate) fn new(
        transfer: TransferId,
        file: SnapshotFile,
        term: u64,
        for_raft: bool,
        now: Moment,
    ) -> Sending {
        Sending { transfer, file, term, for_raft, acked: 0, sent: 0, reading: 0, moved: now, resent: now }
    }

    /// The pieces to read next.
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

    /// A piece was read, or will not be. The receiver has yet to hear of it.
    pub(crate) fn was_read(&mut self, now: Moment) {
        self.reading = self.reading.saturating_sub(1);
        self.resent = now;
    }

    /// Nothing that was to be read may come any more.
    pub(crate) fn forget_reads(&mut self) {
        self.reading = 0;
    }

    pub(crate) fn chunk(&self, group: GroupId, offset: u64, bytes: Bytes) -> Chunk {
        Chunk { group, transfer: self.transfer, term: self.term, file: self.file.clone(), offset, bytes }
    }

    /// What the receiver has said that it has.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.acked
    }

    /// The receiver wants the piece at `next`.
    pub(crate) fn acked(&mut self, next: u64, now: Moment) {
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

    /// Begins again at the receiver's last word if nothing moves. Whether there is hope left.
    pub(crate) fn is_alive(&mut self, now: Moment, config: &HostConfig) -> bool {
        if self.reading == 0 && now >= self.resent.after_ms(RESEND_MS) {
            // If everything has arrived, the last byte asks how it goes.
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
    /// Handed to the storage up to here.
    next: u64,
    /// Everything was handed over, and the storage checks it.
    completing: bool,
    moved: Moment,
}

/// What to do with a piece.
pub(crate) enum Arrival {
    /// Store it.
    Store { offset: u64, bytes: Bytes },
    /// It is not the next one: say which is.
    Repeat(ChunkStatus),
    /// Let it fall.
    Ignore,
}

impl Receiving {
    pub(crate) fn new(peer: NodeId, chunk: &Chunk, now: Moment) -> Receiving {
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

    pub(crate) fn arrived(&mut self, chunk: Chunk, now: Moment) -> Arrival {
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

    /// A piece is stored up to `next`. Whether that was the last.
    pub(crate) fn stored(&mut self, next: u64) -> bool {
        let complete = next == self.file.size && !self.completing;
        self.completing |= complete;
        complete
    }

    pub(crate) fn is_alive(&self, now: Moment, timeout_ms: u64) -> bool {
        self.completing || now < self.moved.after_ms(timeout_ms)
    }
}
