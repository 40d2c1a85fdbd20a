//! Long random histories over many small files, against a model in memory; the storage is killed again and again.

use crate::world::{
    created, dir, entries, group, killed, marked, open_engine, save, small, state_of, summary, vote, write,
};
use std::collections::BTreeMap;
use tempfile::TempDir;
use tollgate_replica::{
    Engine, GroupWrite, LogEntry, ReplicaKind, SnapshotFile, SnapshotMark, Storage, Vote, Write, WriteNumber,
};

/// Expected contents of a group.
#[derive(Clone, Default)]
struct Group {
    vote: Vote,
    mark: Option<SnapshotFile>,
    entries: Vec<LogEntry>,
}

impl Group {
    fn begin(&self) -> u64 {
        self.mark.as_ref().map_or(0, |mark| mark.meta.index)
    }

    fn last(&self) -> u64 {
        self.entries.last().map_or(self.begin(), |entry| entry.index)
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

struct History {
    random: Random,
    dir: TempDir,
    engine: Option<Engine>,
    groups: BTreeMap<u32, Group>,
    term: u64,
}

impl History {
    fn new(seed: u64) -> History {
        let dir = dir();
        let engine = Some(Engine::create(dir.path(), small()).unwrap());
        History { random: Random(seed), dir, engine, groups: BTreeMap::new(), term: 1 }
    }

    fn engine(&mut self) -> &mut Engine {
        self.engine.as_mut().unwrap()
    }

    /// One group's next part of a write.
    fn part(&mut self) -> GroupWrite {
        let number = u32::try_from(self.random.below(6)).unwrap();
        let Some(mut model) = self.groups.get(&number).cloned() else {
            self.groups.insert(number, Group::default());
            return created(number);
        };
        let mut part = GroupWrite::new(group(number));
        // Groups with higher numbers write less: some are idle while files are filled and purged.
        match self.random.below(if number < 2 { 12 } else { 60 }) {
            0 => part = self.taken(number, &mut model),
            1 => part = self.installed(number, &mut model),
            2 if number % 2 == 0 => {
                self.groups.remove(&number);
                part.remove = true;
                return part;
            }
            3..12 => {
                self.term += self.random.below(2);
                let from = model.last() + 1 - self.random.below(3).min(model.last() - model.begin());
                part.entries = entries(from, from + self.random.below(5), self.term);
                model.entries.retain(|entry| entry.index < from);
                model.entries.extend(part.entries.clone());
            }
            _ => {}
        }
        if self.random.below(3) == 0 {
            model.vote = vote(self.term, model.last());
            part.vote = Some(model.vote);
        }
        self.groups.insert(number, model);
        part
    }

    fn taken(&mut self, number: u32, model: &mut Group) -> GroupWrite {
        let index = model.begin() + self.random.below(model.last() - model.begin() + 1);
        if index == 0 {
            return GroupWrite::new(group(number));
        }
        let file = save(self.engine(), number, index, state_of(1));
        model.mark = Some(file.clone());
        model.entries.retain(|entry| entry.index > index);
        marked(number, &file, false)
    }

    fn installed(&mut self, number: u32, model: &mut Group) -> GroupWrite {
        let index = model.begin() + 1 + self.random.below(30);
        let file = save(self.engine(), number, index, state_of(2));
        model.mark = Some(file.clone());
        model.entries.clear();
        GroupWrite { snapshot: Some(SnapshotMark { file, restart: true }), ..GroupWrite::new(group(number)) }
    }

    /// One turn: several writes, each with parts of different groups.
    fn turn(&mut self) {
        let mut writes = Vec::new();
        for number in 0..=self.random.below(3) {
            let mut groups: Vec<GroupWrite> = Vec::new();
            let part = self.part();
            groups.push(part);
            writes.push(Write { number: WriteNumber(number), groups });
        }
        self.engine().write(&writes).unwrap();
    }

    fn restart(&mut self) {
        if self.random.below(2) == 0 {
            // The old directory is dropped after the copy.
            self.dir = killed(self.dir.path());
        }
        self.engine = None;
        self.engine = Some(open_engine(self.dir.path(), small()).unwrap());
    }

    fn check(&mut self, context: &str) {
        let found = summary(self.engine().load().unwrap());
        let model = self.groups.iter();
        let expected: Vec<_> = model
            .map(|(number, it)| {
                (group(*number), ReplicaKind::Full, it.vote, it.mark.clone(), it.entries.clone())
            })
            .collect();
        assert!(found == expected, "{context}: found {found:#?}\nexpected {expected:#?}");
    }
}

#[test]
fn whatever_is_written_and_however_often_it_restarts_the_storage_has_what_the_model_has() {
    for seed in 0..12 {
        let mut history = History::new(seed);
        for turn in 0..400 {
            history.turn();
            if history.random.below(12) == 0 {
                history.restart();
                history.check(&format!("seed {seed}, turn {turn}"));
            }
        }
        history.restart();
        history.check(&format!("seed {seed}, end"));
    }
}

#[test]
fn a_group_that_lies_idle_survives_the_files_that_it_was_written_to() {
    let mut history = History::new(99);
    history.engine().write(&[write(1, created(9))]).unwrap();
    let idle = GroupWrite { entries: entries(1, 40, 1), vote: Some(vote(1, 7)), ..GroupWrite::new(group(9)) };
    history.engine().write(&[write(2, idle)]).unwrap();
    let entries = entries(1, 40, 1);
    history.groups.insert(9, Group { vote: vote(1, 7), mark: None, entries });
    for turn in 0..1_500 {
        history.turn();
        if turn % 300 == 0 {
            history.restart();
            history.check(&format!("turn {turn}"));
        }
    }
    history.check("end");
}
