//! Target and filters of a watch.

use crate::bad_field::{BadField, SizeLimit};
use crate::convert::choice::known;
use crate::convert::number::read_lease_id;
use crate::convert::text::{check_prefix, read_key, read_name, read_name_prefix};
use crate::v1::WatchFilter;
use crate::v1::watch_request::Target;
use tollgate_types::{Key, LeaseId, Name};

/// Target of a watch. Locks and registers are separate spaces: a prefix selects from one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchTarget {
    /// Everything.
    All,
    /// The lock with this name.
    Lock(Name),
    /// All locks whose name begins with this prefix; all locks if it is empty.
    LockPrefix(String),
    /// All holders and waiters with this lease.
    Lease(LeaseId),
    /// The register with this key.
    Register(Key),
    /// All registers whose key begins with these bytes; all registers if it is empty.
    RegisterPrefix(Vec<u8>),
}

/// Reads the field `target`; everything if it is not set.
pub fn read_watch_target(target: Option<&Target>) -> Result<WatchTarget, BadField> {
    Ok(match target {
        None => WatchTarget::All,
        Some(Target::Key(name)) => WatchTarget::Lock(read_name("key", name)?),
        Some(Target::Prefix(prefix)) => {
            WatchTarget::LockPrefix(read_name_prefix("prefix", prefix)?.to_owned())
        }
        Some(Target::LeaseId(lease)) => WatchTarget::Lease(read_lease_id("lease_id", *lease)?),
        Some(Target::RegisterKey(key)) => WatchTarget::Register(read_key("register_key", key)?),
        Some(Target::RegisterPrefix(prefix)) => {
            check_prefix("register_prefix", prefix, SizeLimit { name: Key::LIMIT, max: Key::BYTES_MAX })?;
            WatchTarget::RegisterPrefix(prefix.clone())
        }
    })
}

/// Events that a watch leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WatchFilters {
    /// True to leave out PUT events.
    pub no_put: bool,
    /// True to leave out DELETE events.
    pub no_delete: bool,
    /// True to leave out waiting claims.
    pub no_waiters: bool,
}

/// Reads the field `filters`, which may have any order and any number of elements.
pub fn read_watch_filters(field: &'static str, filters: &[i32]) -> Result<WatchFilters, BadField> {
    let mut out = WatchFilters::default();
    for &filter in filters {
        match known(field, filter)? {
            WatchFilter::Unspecified => {}
            WatchFilter::NoPut => out.no_put = true,
            WatchFilter::NoDelete => out.no_delete = true,
            WatchFilter::NoWaiters => out.no_waiters = true,
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_follows_one_thing_a_prefix_or_everything() {
        let read = |target| read_watch_target(Some(&target)).unwrap();
        assert_eq!(read_watch_target(None), Ok(WatchTarget::All));
        assert_eq!(read(Target::Key("jobs".into())), WatchTarget::Lock(Name::new("jobs").unwrap()));
        assert_eq!(read(Target::Prefix(String::new())), WatchTarget::LockPrefix(String::new()));
        assert_eq!(read(Target::LeaseId(7)), WatchTarget::Lease(LeaseId::new(7).unwrap()));
        assert_eq!(read(Target::RegisterKey(vec![0])), WatchTarget::Register(Key::new([0]).unwrap()));
        assert_eq!(read(Target::RegisterPrefix(vec![1])), WatchTarget::RegisterPrefix(vec![1]));
    }

    #[test]
    fn a_watch_on_what_can_not_be_is_refused() {
        let field_of = |target| read_watch_target(Some(&target)).unwrap_err().field;
        assert_eq!(field_of(Target::Key(String::new())), "key");
        assert_eq!(field_of(Target::Prefix("x".repeat(513))), "prefix");
        assert_eq!(field_of(Target::LeaseId(0)), "lease_id");
        assert_eq!(field_of(Target::LeaseId(u64::MAX)), "lease_id");
        assert_eq!(field_of(Target::RegisterKey(vec![])), "register_key");
        assert_eq!(field_of(Target::RegisterPrefix(vec![0; 513])), "register_prefix");
    }

    #[test]
    fn filters_add_up() {
        let numbers = [WatchFilter::NoPut, WatchFilter::NoPut, WatchFilter::NoWaiters].map(i32::from);
        let filters = read_watch_filters("filters", &numbers).unwrap();
        assert_eq!(filters, WatchFilters { no_put: true, no_delete: false, no_waiters: true });
        assert_eq!(read_watch_filters("filters", &[9]).unwrap_err().field, "filters");
    }
}
