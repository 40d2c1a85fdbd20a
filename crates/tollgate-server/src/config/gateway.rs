//! The configuration of a gateway: addresses of the cluster, addresses to listen on, and limits for clients.
//!
//! A gateway has a table of its own. Its keys for listening, clients and logs are those of a node, so that nobody
//! learns two names for one thing. Not here: reading the sources and merging them (`layers`).

use super::keys::{KEYS, Key, Preset, Table, key};
use super::kind::Kind;
use super::layers::Layers;
use super::member::Endpoint;
use super::rules::{Broken, BrokenRule, OPERATIONS_ADMITTED, broke, check_addresses};
use super::{LogConfig, Origin, Problems, ServerConfig, Settings, Sources, listed};
use std::net::SocketAddr;
use std::sync::LazyLock;
use tollgate_types::ClusterId;

/// Maximum number of nodes that may be named; the gateway learns the others from them.
const NODES_MAX: usize = 64;

/// Table of a gateway's settings.
pub static GATEWAY: LazyLock<Table> = LazyLock::new(|| {
    let own = OWN_KEYS.iter().chain(KEYS.iter().filter(|key| is_shared(key)));
    Table { sections: SECTIONS, keys: own.copied().map(of_gateway).collect::<Vec<Key>>().leak() }
});

/// Adapts a key of a node for a gateway.
fn of_gateway(key: Key) -> Key {
    match (key.section, key.name) {
        // A node derives its default from the size of the driver's inbox, which a gateway does not have.
        ("server", "operations_admitted_max") => Key { preset: Preset::Number(OPERATIONS_ADMITTED), ..key },
        _ => key,
    }
}

const SECTIONS: &[(&str, &str)] = &[
    ("gateway", "Where the cluster is, and who asks for it."),
    ("cluster", "Which cluster it is."),
    ("listen", "Where this gateway listens."),
    ("server", "What clients may take of this gateway."),
    ("log", "What this gateway says about itself."),
];

static OWN_KEYS: [Key; 4] = [
    key(
        "gateway",
        "nodes",
        Kind::Name,
        Preset::Required,
        "Nodes of the cluster, some or all, by commas: where they serve clients",
    ),
    key(
        "gateway",
        "hosts",
        Kind::Text,
        Preset::Text(""),
        "Names by which gateways are asked over HTTP, by commas; addresses and localhost need not be named",
    ),
    key(
        "cluster",
        "name",
        Kind::Text,
        Preset::Text(""),
        "The name of the cluster that the nodes must be of. Without it, the first one that is seen counts",
    ),
    key(
        "cluster",
        "id",
        Kind::ClusterId,
        Preset::Derived("hash of cluster.name"),
        "The cluster's id, 16 hexadecimal digits, if it does not follow from the name",
    ),
];

/// True if a gateway shares this key of a node.
fn is_shared(key: &Key) -> bool {
    match key.section {
        "listen" => key.name != "peer",
        // A gateway has no driver, and no inbox.
        "server" => key.name != "operations_in_flight_max",
        // A gateway has no locks.
        section => section == "log" && key.name != "locks",
    }
}

/// Configuration of a gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayConfig {
    /// Client addresses of nodes, as `host:port`.
    pub nodes: Vec<String>,
    /// Host names under which the gateway serves HTTP, in lower case.
    pub hosts: Vec<String>,
    /// Id that the cluster must have, if the configuration names a cluster.
    pub cluster: Option<ClusterId>,
    /// gRPC address for clients.
    pub client: SocketAddr,
    /// HTTP address for browsers and monitoring.
    pub http: SocketAddr,
    /// True if addresses beyond loopback are allowed although there is no TLS.
    pub insecure: bool,
    /// Limits for clients.
    pub server: ServerConfig,
    /// Format and level of the log.
    pub log: LogConfig,
}

/// A configuration of which all values and rules have been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedGateway {
    /// Values for the gateway.
    pub config: GatewayConfig,
    /// The same settings for people, with origins.
    pub settings: Settings,
}

impl GatewayConfig {
    /// Reads all sources; the error lists every problem.
    pub fn load(sources: &Sources) -> Result<LoadedGateway, Problems> {
        let layers = Layers::read(&GATEWAY, sources);
        let (config, settings) = layers.finish(GatewayConfig::build, GatewayConfig::validate)?;
        Ok(LoadedGateway { config, settings })
    }

    fn build(settings: &Settings) -> GatewayConfig {
        let id = settings.get("cluster.id").expect("the table has it");
        let named = id.origin != Origin::Default || !settings.text("cluster.name").is_empty();
        let number =
            u64::from_str_radix(settings.text("cluster.id"), 16).expect("an id has 16 hexadecimal digits");
        let node = |text: String| match Endpoint::parse(&text) {
            Ok(endpoint) => endpoint.to_string(),
            Err(_) => text,
        };
        GatewayConfig {
            nodes: listed(settings.text("gateway.nodes")).map(address_of).map(node).collect(),
            hosts: settings.hosts("gateway.hosts"),
            cluster: named.then(|| ClusterId::new(number)),
            client: settings.address("listen.client"),
            http: settings.address("listen.http"),
            insecure: settings.switch("listen.insecure"),
            server: ServerConfig::build(settings),
            log: LogConfig::build(settings),
        }
    }

    /// Checks the rules between settings; the error lists every broken one.
    pub fn validate(&self) -> Result<(), Vec<BrokenRule>> {
        let mut broken = Broken::new();
        if self.nodes.is_empty() || self.nodes.len() > NODES_MAX {
            let rule =
                format!("names {} nodes: name at least one, and at most {NODES_MAX}", self.nodes.len());
            broke(&mut broken, &["gateway.nodes"], rule, "write 10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400");
        }
        for node in &self.nodes {
            if let Err(wrong) = Endpoint::parse(node) {
                let advice = "write where the node serves clients, such as 10.0.0.1:7400";
                broke(&mut broken, &["gateway.nodes"], wrong.what, advice);
            }
        }
        let all = [("listen.client", self.client), ("listen.http", self.http)];
        check_addresses(&all, self.insecure, &mut broken);
        if broken.is_empty() { Ok(()) } else { Err(broken) }
    }
}

/// Strips the scheme and the trailing slash that people may write around an endpoint.
fn address_of(endpoint: &str) -> String {
    endpoint.trim_start_matches("http://").trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(flags: &[(&str, &str)]) -> Result<LoadedGateway, Problems> {
        let flags = flags.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
        GatewayConfig::load(&Sources { file: None, env: Vec::new(), flags })
    }

    #[test]
    fn nodes_are_named_with_and_without_their_scheme() {
        let loaded = load(&[("gateway.nodes", "http://10.0.0.1:7400/, Locks-2:7400")]).unwrap();
        assert_eq!(loaded.config.nodes, ["10.0.0.1:7400", "locks-2:7400"]);
        assert_eq!(loaded.config.cluster, None);
        assert_eq!(loaded.config.server.operations_admitted_max, 50_000);
    }

    #[test]
    fn a_cluster_that_is_named_has_the_id_that_its_nodes_have() {
        let nodes = ("gateway.nodes", "a:1");
        let named = load(&[nodes, ("cluster.name", "production")]).unwrap().config.cluster;
        assert_eq!(named, Some(super::super::cluster_id_of("production")));
        let numbered = load(&[nodes, ("cluster.id", "00000000000000ff")]).unwrap().config.cluster;
        assert_eq!(numbered, Some(ClusterId::new(255)));
    }

    #[test]
    fn p17_without_insecure_a_gateway_listens_on_loopback_only() {
        let nodes = ("gateway.nodes", "a:1");
        let problems = load(&[nodes, ("listen.client", "0.0.0.0:7400")]).unwrap_err().to_string();
        assert!(problems.contains("only loopback is allowed"), "{problems}");
        let loaded = load(&[nodes, ("listen.client", "0.0.0.0:7400"), ("listen.insecure", "true")]);
        assert!(loaded.is_ok());
    }

    #[test]
    fn what_is_missing_or_wrong_is_said_with_what_to_write() {
        let problems = load(&[]).unwrap_err().to_string();
        assert!(problems.contains("gateway.nodes is missing"), "{problems}");
        let problems = load(&[("gateway.nodes", "a:1,b")]).unwrap_err().to_string();
        assert!(problems.contains("it has no port"), "{problems}");
        let problems = load(&[("gateway.nodes", "a:1"), ("raft.tick_ms", "1")]).unwrap_err().to_string();
        assert!(problems.contains("is no key"), "{problems}");
    }

    #[test]
    fn every_key_has_a_section_and_none_is_there_twice() {
        let mut paths: Vec<String> = GATEWAY.keys.iter().map(Key::path).collect();
        for key in GATEWAY.keys {
            assert!(GATEWAY.sections.iter().any(|(section, _)| *section == key.section), "{}", key.path());
        }
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), GATEWAY.keys.len());
    }
}
