//! That a lease, or one lock of it, is no longer held, and why.

use std::fmt;
use tollgate_proto::v1;

/// Why something that was held no longer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// The cluster ended the lease: nobody renewed it in time.
    Expired,
    /// Somebody ended the lease.
    Revoked,
    /// An operator took the lock away.
    Forced,
    /// The lock was held as long as its acquirer had said it would be at most.
    MaxHold,
    /// No keepalive was answered until the time from which on the lease might have ended. It may still live on the
    /// cluster for a moment; the client no longer counts on it, and never will again.
    Unreachable,
    /// This program stood still (stopped, starved of processor time, on a machine that slept) until the lease might
    /// have ended: it asked for no keepalive in time. Otherwise as [`LostReason::Unreachable`].
    Paused,
    /// The server ended the lease because the client's connection was gone (`revoke_on_disconnect`).
    Disconnected,
    /// This program closed the session or released the lock.
    SessionClosed,
    /// Somebody else released the lock in the holder's name, by its lease and owner or by its token.
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

/// A lease or a lock is no longer held.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}{}", note_after(note.as_deref()))]
#[non_exhaustive]
pub struct Lost {
    /// Why.
    pub reason: LostReason,
    /// What the operator gave as a reason, with [`LostReason::Forced`].
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
