//! Finds a record by hash, in many small tables.
//!
//! One big table would copy itself whole when it grows, a stall of tens of milliseconds at a few million names; a table
//! in 256 parts grows one part at a time. There is no iteration: its order would depend on history.

use crate::slab::Id;
use hashbrown::HashTable;
use hashbrown::hash_table::OccupiedEntry;

const SHARDS: usize = 256;

struct Place<T> {
    hash: u32,
    id: Id<T>,
}

pub(crate) struct Index<T> {
    shards: Vec<HashTable<Place<T>>>,
}

impl<T> Index<T> {
    pub(crate) fn new() -> Index<T> {
        Index { shards: (0..SHARDS).map(|_| HashTable::new()).collect() }
    }

    /// Returns the record with this hash for which `is` returns true.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is: impl Fn(Id<T>) -> bool) -> Option<Id<T>> {
        let (shard, low) = split(hash);
        self.shards[shard].find(spread(low), |p| p.hash == low && is(p.id)).map(|p| p.id)
    }

    /// Adds a record that is not in the index yet.
    pub(crate) fn insert(&mut self, hash: u64, id: Id<T>) {
        let (shard, hash) = split(hash);
        self.shards[shard].insert_unique(spread(hash), Place { hash, id }, |p| spread(p.hash));
    }

    /// Removes a record; returns true if it was in the index.
    pub(crate) fn remove(&mut self, hash: u64, id: Id<T>) -> bool {
        let (shard, low) = split(hash);
        let found = self.shards[shard].find_entry(spread(low), |p| p.id == id);
        found.map(OccupiedEntry::remove).is_ok()
    }
}

fn split(hash: u64) -> (usize, u32) {
    let shard = usize::try_from(hash >> 56).expect("eight bits");
    (shard, u32::try_from(hash & 0xffff_ffff).expect("thirty-two bits"))
}

/// Spreads the entropy of a hash to its lowest and highest bits, where the table needs it.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A hash of a number that fills all bits: the finaliser of splitmix64.
pub(crate) fn hash_number(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
