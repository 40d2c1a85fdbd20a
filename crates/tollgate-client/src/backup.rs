//! A backup on its way: the bytes of a file, piece by piece.
//!
//! Not here: what is in the file, and whether it is whole. Check it before you rely on it (`tollgate snapshot status`).

use crate::admin::{Admin, service};
use crate::error::{Error, ErrorKind};
use crate::unary::Repeat;
use std::time::Duration;
use tollgate_proto::v1;
use tonic::{Status, Streaming};

/// How long a node may send nothing.
const PATIENCE: Duration = Duration::from_mins(1);

/// A backup that a node is making.
#[derive(Debug)]
pub struct Backup {
    stream: Streaming<v1::BackupResponse>,
}

/// The next bytes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupPiece {
    /// The bytes that follow those before.
    pub bytes: Vec<u8>,
    /// How many groups are in the backup.
    pub groups: u32,
    /// How many of them are complete with this piece.
    pub groups_done: u32,
}

impl Admin {
    /// Asks for a backup of all groups, each as a quorum confirms it to be. Read it on: a node gives up on whoever does
    /// not.
    pub async fn backup(&self) -> Result<Backup, Error> {
        let ask = |channel| async move { service(channel).backup(v1::BackupRequest {}).await };
        Ok(Backup { stream: self.client().unary(Repeat::Harmless, ask).await? })
    }
}

/// Why a backup ended before it was complete. Nothing was changed, so it may always be asked for again.
fn broke_off(status: &Status) -> Error {
    if tollgate_proto::error_of_status(status).is_some() {
        return Error::of_status(status);
    }
    let says = format!("the node that made the backup went away ({}): ask for it again", status.message());
    Error::new(ErrorKind::Unreachable, says, false)
}

impl Backup {
    /// The next piece; none at the end. After an error what came so far is no backup.
    pub async fn next(&mut self) -> Result<Option<BackupPiece>, Error> {
        let piece = match tokio::time::timeout(PATIENCE, self.stream.message()).await {
            Ok(Ok(piece)) => piece,
            Ok(Err(status)) => return Err(broke_off(&status)),
            Err(_) => {
                let says = format!("the node sent nothing of the backup for {PATIENCE:?}: ask for it again");
                return Err(Error::new(ErrorKind::TimedOut, says, false));
            }
        };
        let of = |piece: v1::BackupResponse| BackupPiece {
            bytes: piece.data,
            groups: piece.groups,
            groups_done: piece.groups_done,
        };
        Ok(piece.map(of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_that_breaks_off_changed_nothing_and_may_be_asked_for_again() {
        let broken = broke_off(&Status::internal("h2 protocol error: error reading a body from connection"));
        assert_eq!((broken.kind(), broken.may_have_happened()), (ErrorKind::Unreachable, false));
        assert!(broken.message().contains("ask for it again"), "{broken}");
        let refused = v1::Error::new(v1::ErrorReason::Overloaded, "one is made already");
        assert_eq!(broke_off(&refused.into()).reason(), Some("OVERLOADED"));
    }
}
