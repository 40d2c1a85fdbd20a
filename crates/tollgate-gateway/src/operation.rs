//! Translates between the wire and the node: a client's operations into commands and reads, and their answers into wire
//! messages.
//!
//! [`prepare`] checks one operation and finds its group; the [`Context`] that comes with it words the answer, and says
//! whether the operation may be repeated and how to take it out of a queue. Pure and synchronous, so that all APIs
//! (sessions, unary calls, JSON) answer alike. Invariant: nothing unchecked gets past this module, and every error says
//! what to do next and whether the operation may have happened. Not here: the choice of the node and the time of a
//! retry (`router`), and the keepalive that goes along with a lock that its owner holds already.

#![allow(
    clippy::result_large_err,
    reason = "the wire's error is made for the few operations that are refused"
)]

mod context;
mod election;
mod error;
mod event;
mod explain;
mod homes;
mod lease;
mod listing;
mod lock;
mod lock_answer;
mod part;
mod query;
mod register;
mod rejection;
#[cfg(test)]
mod round_trips;
mod route;
mod view;
mod watch;

pub use context::{Context, ForcedRelease, HeaderInfo};
pub use election::{Observe, leader_of_lock};
pub use error::{
    RESULT_BYTES_MAX, error_of_not_answered, error_of_propose, error_of_read, hung_up, left_waiting,
    not_supported, overloaded, too_long, unexpected,
};
pub use event::event;
pub use explain::{Explain, explain_lines};
pub use homes::{AtHome, Homes};
pub use listing::{LeaseList, ListLocks};
pub(crate) use query::LEASE_KEYS_MAX;
pub use query::{Query, Seen};
pub use register::groups_of_range;
pub use rejection::{error_of_rejection, is_too_large, read_step};
pub(crate) use view::lease_claim;
pub use view::{Addresses, Counts, Cut, end_reason, holder, lease, lock_state, register};
pub use watch::{WatchOpen, WatchOrder, read_watch, write_cursor};

use tollgate_core::{Command, Renewal};
use tollgate_node::Consistency;
use tollgate_proto::v1::{self, operation::Op};
use tollgate_proto::{BadField, convert};
use tollgate_types::{Address, GroupId, GroupMap};

/// A checked operation, ready to be sent to its group.
#[derive(Debug)]
pub struct Prepared {
    /// Group to ask.
    pub group: GroupId,
    /// Request to make.
    pub kind: Kind,
    /// State needed to word the answer.
    pub context: Context,
    /// Epoch of the group map by which the group was found; 0 until it is set.
    map_epoch: u64,
}

/// Kind of request made to a node.
#[derive(Debug)]
pub enum Kind {
    /// Carries out a command.
    Command {
        /// The command.
        command: Command,
        /// True for the first attempt of a lock request that does not wait. It must be false for a second attempt,
        /// whoever makes it.
        fast: bool,
    },
    /// Renews a lease. The address may be taken out if it is the same as in the previous renewal.
    KeepAlive(Renewal),
    /// Reads the state.
    Read {
        /// Required consistency of the read.
        consistency: Consistency,
        /// The query.
        query: Query,
    },
}

/// Checks an operation and finds its group in `map`; `from` is the address at which the client was seen.
///
/// The only place that branches on the kind of operation; answers branch on the context.
pub fn prepare(op: &Op, map: &GroupMap, from: &Address) -> Result<Prepared, v1::Error> {
    let prepared = match op {
        Op::Lock(request) => lock::prepare_lock(request, map),
        Op::TryLock(request) => lock::prepare_try_lock(request, map),
        Op::Convert(request) => lock::prepare_convert(request, map),
        Op::Unlock(request) => lock::prepare_unlock(request, map),
        Op::CancelWait(request) => lock::prepare_cancel(request, map),
        Op::ForceRelease(request) => lock::prepare_force_release(request, map, from),
        Op::GetLock(request) => lock::prepare_get(request, map),
        Op::LeaseGrant(request) => lease::prepare_grant(request, map, from),
        Op::LeaseRevoke(request) => lease::prepare_revoke(*request, map),
        Op::LeaseKeepAlive(request) => lease::prepare_keep_alive(request, map, from),
        Op::LeaseTimeToLive(request) => lease::prepare_time_to_live(*request, map),
        Op::Put(request) => register::prepare_put(request, map),
        Op::Get(request) => register::prepare_get(request, map),
        Op::Delete(request) => register::prepare_delete(request, map),
        Op::Range(request) => register::prepare_range(request, map),
        Op::Txn(request) => register::prepare_txn(request, map),
        Op::Campaign(request) => election::prepare_campaign(request, map),
        Op::Proclaim(request) => election::prepare_proclaim(request, map),
        Op::Leader(request) => election::prepare_leader(request, map),
        Op::Resign(request) => election::prepare_resign(request, map),
    };
    Ok(Prepared { map_epoch: map.epoch(), ..prepared? })
}

impl Prepared {
    fn new(group: GroupId, kind: Kind, about: context::About) -> Prepared {
        Prepared { group, kind, context: Context::new(group, about), map_epoch: 0 }
    }

    fn command(group: GroupId, command: Command, about: context::About) -> Prepared {
        Prepared::new(group, Kind::Command { command, fast: false }, about)
    }

    fn read(group: GroupId, consistency: Consistency, query: Query, about: context::About) -> Prepared {
        Prepared::new(group, Kind::Read { consistency, query }, about)
    }

    /// Returns the epoch of the group map by which the group was found.
    pub fn map_epoch(&self) -> u64 {
        self.map_epoch
    }
}

/// Reads the field `consistency`.
pub fn read_consistency(number: i32) -> Result<Consistency, BadField> {
    Ok(match convert::read_consistency("consistency", number)? {
        v1::Consistency::Unspecified | v1::Consistency::Linearizable => Consistency::Linearizable,
        v1::Consistency::Leader => Consistency::Leader,
        v1::Consistency::Stale => Consistency::Stale,
    })
}
