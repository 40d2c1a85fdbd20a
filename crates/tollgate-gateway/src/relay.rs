//! Passes on to a node the calls that are not operations: lists, explanations, administration, and streams that follow
//! changes.
//!
//! Any node that is in touch with the others can answer a read, and another one is asked if it does not; a change is
//! sent to the leader, once. Invariant: a call that may have happened is not repeated, unless that is harmless. A
//! stream ends with its node, and when its node has lost touch: a follower that is cut off would keep the stream open
//! in silence. A stream is not resumed here. Its reader knows how far it has come, by cursor and revision, and the
//! gateway would have to keep the same for each reader. Not here: operations (`router`), the contents of a call
//! (`tollgate-server`).

use crate::discovery::Discovery;
use crate::link::ANSWER_BYTES_MAX;
use crate::routing_table::RoutingTable;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tollgate_node::NodeStatus;
use tollgate_proto::v1::{self, ErrorReason};
use tollgate_proto::{MEMBER_CHANGE_PATIENCE, Retry, error_of_status};
use tollgate_types::{GroupId, NodeId};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

/// Maximum time to open a connection.
const CONNECT_PATIENCE: Duration = Duration::from_millis(500);

/// Maximum time for a node to answer one call, unless the call has a timeout of its own.
const CALL_PATIENCE: Duration = Duration::from_secs(15);

/// Maximum time for a node to change members: longer than the node allows itself, and shorter than clients wait.
pub const MEMBER_CALL_PATIENCE: Duration = Duration::from_secs(MEMBER_CHANGE_PATIENCE.as_secs() + 5);

/// Maximum time to open a stream.
const OPEN_PATIENCE: Duration = Duration::from_secs(5);

/// Maximum time for a node that serves a stream to get in touch with the others.
const TOUCH_PATIENCE: Duration = Duration::from_secs(10);

/// Maximum number of nodes asked for one read, one after another.
const ATTEMPTS_MAX: u32 = 3;

/// Number of connections to one node, among which streams and calls are distributed: a node accepts a limited number on
/// each.
const CONNECTIONS: usize = 4;

/// Time after which to retry while no node can be asked.
const RETRY_MS: i64 = 200;

/// Node to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    /// Any node that is in touch with the others.
    Any,
    /// The leader of a group.
    Leader(GroupId),
    /// This node.
    Node(NodeId),
}

/// The node that serves a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Serving {
    node: NodeId,
    /// True if the node was in touch with the others when it was chosen.
    in_touch: bool,
}

/// Effect of repeating a call whose outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// None: the call only reads, and it does not matter whether it happened.
    Look,
    /// No harm: the repeat changes only what the first call changed, if that happened. The caller must still be told
    /// that the call may have happened.
    Harmless,
    /// Harm: the caller must decide.
    Never,
}

/// Passes calls on. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Relay {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    status: watch::Receiver<NodeStatus>,
    routing_table: watch::Receiver<Arc<RoutingTable>>,
    hurry: Arc<Notify>,
    channels: Mutex<BTreeMap<String, Vec<Channel>>>,
    /// Number of calls, used to distribute them.
    turn: AtomicUsize,
}

impl Relay {
    pub(crate) fn new(discovery: &Discovery) -> Relay {
        let (status, routing_table, hurry) =
            (discovery.status(), discovery.routing_table(), discovery.hurry());
        let (channels, turn) = (Mutex::default(), AtomicUsize::new(0));
        Relay { shared: Arc::new(Shared { status, routing_table, hurry, channels, turn }) }
    }

    /// Has a node answer a call.
    pub async fn ask<T, F>(
        &self,
        whom: Whom,
        repeat: Repeat,
        call: impl Fn(Channel) -> F,
    ) -> Result<T, v1::Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        self.ask_within(CALL_PATIENCE, whom, repeat, call).await
    }

    /// Has a node answer a call that may take as long as `patience`.
    pub async fn ask_within<T, F>(
        &self,
        patience: Duration,
        whom: Whom,
        repeat: Repeat,
        call: impl Fn(Channel) -> F,
    ) -> Result<T, v1::Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let (mut whom, mut attempt, mut doubt) = (whom, 0, None);
        loop {
            attempt += 1;
            let (Serving { node, .. }, channel) =
                self.channel(whom).map_err(|error| with_doubt(error, doubt.clone()))?;
            let error = match tokio::time::timeout(patience, call(channel)).await {
                Ok(Ok(response)) => return Ok(response.into_inner()),
                Ok(Err(status)) => error_of(&status, node, repeat),
                // Nobody would wait for a second attempt of such a long call.
                Err(_) if patience > CALL_PATIENCE => {
                    return Err(broken(node, "it has not answered in time", repeat));
                }
                Err(_) => broken(node, "it has not answered in time", repeat),
            };
            self.hurry_after(&error);
            let (retry, named) = (error.retry(), error.reason() == ErrorReason::NotLeader);
            let leader = NodeId::new(error.leader_id).filter(|_| named);
            let error = with_doubt(error, doubt);
            doubt = error.may_have_happened.then(|| error.clone());
            match retry {
                _ if attempt >= ATTEMPTS_MAX => return Err(error),
                Retry::AtLeader if leader.is_some() => whom = leader.map_or(whom, Whom::Node),
                Retry::AtLeader if !matches!(whom, Whom::Node(_)) => {}
                // The node may have become a member, or a witness, a moment ago. If no node has the group, the last one
                // asked says so.
                Retry::AtAnotherNode if whom == Whom::Any => {}
                Retry::AsItIs if repeat != Repeat::Never && !matches!(whom, Whom::Node(_)) => {}
                _ => return Err(error),
            }
        }
    }

    /// Has a node open a stream; returns that node as well, to be monitored with [`Relay::lost_touch`].
    pub async fn open<T, F>(&self, call: impl FnOnce(Channel) -> F) -> Result<(Serving, T), v1::Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let (serving, channel) = self.channel(Whom::Any)?;
        let node = serving.node;
        match tokio::time::timeout(OPEN_PATIENCE, call(channel)).await {
            Ok(Ok(response)) => Ok((serving, response.into_inner())),
            Ok(Err(status)) => {
                let error = error_of(&status, node, Repeat::Look);
                self.hurry_after(&error);
                Err(error)
            }
            Err(_) => {
                let error = broke_off(node, "it has not answered in time");
                self.hurry_after(&error);
                Err(v1::Error { retry_after_ms: RETRY_MS, ..error })
            }
        }
    }

    /// Has the discovery poll at once if its knowledge was no help. A refusal by the right node is no reason to poll.
    fn hurry_after(&self, error: &v1::Error) {
        if matches!(error.retry(), Retry::AtLeader | Retry::AsItIs) {
            self.shared.hurry.notify_one();
        }
    }

    /// Waits until a node has lost touch with the others, or the gateway stops. Returns the error that ends the node's
    /// streams.
    pub async fn lost_touch(&self, serving: Serving) -> v1::Error {
        let (routing_table, mut status) = (self.shared.routing_table.clone(), self.shared.status.clone());
        let why = tokio::select! {
            () = out_of_touch(routing_table, serving) => "it has lost touch with the cluster",
            _ = status.wait_for(|status| status.stopping) => "the gateway is stopping",
        };
        broke_off(serving.node, why)
    }

    /// Returns the error for a reader whose stream the node has ended.
    pub fn ended(&self, serving: Serving, status: Option<&Status>) -> v1::Error {
        let worded = status.and_then(error_of_status);
        worded.map_or_else(|| broke_off(serving.node, "it went away"), without_address)
    }

    fn channel(&self, whom: Whom) -> Result<(Serving, Channel), v1::Error> {
        let routing_table = Arc::clone(&self.shared.routing_table.borrow());
        let turn = self.shared.turn.fetch_add(1, Ordering::Relaxed);
        let node = match whom {
            Whom::Node(node) => Some(node),
            Whom::Leader(group) => self.shared.status.borrow().leader(group),
            Whom::Any => any(&routing_table, turn),
        };
        let node = node.ok_or_else(|| {
            self.shared.hurry.notify_one();
            nobody(&routing_table)
        })?;
        let address = routing_table.clients.get(&node).ok_or_else(|| {
            let says = format!("no node {node} is known: `tollgate member ls` lists those that are");
            v1::Error::new(ErrorReason::BadField, says)
        })?;
        let mut channels = self.shared.channels.lock();
        if !channels.contains_key(address) {
            // Nodes that are no longer members need no connections.
            channels.retain(|kept, _| routing_table.clients.values().any(|address| address == kept));
            channels.insert(address.clone(), dial(address)?);
        }
        let channel = channels[address][turn / routing_table.clients.len().max(1) % CONNECTIONS].clone();
        Ok((Serving { node, in_touch: routing_table.in_touch.contains(&node) }, channel))
    }
}

/// Waits until a node has lost touch with the others. A node that was chosen while none was known to be in touch gets
/// some time to get in touch first: if its streams were ended at once, they would only be opened again.
async fn out_of_touch(
    mut routing_table: watch::Receiver<Arc<RoutingTable>>,
    Serving { node, in_touch }: Serving,
) {
    if !in_touch {
        let touches = routing_table.wait_for(|routing_table| routing_table.in_touch.contains(&node));
        let _ = tokio::time::timeout(TOUCH_PATIENCE, touches).await;
    }
    // Returns when the node has lost touch, or when the discovery is gone.
    let _ = routing_table.wait_for(|routing_table| !routing_table.in_touch.contains(&node)).await;
}

/// Returns one of the nodes that are in touch with the others, or, if there are none, one of those that have something
/// to read.
fn any(routing_table: &RoutingTable, turn: usize) -> Option<NodeId> {
    let in_touch = routing_table.in_touch.iter().nth(turn % routing_table.in_touch.len().max(1));
    in_touch.copied().or_else(|| {
        let full = routing_table.clients.keys().filter(|node| !routing_table.bystanders.contains(*node));
        let full: Vec<NodeId> = full.copied().collect();
        full.get(turn % full.len().max(1)).copied()
    })
}

/// Converts a node's status to an error without the leader's address. After a transport error the call may have
/// happened.
fn error_of(status: &Status, node: NodeId, repeat: Repeat) -> v1::Error {
    without_address(told_by(status, node, repeat))
}

/// Converts a node's status to an error, which keeps the leader's address.
pub(crate) fn told_by(status: &Status, node: NodeId, repeat: Repeat) -> v1::Error {
    match error_of_status(status) {
        Some(error) => error,
        None if status.code() == Code::Unimplemented => {
            let says = format!("node {node} is of a version that can't do this: {}", status.message());
            v1::Error::new(ErrorReason::NotSupported, says)
        }
        None => broken(node, status.message(), repeat),
    }
}

/// Returns the error for a node whose connection broke, or that did not answer.
pub(crate) fn broken(node: NodeId, why: &str, repeat: Repeat) -> v1::Error {
    if repeat == Repeat::Look {
        let says = format!("node {node} can't be asked: {why}");
        return v1::Error { retry_after_ms: RETRY_MS, ..v1::Error::new(ErrorReason::NoLeader, says) };
    }
    let says = format!("node {node} was asked, and {why}: look whether it was done before you ask again");
    v1::Error::new(ErrorReason::Indeterminate, says)
}

/// Returns the error of an attempt that follows one that may have happened: the later error can't take that possibility
/// back.
fn with_doubt(error: v1::Error, doubt: Option<v1::Error>) -> v1::Error {
    match doubt {
        Some(doubt) if !error.may_have_happened => doubt,
        _ => error,
    }
}

/// Removes the leader's address from an error: clients of a gateway may not be able to reach the leader.
pub(crate) fn without_address(error: v1::Error) -> v1::Error {
    v1::Error { leader_address: String::new(), ..error }
}

/// Returns the error for a gateway that has no node to ask, with the troubles of each address.
pub(crate) fn nobody(routing_table: &RoutingTable) -> v1::Error {
    let says = if routing_table.troubles.is_empty() {
        "no node of the cluster is known to lead, and nothing was done: ask again".to_owned()
    } else {
        format!(
            "this gateway finds no leader, and nothing was done: ask again, and look after the nodes ({})",
            routing_table.troubles
        )
    };
    v1::Error { retry_after_ms: RETRY_MS, ..v1::Error::new(ErrorReason::NoLeader, says) }
}

fn broke_off(node: NodeId, why: &str) -> v1::Error {
    let says = format!(
        "node {node}, which served this stream, does so no more: {why}; begin anew where the last cursor says"
    );
    v1::Error::new(ErrorReason::ShuttingDown, says)
}

fn dial(address: &str) -> Result<Vec<Channel>, v1::Error> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|error| {
        let says = format!("a member's address {address} is none: {error}; correct cluster.members");
        v1::Error::new(ErrorReason::Internal, says)
    })?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_PATIENCE)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(Duration::from_secs(2))
        .keep_alive_timeout(Duration::from_secs(2));
    Ok((0..CONNECTIONS).map(|_| endpoint.connect_lazy()).collect())
}

/// Maximum length of an answer for the clients of services: as long as nodes make them.
pub const RELAYED_BYTES_MAX: usize = ANSWER_BYTES_MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_told_where_a_leader_is_that_it_may_not_reach() {
        let error = v1::Error {
            leader_id: 2,
            leader_address: "http://10.0.0.2:7400".to_owned(),
            ..v1::Error::new(ErrorReason::NotLeader, "ask node 2")
        };
        let told = without_address(error);
        assert!(told.leader_address.is_empty() && told.leader_id == 2);
    }

    #[test]
    fn a_gateway_that_sees_no_cluster_says_what_it_tries() {
        let routing_table =
            RoutingTable { troubles: "n1:1: connection refused".to_owned(), ..RoutingTable::blank() };
        let error = nobody(&routing_table);
        assert_eq!((error.code, error.may_have_happened), (Code::Unavailable as i32, false));
        assert!(error.message.contains("n1:1: connection refused") && error.retry_after_ms > 0, "{error:?}");
    }

    #[test]
    fn any_node_is_one_that_has_something_to_read() {
        let node = |number| NodeId::new(number).unwrap();
        let clients = (1..=3).map(|number| (node(number), format!("n{number}:1"))).collect();
        let bystanders = [node(1), node(3)].into();
        let mut routing_table = RoutingTable { clients, bystanders, ..RoutingTable::blank() };
        for turn in 0..4 {
            assert_eq!(any(&routing_table, turn), Some(node(2)));
        }
        routing_table.in_touch = [node(2)].into();
        assert_eq!(any(&routing_table, 5), Some(node(2)));
        routing_table.clients.clear();
        routing_table.in_touch.clear();
        assert_eq!(any(&routing_table, 5), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_when_its_node_loses_touch_and_not_because_none_is_known_to_have_it() {
        let node = NodeId::new(1).unwrap();
        let with = |in_touch: &[NodeId]| {
            Arc::new(RoutingTable { in_touch: in_touch.iter().copied().collect(), ..RoutingTable::blank() })
        };
        let (publish, routing_table) = watch::channel(with(&[]));
        let ends = async |in_touch, ms| {
            let waits = out_of_touch(routing_table.clone(), Serving { node, in_touch });
            tokio::time::timeout(Duration::from_millis(ms), waits).await.is_ok()
        };
        assert!(ends(true, 1).await && !ends(false, 9_000).await && ends(false, 11_000).await);
        publish.send_replace(with(&[node]));
        assert!(!ends(true, 60_000).await && !ends(false, 60_000).await);
        let waiting = tokio::spawn(out_of_touch(routing_table.clone(), Serving { node, in_touch: false }));
        tokio::task::yield_now().await;
        publish.send_replace(with(&[]));
        waiting.await.unwrap();
    }

    /// Returns a relay that knows one node, which leads; nothing is ever sent to that node.
    fn relay() -> Relay {
        let node = NodeId::new(1).unwrap();
        let routing_table =
            RoutingTable { clients: [(node, "127.0.0.1:1".to_owned())].into(), ..RoutingTable::blank() };
        let routing_table = RoutingTable { in_touch: [node].into(), ..routing_table };
        let (role, leader) = (tollgate_replica::Role::Follower, Some(node));
        let known = tollgate_node::GroupStatus {
            role,
            leader,
            term: 1,
            serves: false,
            stuck: false,
            has_state: false,
            lineage: None,
        };
        let groups = [(GroupId::MAP, known)].into();
        let (_, status) = watch::channel(NodeStatus { groups, ..NodeStatus::default() });
        let (_, routing_table) = watch::channel(Arc::new(routing_table));
        let (hurry, channels, turn) = (Arc::default(), Mutex::default(), AtomicUsize::new(0));
        Relay { shared: Arc::new(Shared { status, routing_table, hurry, channels, turn }) }
    }

    #[tokio::test]
    async fn p10_a_change_that_may_have_happened_is_not_said_to_have_not() {
        let lost = || Status::unavailable("connection reset");
        let refused = || Status::from(v1::Error::new(ErrorReason::NoLeader, "nobody leads"));
        let ask = async |repeat, answers: [Status; 3]| {
            let relay = relay();
            let answers = Mutex::new(answers.into_iter());
            let call = |_| {
                let answer = answers.lock().next().unwrap();
                async move { Err::<Response<()>, _>(answer) }
            };
            let error = relay.ask(Whom::Leader(GroupId::MAP), repeat, call).await.unwrap_err();
            (error.reason(), error.may_have_happened, answers.into_inner().len())
        };
        let (unsure, nobody) = (ErrorReason::Indeterminate, ErrorReason::NoLeader);
        assert_eq!(ask(Repeat::Look, [lost(), lost(), lost()]).await, (nobody, false, 0));
        assert_eq!(ask(Repeat::Harmless, [lost(), lost(), lost()]).await, (unsure, true, 0));
        assert_eq!(ask(Repeat::Harmless, [lost(), refused(), refused()]).await, (unsure, true, 0));
        assert_eq!(ask(Repeat::Harmless, [refused(), refused(), refused()]).await, (nobody, false, 0));
        assert_eq!(ask(Repeat::Never, [lost(), lost(), lost()]).await, (unsure, true, 2));
        assert_eq!(ask(Repeat::Never, [refused(), lost(), lost()]).await, (unsure, true, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_members_is_waited_for_as_long_as_a_node_may_take() {
        let (relay, node) = (relay(), NodeId::new(1).unwrap());
        let slow = |_| async {
            tokio::time::sleep(MEMBER_CHANGE_PATIENCE).await;
            Ok(Response::new(()))
        };
        let whom = Whom::Node(node);
        assert_eq!(relay.ask_within(MEMBER_CALL_PATIENCE, whom, Repeat::Harmless, slow).await, Ok(()));
        let late = relay.ask(whom, Repeat::Harmless, slow).await.unwrap_err();
        assert_eq!(late.reason(), ErrorReason::Indeterminate);
    }

    #[tokio::test]
    async fn a_relay_without_a_cluster_refuses_at_once() {
        let discovery = Discovery::start(vec!["127.0.0.1:1".to_owned()], None);
        let relay = Relay::new(&discovery);
        let asked = relay.ask(Whom::Any, Repeat::Look, |_| async { Ok(Response::new(())) }).await;
        assert_eq!(asked.unwrap_err().reason(), ErrorReason::NoLeader);
        let named = NodeId::new(4).unwrap();
        let asked = relay.ask(Whom::Node(named), Repeat::Never, |_| async { Ok(Response::new(())) }).await;
        assert!(asked.unwrap_err().message.contains("no node 4 is known"));
    }
}
