//! Clock differences in a server's status, over HTTP, and in its metrics.

use crate::sessions::{Cluster, PATIENCE};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::{StatusRequest, StatusResponse};
use tollgate_replica::MonotonicTime;
use tollgate_server::{Clock, ClockSampling, NodeClock};

/// A clock that runs 2% fast.
#[derive(Debug)]
struct Fast(Instant);

impl Clock for Fast {
    fn now(&self) -> MonotonicTime {
        let passed = self.0.elapsed().as_micros();
        MonotonicTime::from_us(u64::try_from(passed + passed / 50).unwrap())
    }
}

async fn status(cluster: &Cluster, server: usize) -> StatusResponse {
    let mut admin = AdminServiceClient::new(cluster.channel(server).await);
    admin.status(StatusRequest::default()).await.unwrap().into_inner()
}

/// Returns the body of a server's answer to a GET.
async fn get(cluster: &Cluster, server: usize, path: &str) -> String {
    let address = cluster.servers[server].addresses().http;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p5_a_clock_that_runs_fast_is_warned_of_and_told_by_status_and_metrics() {
    let sampling = ClockSampling { every: Duration::from_millis(10), window: Duration::from_millis(500) };
    let clock_of = |id| match id {
        2 => NodeClock { clock: Arc::new(Fast(Instant::now())), sampling },
        _ => NodeClock { sampling, ..NodeClock::system() },
    };
    let cluster = Cluster::start_by_clocks(&[false; 3], &[], clock_of).await;
    for server in 0..3 {
        let (id, mut status_now) = (server as u64 + 1, status(&cluster, server).await);
        let warned = async {
            while status_now.clocks.len() < 2 || status_now.warnings.is_empty() {
                tokio::time::sleep(Duration::from_millis(50)).await;
                status_now = status(&cluster, server).await;
            }
            status_now
        };
        let status = tokio::time::timeout(PATIENCE, warned).await.expect("it is warned of in time");
        for clock in &status.clocks {
            let expected = match (id, clock.node_id) {
                (2, _) => -19_608,
                (_, 2) => 20_000,
                _ => 0,
            };
            assert!((clock.rate_difference_ppm - expected).abs() < 3_000, "node {id}: {clock:?}");
        }
        let whose = if id == 2 { "this node's clock runs" } else { "node 2's clock runs" };
        assert!(status.warnings.len() == 1 && status.warnings[0].starts_with(whose), "{:?}", status.warnings);
        // The message over HTTP is the same.
        let json: Value = serde_json::from_str(&get(&cluster, server, "/v1/status").await).unwrap();
        assert!(json["warnings"][0].as_str().unwrap().starts_with(whose), "{json}");
        assert!(json["clocks"][0]["rate_difference_ppm"].is_i64(), "{json}");
        let told = async {
            let series = |text: &str| text.matches("tollgate_clock_rate_difference_ratio{peer=").count();
            while series(&get(&cluster, server, "/metrics").await) < 2 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(PATIENCE, told).await.expect("it is measured in time");
    }
    cluster.stop().await;
}
