//! Decides who holds each lock, and nothing else.
//!
//! [`State::apply`] is a pure function of (state, entry): time arrives inside the entry, randomness and IO never.
//! Every replica that applies the same entries has the same state, the same revisions and the same
//! [`Snapshot::hash`]. What each command does is written down in `docs/semantics.md`; `ARCHITECTURE.md` has the map
//! of the files.
//!
//! Not here: replication, clocks, sockets, waking callers.

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod claim;
mod command;
mod event;
mod format;
mod index;
mod lease;
mod listing;
mod lock;
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
    ConvertLock, EndStub, Entry, ForceRelease, GrantLease, KeySelector, LeaseChoice, Op, RangeQuery,
    RegisterStub, Relation, ReleaseBy, ReleaseLock, RenewLeases, Renewal, Request, RevokeLease, Sort, Txn,
    Wait,
};
pub use event::{Change, ClaimState, Event, LockChange, RegisterChange, RegisterState, claim_key};
pub use format::snapshot::{SNAPSHOT_FORMAT_VERSION, Snapshot, SnapshotError, SnapshotReader};
pub use format::{
    DecodeError, ENTRY_FORMAT_VERSION, RENEWALS_MAX, Reader, TXN_STEPS_MAX, Writer, decode_entry,
    encode_entry,
};
#[cfg(feature = "planted-bugs")]
pub use planted::Bug;
pub use reply::{
    Applied, CycleStep, EndReason, EndedLease, Kind, LeaseEnd, OpResult, Rejection, RejectionCode, Renewed,
    Reply, Resolution, WaitOutcome,
};
pub use ring::{Compacted, EventBatch};
pub use state::{APPLY_VERSION_SUPPORTED, STUB_GROUPS_MAX, State};
pub use view::{
    HolderView, LeaseClaim, LeaseView, LockView, RegisterView, StubView, UnackedEnd, WaitView, WaiterView,
};
pub use watch::Watch;
pub use watch_index::WatchIndex;
