//! Bugs planted on purpose in the node, the server and the binary, to prove that their tests can fail.
//!
//! With the feature `planted-bugs`, the variable `TOLLGATE_BUG` names the bug that this process has, so that the
//! processes started by a test have it as well; without the feature the variable is ignored, and every question "is
//! this bug planted?" is a constant `false`. `make mutants-node` runs, for each bug, the test that must catch it.

#![cfg_attr(not(feature = "planted-bugs"), allow(dead_code))]

tollgate_types::planted_bugs! {
    AckBeforeFsync: "the driver is told that a write is durable before it is",
    FailedWriteTaken: "a write that failed counts as durable",
    FrameSenderUnchecked: "a frame counts as the word of whom it names, whoever sent it",
    OtherClusterAccepted: "a node of another cluster is listened to",
    OtherDiskAccepted: "a node that comes with another disk than it had is listened to",
    FoundedAnewGoesOn: "a node goes on though a peer knows it by another disk",
    RemovedByAnybody: "a node believes that it was removed, whoever says so",
    RemovedHeard: "a node that was removed is listened to as before",
    NewcomerNotDialled: "a member that was added while the node runs is not dialled",
    TakesPartAtOnce: "a first member takes part before the others know its disk",
    InboxUnbounded: "what comes from outside has no limit",
    StaleReads: "a linearizable read is answered from memory",
    KeepaliveAtOnce: "a keepalive is answered without a word to anybody",
    AnswersMixedUp: "answers in a session go to one another's operations",
    SeqNotForwarded: "an operation that is passed on to the leader loses its number",
    WatchResumesLate: "a watch begins one revision behind the one it was asked to begin at",
    WatchEndsWithRequests: "a watch ends in silence when its client has nothing more to ask",
    LeaseWatchedAtHome: "a watch on a lease follows the lease's own group only",
    HangUpUnnoticed: "the last caller of a request hangs up, and nobody is told",
    ListensEverywhere: "without TLS a server listens beyond loopback though nobody allowed it",
    RestoredFounded: "a node founds an empty cluster under the id of a restored one",
    SecondSignalIgnored: "a second signal does not end the process at once",
    GatewayDropsSeq: "a gateway passes a repeat on as if it were a new request",
    ClockJumpTakenForRate: "a clock that was suspended once counts as slow",
    WrongClockUnread: "the peers' clocks are never read",
    OtherClusterFollowed: "a gateway follows the nodes of whatever cluster answers",
}

/// Returns true if this process has the bug: never in a shipped binary.
#[cfg(feature = "planted-bugs")]
pub fn planted(bug: Bug) -> bool {
    use std::sync::LazyLock;
    static BUG: LazyLock<Planted> = LazyLock::new(|| {
        let Ok(name) = std::env::var("TOLLGATE_BUG") else { return Planted::default() };
        let bug = Bug::ALL.iter().find(|bug| format!("{bug:?}") == name);
        Planted::some(*bug.unwrap_or_else(|| panic!("there is no bug {name}")))
    });
    BUG.is(bug)
}

/// Returns true if this process has the bug: never without the feature.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
#[allow(clippy::inline_always, reason = "a constant that takes the planted code with it")]
pub fn planted(_: Bug) -> bool {
    false
}
