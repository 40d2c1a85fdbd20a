//! Deadlock searches on made-up passes: true cycles, and graphs without one.

use super::*;

fn who(number: u64, owner: &str) -> Who {
    let incarnation = Revision::new(1).unwrap();
    Who { lease: LeaseId::new(number).unwrap(), incarnation, owner: Owner::new(owner).unwrap() }
}

fn named(number: u64) -> Who {
    who(number, "w")
}

fn revision(number: u64) -> Revision {
    Revision::new(number).unwrap()
}

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A wait for `text` that began at revision `since`.
fn wait(who: Who, text: &str, since: u64, blockers: Vec<(Who, BlockedBy)>) -> BlockedWait {
    let blockers = blockers.into_iter().map(|(who, by)| Blocker { who, name: name(text), by });
    let (name, mode, create_revision) = (name(text), Mode::Exclusive, revision(since));
    BlockedWait { who, name, mode, create_revision, blockers: blockers.collect() }
}

fn grant(number: u64) -> BlockedBy {
    BlockedBy::Grant(token(number))
}

fn ahead(since: u64, excludes: bool) -> BlockedBy {
    BlockedBy::Ahead { create_revision: revision(since), excludes }
}

type Pass = BTreeMap<GroupId, WaitEdges>;

fn pass(groups: Vec<Vec<BlockedWait>>) -> Pass {
    let numbers = (0..).map(GroupId::new);
    numbers.zip(groups.into_iter().map(|waits| WaitEdges { waits, truncated: false })).collect()
}

/// Victims that a search over two equal passes finds.
fn found(groups: Vec<Vec<BlockedWait>>) -> Vec<Victim> {
    let pass = pass(groups);
    find_deadlocks(&pass, &pass, 100)
}

fn ends(victims: &[Victim]) -> Vec<(u32, u64, u64)> {
    let end = |victim: &Victim| {
        let EndDeadlock { create_revision, blocker, .. } = &victim.end;
        (victim.group.number(), create_revision.get(), blocker.get())
    };
    victims.iter().map(end).collect()
}

fn two_groups() -> Vec<Vec<BlockedWait>> {
    vec![
        vec![wait(named(1), "a", 9, vec![(named(2), grant(5))])],
        vec![wait(named(2), "b", 4, vec![(named(1), grant(3))])],
    ]
}

#[test]
fn a_cycle_over_two_groups_has_its_youngest_wait_ended() {
    let victims = found(two_groups());
    assert_eq!(ends(&victims), [(1, 4, 3)]);
    assert_eq!(victims[0].end.name, name("b"));
    let steps: Vec<(u64, &Name, u64)> = victims[0]
        .cycle
        .iter()
        .map(|step| (step.waiter.0.get(), &step.wants, step.blocker_token.unwrap().get()))
        .collect();
    assert_eq!(steps, [(2, &name("b"), 3), (1, &name("a"), 5)]);
    assert_eq!(victims[0].cycle[0].blocker, (LeaseId::new(1).unwrap(), Owner::new("w").unwrap()));
}

#[test]
fn a_cycle_over_three_groups_is_found() {
    let ring = (1..=3).map(|n| vec![wait(named(n), "a", 10 + n, vec![(named(n % 3 + 1), grant(n))])]);
    let victims = found(ring.collect());
    assert_eq!(ends(&victims), [(2, 13, 3)]);
    assert_eq!(victims[0].cycle.len(), 3);
}

#[test]
fn what_changed_between_the_passes_is_no_deadlock() {
    let first = pass(two_groups());
    let with = |change: &dyn Fn(&mut BlockedWait)| {
        let mut groups = two_groups();
        change(&mut groups[1][0]);
        let second = pass(groups);
        (find_deadlocks(&first, &second, 9), find_deadlocks(&second, &first, 9))
    };
    let other_token = with(&|wait| wait.blockers[0].by = grant(4));
    let other_wait = with(&|wait| wait.create_revision = revision(5));
    let other_lease = with(&|wait| wait.who.incarnation = revision(2));
    let other_holder = with(&|wait| wait.blockers[0].who = named(3));
    let gone = with(&|wait| wait.blockers.clear());
    for (one, other) in [other_token, other_wait, other_lease, other_holder, gone] {
        assert_eq!((one, other), (vec![], vec![]));
    }
    let mut silent = pass(two_groups());
    silent.remove(&GroupId::new(1));
    assert_eq!(find_deadlocks(&first, &silent, 9), vec![], "a group that was not asked tells nothing");
}

#[test]
fn a_wait_without_a_way_back_is_no_deadlock() {
    let chain = vec![
        vec![wait(named(1), "a", 1, vec![(named(2), grant(1))])],
        vec![
            wait(named(2), "b", 1, vec![(named(3), grant(1))]),
            wait(named(4), "b", 2, vec![(named(1), grant(2))]),
        ],
    ];
    assert_eq!(found(chain), vec![]);
}

#[test]
fn the_empty_owner_takes_no_part() {
    let tasks = vec![
        vec![wait(who(1, ""), "a", 9, vec![(who(2, ""), grant(5))])],
        vec![wait(who(2, ""), "b", 4, vec![(who(1, ""), grant(3))])],
    ];
    assert_eq!(found(tasks), vec![]);
}

/// A wait of the empty owner can be a link of a cycle, but is never ended for it.
#[test]
fn a_wait_of_the_empty_owner_stands_between_and_is_no_victim() {
    let groups = vec![
        vec![
            wait(who(7, ""), "a", 8, vec![(named(2), grant(5))]),
            wait(named(1), "a", 9, vec![(who(7, ""), ahead(8, false))]),
        ],
        vec![wait(named(2), "b", 4, vec![(named(1), grant(3))])],
    ];
    let victims = found(groups.clone());
    assert_eq!(ends(&victims), [(1, 4, 3)]);
    assert_eq!(victims[0].cycle.len(), 2, "{:?}", victims[0].cycle);
    // With the groups swapped, the other wait is younger: it ends, for the grant that is in the way of the wait ahead.
    let swapped = groups.into_iter().rev().collect();
    assert_eq!(ends(&found(swapped)), [(1, 9, 5)]);
}

/// Readers share: a reader behind another reader does not wait for the other to finish.
#[test]
fn one_ahead_that_will_share_is_waited_for_only_while_it_waits() {
    let queue = |excludes| {
        vec![
            vec![
                wait(named(2), "a", 8, vec![(named(9), grant(5))]),
                wait(named(1), "a", 9, vec![(named(2), ahead(8, excludes))]),
            ],
            vec![wait(named(2), "b", 4, vec![(named(1), grant(3))])],
        ]
    };
    assert_eq!(found(queue(false)), vec![], "lease 9 goes on, both share, and 1 gives b back");
    assert_eq!(ends(&found(queue(true))), [(1, 4, 3)]);
}

/// The holders of the locks may go on; then the waits ahead hold, and there is a grant to name.
#[test]
fn a_cycle_of_places_in_queues_alone_waits_for_a_grant() {
    let groups = vec![
        vec![wait(named(2), "a", 8, vec![]), wait(named(1), "a", 9, vec![(named(2), ahead(8, true))])],
        vec![wait(named(1), "b", 3, vec![]), wait(named(2), "b", 4, vec![(named(1), ahead(3, true))])],
    ];
    assert_eq!(found(groups), vec![]);
}

#[test]
fn a_second_lease_with_the_same_id_is_another() {
    let mut groups = two_groups();
    groups[1][0].who.incarnation = revision(2);
    assert_eq!(found(groups), vec![]);
}

#[test]
fn every_knot_has_a_victim_and_no_more_than_asked_for() {
    let pair = |n: u64| {
        let (one, other) = (named(10 * n + 1), named(10 * n + 2));
        (
            wait(one.clone(), "a", 100 + n, vec![(other.clone(), grant(n))]),
            wait(other, "b", 100 + n, vec![(one, grant(n))]),
        )
    };
    let (first, second): (Vec<_>, Vec<_>) = (1..=5).map(pair).unzip();
    let pass = pass(vec![first, second]);
    let all = find_deadlocks(&pass, &pass, 100);
    assert_eq!(ends(&all), [(1, 105, 5), (1, 104, 4), (1, 103, 3), (1, 102, 2), (1, 101, 1)]);
    assert_eq!(find_deadlocks(&pass, &pass, 2), all[..2]);
    assert_eq!(find_deadlocks(&pass, &pass, 0), vec![]);
}

/// Two cycles share one wait: its end breaks both.
#[test]
fn a_wait_in_two_cycles_is_ended_once() {
    let groups = vec![
        vec![
            wait(named(2), "a", 1, vec![(named(1), grant(1))]),
            wait(named(3), "b", 2, vec![(named(1), grant(2))]),
        ],
        vec![wait(named(1), "c", 9, vec![(named(2), grant(3)), (named(3), grant(4))])],
    ];
    assert_eq!(ends(&found(groups)), [(1, 9, 3)]);
}

/// As large as groups may report, and deeper than any stack.
#[test]
fn a_large_graph_is_searched_without_recursion() {
    const OWNERS: u64 = 50_000;
    let ring = |n: u64| wait(named(n), "a", n, vec![(named(n % OWNERS + 1), grant(n))]);
    let mut groups: Vec<Vec<BlockedWait>> = vec![Vec::new(), Vec::new()];
    for n in 1..=OWNERS {
        groups[usize::from(n % 2 == 0)].push(ring(n));
    }
    let victims = found(groups.clone());
    assert_eq!(ends(&victims), [(1, OWNERS, OWNERS)]);
    assert_eq!(victims[0].cycle.len() as u64, OWNERS);
    groups[1].pop();
    assert_eq!(found(groups), vec![], "one link less, and it is a chain");
}
