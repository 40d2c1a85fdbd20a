//! Programs that use the client as people do, while faults come; their requests, answers and beliefs are recorded.
//!
//! Beside them work the raw clients of `load`, on the same locks. Raw clients repeat every call until it is answered;
//! these programs leave that to the client, and following the cluster as well. Not here: the judgement
//! (`tollgate-check`), but for what the judge can't see: two holders that believe in one lock at the same moment
//! (`holdings`).

mod holdings;
mod keeper;
mod lapses;
mod over_groups;
mod probe;
mod worker;

pub(crate) use lapses::{PREFIX as LAPSE_PREFIX, TTL_MS as LAPSE_TTL_MS};

use super::access::Access;
use super::plan::Plan;
use crate::client::watches;
use crate::cluster::PATIENCE;
use crate::record::Recorder;
use crate::rng::Rng;
use crate::work::Ground;
use holdings::Holdings;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tollgate_check::{CallId, Event, Filter, Op, Outcome};
use tollgate_client::{Client, Revision};
use tollgate_types::{GroupId, Name};

/// Number of tasks that each session runs at once.
const WORKERS: u64 = 3;

/// First number of these clients' watches; watches of raw clients have lower numbers.
const WATCHES_FROM: u32 = 1_000;

/// State that all programs share.
pub(crate) struct Common {
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) ground: Ground,
    pub(crate) holdings: Holdings,
    calls: AtomicU64,
    leases: AtomicU64,
}

/// First number of these clients' calls and leases: far above those of others.
const NUMBERS_FROM: u64 = 1 << 40;

impl Common {
    /// Records that a call is made, in the name of a new caller. Returns the call and the caller.
    pub(crate) fn invoke(&self, group: GroupId, op: Op) -> (CallId, u32) {
        let client = self.recorder.next_caller();
        (self.invoke_by(client, group, op), client)
    }

    pub(crate) fn invoke_by(&self, client: u32, group: GroupId, op: Op) -> CallId {
        let call = self.next_call();
        self.recorder.record(Event::Invoke { call, client, group, op });
        call
    }

    pub(crate) fn next_call(&self) -> CallId {
        CallId(self.calls.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn answer(&self, call: CallId, outcome: Outcome) {
        self.recorder.record(Event::Return { call, outcome });
    }

    fn next_lease(&self) -> u64 {
        self.leases.fetch_add(1, Ordering::Relaxed)
    }
}

/// The running programs.
pub(crate) struct Clients {
    common: Arc<Common>,
    ending: watch::Sender<bool>,
    tasks: JoinSet<()>,
    watches: JoinSet<()>,
}

impl Clients {
    pub(crate) async fn start(
        plan: &Plan,
        access: &Access,
        recorder: &Arc<Recorder>,
        ground: &Ground,
    ) -> Clients {
        let common = Arc::new(Common {
            recorder: Arc::clone(recorder),
            ground: ground.clone(),
            holdings: Holdings::default(),
            calls: AtomicU64::new(NUMBERS_FROM),
            leases: AtomicU64::new(NUMBERS_FROM),
        });
        let ending = watch::Sender::new(false);
        let (mut tasks, mut watching) = (JoinSet::new(), JoinSet::new());
        let mut rng = Rng::new(plan.seed ^ 0x00c1_1e47);
        // Half of the programs know of nodes only.
        for doors in [&access.nodes, &access.gateways, &access.nodes, &access.both] {
            let client = Client::connect(doors.all()).await.unwrap();
            tasks.spawn(keeper::keep_working(
                client,
                Arc::clone(&common),
                Rng::new(rng.next()),
                ending.subscribe(),
            ));
        }
        let client = Client::connect(access.nodes.all()).await.unwrap();
        for group in recorder.groups() {
            tasks.spawn(probe::run(client.clone(), group, Arc::clone(&common), ending.subscribe()));
        }
        tasks.spawn(lapses::run(
            client.clone(),
            access.nodes.clone(),
            Arc::clone(&common),
            ending.subscribe(),
        ));
        let by_gateways = Client::connect(access.gateways.all()).await.unwrap();
        for ((number, tag), client) in (WATCHES_FROM..).zip(ground.tags.iter()).zip([client, by_gateways]) {
            watching.spawn(follow(client, number, format!("{{{tag}}}/"), Arc::clone(&common)));
        }
        Clients { common, ending, tasks, watches: watching }
    }

    /// Ends all programs. Returns problems that no history shows.
    pub(crate) async fn end(mut self) -> Vec<String> {
        self.ending.send_replace(true);
        let ended = async {
            while let Some(ended) = self.tasks.join_next().await {
                ended.unwrap();
            }
        };
        tokio::time::timeout(2 * PATIENCE, ended).await.expect("a program does not come to its end");
        // A watch that has ended by itself may have received a wrong event.
        while let Some(ended) = self.watches.try_join_next() {
            ended.unwrap();
        }
        self.watches.abort_all();
        self.common.holdings.overlaps()
    }
}

/// Follows the locks of a tag with a watch of the client, as long as their history exists.
async fn follow(client: Client, number: u32, prefix: String, common: Arc<Common>) {
    let group = common.recorder.group_of_name(&Name::new(&prefix).unwrap());
    let from = Revision::new(1).unwrap();
    let watch = client.watch().locks().prefix(prefix.clone()).from_revision(from).prev(true);
    let Ok(watch) = watch.open().await else { return };
    let filter = Filter::Prefix(prefix);
    common.recorder.record(Event::Watch { watch: number, group, from: Some(from), filter });
    watches::record(watch, number, Arc::clone(&common.recorder), watch::Sender::new(String::new())).await;
}
