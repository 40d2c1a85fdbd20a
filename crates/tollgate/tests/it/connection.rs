//! A client's single stream to some node, which carries all its calls, and is reopened elsewhere when it breaks.
//!
//! Invariant: a call with a seq, or a read, is one call in the history and is repeated until it has a final answer; a
//! call without a seq is another call at each attempt, or is given up. Not here: the requests (`session`, `work`) and
//! the meaning of answers (`verdict`).

use crate::doors::Doors;
use crate::record::{Recorder, count};
use crate::rng::Rng;
use crate::verdict::{Verdict, verdict};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_check::{At, CallId, Event, Op, Outcome};
use tollgate_proto::v1::session_service_client::SessionServiceClient;
use tollgate_proto::v1::{self, operation::Op as Wire, operation_result::Result as OpResult};
use tollgate_types::{GroupId, SEQ_RANGES_MAX, Seq, SeqRanges};
use tonic::transport::Endpoint;

/// The only group of most clusters.
pub(crate) const GROUP: GroupId = GroupId::new(0);

/// Reaction to an answer that does not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// Repeats the call: it has a seq, or is a read.
    Same,
    /// Makes a new call of it.
    NewCall,
    /// Does nothing: the caller handles it.
    Never,
}

/// Seqs of a lease's requests whose answers the client has received.
#[derive(Debug, Default)]
pub(crate) struct Acks(Mutex<SeqRanges>);

impl Acks {
    pub(crate) fn add(&self, seq: u64) {
        self.0.lock().insert(Seq::new(seq).unwrap());
    }

    fn wire(&self) -> Vec<v1::SeqRange> {
        let ranges = self.0.lock();
        let first = ranges.ranges().iter().take(SEQ_RANGES_MAX);
        first.map(|(first, last)| v1::SeqRange { first: *first, last: *last }).collect()
    }
}

/// A call to make.
pub(crate) struct NewCall {
    pub(crate) op: Op,
    /// Group of its names, its key or its lease.
    pub(crate) group: GroupId,
    pub(crate) wire: Wire,
    pub(crate) again: Again,
    pub(crate) acks: Arc<Acks>,
    /// Seq of the call, if the connection should acknowledge the answer.
    pub(crate) seq: Option<u64>,
    /// True to pretend that the first answer was lost.
    pub(crate) loses_answer: bool,
}

/// A call under way: its id in the history, the time it was made, and the receiver of its outcome. No outcome comes if
/// the call was given up or its result can't be known.
pub(crate) struct Made {
    pub(crate) call: CallId,
    pub(crate) group: GroupId,
    pub(crate) at: At,
    pub(crate) outcome: oneshot::Receiver<Option<Outcome>>,
}

enum Order {
    Make(Box<Call>),
    /// The node does not answer: try another one.
    Move,
    /// No more calls will be made; the connection ends once all are answered.
    Drain,
}

struct Call {
    id: CallId,
    new: NewCall,
    attempt: u32,
    answer: Option<oneshot::Sender<Option<Outcome>>>,
}

/// Handle that makes calls. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Connection {
    client: u32,
    recorder: Arc<Recorder>,
    orders: mpsc::UnboundedSender<Order>,
    next: Arc<AtomicU64>,
}

impl Connection {
    /// Starts a connection of this client to one of the doors, at first to the one with the client's number.
    pub(crate) fn start(
        client: u32,
        recorder: Arc<Recorder>,
        doors: Doors,
    ) -> (Connection, tokio::task::JoinHandle<()>) {
        let (orders, incoming) = mpsc::unbounded_channel();
        let next = Arc::new(AtomicU64::new(u64::from(client) << 32));
        let connection =
            Connection { client, recorder: Arc::clone(&recorder), orders, next: Arc::clone(&next) };
        let carrier = Carrier {
            client,
            recorder,
            doors,
            place: client as usize,
            next,
            orders: incoming,
            ids: 0,
            open: BTreeMap::new(),
            later: Vec::new(),
            drains: false,
            rng: Rng::new(u64::from(client) ^ 0x00c0_ffee),
        };
        (connection, tokio::spawn(carrier.run()))
    }

    pub(crate) fn client(&self) -> u32 {
        self.client
    }

    pub(crate) fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// Makes a call.
    pub(crate) fn make(&self, new: NewCall) -> Made {
        self.make_before(At::NEVER, new).expect("never is never too late")
    }

    /// Makes a call unless `until` has passed.
    pub(crate) fn make_before(&self, until: At, new: NewCall) -> Option<Made> {
        let id = CallId(self.next.fetch_add(1, Ordering::Relaxed) + 1);
        let group = new.group;
        let event = Event::Invoke { call: id, client: self.client, group, op: new.op.clone() };
        let at = self.recorder.record_before(until, event)?;
        let (answer, outcome) = oneshot::channel();
        let call = Call { id, new, attempt: 0, answer: Some(answer) };
        // The task ends only after it was told to.
        let _ = self.orders.send(Order::Make(Box::new(call)));
        Some(Made { call: id, group, at, outcome })
    }

    /// Tells the connection that its node does not answer.
    pub(crate) fn give_up_node(&self) {
        let _ = self.orders.send(Order::Move);
    }

    /// Tells the connection to end once everything is answered.
    pub(crate) fn drain(&self) {
        let _ = self.orders.send(Order::Drain);
    }
}

/// Reason for the end of a stream.
enum Over {
    Broken,
    Drained,
}

/// The task behind a connection.
struct Carrier {
    client: u32,
    recorder: Arc<Recorder>,
    doors: Doors,
    place: usize,
    next: Arc<AtomicU64>,
    orders: mpsc::UnboundedReceiver<Order>,
    /// Last id of an operation on the streams; no id is used twice.
    ids: u64,
    open: BTreeMap<u64, Call>,
    later: Vec<(Instant, Call)>,
    drains: bool,
    rng: Rng,
}

type Outgoing = mpsc::Sender<v1::SessionRequest>;

impl Carrier {
    async fn run(mut self) {
        loop {
            let Some((outgoing, incoming)) = self.connect().await else {
                self.place += 1;
                if self.between_streams() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20 + self.rng.below(40))).await;
                continue;
            };
            self.send_again(&outgoing).await;
            match self.serve(outgoing, incoming).await {
                Over::Drained => return,
                Over::Broken => {
                    count(&self.recorder.counts.moves);
                    self.place += 1;
                }
            }
        }
    }

    async fn connect(&self) -> Option<(Outgoing, tonic::Streaming<v1::SessionResponse>)> {
        let endpoint = Endpoint::from_shared(self.doors.nth(self.place));
        let endpoint = endpoint
            .unwrap()
            .connect_timeout(Duration::from_millis(500))
            .tcp_nodelay(true)
            .keep_alive_while_idle(true)
            .http2_keep_alive_interval(Duration::from_millis(300))
            .keep_alive_timeout(Duration::from_millis(700));
        let (outgoing, requests) = mpsc::channel(64);
        let opened = async {
            let channel = endpoint.connect().await.ok()?;
            let mut service = SessionServiceClient::new(channel);
            Some(service.session(ReceiverStream::new(requests)).await.ok()?.into_inner())
        };
        let incoming = tokio::time::timeout(Duration::from_secs(1), opened).await.ok()??;
        Some((outgoing, incoming))
    }

    /// Takes orders while there is no stream. Returns true if all work is done.
    fn between_streams(&mut self) -> bool {
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Make(call) => self.later.push((Instant::now(), *call)),
                Order::Move => {}
                Order::Drain => self.drains = true,
            }
        }
        self.is_drained()
    }

    fn is_drained(&self) -> bool {
        self.drains && self.open.is_empty() && self.later.is_empty()
    }

    /// Sends the calls again that the last stream did not answer.
    async fn send_again(&mut self, outgoing: &Outgoing) {
        for (_, call) in std::mem::take(&mut self.open) {
            self.send_once_more(call, outgoing).await;
        }
    }

    async fn serve(
        &mut self,
        outgoing: Outgoing,
        mut incoming: tonic::Streaming<v1::SessionResponse>,
    ) -> Over {
        loop {
            if self.is_drained() {
                return Over::Drained;
            }
            let due = self.later.iter().map(|(at, _)| *at).min();
            let due = due.unwrap_or_else(|| Instant::now() + Duration::from_mins(1));
            tokio::select! {
                order = self.orders.recv() => match order {
                    Some(Order::Make(call)) => self.send(*call, &outgoing).await,
                    Some(Order::Move) => return Over::Broken,
                    Some(Order::Drain) | None => self.drains = true,
                },
                frame = incoming.next() => match frame {
                    Some(Ok(frame)) => {
                        for result in frame.results {
                            self.answered(result);
                        }
                    }
                    _ => return Over::Broken,
                },
                () = tokio::time::sleep_until(due.into()) => self.send_due(&outgoing).await,
            }
        }
    }

    async fn send_due(&mut self, outgoing: &Outgoing) {
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut self.later).into_iter().partition(|(at, _)| *at <= now);
        self.later = later;
        for (_, call) in due {
            self.send_once_more(call, outgoing).await;
        }
    }

    async fn send_once_more(&mut self, mut call: Call, outgoing: &Outgoing) {
        match call.new.again {
            Again::Never => return,
            Again::Same => {}
            Again::NewCall => {
                call.id = CallId(self.next.fetch_add(1, Ordering::Relaxed) + 1);
                let (client, group, op) = (self.client, call.new.group, call.new.op.clone());
                self.recorder.record(Event::Invoke { call: call.id, client, group, op });
            }
        }
        count(&self.recorder.counts.repeats);
        call.attempt += 1;
        self.send(call, outgoing).await;
    }

    async fn send(&mut self, call: Call, outgoing: &Outgoing) {
        self.ids += 1;
        let mut wire = call.new.wire.clone();
        identify(&mut wire, call.new.acks.wire(), call.attempt);
        let operations = vec![v1::Operation { id: self.ids, op: Some(wire), ..Default::default() }];
        self.open.insert(self.ids, call);
        // A broken stream is detected when it is read.
        let _ = outgoing.send(v1::SessionRequest { operations, ..Default::default() }).await;
    }

    fn answered(&mut self, result: v1::OperationResult) {
        let Some(call) = self.open.remove(&result.id) else {
            panic!("an answer to what was not asked, or a second one: {result:?}");
        };
        let told: OpResult = result.result.expect("a result says something");
        match verdict(&call.new.op, &told) {
            Verdict::Queued => {
                self.open.insert(result.id, call);
            }
            Verdict::Again(why) => {
                *self.recorder.counts.troubles.lock().entry(why).or_default() += 1;
                let pause = Duration::from_millis(5 + self.rng.below(30));
                self.later.push((Instant::now() + pause, call));
            }
            Verdict::Done(outcome) => self.done(call, Some(outcome)),
            Verdict::Unknown => self.done(call, None),
        }
    }

    fn done(&mut self, mut call: Call, outcome: Option<Outcome>) {
        // A busy answer may have been given without the log, so a repeated request may get another one.
        let repeatable = outcome.as_ref().is_some_and(|outcome| !matches!(outcome, Outcome::Busy { .. }));
        if call.new.loses_answer && repeatable {
            call.new.loses_answer = false;
            let outcome = outcome.expect("looked at just now");
            self.recorder.record(Event::AnsweredAgain { call: call.id, outcome });
            self.later.push((Instant::now(), call));
            return;
        }
        if let Some(outcome) = &outcome {
            self.recorder.record(Event::Return { call: call.id, outcome: outcome.clone() });
        }
        if let Some(seq) = call.new.seq {
            call.new.acks.add(seq);
        }
        if let Some(answer) = call.answer.take() {
            // The session of the caller may be over.
            let _ = answer.send(outcome);
        }
    }
}

/// Puts the attempt, and the acknowledged answers, into a request.
fn identify(wire: &mut Wire, acked: Vec<v1::SeqRange>, attempt: u32) {
    let request = match wire {
        Wire::Lock(it) | Wire::TryLock(it) => &mut it.request,
        Wire::Unlock(it) => &mut it.request,
        Wire::Convert(it) => &mut it.request,
        Wire::Put(it) => &mut it.request,
        Wire::LeaseKeepAlive(it) => {
            it.acked = acked;
            return;
        }
        Wire::CancelWait(it) => {
            it.acked = acked;
            return;
        }
        _ => return,
    };
    if let Some(request) = request {
        (request.acked, request.attempt) = (acked, attempt);
    }
}
