//! The members of a cluster and their addresses.
//!
//! An endpoint is an address that others dial, so it may be a host name; a node listens on an address of its own
//! machine (`Kind::Address`). Not here: rules between the members (`rules`).

use super::keys::NODE_ID_MAX;
use super::kind::{Kind, Value, with_article};
use super::problem::Wrong;
use super::spelling::nearest;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;
use std::str::FromStr;
use tollgate_replica::NodeAddresses;
use tollgate_types::{HostPort, NodeId, Zone};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A member of the cluster, as the configuration describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Node id.
    pub id: NodeId,
    /// Address for other nodes.
    pub peer: Endpoint,
    /// Address for clients.
    pub client: Endpoint,
    /// True if the member votes without keeping locks.
    pub witness: bool,
    /// Zone label; empty if none was given.
    pub zone: String,
}

/// A host name or IP address, with a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// A name in lower case, or an IP address; IPv6 without brackets.
    pub host: String,
    /// Port, never 0.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Endpoint { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Member { id, peer, client, witness, zone } = self;
        write!(f, "{{ id = {id}, peer = \"{peer}\", client = \"{client}\"")?;
        if *witness {
            write!(f, ", witness = true")?;
        }
        if !zone.is_empty() {
            write!(f, ", zone = {zone:?}")?;
        }
        write!(f, " }}")
    }
}

const HOST_BYTES_MAX: usize = 253;

impl Endpoint {
    /// Parses `host:port`, `address:port` or `[address]:port`.
    pub(crate) fn parse(text: &str) -> Result<Endpoint, Wrong> {
        let wrong = |why: &str| {
            let advice = "give a host and a port that the other nodes can reach, such as 10.0.0.1:7401";
            Wrong::new(format!("is {text:?}: {why}"), advice)
        };
        let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong("it has no port"))?;
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = u16::from_str(port).ok().filter(|port| digits && *port > 0);
        let port = port.ok_or_else(|| wrong("its port is not a number from 1 to 65535"))?;
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if bracketed.is_none() && host.contains(':') {
            return Err(wrong("an IPv6 address goes in brackets"));
        }
        let host = match bracketed {
            Some(inside) => Ipv6Addr::from_str(inside)
                .map_err(|_| wrong("what is in brackets is no IPv6 address"))?
                .to_string(),
            None => host.to_ascii_lowercase(),
        };
        match IpAddr::from_str(&host) {
            Ok(address) if address.is_unspecified() => {
                Err(wrong("nobody can dial the address of everywhere"))
            }
            Ok(_) => Ok(Endpoint { host, port }),
            Err(_) if is_host_name(&host) => Ok(Endpoint { host, port }),
            Err(_) => Err(wrong("its host is neither a name nor an IP address")),
        }
    }
}

/// Accepts underscores as well: they violate the letter of DNS, but are common in container networks.
fn is_host_name(host: &str) -> bool {
    let is_label = |label: &str| {
        let plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        !label.is_empty() && plain && !label.starts_with('-') && !label.ends_with('-')
    };
    let numeric = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    host.len() <= HOST_BYTES_MAX
        && !numeric
        && host.strip_suffix('.').unwrap_or(host).split('.').all(is_label)
}

/// Syntax of members, as advice in error messages.
pub(crate) const FORM: &str = "write [{ id = 1, peer = \"10.0.0.1:7401\", client = \"10.0.0.1:7400\" }, ...]; \
                               witness = true for a witness, zone = \"...\" if there are several";

const FIELDS: [&str; 5] = ["id", "peer", "client", "witness", "zone"];

/// Results of reading members: source positions and mistakes.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Source positions by path, such as `cluster.members[0].peer`.
    pub(crate) spans: BTreeMap<String, Range<usize>>,
    pub(crate) wrongs: Vec<(String, Range<usize>, Wrong)>,
}

/// Reads the list of members. Any mistake is recorded in `reading`, and there is no list then.
pub(crate) fn read_members(
    path: &str,
    value: &Spanned<DeValue<'_>>,
    reading: &mut Reading,
) -> Option<Vec<Member>> {
    let DeValue::Array(items) = value.get_ref() else {
        reading.wrong(path, value.span(), Kind::Members.wrong_type(value.get_ref()));
        return None;
    };
    let mut members = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let path = format!("{path}[{index}]");
        reading.spans.insert(path.clone(), item.span());
        match item.get_ref() {
            DeValue::Table(fields) => members.extend(read_member(&path, &item.span(), fields, reading)),
            other => {
                let what = format!("must be a table, and is {}", with_article(other.type_str()));
                reading.wrong(&path, item.span(), Wrong::new(what, FORM));
            }
        }
    }
    reading.wrongs.is_empty().then_some(members)
}

fn read_member(
    path: &str,
    span: &Range<usize>,
    fields: &DeTable<'_>,
    reading: &mut Reading,
) -> Option<Member> {
    for (name, _) in fields {
        let known: &str = name.get_ref();
        if !FIELDS.contains(&known) {
            let advice = match nearest(known, FIELDS) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("a member has {}", FIELDS.join(", ")),
            };
            reading.wrong(&format!("{path}.{known}"), name.span(), Wrong::new("is no key", advice));
        }
    }
    let mut field = |name: &str, kind: Kind| {
        let path = format!("{path}.{name}");
        let Some(value) = fields.get(name) else {
            reading.wrong(&path, span.clone(), Wrong::new("is missing", FORM));
            return None;
        };
        reading.spans.insert(path.clone(), value.span());
        let read = kind.read_toml(value.get_ref());
        read.map_err(|wrong| reading.wrong(&path, value.span(), wrong)).ok()
    };
    let id = field("id", Kind::Number { min: 1, max: NODE_ID_MAX });
    let (peer, client) = (field("peer", Kind::Name), field("client", Kind::Name));
    let witness =
        if fields.contains_key("witness") { field("witness", Kind::Bool) } else { Some(Value::Bool(false)) };
    let zone = if fields.contains_key("zone") {
        field("zone", Kind::Zone)
    } else {
        Some(Value::Text(String::new()))
    };
    let mut endpoint = |name: &str, value: Option<Value>| {
        let Some(Value::Text(text)) = value else { return None };
        let path = format!("{path}.{name}");
        let span = reading.spans.get(&path).cloned().unwrap_or_default();
        Endpoint::parse(&text).map_err(|wrong| reading.wrong(&path, span, wrong)).ok()
    };
    let (peer, client) = (endpoint("peer", peer), endpoint("client", client));
    match (id, peer, client, witness, zone) {
        (
            Some(Value::Number(id)),
            Some(peer),
            Some(client),
            Some(Value::Bool(witness)),
            Some(Value::Text(zone)),
        ) => Some(Member { id: NodeId::new(id)?, peer, client, witness, zone }),
        _ => None,
    }
}

impl Member {
    /// Converts the addresses and the zone to the form that members of a group have.
    pub(crate) fn node_addresses(&self) -> NodeAddresses {
        NodeAddresses {
            peer: self.peer.host_port(),
            client: self.client.host_port(),
            zone: Zone::new(&self.zone).expect("its kind was checked"),
        }
    }
}

impl Endpoint {
    /// Converts the endpoint to the form that members of a group have.
    pub(crate) fn host_port(&self) -> HostPort {
        HostPort::new(self.to_string()).expect("a host has a bound, and its port is a number")
    }
}

impl Reading {
    fn wrong(&mut self, path: &str, span: Range<usize>, wrong: Wrong) {
        self.wrongs.push((path.to_owned(), span, wrong));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_names_or_addresses_with_a_port() {
        for text in ["localhost:1", "10.0.0.1:7401", "[::1]:7401", "node_1.rack-2.example.com:65535"] {
            assert_eq!(Endpoint::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Endpoint::parse("Node-1:7401").unwrap().host, "node-1");
    }

    #[test]
    fn endpoints_that_nobody_can_dial_are_refused() {
        let bad = [
            "",
            ":",
            ":7401",
            "host",
            "host:",
            "host:0",
            "host:65536",
            "host:+1",
            "0.0.0.0:7401",
            "[::]:7401",
            "::1:7401",
            "[host]:7401",
            "a b:7401",
            "-a:7401",
            "a..b:7401",
            "1.2.3:7401",
            "http://host:7401",
        ];
        for text in bad {
            assert!(Endpoint::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn everything_wrong_with_a_list_is_found_at_once() {
        let text = "m = [{ id = 0, peer = \"a:1\", client = \"b\" }, 7, { pear = \"a:1\", witness = 1 }]";
        let table = DeTable::parse(text).unwrap();
        let mut reading = Reading::default();
        assert_eq!(read_members("m", &table.get_ref()["m"], &mut reading), None);
        let wrongs: Vec<_> =
            reading.wrongs.iter().map(|(path, span, _)| (path.as_str(), &text[span.clone()])).collect();
        let third = "{ pear = \"a:1\", witness = 1 }";
        let expected = [
            ("m[0].id", "0"),
            ("m[0].client", "\"b\""),
            ("m[1]", "7"),
            ("m[2].pear", "pear"),
            ("m[2].id", third),
            ("m[2].peer", third),
            ("m[2].client", third),
            ("m[2].witness", "1"),
        ];
        assert_eq!(wrongs, expected);
    }
}
