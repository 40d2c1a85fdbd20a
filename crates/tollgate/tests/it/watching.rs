//! Watches on many locks: one that is resumed at another node when its stream breaks, and a series of watches from now
//! on.
//!
//! Invariant: the first watch resumes exactly where the last answer ended, so the judge may count every revision. Not
//! here: the meaning of a gap, and the valid starts of a watch from now on (`tollgate-check`).

use crate::connection::GROUP;
use crate::doors::Doors;
use crate::record::Recorder;
use crate::verdict::{end_reason, lease, mode, revision};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_check::{Change, ChangeKind, Event, Filter};
use tollgate_proto::v1::lock_service_client::LockServiceClient;
use tollgate_proto::v1::{self, key_value::Kv, watch_request::Target};
use tollgate_types::{GroupId, Name, Owner, Revision, Token};
use tonic::transport::Endpoint;

/// Pause between two streams.
const PAUSE: Duration = Duration::from_millis(30);

/// Time that a watch from now on is followed.
const FROM_NOW_FOR: Duration = Duration::from_secs(1);

/// Distance between the number ranges of two callers' watches from now on, and the start of the first range.
const NUMBERS_FROM_NOW: u32 = 1_000_000;

/// Watches until it is aborted.
pub(crate) async fn watch(number: u32, filter: Filter, recorder: Arc<Recorder>, doors: Doors) {
    let (prefix, group) = target(&filter, &recorder);
    let mut next = Some(revision(1));
    recorder.record(Event::Watch { watch: number, group, from: next, filter });
    for place in number as usize.. {
        // The stream only ends because of trouble; the next node goes on.
        let _ = follow(number, &prefix, &recorder, &doors.nth(place), &mut next).await;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Watches from now on, at one node after the other, until it is aborted. The judge sees each as a separate watch.
pub(crate) async fn watch_from_now(number: u32, filter: Filter, recorder: Arc<Recorder>, doors: Doors) {
    let (prefix, group) = target(&filter, &recorder);
    for round in 0..NUMBERS_FROM_NOW {
        let number = NUMBERS_FROM_NOW * (number + 1) + round;
        recorder.record(Event::Watch { watch: number, group, from: None, filter: filter.clone() });
        let endpoint = doors.nth(round as usize);
        let mut next = None;
        let followed = follow(number, &prefix, &recorder, &endpoint, &mut next);
        let _ = tokio::time::timeout(FROM_NOW_FOR, followed).await;
        tokio::time::sleep(PAUSE).await;
    }
}

fn target(filter: &Filter, recorder: &Recorder) -> (String, GroupId) {
    match filter {
        Filter::All => (String::new(), GROUP),
        Filter::Prefix(prefix) => (prefix.clone(), recorder.group_of_name(&Name::new(prefix).unwrap())),
        Filter::Name(_) | Filter::Lease(_) => panic!("nobody watches by {filter:?}"),
    }
}

async fn follow(
    number: u32,
    prefix: &str,
    recorder: &Recorder,
    endpoint: &str,
    next: &mut Option<Revision>,
) -> Option<()> {
    let endpoint = Endpoint::from_shared(endpoint.to_owned()).ok()?;
    let endpoint = endpoint
        .connect_timeout(Duration::from_millis(500))
        .keep_alive_while_idle(true)
        .http2_keep_alive_interval(Duration::from_millis(300))
        .keep_alive_timeout(Duration::from_millis(700));
    let (requests, outgoing) = mpsc::channel(4);
    let open = v1::WatchRequest {
        target: Some(Target::Prefix(prefix.to_owned())),
        start_revision: next.map_or(0, Revision::get),
        watch_id: 1,
        prev_kv: true,
        ..v1::WatchRequest::default()
    };
    requests.send(open).await.ok()?;
    let opened = async {
        let mut service = LockServiceClient::new(endpoint.connect().await.ok()?);
        Some(service.watch(ReceiverStream::new(outgoing)).await.ok()?.into_inner())
    };
    let mut answers = tokio::time::timeout(Duration::from_secs(1), opened).await.ok()??;
    while let Some(Ok(answer)) = answers.next().await {
        if answer.compact_revision != 0 {
            let min_revision = revision(answer.compact_revision);
            *next = Some(min_revision);
            recorder.record(Event::WatchCompacted { watch: number, min_revision });
        }
        if answer.canceled {
            return None;
        }
        let told = revision(answer.header.as_ref()?.revision).next();
        let changes: Vec<Change> = answer.events.iter().filter_map(change).collect();
        if answer.created && next.is_none() {
            assert!(changes.is_empty(), "a watch from now on begins with {changes:?}");
            recorder.record(Event::WatchBegan { watch: number, from: told });
            *next = Some(told);
        } else if next.is_none_or(|next| told > next) {
            *next = Some(told);
            recorder.record(Event::WatchEvents { watch: number, changes, next: told });
        } else {
            assert!(changes.is_empty(), "the watch went back to {told}: {changes:?}");
        }
    }
    None
}

fn claim(kv: Option<&v1::KeyValue>) -> Option<&v1::Claim> {
    match kv?.kv.as_ref()? {
        Kv::Claim(claim) => Some(claim),
        Kv::Register(_) => None,
    }
}

fn change(event: &v1::Event) -> Option<Change> {
    let now = claim(event.kv.as_ref())?;
    let before = claim(event.prev_kv.as_ref());
    let had = before.and_then(|before| Token::new(before.fencing_token).ok());
    let kind = if event.r#type() == v1::EventType::Delete {
        ChangeKind::Ended { token: had, reason: end_reason(event.end_reason()) }
    } else {
        match Token::new(now.fencing_token).ok() {
            None if before.is_none() => ChangeKind::Queued,
            Some(token) if had != Some(token) => {
                ChangeKind::Granted { token, mode: mode(now.mode, now.permits, now.of) }
            }
            _ => ChangeKind::Changed,
        }
    };
    Some(Change {
        revision: revision(event.revision),
        name: Name::new(&now.name).unwrap(),
        lease: lease(now.lease_id),
        owner: Owner::new(&now.owner).unwrap(),
        kind,
    })
}
