//! Fuzzing of the decoders: their input comes from disks and from other nodes, and no input may make them panic.
//!
//! These are ordinary tests with a budget of a second each. `FUZZ_SECONDS` gives them more, with another seed each
//! time; a failure prints its input and the seed with which `FUZZ_SEED` makes it the first input again. With
//! `--nocapture` they print their speed. Not here: that a decoder reserves no more memory than its input justifies,
//! which can't be measured from outside; `Reader::count` guarantees it, and `format::wire` tests that.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a fuzzer reports its speed and its findings")]

use crate::codec::{Rng, arbitrary_entry, encoded, hex};
use crate::snapshots;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant, SystemTime};
use tollgate_core::{decode_entry, encode_command};

/// Longest input in bytes.
const INPUT_BYTES_MAX: usize = 64 * 1024;

#[test]
fn fuzz_entry_decoder() {
    let mut rng = Rng::new(4);
    let corpus = (0..500).map(|_| encoded(&arbitrary_entry(&mut rng))).collect();
    let mut again = Vec::new();
    fuzz("entry_decoder", corpus, |bytes| {
        let Ok(entry) = decode_entry(bytes) else { return false };
        again.clear();
        encode_command(bytes[0], (entry.at, entry.wall), &entry.command, &mut again);
        assert_eq!(again, bytes, "what decodes is canonical");
        true
    });
}

#[test]
fn fuzz_snapshot_decoder() {
    fuzz("snapshot_decoder", snapshots::corpus_of_bytes(), snapshots::is_refused_or_itself);
}

/// Fuzzes the snapshot decoder with checksums that are always right, so that mutations get past them.
#[test]
fn fuzz_snapshot_records() {
    fuzz("snapshot_records", snapshots::corpus_of_records(), snapshots::is_refused_or_sound);
}

/// Calls `target` with random bytes and with mutations of `corpus` until the time is up. The target panics on a bug,
/// and returns true if it accepted the input.
fn fuzz(target_name: &str, corpus: Vec<Vec<u8>>, mut target: impl FnMut(&[u8]) -> bool) {
    let corpus: Vec<Vec<u8>> = corpus.into_iter().filter(|bytes| bytes.len() <= INPUT_BYTES_MAX).collect();
    let seconds = env_number("FUZZ_SECONDS");
    // Without a budget from the environment the inputs are the same each time: a build that was green stays green.
    let first_seed =
        env_number("FUZZ_SEED").unwrap_or_else(|| if seconds.is_some() { seed_from_clock() } else { 1 });
    let budget = Duration::from_secs(seconds.unwrap_or(1));

    for bytes in &corpus {
        assert!(checked(target_name, first_seed, bytes, &mut target), "the corpus is valid");
    }
    let start = Instant::now();
    let (mut inputs, mut accepted) = (0u64, 0u64);
    while inputs % 64 != 0 || start.elapsed() < budget {
        let seed = first_seed.wrapping_add(inputs);
        let input = input(&mut Rng::new(seed), &corpus);
        accepted += u64::from(checked(target_name, seed, &input, &mut target));
        inputs += 1;
    }
    let rate = u128::from(inputs) * 1_000 / start.elapsed().as_millis().max(1);
    println!("fuzz {target_name}: {inputs} inputs from seed {first_seed}, {rate}/s, {accepted} accepted");
    assert!(inputs < 10_000 || accepted > 0, "mutations that nothing survives test little");
}

/// Calls the target; if it panics, prints the input.
fn checked(target_name: &str, seed: u64, input: &[u8], target: &mut impl FnMut(&[u8]) -> bool) -> bool {
    catch_unwind(AssertUnwindSafe(|| target(input))).unwrap_or_else(|panic| {
        eprintln!("fuzz {target_name}: FUZZ_SEED={seed}, {} bytes: {}", input.len(), hex(input));
        resume_unwind(panic)
    })
}

fn env_number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}: give it a number")))
}

fn seed_from_clock() -> u64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // Seeds far apart, so that two runs one second apart don't share inputs.
    Rng::new(since_epoch.as_secs()).next()
}

/// One input, made from the seed alone: random bytes, or a piece of the corpus with a few errors.
pub(crate) fn input(rng: &mut Rng, corpus: &[Vec<u8>]) -> Vec<u8> {
    if corpus.is_empty() || rng.one_in(16) {
        return random_bytes(rng, 200);
    }
    let mut bytes = corpus[rng.below(corpus.len())].clone();
    for _ in 0..=rng.below(4) {
        mutate(rng, &mut bytes, corpus);
    }
    bytes.truncate(INPUT_BYTES_MAX);
    bytes
}

fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let at = place(rng, bytes);
    match rng.below(9) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
        1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = interesting_byte(rng);
            }
        }
        2 => bytes.insert(at, interesting_byte(rng)),
        3 => {
            let end = bytes.len().min(at + 1 + rng.below(4));
            bytes.drain(at..end);
        }
        4 => bytes.truncate(at),
        5 => {
            let other = &corpus[rng.below(corpus.len())];
            bytes.truncate(at);
            bytes.extend(&other[place(rng, other)..]);
        }
        6 => {
            bytes.truncate(at);
            bytes.extend(random_bytes(rng, 60));
        }
        7 => inflate_length(rng, bytes, at),
        _ => {
            let end = bytes.len().min(at + rng.below(30));
            let piece = bytes[at..end].to_vec();
            bytes.splice(at..at, piece);
        }
    }
}

/// An offset, the end included. Half of them are near the start, where tags, flags and lengths are.
fn place(rng: &mut Rng, bytes: &[u8]) -> usize {
    let end = bytes.len() + 1;
    if rng.one_in(2) { rng.below(end.min(12)) } else { rng.below(end) }
}

/// Puts a number that is far too great, or a little too great, at a place where a length may be.
fn inflate_length(rng: &mut Rng, bytes: &mut Vec<u8>, at: usize) {
    let Some(byte) = bytes.get_mut(at) else { return };
    if rng.one_in(2) {
        *byte = byte.wrapping_add(1 + interesting_byte(rng) % 4);
        return;
    }
    let mut number = rng.next() >> rng.below(64);
    let mut varint = Vec::new();
    while number >= 0x80 {
        varint.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    varint.push(number.to_le_bytes()[0]);
    bytes.splice(at..=at, varint);
}

fn interesting_byte(rng: &mut Rng) -> u8 {
    const EDGES: [u8; 8] = [0, 1, 2, 0x7f, 0x80, 0x81, 0xfe, 0xff];
    if rng.one_in(2) { EDGES[rng.below(EDGES.len())] } else { rng.next().to_le_bytes()[0] }
}

fn random_bytes(rng: &mut Rng, length_max: usize) -> Vec<u8> {
    (0..rng.below(length_max)).map(|_| interesting_byte(rng)).collect()
}

#[test]
#[should_panic(expected = "planted")]
fn the_fuzzer_finds_a_planted_bug() {
    let valid = vec![1, 2, 3, 4, 5, 6, 7, 8];
    fuzz("planted", vec![valid.clone()], |bytes| {
        assert!(!(bytes.len() == 9 && bytes.starts_with(&valid[..3])), "planted");
        bytes == valid
    });
}
