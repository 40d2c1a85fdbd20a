//! The loss of a lease, or of one of its locks, and its reason.

use std::fmt;
use tollgate_proto::v1;

/// Reason why a lease or a lock is no longer held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// The cluster ended the lease: it was not renewed in time.
    Expired,
    /// The lease was revoked.
    Revoked,
    /// An operator took the lock away.
    Forced,
    /// The lock was held for the maximum time that its acquirer had set.
    MaxHold,
    /// No keepalive was answered before the time when the lease might have ended. The lease may still live on the
    /// cluster for a moment; the client no longer relies on it, and never will again.
    Unreachable,
    /// This program was paused (stopped, starved of processor time, on a machine that slept) until the lease might have
    /// ended: it sent no keepalive in time. Otherwise as [`LostReason::Unreachable`].
    Paused,
    /// The server ended the lease because the client's connection was closed (`revoke_on_disconnect`).
    Disconnected,
    /// This program closed the session or released the lock.
    SessionClosed,
    /// Another program released the lock in the holder's name, by its lease and owner or by its token.
    Released,
}

impl LostReason {
    pub(crate) fn of_end(reason: v1::EndReason) -> LostReason {
        match reason {
            v1::EndReason::LeaseRevoked => LostReason::Revoked,
            v1::EndReason::Forced => LostReason::Forced,
            v1::EndReason::MaxHold => LostReason::MaxHold,
            v1::EndReason::Disconnected => LostReason::Disconnected,
            v1::EndReason::Released => LostReason::Released,
            _ => LostReason::Expired,
        }
    }

    const fn says(self) -> &'static str {
        match self {
            LostReason::Expired => "the lease expired: no keepalive arrived in time",
            LostReason::Revoked => "the lease was revoked",
            LostReason::Forced => "an operator released the lock by force",
            LostReason::MaxHold => "the lock was held for its longest permitted time",
            LostReason::Unreachable => "the cluster did not answer a keepalive in time",
            LostReason::Paused => {
                "this program stood still for too long to renew the lease (stopped, starved, or the machine slept)"
            }
            LostReason::Disconnected => "the server ended the lease when the connection closed",
            LostReason::SessionClosed => "it was given back by this program",
            LostReason::Released => "somebody released it",
        }
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.says())
    }
}

/// Error for a lease or a lock that is no longer held.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}{}", note_after(note.as_deref()))]
#[non_exhaustive]
pub struct Lost {
    /// Reason for the loss.
    pub reason: LostReason,
    /// Reason that the operator gave, with [`LostReason::Forced`].
    pub note: Option<String>,
}

impl Lost {
    pub(crate) fn new(reason: LostReason) -> Lost {
        Lost { reason, note: None }
    }
}

fn note_after(note: Option<&str>) -> String {
    note.map_or_else(String::new, |note| format!(": {note}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operators_note_is_told() {
        let lost = Lost { reason: LostReason::Forced, note: Some("stuck since noon".into()) };
        assert_eq!(lost.to_string(), "an operator released the lock by force: stuck since noon");
        assert_eq!(Lost::new(LostReason::Revoked).to_string(), "the lease was revoked");
    }
}
