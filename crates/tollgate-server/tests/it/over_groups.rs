//! Operations on names of several groups: what they promise while attempts, gateways and holders come and go.

use crate::many_groups::{acquired, ask, cluster, grant, is_free, lock, names, unlock};
use tollgate_proto::v1::{self, operation::Op};

/// Whoever asks for a part again hears what was heard at first, whatever happened since: else an attempt that found all
/// names free could be told that it has them while one that did not gives its own back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p10_a_try_over_groups_that_found_a_name_busy_found_it_busy_for_every_repeat() {
    let cluster = cluster().await;
    let router = cluster.servers[0].router();
    for lease in [1, 2] {
        grant(router, lease, 600_000).await;
    }
    let last = names().pop().unwrap();
    assert!(acquired(&ask(router, lock(&last, 1, 0)).await));
    let try_lock = |names: Vec<String>, attempt| {
        let request = Some(v1::Request { seq: 4, attempt, ..Default::default() });
        Op::TryLock(v1::LockRequest { names, lease_id: 2, request, ..Default::default() })
    };
    assert!(!acquired(&ask(router, try_lock(names(), 0)).await));
    ask(router, unlock(&last, 1)).await;
    let repeated = ask(cluster.servers[1].router(), try_lock(vec![last.clone()], 1)).await;
    assert!(!acquired(&repeated) && is_free(router, &last).await, "{repeated:?}");
    cluster.stop().await;
}
