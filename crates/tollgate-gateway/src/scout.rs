//! Keeps a gateway informed of the cluster, which has no node beside it to ask.
//!
//! One node after another is asked for groups and members: the ones that people named, and those that they told of. So
//! who leads is known wherever it is known, a node that lost touch with the others is noticed, and none is asked more
//! than its share. A router that found no leader, or whose stream broke, makes it look at once. Invariant: what is
//! published only gets newer, by Raft's terms and the map's epoch; and it is of one cluster, the one that was named or
//! else the first that was seen. Not here: what an answer adds to what is known (`picture`), who uses it (`router`,
//! `relay`).

mod picture;

use crate::chart::Chart;
use picture::{Picture, Told};
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

/// Between two looks while every group has a leader that a node names which is there.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Likewise, while one has none; longer the more nodes are silent one after another.
const LOOK_SOON: Duration = Duration::from_millis(50);

/// The least time between two looks, however many ask for one: doubles from the first to the second while looks that
/// were asked for bring nothing new.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// How long a node may take to answer: longer ones are as good as gone, and the next is asked.
const LOOK_PATIENCE: Duration = Duration::from_millis(500);

/// Members change seldom: they are asked for after every so many looks, until a node has told of them, and when one is
/// missing.
const MEMBERS_EVERY: u32 = 10;

/// The longest answer of a node.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Looks at a cluster as long as it lives.
#[derive(Debug)]
pub struct Scout {
    status: Arc<watch::Sender<NodeStatus>>,
    chart: watch::Receiver<Arc<Chart>>,
    hurry: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Scout {
    /// Starts looking at these nodes, as `host:port`. `cluster`: the one that they must be of; else the first one seen
    /// counts.
    ///
    /// Must be called on a runtime.
    pub fn start(nodes: Vec<String>, cluster: Option<ClusterId>) -> Scout {
        let status = Arc::new(watch::Sender::new(NodeStatus::default()));
        let (publish, chart) = watch::channel(Arc::new(Chart::blank()));
        let hurry = Arc::new(Notify::new());
        let looking = Looking {
            picture: Picture::new(nodes, cluster),
            status: Arc::clone(&status),
            chart: publish,
            hurry: Arc::clone(&hurry),
            channels: BTreeMap::new(),
            looks: 0,
            members_due: true,
            in_sight: None,
        };
        Scout { status, chart, hurry, task: tokio::spawn(looking.run()) }
    }

    /// Says to all who look at the status that the gateway is stopping.
    pub fn say_stopping(&self) {
        self.status.send_modify(|status| status.stopping = true);
    }

    pub(crate) fn status(&self) -> watch::Receiver<NodeStatus> {
        self.status.subscribe()
    }

    pub(crate) fn chart(&self) -> watch::Receiver<Arc<Chart>> {
        self.chart.clone()
    }

    /// Told to look at once.
    pub(crate) fn hurry(&self) -> Arc<Notify> {
        Arc::clone(&self.hurry)
    }
}

impl Drop for Scout {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The task behind a scout.
struct Looking {
    picture: Picture,
    status: Arc<watch::Sender<NodeStatus>>,
    chart: watch::Sender<Arc<Chart>>,
    hurry: Arc<Notify>,
    channels: BTreeMap<String, Channel>,
    looks: u32,
    /// Whether nobody has told of the members since it was time to ask.
    members_due: bool,
    /// Whether the log was told that every group has a leader, or that one has none.
    in_sight: Option<bool>,
}

impl Looking {
    async fn run(mut self) {
        let began = tokio::time::Instant::now();
        let mut pause = PAUSE_MIN;
        loop {
            let address = self.picture.next_address();
            match tokio::time::timeout(LOOK_PATIENCE, self.ask(&address)).await {
                Ok(Ok(told)) => {
                    self.members_due &= !self.picture.answered(&address, &told, began.elapsed());
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
        if self.picture.is_settled() {
            return LOOK_EVERY;
        }
        (LOOK_SOON * (self.picture.silent() + 1)).min(LOOK_EVERY)
    }

    fn missed(&mut self, address: &str, why: String) {
        // The next look dials anew.
        self.channels.remove(address);
        self.picture.missed(address, why);
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
        let members = if self.members_due || self.picture.misses_members(&groups) {
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
        // Nodes that are no members any more need no connection.
        let known = self.picture.addresses();
        self.channels.retain(|kept, _| known.contains(kept));
        self.channels.insert(address.to_owned(), channel.clone());
        Ok(channel)
    }

    /// Whether there was anything new, other than nodes' troubles.
    fn publish(&mut self) -> bool {
        // Before the leaders: whoever waits for one finds it by the map, and at its address.
        let chart = self.picture.chart();
        let of_nodes = !self.chart.borrow().tells_as_much_as(&chart);
        self.chart.send_if_modified(|known| {
            let news = **known != chart;
            if news {
                *known = Arc::new(chart);
            }
            news
        });
        let groups = self.picture.groups();
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

    /// Says once that the cluster is in sight, and once that it no longer is.
    fn tell(&mut self) {
        let whole = self.picture.is_whole();
        let chart = self.chart.borrow();
        match (whole, self.in_sight) {
            (true, None | Some(false)) => {
                let (cluster, nodes) = (chart.cluster, chart.clients.len());
                tracing::info!(%cluster, nodes, groups = self.picture.groups().len(), "the cluster is in sight");
                self.in_sight = Some(true);
            }
            (false, Some(true)) => {
                tracing::warn!(nodes = chart.troubles, "a group has no leader that a node knows of");
                self.in_sight = Some(false);
            }
            (false, None) if self.picture.is_silent() => {
                tracing::warn!(nodes = chart.troubles, "no node of the cluster can be asked yet");
                self.in_sight = Some(false);
            }
            _ => {}
        }
    }
}

/// The least time to the look after the next. `in_vain`: it was asked for, and the last one brought nothing new.
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
