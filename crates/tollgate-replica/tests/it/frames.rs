//! Frames that are not meant for this node, or are not frames.

use crate::cluster::{CLUSTER, Cluster, Seeded, node};
use tollgate_replica::{FrameError, Host, Randomness};
use tollgate_types::ClusterId;

/// A frame that node 1 sends to node 2.
fn a_frame(cluster: &mut Cluster) -> Vec<u8> {
    cluster.run_ms(2_500);
    loop {
        cluster.now_us += 100_000;
        let output = cluster.turn(node(1), |_| {}).unwrap();
        if let Some((_, bytes)) = output.frames.into_iter().find(|(to, _)| *to == node(2)) {
            return bytes;
        }
    }
}

fn receive(host: &mut Host, now_us: u64, bytes: &[u8]) -> Result<(), FrameError> {
    host.begin_turn(tollgate_replica::MonotonicTime::from_us(now_us));
    let result = host.receive(bytes);
    host.end_turn();
    result
}

#[test]
fn a_frame_of_another_cluster_is_refused() {
    let other = ClusterId::new(0xbad);
    let mut foreign = Cluster::with(3, &[], 1, |config| config.cluster = other);
    let frame = a_frame(&mut foreign);
    let mut cluster = Cluster::new(3, &[], 1);
    let now_us = cluster.now_us + 1_000_000;
    let host = cluster.nodes.get_mut(&node(2)).unwrap().host.as_mut().unwrap();
    assert_eq!(receive(host, now_us, &frame), Err(FrameError::OtherCluster { theirs: other, ours: CLUSTER }));
}

#[test]
fn a_frame_for_another_node_is_refused() {
    let mut cluster = Cluster::new(3, &[], 1);
    let frame = a_frame(&mut cluster);
    let now_us = cluster.now_us + 1_000_000;
    let host = cluster.nodes.get_mut(&node(3)).unwrap().host.as_mut().unwrap();
    assert_eq!(receive(host, now_us, &frame), Err(FrameError::OtherNode { to: node(2), here: node(3) }));
}

#[test]
fn damaged_frames_never_panic_the_decoder() {
    let mut cluster = Cluster::new(3, &[], 1);
    let frame = a_frame(&mut cluster);
    let mut random = Seeded(7);
    // A host of another cluster: a frame that decodes is refused before Raft could handle its messages.
    let mut other = Cluster::with(3, &[], 1, |config| config.cluster = ClusterId::new(0xbad));
    let now_us = other.now_us + 1_000_000;
    let host = other.nodes.get_mut(&node(2)).unwrap().host.as_mut().unwrap();
    for _ in 0..20_000 {
        let mut bytes = frame.clone();
        for _ in 0..=random.between(0, 3) {
            let at = usize::try_from(random.between(0, bytes.len() as u64)).unwrap();
            bytes[at] ^= 1 << random.between(0, 8);
        }
        bytes.truncate(usize::try_from(random.between(0, bytes.len() as u64 + 1)).unwrap());
        assert!(receive(host, now_us, &bytes).is_err());
    }
    for length in 0..64 {
        let bytes: Vec<u8> = (0..length).map(|_| random.next_u64().to_le_bytes()[0]).collect();
        assert!(receive(host, now_us, &bytes).is_err());
    }
}
