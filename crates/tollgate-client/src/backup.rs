//! A backup in progress: the bytes of a file, piece by piece.
//!
//! Not here: the contents of the file, and whether it is complete. Check a backup before you rely on it (`tollgate
//! snapshot status`).

use crate::admin::{Admin, service};
use crate::error::{Error, ErrorKind};
use crate::unary::Repeat;
use std::time::Duration;
use tollgate_proto::v1;
use tonic::{Status, Streaming};

/// Maximum time between two pieces.
const PATIENCE: Duration = Duration::from_mins(1);

/// Backup that a node is making.
#[derive(Debug)]
pub struct Backup {
    stream: Streaming<v1::BackupResponse>,
}

/// Next piece of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupPiece {
    /// Bytes of the file that follow those of the previous pieces.
    pub bytes: Vec<u8>,
    /// Number of groups in the backup.
    pub groups: u32,
    /// Number of groups that are complete with this piece.
    pub groups_done: u32,
}

impl Admin {
    /// Starts a backup of all groups, each in a state that a quorum confirms. Read all pieces without long pauses: a
    /// node gives up on a client that does not read.
    pub async fn backup(&self) -> Result<Backup, Error> {
        let ask = |channel| async move { service(channel).backup(v1::BackupRequest {}).await };
        Ok(Backup { stream: self.client().unary(Repeat::Harmless, ask).await? })
    }
}

/// Returns the error for a backup that ended before it was complete. Nothing was changed, so the backup may always be
/// requested again.
fn broke_off(status: &Status) -> Error {
    if tollgate_proto::error_of_status(status).is_some() {
        return Error::of_status(status);
    }
    let says = format!("the node that made the backup went away ({}): ask for it again", status.message());
    Error::new(ErrorKind::Unreachable, says, false)
}

impl Backup {
    /// Returns the next piece; none at the end. After an error, the pieces so far are not a backup.
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
