//! P4, P13: a read of a register shows the last write at or below its revision.
//!
//! Writes and reads carry revisions, which put them in order. Not here: whether that order is the true one
//! (`revisions`).

use crate::call::{Op, Outcome};
use crate::evidence::{Call, Evidence};
use crate::report::{Promise, Report};
use std::collections::BTreeMap;
use tollgate_types::{Key, Revision, Value};

/// The revision of a read, its result, and the call that made it.
type Read<'e, 'a> = (Revision, Option<&'a (Value, Revision)>, &'e Call<'a>);

/// All writes and reads of one key.
#[derive(Default)]
struct Register<'e, 'a> {
    /// The value of each write and the events that show it, by revision.
    writes: BTreeMap<Revision, (&'a Value, Vec<usize>)>,
    /// Writes without an answer, with the place of the call: any read may show them.
    unanswered: Vec<(&'a Value, usize)>,
    reads: Vec<Read<'e, 'a>>,
}

pub(crate) fn check(evidence: &Evidence<'_>, report: &mut Report) {
    let mut registers: BTreeMap<&Key, Register<'_, '_>> = BTreeMap::new();
    for call in &evidence.calls.all {
        match (call.op, call.outcome()) {
            (Op::PutRegister { key, value }, Some(Outcome::Written { revision })) => {
                registers.entry(key).or_default().writes.insert(*revision, (value, call.events()));
            }
            (Op::PutRegister { key, value }, None) => {
                registers.entry(key).or_default().unanswered.push((value, call.invoked));
            }
            (Op::ReadRegister { key }, Some(Outcome::Register { revision, found })) => {
                registers.entry(key).or_default().reads.push((*revision, found.as_ref(), call));
            }
            _ => {}
        }
    }
    for (key, mut register) in registers {
        take_in_unanswered(&mut register);
        for (revision, found, call) in &register.reads {
            check_read(key, &register, *revision, *found, call, report);
        }
    }
}

/// Counts a write without an answer as made if a read shows its value.
fn take_in_unanswered(register: &mut Register<'_, '_>) {
    for (_, found, call) in &register.reads {
        let Some((value, written)) = found else { continue };
        let wrote = |(put, invoked): &&(&Value, usize)| *put == value && *invoked < call.close();
        if let Some((_, invoked)) = register.unanswered.iter().find(wrote) {
            register.writes.entry(*written).or_insert((value, vec![*invoked]));
        }
    }
}

fn check_read(
    key: &Key,
    register: &Register<'_, '_>,
    revision: Revision,
    found: Option<&(Value, Revision)>,
    call: &Call<'_>,
    report: &mut Report,
) {
    let last = register.writes.range(..=revision).next_back();
    let expected = last.map(|(written, (value, _))| (*value, *written));
    if expected != found.map(|(value, written)| (value, *written)) {
        let written =
            |found: Option<Revision>| found.map_or("no write".to_owned(), |at| format!("the write at {at}"));
        let says = format!(
            "a read of register {key} at revision {revision} shows {}, not {}",
            written(found.map(|(_, at)| *at)),
            written(expected.map(|(_, at)| at)),
        );
        let wrote = last.map_or(Vec::new(), |(_, (_, events))| events.clone());
        // A write that was known before the read began is lost; anything else was made up.
        let had_it =
            last.is_some_and(|(_, (_, events))| events.last().is_some_and(|place| *place < call.invoked));
        let promise = if had_it { Promise::P4 } else { Promise::P13 };
        report.broken(promise, wrote.into_iter().chain(call.events()).collect(), says);
    }
}

#[cfg(test)]
mod tests {
    use crate::checks::scenario::Scenario;
    use crate::report::Promise::{P4, P13};

    #[test]
    fn reads_of_the_last_write_pass() {
        let mut run = Scenario::with_leases(0);
        run.read_register("k", 1, None)
            .put("k", "x", 2)
            .read_register("k", 3, Some(("x", 2)))
            .put("k", "y", 4);
        run.put_unanswered("k", "z").read_register("k", 5, Some(("z", 5)));
        run.passes();
    }

    #[test]
    fn a_lost_write_is_a_violation() {
        let mut run = Scenario::with_leases(0);
        run.put("k", "x", 2).put("k", "y", 4).read_register("k", 4, Some(("x", 2)));
        run.breaks(P4, "shows the write at 2, not the write at 4");
    }

    #[test]
    fn a_write_that_nobody_made_is_a_violation() {
        let mut run = Scenario::with_leases(0);
        run.read_register("k", 4, Some(("x", 2)));
        run.breaks(P13, "shows the write at 2, not no write");
    }
}
