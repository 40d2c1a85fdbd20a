//! Conversions between fields of messages and the types of `tollgate-types`.
//!
//! A reader takes the name of the field and its value; the result needs no further check. Where several fields together
//! have one meaning (`name` and `names`, `mode` with `permits` and `of`), one reader takes them all and knows which of
//! them to blame. A writer can't fail. Not here: limits in force, which only the state knows.

mod cancel;
mod choice;
mod header;
mod lease;
mod limits;
mod mode;
mod names;
mod number;
mod register;
mod release;
mod request;
mod text;
mod time;
mod watch;

pub use cancel::{CancelTarget, read_cancel_target};
pub use choice::{read_consistency, read_relation, read_sort};
pub use header::write_header;
pub use lease::{LeaseChoice, read_lease_choice};
pub use limits::{ToldLimits, read_limits, write_limits};
pub use mode::{ModeFields, read_mode, write_mode};
pub use names::{read_names, read_no_tree, write_names};
pub use number::{
    read_group_id, read_lease_id, read_lease_id_or_none, read_node_id, read_node_id_or_none, read_revision,
    read_seq, read_token, read_token_or_none, write_lease_id, write_token,
};
pub use register::{Against, Compare, KeySelector, TxnOp, read_compare, read_key_selector, read_txn_op};
pub use release::{Release, read_release};
pub use request::{RequestIdentity, read_request, read_seq_ranges, write_request, write_seq_ranges};
pub use text::{
    MetadataFields, metadata_fields_len, read_address, read_client_id, read_key, read_metadata, read_name,
    read_name_prefix, read_owner, read_reason, read_value, write_metadata,
};
pub use time::{
    Wait, read_duration, read_duration_or_none, read_ttl, read_wait, write_duration, write_remaining,
    write_seconds, write_wait,
};
pub use watch::{WatchFilters, WatchTarget, read_watch_filters, read_watch_target};
