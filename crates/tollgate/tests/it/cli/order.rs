//! Runs that wait for one lock are served in the order in which they came (P9), one at a time (P1).

use super::shared;

#[test]
fn p9_runs_are_served_in_order_and_one_at_a_time() {
    let cli = shared();
    let holder = cli.start(&["run", "order/queue", "--", "sh", "-c", "echo up; read _; exit 0"]);
    holder.until_says("up");
    let dir = tempfile::TempDir::new().unwrap();
    let log = dir.path().join("log").display().to_string();
    let mut waiters = Vec::new();
    for number in 1..=4 {
        // Each run writes two lines: were two of them at work at once, their lines would mix.
        let script = format!("echo in {number} >> {log}; sleep 0.05; echo out {number} >> {log}");
        waiters.push(cli.start(&["run", "order/queue", "--", "sh", "-c", &script]));
        cli.until_counts("order/queue", (1, number));
    }
    holder.end().with(0);
    for waiter in waiters {
        waiter.end().with(0);
    }
    let lines = std::fs::read_to_string(&log).unwrap();
    let expected: Vec<String> =
        (1..=4).flat_map(|number| [format!("in {number}"), format!("out {number}")]).collect();
    assert_eq!(lines.lines().collect::<Vec<_>>(), expected);
}
