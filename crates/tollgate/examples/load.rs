//! Fills a cluster with leases and locks, beyond what `tollgate bench` does, to measure the cost of many and their end.
//!
//! ```text
//! load spread   ADDRESS COUNT TTL_S SECONDS keeps leases alive that hold a lock in each of the cluster's groups
//! load locks    ADDRESS COUNT               holds that many locks on one lease for each thousand, and waits for Enter
//! load expire   ADDRESS COUNT TTL_S         lets leases with a lock each end together: how long until all are free
//! ```
//!
//! ADDRESS is the leader's client address; a follower would forward the requests, which is not measured here.

#![allow(clippy::print_stdout, reason = "an example talks")]
#![allow(clippy::cast_precision_loss, reason = "for people")]

use anyhow::{Context, bail};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_proto::v1::admin_service_client::AdminServiceClient;
use tollgate_proto::v1::session_service_client::SessionServiceClient;
use tollgate_proto::v1::{
    GroupsRequest, LeaseGrantRequest, LeaseKeepAliveRequest, LockRequest, Operation, SessionRequest,
    StatusRequest, operation::Op, operation_result::Result as OpResult,
};
use tollgate_types::{GroupId, GroupMap, Slot};
use tonic::transport::Endpoint;

/// Maximum number of operations in one frame.
const FRAME_MAX: usize = 1_024;

/// One session stream, shared by many tasks.
#[derive(Clone)]
struct Session {
    operations: mpsc::Sender<(Op, oneshot::Sender<OpResult>)>,
}

impl Session {
    async fn open(address: &str) -> anyhow::Result<Session> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?
            .tcp_nodelay(true)
            .initial_stream_window_size(1 << 20)
            .initial_connection_window_size(4 << 20);
        let channel = endpoint.connect().await.with_context(|| format!("nobody serves at {address}"))?;
        let (frames, outgoing) = mpsc::channel(4);
        let mut client = SessionServiceClient::new(channel).max_decoding_message_size(16 << 20);
        let mut incoming = client.session(ReceiverStream::new(outgoing)).await?.into_inner();
        let (operations, mut queue) = mpsc::channel::<(Op, oneshot::Sender<OpResult>)>(65_536);
        let pending: Arc<Mutex<HashMap<u64, oneshot::Sender<OpResult>>>> = Arc::default();
        let answered = Arc::clone(&pending);
        tokio::spawn(async move {
            let mut next = 0;
            while let Some(first) = queue.recv().await {
                // Other tasks that are about to ask get into the same frame.
                tokio::task::yield_now().await;
                let mut frame = Vec::new();
                {
                    let mut asked = Some(first);
                    let mut waiting = pending.lock();
                    while let Some((op, answer)) = asked {
                        next += 1;
                        waiting.insert(next, answer);
                        frame.push(Operation { id: next, op: Some(op), ..Operation::default() });
                        asked = if frame.len() < FRAME_MAX { queue.try_recv().ok() } else { None };
                    }
                }
                if frames
                    .send(SessionRequest { operations: frame, ..SessionRequest::default() })
                    .await
                    .is_err()
                {
                    return;
                }
            }
        });
        tokio::spawn(async move {
            while let Some(Ok(frame)) = incoming.next().await {
                let mut waiting = answered.lock();
                for result in frame.results {
                    let Some(outcome) = result.result else { continue };
                    if matches!(outcome, OpResult::Queued(_)) {
                        continue;
                    }
                    if let Some(answer) = waiting.remove(&result.id) {
                        let _ = answer.send(outcome);
                    }
                }
            }
        });
        Ok(Session { operations })
    }

    async fn ask(&self, op: Op) -> anyhow::Result<OpResult> {
        let (sender, receiver) = oneshot::channel();
        self.operations.send((op, sender)).await.ok().context("the stream is closed")?;
        let result = receiver.await.context("the stream broke")?;
        if let OpResult::Error(error) = &result {
            bail!("{error}");
        }
        Ok(result)
    }

    async fn grant(&self, id: u64, ttl_ms: i64) -> anyhow::Result<()> {
        let client_id = "load".to_owned();
        self.ask(Op::LeaseGrant(LeaseGrantRequest { id, ttl_ms, client_id, ..Default::default() })).await?;
        Ok(())
    }

    async fn lock(&self, name: String, lease_id: u64) -> anyhow::Result<()> {
        let lock = LockRequest { name, lease_id, ..Default::default() };
        match self.ask(Op::Lock(lock)).await? {
            OpResult::Lock(lock) if lock.acquired => Ok(()),
            other => bail!("not acquired: {other:?}"),
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["spread", address, count, ttl_s, seconds] => {
            spread(address, count.parse()?, ttl_s.parse()?, seconds.parse()?).await
        }
        ["locks", address, count] => locks(address, count.parse()?).await,
        ["expire", address, count, ttl_s] => expire(address, count.parse()?, ttl_s.parse()?).await,
        _ => bail!("see the head of this file for how to use it"),
    }
}

/// Returns an id that no other run has.
fn fresh_id(number: u64) -> u64 {
    let run = std::process::id();
    (u64::from(run) << 32 | number) & (i64::MAX as u64)
}

/// Grants leases, many at once. Returns the time that it took.
async fn grant_all(session: &Session, count: u64, ttl_ms: i64) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let mut tasks = Vec::new();
    for part in 0..64 {
        let session = session.clone();
        tasks.push(tokio::spawn(async move {
            for number in (part..count).step_by(64) {
                session.grant(fresh_id(number + 1), ttl_ms).await?;
            }
            anyhow::Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(began.elapsed())
}

async fn spread(address: &str, count: u64, ttl_s: u64, seconds: u64) -> anyhow::Result<()> {
    let session = Session::open(address).await?;
    let took = grant_all(&session, count, i64::try_from(ttl_s)? * 1_000).await?;
    println!(
        "{count} leases granted in {:.2} s ({:.0}/s)",
        took.as_secs_f64(),
        count as f64 / took.as_secs_f64()
    );
    let (groups, took) = lock_everywhere(&session, address, count).await?;
    println!("each holds a lock in each of {groups} groups, after {:.2} s", took.as_secs_f64());
    let until = Instant::now() + Duration::from_secs(seconds);
    let (sent, lost) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    // Renewals are spread evenly over a third of the TTL, in steps of ten milliseconds.
    let steps = ttl_s * 1_000 / 3 / 10;
    let mut step = 0;
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    while Instant::now() < until {
        ticks.tick().await;
        for number in (step % steps..count).step_by(usize::try_from(steps)?) {
            let (session, sent, lost) = (session.clone(), Arc::clone(&sent), Arc::clone(&lost));
            tokio::spawn(async move {
                let id = fresh_id(number + 1);
                let asked =
                    session.ask(Op::LeaseKeepAlive(LeaseKeepAliveRequest { id, ..Default::default() })).await;
                let lives = matches!(asked, Ok(OpResult::LeaseKeepAlive(answer)) if answer.ttl_ms > 0);
                sent.fetch_add(1, Ordering::Relaxed);
                lost.fetch_add(u64::from(!lives), Ordering::Relaxed);
            });
        }
        step += 1;
    }
    let (sent, lost) = (sent.load(Ordering::Relaxed), lost.load(Ordering::Relaxed));
    println!(
        "{:.0} keepalives/s acknowledged over {seconds} s, {lost} leases lost",
        sent as f64 / seconds as f64
    );
    Ok(())
}

/// Takes a lock in each group under each lease. Returns the number of groups, and the time that it took.
async fn lock_everywhere(session: &Session, address: &str, count: u64) -> anyhow::Result<(usize, Duration)> {
    let mut admin =
        AdminServiceClient::new(Endpoint::from_shared(format!("http://{address}"))?.connect().await?);
    let groups = admin.groups(GroupsRequest::default()).await?.into_inner().groups.len();
    let map = Arc::new(GroupMap::even(u32::try_from(groups)?)?);
    // The text in braces decides in which group a name lives.
    let tag = |group: &GroupId| {
        (0..1_000_000)
            .map(|n| format!("{{t{n}}}"))
            .find(|tag| map.group_of(Slot::of(tag.as_bytes())) == *group)
    };
    let tags: Vec<String> = map.groups().iter().filter_map(tag).collect();
    let began = Instant::now();
    let mut tasks = Vec::new();
    for part in 0..256 {
        let (session, tags) = (session.clone(), tags.clone());
        tasks.push(tokio::spawn(async move {
            for number in (part..count).step_by(256) {
                for tag in &tags {
                    let name = format!("load/{tag}/{}/{number}", std::process::id());
                    session.lock(name, fresh_id(number + 1)).await?;
                }
            }
            anyhow::Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok((tags.len(), began.elapsed()))
}

/// Holds locks, `per_lease` on each lease.
async fn hold(session: &Session, count: u64, ttl_ms: i64, per_lease: u64) -> anyhow::Result<()> {
    grant_all(session, count.div_ceil(per_lease), ttl_ms).await?;
    let mut tasks = Vec::new();
    for part in 0..256 {
        let session = session.clone();
        tasks.push(tokio::spawn(async move {
            for number in (part..count).step_by(256) {
                let name = format!("load/{}/{number}", std::process::id());
                session.lock(name, fresh_id(number / per_lease + 1)).await?;
            }
            anyhow::Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}

async fn locks(address: &str, count: u64) -> anyhow::Result<()> {
    let session = Session::open(address).await?;
    let began = Instant::now();
    hold(&session, count, 600_000, 1_000).await?;
    println!("{count} locks held after {:.1} s; press Enter to end", began.elapsed().as_secs_f64());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(())
}

async fn expire(address: &str, count: u64, seconds: u64) -> anyhow::Result<()> {
    let session = Session::open(address).await?;
    let ttl_ms = i64::try_from(seconds)? * 1_000;
    hold(&session, count, ttl_ms, 1).await?;
    // All leases are renewed at once, so that they end at once.
    let began = Instant::now();
    let mut tasks = Vec::new();
    for number in 0..count {
        let session = session.clone();
        let id = fresh_id(number + 1);
        let renew = Op::LeaseKeepAlive(LeaseKeepAliveRequest { id, ..Default::default() });
        tasks.push(tokio::spawn(async move { session.ask(renew).await }));
    }
    for task in tasks {
        task.await??;
    }
    println!("{count} leases with a lock each renewed within {:.2} s", began.elapsed().as_secs_f64());
    let due = began + Duration::from_secs(seconds);
    // A request for one of the locks would find it free at once; this waits until no claim of any of them is left.
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
    let mut admin = AdminServiceClient::new(endpoint.connect().await?);
    loop {
        let status = admin.status(StatusRequest::default()).await?.into_inner();
        if status.replicas.iter().all(|replica| replica.claims == 0) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("all free {:.2} s after the first was due", due.elapsed().as_secs_f64());
    Ok(())
}
