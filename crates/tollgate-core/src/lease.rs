//! A lease: a deadline that its client keeps moving, and all that ends with it.
//!
//! A lease lives in one group, its home. A group where it has claims without living there has a *stub* of it: the same
//! record, without a deadline until the home says that the lease has ended.

use crate::claim::Claim;
use crate::reply::{EndReason, LeaseEnd};
use crate::requests::Requests;
use crate::slab::Id;
use crate::view::StubView;
use std::sync::Arc;
use tollgate_types::{Address, ClientId, DurationMs, GroupId, LeaseId, LogTime, Revision};

#[derive(Clone)]
pub(crate) struct Lease {
    pub(crate) id: LeaseId,
    /// The revision of this group at which the record was made: by it the record is known. For a stub it is not the
    /// lease's own incarnation, which is a revision of another group ([`Stub::incarnation`]).
    pub(crate) incarnation: Revision,
    pub(crate) ttl: DurationMs,
    pub(crate) deadline: LogTime,
    /// How it ends, or ended, once the deadline has come.
    pub(crate) end_reason: EndReason,
    pub(crate) client_id: ClientId,
    pub(crate) address: Address,
    pub(crate) last_seen: LogTime,
    pub(crate) revoke_on_disconnect: bool,
    pub(crate) requests: Requests,
    /// Seqs below this may have been used in groups with stubs of it, though this one has not seen them.
    pub(crate) seqs_from: u64,
    pub(crate) residence: Residence,

    // Derived, rebuilt on load: its claims as a list in order of creation.
    pub(crate) oldest: Option<Id<Claim>>,
    pub(crate) youngest: Option<Id<Claim>>,
    pub(crate) claims: u32,
    /// Whether its owners are counted in `owners`, because there are too many claims to walk.
    pub(crate) counted: bool,
}

/// Where a lease lives, as seen from this group.
#[derive(Clone)]
pub(crate) enum Residence {
    /// Here, and nowhere else is a stub of it.
    Here,
    /// Here, and these groups must be told of its end. Sorted, never empty.
    HereAndStubs(Arc<[GroupId]>),
    /// In another group.
    Elsewhere(Stub),
}

/// What a stub has beside a lease.
#[derive(Clone, Copy)]
pub(crate) struct Stub {
    pub(crate) home: GroupId,
    /// The revision, in the home, at the lease's grant.
    pub(crate) incarnation: Revision,
    /// Whether the home has yet to confirm that the lease lives.
    pub(crate) pending: bool,
}

impl Lease {
    pub(crate) fn stub(&self) -> Option<Stub> {
        if let Residence::Elsewhere(stub) = self.residence { Some(stub) } else { None }
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.stub().is_some_and(|stub| stub.pending)
    }

    /// The groups that must be told of its end.
    pub(crate) fn groups(&self) -> &[GroupId] {
        if let Residence::HereAndStubs(groups) = &self.residence { groups } else { &[] }
    }

    /// The revision at its grant, in its home: by which the world knows it.
    pub(crate) fn home_incarnation(&self) -> Revision {
        self.stub().map_or(self.incarnation, |stub| stub.incarnation)
    }

    pub(crate) fn stub_view(&self) -> Option<StubView> {
        let Stub { home, incarnation, pending } = self.stub()?;
        Some(StubView { lease: self.id, incarnation, home, added: self.incarnation, pending })
    }
}

/// A lease of this group that has ended, until every group with a stub of it has ended that.
#[derive(Clone)]
pub(crate) struct Unacked {
    pub(crate) lease: LeaseId,
    pub(crate) incarnation: Revision,
    pub(crate) reason: LeaseEnd,
    /// Those that have not answered. Sorted, never empty.
    pub(crate) groups: Arc<[GroupId]>,
}
