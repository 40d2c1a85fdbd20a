//! Three bare Rafts that propose, replicate and commit, and do nothing else.

use crate::seconds;
use raft::eraftpb::{ConfState, Message};
use raft::storage::MemStorage;
use raft::{Config, RawNode, StateRole};

/// Approximate size of a lock or unlock command in the log.
const COMMAND_BYTES: usize = 60;

struct Node {
    raw: RawNode<MemStorage>,
    committed: usize,
}

/// Seconds for `operations` commands, `at_once` of them in flight, packed into entries of `per_entry` commands.
pub(crate) fn run(operations: usize, at_once: usize, per_entry: usize) -> f64 {
    let mut nodes: Vec<Node> = (1..=3).map(node).collect();
    let mut wires: Vec<Vec<Message>> = vec![Vec::new(); 3];
    nodes[0].raw.campaign().expect("a voter may campaign");
    while nodes[0].raw.raft.state != StateRole::Leader {
        round(&mut nodes, &mut wires, per_entry);
    }
    for _ in 0..4 {
        round(&mut nodes, &mut wires, per_entry);
    }
    nodes[0].committed = 0;
    seconds(|| {
        let mut proposed = 0;
        while nodes[0].committed < operations {
            while proposed < operations && proposed - nodes[0].committed < at_once {
                let data = vec![7; COMMAND_BYTES * per_entry];
                nodes[0].raw.propose(Vec::new(), data).expect("it leads");
                proposed += per_entry;
            }
            round(&mut nodes, &mut wires, per_entry);
        }
    })
}

fn node(id: u64) -> Node {
    let config = Config {
        id,
        election_tick: 10,
        heartbeat_tick: 1,
        max_size_per_msg: 1 << 20,
        max_inflight_msgs: 64,
        check_quorum: true,
        pre_vote: true,
        ..Config::default()
    };
    let storage = MemStorage::new_with_conf_state(ConfState::from((vec![1, 2, 3], vec![])));
    let silent = slog::Logger::root(slog::Discard, slog::o!());
    Node { raw: RawNode::new(&config, storage, &silent).expect("valid"), committed: 0 }
}

/// Lets every node read, write and send once.
fn round(nodes: &mut [Node], wires: &mut [Vec<Message>], per_entry: usize) {
    for at in 0..nodes.len() {
        let node = &mut nodes[at];
        for message in std::mem::take(&mut wires[at]) {
            // Responses to messages that it sent as a candidate may come late.
            let _ = node.raw.step(message);
        }
        if !node.raw.has_ready() {
            continue;
        }
        let mut ready = node.raw.ready();
        let mut out = ready.take_messages();
        let mut committed = ready.take_committed_entries();
        if !ready.entries().is_empty() {
            node.raw.store().wl().append(ready.entries()).expect("in order");
        }
        if let Some(hard) = ready.hs() {
            node.raw.store().wl().set_hardstate(hard.clone());
        }
        out.extend(ready.take_persisted_messages());
        let mut light = node.raw.advance(ready);
        out.extend(light.take_messages());
        committed.append(&mut light.take_committed_entries());
        node.raw.advance_apply();
        node.committed += committed.iter().filter(|entry| !entry.data.is_empty()).count() * per_entry;
        if let Some(last) = committed.last().filter(|last| last.index % 64 == 0) {
            // Keeps memory constant; a log that only grows would measure the allocator.
            let _ = node.raw.store().wl().compact(last.index.saturating_sub(8_192).max(1));
        }
        for message in out {
            let to = usize::try_from(message.to).expect("three nodes") - 1;
            wires[to].push(message);
        }
    }
}
