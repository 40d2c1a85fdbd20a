//! The examples, run on a cluster: their results must be as described.

use crate::cluster;

#[path = "../../../examples/cron.rs"]
#[allow(dead_code, reason = "its main is for people")]
mod cron;
#[path = "../../../examples/election.rs"]
#[allow(dead_code, reason = "its main is for people")]
mod election;
#[path = "../../../examples/migration.rs"]
#[allow(dead_code, reason = "its main is for people")]
mod migration;
#[path = "../../../examples/worker_pool.rs"]
#[allow(dead_code, reason = "its main is for people")]
mod worker_pool;

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_show_what_they_say() {
    let cluster = cluster::three().await;
    let endpoints = cluster.endpoints();
    let blocking = endpoints.clone();
    let pool = tokio::task::spawn_blocking(|| worker_pool::run(blocking));
    let (migrated, reported, refused) = tokio::join!(
        migration::run(endpoints.clone()),
        cron::run(endpoints.clone()),
        election::run(endpoints.clone()),
    );

    let (mut steps, schema) = migrated.unwrap();
    steps.sort_unstable();
    assert_eq!((steps, schema), (vec![0, 0, 3], 3), "one instance did all of it");

    let reports = reported.unwrap();
    let times: Vec<&str> = reports.iter().filter_map(|report| report.split(' ').next()).collect();
    assert_eq!(times, ["1", "2", "3", "4"], "each time once: {reports:?}");

    assert!(refused.unwrap(), "a leader of the past could write");
    assert!((1..=2).contains(&pool.await.unwrap().unwrap()), "the semaphore has two permits");
}
