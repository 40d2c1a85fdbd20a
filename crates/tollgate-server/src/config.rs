//! What a server is told: who it is, who the others are, where to listen, how much to take.
//!
//! Flags beat the environment, which beats the file, which beats the defaults; each value keeps its origin. A
//! configuration that was loaded is right in itself: unknown keys, wrong types, numbers out of range and settings that
//! don't go together are refused, all at once, each with its place and what to do next.
//!
//! One table, [`KEYS`], says what there is; the file, `TOLLGATE_*` variables, flags, `config show` and the
//! documentation follow it. [`EXAMPLE`] is a file with every key and why one would change it.
//!
//! Not here: the command line that the flags come from, and whether the machine can do what was asked (is the port
//! free, is the directory ours).
//!
//! ```
//! use tollgate_server::config::{Config, Sources};
//!
//! let members = r#"[{ id = 1, peer = "127.0.0.1:7401", client = "127.0.0.1:7400" }]"#;
//! let flags = [
//!     ("node.id", "1"),
//!     ("node.data_dir", "/var/lib/tollgate"),
//!     ("cluster.name", "laptop"),
//!     ("cluster.members", members),
//! ];
//! let flags = flags.map(|(key, text)| (key.to_owned(), text.to_owned())).to_vec();
//! let loaded = Config::load(&Sources { file: None, env: Vec::new(), flags })?;
//! assert_eq!(loaded.config.listen.client.port(), 7400);
//! # Ok::<(), tollgate_server::config::Problems>(())
//! ```

mod environment;
mod file;
mod gateway;
mod keys;
mod kind;
mod layers;
mod member;
mod origin;
mod problem;
mod rules;
mod settings;
mod spelling;

pub use environment::CLIENT_VARIABLES;
pub use file::ConfigFile;
pub use gateway::{GATEWAY, GatewayConfig, LoadedGateway};
pub(crate) use keys::NODE_ID_MAX;
pub use keys::{KEYS, Key, Preset, SECTIONS, Table};
pub use kind::{Kind, Value};
pub use member::{Endpoint, Member};
pub use origin::Origin;
pub use problem::{Place, Problem, Problems};
pub use rules::BrokenRule;
pub use settings::{Setting, Settings};

use layers::Layers;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use tollgate_core::Noting;
use tollgate_replica::{EngineConfig, HostConfig, Members};
use tollgate_types::{ClusterId, GroupMap, Limit, Limits, NodeId, Zone};

/// A file for production, with every key, its default and why one would change it.
pub const EXAMPLE: &str = include_str!("../tollgate.toml");

/// Everything that a server needs to know before it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Who this node is.
    pub node: NodeConfig,
    /// Who the others are.
    pub cluster: ClusterConfig,
    /// Where it listens.
    pub listen: ListenConfig,
    /// How replicas agree: `[raft]`.
    pub raft: HostConfig,
    /// The log on disk.
    pub storage: EngineConfig,
    /// The first limits of a new cluster; of one that exists, its own count.
    pub limits: Limits,
    /// What clients may take of this node.
    pub server: ServerConfig,
    /// What it says about itself.
    pub log: LogConfig,
}

/// Who a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfig {
    /// Its number.
    pub id: NodeId,
    /// Where it keeps what it must not forget. A relative path counts from where the process was started.
    pub data_dir: PathBuf,
    /// A label; empty if nobody gave one.
    pub zone: String,
    /// Further names by which it is asked over HTTP, in lower case.
    pub hosts: Vec<String>,
}

/// Who belongs to a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterConfig {
    /// For people.
    pub name: String,
    /// For frames and data directories.
    pub id: ClusterId,
    /// The first members, and addresses that win over those that the cluster has. Ids and endpoints are distinct;
    /// unless it joins, this node is one of them.
    pub members: Vec<Member>,
    /// Whom to ask to join a cluster that runs, at the addresses for clients.
    pub join: Vec<Endpoint>,
    /// How many Raft groups.
    pub groups: u32,
    /// Whether a new data directory may be made.
    pub bootstrap: bool,
}

/// Where a node listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenConfig {
    /// For clients.
    pub client: SocketAddr,
    /// For other nodes.
    pub peer: SocketAddr,
    /// For browsers and monitoring.
    pub http: SocketAddr,
    /// Whether addresses beyond loopback are allowed although there is no TLS.
    pub insecure: bool,
}

/// What clients may take of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Connections of clients.
    pub connections_max: usize,
    /// Calls under way on one connection.
    pub streams_per_connection_max: u32,
    /// Operations of all clients that are neither answered nor queued for a lock.
    pub operations_in_flight_max: usize,
    /// Operations under way past which requests for locks are refused.
    pub operations_admitted_max: usize,
    /// Bytes in one message of a client.
    pub frame_bytes_max: usize,
    /// Watches of all clients.
    pub watchers_max: usize,
    /// Bytes of results that all sessions have unread.
    pub unread_bytes_max: usize,
    /// Time for a client to begin.
    pub handshake_timeout_ms: u64,
    /// Silence after which a client is pinged.
    pub keepalive_interval_ms: u64,
    /// Time to answer the ping.
    pub keepalive_timeout_ms: u64,
    /// Time between being told to end and ending.
    pub shutdown_grace_ms: u64,
}

/// What a node says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// For whom lines are written.
    pub format: LogFormat,
    /// Which lines: levels, by target.
    pub level: String,
}

/// For whom log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// People.
    Pretty,
    /// Machines.
    Json,
}

/// Where settings come from, least first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// The file, if there is one.
    pub file: Option<ConfigFile>,
    /// The environment, as `std::env::vars_os` gives it. What is not ours is passed over.
    pub env: Vec<(OsString, OsString)>,
    /// Keys by their paths (`node.id`) with what the command line says of them.
    pub flags: Vec<(String, String)>,
}

/// A configuration that is right in itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// For the server.
    pub config: Config,
    /// The same for people, with origins.
    pub settings: Settings,
}

impl Config {
    /// Reads all sources, and says everything that is wrong with them.
    pub fn load(sources: &Sources) -> Result<Loaded, Problems> {
        let layers = Layers::read(&keys::SERVER, sources);
        let (config, settings) = layers.finish(Config::build, Config::validate)?;
        Ok(Loaded { config, settings })
    }

    /// This node's own entry among the members. One that joins may have none.
    pub fn this_member(&self) -> Option<&Member> {
        self.cluster.members.iter().find(|member| member.id == self.node.id)
    }

    /// The members, as a group is bootstrapped with them.
    pub fn first_members(&self) -> Members {
        let members = &self.cluster.members;
        let witnesses = members.iter().filter(|member| member.witness);
        let first = Members::first(members.iter().map(|member| member.id), witnesses.map(|member| member.id));
        first.found_at(members.iter().map(|member| {
            let mut found = member.whereabouts();
            if member.id == self.node.id && found.zone == Zone::NONE {
                found.zone = Zone::new(&self.node.zone).expect("its kind was checked");
            }
            (member.id, found)
        }))
    }

    /// The group map of a new cluster.
    pub fn group_map(&self) -> GroupMap {
        GroupMap::even(self.cluster.groups).expect("the table's range is that of a map")
    }

    fn build(settings: &Settings) -> Config {
        let node = NodeId::new(settings.number("node.id")).expect("the table's range begins at 1");
        let cluster = ClusterConfig::build(settings);
        Config {
            node: NodeConfig {
                id: node,
                data_dir: PathBuf::from(settings.text("node.data_dir")),
                zone: settings.text("node.zone").to_owned(),
                hosts: settings.hosts("node.hosts"),
            },
            listen: ListenConfig {
                client: settings.address("listen.client"),
                peer: settings.address("listen.peer"),
                http: settings.address("listen.http"),
                insecure: settings.switch("listen.insecure"),
            },
            raft: build_raft(cluster.id, node, settings),
            cluster,
            storage: EngineConfig {
                log_file_bytes: settings.number("storage.log_file_bytes"),
                log_purge_bytes: settings.number("storage.log_purge_bytes"),
            },
            limits: build_limits(settings),
            server: ServerConfig::build(settings),
            log: LogConfig::build(settings),
        }
    }
}

impl ClusterConfig {
    fn build(settings: &Settings) -> ClusterConfig {
        let id =
            u64::from_str_radix(settings.text("cluster.id"), 16).expect("an id has 16 hexadecimal digits");
        ClusterConfig {
            name: settings.text("cluster.name").to_owned(),
            id: ClusterId::new(id),
            members: settings.members("cluster.members").to_vec(),
            join: settings.endpoints("cluster.join").to_vec(),
            groups: settings.small("cluster.groups"),
            bootstrap: settings.switch("cluster.bootstrap"),
        }
    }
}

impl ServerConfig {
    fn build(settings: &Settings) -> ServerConfig {
        ServerConfig {
            connections_max: settings.size("server.connections_max"),
            streams_per_connection_max: settings.small("server.streams_per_connection_max"),
            operations_in_flight_max: match settings.get("server.operations_in_flight_max") {
                Some(_) => settings.size("server.operations_in_flight_max"),
                // A gateway has no driver, and no inbox.
                None => usize::MAX,
            },
            operations_admitted_max: settings.size("server.operations_admitted_max"),
            frame_bytes_max: settings.size("server.frame_bytes_max"),
            watchers_max: settings.size("server.watchers_max"),
            unread_bytes_max: settings.size("server.unread_bytes_max"),
            handshake_timeout_ms: settings.number("server.handshake_timeout_ms"),
            keepalive_interval_ms: settings.number("server.keepalive_interval_ms"),
            keepalive_timeout_ms: settings.number("server.keepalive_timeout_ms"),
            shutdown_grace_ms: settings.number("server.shutdown_grace_ms"),
        }
    }
}

impl LogConfig {
    fn build(settings: &Settings) -> LogConfig {
        let json = settings.text("log.format") == "json";
        let format = if json { LogFormat::Json } else { LogFormat::Pretty };
        LogConfig { format, level: settings.text("log.level").to_owned() }
    }
}

fn build_raft(cluster: ClusterId, node: NodeId, settings: &Settings) -> HostConfig {
    // Spelled out, so that a new setting of the host is not forgotten here.
    HostConfig {
        cluster,
        node,
        heartbeat_ms: settings.number("raft.heartbeat_ms"),
        election_timeout_ms: settings.number("raft.election_timeout_ms"),
        failover_ms: settings.number("raft.failover_ms"),
        tick_ms: settings.number("raft.tick_ms"),
        log_time_step_max_ms: settings.number("raft.log_time_step_max_ms"),
        commit_told_ms: settings.number("raft.commit_told_ms"),
        gather_ms: settings.number("raft.gather_ms"),
        entry_bytes_max: settings.size("raft.entry_bytes_max"),
        message_bytes_max: settings.number("raft.message_bytes_max"),
        messages_in_flight_max: settings.size("raft.messages_in_flight_max"),
        uncommitted_bytes_max: settings.number("raft.uncommitted_bytes_max"),
        proposals_max: settings.size("raft.proposals_max"),
        reads_max: settings.size("raft.reads_max"),
        read_retry_ms: settings.number("raft.read_retry_ms"),
        read_timeout_ms: settings.number("raft.read_timeout_ms"),
        snapshot_log_bytes: settings.number("raft.snapshot_log_bytes"),
        snapshot_age_ms: settings.number("raft.snapshot_age_ms"),
        log_kept_bytes: settings.number("raft.log_kept_bytes"),
        chunk_bytes: settings.small("raft.chunk_bytes"),
        chunks_in_flight_max: settings.small("raft.chunks_in_flight_max"),
        transfer_timeout_ms: settings.number("raft.transfer_timeout_ms"),
        compare_ms: settings.number("raft.compare_ms"),
        audit_ms: settings.number("raft.audit_ms"),
        balance_ms: settings.number("raft.balance_ms"),
        unattended_ms: settings.number("raft.unattended_ms"),
        promote_behind_max: settings.number("raft.promote_behind_max"),
        apply_version: HostConfig::new(cluster, node).apply_version,
        noting: match settings.text("log.locks") {
            "off" => Noting::Nothing,
            "all" => Noting::All,
            _ => Noting::Losses,
        },
    }
}

fn build_limits(settings: &Settings) -> Limits {
    let mut limits = Limits::DEFAULT;
    for &limit in Limit::ALL {
        limits.set(limit, settings.number(&format!("limits.{limit}")));
    }
    limits
}

/// The id of a cluster that was given none: every node finds the same one from the name.
pub fn cluster_id_of(name: &str) -> ClusterId {
    ClusterId::of_name(name)
}

/// The parts of a list with commas.
fn listed(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// Values by path, for [`Config::build`]: the table says that they are there, and of which kind.
impl Settings {
    fn value(&self, path: &str) -> &Value {
        &self.get(path).unwrap_or_else(|| panic!("the table has no {path}")).value
    }

    fn number(&self, path: &str) -> u64 {
        let Value::Number(number) = self.value(path) else { panic!("{path} is no number") };
        *number
    }

    fn size(&self, path: &str) -> usize {
        usize::try_from(self.number(path)).expect("the table's range fits")
    }

    fn small(&self, path: &str) -> u32 {
        u32::try_from(self.number(path)).expect("the table's range fits")
    }

    fn switch(&self, path: &str) -> bool {
        let Value::Bool(on) = self.value(path) else { panic!("{path} is no switch") };
        *on
    }

    fn text(&self, path: &str) -> &str {
        let Value::Text(text) = self.value(path) else { panic!("{path} is no text") };
        text
    }

    /// Names with commas between them, in lower case.
    fn hosts(&self, path: &str) -> Vec<String> {
        listed(self.text(path)).map(str::to_ascii_lowercase).collect()
    }

    fn address(&self, path: &str) -> SocketAddr {
        self.text(path).parse().expect("an address was read")
    }

    fn endpoints(&self, path: &str) -> &[Endpoint] {
        let Value::Endpoints(endpoints) = self.value(path) else { panic!("{path} is no list of endpoints") };
        endpoints
    }

    fn members(&self, path: &str) -> &[Member] {
        let Value::Members(members) = self.value(path) else { panic!("{path} is no list of members") };
        members
    }
}
