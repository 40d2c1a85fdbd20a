//! Bugs planted on purpose, to prove that the simulator can fail.
//!
//! With the feature `planted-bugs`, a test switches one bug on in one host at run time. Without it, every question "is
//! this bug planted?" is a constant `false`, and the only remains are three numbers that a replica keeps.

#![cfg_attr(not(feature = "planted-bugs"), allow(dead_code, unreachable_pub))]

tollgate_types::planted_bugs! {
    AckBeforeFsync: "a replica answers for entries and votes that its disk does not have yet",
    VoteNotPersisted: "a vote is given and not written down",
    TermNotPersisted: "neither term nor vote reach the disk",
    LeadsInLostTerm: "a group's only voter speaks as leader before its disk knows the term",
    StaleRead: "a read is answered without asking a quorum",
    ReadBeforeApplied: "a read is answered before what it must see is applied",
    AnsweredBeforeCommit: "a proposal is answered when it is appended, not when it is committed",
    RepliesShifted: "the outcomes of a batch go to one another's callers",
    LogTimeFromZero: "a new leader counts log time from 0",
    LogTimeFromMemory: "a new leader goes on from the highest stamp it ever saw, truncated entries included",
    ClampCaughtUp: "what the limit of a turn's step cut off is counted after all",
    NoTicks: "a leader lets no time pass while nobody speaks",
    KeepaliveAckedByDeposed: "a leader acknowledges keepalives without committing them",
    AppliedTwice: "a restarted replica applies the entries it finds twice",
    SkipsEntry: "a restarted replica leaves out the last entry it finds",
    ProposedTwice: "the last proposal of a turn is put into the log twice",
    SnapshotNotInstalled: "a replica takes a snapshot's place in the log and keeps its old state",
    SnapshotIndexAhead: "a snapshot says that it contains one entry more than it does",
    MembershipEarly: "a change of membership takes effect when it is appended, not when it is committed",
    WitnessWithoutLog: "a witness acknowledges entries that it has not written",
    LeaseEndLost: "a lease's home forgets to tell the other groups that it ended",
    BlankVotes: "a replica that has lost its disk votes",
    RenewalsMixedUp: "keepalives that went into the log together are told what one another did",
    WatchSkipsBatch: "a watch is not told of a batch of events, and goes on behind it",
    WatchBeginsUnconfirmed: "a watch from now on begins where this node's state is, however far behind that is",
    UnattendedForgotten: "a new leader does not look for waits that nobody stands by",
    UnheardForgotten: "a leader whose callers were told that disks are full does not look for their waits later",
    ParkedWithoutRoom: "who waits in line is told nothing while nothing can be written",
    HangUpEndsSharedWait: "a caller that hangs up ends the wait of another that stands by",
    HangUpToldTooSoon: "a caller that hangs up is told that it has left before its wait has ended",
    CommitNotTold: "followers learn with heartbeats alone what is committed, if no entry follows",
    HashKeptBack: "a leader tells nobody the hash of its state",
    BrokenConnectionAnswers: "a voter whose connection has just broken counts as one that answers",
    SalvageTakesFirst: "a backup from disks takes the log of the first directory, not the newest",
    SalvageDropsTail: "a backup from disks leaves out what is not known to be committed",
    OldFormatOverfilled: "a leader puts into entries what members that are not upgraded yet can't read",
    BlankVoterServed: "a voter that has lost its disk is brought up to date and counts again",
}
