//! State kept for an operation while it is in flight: enough to word its answer, repeat it and cancel it.
//!
//! Not here: the translation of requests (`lock`, `lease`, `register`, `election`), and the results of reads (`query`).

use super::error::{crowded, error_of_propose, error_of_read, hung_up, left_waiting, unexpected};
use super::lock_answer::RequestInfo;
use super::rejection::{error_of_rejection, nothing_was_held};
use super::{lease, lock_answer, register};
use tollgate_core::{EndReason, Rejection, Reply, WaitOutcome};
use tollgate_node::{Answer, Consistency};
use tollgate_proto::v1::{self, operation_result::Result as Wire};
use tollgate_proto::{BadField, convert};
use tollgate_types::{
    Address, ClusterId, GroupId, LeaseId, Lineage, Name, Names, NodeId, Owner, Reason, Revision, Seq, Token,
};

/// Contents of a response header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderInfo {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node that answers; none on a gateway.
    pub node: Option<NodeId>,
    /// The group whose state the answer reflects.
    pub group: GroupId,
    /// The group's revision, for answers that don't carry one.
    pub revision: Revision,
    /// The group's term, as far as the node knows.
    pub term: u64,
    /// The cluster's lineage, if the node knows it.
    pub lineage: Option<Lineage>,
}

impl HeaderInfo {
    /// Returns the header of an answer as of `revision`.
    pub fn at(&self, revision: Revision) -> Option<v1::Header> {
        let HeaderInfo { cluster, node, group, term, lineage, .. } = *self;
        Some(convert::write_header(cluster, node, group, revision, term, lineage))
    }
}

/// State needed to word the answer to an operation.
#[derive(Debug, Clone)]
pub struct Context {
    group: GroupId,
    about: About,
}

/// A release forced by an operator, with what is logged about it.
#[derive(Debug, Clone)]
pub struct ForcedRelease {
    /// The lock.
    pub name: Name,
    /// Token of the grant that the release ends.
    pub token: Token,
    /// The operator's reason.
    pub reason: Reason,
    /// Address of the client that ordered the release.
    pub from: Address,
}

/// Facts about an operation, by its kind.
#[derive(Debug, Clone)]
pub(super) enum About {
    /// A lock, try-lock, convert or campaign: an operation that may wait.
    Lock(RequestInfo),
    Unlock {
        lease: Option<LeaseId>,
        seq: Option<Seq>,
    },
    CancelWait {
        lease: LeaseId,
        /// True if a second cancel has no further effect. A cancel that names no request could give back a grant that
        /// was made after the first cancel.
        repeats: bool,
    },
    ForceRelease(Box<ForcedRelease>),
    GetLock {
        name: Name,
        consistency: Consistency,
    },
    LeaseGrant {
        /// The lease's id, if the client chose it.
        chosen: Option<LeaseId>,
        /// True if a second grant by the same client would renew the lease.
        repeats: bool,
    },
    LeaseRevoke(LeaseId),
    KeepAlive {
        lease: LeaseId,
        seq: u64,
    },
    LeaseTimeToLive {
        lease: LeaseId,
        /// True if the claims of the lease are to be listed.
        keys: bool,
    },
    /// A put, delete or transaction.
    Write {
        form: register::Form,
        lease: Option<LeaseId>,
        seq: Option<Seq>,
    },
    Get,
    Range,
    Leader,
    Proclaim {
        lease: LeaseId,
        seq: Option<Seq>,
    },
    Resign {
        lease: Option<LeaseId>,
        seq: Option<Seq>,
    },
}

/// A reply, and the facts needed to word it.
pub(super) struct Replied<'a> {
    pub(super) group: GroupId,
    pub(super) revision: Revision,
    pub(super) reply: Reply,
    pub(super) header: &'a HeaderInfo,
    /// Revision and position at which the operation joined the queue, if it did.
    pub(super) queued: Option<(Revision, u64)>,
    pub(super) waited_ms: i64,
    /// The operation's seq in its lease, if it has one.
    pub(super) seq: Option<Seq>,
}

impl Context {
    pub(super) fn new(group: GroupId, about: About) -> Context {
        Context { group, about }
    }

    pub(super) fn about(&self) -> &About {
        &self.about
    }

    /// Returns the group that is asked.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Words the answer for the wire. `queued` is the revision and position at which the operation joined the queue, if
    /// it did, and `waited_ms` the time since then. An [`Answer::Queued`] is not final; every other answer is.
    ///
    /// Two things are left to the caller: `renewed` ([`Context::held_already`]), and the holders of a lock for which a
    /// wait timed out, which take another read.
    pub fn finish(
        &self,
        answer: Answer,
        header: &HeaderInfo,
        queued: Option<(Revision, u64)>,
        waited_ms: i64,
    ) -> Wire {
        let waited_ms = if queued.is_some() { waited_ms } else { 0 };
        let replied = |revision, reply, queued| {
            let (group, seq) = (self.group, self.seq());
            self.replied(Replied { group, revision, reply, header, queued, waited_ms, seq })
        };
        match answer {
            Answer::Replied { revision, reply, .. } | Answer::Busy { revision, reply } => {
                replied(revision, reply, queued)
            }
            Answer::Resolved { create_revision, revision, outcome } => {
                let position = queued.map_or(0, |(_, position)| position);
                replied(revision, resolved(create_revision, outcome), Some((create_revision, position)))
            }
            Answer::Queued { create_revision, position } => {
                Wire::Queued(v1::Queued { position, create_revision: create_revision.get() })
            }
            Answer::Renewed { revision, renewed } => match &self.about {
                About::KeepAlive { seq, .. } => lease::kept_alive(renewed, *seq, header, revision),
                _ => Wire::Error(unexpected("renewed")),
            },
            Answer::NotRead { error, .. } => Wire::Error(error_of_read(&error)),
            Answer::AskAgain { group, leader } => Wire::Error(left_waiting(group, leader)),
            Answer::Crowded { group } => Wire::Error(crowded(group)),
            Answer::Left => Wire::Error(hung_up(self.group)),
            Answer::NotDone(error) => Wire::Error(error_of_propose(&error, self.may_repeat())),
            Answer::MayRead { .. } => Wire::Error(unexpected("a read that was not carried out")),
            Answer::Members(_) => Wire::Error(unexpected("members")),
            Answer::Events { .. } | Answer::Compacted { .. } => Wire::Error(unexpected("watch")),
        }
    }

    /// Returns the release that the operation forces, if any.
    pub(crate) fn forced_release(&self) -> Option<&ForcedRelease> {
        match &self.about {
            About::ForceRelease(forced) => Some(forced),
            _ => None,
        }
    }

    /// Words a reply: the only place that branches on the kind of operation on the way back.
    fn replied(&self, replied: Replied<'_>) -> Wire {
        if let Some(error) = refusal(&self.about, &replied) {
            return Wire::Error(error);
        }
        match &self.about {
            About::Lock(asked) => lock_answer::locked(asked, replied),
            About::Unlock { .. } => lock_answer::unlocked(&replied),
            About::Resign { .. } => lock_answer::resigned(&replied),
            About::Proclaim { .. } => lock_answer::proclaimed(&replied),
            About::ForceRelease(_) => lock_answer::force_released(&replied),
            About::CancelWait { .. } => lock_answer::wait_cancelled(&replied),
            About::LeaseGrant { .. } => lease::granted(&replied),
            About::LeaseRevoke(_) => lease::revoked(&replied),
            About::Write { form, .. } => register::written(*form, replied),
            About::KeepAlive { .. }
            | About::GetLock { .. }
            | About::LeaseTimeToLive { .. }
            | About::Get
            | About::Range
            | About::Leader => replied.does_not_fit(),
        }
    }

    /// Returns true if the operation may safely be sent again after an unknown outcome: its repeat is recognized by its
    /// seq, or has no further effect.
    pub fn may_repeat(&self) -> bool {
        match &self.about {
            About::Unlock { seq, .. }
            | About::Resign { seq, .. }
            | About::Proclaim { seq, .. }
            | About::Write { seq, .. } => seq.is_some(),
            About::ForceRelease(_) => false,
            About::LeaseGrant { repeats, .. } | About::CancelWait { repeats, .. } => *repeats,
            About::Lock(_)
            | About::GetLock { .. }
            | About::LeaseRevoke(_)
            | About::KeepAlive { .. }
            | About::LeaseTimeToLive { .. }
            | About::Get
            | About::Range
            | About::Leader => true,
        }
    }

    /// Returns true if the operation may wait in a queue.
    pub fn may_wait(&self) -> bool {
        matches!(&self.about, About::Lock(asked) if asked.waits)
    }

    /// Returns the cancel that gives back a grant after the operation's only caller has gone; none unless the operation
    /// can wait in a queue and has a seq. The cancel goes to the same group, and leaves a request alone that was sent
    /// more than once.
    ///
    /// Without a seq nothing distinguishes a grant from one that its owner held before it asked again. A convert is
    /// never cancelled this way, because its owner keeps what it holds.
    pub fn cancel(&self) -> Option<v1::CancelWaitRequest> {
        let About::Lock(asked) = &self.about else { return None };
        let seq = asked.seq.filter(|_| asked.waits && !asked.is_convert())?.get();
        let (lease_id, name) = (asked.lease.get(), asked.first_name().to_string());
        let (release_if_granted, asked_at_most) = (true, 1);
        Some(v1::CancelWaitRequest {
            lease_id,
            seq,
            name,
            release_if_granted,
            asked_at_most,
            ..Default::default()
        })
    }

    /// Returns true if the owner held the lock already according to the answer: its lease should then be renewed along
    /// with it.
    pub fn held_already(&self, answer: &Answer) -> bool {
        let locks = matches!(&self.about, About::Lock(asked) if !asked.is_convert());
        locks && matches!(answer, Answer::Replied { changed: false, reply: Reply::Acquired { .. }, .. })
    }

    /// Returns the waiter and the names that it waits for, if the operation can wait for a lock.
    pub(crate) fn waits_for(&self) -> Option<(LeaseId, &Owner, &Names)> {
        match &self.about {
            About::Lock(asked) => Some((asked.lease, &asked.owner, &asked.names)),
            _ => None,
        }
    }

    /// Returns the query that finds the holders in the way, if the operation can wait for a lock.
    pub fn holders_query(&self) -> Option<super::Query> {
        match &self.about {
            About::Lock(asked) => Some(super::Query::Lock(asked.first_name().clone())),
            _ => None,
        }
    }

    /// Returns the consistency that a read of one lock requires; linearizable for any other operation.
    pub(crate) fn consistency(&self) -> Consistency {
        match &self.about {
            About::GetLock { consistency, .. } => *consistency,
            _ => Consistency::Linearizable,
        }
    }

    /// Returns true if the operation asks for the list of a lease's claims.
    pub(crate) fn wants_keys(&self) -> bool {
        matches!(&self.about, About::LeaseTimeToLive { keys: true, .. })
    }

    /// Returns the lease that makes the request, or that the request is about.
    pub fn lease(&self) -> Option<LeaseId> {
        match &self.about {
            About::Lock(asked) => Some(asked.lease),
            About::CancelWait { lease, .. }
            | About::LeaseRevoke(lease)
            | About::KeepAlive { lease, .. }
            | About::Proclaim { lease, .. }
            | About::LeaseTimeToLive { lease, .. } => Some(*lease),
            About::Unlock { lease, .. }
            | About::Resign { lease, .. }
            | About::Write { lease, .. }
            | About::LeaseGrant { chosen: lease, .. } => *lease,
            About::ForceRelease(_) | About::GetLock { .. } | About::Get | About::Range | About::Leader => {
                None
            }
        }
    }

    /// Returns the lease that the group must know, for operations that attach something to it. Operations that end or
    /// change such a thing get a correct answer even from a group that has never heard of the lease.
    pub fn needs_lease(&self) -> Option<LeaseId> {
        match &self.about {
            About::Lock(asked) => Some(asked.lease).filter(|_| !asked.is_convert()),
            About::Write { lease, .. } => *lease,
            // A cancel of a request that has not arrived yet leaves a note, which is attached to the lease.
            About::CancelWait { lease, repeats: true } => Some(*lease),
            _ => None,
        }
    }

    /// Returns the operation's seq in its lease, if it has one.
    pub fn seq(&self) -> Option<Seq> {
        match &self.about {
            About::Lock(asked) => asked.seq,
            About::Unlock { seq, .. }
            | About::Resign { seq, .. }
            | About::Proclaim { seq, .. }
            | About::Write { seq, .. } => *seq,
            _ => None,
        }
    }
}

/// Converts the end of a wait to the reply that would have told the same.
fn resolved(create_revision: Revision, outcome: WaitOutcome) -> Reply {
    match outcome {
        WaitOutcome::Granted { token, mode } => Reply::Acquired { token, create_revision, mode },
        WaitOutcome::Ended(reason) => Reply::Ended { token: None, reason },
    }
}

/// Returns the error of a reply that is a refusal for every kind of operation.
fn refusal(about: &About, replied: &Replied<'_>) -> Option<v1::Error> {
    match (&replied.reply, about) {
        // The answer to a cancel of a refused request is worded in `lock_answer`.
        (Reply::Rejected(Rejection::RejectedBefore { .. }), About::CancelWait { .. }) => None,
        (
            Reply::Rejected(rejection @ Rejection::NotHeld { .. }),
            About::Unlock { .. } | About::Resign { .. } | About::ForceRelease(_),
        ) => Some(nothing_was_held(rejection, replied.group)),
        (Reply::Rejected(rejection), _) => Some(error_of_rejection(rejection, replied.group)),
        (
            Reply::Ended { token: None, reason: EndReason::Cancelled },
            About::Unlock { .. } | About::Write { .. } | About::Resign { .. } | About::Proclaim { .. },
        ) => Some(cancelled_before(replied.group)),
        _ => None,
    }
}

/// Returns the error for a request that arrives after its seq was cancelled.
fn cancelled_before(group: GroupId) -> v1::Error {
    let says = "the request was cancelled before it arrived, and has had no effect: send it with a new seq if it is \
                still wanted";
    let error = v1::Error::new(v1::ErrorReason::Cancelled, says);
    v1::Error { may_have_happened: false, group_id: group.number(), ..error }
}

impl Replied<'_> {
    pub(super) fn head(&self) -> Option<v1::Header> {
        self.header.at(self.revision)
    }

    /// Returns the error for a reply to another kind of request: the seq was used twice, or there is a bug in this
    /// module.
    pub(super) fn does_not_fit(&self) -> Wire {
        Wire::Error(match self.seq {
            Some(seq) => {
                let says =
                    format!("request {seq} of the lease was another one: give each request a seq of its own");
                v1::Error { group_id: self.group.number(), ..BadField::new("request.seq", says).into() }
            }
            None => unexpected("reply"),
        })
    }
}
