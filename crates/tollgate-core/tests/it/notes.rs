//! Notes for people: the events in the life of claims and leases, with durations and reasons; and only those asked for.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use tollgate_core::{
    AcquireLock, Command, ConvertLock, EndReason, Entry, ForceRelease, GrantLease, LeaseChoice, Note, Noted,
    Noting, ReleaseBy, ReleaseLock, RevokeLease, State, Wait,
};
use tollgate_types::{
    Address, ClientId, DurationMs, LeaseId, Limits, LogTime, Metadata, Mode, Name, Names, Owner, Reason,
    Token,
};

struct Story {
    state: State,
}

impl Story {
    fn noting(noting: Noting) -> Story {
        let mut story = Story { state: State::new(Limits::DEFAULT) };
        story.state.take_notes_of(noting);
        for (id, client) in [(1, "ada"), (2, "bob")] {
            let grant = GrantLease {
                id: LeaseChoice::Chosen(lease(id)),
                ttl: DurationMs::from_secs(10),
                client_id: ClientId::new(client).unwrap(),
                address: Address::NONE,
                revoke_on_disconnect: false,
            };
            story.at(0, Command::GrantLease(grant));
        }
        story
    }

    fn at(&mut self, ms: u64, command: Command) {
        self.state.apply(Entry::new(LogTime::from_ms(ms), command));
    }

    /// All notes since the last call, each in a few words.
    fn told(&mut self) -> Vec<String> {
        self.state.notes().iter().map(shown).collect()
    }
}

fn shown(note: &Note) -> String {
    let names: Vec<String> = note.names.iter().map(ToString::to_string).collect();
    let token = note.token.map_or(0, Token::get);
    let span = |span: Option<DurationMs>| span.map_or("-".to_owned(), |span| span.ms().to_string());
    let reason = note.reason.map_or("-".to_owned(), |reason| format!("{reason:?}"));
    format!(
        "{:?} {} {} token={token} waited={} held={} {reason}",
        note.what,
        note.client_id,
        names.join(","),
        span(note.waited),
        span(note.held)
    )
}

fn lease(id: u64) -> LeaseId {
    LeaseId::new(id).unwrap()
}

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

fn acquire(id: u64, on: &str, mode: Mode, wait: Wait) -> AcquireLock {
    AcquireLock {
        names: name(on).into(),
        lease: lease(id),
        owner: Owner::new("t").unwrap(),
        mode,
        wait,
        lock_delay: DurationMs::ZERO,
        max_hold: None,
        metadata: Metadata::NONE,
        value: None,
        attended: false,
        request: None,
    }
}

fn lock(id: u64, on: &str) -> Command {
    Command::AcquireLock(acquire(id, on, Mode::Exclusive, Wait::Forever))
}

fn release(id: u64, on: &str) -> Command {
    let by =
        ReleaseBy::Holder { lease: lease(id), owner: Owner::new("t").unwrap(), token: None, request: None };
    Command::ReleaseLock(ReleaseLock { names: name(on).into(), by })
}

#[test]
fn a_lock_that_changes_hands_is_noted_step_by_step() {
    let mut story = Story::noting(Noting::All);
    story.at(1_000, lock(1, "jobs"));
    story.at(2_000, lock(2, "jobs"));
    story.at(5_000, release(1, "jobs"));
    assert_eq!(
        story.told(),
        [
            "Granted ada jobs token=3 waited=0 held=- -",
            "Waits bob jobs token=0 waited=- held=- -",
            "Ended ada jobs token=3 waited=- held=4000 Released",
            "Granted bob jobs token=6 waited=3000 held=- -",
        ]
    );
    assert_eq!(story.told(), Vec::<String>::new(), "each is told once");
}

#[test]
fn an_ended_lease_is_noted_with_what_it_held_and_awaited() {
    let mut story = Story::noting(Noting::All);
    story.at(1_000, lock(1, "jobs"));
    story.at(1_000, lock(2, "tasks"));
    story.at(2_000, lock(1, "tasks"));
    story.told();
    story.at(10_000, Command::Tick);
    let told = story.told();
    for expected in [
        "Ended ada jobs token=3 waited=- held=9000 LeaseExpired",
        "Left ada tasks token=0 waited=8000 held=- LeaseExpired",
        "LeaseEnded ada  token=0 waited=- held=- LeaseExpired",
        "Ended bob tasks token=4 waited=- held=9000 LeaseExpired",
    ] {
        assert!(told.contains(&expected.to_owned()), "{expected}: {told:#?}");
    }
}

#[test]
fn only_losses_are_noted_where_only_those_are_asked_for() {
    let mut story = Story::noting(Noting::Losses);
    story.at(1_000, lock(1, "jobs"));
    story.at(1_000, lock(2, "jobs"));
    story.at(2_000, release(1, "jobs"));
    story.at(2_000, lock(1, "jobs"));
    assert_eq!(story.told(), Vec::<String>::new(), "a lock that changes hands as it should is no loss");
    let Some(held) = story.state.lock(&name("jobs")) else { panic!("bob holds it") };
    let (token, reason) = (held.holders[0].token, Reason::new("stuck").unwrap());
    story.at(3_000, Command::ForceRelease(ForceRelease { name: name("jobs"), token, reason }));
    assert_eq!(story.told(), ["Ended bob jobs token=6 waited=- held=1000 Forced"]);
    story.at(3_000, Command::RevokeLease(RevokeLease { lease: lease(1), disconnected: None }));
    assert_eq!(story.told(), ["Ended ada jobs token=9 waited=- held=0 LeaseRevoked"]);
    story.at(10_000, Command::Tick);
    assert_eq!(story.told(), ["LeaseEnded bob  token=0 waited=- held=- LeaseExpired"]);
}

#[test]
fn a_wait_that_would_never_end_is_noted() {
    for noting in [Noting::Losses, Noting::All] {
        let mut story = Story::noting(noting);
        story.at(0, lock(1, "jobs"));
        story.at(0, lock(2, "tasks"));
        story.at(1_000, lock(1, "tasks"));
        story.told();
        story.at(2_000, lock(2, "jobs"));
        assert_eq!(story.told(), ["Refused bob jobs token=0 waited=- held=- Deadlock"]);
    }
}

#[test]
fn a_stronger_mode_is_noted_as_waited_for_and_held() {
    let mut story = Story::noting(Noting::All);
    for id in [1, 2] {
        story.at(0, Command::AcquireLock(acquire(id, "jobs", Mode::Shared, Wait::No)));
    }
    story.told();
    let convert = ConvertLock {
        names: name("jobs").into(),
        lease: lease(1),
        owner: Owner::new("t").unwrap(),
        mode: Mode::Exclusive,
        wait: Wait::Forever,
        attended: false,
        request: None,
    };
    story.at(1_000, Command::ConvertLock(convert));
    story.at(2_000, release(2, "jobs"));
    let what: Vec<Noted> = story.state.notes().iter().map(|note| note.what).collect();
    assert_eq!(what, [Noted::Waits, Noted::Ended, Noted::Converted]);
}

#[test]
fn some_of_several_names_that_are_given_back_are_noted_alone() {
    let mut story = Story::noting(Noting::All);
    let names = Names::new(vec![name("a"), name("b")]).unwrap();
    story.at(0, Command::AcquireLock(AcquireLock { names, ..acquire(1, "a", Mode::Exclusive, Wait::No) }));
    story.at(500, release(1, "b"));
    assert_eq!(
        story.told(),
        ["Granted ada a,b token=3 waited=0 held=- -", "Ended ada b token=3 waited=- held=500 Released",]
    );
}

#[test]
fn nothing_is_noted_unless_it_was_asked_for() {
    let mut story = Story::noting(Noting::Nothing);
    story.at(0, lock(1, "jobs"));
    story.at(10_000, Command::Tick);
    assert_eq!((story.state.notes(), EndReason::LeaseExpired.is_involuntary()), (vec![], true));
}
