//! The verbs about leases that live in one group and are used in another.

use super::aliases::Aliases;
use super::parse::valid;
use super::words::Words;
use tollgate_core::{AckLeaseEnd, AddStub, Command, ConfirmStub, EndStub, LeaseEnd, RegisterStub};
use tollgate_types::{ClientId, GroupId, Revision};

pub(super) fn parse(verb: &str, words: &mut Words, aliases: &mut Aliases) -> Result<Command, String> {
    let lease = aliases.lease(&words.next("the lease")?)?;
    let incarnation = incarnation(words)?;
    Ok(match verb {
        "stub" => Command::AddStub(AddStub {
            lease,
            incarnation,
            client_id: valid(ClientId::new(words.flag("client").unwrap_or_default()))?,
            home: group(words, "home")?,
        }),
        "confirm" => {
            let added = revision(words, "added")?;
            Command::ConfirmStub(ConfirmStub { lease, incarnation, added })
        }
        "end" => Command::EndStub(EndStub { lease, incarnation, reason: reason(words)? }),
        "register" => {
            Command::RegisterStub(RegisterStub { lease, incarnation, group: group(words, "group")? })
        }
        "ack" => Command::AckLeaseEnd(AckLeaseEnd { lease, incarnation, group: group(words, "group")? }),
        _ => return Err(format!("{verb} is no verb")),
    })
}

/// Parses `incarnation=3`.
pub(super) fn incarnation(words: &mut Words) -> Result<Revision, String> {
    revision(words, "incarnation")
}

fn revision(words: &mut Words, flag: &str) -> Result<Revision, String> {
    let number = words.number(flag)?.ok_or_else(|| format!("{flag}= is missing"))?;
    valid(Revision::new(number))
}

fn group(words: &mut Words, flag: &str) -> Result<GroupId, String> {
    words.number(flag)?.map(GroupId::new).ok_or_else(|| format!("{flag}= is missing"))
}

fn reason(words: &mut Words) -> Result<LeaseEnd, String> {
    match words.flag("reason").as_deref() {
        None | Some("expired") => Ok(LeaseEnd::Expired),
        Some("revoked") => Ok(LeaseEnd::Revoked),
        Some("disconnected") => Ok(LeaseEnd::Disconnected),
        Some(other) => Err(format!("no lease ends as {other}")),
    }
}
