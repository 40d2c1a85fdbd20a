//! What each owner holds and waits for, so that a search for a deadlock need not look at all claims of a lease.
//!
//! Only named owners: the empty owner is the lease itself, whose tasks run in parallel and are not one thread of control.

use crate::claim::Claim;
use crate::index::hash_number;
use crate::lease::Lease;
use crate::slab::Id;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use smallvec::SmallVec;
use tollgate_types::Owner;
use xxhash_rust::xxh3::xxh3_64;

const SHARDS: usize = 256;

/// What one owner has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OwnerClaims {
    lease: Id<Lease>,
    owner: Owner,
    hash: u64,
    pub(crate) holds: u32,
    /// Claims that stand in a queue, upgrades included.
    pub(crate) waiting: SmallVec<[Id<Claim>; 1]>,
}

pub(crate) struct Owners {
    shards: Vec<HashTable<OwnerClaims>>,
    len: usize,
}

impl Owners {
    pub(crate) fn new() -> Owners {
        Owners { shards: (0..SHARDS).map(|_| HashTable::new()).collect(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, lease: Id<Lease>, owner: &Owner) -> Option<&OwnerClaims> {
        let hash = hash(lease, owner);
        self.shards[shard(hash)].find(hash, |o| o.lease == lease && o.owner == *owner)
    }

    pub(crate) fn hold(&mut self, lease: Id<Lease>, owner: &Owner) {
        self.change(lease, owner, |claims| claims.holds += 1);
    }

    pub(crate) fn unhold(&mut self, lease: Id<Lease>, owner: &Owner) {
        self.change(lease, owner, |claims| claims.holds -= 1);
    }

    pub(crate) fn wait(&mut self, lease: Id<Lease>, owner: &Owner, claim: Id<Claim>) {
        self.change(lease, owner, |claims| claims.waiting.push(claim));
    }

    pub(crate) fn unwait(&mut self, lease: Id<Lease>, owner: &Owner, claim: Id<Claim>) {
        self.change(lease, owner, |claims| {
            let at = claims.waiting.iter().position(|c| *c == claim).expect("a waiting claim is listed");
            claims.waiting.swap_remove(at);
        });
    }

    fn change(&mut self, lease: Id<Lease>, owner: &Owner, change: impl FnOnce(&mut OwnerClaims)) {
        if owner.is_empty() {
            return;
        }
        let hash = hash(lease, owner);
        let shard = &mut self.shards[shard(hash)];
        match shard.entry(hash, |o| o.lease == lease && o.owner == *owner, |o| o.hash) {
            Entry::Occupied(mut place) => {
                change(place.get_mut());
                if place.get().holds == 0 && place.get().waiting.is_empty() {
                    place.remove();
                    self.len -= 1;
                }
            }
            Entry::Vacant(place) => {
                let mut claims =
                    OwnerClaims { lease, owner: owner.clone(), hash, holds: 0, waiting: SmallVec::new() };
                change(&mut claims);
                place.insert(claims);
                self.len += 1;
            }
        }
    }
}

fn hash(lease: Id<Lease>, owner: &Owner) -> u64 {
    hash_number(xxh3_64(owner.as_bytes()) ^ u64::from(lease.number()))
}

fn shard(hash: u64) -> usize {
    // Not the top bits: the table itself uses those to tell entries apart.
    usize::try_from(hash >> 40 & 0xff).expect("eight bits")
}
