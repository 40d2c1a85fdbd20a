//! Counts the grants and waits of named owners, which a deadlock search asks for first.
//!
//! Most leases have a few claims, and walking them answers both. Only a lease with many claims keeps counts here, so
//! that an ordinary lock operation touches no table at all. The empty owner is never asked about: it is the lease
//! itself, whose tasks run in parallel and are not one thread of control.

use crate::claim::Claim;
use crate::index::hash_number;
use crate::sizes::threshold;
use crate::slab::Id;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use smallvec::SmallVec;
use tollgate_types::Revision;
use xxhash_rust::xxh3::xxh3_64;

/// Most claims of a lease that are walked instead of counted.
pub(crate) const WALKED_MAX: usize = threshold(32, 2);

const SHARDS: usize = 256;

/// Counts of an owner of a large lease. The owner is identified by its hash alone: two owners with the same hash are
/// taken for each other, which costs a search and changes no answer, because the search looks at the claims themselves.
struct Counted {
    hash: u64,
    holds: u32,
    /// Claims that stand in a queue, upgrades included.
    waiting: SmallVec<[Id<Claim>; 1]>,
}

pub(crate) struct Owners {
    shards: Vec<HashTable<Counted>>,
}

impl Owners {
    pub(crate) fn new() -> Owners {
        Owners { shards: (0..SHARDS).map(|_| HashTable::new()).collect() }
    }

    /// True if the owner with this hash has a claim.
    pub(crate) fn has_claims(&self, hash: u64) -> bool {
        self.shards[shard(hash)].find(hash, |counted| counted.hash == hash).is_some()
    }

    /// Number of grants of the owner with this hash, and the claims with which it waits.
    pub(crate) fn claims(&self, hash: u64) -> (u32, &[Id<Claim>]) {
        let found = self.shards[shard(hash)].find(hash, |counted| counted.hash == hash);
        found.map_or((0, &[]), |counted| (counted.holds, &counted.waiting))
    }

    pub(crate) fn hold(&mut self, hash: u64) {
        self.change(hash, |counted| counted.holds += 1);
    }

    pub(crate) fn unhold(&mut self, hash: u64) {
        self.change(hash, |counted| counted.holds -= 1);
    }

    pub(crate) fn wait(&mut self, hash: u64, claim: Id<Claim>) {
        self.change(hash, |counted| counted.waiting.push(claim));
    }

    pub(crate) fn unwait(&mut self, hash: u64, claim: Id<Claim>) {
        self.change(hash, |counted| {
            let at = counted.waiting.iter().position(|c| *c == claim).expect("a waiting claim is listed");
            counted.waiting.swap_remove(at);
        });
    }

    fn change(&mut self, hash: u64, change: impl FnOnce(&mut Counted)) {
        match self.shards[shard(hash)].entry(hash, |counted| counted.hash == hash, |counted| counted.hash) {
            Entry::Occupied(mut place) => {
                change(place.get_mut());
                if place.get().holds == 0 && place.get().waiting.is_empty() {
                    place.remove();
                }
            }
            Entry::Vacant(place) => {
                let mut counted = Counted { hash, holds: 0, waiting: SmallVec::new() };
                change(&mut counted);
                place.insert(counted);
            }
        }
    }
}

/// Hash of an owner, the same wherever the lease's record is.
pub(crate) fn owner_hash(incarnation: Revision, owner: &[u8]) -> u64 {
    hash_number(xxh3_64(owner) ^ hash_number(incarnation.get()))
}

fn shard(hash: u64) -> usize {
    // Not the top bits: the table itself uses those to tell entries apart.
    usize::try_from(hash >> 40 & 0xff).expect("eight bits")
}
