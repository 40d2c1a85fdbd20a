//! The opening exchange of a connection between nodes: the dialling and the dialled node, the cluster, the dialler's
//! disk, and the disks by which the two know each other.
//!
//! `TOLLGATE`, version (u16), cluster, from, to, disk of the dialler (u64 each), whether the dialler knows the other's
//! disk (u8, 0 or 1) and the known disk (u64, 0 if unknown), little-endian. From version 4 on the last byte is the
//! purpose of the connection: 0 frames, 1 clock readings. Both versions are understood; a connection for frames opens
//! with version 3, the only one that older nodes know, and one for clock readings with version 4, which they refuse.
//!
//! The answer is a byte, 0 if the dialled node accepts the dialler and has recorded its disk, and the dialled node's
//! own disk (u64). A hello of another protocol, version or purpose is answered by the byte only. Not here: the
//! judgement of an answer (`outgoing`), and the judgement of a hello's disk (`incoming`).

use crate::peer_registry::Roster;
use crate::planted::{Bug, planted};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tollgate_replica::Identity;
use tollgate_types::{ClusterId, DiskId, NodeId};

const MAGIC: &[u8; 8] = b"TOLLGATE";
/// Version for frames, which does not carry the purpose.
const VERSION_OF_FRAMES: u16 = 3;
/// Version that carries the purpose.
const VERSION_WITH_PURPOSE: u16 = 4;
/// Length of a hello of the former version. The latter has a byte more.
const BYTES: usize = KNOWN + 1 + 8;
const BYTES_MAX: usize = BYTES + 1;
/// Length of the opening of every version: the magic, and the version.
const OPENING: usize = 8 + 2;
/// Offset of the disk by which the other is known.
const KNOWN: usize = OPENING + 4 * 8;

const PURPOSE_FRAMES: u8 = 0;
const PURPOSE_CLOCK_READINGS: u8 = 1;

/// Maximum time that either side waits for the other's part of the exchange.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Introduction of the dialling node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) cluster: ClusterId,
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) disk: DiskId,
    /// Disk by which the dialler knows the other node.
    pub(super) known: Option<DiskId>,
    pub(super) purpose: Purpose,
}

/// Purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// The dialler sends frames.
    Frames,
    /// The dialler reads the other's clock.
    ClockReadings,
}

/// Answer to a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    /// Reason for a refusal; none if the hello was accepted.
    pub(super) refusal: Option<Refusal>,
    /// Disk of the node that answered; none if it does not speak this protocol.
    pub(super) disk: Option<DiskId>,
}

/// Reason for refusing a connection.
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
    #[error(
        "it has another disk than this node knows it by: it was founded anew, and nothing that it says counts; remove \
             it, and let it join under a new id"
    )]
    FoundedAnew,
}

impl Refusal {
    const ALL: [(u8, Refusal); 8] = [
        (1, Refusal::OtherCluster),
        (2, Refusal::OtherNode),
        (3, Refusal::UnknownPeer),
        (4, Refusal::OtherVersion),
        (5, Refusal::NotAPeer),
        (6, Refusal::OtherDisk),
        (7, Refusal::Removed),
        (8, Refusal::FoundedAnew),
    ];

    fn byte(self) -> u8 {
        Refusal::ALL.iter().find(|(_, refusal)| *refusal == self).map_or(5, |(byte, _)| *byte)
    }

    /// Returns true if the two nodes don't speak the same protocol.
    fn is_foreign(self) -> bool {
        matches!(self, Refusal::OtherVersion | Refusal::NotAPeer)
    }
}

/// Sends a hello and reads the answer.
pub(super) async fn greet<S>(stream: &mut S, hello: Hello) -> std::io::Result<Answer>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.write_all(&hello.encode()).await?;
    let byte = stream.read_u8().await?;
    let refusal = Refusal::ALL.iter().find(|(code, _)| *code == byte).map(|(_, refusal)| *refusal);
    let refusal = if byte == 0 { None } else { Some(refusal.unwrap_or(Refusal::NotAPeer)) };
    if refusal.is_some_and(Refusal::is_foreign) {
        return Ok(Answer { refusal, disk: None });
    }
    let disk = Some(DiskId::new(stream.read_u64_le().await?));
    Ok(Answer { refusal, disk })
}

/// Reads a hello; it must be answered.
pub(super) async fn hear<S>(stream: &mut S) -> std::io::Result<Result<Hello, Refusal>>
where
    S: AsyncRead + Unpin,
{
    let mut bytes = [0; BYTES_MAX];
    stream.read_exact(&mut bytes[..OPENING]).await?;
    // The rest may be shorter in another version, and is not waited for.
    let length = match length_by_opening(&bytes[..OPENING]) {
        Ok(length) => length,
        Err(refusal) => return Ok(Err(refusal)),
    };
    stream.read_exact(&mut bytes[OPENING..length]).await?;
    Ok(Hello::decode(&bytes[..length]))
}

/// Answers a hello with this node's disk: accepts it, or gives the reason for the refusal.
pub(super) async fn answer<S>(stream: &mut S, refusal: Option<Refusal>, disk: DiskId) -> std::io::Result<()>
where
    S: AsyncWrite + Unpin,
{
    let mut bytes = [0; 1 + 8];
    bytes[0] = refusal.map_or(0, Refusal::byte);
    bytes[1..].copy_from_slice(&disk.number().to_le_bytes());
    let length = if refusal.is_some_and(Refusal::is_foreign) { 1 } else { bytes.len() };
    stream.write_all(&bytes[..length]).await
}

/// Returns the length of a hello with this opening.
fn length_by_opening(opening: &[u8]) -> Result<usize, Refusal> {
    if opening[..8] != *MAGIC {
        return Err(Refusal::NotAPeer);
    }
    match u16::from_le_bytes([opening[8], opening[9]]) {
        VERSION_OF_FRAMES => Ok(BYTES),
        VERSION_WITH_PURPOSE => Ok(BYTES_MAX),
        _ => Err(Refusal::OtherVersion),
    }
}

impl Hello {
    fn encode(self) -> Vec<u8> {
        let (version, purpose) = match self.purpose {
            Purpose::Frames => (VERSION_OF_FRAMES, None),
            Purpose::ClockReadings => (VERSION_WITH_PURPOSE, Some(PURPOSE_CLOCK_READINGS)),
        };
        let mut bytes = vec![0; BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..OPENING].copy_from_slice(&version.to_le_bytes());
        let numbers = [self.cluster.number(), self.from.number(), self.to.number(), self.disk.number()];
        for (place, number) in numbers.into_iter().enumerate() {
            bytes[OPENING + 8 * place..][..8].copy_from_slice(&number.to_le_bytes());
        }
        bytes[KNOWN] = u8::from(self.known.is_some());
        bytes[KNOWN + 1..].copy_from_slice(&self.known.map_or(0, DiskId::number).to_le_bytes());
        bytes.extend(purpose);
        bytes
    }

    /// Decodes a hello of the length that its opening requires.
    fn decode(bytes: &[u8]) -> Result<Hello, Refusal> {
        assert_eq!(length_by_opening(bytes)?, bytes.len(), "whoever reads it reads all of it");
        let number_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let number = |place: usize| number_at(OPENING + 8 * place);
        let node = |place| NodeId::new(number(place)).ok_or(Refusal::NotAPeer);
        let (cluster, disk) = (ClusterId::new(number(0)), DiskId::new(number(3)));
        let known = match (bytes[KNOWN], number_at(KNOWN + 1)) {
            (0, 0) => None,
            (1, known) => Some(DiskId::new(known)),
            _ => return Err(Refusal::NotAPeer),
        };
        let purpose = match bytes.get(BYTES).copied().unwrap_or(PURPOSE_FRAMES) {
            PURPOSE_FRAMES => Purpose::Frames,
            PURPOSE_CLOCK_READINGS => Purpose::ClockReadings,
            // A later node may know other purposes.
            _ => return Err(Refusal::OtherVersion),
        };
        Ok(Hello { cluster, from: node(1)?, to: node(2)?, disk, known, purpose })
    }

    /// Returns the reason for which this node refuses the hello, if any, regardless of the dialler's disk.
    ///
    /// The disk by which this node is known is checked before the dialler's membership: a node that was founded anew
    /// does not know the members of the cluster that it forgot.
    pub(super) fn refusal(&self, own: &Identity, roster: &Roster) -> Option<Refusal> {
        if self.cluster != own.cluster && !planted(Bug::OtherClusterAccepted) {
            Some(Refusal::OtherCluster)
        } else if self.to != own.node || self.from == own.node {
            Some(Refusal::OtherNode)
        } else if self.known.is_some_and(|known| known != own.disk) && !planted(Bug::FoundedAnewGoesOn) {
            Some(Refusal::FoundedAnew)
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
            known: None,
            purpose: Purpose::Frames,
        }
    }

    fn knowing(known: u64, hello: Hello) -> Hello {
        Hello { known: Some(DiskId::new(known)), ..hello }
    }

    /// Disk of the node that answers.
    const DISK: DiskId = DiskId::new(0x0123_4567_89ab_cdef);

    /// Returns the refusal by node 2 of cluster 7, whose members are 1, 2 and 4, as the dialler receives it.
    async fn meet(hello: Hello) -> Option<Refusal> {
        let (mut near, mut far) = tokio::io::duplex(100);
        let (cluster, node) = (ClusterId::new(7), NodeId::new(2).unwrap());
        let own = Identity { cluster, node, disk: DISK, format: tollgate_replica::DATA_FORMAT };
        let roster = Roster::of_nodes([1, 2, 4]);
        let (said, heard) = tokio::join!(greet(&mut near, hello), async {
            let heard = hear(&mut far).await.unwrap().unwrap();
            assert_eq!(heard, hello);
            let refusal = heard.refusal(&own, &roster);
            answer(&mut far, refusal, own.disk).await.unwrap();
            refusal
        });
        assert_eq!(said.unwrap(), Answer { refusal: heard, disk: Some(DISK) });
        heard
    }

    #[tokio::test]
    async fn nodes_of_one_cluster_meet_and_others_are_told_why_not() {
        assert_eq!(meet(hello(7, 1, 2)).await, None);
        assert_eq!(meet(knowing(DISK.number(), hello(7, 1, 2))).await, None);
        for (hello, refusal) in [
            (hello(8, 1, 2), Refusal::OtherCluster),
            (hello(7, 1, 3), Refusal::OtherNode),
            (hello(7, 2, 2), Refusal::OtherNode),
            (hello(7, 9, 2), Refusal::UnknownPeer),
            (hello(7, 3, 2), Refusal::Removed),
            (knowing(DISK.number(), hello(7, 3, 2)), Refusal::Removed),
        ] {
            assert_eq!(meet(hello).await, Some(refusal));
        }
    }

    #[tokio::test]
    async fn p1_whoever_knows_another_disk_is_told_before_it_is_looked_at_who_it_is() {
        for from in [1, 3, 9] {
            for known in [0, DISK.number() + 1] {
                assert_eq!(meet(knowing(known, hello(7, from, 2))).await, Some(Refusal::FoundedAnew));
            }
        }
        assert_eq!(meet(knowing(1, hello(8, 1, 2))).await, Some(Refusal::OtherCluster));
        assert_eq!(meet(knowing(1, hello(7, 1, 3))).await, Some(Refusal::OtherNode));
    }

    #[tokio::test]
    async fn every_refusal_arrives_as_what_it_is() {
        for (_, refusal) in Refusal::ALL {
            let (mut near, mut far) = tokio::io::duplex(100);
            let (said, answered) =
                tokio::join!(greet(&mut near, hello(7, 1, 2)), answer(&mut far, Some(refusal), DISK));
            answered.unwrap();
            let disk = (!refusal.is_foreign()).then_some(DISK);
            assert_eq!(said.unwrap(), Answer { refusal: Some(refusal), disk });
        }
    }

    /// The format: a change of these bytes needs another version.
    #[tokio::test]
    async fn the_bytes_of_a_hello_and_its_answer_are_these() {
        let said = Hello { disk: DiskId::new(9), ..knowing(0x0807_0605_0403_0201, hello(7, 1, 2)) };
        let number = |last: u8| [last, 0, 0, 0, 0, 0, 0, 0];
        let numbers = [number(7), number(1), number(2), number(9)].concat();
        let expected = [&b"TOLLGATE\x03\x00"[..], &numbers, &[1, 1, 2, 3, 4, 5, 6, 7, 8]].concat();
        assert_eq!(said.encode()[..], expected);
        let (mut near, mut far) = tokio::io::duplex(100);
        answer(&mut far, Some(Refusal::Removed), DISK).await.unwrap();
        drop(far);
        let mut bytes = Vec::new();
        near.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(bytes, [7, 0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01]);
    }

    /// The format: a change of these bytes needs another version.
    #[test]
    fn the_bytes_of_a_hello_for_clock_readings_are_these() {
        let said = knowing(0x0807_0605_0403_0201, hello(7, 1, 2));
        let said = Hello { disk: DiskId::new(9), purpose: Purpose::ClockReadings, ..said };
        let number = |last: u8| [last, 0, 0, 0, 0, 0, 0, 0];
        let numbers = [number(7), number(1), number(2), number(9)].concat();
        let mut expected = [&b"TOLLGATE\x04\x00"[..], &numbers, &[1, 1, 2, 3, 4, 5, 6, 7, 8], &[1]].concat();
        assert_eq!(said.encode(), expected);
        assert_eq!(Hello::decode(&expected), Ok(said));
        // This version may be used for frames as well, once no node is left that knows only the former.
        expected[BYTES] = 0;
        assert_eq!(Hello::decode(&expected), Ok(Hello { purpose: Purpose::Frames, ..said }));
        expected[BYTES] = 2;
        assert_eq!(Hello::decode(&expected), Err(Refusal::OtherVersion));
    }

    #[tokio::test]
    async fn a_hello_is_heard_as_it_was_said_whatever_it_is_for() {
        for purpose in [Purpose::Frames, Purpose::ClockReadings] {
            let said = Hello { purpose, ..knowing(3, hello(7, 1, 2)) };
            let (mut near, mut far) = tokio::io::duplex(100);
            // Bytes after the hello are left to later reads.
            near.write_all(&[&said.encode()[..], &[99]].concat()).await.unwrap();
            assert_eq!(hear(&mut far).await.unwrap(), Ok(said));
            assert_eq!(far.read_u8().await.unwrap(), 99);
        }
    }

    #[test]
    fn what_no_node_says_is_refused() {
        let good = knowing(5, hello(7, 1, 2)).encode();
        let with = |changes: &[(usize, u8)]| {
            let mut bytes = good.clone();
            for (at, byte) in changes {
                bytes[*at] = *byte;
            }
            Hello::decode(&bytes)
        };
        assert!(with(&[]).is_ok() && with(&[(KNOWN, 0), (KNOWN + 1, 0)]).is_ok());
        // Neither known nor unknown; unknown, but with a disk; node ids of 0.
        for changes in [&[(KNOWN, 2)][..], &[(KNOWN, 0)], &[(18, 0)], &[(26, 0)], &[(0, b't')]] {
            assert_eq!(with(changes), Err(Refusal::NotAPeer), "{changes:?}");
        }
        for at in 8..10 {
            assert_eq!(with(&[(at, 9)]), Err(Refusal::OtherVersion));
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_cut_off_is_none() {
        for length in 0..9 {
            let (mut near, mut far) = tokio::io::duplex(100);
            far.write_all(&[0; 9][..length]).await.unwrap();
            drop(far);
            assert!(greet(&mut near, hello(7, 1, 2)).await.is_err(), "{length} bytes");
        }
    }

    #[tokio::test]
    async fn garbage_and_other_versions_are_refused() {
        let mut older = hello(7, 1, 2).encode();
        older[8] = 2;
        // Regardless of their length: only the opening is waited for.
        for length in [OPENING, KNOWN, BYTES] {
            for (said, refusal) in [(&vec![b'x'; BYTES], Refusal::NotAPeer), (&older, Refusal::OtherVersion)]
            {
                let (mut near, mut far) = tokio::io::duplex(100);
                near.write_all(&said[..length]).await.unwrap();
                assert_eq!(hear(&mut far).await.unwrap(), Err(refusal));
            }
        }
    }
}
