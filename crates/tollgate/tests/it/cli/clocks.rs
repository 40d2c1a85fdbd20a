//! Warnings of `tollgate status` about a clock that runs wrong. The nodes are servers in this process, because only
//! there can a node be given another clock.

use super::Cli;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tollgate_replica::MonotonicTime;
use tollgate_server::config::{Config, ListenConfig, Sources};
use tollgate_server::{Addresses, Clock, ClockSampling, Listeners, NodeClock, Server};

/// A clock that runs 2% fast.
#[derive(Debug)]
struct Fast(Instant);

impl Clock for Fast {
    fn now(&self) -> MonotonicTime {
        let passed = self.0.elapsed().as_micros();
        MonotonicTime::from_us(u64::try_from(passed + passed / 50).unwrap())
    }
}

/// Starts three servers, the second one with a fast clock.
fn start(dir: &TempDir) -> Vec<Server> {
    let any = || ([127, 0, 0, 1], 0).into();
    let listen = || ListenConfig { client: any(), peer: any(), http: any(), insecure: false };
    let bound: Vec<Listeners> = (0..3).map(|_| Listeners::bind(&listen()).unwrap()).collect();
    let addresses: Vec<Addresses> = bound.iter().map(|listeners| listeners.addresses().unwrap()).collect();
    let members = (1..).zip(&addresses).fold(String::new(), |mut text, (id, its)| {
        write!(text, "{{id = {id}, peer = \"{}\", client = \"{}\"}}, ", its.peer, its.client).unwrap();
        text
    });
    let server = |((id, own), listeners): ((u64, &Addresses), Listeners)| {
        let flags = [
            ("node.id", id.to_string()),
            ("node.data_dir", dir.path().join(format!("node-{id}")).display().to_string()),
            ("cluster.name", "clocks".to_owned()),
            ("cluster.members", format!("[{members}]")),
            ("cluster.bootstrap", "true".to_owned()),
            ("listen.client", own.client.to_string()),
            ("listen.peer", own.peer.to_string()),
            ("listen.http", own.http.to_string()),
        ];
        let flags = flags.map(|(key, value)| (key.to_owned(), value)).to_vec();
        let loaded = Config::load(&Sources { file: None, env: Vec::new(), flags }).unwrap();
        let sampling = ClockSampling { every: Duration::from_millis(10), window: Duration::from_millis(500) };
        let clock = match id {
            2 => NodeClock { clock: Arc::new(Fast(Instant::now())), sampling },
            _ => NodeClock { sampling, ..NodeClock::system() },
        };
        Server::start_by_clock(&loaded.config, loaded.settings, listeners, None, clock).unwrap()
    };
    (1..).zip(&addresses).zip(bound).map(server).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p5_status_names_the_node_whose_clock_runs_fast_and_ends_with_1() {
    let dir = TempDir::new().unwrap();
    let servers = start(&dir);
    let endpoints = servers.iter().map(|server| format!("http://{}", server.addresses().client));
    let cli = Cli::at(endpoints.collect::<Vec<_>>().join(","));
    let warnings_now = || {
        let ended = cli.call(&["status", "-o", "json"]);
        let warnings = ended.json()["warnings"].as_array().unwrap().clone();
        let warnings = warnings.iter().map(|warning| warning.as_str().unwrap().to_owned());
        (ended.code, warnings.collect::<Vec<_>>())
    };
    // A warning that two nodes give in the same words is printed once; their numbers may differ by a tenth of a
    // percent.
    let all_say = |warnings: &[String]| {
        warnings.iter().any(|warning| warning.starts_with("node 2: this node's clock runs "))
            && warnings.iter().any(|warning| warning.starts_with("node 1, node 3: node 2's clock runs "))
    };
    let mut last = (None, Vec::new());
    let waited = async {
        while !all_say(&last.1) {
            tokio::time::sleep(Duration::from_millis(100)).await;
            last = tokio::task::block_in_place(warnings_now);
        }
    };
    let waited = tokio::time::timeout(Duration::from_mins(1), waited).await;
    assert!(waited.is_ok(), "nobody says so: {last:?}");
    assert_eq!((last.0, last.1.len()), (Some(1), 2), "{last:?}");
    let text = tokio::task::block_in_place(|| cli.call(&["status"])).with(1).stdout;
    assert!(text.contains("look at the warnings") && text.contains("node 2's clock runs "), "{text}");
    let json = tokio::task::block_in_place(|| cli.call(&["status", "-o", "json"])).with(1).json();
    let ppm = json["nodes"][0]["clocks"][0]["rate_difference_ppm"].as_i64().unwrap();
    assert_eq!(json["nodes"][0]["clocks"][0]["node_id"], "2");
    assert!((17_000..23_000).contains(&ppm), "{json}");
    for server in servers {
        server.stop().await;
    }
}
