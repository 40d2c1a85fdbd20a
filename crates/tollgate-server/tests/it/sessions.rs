//! Sessions of clients, with three servers in this process.

use std::fmt::Write;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_proto::v1::lock_service_client::LockServiceClient;
use tollgate_proto::v1::session_service_client::SessionServiceClient;
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tollgate_server::config::{Config, ListenConfig, Sources};
use tollgate_server::{Addresses, Listeners, NodeClock, Router, Server};
use tollgate_types::{Address, GroupId};
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Cluster {
    pub(crate) servers: Vec<Server>,
    _dir: TempDir,
}

impl Cluster {
    async fn start() -> Cluster {
        Cluster::start_with(&[false; 3], &[]).await
    }

    /// Starts a server for each entry of `witnesses`, as a witness where that is true, with these additional settings.
    pub(crate) async fn start_with(witnesses: &[bool], settings: &[(&str, &str)]) -> Cluster {
        Cluster::start_by_clocks(witnesses, settings, |_| NodeClock::system()).await
    }

    /// Like `start_with`, with a clock for each server.
    pub(crate) async fn start_by_clocks(
        witnesses: &[bool],
        settings: &[(&str, &str)],
        clock_of: impl Fn(u64) -> NodeClock,
    ) -> Cluster {
        let dir = TempDir::new().unwrap();
        let any = || ([127, 0, 0, 1], 0).into();
        let listen = || ListenConfig { client: any(), peer: any(), http: any(), insecure: false };
        let bound: Vec<Listeners> = witnesses.iter().map(|_| Listeners::bind(&listen()).unwrap()).collect();
        let addresses: Vec<Addresses> =
            bound.iter().map(|listeners| listeners.addresses().unwrap()).collect();
        let members = (1..).zip(&addresses).zip(witnesses);
        let members = members.fold(String::new(), |mut text, ((id, its), witness)| {
            let Addresses { peer, client, .. } = its;
            write!(text, "{{id = {id}, peer = \"{peer}\", client = \"{client}\", witness = {witness}}}, ")
                .unwrap();
            text
        });
        let mut servers = Vec::new();
        for ((id, own), listeners) in (1..).zip(&addresses).zip(bound) {
            let flags = [
                ("node.id", id.to_string()),
                ("node.data_dir", dir.path().join(format!("node-{id}")).display().to_string()),
                ("cluster.name", "test".to_owned()),
                ("cluster.members", format!("[{members}]")),
                ("cluster.bootstrap", "true".to_owned()),
                ("server.shutdown_grace_ms", "100".to_owned()),
                ("listen.client", own.client.to_string()),
                ("listen.peer", own.peer.to_string()),
                ("listen.http", own.http.to_string()),
            ];
            let more = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let mut flags = flags.map(|(key, value)| (key.to_owned(), value)).to_vec();
            flags.retain(|(key, _)| settings.iter().all(|(other, _)| other != key));
            flags.extend(more);
            let loaded = Config::load(&Sources { file: None, env: Vec::new(), flags }).unwrap();
            let started =
                Server::start_by_clock(&loaded.config, loaded.settings, listeners, None, clock_of(id));
            servers.push(started.unwrap());
        }
        let cluster = Cluster { servers, _dir: dir };
        cluster.leader().await;
        cluster
    }

    /// Returns the index of the server that leads.
    pub(crate) async fn leader(&self) -> usize {
        let found = async {
            loop {
                let leads = |server: &Server| server.router().serves(GroupId::new(0));
                if let Some(leader) = self.servers.iter().position(leads) {
                    return leader;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, found).await.unwrap()
    }

    async fn lives(&self, lease: u64) -> bool {
        let asked = v1::LeaseTimeToLiveRequest { id: lease, ..Default::default() };
        let router = self.servers[0].router();
        match router.execute(Op::LeaseTimeToLive(asked), &Address::NONE).await {
            OpResult::LeaseTimeToLive(_) => true,
            OpResult::Error(error) if error.reason() == v1::ErrorReason::LeaseNotFound => false,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn channel(&self, server: usize) -> Channel {
        let address = self.servers[server].addresses().client;
        Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
    }

    pub(crate) async fn session(&self, server: usize) -> Session {
        let channel = self.channel(server).await;
        let (requests, outgoing) = mpsc::channel(16);
        let request = ReceiverStream::new(outgoing);
        let answers = SessionServiceClient::new(channel).session(request).await.unwrap().into_inner();
        Session { requests, answers, next: 0 }
    }

    pub(crate) async fn watch(&self, server: usize) -> Watching {
        let channel = self.channel(server).await;
        let (requests, outgoing) = mpsc::channel(16);
        let request = ReceiverStream::new(outgoing);
        let answers = LockServiceClient::new(channel).watch(request).await.unwrap().into_inner();
        Watching { requests, answers }
    }

    pub(crate) async fn stop(self) {
        for server in self.servers {
            server.stop().await;
        }
    }
}

pub(crate) struct Session {
    requests: mpsc::Sender<v1::SessionRequest>,
    answers: Streaming<v1::SessionResponse>,
    next: u64,
}

impl Session {
    pub(crate) async fn send(&mut self, id: u64, op: Option<Op>) {
        let operations = vec![v1::Operation { id, op, ..Default::default() }];
        self.requests.send(v1::SessionRequest { operations, ..Default::default() }).await.unwrap();
    }

    /// Returns the next results; none at the end of the stream.
    pub(crate) async fn results(&mut self) -> Option<Vec<v1::OperationResult>> {
        loop {
            let frame = tokio::time::timeout(PATIENCE, self.answers.next()).await.unwrap()?.unwrap();
            if !frame.results.is_empty() {
                return Some(frame.results);
            }
        }
    }

    pub(crate) async fn ask(&mut self, op: Op) -> OpResult {
        self.next += 1;
        self.send(self.next, Some(op)).await;
        let results = self.results().await.unwrap();
        assert_eq!((results.len(), results[0].id), (1, self.next), "{results:?}");
        results.into_iter().next().unwrap().result.unwrap()
    }

    /// Grants a lease of ten minutes, and returns the id that the server chose.
    pub(crate) async fn grant(&mut self, revoke_on_disconnect: bool) -> u64 {
        let grant = v1::LeaseGrantRequest { ttl_ms: 600_000, revoke_on_disconnect, ..Default::default() };
        match self.ask(Op::LeaseGrant(grant)).await {
            OpResult::LeaseGrant(granted) => granted.id,
            other => panic!("{other:?}"),
        }
    }

    async fn keep_alive(&mut self, lease: u64) {
        let keep = v1::LeaseKeepAliveRequest { id: lease, ..Default::default() };
        match self.ask(Op::LeaseKeepAlive(keep)).await {
            OpResult::LeaseKeepAlive(kept) => assert!(kept.ttl_ms > 0),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_ends_with_its_connection_does_so_at_any_node_with_its_last_session() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let follower = (leader + 1) % 3;
    for (server, other) in [(leader, leader), (follower, follower), (leader, follower), (follower, leader)] {
        let mut first = cluster.session(server).await;
        let (ends, moves, stays) =
            (first.grant(true).await, first.grant(true).await, first.grant(false).await);
        let mut second = cluster.session(other).await;
        second.keep_alive(moves).await;
        drop(first);
        let ended = async |lease| {
            while cluster.lives(lease).await {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ended(ends)).await.expect("the lease ends with its session");
        assert!(cluster.lives(moves).await && cluster.lives(stays).await);
        drop(second);
        tokio::time::timeout(PATIENCE, ended(moves)).await.expect("it ends with the last session");
        assert!(cluster.lives(stays).await);
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_ends_with_the_last_session_of_its_node_whichever_kept_it_alive_last() {
    let cluster = Cluster::start().await;
    for server in 0..3 {
        let (mut first, mut second) = (cluster.session(server).await, cluster.session(server).await);
        let lease = first.grant(true).await;
        second.keep_alive(lease).await;
        drop(second);
        first.keep_alive(lease).await;
        let mut third = cluster.session(server).await;
        third.keep_alive(lease).await;
        drop(third);
        assert!(cluster.lives(lease).await);
        drop(first);
        let ended = async {
            while cluster.lives(lease).await {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ended).await.expect("the lease ends with its last session");
    }
    cluster.stop().await;
}

/// Forwarded, the operation would be longer than the leader accepts, and end the stream that all other clients use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_longer_than_a_message_of_a_client_is_refused_and_its_session_goes_on() {
    let cluster = Cluster::start_with(&[false; 3], &[("server.frame_bytes_max", "65536")]).await;
    let leader = cluster.leader().await;
    for server in [leader, (leader + 1) % 3] {
        let mut session = cluster.session(server).await;
        let put = |bytes| {
            let put = v1::PutRequest { key: b"k".to_vec(), value: vec![7; bytes], ..Default::default() };
            v1::TxnOp { op: Some(v1::txn_op::Op::Put(put)) }
        };
        let txn = |bytes| {
            let then_ops = vec![put(bytes), put(1_000)];
            Op::Txn(v1::TxnRequest { then_ops, ..Default::default() })
        };
        for (bytes, refused) in [(64_000, false), (65_000, true), (65_480, true)] {
            let error = match session.ask(txn(bytes)).await {
                OpResult::Error(error) => error,
                other => panic!("{other:?}"),
            };
            // The same key twice is refused as well, by the leader.
            let too_long = error.message.contains("server.frame_bytes_max");
            assert_eq!(too_long, refused, "{bytes}: {error:?}");
            assert!(!error.may_have_happened, "{error:?}");
        }
        session.grant(false).await;
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_asks_for_nothing_more_still_gets_its_answers() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    for server in [leader, (leader + 1) % 3] {
        let mut session = cluster.session(server).await;
        let (first, second) = (session.grant(false).await, session.grant(false).await);
        let lock = |lease_id, timeout_ms| {
            Op::Lock(v1::LockRequest { name: "jobs".into(), lease_id, timeout_ms, ..Default::default() })
        };
        assert!(matches!(session.ask(lock(first, 0)).await, OpResult::Lock(it) if it.acquired));
        session.send(100, Some(lock(second, 200))).await;
        // Refused, and not mistaken for the operation that is under way.
        session.send(100, None).await;
        let Session { requests, answers, next } = session;
        drop(requests);
        let (requests, _) = mpsc::channel(1);
        let mut session = Session { requests, answers, next };
        let mut told = Vec::new();
        while let Some(results) = session.results().await {
            told.extend(results.into_iter().filter_map(|result| result.result));
        }
        let refused = |result: &OpResult| matches!(result, OpResult::Error(it) if it.field == "op");
        assert!(told.iter().any(refused), "{told:?}");
        assert!(matches!(told.last(), Some(OpResult::Lock(it)) if !it.acquired), "{told:?}");
        let unlock = v1::UnlockRequest { name: "jobs".into(), lease_id: first, ..Default::default() };
        let unlocked = cluster.servers[server].router().execute(Op::Unlock(unlock), &Address::NONE).await;
        assert!(matches!(unlocked, OpResult::Unlock(_)), "{unlocked:?}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_says_how_far_it_has_come_without_events_and_tells_each_event_once() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let router = cluster.servers[leader].router();
    let mut watching = cluster.watch(leader).await;
    let key = || Some(v1::watch_request::Target::Key("jobs".into()));
    watching.send(v1::WatchRequest { target: key(), watch_id: 7, ..Default::default() }).await;
    assert!(watching.next().await.created);
    // A second watch with that number is refused, and the first goes on.
    watching.send(v1::WatchRequest { target: key(), watch_id: 7, ..Default::default() }).await;
    let refused = watching.next().await;
    assert_eq!((refused.watch_id, refused.error.unwrap().field.as_str()), (0, "watch_id"));
    let grant = v1::LeaseGrantRequest { id: 1, ttl_ms: 600_000, ..Default::default() };
    router.execute(Op::LeaseGrant(grant), &Address::NONE).await;
    let lock = |name: &str| v1::LockRequest { name: name.into(), lease_id: 1, ..Default::default() };
    for round in 0..3 {
        let other = router.execute(Op::Lock(lock(&format!("other-{round}"))), &Address::NONE).await;
        let OpResult::Lock(v1::LockResponse { header: Some(header), .. }) = other else {
            panic!("{other:?}")
        };
        watching.send(v1::WatchRequest { progress: true, watch_id: 7, ..Default::default() }).await;
        let progress = watching.next().await;
        assert!(progress.events.is_empty() && !progress.canceled, "{progress:?}");
        assert!(progress.header.unwrap().revision >= header.revision);
    }
    router.execute(Op::Lock(lock("jobs")), &Address::NONE).await;
    watching.send(v1::WatchRequest { progress: true, ..Default::default() }).await;
    let (mut events, mut last) = (0, watching.next().await);
    while !last.events.is_empty() {
        events += last.events.len();
        last = watching.next().await;
    }
    if events == 0 {
        events = watching.next().await.events.len();
    }
    assert_eq!(events, 1);
    cluster.stop().await;
}

/// Returns the lease that holds the lock, and the number of waiters.
async fn holder(router: &Router) -> (u64, u64) {
    let get = v1::GetLockRequest { name: "jobs".into(), ..Default::default() };
    let OpResult::GetLock(found) = router.execute(Op::GetLock(get), &Address::NONE).await else {
        panic!("no answer")
    };
    let lock = found.lock.unwrap_or_default();
    (lock.holders.first().map_or(0, |holder| holder.lease_id), lock.waiter_count)
}

async fn until_holder(router: &Router, expected: (u64, u64)) {
    let found = async {
        while holder(router).await != expected {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("never {expected:?}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_numbered_grant_that_its_caller_does_not_hear_of_is_given_back_unless_another_did() {
    let cluster = Cluster::start().await;
    let leader = cluster.leader().await;
    let router = cluster.servers[leader].router();
    for id in [1, 2] {
        let grant = v1::LeaseGrantRequest { id, ttl_ms: 600_000, ..Default::default() };
        router.execute(Op::LeaseGrant(grant), &Address::NONE).await;
    }
    let unlock =
        |lease_id| Op::Unlock(v1::UnlockRequest { name: "jobs".into(), lease_id, ..Default::default() });
    for (seq, server) in (1..).zip([leader, (leader + 1) % 3]) {
        for repeated in [false, true] {
            let seq = 2 * seq + u64::from(repeated);
            let lock = |lease_id, seq| {
                let request = (seq != 0).then(|| v1::Request { seq, ..Default::default() });
                let name = "jobs".into();
                Op::Lock(v1::LockRequest { name, lease_id, timeout_ms: -1, request, ..Default::default() })
            };
            router.execute(lock(1, 0), &Address::NONE).await;
            let asked = cluster.servers[server].router();
            let mut call = Box::pin(asked.execute(lock(2, seq), &Address::NONE));
            tokio::select! {
                answer = &mut call => panic!("{answer:?}"),
                () = until_holder(router, (1, 1)) => {}
            }
            router.execute(unlock(1), &Address::NONE).await;
            until_holder(router, (2, 0)).await;
            if repeated {
                let again = router.execute(lock(2, seq), &Address::NONE).await;
                assert!(matches!(again, OpResult::Lock(it) if it.acquired));
            }
            // The lock was granted, and nobody has read the answer.
            drop(call);
            if repeated {
                // The hang-up must have no further effect: a request made before a release is over once the lock is
                // released.
                tokio::time::sleep(Duration::from_millis(200)).await;
                assert_eq!(holder(router).await, (2, 0), "the other caller has it");
                router.execute(unlock(2), &Address::NONE).await;
            }
            until_holder(router, (0, 0)).await;
        }
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_only_the_leader_may_answer_is_had_from_any_node() {
    let cluster = Cluster::start().await;
    cluster.leader().await;
    for server in &cluster.servers {
        let consistency = v1::Consistency::Leader.into();
        let locks = v1::ListLocksRequest { consistency, ..Default::default() };
        let leases = v1::LeaseListRequest { consistency, ..Default::default() };
        assert!(
            tollgate_server::lists::locks(server.router(), tollgate_server::lists::Asker::Client, locks)
                .await
                .is_ok()
        );
        assert!(
            tollgate_server::lists::leases(server.router(), tollgate_server::lists::Asker::Client, leases)
                .await
                .is_ok()
        );
    }
    cluster.stop().await;
}

pub(crate) struct Watching {
    requests: mpsc::Sender<v1::WatchRequest>,
    pub(crate) answers: Streaming<v1::WatchResponse>,
}

impl Watching {
    pub(crate) async fn send(&mut self, request: v1::WatchRequest) {
        self.requests.send(request).await.unwrap();
    }

    pub(crate) async fn next(&mut self) -> v1::WatchResponse {
        tokio::time::timeout(PATIENCE, self.answers.next()).await.unwrap().unwrap().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_in_line_is_told_its_place_by_every_node() {
    let cluster = Cluster::start().await;
    for server in 0..3 {
        let mut session = cluster.session(server).await;
        let lease_id = session.grant(false).await;
        let lock = |owner: &str| {
            let (name, owner) = (format!("line/{server}"), owner.to_owned());
            Some(Op::Lock(v1::LockRequest { name, owner, lease_id, timeout_ms: -1, ..Default::default() }))
        };
        let held = session.ask(lock("first").unwrap()).await;
        assert!(matches!(held, OpResult::Lock(response) if response.acquired));
        for (id, owner, position) in [(101, "second", 1), (102, "third", 2)] {
            session.send(id, lock(owner)).await;
            let told = session.results().await.unwrap();
            let [v1::OperationResult { id: of, result: Some(OpResult::Queued(queued)) }] = &told[..] else {
                panic!("node {server}: {told:?}")
            };
            assert_eq!((*of, queued.position), (id, position), "node {server}");
            assert!(queued.create_revision > 0);
        }
        let unlock = v1::UnlockRequest { name: format!("line/{server}"), lease_id, ..Default::default() };
        session.send(103, Some(Op::Unlock(v1::UnlockRequest { owner: "first".into(), ..unlock }))).await;
        let (mut granted, mut released) = (false, false);
        while !(granted && released) {
            for told in session.results().await.unwrap() {
                granted |= matches!((told.id, told.result), (101, Some(OpResult::Lock(got))) if got.acquired);
                released |= told.id == 103;
            }
        }
    }
    cluster.stop().await;
}
