//! Makes the entries of a sequence, one by one, looking at the oracle's answers so far.
//!
//! Commands chosen blindly would mostly be refused. So leases, tokens, holders and seqs are mostly drawn from those
//! that exist, and now and then from those that once did. Each sequence has a profile (how long leases live, how much
//! work an entry may do, how many requests may be in flight), because some paths need many similar entries.

mod deadlocks;
mod locks;
mod registers;
mod stubs;

use super::compare::Step;
use super::place::Place;
use super::rng::Rng;
use super::texts;
use crate::oracle::Oracle;
use std::collections::BTreeMap;
use tollgate_core::{
    APPLY_VERSION_SUPPORTED, Applied, Command, Entry, GrantLease, LeaseChoice, ReleaseBy, RenewLeases,
    Renewal, Reply, Request, RevokeLease, Scope, WaitOutcome,
};
use tollgate_types::{
    Address, ClientId, DurationMs, Key, LeaseId, Limit, Limits, Lineage, LogTime, Metadata, Name, Names,
    Owner, Reason, SEQ_RANGES_MAX, Seq, SeqRanges, Slot, Token, Value, WallTime,
};

/// First of the acked seqs that no request ever had: they have many gaps, to meet the bound on ranges.
const SPARSE_FROM: u64 = 1_000;

#[allow(clippy::struct_excessive_bools, reason = "each is drawn by itself")]
pub(super) struct Generator {
    rng: Rng,
    limits: Limits,
    /// Leases live long and time moves slowly, so that queues grow.
    calm: bool,
    /// Acks have many gaps.
    sparse: bool,
    /// Chance, in percent, that a command is about leases over groups. 0 in most sequences, so that the sequences of
    /// those seeds stay as they were.
    stub_chance: u64,
    /// Chance, in percent, that the state goes on as from a backup. 0 in most sequences, as above.
    resume_chance: u64,
    /// Chance, in percent, that a repeat carries the seq of another request. 0 in most sequences, as above.
    reuse_chance: u64,
    /// The group begins with the rules of an older version.
    old: bool,
    /// The limits in force are small ones.
    narrow: bool,
    entries_left: u64,
    at: LogTime,
    names: Vec<Name>,
    keys: Vec<Key>,
    owners: Vec<Owner>,
    leases: Vec<LeaseId>,
    /// Slots in which the group is asked to assign an id.
    lease_slots: Vec<Slot>,
    client_ids: Vec<ClientId>,
    addresses: Vec<Address>,
    metadata: Vec<Metadata>,
    reasons: Vec<Reason>,
    values: Vec<Value>,
    /// The last seq given out, per lease.
    seqs: BTreeMap<LeaseId, u64>,
    /// Commands with a request, to be repeated.
    past: Vec<Command>,
    tokens: Vec<Token>,
}

impl Generator {
    pub(super) fn new(seed: u64) -> Generator {
        let mut rng = Rng::new(seed);
        let reaps_per_entry_max = *rng.pick(&[1, 2, 3, 1_000]);
        let ops_in_flight_per_lease_max = *rng.pick(&[2, 4, 8, 1_024, 1_024, 1_024]);
        let waits_per_lease_max = *rng.pick(&[1, 2, 10_000, 10_000, 10_000]);
        let range_max = *rng.pick(&[1, 2, 10_000, 10_000, 10_000, 10_000, 10_000]);
        let ring_bytes_max = *rng.pick(&[4_096, 4_096, Limits::DEFAULT.ring_bytes_max]);
        let limits = Limits {
            ttl_ms_min: 1,
            reaps_per_entry_max,
            ops_in_flight_per_lease_max,
            waits_per_lease_max,
            range_max,
            ring_bytes_max,
            ..Limits::DEFAULT
        };
        Generator {
            limits,
            calm: rng.percent(75),
            sparse: rng.percent(5),
            stub_chance: if matches!(seed % 5, 2 | 4) { 25 } else { 0 },
            resume_chance: if seed % 10 == 8 { 3 } else { 0 },
            reuse_chance: if seed % 3 == 1 { 25 } else { 0 },
            old: Place::is_old(seed),
            narrow: false,
            entries_left: rng.between(30, 120),
            at: LogTime::ZERO,
            names: few_names(&mut rng),
            keys: texts::keys(),
            owners: texts::owners(),
            leases: texts::lease_ids(),
            lease_slots: Place::alone().lease_slots(),
            client_ids: texts::client_ids(),
            addresses: texts::addresses(),
            metadata: texts::metadata(),
            reasons: texts::reasons(),
            values: texts::values(),
            seqs: BTreeMap::new(),
            past: Vec::new(),
            tokens: Vec::new(),
            rng,
        }
    }

    /// The same generator for a state at this place.
    pub(super) fn at(mut self, place: &Place) -> Generator {
        if !place.is_alone() {
            (self.names, self.keys) = (place.names(), place.keys());
            (self.leases, self.lease_slots) = (place.lease_ids(), place.lease_slots());
        }
        self
    }

    /// The same generator for a state that exists already, and another number of entries, without restores in between.
    pub(super) fn going_on(mut self, limits: &Limits, at: LogTime, entries: u64) -> Generator {
        (self.limits, self.at, self.entries_left) = (limits.clone(), at, entries);
        self.resume_chance = 0;
        self
    }

    /// The limits that the sequence begins with.
    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The next entry, or none at the end of the sequence.
    pub(super) fn next_step(&mut self, oracle: &Oracle) -> Option<Step> {
        self.entries_left = self.entries_left.checked_sub(1)?;
        self.pass_time(oracle);
        let grant_chance = [90, 40, 0, 0][oracle.home_lease_ids().len().min(3)];
        let repeat = !self.past.is_empty() && self.rng.percent(9);
        let mut command = if self.old && self.rng.percent(3) {
            let step_by_step = oracle.version() == 1 && self.entries_left.is_multiple_of(2);
            Command::RaiseApplyVersion(if step_by_step { 2 } else { APPLY_VERSION_SUPPORTED })
        } else if repeat {
            self.repeat()
        } else if self.rng.percent(grant_chance) {
            self.grant_lease()
        } else {
            let command = self.command(oracle);
            self.part(command)
        };
        if oracle.version() < 3 {
            // A proposer fits its commands likewise. The rules ignore the other fields that a format has no place for.
            command.fit_into(2);
        }
        let restore = [self.restore(), self.restore()];
        let resume = self.resume();
        // Any number: nothing may depend on it.
        let wall = WallTime::from_unix_ms(self.entries_left.wrapping_mul(7_919) % 1_000);
        Some(Step { entry: Entry { at: self.at, wall, command }, repeat, restore, resume })
    }

    /// Records the answer to an entry.
    pub(super) fn learn(&mut self, step: &Step, applied: &Applied) {
        match &applied.reply {
            Reply::Acquired { token, .. } => self.tokens.push(*token),
            Reply::LeaseGranted { lease, .. } if !self.leases.contains(lease) => self.leases.push(*lease),
            _ => {}
        }
        for resolution in &applied.resolved {
            if let WaitOutcome::Granted { token, .. } = resolution.outcome {
                self.tokens.push(token);
            }
        }
        if !step.repeat && request_of(&step.entry.command).is_some() {
            self.past.push(step.entry.command.clone());
        }
    }

    fn pass_time(&mut self, oracle: &Oracle) {
        let jump = if self.calm { 1 } else { 5 };
        let ms = match self.rng.weighted(&[45, 40, 8, jump, 4]) {
            0 => 0,
            1 => self.rng.between(1, 3),
            2 => self.rng.between(4, 15),
            3 => self.rng.between(20, 100),
            // Up to the very moment at which something is due.
            _ => oracle.next_deadline().map_or(0, |next| self.at.until(next).ms().min(100)),
        };
        self.at = self.at.after(DurationMs::from_ms(ms));
    }

    fn resume(&mut self) -> Option<(u64, DurationMs)> {
        if self.resume_chance == 0 || !self.rng.percent(self.resume_chance) {
            return None;
        }
        let grace = *self.rng.pick(&[0, 1, 10, 40]);
        Some((self.rng.below(3) * self.rng.between(1, 1 << 33), DurationMs::from_ms(grace)))
    }

    fn restore(&mut self) -> Option<usize> {
        self.rng
            .percent(3)
            .then(|| usize::try_from(*self.rng.pick(&[64, 200, 1_000, 100_000])).expect("small"))
    }

    fn command(&mut self, oracle: &Oracle) -> Command {
        if self.narrow && self.rng.percent(20) {
            self.narrow = false;
            return Command::SetLimits(Box::new(self.limits.clone()));
        }
        if self.stub_chance > 0 && self.rng.percent(self.stub_chance) {
            let breaks = self.rng.percent(15);
            return if breaks { self.end_deadlock(oracle) } else { self.stub_command(oracle) };
        }
        match self.rng.weighted(&[380, 80, 110, 70, 25, 40, 70, 12, 80, 25, 22, 35, 2]) {
            0 => self.acquire(oracle),
            1 => self.release(oracle),
            2 => self.convert(oracle),
            3 => self.cancel(oracle),
            4 => self.force(oracle),
            5 => self.grant_lease(),
            6 => self.renew(oracle),
            7 => {
                let lease = self.lease(oracle);
                let disconnected = self.rng.percent(50).then(|| self.rng.pick(&self.addresses).clone());
                Command::RevokeLease(RevokeLease { lease, disconnected })
            }
            8 => self.txn(oracle),
            9 => Command::Tick,
            10 => self.set_limits(),
            11 => self.proclaim(oracle),
            _ if self.reuse_chance > 0 && self.rng.percent(60) => {
                Command::SetLineage(Lineage::new(self.rng.between(1, 3)).expect("above 0"))
            }
            _ => Command::RaiseApplyVersion(u32::try_from(self.rng.below(2)).expect("below 2")),
        }
    }

    /// Repeats an old request: as it was, or with other acks, at any distance.
    fn repeat(&mut self) -> Command {
        let last = self.past.len() as u64 - 1;
        let back =
            if self.rng.percent(60) { self.rng.below(last.min(4) + 1) } else { self.rng.below(last + 1) };
        let mut command = self.past[usize::try_from(last - back).expect("below a length")].clone();
        if self.rng.percent(40)
            && let Some((lease, request)) = request_of_mut(&mut command)
        {
            request.acked = self.acked(lease);
        }
        if self.reuse_chance > 0 && self.rng.percent(self.reuse_chance) {
            self.reuse(&mut command);
        }
        command
    }

    /// Gives a command the seq of another, or makes its request a part of another one, or a whole one.
    fn reuse(&mut self, command: &mut Command) {
        let at = self.rng.below(self.past.len() as u64);
        let other = &mut self.past[usize::try_from(at).expect("below a length")];
        let other = request_of_mut(other).map(|(lease, request)| (lease, request.seq));
        let names = few_names(&mut self.rng);
        let Some((lease, request)) = request_of_mut(command) else { return };
        match other {
            Some((other, seq)) if other == lease && seq != request.seq => request.seq = seq,
            _ if request.scope == Scope::Whole => {
                request.scope = Scope::PartOf(Box::new(Names::new(names).expect("each once")));
            }
            _ => request.scope = Scope::Whole,
        }
    }

    /// Now and then makes the command one group's part of a request over several groups.
    fn part(&mut self, mut command: Command) -> Command {
        if self.reuse_chance > 0 && self.rng.percent(8) {
            let names = few_names(&mut self.rng);
            if let Some((_, request)) = request_of_mut(&mut command) {
                request.scope = Scope::PartOf(Box::new(Names::new(names).expect("each once")));
            }
        }
        command
    }

    /// A lease that lives, mostly.
    fn lease(&mut self, oracle: &Oracle) -> LeaseId {
        let living = oracle.lease_ids();
        if living.is_empty() || self.rng.percent(4) {
            *self.rng.pick(&self.leases)
        } else {
            *self.rng.pick(&living)
        }
    }

    fn owner(&mut self) -> Owner {
        self.owners[self.rng.weighted(&[30, 40, 30])].clone()
    }

    fn request(&mut self, lease: LeaseId) -> Option<Request> {
        if self.rng.percent(35) {
            return None;
        }
        let gap = if self.rng.percent(10) { self.rng.between(1, 3) } else { 0 };
        let mut acked = self.acked(lease);
        let last = self.seqs.entry(lease).or_default();
        *last += 1 + gap;
        let seq = seq(*last);
        if self.rng.percent(1) {
            acked.insert(seq);
        }
        Some(Request { seq, acked, scope: Scope::Whole })
    }

    /// Mostly nothing, else a part of the seqs given out.
    fn acked(&mut self, lease: LeaseId) -> SeqRanges {
        if self.sparse && self.rng.percent(40) {
            let base = SPARSE_FROM + self.rng.below(200);
            let ranges = (0..SEQ_RANGES_MAX as u64).map(|i| (base + 2 * i, base + 2 * i));
            return SeqRanges::new(ranges.collect()).expect("sorted with gaps");
        }
        let last = self.seqs.get(&lease).copied().unwrap_or(0);
        // If few requests may be in flight, a client that never acks would soon be refused everything.
        let idle_chance = if self.limits.ops_in_flight_per_lease_max < 10 { 45 } else { 80 };
        if last == 0 || self.rng.percent(idle_chance) {
            return SeqRanges::default();
        }
        let mut acked = SeqRanges::default();
        if self.rng.percent(60) {
            let to = self.rng.between(1, last);
            acked.merge(&SeqRanges::new(vec![(1, to)]).expect("one good range"));
        } else {
            for _ in 0..self.rng.between(1, 3) {
                acked.insert(seq(self.rng.between(1, last)));
            }
        }
        acked
    }

    fn grant_lease(&mut self) -> Command {
        let id = if self.rng.percent(80) {
            LeaseChoice::Chosen(*self.rng.pick(&self.leases))
        } else {
            let one = self.lease_slots.len() == 1;
            let slot = if one { self.lease_slots[0] } else { *self.rng.pick(&self.lease_slots) };
            LeaseChoice::Assigned(slot)
        };
        let ttl = match (self.rng.percent(2), self.calm) {
            (true, _) => *self.rng.pick(&[0, 700_000]),
            (false, true) => *self.rng.pick(&[20, 60, 200, 1_000]),
            (false, false) => *self.rng.pick(&[1, 3, 8, 20, 50]),
        };
        Command::GrantLease(GrantLease {
            id,
            ttl: DurationMs::from_ms(ttl),
            client_id: {
                let silent = if self.reuse_chance > 0 { 20 } else { 0 };
                self.client_ids[self.rng.weighted(&[80 - silent, 20, silent])].clone()
            },
            address: self.rng.pick(&self.addresses).clone(),
            revoke_on_disconnect: self.rng.percent(50),
        })
    }

    fn renew(&mut self, oracle: &Oracle) -> Command {
        let count = self.rng.between(1, 4);
        let renewals = (0..count).map(|_| {
            let lease = self.lease(oracle);
            let address = self.rng.percent(20).then(|| self.rng.pick(&self.addresses).clone());
            Renewal { lease, address, acked: self.acked(lease) }
        });
        Command::RenewLeases(RenewLeases { renewals: renewals.collect() })
    }

    /// Some small limits for a while, or limits that no group can have.
    fn set_limits(&mut self) -> Command {
        let mut limits = self.limits.clone();
        if self.rng.percent(15) {
            limits.set(*self.rng.pick(Limit::ALL), u64::MAX);
            return Command::SetLimits(Box::new(limits));
        }
        self.narrow = true;
        for _ in 0..self.rng.between(1, 4) {
            let limit = *self.rng.pick(Limit::ALL);
            let least = limit.range().0;
            let value = match limit {
                // A ttl range that leaves room, a ring that is not always empty, and deadlocks that are always found.
                Limit::TtlMin => 5,
                Limit::TtlMax => 10,
                Limit::DeadlockVisits => continue,
                _ => least + self.rng.below(3),
            };
            limits.set(limit, value);
        }
        Command::SetLimits(Box::new(limits))
    }
}

/// Some of the names, at least two: the fewer, the deeper the queues.
fn few_names(rng: &mut Rng) -> Vec<Name> {
    let mut names = texts::names();
    for _ in 0..rng.below(4) {
        let at = rng.below(names.len() as u64);
        names.remove(usize::try_from(at).expect("below a length"));
    }
    names
}

fn seq(number: u64) -> Seq {
    Seq::new(number).expect("small and above 0")
}

/// The lease and the seq of a command that can be repeated, and the command as a retry sends it: without acks.
pub(crate) fn repeat_of(command: &Command) -> Option<(LeaseId, Seq, Command)> {
    let mut again = command.clone();
    let (lease, request) = request_of_mut(&mut again)?;
    request.acked = SeqRanges::default();
    let seq = request.seq;
    Some((lease, seq, again))
}

fn request_of(command: &Command) -> Option<&Request> {
    match command {
        Command::AcquireLock(acquire) => acquire.request.as_ref(),
        Command::ConvertLock(convert) => convert.request.as_ref(),
        Command::Proclaim(proclaim) => proclaim.request.as_ref(),
        Command::ReleaseLock(release) => match &release.by {
            ReleaseBy::Holder { request, .. } => request.as_ref(),
            ReleaseBy::Token(_) => None,
        },
        Command::Txn(txn) => txn.request.as_ref().map(|(_, request)| request),
        _ => None,
    }
}

pub(crate) fn request_of_mut(command: &mut Command) -> Option<(LeaseId, &mut Request)> {
    match command {
        Command::AcquireLock(acquire) => Some((acquire.lease, acquire.request.as_mut()?)),
        Command::ConvertLock(convert) => Some((convert.lease, convert.request.as_mut()?)),
        Command::Proclaim(proclaim) => Some((proclaim.lease, proclaim.request.as_mut()?)),
        Command::ReleaseLock(release) => match &mut release.by {
            ReleaseBy::Holder { lease, request, .. } => Some((*lease, request.as_mut()?)),
            ReleaseBy::Token(_) => None,
        },
        Command::Txn(txn) => txn.request.as_mut().map(|(lease, request)| (*lease, request)),
        _ => None,
    }
}
