//! The first words of a connection between nodes: who dials whom, in which cluster.
//!
//! `TOLLGATE`, version (u16), cluster, from, to (u64 each), little-endian. The answer is one byte.

use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tollgate_types::{ClusterId, NodeId};

const MAGIC: &[u8; 8] = b"TOLLGATE";
const VERSION: u16 = 1;
const BYTES: usize = 8 + 2 + 3 * 8;

/// How long either side waits for the other's first words.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Who speaks to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) cluster: ClusterId,
    pub(super) from: NodeId,
    pub(super) to: NodeId,
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
}

impl Refusal {
    const ALL: [(u8, Refusal); 5] = [
        (1, Refusal::OtherCluster),
        (2, Refusal::OtherNode),
        (3, Refusal::UnknownPeer),
        (4, Refusal::OtherVersion),
        (5, Refusal::NotAPeer),
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

/// Hears a hello and answers it: who dialled, or why not.
pub(super) async fn answer<S>(
    stream: &mut S,
    (cluster, node): (ClusterId, NodeId),
    is_known: impl Fn(NodeId) -> bool,
) -> std::io::Result<Result<NodeId, Refusal>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut bytes = [0; BYTES];
    stream.read_exact(&mut bytes).await?;
    let heard = Hello::decode(&bytes).and_then(|hello| {
        if hello.cluster != cluster {
            Err(Refusal::OtherCluster)
        } else if hello.to != node {
            Err(Refusal::OtherNode)
        } else if !is_known(hello.from) {
            Err(Refusal::UnknownPeer)
        } else {
            Ok(hello.from)
        }
    });
    stream.write_u8(heard.err().map_or(0, Refusal::byte)).await?;
    Ok(heard)
}

impl Hello {
    fn encode(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        let numbers = [self.cluster.number(), self.from.number(), self.to.number()];
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
        Ok(Hello { cluster: ClusterId::new(number(0)), from: node(1)?, to: node(2)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(cluster: u64, from: u64, to: u64) -> Hello {
        let node = |number| NodeId::new(number).unwrap();
        Hello { cluster: ClusterId::new(cluster), from: node(from), to: node(to) }
    }

    async fn meet(hello: Hello) -> (Result<(), Refusal>, Result<NodeId, Refusal>) {
        let (mut near, mut far) = tokio::io::duplex(100);
        let me = (ClusterId::new(7), NodeId::new(2).unwrap());
        let is_known = |node: NodeId| node.number() <= 3;
        let (said, heard) = tokio::join!(greet(&mut near, hello), answer(&mut far, me, is_known));
        (said.unwrap(), heard.unwrap())
    }

    #[tokio::test]
    async fn nodes_of_one_cluster_meet_and_others_are_told_why_not() {
        assert_eq!(meet(hello(7, 1, 2)).await, (Ok(()), Ok(NodeId::new(1).unwrap())));
        for (hello, refusal) in [
            (hello(8, 1, 2), Refusal::OtherCluster),
            (hello(7, 1, 3), Refusal::OtherNode),
            (hello(7, 9, 2), Refusal::UnknownPeer),
        ] {
            assert_eq!(meet(hello).await, (Err(refusal), Err(refusal)));
        }
    }

    #[tokio::test]
    async fn garbage_is_refused() {
        let (mut near, mut far) = tokio::io::duplex(100);
        near.write_all(&[b'x'; BYTES]).await.unwrap();
        let me = (ClusterId::new(7), NodeId::new(2).unwrap());
        assert_eq!(answer(&mut far, me, |_| true).await.unwrap(), Err(Refusal::NotAPeer));
    }
}
