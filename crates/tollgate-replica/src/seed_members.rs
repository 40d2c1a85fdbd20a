//! Membership list that a joining node receives: all that the node knows of its cluster until the first snapshot
//! arrives.
//!
//! The list is written once, when the data directory is founded. The replicas of the node are blank until a leader
//! sends them a snapshot, and to answer that leader the node must know the leader's address. Afterwards the members in
//! its snapshots and logs count. Not here: how a cluster is asked for its members (`tollgate-server`).

use crate::data_dir::{DataDir, DataDirError, Founding, failed, shown};
use crate::engine::durable::replace_file;
use crate::members::Members;
use std::fs;
use std::io;
use std::path::Path;
use tollgate_core::{DecodeError, Reader, Writer};

const FILE: &str = "members";
const MAGIC: [u8; 8] = *b"TGJOINED";
const CRC_BYTES: usize = 4;

/// The members of the cluster when this node joined it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeedMembers(pub Members);

impl SeedMembers {
    /// Writes the members to the data directory, durably.
    pub fn write(&self, founding: &Founding) -> Result<(), DataDirError> {
        let mut bytes = MAGIC.to_vec();
        self.0.encode(&mut Writer::new(&mut bytes));
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        let path = founding.path().join(FILE);
        replace_file(&path, &bytes).map_err(failed(&path))
    }

    /// Reads the members; none on a node that did not join.
    pub fn read(dir: &DataDir) -> Result<Option<SeedMembers>, DataDirError> {
        let path = dir.path().join(FILE);
        match fs::read(&path) {
            Ok(bytes) => decode(&bytes, &path).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&path)(error)),
        }
    }
}

fn decode(bytes: &[u8], path: &Path) -> Result<SeedMembers, DataDirError> {
    let damaged = |what: String| DataDirError::Damaged { path: shown(path), what };
    let Some((fields, crc)) = bytes.split_last_chunk::<CRC_BYTES>() else {
        return Err(damaged("it is cut off".to_owned()));
    };
    if crc32fast::hash(fields).to_le_bytes() != *crc {
        return Err(damaged("it does not have its checksum".to_owned()));
    }
    let Some(body) = fields.strip_prefix(&MAGIC) else {
        return Err(damaged("it is no list of members".to_owned()));
    };
    let read = |body: &[u8]| -> Result<Members, DecodeError> {
        let mut reader = Reader::new(body);
        let members = Members::decode(&mut reader)?;
        reader.finish()?;
        Ok(members)
    };
    read(body).map(SeedMembers).map_err(|error| damaged(error.to_string()))
}
