//! The disk of each known peer, and the peers that know this node's disk: detects a voter that was founded anew.
//!
//! A voter whose directory is wiped and bootstrapped again has forgotten its votes and its log, and looks like a new
//! voter. Two rules make that harmless (P4). A node records the disk of a peer when it first hears from it, before it
//! accepts any other message, and from then on ignores any peer that comes under that id with another disk. And a first
//! member takes part only when every other first member has recorded its disk. So a disk that was ever relied on is
//! known to all the others, and a replacement is refused by each node that has kept its own disk; and each of them
//! reports the refusal to the replacement, whichever side dials, which stops a node that awaits nobody.
//!
//! Not here: the messages when peers connect (`tollgate-node`), and the reasons for this design (docs/decisions/0007).

use crate::data_dir::{DataDir, DataDirError, failed, shown};
use crate::engine::durable::{fault, replace_file};
use crate::members::decode_node;
use crate::storage::StorageError;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tollgate_core::{DecodeError, Reader, Writer};
use tollgate_types::{DiskId, NodeId};

const FILE: &str = "peers";
const MAGIC: [u8; 8] = *b"TGPEERS1";
const CRC_BYTES: usize = 4;

/// The most peers in the file; far more than the nodes of any configuration.
const PEERS_MAX: usize = 65_536;

/// A node's durable record of its peers' disks.
#[derive(Debug)]
pub struct PeerDisks {
    path: PathBuf,
    known: BTreeMap<NodeId, DiskId>,
    /// Nodes that have not recorded this node's disk yet.
    awaited: BTreeSet<NodeId>,
}

/// Result of a peer's announcement of its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meeting {
    /// The peer was never seen before; now its disk is recorded.
    First,
    /// The peer has the same disk as before.
    Again,
    /// The peer had the given disk before and now has another one: its messages must be ignored.
    OtherDisk(DiskId),
}

impl PeerDisks {
    /// Writes the record of a new directory, without any known peer.
    pub(crate) fn found(dir: &Path, awaited: BTreeSet<NodeId>) -> Result<(), DataDirError> {
        let disks = PeerDisks { path: dir.join(FILE), known: BTreeMap::new(), awaited };
        replace_file(&disks.path, &disks.encode()).map_err(failed(&disks.path))
    }

    /// Reads the record of a data directory.
    pub fn open(dir: &DataDir) -> Result<PeerDisks, DataDirError> {
        let path = dir.path().join(FILE);
        let damaged = |what: String| DataDirError::Damaged { path: shown(&path), what };
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            // The file was written before the founding was finished.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(damaged("it is gone".to_owned()));
            }
            Err(error) => return Err(failed(&path)(error)),
        };
        let Some((fields, crc)) = bytes.split_last_chunk::<CRC_BYTES>() else {
            return Err(damaged("it is cut off".to_owned()));
        };
        if crc32fast::hash(fields).to_le_bytes() != *crc {
            return Err(damaged("it does not have its checksum".to_owned()));
        }
        let Some(body) = fields.strip_prefix(&MAGIC) else {
            return Err(damaged("it is no list of peers".to_owned()));
        };
        let (known, awaited) = decode(body).map_err(|error| damaged(error.to_string()))?;
        Ok(PeerDisks { path, known, awaited })
    }

    /// Handles a peer's announcement of its disk. If the result is that the disk is known, the record is durable.
    pub fn meet(&mut self, peer: NodeId, disk: DiskId) -> Result<Meeting, StorageError> {
        match self.known.get(&peer) {
            Some(known) if *known == disk => return Ok(Meeting::Again),
            Some(known) => return Ok(Meeting::OtherDisk(*known)),
            None => {}
        }
        self.known.insert(peer, disk);
        if let Err(error) = self.write() {
            self.known.remove(&peer);
            return Err(error);
        }
        Ok(Meeting::First)
    }

    /// The recorded disk of a peer, if the peer ever announced one.
    pub fn disk_of(&self, peer: NodeId) -> Option<DiskId> {
        self.known.get(&peer).copied()
    }

    /// Records that a peer has recorded this node's disk. Returns true if that was the last awaited peer.
    pub fn accepted_by(&mut self, peer: NodeId) -> Result<bool, StorageError> {
        if !self.awaited.remove(&peer) {
            return Ok(false);
        }
        if let Err(error) = self.write() {
            self.awaited.insert(peer);
            return Err(error);
        }
        Ok(self.awaited.is_empty())
    }

    /// Nodes that must record this node's disk before the node takes part.
    pub fn awaited(&self) -> &BTreeSet<NodeId> {
        &self.awaited
    }

    fn write(&self) -> Result<(), StorageError> {
        replace_file(&self.path, &self.encode()).map_err(|error| fault(&self.path, error))
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let mut writer = Writer::new(&mut bytes);
        writer.varint(self.known.len() as u64);
        for (node, disk) in &self.known {
            writer.varint(node.number());
            writer.varint(disk.number());
        }
        writer.varint(self.awaited.len() as u64);
        for node in &self.awaited {
            writer.varint(node.number());
        }
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }
}

type Fields = (BTreeMap<NodeId, DiskId>, BTreeSet<NodeId>);

fn decode(body: &[u8]) -> Result<Fields, DecodeError> {
    let mut reader = Reader::new(body);
    let known = reader
        .list("peers", PEERS_MAX, 2, |reader| Ok((decode_node(reader)?, DiskId::new(reader.varint()?))))?;
    let awaited = reader.list("awaited peers", PEERS_MAX, 1, decode_node)?;
    reader.finish()?;
    Ok((known.into_iter().collect(), awaited.into_iter().collect()))
}
