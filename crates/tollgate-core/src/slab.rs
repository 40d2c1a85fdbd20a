//! Records by number, in pages that a snapshot shares with the live state.
//!
//! Freezing clones one pointer per 1,024 records; after that, the first write to a page copies its 16 records and
//! leaves the frozen ones alone. Pages never move, so growth never copies the whole table. Invariant: ids are reused
//! and mean nothing outside this state, so no id may ever reach a reply, a hash or an order of events.

use crate::sizes::threshold;
use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::sync::Arc;

const PAGE: usize = threshold(16, 2);
const DIRECTORY: usize = threshold(64, 2);

type Page<T> = [Option<T>; PAGE];
type Directory<T> = Vec<Arc<Page<T>>>;

/// The number of a record in its slab.
pub(crate) struct Id<T> {
    /// One above the record's place, so that an `Option<Id>` takes no more memory than an `Id`.
    above: NonZeroU32,
    of: PhantomData<fn() -> T>,
}

impl<T> Id<T> {
    /// Id of no record, for a field that is filled in later.
    pub(crate) const UNSET: Id<T> = Id { above: NonZeroU32::MAX, of: PhantomData };

    fn new(place: usize) -> Id<T> {
        let above = u32::try_from(place + 1).ok().and_then(NonZeroU32::new);
        Id { above: above.expect("limits keep every table below 2^32 records"), of: PhantomData }
    }

    #[inline]
    fn page(self) -> (usize, usize) {
        let place = self.above.get() as usize - 1;
        (place / PAGE, place % PAGE)
    }

    #[inline]
    fn place(self) -> (usize, usize, usize) {
        let (page, item) = self.page();
        (page / DIRECTORY, page % DIRECTORY, item)
    }
}

impl<T> Clone for Id<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Id<T> {}

impl<T> PartialEq for Id<T> {
    fn eq(&self, other: &Self) -> bool {
        self.above == other.above
    }
}

impl<T> Eq for Id<T> {}

impl<T> PartialOrd for Id<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Id<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.above.cmp(&other.above)
    }
}

impl<T> fmt::Debug for Id<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "id{}", self.above)
    }
}

pub(crate) struct Slab<T> {
    directories: Vec<Arc<Directory<T>>>,
    /// Free numbers; the last one is used first.
    free: Vec<Id<T>>,
    live: usize,
}

impl<T: Clone> Slab<T> {
    pub(crate) fn new() -> Slab<T> {
        Slab { directories: Vec::new(), free: Vec::new(), live: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.live
    }

    #[inline]
    pub(crate) fn insert(&mut self, record: T) -> Id<T> {
        if self.free.is_empty() {
            self.grow();
        }
        let id = self.free.pop().expect("grown when empty");
        let slot = self.slot_mut(id);
        assert!(slot.is_none(), "a free number has no record");
        *slot = Some(record);
        self.live += 1;
        id
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: Id<T>) -> T {
        let record = self.slot_mut(id).take().expect("removed once");
        self.free.push(id);
        self.live -= 1;
        record
    }

    /// The record for reading: copies nothing, even if a snapshot shares its page.
    #[inline]
    pub(crate) fn get(&self, id: Id<T>) -> &T {
        let (directory, page, item) = id.place();
        self.directories[directory][page][item].as_ref().expect("an id outlives no record")
    }

    /// The record for writing: copies its page first if a snapshot shares it.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: Id<T>) -> &mut T {
        self.slot_mut(id).as_mut().expect("an id outlives no record")
    }

    #[inline]
    fn slot_mut(&mut self, id: Id<T>) -> &mut Option<T> {
        let (directory, page, item) = id.place();
        let directory = Arc::make_mut(&mut self.directories[directory]);
        &mut Arc::make_mut(&mut directory[page])[item]
    }

    #[cold]
    fn grow(&mut self) {
        let full = self.directories.last().is_none_or(|last| last.len() == DIRECTORY);
        if full {
            self.directories.push(Arc::new(Vec::with_capacity(DIRECTORY)));
        }
        let before = self.directories.len() - 1;
        let last = Arc::make_mut(&mut self.directories[before]);
        last.push(Arc::new(std::array::from_fn(|_| None)));
        let first = (before * DIRECTORY + last.len() - 1) * PAGE;
        self.free.extend((first..first + PAGE).rev().map(Id::new));
    }

    /// Every record, in an order that must not become visible.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id<T>, &T)> {
        records(&self.directories)
    }

    /// The records in about `places` places from `from` on, and the place to continue at. A record keeps its place.
    pub(crate) fn part(&self, from: usize, places: usize) -> (impl Iterator<Item = &T>, Option<usize>) {
        let (first, count) = (from / PAGE, places.div_ceil(PAGE));
        let pages = (first..first + count).map_while(|page| {
            self.directories.get(page / DIRECTORY).and_then(|directory| directory.get(page % DIRECTORY))
        });
        let next = first + count;
        let all = self.directories.len().saturating_sub(1) * DIRECTORY
            + self.directories.last().map_or(0, |last| last.len());
        (pages.flat_map(|page| page.iter().flatten()), (next < all).then_some(next * PAGE))
    }

    /// The records as they are now, unaffected by later writes.
    pub(crate) fn freeze(&self) -> Frozen<T> {
        Frozen { directories: self.directories.clone() }
    }
}

/// A slab as it was when frozen.
pub(crate) struct Frozen<T> {
    directories: Vec<Arc<Directory<T>>>,
}

impl<T> Frozen<T> {
    /// Every record, in an order that must not become visible.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id<T>, &T)> {
        records(&self.directories)
    }

    pub(crate) fn get(&self, id: Id<T>) -> &T {
        let (directory, page, item) = id.place();
        self.directories[directory][page][item].as_ref().expect("an id outlives no record")
    }
}

fn records<T>(directories: &[Arc<Directory<T>>]) -> impl Iterator<Item = (Id<T>, &T)> {
    let slots = directories.iter().flat_map(|d| d.iter()).flat_map(|page| page.iter());
    slots.enumerate().filter_map(|(number, slot)| slot.as_ref().map(|record| (Id::new(number), record)))
}

/// Like [`Slab`], for derived records that no snapshot shares: no copies on write, and no reference counts to check.
pub(crate) struct Pages<T> {
    table: Vec<Box<Page<T>>>,
    free: Vec<Id<T>>,
    live: usize,
}

impl<T> Pages<T> {
    pub(crate) fn new() -> Pages<T> {
        Pages { table: Vec::new(), free: Vec::new(), live: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.live
    }

    #[inline]
    pub(crate) fn insert(&mut self, record: T) -> Id<T> {
        if self.free.is_empty() {
            let first = self.table.len() * PAGE;
            self.table.push(Box::new(std::array::from_fn(|_| None)));
            self.free.extend((first..first + PAGE).rev().map(Id::new));
        }
        let id = self.free.pop().expect("grown when empty");
        let (page, item) = id.page();
        assert!(self.table[page][item].is_none(), "a free number has no record");
        self.table[page][item] = Some(record);
        self.live += 1;
        id
    }

    /// Drops a record in place.
    pub(crate) fn remove(&mut self, id: Id<T>) {
        let (page, item) = id.page();
        assert!(self.table[page][item].is_some(), "removed once");
        self.table[page][item] = None;
        self.free.push(id);
        self.live -= 1;
    }

    #[inline]
    pub(crate) fn get(&self, id: Id<T>) -> &T {
        let (page, item) = id.page();
        self.table[page][item].as_ref().expect("an id outlives no record")
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: Id<T>) -> &mut T {
        let (page, item) = id.page();
        self.table[page][item].as_mut().expect("an id outlives no record")
    }

    /// Every record, in an order that must not become visible.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id<T>, &T)> {
        let slots = self.table.iter().flat_map(|page| page.iter()).enumerate();
        slots.filter_map(|(place, slot)| slot.as_ref().map(|record| (Id::new(place), record)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    type Model = BTreeMap<Id<u64>, u64>;

    #[test]
    fn a_frozen_slab_keeps_what_was_there_while_the_live_one_goes_on() {
        let (mut slab, mut model) = (Slab::new(), BTreeMap::new());
        let mut frozen: Vec<(Frozen<u64>, Model)> = Vec::new();
        let mut random = 1u64;
        for round in 0..20_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let pick = (random >> 33) as usize;
            match pick % 5 {
                0 | 1 => {
                    model.insert(slab.insert(round), round);
                }
                2 if !model.is_empty() => {
                    let id = *model.keys().nth(pick % model.len()).unwrap();
                    assert_eq!(Some(slab.remove(id)), model.remove(&id));
                }
                3 if !model.is_empty() => {
                    let id = *model.keys().nth(pick % model.len()).unwrap();
                    *slab.get_mut(id) += 1;
                    *model.get_mut(&id).unwrap() += 1;
                }
                _ if round % 4_000 == 4 => frozen.push((slab.freeze(), model.clone())),
                _ => {}
            }
        }
        let (mut parts, mut from) = (Vec::new(), Some(0));
        while let Some(at) = from {
            let (part, next) = slab.part(at, 40);
            parts.extend(part.copied());
            from = next;
        }
        assert!(parts.iter().eq(slab.iter().map(|(_, record)| record)), "all of it, part by part");
        let read = |records: Vec<(Id<u64>, u64)>| records.into_iter().collect::<BTreeMap<_, _>>();
        assert_eq!(read(slab.iter().map(|(id, r)| (id, *r)).collect()), model);
        assert_eq!(slab.len(), model.len());
        for (frozen, model) in frozen {
            assert_eq!(read(frozen.iter().map(|(id, r)| (id, *r)).collect()), model);
        }
    }
}
