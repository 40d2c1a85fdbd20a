//! Tollgate's vocabulary as types: names, ids, tokens, times, modes, limits, slots.
//!
//! Every constructor validates, and its error says which rule the value broke; a value that exists is valid and is not
//! checked again. Two variants can be built without their constructor, and must not be: `Mode::Permit` is made by
//! [`Mode::permit`], `Names::Many` by [`Names::new`]. Not here: what the values mean together (`tollgate-core`), how
//! they are encoded (`tollgate-proto`).
//!
//! ```
//! use tollgate_types::{Name, Slot};
//!
//! let name = Name::new("db/migrate")?;
//! assert_eq!(name.slot(), Slot::of(b"db/migrate"));
//! assert_eq!(Name::new("").unwrap_err().to_string(), "name is empty: give it at least one byte");
//! # Ok::<(), tollgate_types::Invalid>(())
//! ```

mod bytes;
mod escaped;
mod group;
mod group_map;
mod invalid;
mod lease_id;
mod limits;
mod mode;
mod names;
mod node;
mod planted;
mod revision;
mod seq;
mod slot;
mod text;
mod time;

pub use escaped::{Escaped, escaped};
pub use group::GroupId;
pub use group_map::{GROUPS_MAX, GroupMap, SlotRange};
pub use invalid::Invalid;
pub use lease_id::LeaseId;
pub use limits::{Limit, Limits};
pub use mode::Mode;
pub use names::{NAMES_MAX, Names};
pub use node::{ClusterId, DiskId, Lineage, NodeId};
pub use revision::{REVISION_END, Revision, Token};
pub use seq::{SEQ_RANGES_MAX, Seq, SeqRanges};
pub use slot::{SLOTS, Slot};
pub use text::{Address, ClientId, HostPort, Key, Metadata, Name, Owner, Reason, Value, Zone};
pub use time::{DurationMs, LogTime, WallTime};
