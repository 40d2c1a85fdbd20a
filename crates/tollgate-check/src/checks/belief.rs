//! P7: a client believes in its lease no longer than it may, and no server ends a lease while its client believes in
//! it.
//!
//! The second half is the purpose of the first: a client that believes in its lease acts as a holder.

use crate::at::At;
use crate::call::{Op, Outcome};
use crate::event::{Event, LeaseEnd};
use crate::evidence::{Call, Evidence};
use crate::report::{Promise, Report};
use std::collections::BTreeMap;
use tollgate_types::LeaseId;

/// Knowledge and belief of a client about a lease.
#[derive(Default)]
struct Belief {
    /// The latest moment that the acknowledged renewals allow, and the events of the renewal that allows it.
    allowed: Option<(At, Vec<usize>)>,
    /// End of the belief that the client recorded last, and the place of that event.
    until: Option<(At, usize)>,
}

pub(crate) fn check(evidence: &Evidence<'_>, report: &mut Report) {
    let mut beliefs: BTreeMap<(u32, LeaseId), Belief> = BTreeMap::new();
    for (place, event) in evidence.timeline.iter() {
        match event {
            Event::Return { call, .. } => {
                let call = evidence.calls.get(*call).filter(|call| call.close() == place);
                if let Some((call, lease, ttl_ms)) = call.and_then(renewed) {
                    let sent = evidence.timeline.at(call.invoked);
                    let until = evidence.settings.believed_until(sent, ttl_ms);
                    let belief = beliefs.entry((call.client, lease)).or_default();
                    if belief.allowed.as_ref().is_none_or(|(allowed, _)| *allowed < until) {
                        belief.allowed = Some((until, call.events()));
                    }
                }
            }
            Event::Believes { client, lease, until } => {
                let belief = beliefs.entry((*client, *lease)).or_default();
                belief.until = Some((*until, place));
                not_beyond(evidence.timeline.at(place), belief, (*client, *lease), report);
            }
            Event::Invoke { client, op: Op::KeepAlive { lease }, .. } => {
                let now = evidence.timeline.at(place);
                let belief = beliefs.get(&(*client, *lease)).and_then(|belief| belief.until);
                if let Some((until, told)) = belief.filter(|(until, _)| *until < now) {
                    let says =
                        format!("client {client} renews lease {lease} at {now}, but gave it up at {until}");
                    report.broken(Promise::P7, vec![told, place], says);
                }
            }
            Event::LeaseEnded { lease, reason: LeaseEnd::Expired, stub: false, .. } => {
                let now = evidence.timeline.at(place);
                for ((client, _), belief) in beliefs.iter().filter(|((_, of), _)| of == lease) {
                    if let Some((until, told)) = belief.until.filter(|(until, _)| *until > now) {
                        let says = format!(
                            "lease {lease} expired at {now}, but client {client} believes in it until {until}"
                        );
                        report.broken(Promise::P7, vec![told, place], says);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Returns the call, the lease and its time to live if the answer shows that the lease was granted or renewed.
fn renewed<'c, 'a>(call: &'c Call<'a>) -> Option<(&'c Call<'a>, LeaseId, u64)> {
    match (call.op, call.outcome()?) {
        (_, Outcome::LeaseGranted { lease, ttl_ms, .. })
        | (Op::KeepAlive { lease }, Outcome::Renewed { ttl_ms }) => Some((call, *lease, *ttl_ms)),
        _ => None,
    }
}

fn not_beyond(now: At, belief: &Belief, (client, lease): (u32, LeaseId), report: &mut Report) {
    let Some((until, place)) = belief.until.filter(|(until, _)| *until > now) else { return };
    let (allowed, mut events) = belief.allowed.clone().unwrap_or((At::ZERO, Vec::new()));
    if until > allowed {
        events.push(place);
        let says = format!("client {client} believes in lease {lease} until {until}: it may until {allowed}");
        report.broken(Promise::P7, events, says);
    }
}

#[cfg(test)]
mod tests {
    use crate::checks::scenario::Scenario;
    use crate::report::Promise::P7;

    #[test]
    fn a_client_that_gives_up_in_time_passes() {
        let mut run = Scenario::with_leases(1);
        run.believes_ms(1, 9_790).wait_ms(5_000).keep_alive(1).believes_ms(1, 9_790).wait_ms(10_200);
        run.lease_expired(1, 2);
        run.passes();
    }

    #[test]
    fn a_belief_beyond_the_bound_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.believes_ms(1, 9_950);
        run.breaks(P7, "believes in lease");
    }

    #[test]
    fn a_keepalive_without_an_answer_does_not_prolong_the_belief() {
        let mut run = Scenario::with_leases(1);
        run.wait_ms(5_000).keep_alive_unanswered(1, true).believes_ms(1, 9_790);
        run.breaks(P7, "it may until");
    }

    #[test]
    fn a_lease_that_ends_while_its_client_believes_in_it_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.believes_ms(1, 9_790).wait_ms(9_000).lease_expired(1, 2);
        run.breaks(P7, "client 1 believes in it until");
    }

    #[test]
    fn a_renewal_after_the_belief_ended_is_a_violation() {
        let mut run = Scenario::with_leases(1);
        run.believes_ms(1, 9_790).wait_ms(9_900).keep_alive(1);
        run.breaks(P7, "but gave it up at");
    }
}
