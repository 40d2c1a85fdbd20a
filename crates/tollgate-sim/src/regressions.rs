//! Seeds that once failed, and what each of them found. Every test run runs them all.
//!
//! The schedule decides what a seed means: when the schedule changes, these scenarios are drawn anew and may no longer
//! show what they once did. They cost little and stay.

/// Seeds, with what each of them found.
pub const REGRESSIONS: &[(u64, &str)] = &[
    (22, "the judge heard of a lease's end later than its stub did"),
    (35, "a leader asked for turns without end while it handed leadership on"),
    (76, "an append had entries that did not follow on its index, and its receiver stopped"),
    (98, "the judge did not know that a stub may call a revoked lease expired"),
    (181, "as 76"),
    (182, "the judge took a lock request by an owner that held already, an upgrade, for a newcomer"),
    (213, "as 76"),
    (215, "the end of an upgrade's claim was answered with its token, and then without"),
    (261, "as 182"),
    (301, "an upgrade for several names was granted although one of them was gone"),
    (338, "the judge took a cancel that gave back what was left of several names for a release of all"),
    (355, "as 98"),
    (365, "as 301"),
    (393, "as 301"),
    (511, "settings that sent one entry a round trip made catching up late"),
    (2431, "a setting that reaped one claim a commit, where a commit took 33 ms, made a lease's end late"),
    (4804, "the world forgot that a clock set back twice has both ways to make up"),
    (
        720_268,
        "a caller that hung up before its request was in the log ended the wait of another that had parked since",
    ),
    (
        2_000_025,
        "a disk that was behind with snapshots was asked to read and remove the same again and again",
    ),
    (3_003_625, "a setting that reaped one claim a commit, where commits waited for lost messages, as 2431"),
    (
        4_003_306,
        "a client whose cancel was left alone, because it had asked again itself, never asked for an end again",
    ),
    (
        10_002_991,
        "a leader went on handing leadership to a node that had died, and leases ended late meanwhile",
    ),
    (11_003_229, "a leader waited an election timeout for a silent node to take over, for balance alone"),
    (
        16_001_572,
        "a caller was told to ask again, and an earlier attempt of its call stayed parked: nobody's wait stood in line",
    ),
    (510_002_278, "the world started nodes again with an older binary than the one that they had run"),
    (700_007_025, "a leader raised the apply version behind the addition of a node that did not know it"),
    (
        800_002_706,
        "the judge did not know that the leaders of two groups could not reach each other, and called an end late",
    ),
    (820_051_410, "a leader with room again went on handing leadership to a node that it did not reach"),
    (
        840_009_670,
        "a learner that needed a snapshot got a vote, and the group could not commit until it had it",
    ),
    (
        850_006_486,
        "a removed node did not vote for the one that stayed, whose disk did not know of the removal",
    ),
    (918_274_257, "the judge did not know for how long the network had carried the entry that ended a lease"),
    (
        7_000_012_643,
        "a node that was removed from a group wrote to whoever had led it then of the ends of leases",
    ),
    (
        7_000_018_906,
        "the world took a caller for gone that was refused by one copy of its request and queued by another",
    ),
    (43_000_241, "the world told a node to stop, and left it so when all faults were over"),
    (7_000_064_448, "a leader waited an election timeout for a node with a full disk to take over"),
    (7_000_083_398, "a leader waited an election timeout for a node that it did not reach to take over"),
];
