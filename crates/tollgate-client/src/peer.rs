//! Tests with a scripted peer at the other end of the wire: the behaviour of the client when a node answers late,
//! never, or hangs up. Only for tests of the client's own behaviour; servers are tested with servers.

use crate::client::Client;
use crate::clock::Clock;
use crate::error::ErrorKind;
use crate::lost::LostReason;
use crate::session::Session;
use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_proto::v1::session_service_server::{SessionService, SessionServiceServer};
use tollgate_proto::v1::{self, operation::Op, operation_result::Result as OpResult};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

/// Clock that stands still until it is moved.
#[derive(Clone)]
struct HandClock {
    now: Arc<watch::Sender<Duration>>,
}

impl HandClock {
    fn new() -> HandClock {
        HandClock { now: Arc::new(watch::Sender::new(Duration::from_secs(1_000))) }
    }

    fn advance(&self, by: Duration) {
        self.now.send_modify(|now| *now += by);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Duration {
        *self.now.borrow()
    }

    fn sleep_until(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let _ = self.now.subscribe().wait_for(|now| *now >= at).await;
        })
    }
}

/// Scripted node, whose answers the test chooses.
struct Peer {
    address: SocketAddr,
    /// True to send a first frame on each new session.
    greets: Arc<AtomicBool>,
    sessions: mpsc::UnboundedReceiver<Talk>,
    task: JoinHandle<()>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Server side of one session stream.
struct Talk {
    frames: Streaming<v1::SessionRequest>,
    answers: mpsc::Sender<Result<v1::SessionResponse, Status>>,
    heard: VecDeque<v1::Operation>,
}

struct Door {
    sessions: mpsc::UnboundedSender<Talk>,
    greets: Arc<AtomicBool>,
}

#[tonic::async_trait]
impl SessionService for Door {
    type SessionStream = ReceiverStream<Result<v1::SessionResponse, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<v1::SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (answers, told) = mpsc::channel(64);
        let talk = Talk { frames: request.into_inner(), answers, heard: VecDeque::new() };
        if self.greets.load(Ordering::Relaxed) {
            talk.greet().await;
        }
        let _ = self.sessions.send(talk);
        Ok(Response::new(ReceiverStream::new(told)))
    }
}

impl Peer {
    fn start() -> Peer {
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = incoming.local_addr().unwrap();
        let (told, sessions) = mpsc::unbounded_channel();
        let greets = Arc::new(AtomicBool::new(true));
        let service = SessionServiceServer::new(Door { sessions: told, greets: Arc::clone(&greets) });
        let server = Server::builder().add_service(service).serve_with_incoming(incoming);
        Peer { address, greets, sessions, task: tokio::spawn(async move { server.await.unwrap() }) }
    }

    async fn talk(&mut self) -> Talk {
        tokio::time::timeout(Duration::from_secs(10), self.sessions.recv()).await.unwrap().unwrap()
    }
}

impl Talk {
    async fn greet(&self) {
        let _ = self.answers.send(Ok(v1::SessionResponse::default())).await;
    }

    /// Returns the next operation.
    async fn hear(&mut self) -> (u64, Op) {
        while self.heard.is_empty() {
            let frame = tokio::time::timeout(Duration::from_secs(10), self.frames.next()).await;
            self.heard.extend(frame.expect("the client says something").unwrap().unwrap().operations);
        }
        let operation = self.heard.pop_front().unwrap();
        (operation.id, operation.op.unwrap())
    }

    async fn answer(&self, id: u64, result: OpResult) {
        let results = vec![v1::OperationResult { id, result: Some(result) }];
        self.answers.send(Ok(v1::SessionResponse { results, header: None })).await.unwrap();
    }

    /// Grants the requested lease.
    async fn grant_lease(&mut self) {
        let (id, op) = self.hear().await;
        let Op::LeaseGrant(asked) = op else { panic!("{op:?}") };
        let granted = v1::LeaseGrantResponse {
            id: asked.id,
            ttl_ms: asked.ttl_ms,
            incarnation: 1,
            ..Default::default()
        };
        self.answer(id, OpResult::LeaseGrant(granted)).await;
    }

    /// Grants the requested lock, and returns its request identity.
    async fn grant_lock(&mut self, token: u64) -> v1::Request {
        let (id, op) = self.hear().await;
        let Op::Lock(asked) = op else { panic!("{op:?}") };
        let granted = v1::LockResponse {
            acquired: true,
            fencing_token: token,
            mode: asked.mode,
            create_revision: token,
            ..v1::LockResponse::default()
        };
        self.answer(id, OpResult::Lock(granted)).await;
        asked.request.unwrap()
    }
}

const TTL: Duration = Duration::from_millis(9_001);

/// Opens a session with a peer, and a clock that the test controls.
async fn session() -> (Peer, Talk, HandClock, Session) {
    let (mut peer, clock) = (Peer::start(), HandClock::new());
    let client = Client::builder().endpoints([peer.address.to_string()]).clock(clock.clone());
    let client: Client = client.connect().await.unwrap();
    let mut talk = peer.talk().await;
    let opening = tokio::spawn(client.session().ttl(TTL).open());
    talk.grant_lease().await;
    (peer, talk, clock, opening.await.unwrap().unwrap())
}

#[tokio::test]
async fn p7_a_token_is_refused_from_the_moment_on_at_which_the_lease_may_end_and_only_a_revoke_follows() {
    let (_peer, mut talk, clock, session) = session().await;
    let acquiring = tokio::spawn(session.lock("jobs").acquire());
    talk.grant_lock(5).await;
    let guard = acquiring.await.unwrap().unwrap();
    assert_eq!(guard.remaining(), Duration::from_millis(8_820));
    // As if the machine had slept.
    clock.advance(Duration::from_millis(8_819));
    assert_eq!(guard.token().unwrap().get(), 5);
    let (keepalive, op) = talk.hear().await;
    assert!(matches!(op, Op::LeaseKeepAlive(_)), "{op:?}");
    clock.advance(Duration::from_millis(1));
    assert_eq!(guard.token().unwrap_err().reason, LostReason::Paused);
    assert_eq!(guard.lost().await.reason, LostReason::Paused);
    assert_eq!(session.lost().await.reason, LostReason::Paused);
    // An answer now is too late: the lease may have ended in between.
    let kept = v1::LeaseKeepAliveResponse { ttl_ms: 9_001, ..Default::default() };
    talk.answer(keepalive, OpResult::LeaseKeepAlive(kept)).await;
    let (_, op) = talk.hear().await;
    assert!(matches!(op, Op::LeaseRevoke(_)), "{op:?}");
    assert!(guard.token().is_err() && session.check().is_err());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn a_loss_is_blamed_on_the_cluster_only_if_a_keepalive_was_sent_in_time() {
    let (_peer, mut talk, clock, session) = session().await;
    clock.advance(Duration::from_millis(3_001));
    assert!(matches!(talk.hear().await.1, Op::LeaseKeepAlive(_)));
    clock.advance(Duration::from_millis(5_819));
    assert_eq!(session.check().unwrap_err().reason, LostReason::Unreachable);

    let (_peer, _talk, clock, session) = self::session().await;
    clock.advance(Duration::from_millis(8_820));
    assert_eq!(session.check().unwrap_err().reason, LostReason::Paused);
}

#[tokio::test]
async fn news_of_an_expiry_that_comes_after_a_pause_tells_of_the_pause() {
    let (_peer, _talk, clock, session) = session().await;
    clock.advance(Duration::from_millis(8_820));
    // Before anything else has read the clock.
    session.core().lose(LostReason::Expired);
    assert_eq!(session.check().unwrap_err().reason, LostReason::Paused);

    let (_peer, _talk, clock, session) = self::session().await;
    clock.advance(Duration::from_millis(8_819));
    session.core().lose(LostReason::Expired);
    assert_eq!(session.check().unwrap_err().reason, LostReason::Expired, "the cluster's clock was ahead");
}

#[tokio::test]
async fn keepalives_go_out_as_often_as_was_asked_for() {
    let (mut peer, clock) = (Peer::start(), HandClock::new());
    let client = Client::builder().endpoints([peer.address.to_string()]).clock(clock.clone());
    let client: Client = client.connect().await.unwrap();
    let mut talk = peer.talk().await;
    let asked = client.session().ttl(TTL).keepalive_interval(Duration::from_secs(1));
    let opening = tokio::spawn(asked.open());
    talk.grant_lease().await;
    let session = opening.await.unwrap().unwrap();
    for renewal in 1..=3 {
        clock.advance(Duration::from_secs(1));
        let (id, op) = talk.hear().await;
        assert!(matches!(op, Op::LeaseKeepAlive(_)), "{op:?}");
        let kept = v1::LeaseKeepAliveResponse { ttl_ms: 9_001, ..Default::default() };
        talk.answer(id, OpResult::LeaseKeepAlive(kept)).await;
        while session.remaining() != Duration::from_millis(8_820) {
            tokio::task::yield_now().await;
        }
        assert!(session.check().is_ok(), "{renewal}");
    }
}

#[tokio::test]
async fn p7_an_interval_that_could_not_lose_a_keepalive_is_refused_before_anything_is_asked() {
    let peer = Peer::start();
    let client = Client::connect([peer.address.to_string()]).await.unwrap();
    for interval_ms in [0, 49, 4_501, 60_000] {
        let asked = client.session().ttl(TTL).keepalive_interval(Duration::from_millis(interval_ms));
        let refused = asked.open().await.unwrap_err();
        assert_eq!((refused.kind(), refused.field()), (ErrorKind::Invalid, Some("keepalive_interval")));
    }
}

#[tokio::test]
async fn p7_an_acknowledged_keepalive_moves_the_end_by_when_it_was_sent() {
    let (_peer, mut talk, clock, session) = session().await;
    clock.advance(Duration::from_millis(3_001));
    let (id, op) = talk.hear().await;
    assert!(matches!(op, Op::LeaseKeepAlive(_)), "{op:?}");
    clock.advance(Duration::from_secs(2));
    assert_eq!(session.remaining(), Duration::from_millis(8_820 - 5_001));
    let kept = v1::LeaseKeepAliveResponse { ttl_ms: 9_001, ..Default::default() };
    talk.answer(id, OpResult::LeaseKeepAlive(kept)).await;
    while session.remaining() != Duration::from_millis(8_820 - 2_000) {
        tokio::task::yield_now().await;
    }
    // The next keepalive is due a third of the TTL after the sending of this one, not after its answer.
    clock.advance(Duration::from_millis(1_001));
    assert!(matches!(talk.hear().await.1, Op::LeaseKeepAlive(_)));
}

#[tokio::test]
async fn a_stream_that_was_opened_and_not_greeted_in_time_is_closed() {
    let mut peer = Peer::start();
    peer.greets.store(false, Ordering::Relaxed);
    let connecting = tokio::spawn(Client::builder().endpoints([peer.address.to_string()]).connect());
    let mut talk = peer.talk().await;
    // The client has received the headers of the response, and nothing more follows.
    let ended = tokio::time::timeout(Duration::from_secs(10), talk.frames.next()).await;
    assert!(!matches!(ended, Err(_) | Ok(Some(Ok(_)))), "{ended:?}");
    connecting.abort();
}

#[tokio::test]
async fn the_longest_hold_counts_from_when_there_was_a_line_to_ask_by() {
    let (mut peer, talk, clock, session) = session().await;
    peer.greets.store(false, Ordering::Relaxed);
    drop(talk);
    let mut talk = peer.talk().await;
    let acquiring = tokio::spawn(session.lock("jobs").max_hold(Duration::from_secs(2)).acquire());
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    clock.advance(Duration::from_millis(2_500));
    talk.greet().await;
    talk.grant_lock(5).await;
    let guard = acquiring.await.unwrap().unwrap();
    assert_eq!(guard.token().unwrap().get(), 5);
    clock.advance(Duration::from_millis(1_961));
    assert_eq!(guard.token().unwrap_err().reason, LostReason::MaxHold);
}

#[tokio::test]
async fn p10_what_a_broken_stream_left_unanswered_is_repeated_with_its_seq() {
    let (mut peer, mut talk, _clock, session) = session().await;
    let acquiring = tokio::spawn(session.lock("jobs").acquire());
    let (_, op) = talk.hear().await;
    let Op::Lock(first) = op else { panic!("{op:?}") };
    drop(talk);
    let mut talk = peer.talk().await;
    let again = talk.grant_lock(5).await;
    let first = first.request.unwrap();
    assert_eq!((first.seq, first.attempt, again.seq, again.attempt), (1, 0, 1, 1));
    let guard = acquiring.await.unwrap().unwrap();
    // The dropped guard is released, across another break, and the release acknowledges the answer to the grant.
    drop(guard);
    let (_, op) = talk.hear().await;
    let Op::Unlock(unlock) = op else { panic!("{op:?}") };
    let request = unlock.request.unwrap();
    assert_eq!((request.seq, request.acked), (2, vec![v1::SeqRange { first: 1, last: 1 }]));
    drop(talk);
    let mut talk = peer.talk().await;
    let (_, op) = talk.hear().await;
    let Op::Unlock(unlock) = op else { panic!("{op:?}") };
    let request = unlock.request.unwrap();
    assert_eq!((request.seq, request.attempt, request.acked.len()), (2, 1, 1), "acks go along again");
}

#[tokio::test]
async fn p8_an_acquire_that_is_dropped_is_cancelled_until_that_is_answered() {
    let (mut peer, mut talk, _clock, session) = session().await;
    let acquiring = tokio::spawn(session.lock("jobs").acquire());
    assert!(matches!(talk.hear().await.1, Op::Lock(_)));
    acquiring.abort();
    for _ in 0..2 {
        let (_, op) = talk.hear().await;
        let Op::CancelWait(cancel) = op else { panic!("{op:?}") };
        assert_eq!((cancel.seq, cancel.release_if_granted), (1, true));
        drop(talk);
        talk = peer.talk().await;
    }
    let (id, op) = talk.hear().await;
    assert!(matches!(op, Op::CancelWait(_)), "{op:?}");
    let done = v1::CancelWaitResponse { outcome: v1::CancelOutcome::Cancelled.into(), ..Default::default() };
    talk.answer(id, OpResult::CancelWait(done)).await;
    while session.core().seqs.take(tollgate_types::GroupId::MAP).ranges().is_empty() {
        tokio::task::yield_now().await;
    }
    // The next request acknowledges the answer.
    let _acquiring = tokio::spawn(session.lock("other").acquire());
    let (_, op) = talk.hear().await;
    let Op::Lock(lock) = op else { panic!("{op:?}") };
    let request = lock.request.unwrap();
    assert_eq!((request.seq, request.acked), (2, vec![v1::SeqRange { first: 1, last: 1 }]));
}

#[tokio::test]
async fn an_operation_without_a_seq_is_not_repeated_once_it_was_sent() {
    let (mut peer, mut talk, _clock, session) = session().await;
    let client = session.core().client.clone();
    let forcing = tokio::spawn(async move {
        let token = tollgate_types::Token::new(5).unwrap();
        client.force_release("jobs", token, "test").await
    });
    assert!(matches!(talk.hear().await.1, Op::ForceRelease(_)));
    drop(talk);
    let error = forcing.await.unwrap().unwrap_err();
    assert!(error.may_have_happened(), "{error:?}");
    peer.talk().await;
}

#[tokio::test]
async fn a_proclamation_that_is_dropped_leaves_no_number_behind() {
    let (_peer, mut talk, _clock, session) = session().await;
    let standing = tokio::spawn(session.campaign("jobs").stand());
    let (id, op) = talk.hear().await;
    let Op::Campaign(asked) = op else { panic!("{op:?}") };
    let leader = v1::Leader { fencing_token: 5, create_revision: 5, ..Default::default() };
    let won = v1::CampaignResponse { elected: true, leader: Some(leader), ..Default::default() };
    talk.answer(id, OpResult::Campaign(won)).await;
    let leadership = standing.await.unwrap().unwrap();
    assert_eq!(asked.owner, "~1");
    let proclaiming = tokio::spawn(async move { leadership.proclaim("busy").await });
    let (_, op) = talk.hear().await;
    assert!(matches!(op, Op::Proclaim(_)), "{op:?}");
    proclaiming.abort();
    // The leadership was dropped with the future, and is resigned.
    let (_, op) = talk.hear().await;
    let Op::Resign(resign) = op else { panic!("{op:?}") };
    let request = resign.request.unwrap();
    assert_eq!((request.seq, request.acked), (3, vec![v1::SeqRange { first: 1, last: 2 }]));
}
