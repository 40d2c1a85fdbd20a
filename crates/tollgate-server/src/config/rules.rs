//! The rules between several settings. Each rule has one message; all broken rules are found.
//!
//! Not here: ranges and forms of single values (`kind`).

use super::member::{Endpoint, Member};
use super::{Config, cluster_id_of, keys::KEYS};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use tollgate_node::planted::{Bug, planted};
use tollgate_replica::MEMBERS_MAX;

/// A rule that a configuration breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} {rule}", about.join(", "))]
pub struct BrokenRule {
    /// Settings that break the rule, as `section.key` or `section.key[0].field`; first the one to change first.
    pub about: Vec<String>,
    /// Description of the mistake, as the rest of a sentence that begins with the first setting.
    pub rule: String,
    /// Next step for the operator. May be empty.
    pub advice: String,
}

pub(super) type Broken = Vec<BrokenRule>;

/// Default number of admitted operations where nothing requires fewer.
pub(super) const OPERATIONS_ADMITTED: u64 = 50_000;

/// Returns the default of `server.operations_admitted_max` for a given `server.operations_in_flight_max`: as many as
/// the rule between the two allows, so that an operator who lowers one is not told about another that he never set.
pub(super) fn operations_admitted(operations_in_flight_max: u64) -> u64 {
    // This number and a quarter more are at most `operations_in_flight_max - 1`, as the rule demands.
    let fit = operations_in_flight_max.saturating_sub(1).saturating_mul(4) / 5;
    fit.min(OPERATIONS_ADMITTED)
}

impl Config {
    /// Checks all rules; the error lists every broken one.
    pub fn validate(&self) -> Result<(), Vec<BrokenRule>> {
        let mut broken = Vec::new();
        self.check_bootstrap(&mut broken);
        self.check_members(&mut broken);
        self.check_listen(&mut broken);
        self.check_raft(&mut broken);
        self.check_storage(&mut broken);
        self.check_server(&mut broken);
        self.check_limits(&mut broken);
        if broken.is_empty() { Ok(()) } else { Err(broken) }
    }

    fn check_bootstrap(&self, broken: &mut Broken) {
        let cluster = &self.cluster;
        if !cluster.bootstrap {
            return;
        }
        if !cluster.join.is_empty() {
            let rule =
                "is set, and so is cluster.bootstrap: a node founds a new cluster or joins one that runs";
            broke(broken, &["cluster.join", "cluster.bootstrap"], rule, "leave one of the two out");
        }
        // The initial states of a restored cluster are in its backup. A node bootstrapped with empty states would pass
        // for one of its members.
        let (given, by_name) = (cluster.id, cluster_id_of(&cluster.name));
        if given != by_name && !planted(Bug::RestoredFounded) {
            let rule = format!(
                "is set, and cluster.id is {given}, where {by_name} follows from the name: this is the id of a \
                 restored cluster, which is not founded"
            );
            let advice = "make this node with `tollgate snapshot restore` and start it without bootstrap, or add it \
                          with `tollgate member add`; to found a new cluster, leave cluster.id out";
            broke(broken, &["cluster.bootstrap", "cluster.id"], rule, advice);
        }
    }

    fn check_members(&self, broken: &mut Broken) {
        let (members, joins) = (&self.cluster.members, !self.cluster.join.is_empty());
        if members.is_empty() {
            if !joins {
                let advice = "name the first members, this node among them; or set cluster.join to the client \
                              addresses of a cluster that runs";
                broke(broken, &["cluster.members"], "is empty", advice);
            }
            return;
        }
        if members.len() > MEMBERS_MAX {
            let rule = format!("has {} members: a cluster has at most {MEMBERS_MAX}", members.len());
            broke(broken, &["cluster.members"], rule, "three, five or seven is what most need");
        }
        if !joins && members.iter().all(|member| member.witness) {
            let rule = "has witnesses only: somebody must keep the locks";
            broke(broken, &["cluster.members"], rule, "make at least two members full ones");
        }
        if !joins && !members.iter().any(|member| member.id == self.node.id) {
            let ids: Vec<String> = members.iter().map(|member| member.id.to_string()).collect();
            let rule = format!("is {}, and cluster.members has {}", self.node.id, ids.join(", "));
            let advice = "set node.id to this node's number among the members, or add it there on every node of a new \
                          cluster; to join a cluster that runs, set cluster.join";
            broke(broken, &["node.id", "cluster.members"], rule, advice);
        }
        check_ids(members, broken);
        check_endpoints(members, broken);
    }

    fn check_listen(&self, broken: &mut Broken) {
        let listen = &self.listen;
        let all =
            [("listen.client", listen.client), ("listen.peer", listen.peer), ("listen.http", listen.http)];
        check_addresses(&all, listen.insecure, broken);
    }

    fn check_raft(&self, broken: &mut Broken) {
        let raft = &self.raft;
        let before = broken.len();
        if raft.election_timeout_ms < raft.heartbeat_ms.saturating_mul(3) {
            let rule = "must be at least 3 times raft.heartbeat_ms, or one lost heartbeat unseats a leader";
            broke(broken, &["raft.election_timeout_ms", "raft.heartbeat_ms"], rule, "");
        }
        if raft.tick_ms > raft.log_time_step_max_ms {
            let rule = "must be at most raft.log_time_step_max_ms, or log time can't keep up";
            broke(broken, &["raft.tick_ms", "raft.log_time_step_max_ms"], rule, "");
        }
        if raft.uncommitted_bytes_max < raft.message_bytes_max {
            let rule = "must be at least raft.message_bytes_max, or a message can never be filled";
            broke(broken, &["raft.uncommitted_bytes_max", "raft.message_bytes_max"], rule, "");
        }
        if raft.read_retry_ms > raft.read_timeout_ms {
            let rule = "must be at most raft.read_timeout_ms, or no read is ever asked again";
            broke(broken, &["raft.read_retry_ms", "raft.read_timeout_ms"], rule, "");
        }
        // The host has the last word, also on rules that are added there later.
        if let (true, Err(invalid)) = (broken.len() == before, raft.validate()) {
            broke(broken, &keys_named("raft", &invalid.to_string()), format!("is refused: {invalid}"), "");
        }
    }

    fn check_storage(&self, broken: &mut Broken) {
        if self.storage.log_purge_bytes < self.storage.log_file_bytes {
            let rule = "must be at least storage.log_file_bytes, or no file is ever used anew";
            broke(broken, &["storage.log_purge_bytes", "storage.log_file_bytes"], rule, "");
        }
    }

    fn check_server(&self, broken: &mut Broken) {
        let admitted = self.server.operations_admitted_max;
        if admitted.saturating_add(admitted.div_ceil(4)) >= self.server.operations_in_flight_max {
            let rule = "and a quarter more must be less than server.operations_in_flight_max, or the driver has no \
                        room for keepalives and releases before requests for locks are refused";
            let keys = ["server.operations_admitted_max", "server.operations_in_flight_max"];
            broke(broken, &keys, rule, "lower the first or raise the second");
        }
    }

    fn check_limits(&self, broken: &mut Broken) {
        let limits = &self.limits;
        if limits.ttl_ms_min > limits.ttl_ms_max {
            let rule = "must be at most limits.ttl_ms_max, or no lease can be granted";
            broke(broken, &["limits.ttl_ms_min", "limits.ttl_ms_max"], rule, "");
        } else if let Err(invalid) = limits.validate() {
            broke(broken, &keys_named("limits", &invalid.to_string()), format!("is refused: {invalid}"), "");
        }
    }
}

/// Checks that the server listens on loopback only unless `insecure` is set, as there is no TLS (P17), and on each
/// address once.
pub(super) fn check_addresses(all: &[(&str, SocketAddr)], insecure: bool, broken: &mut Broken) {
    for (key, address) in all {
        let unchecked = insecure || planted(Bug::ListensEverywhere);
        if !unchecked && !address.ip().is_loopback() {
            let rule = format!("is {address}: without TLS, which is not there yet, only loopback is allowed");
            let advice = "listen on 127.0.0.1, or set listen.insecure = true if nobody you don't trust reaches this \
                          network";
            broke(broken, &[*key, "listen.insecure"], rule, advice);
        }
    }
    for (index, (key, address)) in all.iter().enumerate() {
        for (earlier, other) in &all[..index] {
            if collide(*address, *other) {
                let rule = format!("is {address}, which {earlier} ({other}) has already");
                broke(broken, &[*key, *earlier], rule, "give each its own port");
            }
        }
    }
}

pub(super) fn broke(broken: &mut Broken, about: &[impl ToString], rule: impl Into<String>, advice: &str) {
    let about = about.iter().map(ToString::to_string).collect();
    broken.push(BrokenRule { about, rule: rule.into(), advice: advice.to_owned() });
}

fn check_ids(members: &[Member], broken: &mut Broken) {
    for (index, member) in members.iter().enumerate() {
        if members[..index].iter().any(|earlier| earlier.id == member.id) {
            let rule = format!("is {}, which an earlier member has already", member.id);
            broke(
                broken,
                &[format!("cluster.members[{index}].id")],
                rule,
                "give each member a number of its own",
            );
        }
    }
}

fn check_endpoints(members: &[Member], broken: &mut Broken) {
    let mut seen: BTreeMap<&Endpoint, String> = BTreeMap::new();
    for (index, member) in members.iter().enumerate() {
        for (field, endpoint) in [("peer", &member.peer), ("client", &member.client)] {
            let path = format!("cluster.members[{index}].{field}");
            if let Some(earlier) = seen.get(endpoint) {
                let rule = format!("is {endpoint}, which {earlier} has already");
                broke(broken, &[&path], rule, "give each its own host or port");
            } else {
                seen.insert(endpoint, path);
            }
        }
    }
}

/// True if two sockets can't listen at once. Port 0 means any free port, so it never collides.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let everywhere = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && (everywhere || one.ip() == other.ip())
}

/// Returns the keys of a section that are named in a message of another crate.
fn keys_named(section: &str, message: &str) -> Vec<String> {
    let words = message.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
    let keys = words.filter_map(|word| KEYS.iter().find(|key| key.section == section && key.name == word));
    keys.map(super::keys::Key::path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_collide_on_one_port_of_one_address_or_of_everywhere() {
        let collides = |one: &str, other: &str| collide(one.parse().unwrap(), other.parse().unwrap());
        assert!(collides("127.0.0.1:1", "127.0.0.1:1"));
        assert!(collides("127.0.0.1:1", "0.0.0.0:1"));
        assert!(!collides("127.0.0.1:1", "127.0.0.1:2"));
        assert!(!collides("127.0.0.1:1", "127.0.0.2:1"));
        assert!(!collides("127.0.0.1:0", "127.0.0.1:0"));
    }

    #[test]
    fn as_many_operations_are_admitted_as_the_rule_allows_and_no_more_than_ever() {
        let allowed = |admitted: u64, in_flight: u64| admitted + admitted.div_ceil(4) < in_flight;
        for in_flight in (3..1_000).chain(62_000..66_000) {
            let admitted = operations_admitted(in_flight);
            assert!((1..=OPERATIONS_ADMITTED).contains(&admitted), "{in_flight}");
            assert!(allowed(admitted, in_flight), "{in_flight}");
            assert!(admitted == OPERATIONS_ADMITTED || !allowed(admitted + 1, in_flight), "{in_flight}");
        }
    }

    #[test]
    fn keys_are_found_in_another_crates_message() {
        let message = "tick_ms must be at most log_time_step_max_ms, or log time can't keep up";
        assert_eq!(keys_named("raft", message), ["raft.tick_ms", "raft.log_time_step_max_ms"]);
    }
}
