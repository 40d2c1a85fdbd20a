//! The hosts of three nodes, and a `Dispatcher` at the leader.

use crate::memory::Memory;
use prost::Message;
use std::sync::Arc;
use tollgate_core::Noting;
use tollgate_gateway::operation::{self, Context, HeaderInfo, Kind, Prepared};
use tollgate_gateway::revision_of;
use tollgate_node::Answer;
use tollgate_proto::v1;
use tollgate_replica::{
    CallerKey, Dispatcher, Done, Host, HostConfig, Members, MonotonicTime, Output, Randomness, Storage,
    WriteNumber, bootstrap,
};
use tollgate_types::{Address, ClusterId, GroupId, GroupMap, Limits, NodeId, Revision};

const GROUP: GroupId = GroupId::new(0);
const LEADER: usize = 0;

struct Counter(u64);

impl Randomness for Counter {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 7
    }
}

/// Caller of an operation, identified by the operation's number.
#[derive(Clone)]
struct Asker(u64);

impl tollgate_replica::Caller for Asker {
    fn key(&self) -> CallerKey {
        CallerKey { stream: 1, call: self.0 }
    }
}

struct Node {
    host: Host,
    disk: Memory,
    inbox: Vec<Vec<u8>>,
    persisted: Option<WriteNumber>,
    done: Vec<Done>,
}

pub(crate) struct Cluster {
    nodes: Vec<Node>,
    dispatcher: Dispatcher<Asker, tollgate_node::Look>,
    map: Arc<GroupMap>,
    now_us: u64,
    answers: Vec<(Asker, Answer)>,
}

impl Cluster {
    /// Builds a cluster whose first node leads.
    pub(crate) fn new(noting: Noting) -> Cluster {
        let ids = || (1..=3).map(|number| NodeId::new(number).expect("not 0"));
        let members = Members::first(ids(), []);
        let map = Arc::new(GroupMap::even(1).expect("few"));
        let nodes = ids().map(|id| {
            let mut disk = Memory::default();
            bootstrap(&mut disk, id, GROUP, &map, &members, Limits::DEFAULT).expect("memory");
            let mut config = HostConfig { noting, ..HostConfig::new(ClusterId::new(1), id) };
            // Snapshots are no part of any operation.
            (config.snapshot_age_ms, config.snapshot_log_bytes) = (u64::MAX / 2_000, u64::MAX / 1_024);
            let loaded = disk.load().expect("memory");
            let host = Host::open(config, loaded, Box::new(Counter(id.number())), MonotonicTime::from_us(0));
            let host = host.expect("valid");
            Node { host, disk, inbox: Vec::new(), persisted: None, done: Vec::new() }
        });
        let nodes = nodes.collect();
        let mut cluster =
            Cluster { nodes, dispatcher: Dispatcher::new(0), map, now_us: 0, answers: Vec::new() };
        while !cluster.nodes[LEADER].host.status(GROUP).is_some_and(|status| status.serves) {
            cluster.now_us += 10_000;
            for at in 0..3 {
                cluster.turn(at, |_, host| host.transfer_leadership(GROUP, NodeId::new(1)));
            }
        }
        cluster
    }

    /// Carries out a frame of `operations` operations and returns the frame of their results.
    pub(crate) fn carry_out(&mut self, frame: &[u8], operations: usize) -> Vec<u8> {
        let frame = v1::SessionRequest::decode(frame).expect("encoded by the clients");
        let mut contexts: Vec<Option<Context>> = Vec::new();
        let map = Arc::clone(&self.map);
        self.turn(LEADER, |dispatcher, host| {
            for v1::Operation { id, op, .. } in frame.operations {
                let prepared = operation::prepare(&op.expect("set"), &map, &Address::NONE).expect("valid");
                let Prepared { group, kind: Kind::Command { command, fast }, context, .. } = prepared else {
                    unreachable!("the clients ask for commands")
                };
                contexts.push(Some(context));
                dispatcher.command(Asker(id), group, command, fast, host);
            }
        });
        while self.answers.len() < operations {
            self.now_us += 50;
            for at in 0..3 {
                self.turn(at, |_, _| {});
            }
        }
        let mut header = HeaderInfo {
            cluster: ClusterId::new(1),
            node: NodeId::new(1),
            group: GROUP,
            revision: Revision::ZERO,
            term: 1,
            lineage: None,
        };
        let worded = self.answers.drain(..).map(|(Asker(id), answer)| {
            let at = usize::try_from(id).expect("an index");
            let context = contexts[at].take().expect("each is answered once");
            header.revision = revision_of(&answer).unwrap_or(Revision::ZERO);
            v1::OperationResult { id, result: Some(context.finish(answer, &header, None, 0)) }
        });
        let results = worded.collect();
        v1::SessionResponse { results, header: None }.encode_to_vec()
    }

    fn turn(&mut self, at: usize, act: impl FnOnce(&mut Dispatcher<Asker, tollgate_node::Look>, &mut Host)) {
        let node = &mut self.nodes[at];
        node.host.begin_turn(MonotonicTime::from_us(self.now_us));
        for frame in std::mem::take(&mut node.inbox) {
            node.host.receive(&frame).expect("of this cluster");
        }
        if let Some(number) = node.persisted.take() {
            node.host.persisted(number);
        }
        for done in node.done.drain(..) {
            node.host.job_done(done);
        }
        act(&mut self.dispatcher, &mut node.host);
        if at == LEADER {
            self.dispatcher.before_end_turn(&mut node.host);
        }
        let mut output = node.host.end_turn();
        if at == LEADER {
            self.dispatcher.after_turn(&mut output, &node.host, &mut self.answers);
        }
        self.give_out(at, output);
    }

    fn give_out(&mut self, at: usize, output: Output) {
        let node = &mut self.nodes[at];
        // Durable at once: the cost of a disk is not measured in instructions.
        node.persisted = output.write.map(|write| write.number).or(node.persisted);
        for job in output.jobs {
            node.done.push(node.disk.perform(job).expect("memory"));
        }
        for (to, bytes) in output.frames {
            let to = usize::try_from(to.number()).expect("three nodes") - 1;
            self.nodes[to].inbox.push(bytes);
        }
    }
}
