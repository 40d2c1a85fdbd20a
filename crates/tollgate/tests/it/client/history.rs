//! The client under load while leaders, or gateways, are killed: no caller gets an error before its deadline, and all
//! answers together keep every promise.
//!
//! The leases of these clients live longer than the test, so that the judge excuses nothing with the end of a lease.

use crate::cluster::{Cluster, three, until};
use crate::connection::GROUP;
use crate::load::read_all;
use crate::record::{Recorder, count};
use crate::rng::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tollgate_check::{CallId, Event, Op, Outcome, Wait};
use tollgate_client::{AcquireError, Client, Guard, Mode, OwnerHandle, Session};
use tollgate_types::{Name, Names, Owner};

const CLIENTS: u32 = 3;
const TASKS: u64 = 4;
const LOCKS: u64 = 4;
const TTL_MS: u64 = 300_000;
const KILL_EVERY: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_that_are_killed_every_two_seconds_for_ten_cost_callers_nothing_but_time() {
    leaders_are_killed_for(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute"]
async fn leaders_that_are_killed_every_two_seconds_for_a_minute_cost_callers_nothing_but_time() {
    leaders_are_killed_for(Duration::from_mins(1)).await;
}

async fn leaders_are_killed_for(span: Duration) {
    let mut cluster = three().await;
    let (kills, grants) =
        callers_notice_nothing(&mut cluster, async |cluster| kill_leaders(cluster, span).await).await;
    println!("{kills} leaders killed, {grants} grants, no error");
    assert!(grants > 50 * kills, "{grants} grants between {kills} kills: hardly any load");
}

/// Runs callers while `disturb` acts on their cluster. Fails if a caller gets an error, since all deadlines are far
/// away, or if the answers break a promise. Returns the result of `disturb` and the number of grants.
pub(crate) async fn callers_notice_nothing<T>(
    cluster: &mut Cluster,
    disturb: impl AsyncFnOnce(&mut Cluster) -> T,
) -> (T, u64) {
    let work = Work::start(&cluster.endpoints()).await;
    let done = disturb(cluster).await;
    let grants = work.finish(cluster).await;
    (done, grants)
}

/// Clients under load.
pub(crate) struct Work {
    recorder: Arc<Recorder>,
    stop: Arc<AtomicBool>,
    tasks: tokio::task::JoinSet<()>,
    sessions: Vec<(u32, Session)>,
}

impl Work {
    /// Starts clients that know these endpoints. A client that gets an error panics.
    pub(crate) async fn start(endpoints: &[String]) -> Work {
        let (recorder, stop) = (Recorder::new(), Arc::new(AtomicBool::new(false)));
        let (mut tasks, mut sessions) = (tokio::task::JoinSet::new(), Vec::new());
        for client in 0..CLIENTS {
            let connected = Client::connect(endpoints).await.unwrap();
            let session = open(&connected, &recorder, client).await;
            for task in 0..TASKS {
                let worker = Worker {
                    client,
                    session: session.clone(),
                    owner: session.owner(format!("worker-{task}")),
                    recorder: Arc::clone(&recorder),
                    stop: Arc::clone(&stop),
                    rng: Rng::new(u64::from(client) * 100 + task),
                };
                tasks.spawn(worker.run());
            }
            sessions.push((client, session));
        }
        Work { recorder, stop, tasks, sessions }
    }

    fn grants(&self) -> u64 {
        self.recorder.counts.grants.load(Ordering::Relaxed)
    }

    /// Waits until `grants` more locks have been granted.
    pub(crate) async fn progress(&self, grants: u64) {
        let goal = self.grants() + grants;
        until("locks are granted", || async { self.grants() >= goal }).await;
    }

    /// Ends the load once all faults are over, and judges all answers. Returns the number of grants.
    pub(crate) async fn finish(mut self, cluster: &Cluster) -> u64 {
        self.recorder.record(Event::Healed);
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        for (client, session) in std::mem::take(&mut self.sessions) {
            let call = invoke(&self.recorder, client, Op::RevokeLease { lease: session.lease_id() });
            session.close().await.unwrap();
            self.recorder.record(Event::Return { call, outcome: Outcome::LeaseRevoked });
        }
        read_all(&self.recorder, cluster).await;
        self.recorder.record(Event::End);
        self.recorder.judge();
        self.grants()
    }
}

async fn kill_leaders(cluster: &mut Cluster, span: Duration) -> u64 {
    let until = Instant::now() + span;
    let mut kills = 0;
    while Instant::now() < until {
        let next = Instant::now() + KILL_EVERY;
        let leader = cluster.leader().await;
        cluster.nodes[leader].kill();
        kills += 1;
        cluster.leader_but(Some(leader)).await;
        cluster.restart(leader);
        cluster.until_ready().await;
        tokio::time::sleep_until(next.into()).await;
    }
    kills
}

fn invoke(recorder: &Recorder, client: u32, op: Op) -> CallId {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let call = CallId(CALLS.fetch_add(1, Ordering::Relaxed) + 1);
    recorder.record(Event::Invoke { call, client, group: GROUP, op });
    call
}

async fn open(client: &Client, recorder: &Recorder, number: u32) -> Session {
    let lease = tollgate_types::LeaseId::new((7 << 40) + u64::from(number) + 1).unwrap();
    let call = invoke(recorder, number, Op::GrantLease { lease: Some(lease), ttl_ms: TTL_MS });
    let session = client.session().ttl(Duration::from_millis(TTL_MS)).lease_id(lease).open().await.unwrap();
    let incarnation = session.incarnation();
    let outcome = Outcome::LeaseGranted { lease, incarnation, ttl_ms: TTL_MS, renewed: false };
    recorder.record(Event::Return { call, outcome });
    session
}

struct Worker {
    client: u32,
    session: Session,
    owner: OwnerHandle,
    recorder: Arc<Recorder>,
    stop: Arc<AtomicBool>,
    rng: Rng,
}

impl Worker {
    async fn run(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            let Some((names, guard)) = self.lock().await else { continue };
            for _ in 0..self.rng.below(3) {
                tokio::time::sleep(Duration::from_millis(self.rng.below(4))).await;
                let (token, mode) = (guard.token().expect("no lease ends here"), guard.mode());
                for name in names.as_slice() {
                    self.recorder.write(u32::try_from(self.rng.below(2)).unwrap(), name, token, mode);
                }
            }
            self.unlock(names, guard).await;
        }
    }

    async fn lock(&mut self) -> Option<(Names, Guard)> {
        let one = Name::new(format!("lock/{}", self.rng.below(LOCKS))).unwrap();
        let other = Name::new(format!("lock/{}", LOCKS + self.rng.below(2))).unwrap();
        let names =
            if self.rng.percent(15) { Names::new(vec![one, other]).unwrap() } else { Names::One(one) };
        let mode = if self.rng.percent(25) { Mode::Shared } else { Mode::Exclusive };
        let wait_ms = 60_000;
        let (wait, tries) =
            if self.rng.percent(20) { (Wait::No, true) } else { (Wait::ForMs(wait_ms), false) };
        let lease = self.session.lease_id();
        let owner = Owner::new(self.owner.name()).unwrap();
        let op = Op::Lock { names: names.clone(), lease, owner, mode, wait, max_hold_ms: None };
        let call = invoke(&self.recorder, self.client, op);
        let acquire = self.owner.locks(names.as_slice().iter().map(ToString::to_string)).mode(mode);
        let answer = if tries {
            acquire.try_acquire().await
        } else {
            acquire.wait(Duration::from_millis(wait_ms)).acquire().await
        };
        match answer {
            Ok(guard) => {
                count(&self.recorder.counts.grants);
                let (token, mode) = (guard.token().unwrap(), guard.mode());
                let outcome = Outcome::Granted { token, create_revision: None, mode };
                self.recorder.record(Event::Return { call, outcome });
                Some((names, guard))
            }
            Err(AcquireError::Busy { holders, .. }) if tries => {
                let holders = holders.iter().map(|holder| tollgate_check::Holder {
                    lease: holder.lease,
                    owner: Owner::new(&holder.owner).unwrap(),
                    token: holder.token,
                    mode: holder.mode,
                });
                let outcome = Outcome::Busy { holders: holders.collect() };
                self.recorder.record(Event::Return { call, outcome });
                None
            }
            Err(error) => panic!("a caller whose deadline had not come was told: {error:?}"),
        }
    }

    async fn unlock(&mut self, names: Names, guard: Guard) {
        let (lease, owner) = (self.session.lease_id(), Owner::new(self.owner.name()).unwrap());
        let call = invoke(&self.recorder, self.client, Op::Unlock { names, lease, owner, token: None });
        let revision = guard.release_at().await.expect("nothing takes a lock away here");
        let revision = revision.expect("it was the only guard");
        count(&self.recorder.counts.releases);
        self.recorder.record(Event::Return { call, outcome: Outcome::Released { revision } });
    }
}
