//! `tollgate lease`: manages leases by hand, for tools that keep them alive themselves.

use super::acquisition::check_interval;
use crate::exit::{Exit, WithExit};
use crate::failure::failed;
use crate::globals::Globals;
use crate::lease_id;
use crate::output::{self, Look, Table, cell};
use crate::span;
use crate::view::{lease_json, missing_text, mode_json, ms, or_dash, permits_json, text};
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::time::error::Elapsed;
use tollgate_client::{Client, Error, ErrorKind, LeaseClaim, LeaseDetail, LeaseId, LeaseInfo};
use tollgate_types::escaped;

/// Minimum time to wait for the answer to a keepalive; below, the pause between two attempts while no answer comes.
const RENEW_PATIENCE_MIN: Duration = Duration::from_secs(1);
const RENEW_PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a lease; nobody keeps it alive but you
    #[command(after_help = "\
Examples:
  tollgate lease grant --ttl 60s
  tollgate lease grant --ttl 5m --id L-0000000000000001")]
    Grant(Grant),
    /// End a lease now, and all locks that hang on it
    #[command(after_help = "Examples:\n  tollgate lease revoke L-0000000000000001")]
    Revoke(Which),
    /// Renew a lease: once, or until a signal ends it
    #[command(after_help = "\
While the cluster does not answer it tries again, until the TTL has passed. Ends with 79 if the lease has ended, with \
69 if it may have.

Examples:
  # every third of its TTL, until Ctrl-C
  tollgate lease keep-alive L-0000000000000001
  tollgate lease keep-alive --once L-0000000000000001")]
    KeepAlive(KeepAlive),
    /// Show what is left of a lease, and what hangs on it
    #[command(after_help = "\
Ends with 1 if there is no such lease.

Examples:
  tollgate lease ttl L-0000000000000001
  tollgate lease ttl --keys L-0000000000000001")]
    Ttl(Ttl),
    /// The leases that live
    #[command(after_help = "Examples:\n  tollgate lease ls\n  tollgate lease ls -o jsonl | jq -r .lease_id")]
    Ls,
}

#[derive(Debug, Args)]
struct Which {
    /// The lease, as `lease ls` shows it: L- and sixteen hex digits
    #[arg(value_name = "ID", value_parser = lease_id::parse)]
    id: LeaseId,
}

#[derive(Debug, Args)]
struct Grant {
    /// Time that the lease lives without being renewed
    #[arg(long, value_name = "SPAN", value_parser = span::parse, default_value = "60s")]
    ttl: Duration,

    /// The id it is to have [default: chosen for you]
    #[arg(long, value_name = "ID", value_parser = lease_id::parse)]
    id: Option<LeaseId>,
}

#[derive(Debug, Args)]
struct KeepAlive {
    #[command(flatten)]
    which: Which,

    /// Renew it once
    #[arg(long, conflicts_with = "every")]
    once: bool,

    /// The time between two renewals, from 50ms to half of the TTL [default: a third of the TTL]
    #[arg(long, value_name = "SPAN", value_parser = span::parse)]
    every: Option<Duration>,
}

#[derive(Debug, Args)]
struct Ttl {
    #[command(flatten)]
    which: Which,

    /// List the locks that it holds or waits for
    #[arg(long)]
    keys: bool,
}

pub(crate) fn command() -> Command {
    let command = Command::new("lease").about("Make, renew, end and list leases by hand");
    Action::augment_subcommands(command).subcommand_required(true).arg_required_else_help(true)
}

pub(crate) fn run(globals: &Globals, matches: &ArgMatches) -> anyhow::Result<Exit> {
    match Action::from_arg_matches(matches)? {
        Action::Grant(arguments) => grant(globals, &arguments),
        Action::Revoke(which) => revoke(globals, which.id),
        Action::KeepAlive(arguments) => keep_alive(globals, &arguments),
        Action::Ttl(arguments) => ttl(globals, &arguments),
        Action::Ls => ls(globals),
    }
}

fn grant(globals: &Globals, arguments: &Grant) -> anyhow::Result<Exit> {
    globals.with_client(async |client| {
        let mut grant = client.leases().grant(arguments.ttl);
        if let Some(id) = arguments.id {
            grant = grant.id(id);
        }
        let granted = grant.await.map_err(failed)?;
        let item =
            json!({"lease_id": text(granted.id), "ttl_ms": ms(granted.ttl), "renewed": granted.renewed});
        globals.output.one(&granted.id.to_string(), &item)?;
        let ttl = span::text(granted.ttl);
        globals.remark(&format!(
            "tollgate: it ends in {ttl} unless renewed: tollgate lease keep-alive {}",
            granted.id
        ));
        Ok(Exit::Done)
    })
}

fn revoke(globals: &Globals, id: LeaseId) -> anyhow::Result<Exit> {
    globals.with_client(async |client| {
        client.leases().revoke(id).await.map_err(failed)?;
        globals.output.one(&format!("revoked {id}"), &json!({"lease_id": text(id), "revoked": true}))?;
        Ok(Exit::Done)
    })
}

fn keep_alive(globals: &Globals, arguments: &KeepAlive) -> anyhow::Result<Exit> {
    globals.with_client(async |client| output::while_read(renew(globals, &client, arguments)).await)
}

/// Renews the lease until it ends, or until the reader of the output does.
async fn renew(globals: &Globals, client: &Client, arguments: &KeepAlive) -> anyhow::Result<Exit> {
    let id = arguments.which.id;
    let mut known: Option<Renewed> = None;
    loop {
        let sent = Instant::now();
        let patience = known.map_or(Duration::MAX, |known| (known.ttl / 6).max(RENEW_PATIENCE_MIN));
        let ttl = match tokio::time::timeout(patience, client.leases().keep_alive(id)).await {
            Ok(Ok(ttl)) => ttl,
            Ok(Err(error)) if error.kind() == ErrorKind::NotFound => {
                // A lease that was never renewed here may be a typo.
                let never = if known.is_some() { "" } else { ", or never was" };
                return Err(WithExit(Exit::Lost, format!("the lease {id} has ended{never}")).into());
            }
            // The lease may live on for the rest of its TTL, and is given up only after that.
            late if known.is_some_and(|known| sent < known.sent + known.ttl) && may_pass(&late) => {
                globals.remark(&format!("tollgate: {id} was not renewed in time, trying again"));
                tokio::time::sleep(RENEW_PAUSE).await;
                continue;
            }
            Ok(Err(error)) => return Err(failed(error)),
            Err(_) => {
                let says = format!("the lease {id} was not renewed for its TTL, and may have ended");
                return Err(WithExit(Exit::Unreachable, says).into());
            }
        };
        known = Some(Renewed { sent, ttl });
        check_interval("--every", arguments.every, ttl)?;
        let item = json!({"lease_id": text(id), "ttl_ms": ms(ttl)});
        globals.output.next(&format!("{id} lives for {}", span::text(ttl)), &item)?;
        if arguments.once {
            return Ok(Exit::Done);
        }
        tokio::time::sleep(arguments.every.unwrap_or(ttl / 3)).await;
    }
}

/// A keepalive that was answered.
#[derive(Clone, Copy)]
struct Renewed {
    sent: Instant,
    ttl: Duration,
}

/// True if a failed keepalive may succeed a little later.
fn may_pass(failed: &Result<Result<Duration, Error>, Elapsed>) -> bool {
    match failed {
        Ok(Err(error)) => matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::TimedOut),
        _ => true,
    }
}

fn ttl(globals: &Globals, arguments: &Ttl) -> anyhow::Result<Exit> {
    globals.with_client(async |client| {
        let detail = client.leases().time_to_live(arguments.which.id).await.map_err(failed)?;
        let (output, lease) = (globals.output, &detail.lease);
        let mut item = lease_json(lease);
        let (left, of) = (span::text(lease.remaining), span::text(lease.ttl));
        let client = escaped(or_dash(&lease.client_id));
        let mut says = format!("{} ends in {left} of {of}, client {client}", lease.id);
        if arguments.keys {
            item["keys"] = detail.claims.iter().map(claim_json).collect();
            says = format!("{says}\n\n{}", output.render(&claims(&detail)));
        }
        output.one(says.trim_end(), &item)?;
        remark_missing(globals, std::slice::from_ref(lease));
        Ok(Exit::Done)
    })
}

/// Warns of locks that are neither listed nor counted, because their groups did not answer.
fn remark_missing(globals: &Globals, leases: &[LeaseInfo]) {
    let missing = leases.iter().flat_map(|lease| &lease.missing);
    for line in missing_text(missing, "tollgate: there may be more locks") {
        globals.remark(&line);
    }
}

fn claims(detail: &LeaseDetail) -> Table {
    let mut table = Table::new(&["LOCK", "OWNER", "MODE", "TOKEN"]);
    for claim in &detail.claims {
        let token = claim.token.map_or(("waits".to_owned(), Look::Warning), cell);
        table.row(vec![cell(&claim.name), cell(or_dash(&claim.owner)), cell(claim.mode), token]);
    }
    table
}

fn claim_json(claim: &LeaseClaim) -> Value {
    let (permits, of) = permits_json(claim.mode);
    json!({
        "name": claim.name,
        "owner": claim.owner,
        "mode": mode_json(claim.mode),
        "permits": permits,
        "of": of,
        "fencing_token": claim.token.map(text),
    })
}

fn ls(globals: &Globals) -> anyhow::Result<Exit> {
    globals.with_client(async |client| {
        let leases = client.leases().list().all().await.map_err(failed)?;
        let mut table = Table::new(&["LEASE", "CLIENT", "TTL", "ENDS IN", "LOCKS", "ADDRESS"]);
        for lease in &leases {
            table.row(vec![
                (lease.id.to_string(), Look::Strong),
                cell(or_dash(&lease.client_id)),
                cell(span::text(lease.ttl)),
                cell(span::text(lease.remaining)),
                cell(if lease.missing.is_empty() {
                    lease.claims.to_string()
                } else {
                    format!("{}+", lease.claims)
                }),
                cell(or_dash(&lease.address)),
            ]);
        }
        if globals.output.is_table() && table.is_empty() {
            globals.remark("tollgate: no lease lives");
        }
        globals.output.list(&table, leases.iter().map(lease_json).collect())?;
        remark_missing(globals, &leases);
        Ok(Exit::Done)
    })
}
