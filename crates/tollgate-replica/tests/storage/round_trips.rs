//! Every kind of write, read back by the next start.

use crate::world::{
    appended, create, created, dir, entries, entry, group, killed, marked, node, open, open_engine, save,
    state_of, summary, vote, write,
};
use tollgate_replica::{Engine, EngineConfig, GroupWrite, ReplicaKind, Storage, Vote, Write, WriteNumber};

#[test]
fn an_empty_storage_comes_back_empty() {
    let dir = dir();
    drop(create(&dir));
    assert!(open(&dir).load().unwrap().is_empty());
}

#[test]
fn entries_votes_and_kinds_come_back() {
    let dir = dir();
    let mut engine = create(&dir);
    let witness = GroupWrite {
        create: Some(ReplicaKind::Witness),
        entries: entries(1, 3, 1),
        vote: Some(Vote { term: 5, voted_for: Some(node(2)), commit: 2 }),
        ..GroupWrite::new(group(7))
    };
    engine.write(&[write(1, created(0)), write(2, witness)]).unwrap();
    drop(engine);
    let found = open(&dir).load().unwrap();
    assert_eq!(
        summary(found),
        [
            (group(0), ReplicaKind::Full, Vote::default(), None, vec![]),
            (
                group(7),
                ReplicaKind::Witness,
                Vote { term: 5, voted_for: Some(node(2)), commit: 2 },
                None,
                entries(1, 3, 1)
            ),
        ]
    );
}

#[test]
fn an_entry_replaces_all_from_its_index_on_within_a_write_and_between_writes() {
    let dir = dir();
    let mut engine = create(&dir);
    let parts = vec![created(1), appended(1, entries(1, 10, 1)), appended(1, entries(4, 6, 2))];
    let groups = parts.into_iter();
    let writes: Vec<Write> = groups.zip(1..).map(|(part, number)| write(number, part)).collect();
    engine.write(&writes).unwrap();
    engine.write(&[write(4, appended(1, entries(6, 7, 3)))]).unwrap();
    for _ in 0..2 {
        drop(engine);
        engine = open(&dir);
        let expected = [entries(1, 3, 1), entries(4, 5, 2), entries(6, 7, 3)].concat();
        assert_eq!(engine.load().unwrap()[0].entries, expected);
    }
}

#[test]
fn a_taken_snapshot_cuts_the_head_of_the_log_and_an_installed_one_all_of_it() {
    let dir = dir();
    let mut engine = create(&dir);
    let vote = GroupWrite { vote: Some(vote(3, 9)), ..appended(1, entries(1, 10, 1)) };
    engine.write(&[write(1, created(1)), write(2, vote)]).unwrap();
    let taken = save(&mut engine, 1, 6, state_of(3));
    engine.write(&[write(3, marked(1, &taken, false))]).unwrap();
    drop(engine);

    let mut engine = open(&dir);
    let found = engine.load().unwrap().remove(0);
    assert_eq!((found.snapshot, found.entries), (Some(taken), entries(7, 10, 1)));
    assert_eq!(found.state.unwrap().snapshot().hash(), state_of(3).hash());

    let installed = save(&mut engine, 1, 8, state_of(4));
    let both = GroupWrite { entries: entries(9, 9, 4), ..marked(1, &installed, true) };
    engine.write(&[write(4, both)]).unwrap();
    for _ in 0..2 {
        drop(engine);
        engine = open(&dir);
        let found = engine.load().unwrap().remove(0);
        assert_eq!((found.snapshot, found.entries), (Some(installed.clone()), entries(9, 9, 4)));
        assert_eq!((found.kind, found.vote), (ReplicaKind::Full, crate::world::vote(3, 9)));
    }
}

#[test]
fn an_installed_snapshot_beyond_the_log_starts_it_anew() {
    let dir = dir();
    let mut engine = create(&dir);
    engine.write(&[write(1, created(1)), write(2, appended(1, entries(1, 5, 1)))]).unwrap();
    let installed = save(&mut engine, 1, 100, state_of(1));
    engine.write(&[write(3, marked(1, &installed, true))]).unwrap();
    engine.write(&[write(4, appended(1, entries(101, 102, 2)))]).unwrap();
    drop(engine);
    let found = open(&dir).load().unwrap().remove(0);
    assert_eq!((found.snapshot, found.entries), (Some(installed), entries(101, 102, 2)));
}

#[test]
fn a_removed_group_is_gone_and_can_come_again() {
    let dir = dir();
    let mut engine = create(&dir);
    engine
        .write(&[write(1, created(1)), write(2, appended(1, entries(1, 5, 1))), write(3, created(2))])
        .unwrap();
    let file = save(&mut engine, 1, 3, state_of(1));
    engine.write(&[write(4, marked(1, &file, false))]).unwrap();
    engine.write(&[write(5, GroupWrite { remove: true, ..GroupWrite::new(group(1)) })]).unwrap();
    assert!(!dir.path().join("snapshots/1-3.snap").exists());
    drop(engine);

    let mut engine = open(&dir);
    let found = engine.load().unwrap();
    assert_eq!(found.iter().map(|it| it.group).collect::<Vec<_>>(), [group(2)]);
    engine.write(&[write(6, created(1)), write(7, appended(1, entries(1, 2, 9)))]).unwrap();
    drop(engine);
    let found = open(&dir).load().unwrap();
    assert_eq!((found.len(), &found[0].entries), (2, &entries(1, 2, 9)));
}

#[test]
fn writes_of_many_groups_are_one_batch() {
    let dir = dir();
    let mut engine = create(&dir);
    let part = |number| GroupWrite { entries: entries(1, 4, 1), vote: Some(vote(1, 0)), ..created(number) };
    let groups = (0..32).map(part).collect();
    let more = (0..32).map(|number| appended(number, entries(5, 6, 1))).collect();
    engine
        .write(&[Write { number: WriteNumber(1), groups }, Write { number: WriteNumber(2), groups: more }])
        .unwrap();
    let copy = killed(dir.path());
    let bytes = std::fs::read(crate::world::last_log(copy.path())).unwrap();
    // The ends of the header, of a new storage's first batch, and of one more batch.
    assert_eq!(crate::world::batch_ends(&bytes).len(), 3);
    let found = open(&copy).load().unwrap();
    assert_eq!(found.len(), 32);
    assert!(found.iter().all(|it| it.entries == entries(1, 6, 1) && it.vote == vote(1, 0)));
}

#[test]
fn large_and_empty_entries_come_back() {
    let dir = dir();
    let mut engine = create(&dir);
    let large = vec![entry(1, 1, &[]), entry(2, 1, &vec![0xa5; 3_000_000]), entry(3, 1, &[0; 100])];
    engine.write(&[write(1, created(1)), write(2, appended(1, large.clone()))]).unwrap();
    drop(engine);
    assert_eq!(open(&dir).load().unwrap()[0].entries, large);
}

#[test]
#[should_panic(expected = "entry 7 fits in from 1 to 6 only")]
fn a_write_that_would_leave_a_hole_is_never_written() {
    let dir = dir();
    let mut engine = create(&dir);
    engine.write(&[write(1, created(1)), write(2, appended(1, entries(1, 5, 1)))]).unwrap();
    let _ = engine.write(&[write(3, appended(1, entries(7, 8, 1)))]);
}

#[test]
fn a_storage_is_begun_once_and_opened_only_if_it_was() {
    let dir = dir();
    crate::world::assert_corrupt(open_engine(dir.path(), EngineConfig::default()), "acked", "nothing there");
    drop(create(&dir));
    assert!(Engine::create(dir.path(), EngineConfig::default()).is_err());
}

#[test]
fn two_storages_never_share_a_directory() {
    let dir = dir();
    let _first = create(&dir);
    let second = open_engine(dir.path(), EngineConfig::default());
    assert!(second.unwrap_err().to_string().contains("another instance is using this directory"));
}
