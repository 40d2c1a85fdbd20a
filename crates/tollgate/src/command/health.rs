//! `tollgate health`: asks the node beside this process whether it is well, for the probes of containers.
//!
//! It asks over HTTP, as a probe of any other kind would: no client, no cluster to find, nothing that takes long.

use crate::exit::{Exit, WithExit};
use crate::output;
use crate::span;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const HELP: &str = "\
Asks /readyz, or with --live /livez, which is answered as long as the process runs. Ready means that every group has a \
leader that a majority confirms: a node that is not ready is in order as long as it is live, and is not to be killed. \
A witness serves no clients and is never ready for them; ask it with --member.

Ends with 0 if it is well, and with 1 if not, whatever the reason, which it says.

Examples:
  tollgate health
  # of a witness
  tollgate health --member
  # is the process to be started again?
  tollgate health --live
  tollgate health --http 10.0.0.1:7402 --timeout 500ms";

/// Maximum number of bytes that are read of an answer.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

pub(crate) fn command() -> Command {
    Command::new("health")
        .about("Ask a node whether it is well: for the probes of containers")
        .arg(
            Arg::new("http")
                .long("http")
                .value_name("HOST:PORT")
                .env("TOLLGATE_LISTEN_HTTP")
                .hide_env_values(true)
                .default_value("127.0.0.1:7402")
                .help("The node's HTTP port"),
        )
        .arg(Arg::new("live").long("live").action(ArgAction::SetTrue).help("Only whether the process runs"))
        .arg(Arg::new("member").long("member").action(ArgAction::SetTrue).conflicts_with("live").help(
            "Whether it does its part in the cluster: a witness, which serves no clients, can be ready",
        ))
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .value_name("SPAN")
                .value_parser(span::parse)
                .default_value("2s")
                .help("How long the answer may take"),
        )
        .after_help(HELP)
}

pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<Exit> {
    let address = matches.get_one::<String>("http").expect("it has a default");
    let timeout = *matches.get_one::<Duration>("timeout").expect("it has a default");
    let (path, well) = match (matches.get_flag("live"), matches.get_flag("member")) {
        (true, _) => ("/livez", "live"),
        (false, true) => ("/readyz?member", "ready"),
        (false, false) => ("/readyz", "ready"),
    };
    let address = dialled(address);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = runtime.block_on(async { tokio::time::timeout(timeout, ask(&address, path)).await });
    let not = |why: String| WithExit(Exit::Failed, format!("not {well}: {why}"));
    match asked {
        Ok(Ok((200, _))) => {
            output::line(well)?;
            Ok(Exit::Done)
        }
        Ok(Ok((status, body))) => Err(not(reasons(status, &body)).into()),
        Ok(Err(error)) => Err(not(format!("{address}: {error}")).into()),
        Err(_) => Err(not(format!("{address} has not answered within {}", span::text(timeout))).into()),
    }
}

/// Makes an address that can be dialled from a URL, or from an address that a server listens on.
fn dialled(address: &str) -> String {
    let address = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
    let Some((host, port)) = address.rsplit_once(':') else { return address.to_owned() };
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(IpAddr::V4(Ipv4Addr::UNSPECIFIED)) => format!("{}:{port}", Ipv4Addr::LOCALHOST),
        Ok(IpAddr::V6(Ipv6Addr::UNSPECIFIED)) => format!("[{}]:{port}", Ipv6Addr::LOCALHOST),
        _ => address.to_owned(),
    }
}

/// Returns the status and the body of the answer.
async fn ask(address: &str, path: &str) -> anyhow::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    // If the connection broke, the bytes that came before may still be the whole answer.
    let read = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    match status {
        Some(status) => Ok((status, body.to_owned())),
        None if answer.is_empty() && read.is_err() => {
            anyhow::bail!("it hung up: is this the HTTP port, 7402 by default?")
        }
        None => anyhow::bail!("this is no HTTP port of a node (7402 by default)"),
    }
}

/// Describes why a node is not well, from the body of its answer.
fn reasons(status: u16, body: &str) -> String {
    let told: Value = serde_json::from_str(body).unwrap_or_default();
    let list = |name: &str| told[name].as_array().cloned().unwrap_or_default();
    let of_node = list("node").into_iter().filter_map(|why| Some(why.as_str()?.to_owned()));
    let of_groups = list("groups").into_iter().filter_map(|group| {
        Some(format!("group {}: {}", group["group_id"].as_u64()?, group["why"].as_str()?))
    });
    let all: Vec<String> = of_node.chain(of_groups).collect();
    if all.is_empty() { format!("HTTP status {status}") } else { all.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_to_listen_on_is_dialled_on_this_machine() {
        assert_eq!(dialled("0.0.0.0:7402"), "127.0.0.1:7402");
        assert_eq!(dialled("[::]:7402"), "[::1]:7402");
        assert_eq!(dialled("http://10.0.0.1:7402/"), "10.0.0.1:7402");
        assert_eq!(dialled("node-1:7402"), "node-1:7402");
    }

    #[test]
    fn an_unwell_node_is_told_with_its_reasons() {
        let group = r#"{"group_id": 0, "ready": false, "why": "no leader is known"}"#;
        let body = format!(r#"{{"ready": false, "node": ["it is stopping"], "groups": [{group}]}}"#);
        assert_eq!(reasons(503, &body), "it is stopping; group 0: no leader is known");
        assert_eq!(reasons(403, "no"), "HTTP status 403");
    }
}
