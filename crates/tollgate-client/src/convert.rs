//! Conversions from the wire to this crate's own types: the only place where both are named.
//!
//! Invariant: a server is trusted no more than a client is. Its answers are read with the same care, and an answer that
//! no Tollgate server would give becomes an error that says so.

mod claim;
mod cluster;
mod leader;
mod lease;
mod lock;
mod register;

pub(crate) use claim::event;
pub(crate) use cluster::{
    added_member, config, deadlock_cycle, deadlocks, groups, limits, members, node_status, snapshots,
};
pub(crate) use leader::leader;
pub(crate) use lease::{lease_claim, lease_granted, lease_info};
pub(crate) use lock::{explanation, holders, lock_info};
pub(crate) use register::{compare, register, sort, txn_op, txn_outcome};

use crate::consistency::Consistency;
use crate::error::Error;
use crate::missing::{Missing, Silent};
use std::time::Duration;
use tollgate_proto::{convert, v1};
use tollgate_types::{GroupId, LeaseId, Lineage, Mode, NodeId, Revision, Token};

/// Returns the consistency as the wire has it.
pub(crate) fn consistency(consistency: Consistency) -> i32 {
    match consistency {
        Consistency::Linearizable => v1::Consistency::Linearizable,
        Consistency::Leader => v1::Consistency::Leader,
        Consistency::Stale => v1::Consistency::Stale,
    }
    .into()
}

/// Returns milliseconds for the wire. A duration too long for the wire becomes the maximum, which is as good as for
/// ever.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Returns milliseconds for the wire, rounded up, so that a short wait does not become zero.
pub(crate) fn millis_at_least(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

/// Returns the cursor to continue from, if there is one.
pub(crate) fn cursor(cursor: String) -> Option<String> {
    (!cursor.is_empty()).then_some(cursor)
}

/// Returns metadata as it was given: the exact bytes if the server sent them, otherwise the text.
pub(crate) fn metadata(text: &str, bytes: Vec<u8>) -> Vec<u8> {
    if bytes.is_empty() { text.as_bytes().to_vec() } else { bytes }
}

/// Returns the lineage in an answer's header, if it has one.
pub(crate) fn lineage(header: Option<&v1::Header>) -> Option<Lineage> {
    header.and_then(|header| Lineage::new(header.lineage))
}

/// Returns the revision in a header.
pub(crate) fn header_revision(header: Option<&v1::Header>) -> Result<Revision, Error> {
    revision(header.map_or(0, |header| header.revision))
}

/// Returns the groups and nodes that could not be asked. Kinds that this client does not know are left out.
pub(crate) fn missing(wire: &[v1::Missing]) -> Vec<Missing> {
    let missing = wire.iter().filter_map(|missing| {
        let who = match missing.who? {
            v1::missing::Who::GroupId(group) => Silent::Group(GroupId::new(group)),
            v1::missing::Who::NodeId(node) => Silent::Node(NodeId::new(node)?),
        };
        Some(Missing { who, message: missing.message.clone() })
    });
    missing.collect()
}

fn strange<E>(_: E) -> Error {
    Error::unexpected("a read")
}

fn lease_id(number: u64) -> Result<LeaseId, Error> {
    LeaseId::new(number).map_err(strange)
}

fn lease_id_or_none(number: u64) -> Result<Option<LeaseId>, Error> {
    if number == 0 { Ok(None) } else { lease_id(number).map(Some) }
}

pub(crate) fn revision(number: u64) -> Result<Revision, Error> {
    Revision::new(number).map_err(strange)
}

pub(crate) fn token(number: u64) -> Result<Token, Error> {
    Token::new(number).map_err(strange)
}

fn token_or_none(number: u64) -> Result<Option<Token>, Error> {
    if number == 0 { Ok(None) } else { token(number).map(Some) }
}

pub(crate) fn mode(mode: i32, permits: u32, of: u32) -> Result<Mode, Error> {
    convert::read_mode(mode, permits, of).map_err(strange)
}

fn node(number: u64) -> Option<NodeId> {
    NodeId::new(number)
}

/// Reads a duration in milliseconds; negative values become zero.
pub(crate) fn duration(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// Reads a duration in milliseconds; a negative value means "not known" or "never".
fn duration_or_none(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_is_not_nothing_does_not_become_nothing() {
        assert_eq!(millis_at_least(Duration::ZERO), 0);
        assert_eq!(millis_at_least(Duration::from_micros(1)), 1);
        assert_eq!(millis_at_least(Duration::from_millis(2)), 2);
    }
}
