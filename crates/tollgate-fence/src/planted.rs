//! Bugs planted on purpose, to prove that the tests can fail.
//!
//! With the feature `planted-bugs`, a test switches one bug on in one fence at run time. Without the feature, every
//! question "is this bug planted?" is a constant `false`, and nothing of the bugs is left in the code.

#![cfg_attr(not(feature = "planted-bugs"), allow(dead_code, unreachable_pub))]

tollgate_types::planted_bugs! {
    StaleAccepted: "an exclusive token below the highest is accepted, and lowers the mark",
    SharedNotChecked: "a shared or permit token below the highest exclusive one is accepted",
    SharedRaises: "a shared or permit token raises the mark",
    StrictIgnored: "a strict fence takes an exclusive token twice",
    AlwaysStrict: "a fence that is not strict refuses a second write with one token",
    StrictForShared: "a strict fence refuses a shared token equal to the highest exclusive one",
    RestoreLowers: "restoring an old mark lowers a newer one",
    FloorForgotten: "forgetting a resource leaves no floor behind",
    FloorNotStrict: "a strict fence takes a token equal to its floor",
    FloorFalls: "forgetting an old resource lowers the floor",
    FloorNotKept: "the floor is not among the marks that are kept",
    DropForgetsMark: "dropping a resource leaves no floor behind",
}
