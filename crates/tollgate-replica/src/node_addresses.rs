//! The addresses and the zone of a node, as its group knows them.
//!
//! Addresses and zone are part of the membership and not of the lock state, so that witnesses know them too. No
//! decision depends on them: replicas that were told different addresses of a node still agree on everything else, and
//! a node's own configuration of another node's addresses takes precedence.

use tollgate_core::{DecodeError, Reader, Writer};
use tollgate_types::{HostPort, Zone};

/// Addresses and zone of a node. Each part may be unknown, and is empty then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAddresses {
    /// Address at which other nodes dial the node.
    pub peer: HostPort,
    /// Address at which clients dial the node.
    pub client: HostPort,
    /// Zone of the node.
    pub zone: Zone,
}

impl NodeAddresses {
    /// Unknown addresses and zone.
    pub const UNKNOWN: NodeAddresses =
        NodeAddresses { peer: HostPort::NONE, client: HostPort::NONE, zone: Zone::NONE };

    /// The most bytes of an encoding, including the lengths before the parts.
    pub(crate) const BYTES_MAX: usize = 2 * (2 + HostPort::BYTES_MAX) + 2 + Zone::BYTES_MAX;

    pub(crate) fn encode(&self, writer: &mut Writer<'_>) {
        writer.bytes(self.peer.as_bytes());
        writer.bytes(self.client.as_bytes());
        writer.bytes(self.zone.as_bytes());
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<NodeAddresses, DecodeError> {
        let mut host_port = |what| {
            let at = reader.at();
            Reader::valid(at, HostPort::new(reader.bytes(what, HostPort::BYTES_MAX)?))
        };
        let (peer, client) = (host_port("peer address")?, host_port("client address")?);
        let at = reader.at();
        let zone = Reader::valid(at, Zone::new(reader.bytes("zone", Zone::BYTES_MAX)?))?;
        Ok(NodeAddresses { peer, client, zone })
    }
}

impl Default for NodeAddresses {
    fn default() -> NodeAddresses {
        NodeAddresses::UNKNOWN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longest() -> NodeAddresses {
        let address =
            |group_message: &str| HostPort::new(format!("{}:65535", group_message.repeat(253))).unwrap();
        NodeAddresses { peer: address("p"), client: address("c"), zone: Zone::new("z".repeat(64)).unwrap() }
    }

    #[test]
    fn what_is_encoded_is_decoded_and_has_a_bound() {
        for node_addresses in [NodeAddresses::UNKNOWN, longest()] {
            let mut bytes = Vec::new();
            node_addresses.encode(&mut Writer::new(&mut bytes));
            assert!(bytes.len() <= NodeAddresses::BYTES_MAX, "{}", bytes.len());
            let mut reader = Reader::new(&bytes);
            assert_eq!(NodeAddresses::decode(&mut reader), Ok(node_addresses));
            reader.finish().unwrap();
        }
    }

    #[test]
    fn what_is_too_long_or_no_address_is_refused() {
        for (peer, zone) in
            [("h".repeat(300), String::new()), ("host".into(), String::new()), ("h:1".into(), "z".repeat(65))]
        {
            let mut bytes = Vec::new();
            let mut writer = Writer::new(&mut bytes);
            writer.bytes(peer.as_bytes());
            writer.bytes(b"h:2");
            writer.bytes(zone.as_bytes());
            assert!(NodeAddresses::decode(&mut Reader::new(&bytes)).is_err(), "{peer:?} {zone:?}");
        }
    }
}
