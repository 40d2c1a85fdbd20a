//! Faults: entries that no correct log contains. A replica that meets one must stop, so the core panics and says why.

use crate::commands::{Replica, at, grant, lock};
use tollgate_core::{APPLY_VERSION_SUPPORTED, Command, Rejection, Reply, State};
use tollgate_types::{Limits, LogTime};

fn state() -> Replica {
    Replica::new(&Limits::DEFAULT, None)
}

#[test]
#[should_panic(expected = "leaders stamp entries in log order")]
fn an_entry_that_is_stamped_backwards_is_a_fault() {
    let mut replica = state();
    replica.at(10, Command::Tick);
    replica.at(9, Command::Tick);
}

#[test]
#[should_panic(expected = "leaders stamp entries in log order")]
fn a_restored_state_knows_the_last_stamp() {
    let mut replica = state();
    replica.at(10, Command::Tick);
    replica.restore(100).expect("a snapshot loads");
    replica.at(9, Command::Tick);
}

#[test]
fn entries_with_equal_stamps_are_fine() {
    let mut replica = state();
    for command in [Command::Tick, grant(1, 1_000), lock(1, "jobs"), Command::Tick] {
        replica.at(10, command);
        replica.state.assert_invariants();
    }
    assert_eq!(replica.state.now(), LogTime::from_ms(10));
    assert_eq!(replica.state.lock_count(), 1);
}

#[test]
fn the_last_stamp_there_is_ends_everything_and_faults_nothing() {
    let mut replica = state();
    replica.at(0, grant(1, 1_000));
    replica.at(0, lock(1, "jobs"));
    replica.at(u64::MAX, Command::Tick);
    replica.state.assert_invariants();
    assert_eq!((replica.state.lock_count(), replica.state.lease_count()), (0, 0));
}

#[test]
#[should_panic(expected = "the group moved on to apply version 4 and this binary knows 3: upgrade it")]
fn an_apply_version_that_this_binary_lacks_is_a_fault() {
    state().at(0, Command::RaiseApplyVersion(APPLY_VERSION_SUPPORTED + 1));
}

#[test]
fn an_apply_version_that_is_there_already_is_only_refused() {
    let mut replica = state();
    for asked in 0..=APPLY_VERSION_SUPPORTED {
        let current = replica.state.apply_version();
        let reply = replica.at(0, Command::RaiseApplyVersion(asked)).reply;
        assert_eq!(reply, Reply::Rejected(Rejection::ApplyVersionNotRaised { current, asked }));
    }
}

#[test]
#[should_panic(expected = "limits are validated before a group is made")]
fn a_group_is_not_made_with_limits_that_it_cannot_have() {
    State::new(Limits { reaps_per_entry_max: 0, ..Limits::DEFAULT });
}

#[test]
#[should_panic(expected = "limits are validated before a group is made")]
fn a_group_is_not_made_with_a_ttl_range_that_is_empty() {
    State::new(Limits { ttl_ms_min: 20, ttl_ms_max: 10, ..Limits::DEFAULT });
}

#[test]
fn invalid_limits_in_a_command_are_refused_and_no_fault() {
    let mut replica = state();
    let limits = Limits { ttl_ms_min: 20, ttl_ms_max: 10, ..Limits::DEFAULT };
    let applied = replica.apply(&at(0, Command::SetLimits(Box::new(limits))));
    assert!(matches!(applied.reply, Reply::Rejected(Rejection::InvalidLimits(_))));
    assert_eq!(*replica.state.limits(), Limits::DEFAULT);
}
