//! Decides who holds each lock, and nothing else.
//!
//! [`State::apply`] is a pure function of (state, entry): time arrives inside the entry, randomness and IO never.
//! Every replica that applies the same entries has the same state, the same revisions and the same
//! [`Snapshot::hash`]. What each command does is written down in `docs/semantics.md`; `ARCHITECTURE.md` has the map
//! of the files.
//!
//! Not here: replication, clocks, sockets, waking callers.
//!
//! # Example
//!
//! Everything that happens is an entry: a command and the time at which it counts.
//!
//! ```
//! use tollgate_core::{
//!     AcquireLock, Command, Entry, GrantLease, LeaseChoice, ReleaseBy, ReleaseLock, Reply, State, Wait,
//! };
//! use tollgate_types::{
//!     Address, ClientId, DurationMs, Invalid, LeaseId, Limits, LogTime, Metadata, Mode, Name, Names, Owner,
//! };
//!
//! fn main() -> Result<(), Invalid> {
//!     let mut state = State::new(Limits::DEFAULT);
//!     let mut at_second = |second: u64, command: Command| {
//!         state.apply(Entry { at: LogTime::from_ms(second * 1_000), command })
//!     };
//!     let names = Names::One(Name::new("db/migrate")?);
//!     let (first, second) = (LeaseId::new(1)?, LeaseId::new(2)?);
//!
//!     // Two clients, each with a lease of 30 seconds.
//!     for lease in [first, second] {
//!         at_second(0, Command::GrantLease(GrantLease {
//!             id: LeaseChoice::Chosen(lease),
//!             ttl: DurationMs::from_secs(30),
//!             client_id: ClientId::NONE,
//!             address: Address::NONE,
//!             revoke_on_disconnect: false,
//!         }));
//!     }
//!     let lock = |lease| Command::AcquireLock(AcquireLock {
//!         names: names.clone(),
//!         lease,
//!         owner: Owner::LEASE,
//!         mode: Mode::Exclusive,
//!         wait: Wait::Forever,
//!         lock_delay: DurationMs::ZERO,
//!         max_hold: None,
//!         metadata: Metadata::NONE,
//!         value: None,
//!         attended: false,
//!         request: None,
//!     });
//!
//!     // The first gets the lock and a fencing token, the second a place in the queue.
//!     let Reply::Acquired { token, .. } = at_second(1, lock(first)).reply else { panic!("it was free") };
//!     let Reply::Queued { position, .. } = at_second(2, lock(second)).reply else { panic!("it was held") };
//!     println!("held with token {token}; the next waits at position {position}");
//!
//!     // The unlock passes it on: the answer to the waiter comes with this entry.
//!     let unlocked = at_second(3, Command::ReleaseLock(ReleaseLock {
//!         names: names.clone(),
//!         by: ReleaseBy::Holder { lease: first, owner: Owner::LEASE, token: Some(token), request: None },
//!     }));
//!     assert_eq!(unlocked.resolved.len(), 1);
//!     println!("passed on: {:?}", unlocked.resolved[0].outcome);
//!     Ok(())
//! }
//! ```

mod claim;
mod command;
mod deadlock_search;
mod event;
mod format;
mod index;
mod lease;
mod listing;
mod lock;
mod note;
mod owners;
mod planted;
mod register;
mod reply;
mod requests;
mod ring;
mod sizes;
mod slab;
mod state;
mod view;
mod watch;
mod watch_index;

pub use command::{
    AckLeaseEnd, AcquireLock, AddStub, Against, CancelTarget, CancelWait, Command, Compare, ConfirmStub,
    ConvertLock, EndDeadlock, EndStub, Entry, ForceRelease, GrantLease, KeySelector, LeaseChoice, Op,
    Proclaim, RangeQuery, RegisterStub, Relation, ReleaseBy, ReleaseLock, RenewLeases, Renewal, Request,
    RevokeLease, Sort, Txn, Wait,
};
pub use deadlock_search::{BlockedBy, BlockedWait, Blocker, Victim, WaitEdges, Who, find_deadlocks};
pub use event::{Change, ClaimState, Event, LockChange, RegisterChange, RegisterState, claim_key};
pub use format::snapshot::{SNAPSHOT_FORMAT_VERSION, Snapshot, SnapshotError, SnapshotReader};
pub use format::{
    DecodeError, ENTRY_FORMAT_VERSION, RENEWALS_MAX, Reader, TXN_STEPS_MAX, Writer, decode_entry,
    encode_command, encode_entry,
};
pub use note::{Note, Noted, Noting};
#[cfg(feature = "planted-bugs")]
pub use planted::Bug;
pub use reply::{
    Applied, CycleStep, EndReason, EndedLease, Kind, LeaseEnd, OpResult, Rejection, RejectionCode, Renewed,
    Reply, Resolution, WaitOutcome,
};
pub use ring::{Compacted, EventBatch};
pub use state::{APPLY_VERSION_SUPPORTED, ResumeError, STUB_GROUPS_MAX, State};
pub use view::{
    Closed, HolderView, LeaseClaim, LeaseView, LockView, RegisterView, StubView, UnackedEnd, WaitView,
    WaiterView,
};
pub use watch::Watch;
pub use watch_index::WatchIndex;
