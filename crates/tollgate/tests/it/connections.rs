//! Connections that are too many, stay silent, break off or flood: each is served or cut cleanly.
//!
//! Not here: answers to wrong requests (`input`), hand-made frames (`raw_http2`).

use crate::cluster::{self, Cluster, Making, Node, PATIENCE};
use crate::raw_http2::{self as h2, Raw, call, frame};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tollgate_proto::v1::{LeaseGrantRequest, LockRequest, UnlockRequest};

const LOCK: &str = "/tollgate.v1.LockService/Lock";

/// Returns the value of one series in `/metrics`.
async fn metric(node: &Node, series: &str) -> Option<u64> {
    let (_, text) = node.http("GET", "/metrics", "").await?;
    let line = text.lines().find(|line| line.starts_with(series))?;
    line.rsplit(' ').next()?.parse().ok()
}

async fn grpc_connections(node: &Node) -> Option<u64> {
    metric(node, r#"tollgate_connections{door="grpc"}"#).await
}

/// Waits for the other side to end the connection; returns the bytes received until then.
async fn until_cut(mut stream: TcpStream, patience: Duration) -> Vec<u8> {
    let mut said = Vec::new();
    // A reset is an end as well.
    let cut = tokio::time::timeout(patience, stream.read_to_end(&mut said)).await;
    assert!(cut.is_ok(), "it was not cut within {patience:?}; it said {said:?}");
    said
}

async fn connect(port: u16, first: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(first).await.unwrap();
    stream
}

/// Opens `count` connections to the client port, each with a client's preface, and reads the node's first frame on
/// each.
async fn idle(node: &Node, count: usize) -> Vec<Raw> {
    let mut connections = Vec::new();
    while connections.len() < count {
        let mut some = JoinSet::new();
        for _ in 0..(count - connections.len()).min(500) {
            let port = node.ports.client;
            some.spawn(async move {
                let mut raw = Raw::connect(port).await;
                assert_eq!(raw.read().await.expect("settings").kind, h2::SETTINGS);
                raw
            });
        }
        connections.extend(some.join_all().await);
    }
    connections
}

#[tokio::test(flavor = "multi_thread")]
async fn p16_ten_thousand_idle_connections_are_held_and_no_more_while_locks_are_served() {
    const COUNT: usize = 10_000;
    tollgate_server::open_files::raise();
    // Idle connections are pinged, and these here can't answer; so no ping may come within the test.
    let max = COUNT.to_string();
    let flags = ["--server-connections-max", &max, "--server-keepalive-interval-ms", "600000"];
    let cluster = Cluster::start(Making::nodes(1).flags(&flags)).await;
    let node = &cluster.nodes[0];
    let mut service = node.locks();
    let lease = LeaseGrantRequest { id: 7, ttl_ms: 600_000, ..LeaseGrantRequest::default() };
    service.lease_grant(lease).await.unwrap();
    assert_eq!(grpc_connections(node).await, Some(1));

    let (before, began) = (node.rss_bytes(), Instant::now());
    let held = idle(node, COUNT - 1).await;
    let with = node.rss_bytes();
    let each = (with - before) / COUNT as u64;
    println!(
        "{COUNT} connections in {:?}: {before} bytes resident, then {with}: {each} each",
        began.elapsed()
    );
    assert!(each < 64 << 10, "{each} bytes each");
    assert_eq!(grpc_connections(node).await, Some(10_000));

    // A connection above the limit is cut at once, and the log says why.
    for _ in 0..20 {
        let newcomer = connect(node.ports.client, b"").await;
        assert!(until_cut(newcomer, PATIENCE).await.is_empty());
    }
    let refused = "too many connections, new ones are closed";
    assert_eq!(node.log().matches(refused).count(), 1, "told once\n{}", node.log());
    assert!(node.log().contains("server.connections_max"));
    for number in 0..100 {
        let name = format!("job-{number}");
        let lock = LockRequest { name: name.clone(), lease_id: 7, ..LockRequest::default() };
        assert!(service.lock(lock).await.unwrap().into_inner().acquired);
        service.unlock(UnlockRequest { name, lease_id: 7, ..UnlockRequest::default() }).await.unwrap();
    }

    drop(held);
    cluster::until("all but one are gone", || async { grpc_connections(node).await == Some(1) }).await;
    println!("{} bytes resident when they are gone", node.rss_bytes());
    drop(idle(node, 10).await);
    assert!(node.log().contains("connections are accepted again"), "{}", node.log());
    drop(service);
    cluster::until("none is left", || async { grpc_connections(node).await == Some(0) }).await;
}

/// Returns the number of connections that the system keeps for a process that does not accept them at the moment.
fn kept_by_the_system() -> usize {
    std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_all_come_while_a_node_stands_still_are_let_in_at_once_and_served_when_it_goes_on() {
    let cluster = Cluster::start(Making::nodes(1)).await;
    let node = &cluster.nodes[0];
    node.signal("STOP");
    let mut clients = JoinSet::new();
    for _ in 0..1_000.min(kept_by_the_system()) {
        clients.spawn(Raw::connect(node.ports.client));
    }
    // The system makes none of them retry: a retry would take a second at least, and longer each time.
    let clients = tokio::time::timeout(PATIENCE, clients.join_all()).await.expect("they are let in");
    node.signal("CONT");
    for mut raw in clients {
        let first = tokio::time::timeout(PATIENCE, raw.read()).await.expect("it is served");
        assert_eq!(first.expect("it was not cut").kind, h2::SETTINGS);
    }
}

/// Starts a cluster with short timeouts.
async fn impatient() -> Cluster {
    let flags = [
        "--server-handshake-timeout-ms",
        "500",
        "--server-keepalive-interval-ms",
        "500",
        "--server-keepalive-timeout-ms",
        "500",
    ];
    Cluster::start(Making::nodes(1).flags(&flags)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_never_say_what_they_want_or_fall_silent_are_cut_at_every_port() {
    let cluster = impatient().await;
    let node = &cluster.nodes[0];
    let (client, peer, http) = (node.ports.client, node.ports.peer, node.ports.http);
    let settings = frame(h2::SETTINGS, 0, 0, &[]);
    // A frame of 100 bytes, only ten of which are sent.
    let truncated = [h2::PREFACE, &settings, &frame(h2::HEADERS, 4, 1, &[0; 100])[..19]].concat();
    let half_message = {
        let headers = frame(h2::HEADERS, h2::END_HEADERS, 1, &call(LOCK));
        [h2::PREFACE, &settings, &headers, &frame(h2::DATA, 0, 1, &[0, 0, 0, 1, 0, 7])].concat()
    };
    let partial = [&b"GET /livez HTTP/1.1\r\n"[..], b"POST /v1/lock HTTP/1.1\r\nHost: loc"];
    let answered = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut cuts = JoinSet::new();
    for (port, first) in [
        (client, &b""[..]),
        (client, &h2::PREFACE[..10]),
        (client, &[h2::PREFACE, &settings].concat()),
        (client, &truncated),
        (client, &half_message),
        (peer, b""),
        (peer, b"TOLLG"),
        (http, b""),
        (http, partial[0]),
        (http, partial[1]),
        (http, answered),
    ] {
        let stream = connect(port, first).await;
        cuts.spawn(until_cut(stream, Duration::from_secs(10)));
    }
    // One byte now and then does not keep a connection open.
    let mut drip = connect(http, b"GET / HTTP/1.1\r\nX: ").await;
    cuts.spawn(async move {
        let began = Instant::now();
        while drip.write_all(b"x").await.is_ok() {
            assert!(began.elapsed() < Duration::from_secs(10), "it was not cut");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Vec::new()
    });
    cuts.join_all().await;
    let gone = || async { grpc_connections(node).await == Some(0) };
    cluster::until("no connection is left", gone).await;
    // The only connection left is the one that asks for the metric.
    assert_eq!(metric(node, r#"tollgate_connections{door="http"}"#).await, Some(1));
    assert!(node.is_ready().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_protocol_at_all_is_refused_with_its_reason_where_there_is_a_way_to_say_it() {
    let cluster = impatient().await;
    let node = &cluster.nodes[0];
    let soon = Duration::from_secs(5);
    // Cluster, from, to, disk; and the disk by which the other node is known: none.
    let hello = |version: u16, cluster: u64, to: u64| {
        let numbers = [cluster, 2, to, 9].map(u64::to_le_bytes).concat();
        [&b"TOLLGATE"[..], &version.to_le_bytes(), &numbers, &[0; 9]].concat()
    };
    // Another cluster, another version, another protocol. A peer of the same version gets the node's disk as well.
    let checks = [(hello(3, 1, 1), 1, 9), (hello(99, 1, 1)[..10].to_vec(), 4, 1), (vec![b'x'; 10], 5, 1)];
    for (said, answer, length) in checks {
        let stream = connect(node.ports.peer, &said).await;
        let heard = until_cut(stream, soon).await;
        assert_eq!((heard.first(), heard.len()), (Some(&answer), length), "{heard:?}");
    }
    cluster::until("it is logged", || async {
        node.log().contains("a connection to the peer port was refused")
            && node.log().contains("it belongs to another cluster")
    })
    .await;
    // HTTP/1 on the gRPC port, and HTTP/2 on the HTTP port.
    until_cut(connect(node.ports.client, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await, soon).await;
    let said =
        until_cut(connect(node.ports.http, b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03").await, soon).await;
    assert!(said.starts_with(b"HTTP/1.1 400"), "{said:?}");
    let endless = [b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; 100_000]].concat();
    let said = until_cut(connect(node.ports.http, &endless).await, soon).await;
    // The connection may be cut before the answer is read, because unread request bytes are in the way.
    assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&said));
    // A frame larger than allowed.
    let mut raw = Raw::connect(node.ports.client).await;
    let _ = raw.send(&frame(h2::DATA, 0, 1, &vec![0; 1 << 20])).await;
    assert_eq!(ended(&mut raw).await, Some(h2::FRAME_SIZE_ERROR));
    assert!(node.is_ready().await);
}

/// Returns the error with which the connection ends; `None` if it just ends.
async fn ended(raw: &mut Raw) -> Option<u32> {
    let reads = async {
        while let Some(frame) = raw.next().await {
            if frame.kind == h2::GO_AWAY && frame.error() != 0 {
                return Some(frame.error());
            }
        }
        None
    };
    tokio::time::timeout(PATIENCE, reads).await.expect("it ends")
}

/// Opens and resets streams until the connection ends. Returns the number of streams, and the error.
async fn reset_flood(port: u16) -> (u32, Option<u32>) {
    let Raw(stream) = Raw::connect(port).await;
    let (reader, mut writer) = stream.into_split();
    let flood = tokio::spawn(async move {
        for number in 0..100_000 {
            let stream = 2 * number + 1;
            let open = frame(h2::HEADERS, h2::END_HEADERS, stream, &call(LOCK));
            let reset = frame(h2::RESET, 0, stream, &h2::CANCEL.to_be_bytes());
            if writer.write_all(&[open, reset].concat()).await.is_err() {
                return number;
            }
        }
        100_000
    });
    let mut reader = tokio::io::BufReader::new(reader);
    let reads = async {
        let mut head = [0; 9];
        while reader.read_exact(&mut head).await.is_ok() {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            reader.read_exact(&mut payload).await.ok()?;
            if head[3] == h2::GO_AWAY {
                return Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
            }
        }
        None
    };
    let error = tokio::time::timeout(PATIENCE, reads).await.expect("it ends");
    drop(reader);
    (tokio::time::timeout(PATIENCE, flood).await.expect("it ends").unwrap(), error)
}

#[tokio::test(flavor = "multi_thread")]
async fn p16_stream_floods_are_refused_stream_by_stream_or_end_their_connection_only() {
    let flags = ["--server-streams-per-connection-max", "100"];
    let mut cluster = Cluster::start(Making::nodes(1).flags(&flags)).await;
    let node = &mut cluster.nodes[0];
    let port = node.ports.client;
    let mut others = node.locks();
    let lease = LeaseGrantRequest { id: 7, ttl_ms: 600_000, ..LeaseGrantRequest::default() };
    others.lease_grant(lease).await.unwrap();

    // Calls without a message: those past the limit are refused, and those before it live on.
    let mut raw = Raw::connect(port).await;
    for number in 0..150 {
        let open = frame(h2::HEADERS, h2::END_HEADERS, 2 * number + 1, &call(LOCK));
        raw.send(&open).await.unwrap();
    }
    let mut refused = Vec::new();
    while refused.len() < 50 {
        let frame = tokio::time::timeout(PATIENCE, raw.next()).await.unwrap().expect("the connection lives");
        if frame.kind == h2::RESET {
            assert_eq!(frame.error(), h2::REFUSED_STREAM, "{frame:?}");
            refused.push(frame.stream);
        }
    }
    assert!(refused.iter().all(|stream| *stream > 200), "{refused:?}");
    raw.send(&frame(h2::PING, 0, 0, &[7; 8])).await.unwrap();
    let pong =
        async { while raw.next().await.is_none_or(|it| it.kind != h2::PING || it.flags != h2::ACK) {} };
    tokio::time::timeout(PATIENCE, pong).await.expect("the connection lives");

    // Headers without an end.
    let mut endless = Raw::connect(port).await;
    let _ = endless.send(&frame(h2::HEADERS, 0, 1, &call(LOCK))).await;
    let piece = [&[0x00, 1, b'x', 100][..], &[b'y'; 100]].concat();
    let more = frame(h2::CONTINUATION, 0, 1, &piece.repeat(100));
    let mut sent = 0;
    while sent < 100 << 20 && endless.send(&more).await.is_ok() {
        sent += more.len();
    }
    println!("headers without an end: {sent} bytes were taken");
    assert!(sent < 16 << 20, "nobody stopped it");

    // Rapid resets, on several connections at once, repeatedly.
    let mut sizes = Vec::new();
    for _ in 0..4 {
        let mut floods = JoinSet::new();
        for _ in 0..8 {
            floods.spawn(reset_flood(port));
        }
        for (streams, error) in floods.join_all().await {
            println!("{streams} resets, then {error:?}");
            assert!(streams < 100_000, "nobody stopped it");
            assert!(error.is_none_or(|error| error == h2::ENHANCE_YOUR_CALM), "{error:?}");
        }
        let lock = LockRequest { name: "jobs".into(), lease_id: 7, ..LockRequest::default() };
        assert!(others.lock(lock).await.unwrap().into_inner().acquired);
        sizes.push(node.rss_bytes());
    }
    println!("resident after each round: {sizes:?}");
    assert!(sizes[3] < sizes[0] + (32 << 20), "it grows: {sizes:?}");
    assert!(node.exited().is_none());
}
