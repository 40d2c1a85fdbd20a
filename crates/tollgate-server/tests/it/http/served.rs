//! A node behind a real socket, and a client that sends exactly the bytes that a test needs.

use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tollgate_node::{Bootstrap, Node, NodeClock, NodeHandle, NodeSettings};
use tollgate_replica::{EngineConfig, HostConfig, Members};
use tollgate_server::Router;
use tollgate_server::http::{HttpState, routes};
use tollgate_server::metrics::Metrics;
use tollgate_types::{ClusterId, GroupId, GroupMap, Limits, NodeId};

#[derive(Clone)]
pub(crate) struct Served {
    address: SocketAddr,
    metrics: Arc<Metrics>,
    handle: NodeHandle,
    node: Arc<Mutex<Option<Node>>>,
    _dir: Arc<TempDir>,
}

#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answered {
    async fn read(mut stream: TcpStream) -> Answered {
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(40), stream.read_to_end(&mut bytes)).await;
        read.expect("an answer in time").unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Answered { status, head: head.to_owned(), body: body.to_owned() }
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Served {
    /// Starts a node, and waits until it serves.
    pub(crate) async fn start() -> Served {
        let (dir, own, group) = (TempDir::new().unwrap(), NodeId::new(1).unwrap(), GroupId::new(0));
        let settings = NodeSettings {
            host: HostConfig::new(ClusterId::new(7), own),
            engine: EngineConfig::default(),
            data_dir: dir.path().join("data"),
            peers: BTreeMap::new(),
            bootstrap: Some(Bootstrap {
                map: Arc::new(GroupMap::single()),
                members: Members::first([own], []),
                limits: Limits::DEFAULT,
            }),
            join: None,
            operations_waiting_max: 1_000,
            clock: NodeClock::system(),
        };
        let peers = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let metrics = Arc::new(Metrics::new());
        let runtime = tokio::runtime::Handle::current();
        let node = Node::start(&settings, peers, Arc::clone(&metrics) as _, &runtime).unwrap();
        let handle = node.handle().clone();
        let serves = async |handle: &NodeHandle| {
            handle.status().clone().wait_for(|status| status.serves(group)).await.map(drop)
        };
        tokio::time::timeout(Duration::from_secs(30), serves(&handle)).await.unwrap().unwrap();
        let router =
            Router::beside(handle.clone(), GroupMap::single(), BTreeMap::new(), Arc::clone(&metrics) as _);
        let state = HttpState::new(router, Arc::clone(&metrics));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = routes(state).into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, service).await });
        Served { address, metrics, handle, node: Arc::new(Mutex::new(Some(node))), _dir: Arc::new(dir) }
    }

    pub(crate) async fn stop_node(&self) {
        let node = self.node.lock().await.take().expect("stopped once");
        node.stop(Duration::from_millis(1)).await;
    }

    pub(crate) async fn sample(&self) {
        self.metrics.sample_once(&self.handle).await;
    }

    pub(crate) async fn get(&self, path: &str) -> Answered {
        self.send("GET", path, "", b"").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answered {
        self.send("POST", path, "", body.to_string().as_bytes()).await
    }

    /// Sends a GET with this `Host` header, like a client that knows the node under that name.
    pub(crate) async fn get_as(&self, host: &str, path: &str) -> Answered {
        let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        Answered::read(stream).await
    }

    /// Sends a request and leaves it open.
    pub(crate) async fn begin_post(&self, path: &str, body: &Value) -> TcpStream {
        self.begin("POST", path, "", body.to_string().as_bytes()).await
    }

    async fn begin(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let (host, length) = (self.address, body.len());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // A request that is refused early may be closed before all of it is written.
        let _ = stream.write_all(body).await;
        stream
    }

    pub(crate) async fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answered {
        let stream = self.begin(method, path, headers, body).await;
        Answered::read(stream).await
    }
}
