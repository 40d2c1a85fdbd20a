//! `tollgate watch`: prints changes of locks as they happen, one line each.

use super::acquisition::lock_name;
use super::completions::lock_names;
use crate::exit::{Exit, WithExit};
use crate::failure::failed;
use crate::globals::Globals;
use crate::lease_id;
use crate::output::{self, Output};
use crate::utc;
use crate::view::{base64_unless_text, client_text, mode_json, permits_json, text};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use clap_complete::ArgValueCompleter;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio_stream::StreamExt;
use tollgate_client::{Change, Claim, Client, Event, LeaseId, Mode, Revision, WatchBuilder, WatchItem};
use tollgate_types::escaped;

/// Maximum time to look up the name of a client; below, the maximum number of names that are kept.
const NAME_PATIENCE: Duration = Duration::from_millis(500);
const NAMES_MAX: usize = 1_000;

const HELP: &str = "\
Each line has the time (UTC, when it was told here), the revision, what happened, to which lock and by whom. It ends \
with the line of a terminal; `-o jsonl` has everything.

Goes on until a signal ends it, over failures of nodes without a gap and without a repetition. If the history that \
--from asks for is gone, it says so and ends with 1: read the state with `tollgate get`, and watch from there.

Examples:
  tollgate watch db/migrate
  # all locks below db/
  tollgate watch --prefix db/
  # what becomes of all locks on a lease
  tollgate watch --lease L-0000000000000001
  # everything since revision 1042
  tollgate watch --prefix '' --from 1042
  tollgate watch -o jsonl jobs | jq -r 'select(.event == \"granted\") | .fencing_token'";

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
struct Arguments {
    /// The lock
    #[arg(value_name = "NAME", group = "what", value_parser = lock_name, add = ArgValueCompleter::new(lock_names))]
    name: Option<String>,

    /// All locks whose name begins with this; '' for all
    #[arg(long, value_name = "PREFIX", group = "what")]
    prefix: Option<String>,

    /// All locks that this lease holds or waits for, L- and sixteen hex digits
    #[arg(long, value_name = "ID", group = "what", value_parser = lease_id::parse)]
    lease: Option<LeaseId>,

    /// The first revision to tell of [default: from now on]
    #[arg(long, value_name = "REVISION")]
    from: Option<u64>,
}

pub(crate) fn command() -> Command {
    Arguments::augment_args(Command::new("watch")).about("Follow the changes of locks").after_help(HELP)
}

pub(crate) fn run(globals: &Globals, matches: &ArgMatches) -> anyhow::Result<Exit> {
    let Arguments { name, prefix, lease, from } = Arguments::from_arg_matches(matches)?;
    let from = from.map(Revision::new).transpose()?;
    globals.with_client(async |client| {
        let mut watch = client.watch().prev(true);
        watch = match (&name, lease) {
            (Some(name), _) => watch.name(name.as_str()),
            (None, Some(lease)) => watch.lease(lease),
            (None, None) => watch.prefix(prefix.as_deref().unwrap_or_default()),
        };
        if let Some(from) = from {
            watch = watch.from_revision(from);
        }
        output::while_read(follow(globals, &client, watch)).await
    })
}

/// Prints every change until the watch ends.
async fn follow(globals: &Globals, client: &Client, watch: WatchBuilder) -> anyhow::Result<Exit> {
    let mut items = watch.open().await.map_err(failed)?;
    let mut clients = Clients::default();
    while let Some(item) = items.next().await {
        let event = match item.map_err(failed)? {
            WatchItem::Event(event) => event,
            WatchItem::Compacted { oldest } => {
                let says = format!(
                    "the history before revision {oldest} is gone: watch --from {oldest}, or from now on"
                );
                return Err(WithExit(Exit::Failed, says).into());
            }
            _ => continue,
        };
        if let Some(mut told) = Told::of(&event) {
            told.client = clients.name_of(client, told.lease).await;
            globals.output.next(&told.text(globals.output), &told.json())?;
        }
    }
    Ok(Exit::Done)
}

/// Cache of the names of clients, by lease: events name leases only.
#[derive(Default)]
struct Clients(BTreeMap<LeaseId, Option<String>>);

impl Clients {
    /// Returns the name of the lease's client; `None` for a lease that had ended before the lookup. Each lease is
    /// looked up once: a watch of old history would otherwise fall behind with lookups of leases that are long gone.
    async fn name_of(&mut self, client: &Client, lease: LeaseId) -> Option<String> {
        if let Some(known) = self.0.get(&lease) {
            return known.clone();
        }
        let asked = tokio::time::timeout(NAME_PATIENCE, client.leases().time_to_live(lease)).await;
        let name = asked.ok().and_then(Result::ok).map(|left| left.lease.client_id);
        let name = name.filter(|name| !name.is_empty());
        if self.0.len() >= NAMES_MAX {
            self.0.clear();
        }
        self.0.insert(lease, name.clone());
        name
    }
}

/// An event in the form in which it is printed.
struct Told<'a> {
    at_unix_ms: u64,
    revision: Revision,
    event: &'static str,
    name: &'a str,
    lease: LeaseId,
    client: Option<String>,
    owner: &'a str,
    claim: Option<&'a Claim>,
    reason: Option<String>,
    vacant: bool,
}

impl<'a> Told<'a> {
    fn of(event: &'a Event) -> Option<Told<'a>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_unix_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let (revision, client) = (event.revision, None);
        match &event.change {
            Change::Claim { claim, wait_ended, .. } => {
                let event = match (event.change.granted(), claim.token, claim.wants) {
                    (Some(_), _, _) => "granted",
                    (None, Some(_), Some(_)) => "upgrading",
                    (None, Some(_), None) => "converted",
                    (None, None, _) => "waiting",
                };
                let reason = wait_ended.map(|reason| reason.to_string());
                let (name, lease, owner) = (&claim.name, claim.lease, &claim.owner);
                let (claim, vacant) = (Some(claim), false);
                Some(Told { at_unix_ms, revision, event, name, lease, client, owner, claim, reason, vacant })
            }
            Change::ClaimEnded { name, lease, owner, before, reason, note, vacant, .. } => {
                let held = before.as_ref().is_none_or(|before| before.token.is_some());
                let event = if held { "ended" } else { "left" };
                let note = note.as_ref().map_or_else(String::new, |note| format!(": {note}"));
                let reason = Some(format!("{reason}{note}"));
                let (lease, claim, vacant) = (*lease, before.as_ref(), *vacant);
                Some(Told { at_unix_ms, revision, event, name, lease, client, owner, claim, reason, vacant })
            }
            _ => None,
        }
    }

    /// Returns the line for people: time, revision, event and details. The end of the details is cut if it does not
    /// fit.
    fn text(&self, output: Output) -> String {
        let event = format!("{:<9}", self.event);
        let painted = match self.event {
            "granted" => output.paint.good(&event),
            "ended" => output.paint.warning(&event),
            _ => event.clone(),
        };
        let head = format!("{}  {:>6}  ", utc::time_of_day(self.at_unix_ms), self.revision);
        let line = output.fit(&format!("{head}{event}  {}", self.what()));
        match line.strip_prefix(&head).and_then(|rest| rest.strip_prefix(&event)) {
            Some(rest) => format!("{head}{painted}{rest}"),
            None => line,
        }
    }

    fn what(&self) -> String {
        let name = escaped(self.name);
        let who = client_text(self.client.as_deref().unwrap_or_default(), self.lease);
        let token = self
            .claim
            .and_then(|claim| claim.token)
            .map_or_else(String::new, |token| format!(", token {token}"));
        let mode = self.claim.map(|claim| claim.mode).filter(|mode| *mode != Mode::Exclusive);
        let mode = mode.map_or_else(String::new, |mode| format!(", {mode}"));
        let reason = self.reason.as_ref().map_or_else(String::new, |reason| format!(": {}", escaped(reason)));
        let vacant = if self.vacant { ", now free" } else { "" };
        let why = self.claim.map(|claim| claim.why.as_str()).filter(|why| !why.is_empty());
        let why = why.map_or_else(String::new, |why| format!(", because \"{}\"", escaped(why)));
        format!("{name}  {who}{token}{mode}{reason}{vacant}{why}")
    }

    fn json(&self) -> Value {
        let (permits, of) = self.claim.map_or((Value::Null, Value::Null), |claim| permits_json(claim.mode));
        json!({
            "revision": text(self.revision),
            "event": self.event,
            "name": self.name,
            "lease_id": text(self.lease),
            "client_id": self.client,
            "told_unix_ms": self.at_unix_ms,
            "owner": self.owner,
            "mode": self.claim.map(|claim| mode_json(claim.mode)),
            "permits": permits,
            "of": of,
            "fencing_token": self.claim.and_then(|claim| claim.token).map(text),
            "why": self.claim.map(|claim| claim.why.as_str()),
            "metadata_base64": self.claim.and_then(|claim| base64_unless_text(&claim.metadata)),
            "reason": self.reason,
            "vacant": self.vacant,
        })
    }
}
