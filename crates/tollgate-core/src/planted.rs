//! Bugs planted on purpose, to prove that the tests can fail.
//!
//! With the feature `planted-bugs`, a test switches one on in one state at run time. Without it, every question "is
//! this bug planted?" is a constant `false`, and nothing of them is left in the code.

#![cfg_attr(not(feature = "planted-bugs"), allow(dead_code, unreachable_pub))]

/// The bug that is planted in a state, if any. Takes no room in a shipped binary.
#[derive(Clone, Copy, Default)]
pub(crate) struct Planted {
    #[cfg(feature = "planted-bugs")]
    bug: Option<Bug>,
}

impl Planted {
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn plant(&mut self, bug: Bug) {
        self.bug = Some(bug);
    }

    /// Whether it is this one: always false in a shipped binary.
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn is(self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    #[cfg(not(feature = "planted-bugs"))]
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        clippy::unused_self,
        reason = "a constant that takes the planted code with it"
    )]
    pub(crate) fn is(self, _: Bug) -> bool {
        false
    }
}

macro_rules! bugs {
    ($($(#[$doc:meta])* $bug:ident: $says:literal,)*) => {
        /// One planted bug.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Bug {
            $(#[doc = $says] $bug,)*
        }

        impl Bug {
            /// All of them.
            pub const ALL: &'static [Bug] = &[$(Bug::$bug,)*];

            /// What goes wrong, in a sentence.
            pub const fn says(self) -> &'static str {
                match self { $(Bug::$bug => $says,)* }
            }
        }
    };
}

bugs! {
    DeadWaiterGranted: "a waiter whose lease has ended is granted the lock",
    DeadHolderStays: "a command sees a holder whose lease has ended but is not reaped yet",
    ReaderOvertakesWriter: "a reader joins other readers although a writer waits",
    TokenReusedAfterSelfDeletion: "a lock that deleted itself hands out a token again",
    StaleReleaseAccepted: "a release with a stale token frees the lock",
    RenewOfEndedLease: "a renewal revives a lease that has ended",
    UpgradeReturnsWeakGrant: "a re-entrant request for a stronger mode gets the weak grant",
    TombstoneForgotten: "a lock request that was cancelled before it came is granted to nobody",
    RepeatRunsAgain: "a repeated request runs a second time",
    AckedSeqRunsAgain: "a delayed duplicate of an acknowledged request runs",
    OutcomesLostInSnapshot: "a snapshot forgets the kept outcomes",
    QueueLostInSnapshot: "a snapshot forgets who waits",
    LockDelayIgnored: "a lock is granted before its lock-delay is over",
    LockDelayAfterRelease: "a voluntary release closes the lock as well",
    LockDelayFromReaping: "a lock-delay counts from the reaping, not from the end",
    MaxHoldForgotten: "a grant outlives its max hold",
    WaitDeadlineForgotten: "a waiter waits past its deadline",
    PermitsOverdrawn: "a semaphore gives out one permit too many",
    UpgradeBehindQueue: "an upgrade waits behind other waiters",
    UpgradeSurvivesLostName: "an upgrade is granted although its claim has lost one of the names it was asked for",
    DowngradeWakesNobody: "a downgrade does not wake those it makes room for",
    BatchGrantStops: "a release grants one reader where it should grant all in front",
    NewestWaiterFirst: "the newest waiter is granted first",
    DeadlockIgnoresQueue: "the search for deadlocks looks at holders only",
    ForceTakesAnyHolder: "a forced release with a stale token takes the lock from its present holder",
    RenewalExtendsDeadline: "a renewal adds to the old deadline instead of counting from now",
    SeveralNamesByFirst: "a request for several names is granted when the first is free",
    RingSplitsRevision: "the history drops half of a revision",
    RegisterOutlivesLease: "a register is read after its lease has ended",
    EndedIdRevived: "a granted id revives the old lease that still waits to be reaped",
    ExpiryOneEarly: "a lease ends one millisecond before its deadline",
    LimitOneTooMany: "a limit lets one too many through",
    ExpiryOneLate: "a lease lives one millisecond past its deadline",
    PendingStubUsed: "a lock is granted on a stub that the lease's home has not confirmed",
    StubEndIgnoresIncarnation: "the end of an earlier lease with the same id ends the stub of the present one",
    StubEndForgetsWaiters: "the waiters of a stub that ended are never told",
    StubConfirmedByOldAnswer: "a home's answer about an earlier stub confirms the one that was added since",
    NewerStubTakesOver: "a lease granted anew takes over the claims on the stub of its predecessor",
    EndedLeaseRegistered: "a group is registered with a lease that has ended",
    UnackedEndsLostInSnapshot: "a snapshot forgets which groups must be told of a lease's end",
    WaitsJamTheirLease: "requests that wait count as operations in flight: a holder that waits elsewhere can't unlock",
    AsksNotCounted: "one caller that goes takes the wait, or the lock, of another that asked for the same",
    OneAckForAll: "the first group that acknowledges a lease's end acknowledges it for all",
}
