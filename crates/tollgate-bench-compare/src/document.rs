//! The benchmark page: method, machine, versions, figures, and the unfairness to each service.

use crate::arguments::Arguments;
use crate::figure::Figure;
use crate::machine;
use crate::result::Results;
use crate::table;
use std::fmt::Write;

pub(crate) fn page(arguments: &Arguments, results: &Results) -> String {
    let mut page = OPENING.to_owned();
    // Writing to a string can't fail.
    let _ = write!(page, "## Machine and versions\n\nMeasured on {}.", machine::description());
    if let Some(ms) = machine::fsync_ms() {
        let _ = write!(page, " A page of 4 KiB is on its disk after {ms:.2} ms (median, fdatasync).");
    }
    page.push_str(" All servers and the load share the machine.");
    if let Some(remark) = &arguments.remark {
        let _ = write!(page, " {remark}");
    }
    page.push_str("\n\n");
    let mut said = Vec::new();
    for (_, version) in &results.versions {
        if !said.contains(version) {
            let _ = writeln!(page, "- {version}");
            said.push(version.clone());
        }
    }
    page.push_str(METHOD);
    let _ = write!(
        page,
        "{} rounds; in each, every figure runs {} s after a warm-up of {} s, and leaders are lost {} times in each \
         way. A rate is the median of the rounds, with the lowest and the highest; percentiles are medians of the \
         rounds', outages are over all losses. CPU is processor time per operation, of all server processes together \
         and of the generator. Clients share {}, as a program's tasks do, where not each has one.\n\n## Figures\n\n",
        arguments.rounds,
        arguments.seconds,
        arguments.warmup_seconds,
        arguments.losses,
        if arguments.connections == 1 {
            "a connection".to_owned()
        } else {
            format!("{} connections", arguments.connections)
        }
    );
    let _ = write!(page, "{}\n\n", table::of(arguments, results));
    page.push_str(&charts(arguments));
    page.push_str(FAIRNESS);
    page.push_str(&commands(arguments));
    wrap(&page)
}

const OPENING: &str = "\
# Benchmarks

Tollgate beside etcd, ZooKeeper and Redis: the same load on each, on one machine. Made by `make bench-compare`, which \
installs the others from Debian's packages, starts each in turn, drives it and writes this page; nothing here is \
written by hand but the text. `tollgate bench --help` measures a cluster of yours.

";

const METHOD: &str = "
## Method

One generator drives all: a closed loop in one thread, in which each client asks, waits for the answer and asks again \
(`crates/tollgate-bench`). Behind a small trait each service is asked through a client crate that people use: \
`tollgate-client`, `etcd-client`, `zookeeper-client`, `redis`. Servers are processes on loopback with data directories \
of their own on one disk, and the durability that they come with; only Redis is also run with less, and with more. One \
service runs at a time, and before the first figure each is driven for five seconds, for the sake of the virtual \
machine of one of them.

- *lock+unlock*: each client takes and gives back a lock that nobody else wants. Tollgate: Lock and Unlock in a \
session. etcd: Lock and Unlock of its lock service, with a lease for each client. ZooKeeper, recipe: an ephemeral \
sequential node, a look at who is first, a delete; bare: an ephemeral node created and deleted, which nobody can wait \
for. Redis: `SET NX PX`, and a script that deletes if the token is still there. Redlock: the same at five servers, of \
which three must agree.
- *with a connection each*: the same by clients that share none, like separate programs. What an operation costs on \
its way through sockets shows here, and is shared by many where clients share connections.
- *hand-off*: all clients wait for one lock, with a connection each; counted is how often it passes on, and the \
latency is from the call that gives it back to the next grant. Redis has no queue: a client that is refused tries \
again after 1 ms, where libraries wait 50 to 200 ms; that the one who gave it back takes it again is not counted as a \
hand-off.
- *keepalives* and *lease grant+revoke*: leases of Tollgate and etcd; sessions of ZooKeeper, whose keepalives its \
client sends by itself, so there is no figure; keys with a time to live at Redis.
- *kill -9* and *SIGSTOP of the leader*: from the signal to the next lock that is granted to a client that was \
connected before. Its program asks again when it is told of a failure; with etcd also when a request is unanswered \
for 200 ms, since a node that knows no leader lets requests lie.

";

const FAIRNESS: &str = "\
## What is unfair, and to whom

- To all with three nodes: on one machine they share processors and a disk that syncs for all of them. Real clusters \
have more of both, and a network between. What syncs least often gains most here.
- To ZooKeeper: its Rust client never sets TCP_NODELAY, and a virtual machine with default settings on a small machine \
is not where it shines. Debian's version is not the newest.
- To etcd: its client makes a call for each operation, where Tollgate's puts many into one frame. That is a difference \
of the designs, but with one client at a time there is none of it, and `tollgate bench --unary` shows Tollgate \
without. Debian's version is an old one: newer ones are faster.
- To Redis: nothing of it survives a crash without disk, and with it there is one copy; it gives no fencing token and \
no queue. It does less than the others, and is here because many use it. Redlock's safety rests on clocks.
- To Tollgate: it keeps fencing tokens, a queue and a history for watches, and a number for each request so that \
repeats are harmless; the others don't, or not all of it.
- To nobody in particular: other programs may have run on the machine meanwhile. Rounds and their spread are there \
for that.
- The generator takes processor time from the servers, more for those whose client costs more: its column says how \
much.

";

fn charts(arguments: &Arguments) -> String {
    let mut text = String::new();
    let names = arguments.all_figures().into_iter().filter_map(|figure| match figure {
        Figure::Pairs { clients } => Some(format!("pairs-{clients}-latency")),
        Figure::Handoff { .. } => Some("handoff-latency".to_owned()),
        _ => None,
    });
    for name in ["pairs-throughput".to_owned()].into_iter().chain(names) {
        let _ = writeln!(text, "![{}](benchmarks/{name}.svg)", name.replace('-', " "));
    }
    text.push('\n');
    text
}

fn commands(arguments: &Arguments) -> String {
    let peers: Vec<String> = arguments.peers.iter().map(|kind| kind.flag()).collect();
    let mut text = format!(
        "## Each figure by one command\n\nAfter `make bench-compare-build`, with `--peers` to choose among {}:\n\n\
         ```sh\n",
        peers.join(", ")
    );
    let Arguments { seconds, warmup_seconds, rounds, losses, connections, .. } = arguments;
    let rest = |figure: Figure| {
        let shared = if figure.is_apart() { String::new() } else { format!("--connections {connections} ") };
        match figure.blow() {
            Some(_) => format!("{shared}--losses {losses} --rounds {rounds}"),
            None => {
                format!("{shared}--seconds {seconds} --warmup-seconds {warmup_seconds} --rounds {rounds}")
            }
        }
    };
    for figure in arguments.all_figures() {
        let _ = writeln!(text, "target/release/tollgate-bench-compare {} {}", figure.flags(), rest(figure));
    }
    text.push_str("```\n");
    text
}

/// Breaks long lines of text as a human editor would; tables, code and pictures stay unbroken.
fn wrap(page: &str) -> String {
    const WIDTH: usize = 120;
    let (mut text, mut in_code) = (String::new(), false);
    for line in page.lines() {
        in_code ^= line.starts_with("```");
        if in_code || line.starts_with(['|', '!', '#', '`']) {
            text.push_str(line);
            text.push('\n');
            continue;
        }
        let indent = if line.starts_with("- ") { "  " } else { "" };
        let mut length = 0;
        for (index, word) in line.split(' ').enumerate() {
            let width = word.chars().count();
            if index > 0 && length + 1 + width > WIDTH {
                let _ = write!(text, "\n{indent}");
                length = indent.len();
            } else if index > 0 {
                text.push(' ');
                length += 1;
            }
            text.push_str(word);
            length += width;
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn a_page_has_no_long_lines_and_a_command_for_each_figure() {
        let arguments = Arguments::parse_from(["compare", "--connections", "3"]);
        let page = page(&arguments, &Results::default());
        for line in page.lines() {
            let may_be_long = line.starts_with(['|', '!']) || line.starts_with("target/");
            let may = may_be_long || line.chars().count() <= 120;
            assert!(may && line.trim_end() == line, "{line}");
        }
        for figure in arguments.all_figures() {
            let command = page.lines().find(|line| line.contains(&figure.flags())).expect("a command");
            assert_eq!(command.contains("--connections 3"), !figure.is_apart(), "{command}");
        }
    }
}
