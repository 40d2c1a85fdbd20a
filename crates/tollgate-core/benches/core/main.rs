//! Benchmarks of the core: `make bench-core`.
//!
//! Times are wall clock on one thread, each measured several times: median, and the spread in brackets. Memory is the
//! growth of a fresh process. A figure is printed beside its target if it has one. Arguments pick single measurements:
//! `cargo bench -p tollgate-core --bench core -- pairs hand-off`.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs, reason = "a report for people")]

mod load;
mod memory;
mod report;

use load::{acquire, grant, name, release, tick};
use report::{Line, spread};
use std::hint::black_box;
use std::time::{Duration, Instant};
use tollgate_core::{
    Command, Entry, Event, RenewLeases, Renewal, Reply, RevokeLease, SnapshotReader, State, Wait, Watch,
    WatchIndex, decode_entry, encode_entry,
};
use tollgate_types::{LeaseId, Limits, LogTime, Name, SeqRanges};

const ROUNDS: usize = 9;
const MILLION: u64 = 1_000_000;

fn main() {
    if let Some(held) = memory::asked_of_child() {
        return memory::report_child(&held);
    }
    println!("core benchmark: medians of {ROUNDS} rounds [least .. most]\n");
    let all: [(&str, fn()); 10] = [
        ("pairs", || pairs(1_000, "0.7 us")),
        ("pairs-1m", || pairs(MILLION, "1.5 us")),
        ("churn", || churn(MILLION)),
        ("hand-off", hand_off),
        ("leases-end", leases_end_together),
        ("lease-ends", one_lease_ends),
        ("snapshot", snapshot),
        ("renewals", renewals),
        ("bytes", bytes),
        ("memory", memory::report),
    ];
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    for (name, run) in all {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            run();
        }
    }
}

/// Measures the codec, and the search for the watches of an event.
fn bytes() {
    codec();
    watches();
}

/// A state in which one lease holds `held` locks, and a second lease to work with.
fn with_held(held: u64) -> (State, LeaseId) {
    let limits = Limits { claims_per_lease_max: 100_000_000, ..Limits::DEFAULT };
    let mut state = State::new(limits);
    let (holder, worker) = (LeaseId::new(1).unwrap(), LeaseId::new(2).unwrap());
    load::apply(&mut state, grant(holder));
    load::apply(&mut state, grant(worker));
    for i in 0..held {
        let reply = load::apply(&mut state, acquire(name(i), holder, i, Wait::No, load::request(i)));
        assert!(matches!(reply, Reply::Acquired { .. }));
    }
    (state, worker)
}

/// Applies pairs of commands and returns the time per pair. The pairs are made a few at a time, outside the clock, so
/// that they come from a warm cache as they would from the decoder.
fn time_pairs(state: &mut State, pairs: u64, mut make: impl FnMut(u64) -> (Command, Command)) -> Duration {
    const BATCH: u64 = 200;
    let mut spent = Duration::ZERO;
    for batch in 0..pairs / BATCH {
        let commands: Vec<(Command, Command)> = (batch * BATCH..(batch + 1) * BATCH).map(&mut make).collect();
        let start = Instant::now();
        for (first, second) in commands {
            let first = load::apply(state, first);
            let second = load::apply(state, second);
            let (acquired, released) =
                (matches!(first, Reply::Acquired { .. }), matches!(first, Reply::Released { .. }));
            assert!(acquired != released && !matches!(second, Reply::Rejected(_)), "{first:?} {second:?}");
        }
        spent += start.elapsed();
    }
    spent / u32::try_from(pairs).unwrap()
}

/// Lock and unlock of a free name, with a fresh owner and seqs, as a session does it.
fn pairs(held: u64, target: &str) {
    let (mut state, worker) = with_held(held);
    let mut turn = 0;
    let per_pair = spread(ROUNDS, || {
        time_pairs(&mut state, 100_000, |_| {
            turn += 1;
            load::random_work(2 * turn, worker, MILLION)
        })
    });
    Line::new(format!("lock + unlock, {held} held")).time(&per_pair).target(target).print();
}

/// Unlock and lock at random: each round trip frees one of the held names and takes another, so that nothing is in a
/// cache.
fn churn(held: u64) {
    let (mut state, holder) = (with_held(held).0, LeaseId::new(1).unwrap());
    let mut turn = 0u64;
    let per_pair = spread(ROUNDS, || {
        time_pairs(&mut state, 50_000, |_| {
            let (old, round) = (turn * 7_919 % held, turn / held * held);
            let (first, second) = (load::request(held + 2 * turn), load::request(held + 2 * turn + 1));
            turn += 1;
            let unlock = release(name(old + round), holder, old + round, first);
            (unlock, acquire(name(old + round + held), holder, old + round + held, Wait::No, second))
        })
    });
    Line::new(format!("unlock one at random + lock another, {held} held")).time(&per_pair).print();
}

/// Release of a lock with 10,000 waiters, and the releaser queueing again.
fn hand_off() {
    const WAITERS: u64 = 10_000;
    let mut state = State::new(Limits { waiters_per_lock_max: 20_000, ..Limits::DEFAULT });
    let hot = Name::new("a/hot/lock/that/everybody/wants!").unwrap();
    let lease = |i: u64| LeaseId::new(i + 1).unwrap();
    let mut seqs = vec![0u64; usize::try_from(WAITERS).unwrap() + 1];
    let mut next = |who: u64| {
        let seq = &mut seqs[usize::try_from(who).unwrap()];
        *seq += 1;
        load::request(*seq - 1)
    };
    for i in 0..=WAITERS {
        load::apply(&mut state, grant(lease(i)));
        load::apply(&mut state, acquire(hot.clone(), lease(i), i, Wait::Forever, next(i)));
    }
    let mut turn = 0;
    let per_hand_off = spread(ROUNDS, || {
        const TURNS: u64 = 50_000;
        let commands: Vec<(Command, Command)> = (turn..turn + TURNS)
            .map(|turn| {
                let who = turn % (WAITERS + 1);
                let unlock = release(hot.clone(), lease(who), who, next(who));
                (unlock, acquire(hot.clone(), lease(who), who, Wait::Forever, next(who)))
            })
            .collect();
        turn += TURNS;
        let mut spent = Duration::ZERO;
        for (unlock, lock) in commands {
            let start = Instant::now();
            let applied = state.apply(Entry::new(state.now(), unlock));
            spent += start.elapsed();
            assert_eq!(applied.resolved.len(), 1, "one is woken, never the herd");
            load::apply(&mut state, lock);
        }
        spent / u32::try_from(TURNS).unwrap()
    });
    Line::new("hand-off, 10,000 wait".to_owned()).time(&per_hand_off).target("1.5 us").print();
}

/// Ticks until nothing is due; returns the number of entries, their total time, and the longest time.
fn reap(state: &mut State, at: LogTime) -> (u64, Duration, Duration) {
    let (mut entries, mut total, mut longest) = (0, Duration::ZERO, Duration::ZERO);
    loop {
        let start = Instant::now();
        state.apply(tick(at));
        let took = start.elapsed();
        (entries, total, longest) = (entries + 1, total + took, longest.max(took));
        if state.next_deadline().is_none_or(|deadline| deadline > at) {
            return (entries, total, longest);
        }
    }
}

fn leases_end_together() {
    const LEASES: u64 = 100_000;
    let mut most = (Duration::ZERO, 0);
    let total = spread(ROUNDS, || {
        let mut state = State::new(Limits::DEFAULT);
        for i in 0..LEASES {
            let lease = LeaseId::new(i + 1).unwrap();
            load::apply(&mut state, grant(lease));
            load::apply(&mut state, acquire(name(i), lease, i, Wait::No, load::request(0)));
        }
        let (entries, total, longest) = reap(&mut state, LogTime::from_ms(load::TTL_MS));
        assert_eq!((state.lock_count(), state.lease_count()), (0, 0));
        most = most.max((longest, entries));
        total
    });
    let line = Line::new("100,000 leases with a lock each end together".to_owned());
    line.time(&total).target("0.25 s in all").print();
    println!("    longest of {} entries: {:?} (target 5 ms)", most.1, most.0);
}

fn one_lease_ends() {
    let (mut state, _) = with_held(MILLION);
    let revoke = RevokeLease { lease: LeaseId::new(1).unwrap(), disconnected: None };
    let start = Instant::now();
    state.apply(Entry::new(state.now(), Command::RevokeLease(revoke)));
    let first = start.elapsed();
    let now = state.now();
    let (entries, total, longest) = reap(&mut state, now);
    assert_eq!(state.lock_count(), 0);
    let longest = longest.max(first);
    println!(
        "one lease with 1,000,000 locks is revoked: {total:?} in {entries} entries, longest {longest:?}\n"
    );
}

fn snapshot() {
    let (mut state, worker) = with_held(MILLION);
    let start = spread(ROUNDS, || {
        let start = Instant::now();
        black_box(state.snapshot());
        start.elapsed()
    });
    Line::new("snapshot of 1,000,000 locks: start".to_owned()).time(&start).target("5 ms").print();

    let snapshot = state.snapshot();
    let (mut longest, mut entries) = (Duration::ZERO, 0u64);
    let (bytes, took) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let start = Instant::now();
            let bytes: usize = snapshot.chunks(1 << 20).map(|chunk| black_box(chunk).len()).sum();
            (bytes, start.elapsed())
        });
        while !writer.is_finished() {
            let (lock, unlock) = load::random_work(entries, worker, MILLION);
            for command in [lock, unlock] {
                let start = Instant::now();
                load::apply(&mut state, command);
                longest = longest.max(start.elapsed());
                entries += 1;
            }
        }
        writer.join().unwrap()
    });
    println!("    written in {took:?} ({} MiB) beside {entries} entries", bytes >> 20);
    println!("    longest entry meanwhile: {longest:?} (target 5 ms)");
    let start = Instant::now();
    let hash = snapshot.hash();
    let hashed = start.elapsed();
    let mut reader = SnapshotReader::new();
    let start = Instant::now();
    for chunk in snapshot.chunks(1 << 20) {
        reader.push(&chunk).unwrap();
    }
    let loaded = start.elapsed();
    let start = Instant::now();
    let state = reader.finish().unwrap();
    let checked = start.elapsed();
    assert_eq!(state.snapshot().hash(), hash);
    println!(
        "    hashed in {hashed:?}; written and loaded in {loaded:?}, all invariants checked in {checked:?}\n"
    );
}

fn renewals() {
    const LEASES: u64 = 100_000;
    let mut state = State::new(Limits::DEFAULT);
    for i in 0..LEASES {
        load::apply(&mut state, grant(LeaseId::new(i + 1).unwrap()));
    }
    let mut at = 0;
    let each = spread(ROUNDS, || {
        let mut total = Duration::ZERO;
        for batch in 0..LEASES / 1_000 {
            let renewal = |i: u64| {
                let lease = LeaseId::new((batch * 1_000 + i) * 7_919 % LEASES + 1).unwrap();
                Renewal { lease, address: None, acked: SeqRanges::default() }
            };
            let renewals = (0..1_000).map(renewal).collect();
            at += 1;
            let command = Command::RenewLeases(RenewLeases { renewals });
            let start = Instant::now();
            black_box(state.apply(Entry::new(LogTime::from_ms(at), command)));
            total += start.elapsed();
        }
        total / u32::try_from(LEASES).unwrap()
    });
    Line::new("renewal of one of 100,000 leases, 1,000 an entry".to_owned()).time(&each).print();
}

fn codec() {
    const ENTRIES: u32 = 200_000;
    let lease = LeaseId::new(2).unwrap();
    let command = acquire(name(7), lease, 7, Wait::Forever, load::request(41));
    let entry = Entry::new(LogTime::from_ms(1_234_567), command);
    let mut bytes = Vec::new();
    let encode = spread(ROUNDS, || {
        let start = Instant::now();
        for _ in 0..ENTRIES {
            bytes.clear();
            encode_entry(black_box(&entry), &mut bytes);
        }
        start.elapsed() / ENTRIES
    });
    Line::new(format!("encode a lock entry ({} bytes)", bytes.len())).time(&encode).print();
    let decode = spread(ROUNDS, || {
        let start = Instant::now();
        for _ in 0..ENTRIES {
            black_box(decode_entry(black_box(&bytes)).unwrap());
        }
        start.elapsed() / ENTRIES
    });
    Line::new("decode it".to_owned()).time(&decode).print();
}

/// Matches an event against 100,000 exact-key and 10,000 prefix watches, by index and by scan.
fn watches() {
    let (mut index, mut all) = (WatchIndex::new(), Vec::new());
    let watches = (0..100_000).map(|i| Watch::Lock(name(i)));
    let prefixes = (0..10_000).map(|i| Watch::LockPrefix(format!("jobs/tenant-{i:04}/").into_bytes()));
    for (id, watch) in (0u32..).zip(watches.chain(prefixes)) {
        index.insert(&watch, id);
        all.push(watch);
    }
    let events: Vec<Event> = load::events(1_000);
    let mut out = Vec::new();
    let by_index = spread(ROUNDS, || {
        let start = Instant::now();
        for event in &events {
            out.clear();
            index.matching(event, &mut out);
            assert!(!out.is_empty());
        }
        start.elapsed() / u32::try_from(events.len()).unwrap()
    });
    Line::new("match an event to 110,000 watches".to_owned()).time(&by_index).print();
    let by_scan = spread(3, || {
        let start = Instant::now();
        for event in &events[..20] {
            black_box(all.iter().filter(|watch| watch.matches(event)).count());
        }
        start.elapsed() / 20
    });
    Line::new("    the same by a scan of all".to_owned()).time(&by_scan).print();
}
