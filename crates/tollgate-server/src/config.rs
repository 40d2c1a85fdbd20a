//! The configuration of a server: its identity, the other members, addresses to listen on, and limits for clients.
//!
//! Flags override the environment, which overrides the file, which overrides the defaults; each value keeps its origin.
//! Invariant: a loaded configuration is consistent; unknown keys, wrong types, numbers out of range and settings that
//! contradict each other are refused, all at once, each with its place and the next step.
//!
//! One table, [`KEYS`], defines all settings; the file, `TOLLGATE_*` variables, flags, `config show` and the
//! documentation follow it. [`EXAMPLE`] is a file with every key and the reasons to change it.
//!
//! Not here: the command line that provides the flags, and checks of the machine (is the port free, is the data
//! directory ours).
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

/// A file for production, with every key, its default and the reasons to change it.
pub const EXAMPLE: &str = include_str!("../tollgate.toml");

/// Configuration of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Identity of this node.
    pub node: NodeConfig,
    /// Name, members and groups of the cluster.
    pub cluster: ClusterConfig,
    /// Addresses to listen on.
    pub listen: ListenConfig,
    /// Settings of Raft: `[raft]`.
    pub raft: HostConfig,
    /// The log on disk.
    pub storage: EngineConfig,
    /// Initial limits of a new cluster. An existing cluster keeps the limits that it has.
    pub limits: Limits,
    /// Limits for clients.
    pub server: ServerConfig,
    /// Format and level of the log.
    pub log: LogConfig,
}

/// Identity of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfig {
    /// Node id.
    pub id: NodeId,
    /// Directory of the node's durable data. A relative path is relative to the working directory of the process.
    pub data_dir: PathBuf,
    /// Zone label; empty if none was given.
    pub zone: String,
    /// Further host names under which the node serves HTTP, in lower case.
    pub hosts: Vec<String>,
}

/// Name, members and groups of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Name for people.
    pub name: String,
    /// Id in frames and data directories.
    pub id: ClusterId,
    /// Initial members, and addresses that override those known to the cluster. Ids and endpoints are distinct; unless
    /// this node joins, it is one of the members.
    pub members: Vec<Member>,
    /// Client addresses of nodes of a running cluster that this node is to join.
    pub join: Vec<Endpoint>,
    /// Number of Raft groups.
    pub groups: u32,
    /// True if a new data directory may be created.
    pub bootstrap: bool,
}

/// Addresses that a node listens on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenConfig {
    /// Address for clients.
    pub client: SocketAddr,
    /// Address for other nodes.
    pub peer: SocketAddr,
    /// Address for browsers and monitoring.
    pub http: SocketAddr,
    /// True if addresses beyond loopback are allowed although there is no TLS.
    pub insecure: bool,
}

/// Limits of a node for its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Maximum number of client connections.
    pub connections_max: usize,
    /// Maximum number of calls under way on one connection.
    pub streams_per_connection_max: u32,
    /// Maximum number of inputs that wait for the driver, frames of peers included; past it, operations are refused.
    pub operations_in_flight_max: usize,
    /// Maximum number of operations under way; past it, requests for locks are refused first, then other requests.
    pub operations_admitted_max: usize,
    /// Maximum size of one client message, in bytes.
    pub frame_bytes_max: usize,
    /// Maximum number of watches of all clients.
    pub watchers_max: usize,
    /// Maximum unread bytes of all sessions and watches of clients; past it, the stream with the most unread ends.
    /// Sessions of other nodes have a separate limit of the same size.
    pub unread_bytes_max: usize,
    /// Time for a client to send its HTTP/2 preface, or the head of its next HTTP request.
    pub handshake_timeout_ms: u64,
    /// Silence after which a client is pinged.
    pub keepalive_interval_ms: u64,
    /// Time for the client to answer the ping.
    pub keepalive_timeout_ms: u64,
    /// Time to hand on leadership and to finish calls before the process ends; streams are not waited for.
    pub shutdown_grace_ms: u64,
}

/// Format and level of a node's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// Format of log lines.
    pub format: LogFormat,
    /// Log levels, by target.
    pub level: String,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// For machines.
    Json,
}

/// Sources of settings; each field overrides those before it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// Configuration file, if there is one.
    pub file: Option<ConfigFile>,
    /// Environment, as returned by `std::env::vars_os`. Variables that are not ours are ignored.
    pub env: Vec<(OsString, OsString)>,
    /// Key paths (`node.id`) with the values from the command line.
    pub flags: Vec<(String, String)>,
}

/// A configuration of which all values and rules have been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// Values for the server.
    pub config: Config,
    /// The same settings for people, with origins.
    pub settings: Settings,
}

impl Config {
    /// Reads all sources; the error lists every problem.
    pub fn load(sources: &Sources) -> Result<Loaded, Problems> {
        let layers = Layers::read(&keys::SERVER, sources);
        let (config, settings) = layers.finish(Config::build, Config::validate)?;
        Ok(Loaded { config, settings })
    }

    /// Returns this node's own entry among the members. A node that joins may have none.
    pub fn this_member(&self) -> Option<&Member> {
        self.cluster.members.iter().find(|member| member.id == self.node.id)
    }

    /// Returns the members with which each group is bootstrapped.
    pub fn first_members(&self) -> Members {
        let members = &self.cluster.members;
        let witnesses = members.iter().filter(|member| member.witness);
        let first = Members::first(members.iter().map(|member| member.id), witnesses.map(|member| member.id));
        first.found_at(members.iter().map(|member| {
            let mut found = member.node_addresses();
            if member.id == self.node.id && found.zone == Zone::NONE {
                found.zone = Zone::new(&self.node.zone).expect("its kind was checked");
            }
            (member.id, found)
        }))
    }

    /// Returns the group map of a new cluster.
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
    // Every field is spelled out, so that a new setting of the host is not forgotten here.
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

/// Returns the id of a cluster that was given none: every node derives the same one from the name.
pub fn cluster_id_of(name: &str) -> ClusterId {
    ClusterId::of_name(name)
}

/// Splits a list at its commas.
fn listed(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// Values by path, for [`Config::build`]: the table guarantees that they exist, and their kinds.
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

    /// Returns the names of a comma-separated list, in lower case.
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
