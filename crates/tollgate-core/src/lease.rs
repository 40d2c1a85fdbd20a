//! A lease: a deadline that its client keeps moving, and all that ends with the lease.
//!
//! A lease lives in one group, its home. A group that has claims of a lease without being its home has a *stub* of it:
//! the same record, without a deadline until the home says that the lease has ended.

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
    /// Revision of this group at which the record was made; it identifies the record. For a stub it is not the lease's
    /// own incarnation, which is a revision of another group ([`Stub::incarnation`]).
    pub(crate) incarnation: Revision,
    pub(crate) ttl: DurationMs,
    pub(crate) deadline: LogTime,
    /// Reason for the lease's end, valid once the deadline has come.
    pub(crate) end_reason: EndReason,
    pub(crate) client_id: ClientId,
    pub(crate) address: Address,
    pub(crate) last_seen: LogTime,
    pub(crate) revoke_on_disconnect: bool,
    pub(crate) requests: Requests,
    /// Seqs below this may have been used in groups with stubs of the lease, though this group has not seen them.
    pub(crate) seqs_from: u64,
    pub(crate) residence: Residence,

    // Derived, rebuilt on load: the lease's claims as a list in order of creation.
    pub(crate) oldest: Option<Id<Claim>>,
    pub(crate) youngest: Option<Id<Claim>>,
    pub(crate) claims: u32,
    /// True if the lease's owners are counted in `owners`, because there are too many claims to walk.
    pub(crate) counted: bool,
}

/// Home of a lease, as seen from this group.
#[derive(Clone)]
pub(crate) enum Residence {
    /// This group is the home, and no other group has a stub.
    Here,
    /// This group is the home, and these groups must be told of the lease's end. Sorted, never empty.
    HereAndStubs(Arc<[GroupId]>),
    /// Another group is the home.
    Elsewhere(Stub),
}

/// The fields that only a stub has.
#[derive(Clone, Copy)]
pub(crate) struct Stub {
    pub(crate) home: GroupId,
    /// Revision of the home group at which the lease was granted.
    pub(crate) incarnation: Revision,
    /// True until the home has confirmed that the lease lives.
    pub(crate) pending: bool,
}

impl Lease {
    pub(crate) fn stub(&self) -> Option<Stub> {
        if let Residence::Elsewhere(stub) = self.residence { Some(stub) } else { None }
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.stub().is_some_and(|stub| stub.pending)
    }

    /// The groups that must be told of the lease's end.
    pub(crate) fn groups(&self) -> &[GroupId] {
        if let Residence::HereAndStubs(groups) = &self.residence { groups } else { &[] }
    }

    /// Revision of the home group at which the lease was granted: the incarnation that clients and other groups know.
    pub(crate) fn home_incarnation(&self) -> Revision {
        self.stub().map_or(self.incarnation, |stub| stub.incarnation)
    }

    pub(crate) fn stub_view(&self) -> Option<StubView> {
        let Stub { home, incarnation, pending } = self.stub()?;
        Some(StubView { lease: self.id, incarnation, home, added: self.incarnation, pending })
    }
}

/// An ended lease of this group, kept until every group with a stub of it has ended that stub.
#[derive(Clone)]
pub(crate) struct Unacked {
    pub(crate) lease: LeaseId,
    pub(crate) incarnation: Revision,
    pub(crate) reason: LeaseEnd,
    /// Groups that have not answered. Sorted, never empty.
    pub(crate) groups: Arc<[GroupId]>,
}
