//! Turns one line of a script into a command for the log, or a read.

use super::aliases::Aliases;
use super::read::Read;
use super::stubs;
use super::txn;
use super::words::{Words, milliseconds};
use tollgate_core::{
    AcquireLock, CancelTarget, CancelWait, Command, ConvertLock, EndDeadlock, Entry, ForceRelease,
    GrantLease, LeaseChoice, Proclaim, ReleaseBy, ReleaseLock, RenewLeases, Renewal, Request, RevokeLease,
    Scope, Wait,
};
use tollgate_types::{
    Address, ClientId, DurationMs, Invalid, LeaseId, Limit, Limits, Lineage, Metadata, Mode, Name, Names,
    Owner, Reason, Revision, Seq, SeqRanges, Slot, Token, Value,
};

/// Content of a line.
pub(super) enum Step {
    /// An entry of the log. `binds` is the alias of the lease that the entry makes, if the group picks the id.
    Apply { entry: Entry, binds: Option<String> },
    /// A read of the state, which takes no entry and no time.
    Read(Read),
}

/// Parses a line. `limits` are the limits in force: `limit` changes one of them.
pub(super) fn line(text: &str, aliases: &mut Aliases, limits: &Limits) -> Result<Step, String> {
    let mut words = Words::of(text)?;
    let verb = words.next("a verb")?;
    if let Some(read) = Read::parse(&verb, &mut words, aliases)? {
        if words.at.is_some() {
            return Err(format!("{verb} reads: it takes no @TIME"));
        }
        words.finish()?;
        return Ok(Step::Read(read));
    }
    let at = words.at.ok_or("@TIME is missing")?;
    let mut binds = None;
    let command = match verb.as_str() {
        "lease" => lease(&mut words, aliases, &mut binds)?,
        "limit" => limit(&mut words, limits)?,
        _ => command(&verb, &mut words, aliases)?,
    };
    words.finish()?;
    Ok(Step::Apply { entry: Entry::new(at, command), binds })
}

fn command(verb: &str, words: &mut Words, aliases: &mut Aliases) -> Result<Command, String> {
    match verb {
        "tick" => Ok(Command::Tick),
        "renew" => renew(words, aliases),
        "revoke" => revoke(words, aliases),
        "lock" => lock(words, aliases, true),
        "try" => lock(words, aliases, false),
        "unlock" => unlock(words, aliases),
        "convert" => convert(words, aliases),
        "cancel" => cancel(words, aliases),
        "force" => force(words),
        "proclaim" => proclaim(words, aliases),
        "end-deadlock" => end_deadlock(words),
        "put" | "get" | "delete" | "txn" => txn::parse(verb, words, aliases).map(Command::Txn),
        "version" => version(words),
        "lineage" => lineage(words),
        "stub" | "confirm" | "end" | "register" | "ack" => stubs::parse(verb, words, aliases),
        _ => Err(format!("{verb} is no verb")),
    }
}

/// The lease and seq that identify a repeat of this command.
pub(super) fn request_of(command: &Command) -> Option<(LeaseId, Seq)> {
    let (lease, request) = match command {
        Command::AcquireLock(acquire) => (acquire.lease, &acquire.request),
        Command::ConvertLock(convert) => (convert.lease, &convert.request),
        Command::Proclaim(proclaim) => (proclaim.lease, &proclaim.request),
        Command::ReleaseLock(ReleaseLock { by: ReleaseBy::Holder { lease, request, .. }, .. }) => {
            (*lease, request)
        }
        Command::Txn(txn) => return txn.request.as_ref().map(|(lease, request)| (*lease, request.seq)),
        _ => return None,
    };
    request.as_ref().map(|request| (lease, request.seq))
}

/// Turns the refusal of a value into the text of an error.
pub(super) fn valid<T>(value: Result<T, Invalid>) -> Result<T, String> {
    value.map_err(|e| e.to_string())
}

fn lease(words: &mut Words, aliases: &mut Aliases, binds: &mut Option<String>) -> Result<Command, String> {
    let alias = words.next("the lease's alias")?;
    let id = if let Some(slot) = words.number("assign")? {
        *binds = Some(alias);
        LeaseChoice::Assigned(valid(Slot::new(slot))?)
    } else {
        if let Some(id) = words.number("id")? {
            aliases.bind(&alias, valid(LeaseId::new(id))?);
        }
        LeaseChoice::Chosen(aliases.lease(&alias)?)
    };
    Ok(Command::GrantLease(GrantLease {
        id,
        ttl: words.duration("ttl")?.ok_or("ttl= is missing")?,
        client_id: valid(ClientId::new(words.flag("client").unwrap_or_default()))?,
        address: valid(Address::new(words.flag("addr").unwrap_or_default()))?,
        revoke_on_disconnect: words.has("revoke-on-disconnect"),
    }))
}

fn limit(words: &mut Words, limits: &Limits) -> Result<Command, String> {
    let setting = words.next("the limit")?;
    let (name, value) = setting.split_once('=').ok_or("a limit is NAME=VALUE")?;
    let limit =
        Limit::ALL.iter().find(|limit| limit.name() == name).ok_or(format!("no limit is called {name}"))?;
    let mut limits = limits.clone();
    limits.set(*limit, value.parse().map_err(|_| format!("{value} is no number"))?);
    Ok(Command::SetLimits(Box::new(limits)))
}

fn renew(words: &mut Words, aliases: &mut Aliases) -> Result<Command, String> {
    let leases = words.next("the leases")?;
    let acked = acked(words)?;
    let address = words.flag("addr").map(|address| valid(Address::new(address))).transpose()?;
    let renewal =
        |alias| Ok(Renewal { lease: aliases.lease(alias)?, address: address.clone(), acked: acked.clone() });
    let renewals: Result<Vec<Renewal>, String> = leases.split(',').map(renewal).collect();
    Ok(Command::RenewLeases(RenewLeases { renewals: renewals? }))
}

fn revoke(words: &mut Words, aliases: &mut Aliases) -> Result<Command, String> {
    let lease = aliases.lease(&words.next("the lease")?)?;
    let from = words.flag("addr").map(|address| valid(Address::new(address))).transpose()?;
    let disconnected = words.has("disconnected").then(|| from.unwrap_or(Address::NONE));
    Ok(Command::RevokeLease(RevokeLease { lease, disconnected }))
}

fn lock(words: &mut Words, aliases: &mut Aliases, may_wait: bool) -> Result<Command, String> {
    let names = names(words)?;
    Ok(Command::AcquireLock(AcquireLock {
        names,
        lease: aliases.lease(&words.required("lease")?)?,
        owner: owner(words)?,
        mode: mode(words)?.unwrap_or(Mode::Exclusive),
        wait: if may_wait { wait(words)? } else { Wait::No },
        lock_delay: words.duration("delay")?.unwrap_or(DurationMs::ZERO),
        max_hold: words.duration("max-hold")?,
        metadata: valid(Metadata::new(words.flag("why").unwrap_or_default()))?,
        value: words.flag("value").map(|value| valid(Value::new(value))).transpose()?,
        attended: words.has("attended"),
        request: request(words)?,
    }))
}

fn unlock(words: &mut Words, aliases: &mut Aliases) -> Result<Command, String> {
    let names = names(words)?;
    let token = token(words)?;
    let by = match (words.flag("lease"), token) {
        (Some(alias), token) => ReleaseBy::Holder {
            lease: aliases.lease(&alias)?,
            owner: owner(words)?,
            token,
            request: request(words)?,
        },
        (None, Some(token)) => ReleaseBy::Token(token),
        (None, None) => return Err("an unlock needs lease= or token=".into()),
    };
    Ok(Command::ReleaseLock(ReleaseLock { names, by }))
}

fn convert(words: &mut Words, aliases: &mut Aliases) -> Result<Command, String> {
    let names = names(words)?;
    Ok(Command::ConvertLock(ConvertLock {
        names,
        lease: aliases.lease(&words.required("lease")?)?,
        owner: owner(words)?,
        mode: mode(words)?.ok_or("mode= is missing")?,
        wait: wait(words)?,
        attended: words.has("attended"),
        request: request(words)?,
    }))
}

fn cancel(words: &mut Words, aliases: &mut Aliases) -> Result<Command, String> {
    let lease = aliases.lease(&words.required("lease")?)?;
    let release_if_granted = words.has("release");
    let acked = acked(words)?;
    let asks_max = words.number("asks-max")?;
    let target = if let Some(seq) = words.number("seq")? {
        let seq = valid(Seq::new(seq))?;
        match words.next_plain() {
            Some(name) => CancelTarget::SeqOn { seq, name: valid(Name::new(name))? },
            None => CancelTarget::Seq(seq),
        }
    } else {
        let (wait, owner) = (words.number("queued-at")?, owner(words)?);
        let name = valid(Name::new(words.next("a name or seq=")?))?;
        match wait {
            Some(wait) => CancelTarget::Wait { name, create_revision: valid(Revision::new(wait))? },
            None => CancelTarget::Waiter { name, owner },
        }
    };
    Ok(Command::CancelWait(CancelWait { lease, target, release_if_granted, asks_max, acked }))
}

fn end_deadlock(words: &mut Words) -> Result<Command, String> {
    let name = valid(Name::new(words.next("the name")?))?;
    let queued_at: u64 = words.number("queued-at")?.ok_or("queued-at= is missing")?;
    let blocker = token(words)?.ok_or("token= is missing")?;
    Ok(Command::EndDeadlock(EndDeadlock { name, create_revision: valid(Revision::new(queued_at))?, blocker }))
}

fn force(words: &mut Words) -> Result<Command, String> {
    Ok(Command::ForceRelease(ForceRelease {
        name: valid(Name::new(words.next("the name")?))?,
        token: token(words)?.ok_or("token= is missing")?,
        reason: valid(Reason::new(words.flag("reason").unwrap_or_default()))?,
    }))
}

fn proclaim(words: &mut Words, aliases: &mut Aliases) -> Result<Command, String> {
    Ok(Command::Proclaim(Proclaim {
        name: valid(Name::new(words.next("the name")?))?,
        lease: aliases.lease(&words.required("lease")?)?,
        owner: owner(words)?,
        token: token(words)?.ok_or("token= is missing")?,
        value: valid(Value::new(words.required("value")?))?,
        request: request(words)?,
    }))
}

fn version(words: &mut Words) -> Result<Command, String> {
    let number = words.next("the version")?;
    Ok(Command::RaiseApplyVersion(number.parse().map_err(|_| format!("{number} is no number"))?))
}

fn lineage(words: &mut Words) -> Result<Command, String> {
    let number = words.next("the lineage")?;
    let lineage = number.parse().ok().and_then(Lineage::new);
    Ok(Command::SetLineage(lineage.ok_or_else(|| format!("{number} is no lineage"))?))
}

fn names(words: &mut Words) -> Result<Names, String> {
    several(&words.next("the name")?)
}

fn several(names: &str) -> Result<Names, String> {
    let names: Result<Vec<Name>, String> = names.split(',').map(|name| valid(Name::new(name))).collect();
    valid(Names::new(names?))
}

fn owner(words: &mut Words) -> Result<Owner, String> {
    valid(Owner::new(words.flag("owner").unwrap_or_default()))
}

fn token(words: &mut Words) -> Result<Option<Token>, String> {
    words.number("token")?.map(|token| valid(Token::new(token))).transpose()
}

fn wait(words: &mut Words) -> Result<Wait, String> {
    Ok(match words.flag("wait") {
        Some(text) => Wait::For(DurationMs::from_ms(milliseconds(&text)?)),
        None if words.has("wait") => Wait::Forever,
        None => Wait::No,
    })
}

fn mode(words: &mut Words) -> Result<Option<Mode>, String> {
    let Some(text) = words.flag("mode") else { return Ok(None) };
    if let Some(permits) = text.strip_prefix("permit-") {
        let number = |text: &str| text.parse().map_err(|_| format!("{text} is no number of permits"));
        let (n, of) = permits.split_once('/').ok_or("permits are written permit-1/3")?;
        return valid(Mode::permit(number(n)?, number(of)?)).map(Some);
    }
    let plain = Mode::PLAIN.into_iter().find(|mode| mode.to_string() == text);
    plain.map(Some).ok_or(format!("no mode is called {text}"))
}

/// Parses `seq=` and `acked=` of a request.
pub(super) fn request(words: &mut Words) -> Result<Option<Request>, String> {
    let seq = words.number("seq")?;
    let acked = acked(words)?;
    let scope = match words.flag("part-of") {
        Some(names) => Scope::PartOf(Box::new(several(&names)?)),
        None => Scope::Whole,
    };
    match seq {
        Some(seq) => Ok(Some(Request { seq: valid(Seq::new(seq))?, acked, scope })),
        None if acked.is_empty() => Ok(None),
        None => Err("acked= goes with seq=".into()),
    }
}

/// Parses `acked=1-3,5`.
fn acked(words: &mut Words) -> Result<SeqRanges, String> {
    let Some(text) = words.flag("acked") else { return Ok(SeqRanges::default()) };
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text} is no seq"));
    let range = |range: &str| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        Ok((number(from)?, number(to)?))
    };
    let ranges: Result<Vec<(u64, u64)>, String> = text.split(',').map(range).collect();
    valid(SeqRanges::new(ranges?))
}
