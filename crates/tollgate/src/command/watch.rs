//! `tollgate watch`: changes of locks, one line each, as they happen.

use super::completions::lock_names;
use crate::exit::{Exit, WithExit};
use crate::failure::failed;
use crate::globals::Globals;
use crate::output::Paint;
use crate::view::{mode_json, permits_json, text};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use clap_complete::ArgValueCompleter;
use serde_json::{Value, json};
use tokio_stream::StreamExt;
use tollgate_client::{Change, Claim, Event, Revision, WatchItem};

const HELP: &str = "\
Goes on until a signal ends it, over failures of nodes without a gap and without a repetition. If the history that \
--from asks for is gone, it says so and ends with 1: read the state with `tollgate get`, and watch from there.

Examples:
  tollgate watch db/migrate
  tollgate watch --prefix db/                       all locks below db/
  tollgate watch --prefix '' --from 1042            everything since revision 1042
  tollgate watch -o jsonl jobs | jq -r 'select(.event == \"granted\") | .fencing_token'";

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
struct Arguments {
    /// The lock
    #[arg(value_name = "NAME", group = "what", add = ArgValueCompleter::new(lock_names))]
    name: Option<String>,

    /// All locks whose name begins with this; '' for all
    #[arg(long, value_name = "PREFIX", group = "what")]
    prefix: Option<String>,

    /// The first revision to tell of [default: from now on]
    #[arg(long, value_name = "REVISION")]
    from: Option<u64>,
}

pub(crate) fn command() -> Command {
    Arguments::augment_args(Command::new("watch")).about("Follow the changes of locks").after_help(HELP)
}

pub(crate) fn run(globals: &Globals, matches: &ArgMatches) -> anyhow::Result<Exit> {
    let Arguments { name, prefix, from } = Arguments::from_arg_matches(matches)?;
    let from = from.map(Revision::new).transpose()?;
    globals.with_client(async |client| {
        let mut watch = client.watch().prev(true);
        watch = match (&name, &prefix) {
            (Some(name), _) => watch.name(name.as_str()),
            (None, prefix) => watch.prefix(prefix.as_deref().unwrap_or_default()),
        };
        if let Some(from) = from {
            watch = watch.from_revision(from);
        }
        let mut items = watch.open().await.map_err(failed)?;
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
            if let Some(told) = Told::of(&event) {
                globals.output.next(&told.text(globals.output.paint), &told.json())?;
            }
        }
        Ok(Exit::Done)
    })
}

/// What happened to whom.
struct Told<'a> {
    revision: Revision,
    event: &'static str,
    name: &'a str,
    lease: String,
    owner: &'a str,
    claim: Option<&'a Claim>,
    reason: Option<String>,
    vacant: bool,
}

impl<'a> Told<'a> {
    fn of(event: &'a Event) -> Option<Told<'a>> {
        let revision = event.revision;
        match &event.change {
            Change::Claim { claim, wait_ended, .. } => {
                let event = match (event.change.granted(), claim.token, claim.wants) {
                    (Some(_), _, _) => "granted",
                    (None, Some(_), Some(_)) => "upgrading",
                    (None, Some(_), None) => "converted",
                    (None, None, _) => "waiting",
                };
                let reason = wait_ended.map(|reason| reason.to_string());
                let (name, lease, owner) = (&claim.name, claim.lease.to_string(), &claim.owner);
                Some(Told { revision, event, name, lease, owner, claim: Some(claim), reason, vacant: false })
            }
            Change::ClaimEnded { name, lease, owner, before, reason, note, vacant, .. } => {
                let held = before.as_ref().is_none_or(|before| before.token.is_some());
                let event = if held { "ended" } else { "left" };
                let note = note.as_ref().map_or_else(String::new, |note| format!(": {note}"));
                let reason = Some(format!("{reason}{note}"));
                let (lease, claim, vacant) = (lease.to_string(), before.as_ref(), *vacant);
                Some(Told { revision, event, name, lease, owner, claim, reason, vacant })
            }
            _ => None,
        }
    }

    fn text(&self, paint: Paint) -> String {
        let event = format!("{:<9}", self.event);
        let event = match self.event {
            "granted" => paint.good(&event),
            "ended" => paint.warning(&event),
            _ => event,
        };
        let token = self
            .claim
            .and_then(|claim| claim.token)
            .map_or_else(String::new, |token| format!(" token {token}"));
        let mode = self.claim.map_or_else(String::new, |claim| format!(" {}", claim.mode));
        let owner = if self.owner.is_empty() { String::new() } else { format!(" owner {}", self.owner) };
        let why = self.claim.map(|claim| claim.why.as_str()).filter(|why| !why.is_empty());
        let why = why.map_or_else(String::new, |why| format!(" because \"{why}\""));
        let reason = self.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
        let vacant = if self.vacant { ", now free" } else { "" };
        let (revision, name, lease) = (self.revision, paint.strong(self.name), &self.lease);
        format!("{revision:>8}  {event}  {name}{mode}{token}  lease {lease}{owner}{why}{reason}{vacant}")
    }

    fn json(&self) -> Value {
        let (permits, of) = self.claim.map_or((Value::Null, Value::Null), |claim| permits_json(claim.mode));
        json!({
            "revision": text(self.revision),
            "event": self.event,
            "name": self.name,
            "lease_id": self.lease,
            "owner": self.owner,
            "mode": self.claim.map(|claim| mode_json(claim.mode)),
            "permits": permits,
            "of": of,
            "fencing_token": self.claim.and_then(|claim| claim.token).map(text),
            "why": self.claim.map(|claim| claim.why.as_str()),
            "reason": self.reason,
            "vacant": self.vacant,
        })
    }
}
