//! Commands that inspect a cluster, and those that repair it: their output for people and for programs.

use super::{Cli, Ended, shared, until};
use crate::cluster::{self, BINARY, Cluster, Making};
use serde_json::Value;
use std::process::{Command, Stdio};
use tollgate_client::Client;

/// Starts a holder and a waiter of one lock.
fn busy(cli: &Cli, name: &str) -> (super::Running, super::Running) {
    let holder =
        cli.start(&["run", name, "--why", "schema v42", "--", "sh", "-c", "echo up; read _; exit 0"]);
    holder.until_says("up");
    let waiter = cli.start(&["run", name, "--wait", "60s", "--", "true"]);
    cli.until_counts(name, (1, 1));
    (holder, waiter)
}

/// No byte that a client chose reaches a terminal unescaped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_of_any_bytes_is_shown_escaped_and_told_to_programs_exactly() {
    let cli = shared();
    let client = Client::connect(cli.endpoints.split(',')).await.unwrap();
    let session = client.session().open().await.unwrap();
    let json = "{\n  \"build\": 42\n}";
    let text = session.lock("looking/metadata/text").metadata(json).acquire().await.unwrap();
    let bytes = session.lock("looking/metadata/bytes").metadata(b"a\x1b[2J\n\xff").acquire().await.unwrap();
    let line_break = session.lock("looking/metadata/why").why("a\nb").acquire().await;
    assert!(line_break.unwrap_err().to_string().contains("control character 0x0a"));
    let watch = cli.start(&["watch", "--prefix", "looking/metadata/", "--from", "1"]);
    until("both grants are told", || watch.stdout().matches("looking/metadata/").count() == 2);
    let told = |name: &str| {
        [
            cli.call(&["ls", name]).with(0).stdout,
            cli.call(&["get", name]).with(0).stdout,
            cli.call(&["explain", name]).with(0).stdout,
            cli.call(&["run", name, "--try", "--", "true"]).with(75).stderr,
            watch.stdout(),
        ]
    };
    for (name, shown) in [
        ("looking/metadata/text", r#"{\u{a}  "build": 42\u{a}}"#),
        ("looking/metadata/bytes", r"a\u{1b}[2J\u{a}\xff"),
    ] {
        for output in told(name) {
            assert!(output.contains(shown) && !output.contains('\u{1b}'), "{output:?}");
        }
    }
    let holder = |name: &str| cli.call(&["get", name, "-o", "json"]).with(0).json()["holders"][0].clone();
    let told = holder("looking/metadata/text");
    assert_eq!((&told["why"], &told["metadata_base64"]), (&Value::from(json), &Value::Null));
    let told = holder("looking/metadata/bytes");
    assert_eq!(told["why"], r"a\u{1b}[2J\u{a}\xff");
    assert_eq!(told["metadata_base64"], "YRtbMkoK/w==");
    let seen = client.get_lock("looking/metadata/bytes").await.unwrap();
    assert_eq!(seen.holders[0].metadata, b"a\x1b[2J\n\xff");
    assert_eq!(client.get_lock("looking/metadata/text").await.unwrap().holders[0].metadata, json.as_bytes());
    drop((text, bytes));
}

/// Checks that ids, tokens and revisions are strings, and leases `L-` and sixteen hex digits.
fn check_strings(value: &Value) {
    match value {
        Value::Array(items) => items.iter().for_each(check_strings),
        Value::Object(fields) => {
            for (name, field) in fields {
                let is_id =
                    ["_token", "lease_id", "node_id", "cluster_id", "leader_id", "revision", "_index"]
                        .iter()
                        .any(|end| name.ends_with(end));
                assert!(!is_id || field.is_string() || field.is_null(), "{name} is {field}");
                if let (true, Some(id)) = (name.ends_with("lease_id"), field.as_str()) {
                    let digits = id.strip_prefix("L-").unwrap_or_default();
                    assert!(digits.len() == 16 && u64::from_str_radix(digits, 16).is_ok(), "{id}");
                }
                check_strings(field);
            }
        }
        _ => {}
    }
}

#[test]
fn json_parses_and_ids_are_strings() {
    let cli = shared();
    let (holder, waiter) = busy(&cli, "looking/json");
    for arguments in [
        &["ls"][..],
        &["ls", "looking/"],
        &["get", "looking/json"],
        &["explain", "looking/json"],
        &["lease", "ls"],
        &["status"],
        &["member", "ls"],
        &["group", "ls"],
        &["limits", "get"],
        &["deadlocks"],
        &["lease", "grant", "--ttl", "5s"],
    ] {
        let json = cli.call(&[arguments, &["-o", "json"]].concat()).with(0).json();
        check_strings(&json);
        let lines = cli.call(&[&["-o", "jsonl"], arguments].concat()).with(0).stdout;
        for line in lines.lines() {
            check_strings(
                &serde_json::from_str(line).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {line}")),
            );
        }
        let count = json.as_array().map_or(1, Vec::len);
        assert!(lines.lines().count() >= count.min(1), "{arguments:?}");
        let table = cli.call(arguments).with(0).stdout;
        assert!(!table.contains('|') && !table.contains('─'), "tables have no borders: {table}");
    }
    let lock = cli.call(&["get", "looking/json", "-o", "json"]).with(0).json();
    assert_eq!(lock["holders"][0]["why"], "schema v42");
    assert!(lock["holders"][0]["held_ms"].is_u64() && lock["waiters"][0]["waited_ms"].is_u64(), "{lock}");
    holder.end().with(0);
    waiter.end().with(0);
}

#[test]
fn explain_says_who_holds_why_since_when_who_waits_and_what_to_do() {
    let cli = shared();
    let free = cli.call(&["explain", "looking/free"]).with(0).stdout;
    assert!(free.contains("looking/free is free") && free.contains("tollgate run looking/free"), "{free}");
    let (holder, waiter) = busy(&cli, "looking/explain");
    let token = cli.token("looking/explain");
    let said = cli.call(&["explain", "looking/explain"]).with(0).stdout;
    for part in [
        "held (exclusive) for",
        &format!(":{} (lease", holder.pid()),
        &format!("token {token}"),
        "because \"schema v42\"",
        "the grant ends in",
        "Number 1 in line",
        &format!(":{} (lease", waiter.pid()),
        "gives up in",
        "is next",
        "tollgate watch looking/explain",
        &format!("tollgate release --force looking/explain --token {token}"),
    ] {
        assert!(said.contains(part), "{part:?} is missing:\n{said}");
    }
    holder.end().with(0);
    waiter.end().with(0);
}

#[test]
fn a_watch_tells_who_waits_holds_and_ends() {
    let cli = shared();
    let watch = cli.start(&["watch", "looking/watch", "--from", "1", "-o", "jsonl"]);
    let (holder, waiter) = busy(&cli, "looking/watch");
    let first = cli.token("looking/watch");
    holder.end().with(0);
    waiter.end().with(0);
    let events =
        || -> Vec<Value> { watch.stdout().lines().map(|line| serde_json::from_str(line).unwrap()).collect() };
    until("both have come and gone", || events().len() >= 5);
    let events = events();
    events.iter().for_each(check_strings);
    let kinds: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["granted", "waiting", "ended", "granted", "ended"], "{events:#?}");
    assert_eq!(events[0]["fencing_token"].as_str(), Some(first.as_str()));
    assert_eq!((&events[2]["reason"], &events[4]["vacant"]), (&"released".into(), &true.into()));
    let all = cli.start(&["watch", "--prefix", "looking/watch", "--from", "1"]);
    until("a prefix tells the same", || all.stdout().lines().count() >= 5);
    assert!(all.stdout().contains("granted") && all.stdout().contains("now free"), "{}", all.stdout());
}

#[test]
fn leases_by_hand() {
    let cli = shared();
    let lease = cli.call(&["lease", "grant", "--ttl", "60s"]).with(0).stdout.trim().to_owned();
    assert_eq!(lease.len(), "L-06666c056fc0de30".len());
    let ttl = cli.call(&["lease", "ttl", &lease, "--keys", "-o", "json"]).with(0).json();
    assert_eq!((&ttl["ttl_ms"], &ttl["keys"]), (&60_000.into(), &Value::Array(Vec::new())));
    cli.call(&["lease", "keep-alive", "--once", &lease]).with(0);
    assert!(cli.call(&["lease", "ls"]).with(0).stdout.contains(&lease));
    let unlock = cli.call(&["unlock", "looking/unlock", "--lease", &lease]).with(1);
    assert!(unlock.stderr.contains("hint:"), "{}", unlock.stderr);
    cli.call(&["lease", "revoke", &lease]).with(0);
    cli.call(&["lease", "ttl", &lease]).with(1);
    cli.call(&["lease", "keep-alive", "--once", &lease]).with(79);
    cli.call(&["lease", "ttl", "nonsense"]).with(64);
}

#[test]
fn unlock_and_release_end_the_grant_that_is_meant_and_no_other() {
    let cli = shared();
    let holding = cli.start(&["lock", "looking/release", "-o", "jsonl"]);
    cli.until_counts("looking/release", (1, 0));
    let token = cli.token("looking/release");
    let stale = (token.parse::<u64>().unwrap() + 1_000_000).to_string();
    let release = |token: &str| {
        cli.call(&["release", "--force", "looking/release", "--token", token, "--reason", "test"])
    };
    assert!(release(&stale).with(1).stderr.contains("stale"));
    assert_eq!(cli.counts("looking/release"), (1, 0));
    let lock = cli.call(&["get", "looking/release", "-o", "json"]).with(0).json();
    let holder = &lock["holders"][0];
    let (lease, owner) = (holder["lease_id"].as_str().unwrap(), holder["owner"].as_str().unwrap());
    let unlock = |more: &[&str]| cli.call(&[&["unlock", "looking/release"][..], more].concat());
    let table = cli.call(&["get", "looking/release"]).with(0).stdout;
    assert!(table.contains("OWNER") && table.contains(owner), "{table}");
    assert!(holding.stderr().contains(&format!("owner '{owner}'")), "{}", holding.stderr());
    unlock(&["--owner", owner]).with(64);
    unlock(&[]).with(64);
    unlock(&["--token", &stale]).with(1);
    let wrong = unlock(&["--lease", "L-0000000000000001", "--token", &token]).with(1);
    assert!(wrong.stderr.contains(lease), "{}", wrong.stderr);
    assert_eq!(cli.counts("looking/release"), (1, 0));
    unlock(&["--lease", lease, "--token", &token]).with(0);
    assert_eq!(cli.counts("looking/release"), (0, 0));
    cli.call(&["release", "looking/release", "--token", &token, "--reason", "without force"]).with(64);
    let ended = holding.end().with(79);
    assert!(ended.stderr.contains("somebody released it"), "{}", ended.stderr);

    let holding = cli.start(&["lock", "looking/release"]);
    cli.until_counts("looking/release", (1, 0));
    unlock(&["--token", &cli.token("looking/release")]).with(0);
    holding.end().with(79);
}

/// In every command's JSON, a mode is a word, and permits are numbers beside it.
#[test]
fn modes_have_one_form_in_json() {
    let cli = shared();
    let holding = cli.start(&["lock", "looking/modes", "--permits", "2/3", "-o", "jsonl"]);
    cli.until_counts("looking/modes", (1, 0));
    let lock: Value = serde_json::from_str(&holding.stdout()).unwrap();
    let get = cli.call(&["get", "looking/modes", "-o", "json"]).with(0).json()["holders"][0].clone();
    let lease = get["lease_id"].as_str().unwrap();
    let claim = cli.call(&["lease", "ttl", lease, "--keys", "-o", "json"]).with(0).json()["keys"][0].clone();
    let watch = cli.start(&["watch", "looking/modes", "--from", "1", "-o", "jsonl"]);
    until("the grant is told", || watch.stdout().ends_with('\n'));
    let event: Value = serde_json::from_str(watch.stdout().lines().next().unwrap()).unwrap();
    for told in [lock, get, claim, event] {
        let form = (&told["mode"], &told["permits"], &told["of"]);
        assert_eq!(form, (&"permit".into(), &2.into(), &3.into()), "{told}");
    }
    holding.signal("TERM");
    holding.end().with(0);
}

/// The error is not that the lock is busy, but that the cluster does not answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_the_cluster_never_answered_is_69() {
    let mut cluster = cluster::three().await;
    let cli = Cli::at(cluster.endpoints().join(","));
    let holder = cli.start(&["lock", "looking/unanswered"]);
    cli.until_counts("looking/unanswered", (1, 0));
    let waiter = cli.start(&["lock", "looking/unanswered", "--wait", "15s", "--ttl", "60s"]);
    cli.until_counts("looking/unanswered", (1, 1));
    let leader = cluster.leader().await;
    let others: Vec<usize> = (0..3).filter(|node| *node != leader).collect();
    for node in others {
        cluster.nodes[node].kill();
    }
    let ended = waiter.end().with(69);
    assert!(!ended.stderr.contains("others wait ahead"), "{}", ended.stderr);
    drop(holder);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_kept_alive_over_an_outage_shorter_than_its_ttl() {
    let mut cluster = Cluster::start(Making::nodes(1)).await;
    let cli = Cli::at(cluster.endpoints().join(","));
    let lease = cli.call(&["lease", "grant", "--ttl", "15s"]).with(0).stdout.trim().to_owned();
    let keeping = cli.start(&["lease", "keep-alive", &lease]);
    until("it was renewed", || keeping.stdout().lines().count() == 1);
    cluster.nodes[0].kill();
    until("it tries again", || keeping.stderr().contains("trying again"));
    cluster.restart(0);
    until("it was renewed again", || keeping.stdout().lines().count() > 1);
}

#[test]
fn elections_are_led_and_observed() {
    let cli = shared();
    let observer = cli.start(&["elect", "looking/elect", "--observe", "-o", "jsonl"]);
    until("it tells that nobody leads", || observer.stdout().contains("null"));
    cli.call(&["elect", "looking/elect", "--leader"]).with(1);
    let leader = cli.start(&[
        "elect",
        "looking/elect",
        "--value",
        "here",
        "--",
        "sh",
        "-c",
        "echo up $TOLLGATE_FENCING_TOKEN; read _; exit 3",
    ]);
    let token = leader.until_tells("up ");
    let told = cli.call(&["elect", "looking/elect", "--leader", "-o", "json"]).with(0).json();
    assert_eq!((&told["leader"]["fencing_token"], &told["leader"]["value"]), (&token.into(), &"here".into()));
    cli.call(&["elect", "looking/elect", "--wait", "3s"]).with(75);
    leader.end().with(3);
    until("the end is told", || observer.stdout().lines().count() >= 3);
    let lines: Vec<Value> =
        observer.stdout().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[1]["leader"]["value"], "here");
    assert!(lines[2]["leader"].is_null());
}

#[test]
fn a_signal_ends_an_observer() {
    let cli = shared();
    for name in ["INT", "TERM", "HUP", "QUIT"] {
        let observer = cli.start(&["elect", "looking/observed", "--observe", "-o", "jsonl"]);
        until("it tells that nobody leads", || observer.stdout().contains("null"));
        observer.signal(name);
        assert_eq!(observer.end().code, None, "{name} was to end it");
    }
}

#[test]
fn limits_are_shown_and_changed() {
    let cli = shared();
    let value = |ended: Ended| ended.json()[0]["value"].as_str().unwrap().to_owned();
    let get = || value(cli.call(&["limits", "get", "names_per_request_max", "-o", "json"]).with(0));
    let before = get();
    cli.call(&["limits", "set", "names_per_request_max=63"]).with(0);
    assert_eq!(get(), "63");
    cli.call(&["limits", "set", &format!("names_per_request_max={before}")]).with(0);
    cli.call(&["limits", "get", "no_such_limit"]).with(64);
    cli.call(&["limits", "set", "locks_max"]).with(64);
    let unknown = cli.call(&["limits", "set", "lock_max=5"]).with(64);
    assert!(unknown.stderr.contains("locks_max"), "it names those that there are: {}", unknown.stderr);
}

#[test]
fn a_reader_that_goes_away_ends_a_command_quietly() {
    let cli = shared();
    let mut command = cli.command(&["limits", "get", "-o", "jsonl"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let ended = Ended::of(&output);
    assert_eq!(ended.stderr, "");
    ended.with(141);
}

#[test]
fn names_of_locks_are_completed() {
    let cli = shared();
    let (holder, waiter) = busy(&cli, "looking/complete");
    let mut command = cli.command(&["--", "tollgate", "get", "looking/comp"]);
    command.env("TOLLGATE_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "2").env("_CLAP_IFS", "\n");
    command.env("_CLAP_COMPLETE_COMP_TYPE", "9").env("_CLAP_COMPLETE_SPACE", "false");
    let ended = Ended::of(&command.output().unwrap()).with(0);
    assert!(ended.stdout.lines().any(|name| name == "looking/complete"), "{:?}", ended.stdout);
    for shell in ["bash", "zsh", "fish"] {
        let script = cli.call(&["completions", shell]).with(0).stdout;
        assert!(script.contains("TOLLGATE_COMPLETE"), "{script}");
    }
    cli.call(&["completions", "tcsh"]).with(64);
    holder.end().with(0);
    waiter.end().with(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn status_tells_health_by_its_exit_code() {
    let mut cluster = cluster::three().await;
    let cli = Cli::at(cluster.endpoints().join(","));
    let well = cli.call(&["status"]);
    assert!(well.stdout.contains("healthy; 3 of 3 nodes answer"), "{}", well.stdout);
    well.with(0);
    let to = (cluster.leader().await + 1) % 3 + 1;
    let handed = cli.call(&["group", "transfer", "0", "--to", &to.to_string(), "-o", "json"]).with(0).json();
    assert_eq!(handed["leader_id"].as_str(), Some(to.to_string().as_str()));

    let victim = cluster.follower().await;
    cluster.nodes[victim].kill();
    let hurt = cli.call(&["status"]);
    assert!(hurt.stdout.contains("no answer") && hurt.stdout.contains("does not answer"), "{}", hurt.stdout);
    assert!(hurt.stdout.contains("2 of 3 nodes answer"), "the dead one is one node: {}", hurt.stdout);
    // A node that is known under another name is still one node.
    let endpoints: Vec<String> =
        cluster.endpoints().iter().map(|endpoint| endpoint.replace("127.0.0.1", "localhost")).collect();
    let hurt = Cli::at(endpoints.join(",")).call(&["status"]);
    assert!(hurt.stdout.contains("2 of 3 nodes answer"), "{}", hurt.stdout);
    hurt.with(1);
    let leader = cluster.leader().await;
    cluster.nodes[leader].kill();
    until("no group has a leader", || cli.call(&["status"]).code == Some(69));
}

#[test]
fn watching_a_table_draws_it_again() {
    let cli = shared();
    let watching = cli.start(&["ls", "looking/", "--watch=100ms", "-o", "jsonl"]);
    let (holder, waiter) = busy(&cli, "looking/again");
    until("it is seen more than once", || watching.stdout().matches("looking/again").count() > 2);
    holder.end().with(0);
    waiter.end().with(0);
    assert!(Command::new(BINARY).arg("ls").arg("--watch=soon").output().unwrap().status.code() == Some(64));
}
