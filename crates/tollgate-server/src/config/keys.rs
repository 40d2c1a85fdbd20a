//! The table of all settings: names, kinds, defaults, help. The file, the environment, flags, listings and the
//! documentation follow this table.
//!
//! Defaults of Raft, storage and limits repeat those of the crates that use them; tests compare the two. A setting
//! whose wrong value could lose data or let strangers in has either no default or the careful one. Not here: rules
//! between several keys (`rules`).

use super::kind::Kind;
use std::fmt;
use tollgate_types::{Limit, Limits};

/// Value of a key that nobody sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// No default: the key must be set.
    Required,
    /// Derived from other keys; the text says how.
    Derived(&'static str),
    /// Default of a switch.
    Bool(bool),
    /// Default number, in the unit of the key's name.
    Number(u64),
    /// Default text.
    Text(&'static str),
    /// An empty list.
    Empty,
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Preset::Required => write!(f, "required"),
            Preset::Derived(how) => write!(f, "{how}"),
            Preset::Bool(value) => write!(f, "{value}"),
            Preset::Number(value) => write!(f, "{value}"),
            Preset::Text(value) => write!(f, "{value:?}"),
            Preset::Empty => write!(f, "[]"),
        }
    }
}

/// A setting: its name, kind, default and help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Table of the file that contains the key.
    pub section: &'static str,
    /// Name of the key within its section.
    pub name: &'static str,
    /// Kind and range of the value.
    pub kind: Kind,
    /// Default of the key.
    pub preset: Preset,
    /// Purpose of the key, in one sentence.
    pub help: &'static str,
}

/// Common prefix of all environment variables.
pub(crate) const ENV_PREFIX: &str = "TOLLGATE_";

impl Key {
    /// Returns `section.name`, the path that `config show` and messages use.
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// Returns the environment variable that sets this key.
    pub fn env(&self) -> String {
        format!("{ENV_PREFIX}{}_{}", self.section, self.name).to_uppercase()
    }

    /// Returns the command-line flag that sets this key, with its dashes.
    pub fn flag(&self) -> String {
        format!("--{}-{}", self.section, self.name).replace('_', "-")
    }

    /// Returns the key with this path, from the table of a node.
    pub fn find(path: &str) -> Option<&'static Key> {
        SERVER.find(path)
    }
}

/// Settings of one kind of process.
#[derive(Debug)]
pub struct Table {
    /// Sections in their order, each with a description.
    pub sections: &'static [(&'static str, &'static str)],
    /// All settings, in the order in which they are shown.
    pub keys: &'static [Key],
}

/// Table of a node's settings.
pub(crate) static SERVER: Table = Table { sections: SECTIONS, keys: KEYS };

impl Table {
    /// Returns the key with this path.
    pub fn find(&self, path: &str) -> Option<&'static Key> {
        let (section, name) = path.split_once('.')?;
        self.keys.iter().find(|key| key.section == section && key.name == name)
    }
}

/// Sections of a node's configuration in their order, each with a description.
pub const SECTIONS: &[(&str, &str)] = &[
    ("node", "Who this node is."),
    ("cluster", "Who the others are. The same on every node, `bootstrap` apart."),
    ("listen", "Where this node listens."),
    ("raft", "How replicas agree. The same on every node."),
    ("storage", "The log on disk."),
    (
        "limits",
        "The first limits of a new cluster. Used by `bootstrap` alone; later, change them with the admin API.",
    ),
    ("server", "What clients may take of this node."),
    ("log", "What this node says about itself."),
];

/// Maximum node id: the highest integer that every JSON reader represents exactly.
pub(crate) const NODE_ID_MAX: u64 = (1 << 53) - 1;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
const HOUR_MS: u64 = 60 * MINUTE_MS;

pub(super) const fn key(
    section: &'static str,
    name: &'static str,
    kind: Kind,
    preset: Preset,
    help: &'static str,
) -> Key {
    Key { section, name, kind, preset, help }
}

const fn number(
    section: &'static str,
    name: &'static str,
    (min, max): (u64, u64),
    preset: u64,
    help: &'static str,
) -> Key {
    key(section, name, Kind::Number { min, max }, Preset::Number(preset), help)
}

const fn millis(
    section: &'static str,
    name: &'static str,
    (min, max): (u64, u64),
    preset: u64,
    help: &'static str,
) -> Key {
    key(section, name, Kind::Millis { min, max }, Preset::Number(preset), help)
}

const fn bytes(
    section: &'static str,
    name: &'static str,
    (min, max): (u64, u64),
    preset: u64,
    help: &'static str,
) -> Key {
    key(section, name, Kind::Bytes { min, max }, Preset::Number(preset), help)
}

/// Creates the key of a limit. Name, default and range come from the state machine.
const fn limit(limit: Limit, help: &'static str) -> Key {
    let (min, max) = limit.range();
    let kind = match limit {
        Limit::NameBytes | Limit::MetadataBytes | Limit::ValueBytes | Limit::RingBytes => {
            Kind::Bytes { min, max }
        }
        Limit::TtlMin | Limit::TtlMax | Limit::LockDelay => Kind::Millis { min, max },
        _ => Kind::Number { min, max },
    };
    key("limits", limit.name(), kind, Preset::Number(Limits::DEFAULT.get(limit)), help)
}

/// All settings of a node, in the order in which they are shown.
pub static KEYS: &[Key] = &[
    key(
        "node",
        "id",
        Kind::Number { min: 1, max: NODE_ID_MAX },
        Preset::Required,
        "This node's number, given once: a node that lost its disk comes back under another",
    ),
    key(
        "node",
        "data_dir",
        Kind::Path,
        Preset::Required,
        "The directory of everything this node must not forget; on a disk whose fsync is honest",
    ),
    key(
        "node",
        "zone",
        Kind::Zone,
        Preset::Text(""),
        "Where the node stands, as a label: a rack, a building, a region",
    ),
    key(
        "node",
        "hosts",
        Kind::Text,
        Preset::Text(""),
        "Further names by which this node is asked over HTTP, by commas; addresses, localhost and the names of members \
         need not be named",
    ),
    key(
        "cluster",
        "name",
        Kind::Name,
        Preset::Required,
        "The cluster's name. Nodes of another cluster are refused, as is a data directory of another",
    ),
    key(
        "cluster",
        "id",
        Kind::ClusterId,
        Preset::Derived("hash of cluster.name"),
        "The cluster's id, 16 hexadecimal digits, if it is not to follow from the name (a restore gives a new one)",
    ),
    key(
        "cluster",
        "members",
        Kind::Members,
        Preset::Empty,
        "The first members and where they are found: [{ id, peer, client, witness, zone }, ...]; an address here wins",
    ),
    key(
        "cluster",
        "join",
        Kind::Endpoints,
        Preset::Empty,
        "Join a cluster that runs: client addresses of some of its nodes. Looked at only while there is no data",
    ),
    number(
        "cluster",
        "groups",
        (1, tollgate_types::GROUPS_MAX as u64),
        1,
        "Raft groups that the names are spread over. Chosen when the cluster is founded",
    ),
    key(
        "cluster",
        "bootstrap",
        Kind::Bool,
        Preset::Bool(false),
        "Found the cluster: make the data directory if it is new. Without it, an empty one is refused",
    ),
    key(
        "listen",
        "client",
        Kind::Address,
        Preset::Text("127.0.0.1:7400"),
        "Where clients connect: gRPC, all services",
    ),
    key("listen", "peer", Kind::Address, Preset::Text("127.0.0.1:7401"), "Where the other nodes connect"),
    key(
        "listen",
        "http",
        Kind::Address,
        Preset::Text("127.0.0.1:7402"),
        "Where browsers and monitoring connect: metrics, health, JSON",
    ),
    key(
        "listen",
        "insecure",
        Kind::Bool,
        Preset::Bool(false),
        "Listen beyond loopback without TLS: whoever reaches the ports can take and free every lock",
    ),
    millis("raft", "heartbeat_ms", (1, MINUTE_MS), 100, "Interval of a leader's heartbeats"),
    millis(
        "raft",
        "election_timeout_ms",
        (10, 10 * MINUTE_MS),
        1_000,
        "Silence of a leader after which a follower asks for votes; up to twice as long by chance",
    ),
    millis(
        "raft",
        "failover_ms",
        (1, MINUTE_MS),
        150,
        "Least time between two elections that a broken connection causes; at least 4 x (round trip + fsync)",
    ),
    millis(
        "raft",
        "tick_ms",
        (1, MINUTE_MS),
        250,
        "While deadlines are pending, the leader commits the time at least this often",
    ),
    millis(
        "raft",
        "log_time_step_max_ms",
        (1, MINUTE_MS),
        500,
        "Log time advances at most this much at once; what a pause had beyond it never counts against leases",
    ),
    millis(
        "raft",
        "commit_told_ms",
        (0, 100),
        1,
        "Followers are told what is committed with the entries that follow, or when none did for this long",
    ),
    millis(
        "raft",
        "gather_ms",
        (0, 100),
        2,
        "A leader gathers what it is asked for while less has come than is on its way, at most this long",
    ),
    bytes(
        "raft",
        "entry_bytes_max",
        (KIB, 16 * MIB),
        64 * KIB,
        "Commands are packed into entries of about this size",
    ),
    bytes(
        "raft",
        "message_bytes_max",
        (KIB, 16 * MIB),
        MIB,
        "Entries are packed into messages to followers of about this size",
    ),
    number("raft", "messages_in_flight_max", (1, 65_536), 64, "Append messages on their way to one follower"),
    bytes(
        "raft",
        "uncommitted_bytes_max",
        (KIB, GIB),
        16 * MIB,
        "Bytes proposed and not committed; past it, requests are refused",
    ),
    number(
        "raft",
        "proposals_max",
        (1, 16_777_216),
        65_536,
        "Proposals taken and not answered, per group; past it, requests are refused",
    ),
    number(
        "raft",
        "reads_max",
        (1, 16_777_216),
        65_536,
        "Reads taken and not answered, per group; past it, requests are refused",
    ),
    millis(
        "raft",
        "read_retry_ms",
        (1, 10 * MINUTE_MS),
        200,
        "A read unanswered for this long is asked again",
    ),
    millis("raft", "read_timeout_ms", (1, 10 * MINUTE_MS), 5_000, "A read unanswered for this long fails"),
    bytes(
        "raft",
        "snapshot_log_bytes",
        (64 * KIB, 64 * GIB),
        32 * MIB,
        "Log since the last snapshot that causes one; behind a longer snapshot up to twice as much",
    ),
    millis(
        "raft",
        "snapshot_age_ms",
        (SECOND_MS, 24 * HOUR_MS),
        10 * MINUTE_MS,
        "Age of the log since the last snapshot that causes one",
    ),
    bytes(
        "raft",
        "log_kept_bytes",
        (0, 64 * GIB),
        8 * MIB,
        "Log kept before a snapshot, for followers that are a little behind",
    ),
    bytes("raft", "chunk_bytes", (KIB, 4 * MIB), 256 * KIB, "Size of the pieces in which snapshots travel"),
    number("raft", "chunks_in_flight_max", (1, 1_024), 4, "Pieces of a snapshot on their way to one peer"),
    millis(
        "raft",
        "transfer_timeout_ms",
        (100, HOUR_MS),
        10_000,
        "A snapshot transfer without progress for this long is given up",
    ),
    millis(
        "raft",
        "compare_ms",
        (100, 24 * HOUR_MS),
        60_000,
        "How often the replicas of a group compare their states, at most",
    ),
    millis(
        "raft",
        "audit_ms",
        (100, 24 * HOUR_MS),
        30_000,
        "How often a group asks the homes of other groups' leases whether they live",
    ),
    millis(
        "raft",
        "balance_ms",
        (0, HOUR_MS),
        1_000,
        "How often a node that leads two groups more than another hands one on; 0 leaves leaders where they are",
    ),
    millis(
        "raft",
        "unattended_ms",
        (SECOND_MS, HOUR_MS),
        10 * SECOND_MS,
        "A single caller's wait ends when nobody has been attached to it for this long",
    ),
    number(
        "raft",
        "promote_behind_max",
        (0, 1_000_000),
        1_000,
        "Entries that a learner may lack and still get a vote",
    ),
    bytes("storage", "log_file_bytes", (MIB, 4 * GIB), 64 * MIB, "Size at which a log file is closed"),
    bytes(
        "storage",
        "log_purge_bytes",
        (MIB, 1_024 * GIB),
        512 * MIB,
        "Size of all log files together past which old ones are used anew",
    ),
    limit(Limit::NameBytes, "Bytes in a lock's name"),
    limit(Limit::MetadataBytes, "Bytes of metadata of a claim, and of the reason of a forced release"),
    limit(Limit::Locks, "Locks that are held, awaited or closed by a lock-delay"),
    limit(Limit::Leases, "Leases"),
    limit(Limit::ClaimsPerLease, "Holders and waiters of one lease"),
    limit(Limit::HoldersPerLock, "Holders of one lock"),
    limit(Limit::WaitersPerLock, "Waiters of one lock"),
    limit(Limit::NamesPerRequest, "Names in one request"),
    limit(Limit::OpsInFlightPerLease, "Requests of one lease that never waited and are not acknowledged"),
    limit(Limit::TtlMin, "The shortest time to live of a lease"),
    limit(Limit::TtlMax, "The longest time to live of a lease"),
    limit(Limit::LockDelay, "The longest lock-delay"),
    limit(Limit::RenewalsPerEntry, "Renewals in one entry of the log"),
    limit(Limit::Registers, "Registers"),
    limit(Limit::ValueBytes, "Bytes in a register's value, and in a leader's"),
    limit(Limit::TxnOps, "Compares, and operations of either branch, in one transaction"),
    limit(Limit::Range, "Registers that one range returns or one delete ends"),
    limit(Limit::RingBytes, "Bytes of history kept for watches"),
    limit(Limit::ReapsPerEntry, "Ends and grants that one entry of the log makes because time has passed"),
    limit(Limit::DeadlockVisits, "Waiters and holders that one search for a deadlock looks at"),
    limit(Limit::WaitsPerLease, "Requests of one lease that wait, or did, and are not acknowledged"),
    limit(Limit::ClaimValues, "Leaders and other holders that say something of themselves, and candidates"),
    number(
        "server",
        "connections_max",
        (1, 1_000_000),
        20_000,
        "Connections of clients; past it, new ones are closed",
    ),
    number(
        "server",
        "streams_per_connection_max",
        (1, 1_000_000),
        1_024,
        "Calls under way on one connection; a waiting Lock is one of them",
    ),
    number(
        "server",
        "operations_in_flight_max",
        // With fewer than 3, no number of admitted operations would leave room.
        (3, 16_777_216),
        65_536,
        "Inputs that wait for the driver's next turn, frames of peers included; past it, operations are refused",
    ),
    key(
        "server",
        "operations_admitted_max",
        Kind::Number { min: 1, max: 16_777_216 },
        Preset::Derived("50000, or as many as fit a lower server.operations_in_flight_max"),
        "Operations under way, waits in line not counted; past it, requests for locks are refused, then others",
    ),
    bytes("server", "frame_bytes_max", (64 * KIB, 64 * MIB), 4 * MIB, "Bytes in one message of a client"),
    number("server", "watchers_max", (1, 16_777_216), 100_000, "Watches of all clients"),
    bytes(
        "server",
        "unread_bytes_max",
        (64 * KIB, 64 * GIB),
        256 * MIB,
        "Bytes that all sessions and watches have unread; past it, the one with the most ends. As many for other nodes",
    ),
    millis(
        "server",
        "handshake_timeout_ms",
        (100, HOUR_MS),
        20_000,
        "Time for a client to begin: the HTTP/2 preface, or the head of its next HTTP request",
    ),
    millis(
        "server",
        "keepalive_interval_ms",
        (100, HOUR_MS),
        10_000,
        "Silence on a connection after which the client is pinged",
    ),
    millis(
        "server",
        "keepalive_timeout_ms",
        (100, HOUR_MS),
        5_000,
        "Time to answer such a ping; after it the connection is closed",
    ),
    millis(
        "server",
        "shutdown_grace_ms",
        (0, HOUR_MS),
        10_000,
        "Time to hand on leadership, and then to finish calls, before the process ends; streams are not waited for",
    ),
    key(
        "log",
        "format",
        Kind::Choice(&["pretty", "json"]),
        Preset::Text("pretty"),
        "How log lines are written: for people, or for machines",
    ),
    key(
        "log",
        "locks",
        Kind::Choice(&["off", "losses", "all"]),
        Preset::Text("losses"),
        "Which lines tell of locks, by the leader of each: those lost against the holder's will, or every grant too",
    ),
    key(
        "log",
        "level",
        Kind::Filter,
        Preset::Text("info"),
        "What is logged: a level (error, warn, info, debug, trace, off), or target=level, by commas",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use tollgate_replica::{EngineConfig, HostConfig};
    use tollgate_types::{ClusterId, NodeId};

    fn preset(path: &str) -> u64 {
        match Key::find(path).unwrap().preset {
            Preset::Number(value) => value,
            other => panic!("{path} has {other:?}"),
        }
    }

    #[test]
    fn every_key_is_found_by_its_path_and_has_a_known_section() {
        for key in KEYS {
            assert_eq!(Key::find(&key.path()), Some(key));
            assert!(SECTIONS.iter().any(|(name, _)| *name == key.section), "{}", key.path());
            assert!(!key.help.is_empty() && !key.help.ends_with('.'), "{}", key.path());
        }
    }

    #[test]
    fn no_two_keys_have_one_variable_or_one_flag() {
        for name in [Key::env, Key::flag] {
            assert_eq!(KEYS.iter().map(name).collect::<BTreeSet<_>>().len(), KEYS.len());
        }
        let key = Key::find("listen.client").unwrap();
        assert_eq!((key.env().as_str(), key.flag().as_str()), ("TOLLGATE_LISTEN_CLIENT", "--listen-client"));
        assert_eq!(Key::find("node.data_dir").unwrap().flag(), "--node-data-dir");
    }

    #[test]
    fn a_key_that_counts_time_or_bytes_says_so_in_its_name() {
        for key in KEYS {
            let (millis, bytes) = (key.name.contains("_ms"), key.name.contains("bytes"));
            assert_eq!(matches!(key.kind, Kind::Millis { .. }), millis, "{}", key.path());
            assert_eq!(matches!(key.kind, Kind::Bytes { .. }), bytes, "{}", key.path());
        }
    }

    #[test]
    fn every_preset_is_a_value_of_its_kind() {
        for key in KEYS {
            let text = match key.preset {
                Preset::Required | Preset::Derived(_) | Preset::Empty => continue,
                Preset::Text(text) => text.to_owned(),
                preset => preset.to_string(),
            };
            assert!(key.kind.parse_text(&text).is_ok(), "{}", key.path());
        }
    }

    #[test]
    fn every_limit_is_a_key() {
        let keys = KEYS.iter().filter(|key| key.section == "limits").map(|key| key.name);
        assert!(keys.eq(Limit::ALL.iter().map(|limit| limit.name())));
    }

    /// `apply_version` is not a setting: it describes the abilities of the binary.
    #[test]
    fn every_setting_of_the_host_and_the_engine_is_a_key_with_their_default() {
        let HostConfig {
            cluster: _,
            node: _,
            heartbeat_ms,
            election_timeout_ms,
            failover_ms,
            tick_ms,
            log_time_step_max_ms,
            commit_told_ms,
            gather_ms,
            entry_bytes_max,
            message_bytes_max,
            messages_in_flight_max,
            uncommitted_bytes_max,
            proposals_max,
            reads_max,
            read_retry_ms,
            read_timeout_ms,
            snapshot_log_bytes,
            snapshot_age_ms,
            log_kept_bytes,
            chunk_bytes,
            chunks_in_flight_max,
            transfer_timeout_ms,
            compare_ms,
            audit_ms,
            balance_ms,
            unattended_ms,
            promote_behind_max,
            apply_version: _,
            // Set by a key of the section `log`.
            noting: _,
        } = HostConfig::new(ClusterId::new(1), NodeId::new(1).unwrap());
        let expected = [
            ("heartbeat_ms", heartbeat_ms),
            ("election_timeout_ms", election_timeout_ms),
            ("failover_ms", failover_ms),
            ("tick_ms", tick_ms),
            ("log_time_step_max_ms", log_time_step_max_ms),
            ("commit_told_ms", commit_told_ms),
            ("gather_ms", gather_ms),
            ("entry_bytes_max", entry_bytes_max as u64),
            ("message_bytes_max", message_bytes_max),
            ("messages_in_flight_max", messages_in_flight_max as u64),
            ("uncommitted_bytes_max", uncommitted_bytes_max),
            ("proposals_max", proposals_max as u64),
            ("reads_max", reads_max as u64),
            ("read_retry_ms", read_retry_ms),
            ("read_timeout_ms", read_timeout_ms),
            ("snapshot_log_bytes", snapshot_log_bytes),
            ("snapshot_age_ms", snapshot_age_ms),
            ("log_kept_bytes", log_kept_bytes),
            ("chunk_bytes", u64::from(chunk_bytes)),
            ("chunks_in_flight_max", u64::from(chunks_in_flight_max)),
            ("transfer_timeout_ms", transfer_timeout_ms),
            ("compare_ms", compare_ms),
            ("audit_ms", audit_ms),
            ("balance_ms", balance_ms),
            ("unattended_ms", unattended_ms),
            ("promote_behind_max", promote_behind_max),
        ];
        for (name, value) in expected {
            assert_eq!(preset(&format!("raft.{name}")), value, "{name}");
        }
        assert_eq!(KEYS.iter().filter(|key| key.section == "raft").count(), expected.len());
        let EngineConfig { log_file_bytes, log_purge_bytes } = EngineConfig::default();
        assert_eq!(preset("storage.log_file_bytes"), log_file_bytes);
        assert_eq!(preset("storage.log_purge_bytes"), log_purge_bytes);
    }
}
