//! Keeps a gateway informed of the cluster, because a gateway has no local node to ask.
//!
//! The discovery polls one node after another for groups and members: the configured nodes, and those that they named.
//! The leader is therefore found if any node knows it, a node that lost touch with the others is noticed, and no node
//! is polled more than its share. A router that found no leader, or whose stream broke, triggers a poll at once.
//! Invariant: published information only gets newer, by Raft's terms and the map's epoch; and it is about one cluster,
//! the configured one or else the first that was seen. Not here: merging an answer into what is known (`cluster_view`),
//! the users of the information (`router`, `relay`).

mod cluster_view;

use crate::routing_table::RoutingTable;
use cluster_view::{ClusterView, Told};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tollgate_node::NodeStatus;
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::{Consistency, GroupsRequest, MembersRequest};
use tollgate_types::ClusterId;
use tonic::transport::{Channel, Endpoint};

/// Time between two polls while every group has a leader that is named by a node that answers.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Time between two polls while a group has no such leader; longer the more nodes in a row do not answer.
const LOOK_SOON: Duration = Duration::from_millis(50);

/// Minimum time between two polls, however many are requested: doubles from `PAUSE_MIN` to `PAUSE_MAX` while requested
/// polls bring nothing new.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Maximum time for a node to answer: a slower node counts as gone, and the next one is polled.
const LOOK_PATIENCE: Duration = Duration::from_millis(500);

/// Number of polls after which members are asked for, because members change rarely. They are also asked for until a
/// node has named them, and when one is missing.
const MEMBERS_EVERY: u32 = 10;

/// Maximum length of a node's answer.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Polls a cluster until it is dropped.
#[derive(Debug)]
pub struct Discovery {
    status: Arc<watch::Sender<NodeStatus>>,
    routing_table: watch::Receiver<Arc<RoutingTable>>,
    hurry: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Discovery {
    /// Starts polling these nodes, given as `host:port`. `cluster` is the cluster that they must belong to; without it,
    /// the first one seen counts.
    ///
    /// Must be called on a runtime.
    pub fn start(nodes: Vec<String>, cluster: Option<ClusterId>) -> Discovery {
        let status = Arc::new(watch::Sender::new(NodeStatus::default()));
        let (publish, routing_table) = watch::channel(Arc::new(RoutingTable::blank()));
        let hurry = Arc::new(Notify::new());
        let looking = Looking {
            cluster_view: ClusterView::new(nodes, cluster),
            status: Arc::clone(&status),
            routing_table: publish,
            hurry: Arc::clone(&hurry),
            channels: BTreeMap::new(),
            looks: 0,
            members_due: true,
            in_sight: None,
        };
        Discovery { status, routing_table, hurry, task: tokio::spawn(looking.run()) }
    }

    /// Marks the gateway as stopping, for all readers of the status.
    pub fn say_stopping(&self) {
        self.status.send_modify(|status| status.stopping = true);
    }

    pub(crate) fn status(&self) -> watch::Receiver<NodeStatus> {
        self.status.subscribe()
    }

    pub(crate) fn routing_table(&self) -> watch::Receiver<Arc<RoutingTable>> {
        self.routing_table.clone()
    }

    /// Returns the handle that triggers a poll at once.
    pub(crate) fn hurry(&self) -> Arc<Notify> {
        Arc::clone(&self.hurry)
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The task behind a discovery.
struct Looking {
    cluster_view: ClusterView,
    status: Arc<watch::Sender<NodeStatus>>,
    routing_table: watch::Sender<Arc<RoutingTable>>,
    hurry: Arc<Notify>,
    channels: BTreeMap<String, Channel>,
    looks: u32,
    /// True if no node has named the members since they were due.
    members_due: bool,
    /// True if the log says that every group has a leader, false if it says that one has none; none before either was
    /// logged.
    in_sight: Option<bool>,
}

impl Looking {
    async fn run(mut self) {
        let began = tokio::time::Instant::now();
        let mut pause = PAUSE_MIN;
        loop {
            let address = self.cluster_view.next_address();
            match tokio::time::timeout(LOOK_PATIENCE, self.ask(&address)).await {
                Ok(Ok(told)) => {
                    self.members_due &= !self.cluster_view.answered(&address, &told, began.elapsed());
                }
                Ok(Err(why)) => self.missed(&address, why),
                Err(_) => self.missed(&address, format!("no answer within {} ms", LOOK_PATIENCE.as_millis())),
            }
            let (news, next_in) = (self.publish(), self.next_in());
            let least = pause.min(next_in);
            tokio::time::sleep(least).await;
            let hurried = tokio::select! {
                () = tokio::time::sleep(next_in.saturating_sub(least)) => false,
                () = self.hurry.notified() => true,
            };
            pause = pause_after(pause, hurried && !news);
        }
    }

    fn next_in(&self) -> Duration {
        if self.cluster_view.is_settled() {
            return LOOK_EVERY;
        }
        (LOOK_SOON * (self.cluster_view.silent() + 1)).min(LOOK_EVERY)
    }

    fn missed(&mut self, address: &str, why: String) {
        // The next poll opens a new connection.
        self.channels.remove(address);
        self.cluster_view.missed(address, why);
    }

    async fn ask(&mut self, address: &str) -> Result<Told, String> {
        self.looks = self.looks.wrapping_add(1);
        let mut admin =
            AdminServiceClient::new(self.channel(address)?).max_decoding_message_size(ANSWER_BYTES_MAX);
        let consistency = Consistency::Stale.into();
        let why = |status: tonic::Status| status.message().to_owned();
        let request = GroupsRequest { consistency, ..Default::default() };
        let groups = admin.groups(request).await.map_err(why)?.into_inner();
        self.members_due |= self.looks.is_multiple_of(MEMBERS_EVERY);
        let members = if self.members_due || self.cluster_view.misses_members(&groups) {
            Some(admin.members(MembersRequest { consistency }).await.map_err(why)?.into_inner())
        } else {
            None
        };
        Ok(Told { groups, members })
    }

    fn channel(&mut self, address: &str) -> Result<Channel, String> {
        if let Some(channel) = self.channels.get(address) {
            return Ok(channel.clone());
        }
        let endpoint =
            Endpoint::from_shared(format!("http://{address}")).map_err(|error| error.to_string())?;
        let channel = endpoint.connect_timeout(LOOK_PATIENCE).tcp_nodelay(true).connect_lazy();
        // Nodes that are no longer members need no connection.
        let known = self.cluster_view.addresses();
        self.channels.retain(|kept, _| known.contains(kept));
        self.channels.insert(address.to_owned(), channel.clone());
        Ok(channel)
    }

    /// Publishes what is known; returns true if anything was new, apart from nodes' troubles.
    fn publish(&mut self) -> bool {
        // Published before the leaders: code that waits for a leader then finds it by the map, and at its address.
        let routing_table = self.cluster_view.routing_table();
        let of_nodes = !self.routing_table.borrow().tells_as_much_as(&routing_table);
        self.routing_table.send_if_modified(|known| {
            let news = **known != routing_table;
            if news {
                *known = Arc::new(routing_table);
            }
            news
        });
        let groups = self.cluster_view.groups();
        let of_groups = self.status.send_if_modified(|status| {
            let news = status.groups != *groups;
            if news {
                status.groups.clone_from(groups);
            }
            news
        });
        self.tell();
        of_nodes || of_groups
    }

    /// Logs once that the cluster is in sight, and once that it no longer is.
    fn tell(&mut self) {
        let whole = self.cluster_view.is_whole();
        let routing_table = self.routing_table.borrow();
        match (whole, self.in_sight) {
            (true, None | Some(false)) => {
                let (cluster, nodes) = (routing_table.cluster, routing_table.clients.len());
                tracing::info!(%cluster, nodes, groups = self.cluster_view.groups().len(), "the cluster is in sight");
                self.in_sight = Some(true);
            }
            (false, Some(true)) => {
                tracing::warn!(nodes = routing_table.troubles, "a group has no leader that a node knows of");
                self.in_sight = Some(false);
            }
            (false, None) if self.cluster_view.is_silent() => {
                tracing::warn!(nodes = routing_table.troubles, "no node of the cluster can be asked yet");
                self.in_sight = Some(false);
            }
            _ => {}
        }
    }
}

/// Returns the minimum time from the next poll to the one after it. `in_vain`: the next poll was requested, and the
/// last one brought nothing new.
fn pause_after(pause: Duration, in_vain: bool) -> Duration {
    if in_vain { (pause * 2).min(PAUSE_MAX) } else { PAUSE_MIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_bring_nothing_new_are_farther_and_farther_apart_however_many_ask() {
        let mut pause = PAUSE_MIN;
        let mut asked_for = Duration::ZERO;
        for _ in 0..10 {
            pause = pause_after(pause, true);
            asked_for += pause;
        }
        assert_eq!((pause, asked_for), (PAUSE_MAX, Duration::from_millis(20 + 40 + 80 + 160 + 6 * 200)));
        assert_eq!(pause_after(pause, false), PAUSE_MIN);
    }
}
