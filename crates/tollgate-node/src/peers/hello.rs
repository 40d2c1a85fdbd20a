//! The first words of a connection between nodes: who dials whom, in which cluster, and with which disk.
//!
//! `TOLLGATE`, version (u16), cluster, from, to, disk of the one who dials (u64 each), little-endian. The answer is one
//! byte: 0 says that the one who was dialled has the other's disk in its books.

use crate::circle::Roster;
use crate::planted::{Bug, planted};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tollgate_types::{ClusterId, DiskId, NodeId};

const MAGIC: &[u8; 8] = b"TOLLGATE";
const VERSION: u16 = 2;
const BYTES: usize = 8 + 2 + 4 * 8;

/// How long either side waits for the other's first words.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Who speaks to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) cluster: ClusterId,
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) disk: DiskId,
}

/// Why a connection was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("it belongs to another cluster: check cluster.name and the members' addresses")]
    OtherCluster,
    #[error("it is another node than expected: check the members' addresses")]
    OtherNode,
    #[error("it does not know this node: add it to the cluster's members")]
    UnknownPeer,
    #[error("it speaks another version: upgrade one of the two")]
    OtherVersion,
    #[error("it does not speak this protocol: is that the peer port?")]
    NotAPeer,
    #[error(
        "it knows this node by another disk: a data directory that was founded anew can't take the place of the one \
             that is gone; remove the node and let it join under a new id"
    )]
    OtherDisk,
    #[error("this node was removed from the cluster, or its id was passed over: let it join under a new id")]
    Removed,
}

impl Refusal {
    const ALL: [(u8, Refusal); 7] = [
        (1, Refusal::OtherCluster),
        (2, Refusal::OtherNode),
        (3, Refusal::UnknownPeer),
        (4, Refusal::OtherVersion),
        (5, Refusal::NotAPeer),
        (6, Refusal::OtherDisk),
        (7, Refusal::Removed),
    ];

    fn byte(self) -> u8 {
        Refusal::ALL.iter().find(|(_, refusal)| *refusal == self).map_or(5, |(byte, _)| *byte)
    }
}

/// Says hello and hears the answer.
pub(super) async fn greet<S>(stream: &mut S, hello: Hello) -> std::io::Result<Result<(), Refusal>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.write_all(&hello.encode()).await?;
    let byte = stream.read_u8().await?;
    let refusal = Refusal::ALL.iter().find(|(code, _)| *code == byte).map(|(_, refusal)| *refusal);
    Ok(if byte == 0 { Ok(()) } else { Err(refusal.unwrap_or(Refusal::NotAPeer)) })
}

/// Hears a hello; it must be answered.
pub(super) async fn hear<S>(stream: &mut S) -> std::io::Result<Result<Hello, Refusal>>
where
    S: AsyncRead + Unpin,
{
    let mut bytes = [0; BYTES];
    stream.read_exact(&mut bytes).await?;
    Ok(Hello::decode(&bytes))
}

/// Answers a hello: come in, or why not.
pub(super) async fn answer<S>(stream: &mut S, refusal: Option<Refusal>) -> std::io::Result<()>
where
    S: AsyncWrite + Unpin,
{
    stream.write_u8(refusal.map_or(0, Refusal::byte)).await
}

impl Hello {
    fn encode(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        let numbers = [self.cluster.number(), self.from.number(), self.to.number(), self.disk.number()];
        for (place, number) in numbers.into_iter().enumerate() {
            bytes[10 + 8 * place..18 + 8 * place].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8; BYTES]) -> Result<Hello, Refusal> {
        if bytes[..8] != *MAGIC {
            return Err(Refusal::NotAPeer);
        }
        if bytes[8..10] != VERSION.to_le_bytes() {
            return Err(Refusal::OtherVersion);
        }
        let number = |place: usize| {
            let bytes = bytes[10 + 8 * place..18 + 8 * place].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        let node = |place| NodeId::new(number(place)).ok_or(Refusal::NotAPeer);
        let (cluster, disk) = (ClusterId::new(number(0)), DiskId::new(number(3)));
        Ok(Hello { cluster, from: node(1)?, to: node(2)?, disk })
    }

    /// What is wrong with it for this node, whatever its disk.
    pub(super) fn refusal(&self, (cluster, node): (ClusterId, NodeId), roster: &Roster) -> Option<Refusal> {
        if self.cluster != cluster && !planted(Bug::OtherClusterAccepted) {
            Some(Refusal::OtherCluster)
        } else if self.to != node || self.from == node {
            Some(Refusal::OtherNode)
        } else if roster.contains(self.from) {
            None
        } else if roster.is_past(self.from) {
            (!planted(Bug::RemovedHeard)).then_some(Refusal::Removed)
        } else {
            Some(Refusal::UnknownPeer)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(cluster: u64, from: u64, to: u64) -> Hello {
        let node = |number| NodeId::new(number).unwrap();
        Hello {
            cluster: ClusterId::new(cluster),
            from: node(from),
            to: node(to),
            disk: DiskId::new(u64::MAX),
        }
    }

    /// What either side makes of it: the one who dialled, and node 2 of cluster 7, whose members are 1, 2 and 4.
    async fn meet(hello: Hello) -> (Result<(), Refusal>, Option<Refusal>) {
        let (mut near, mut far) = tokio::io::duplex(100);
        let me = (ClusterId::new(7), NodeId::new(2).unwrap());
        let roster = Roster::of_nodes([1, 2, 4]);
        let (said, heard) = tokio::join!(greet(&mut near, hello), async {
            let heard = hear(&mut far).await.unwrap().unwrap();
            assert_eq!(heard, hello);
            let refusal = heard.refusal(me, &roster);
            answer(&mut far, refusal).await.unwrap();
            refusal
        });
        (said.unwrap(), heard)
    }

    #[tokio::test]
    async fn nodes_of_one_cluster_meet_and_others_are_told_why_not() {
        assert_eq!(meet(hello(7, 1, 2)).await, (Ok(()), None));
        for (hello, refusal) in [
            (hello(8, 1, 2), Refusal::OtherCluster),
            (hello(7, 1, 3), Refusal::OtherNode),
            (hello(7, 2, 2), Refusal::OtherNode),
            (hello(7, 9, 2), Refusal::UnknownPeer),
            (hello(7, 3, 2), Refusal::Removed),
        ] {
            assert_eq!(meet(hello).await, (Err(refusal), Some(refusal)));
        }
    }

    #[tokio::test]
    async fn every_refusal_arrives_as_what_it_is() {
        for (_, refusal) in Refusal::ALL {
            let (mut near, mut far) = tokio::io::duplex(100);
            let (said, answered) =
                tokio::join!(greet(&mut near, hello(7, 1, 2)), answer(&mut far, Some(refusal)));
            answered.unwrap();
            assert_eq!(said.unwrap(), Err(refusal));
        }
    }

    #[tokio::test]
    async fn garbage_and_other_versions_are_refused() {
        let (mut near, mut far) = tokio::io::duplex(100);
        near.write_all(&[b'x'; BYTES]).await.unwrap();
        assert_eq!(hear(&mut far).await.unwrap(), Err(Refusal::NotAPeer));
        let mut older = hello(7, 1, 2).encode();
        older[8] = 1;
        near.write_all(&older).await.unwrap();
        assert_eq!(hear(&mut far).await.unwrap(), Err(Refusal::OtherVersion));
    }
}
