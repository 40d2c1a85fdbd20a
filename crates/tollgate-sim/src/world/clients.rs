//! Clients in the world: their clocks, their pauses, and their messages to the nodes.
//!
//! A client that is gone never comes back; another one takes its place. Not here: the behaviour of clients (`client`).

use super::{Happening, World};
use crate::client::{Client, ClientContext, ClientSettings};
use crate::clock::SimClock;
use crate::front::{Request, Response};
use crate::network::End;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::types::{At, ClientNo};
use std::collections::BTreeMap;
use tollgate_check::Event;
use tollgate_types::NodeId;

/// All present clients.
pub(super) struct Clients {
    next: u32,
    slots: BTreeMap<ClientNo, Slot>,
}

struct Slot {
    client: Client,
    clock: SimClock,
    paused_until: At,
    wake_at: At,
    ticket: u64,
    /// Responses that arrived while the client was paused.
    waiting: Vec<(NodeId, Response)>,
}

impl Clients {
    pub(super) fn new() -> Clients {
        Clients { next: 1, slots: BTreeMap::new() }
    }

    /// Returns the clients that still have something to do.
    pub(super) fn busy(&self) -> Vec<ClientNo> {
        self.slots.iter().filter(|(_, slot)| !slot.client.is_quiet()).map(|(no, _)| *no).collect()
    }

    /// Iterates over the numbers of all clients.
    pub(super) fn numbers(&self) -> impl Iterator<Item = ClientNo> {
        self.slots.keys().copied()
    }

    /// Returns one of the clients, chosen by any number.
    fn pick(&self, number: u64) -> Option<ClientNo> {
        let count = self.slots.len() as u64;
        let place = usize::try_from(number.checked_rem(count)?).expect("small");
        self.slots.keys().nth(place).copied()
    }
}

impl World {
    pub(super) fn add_client(&mut self) {
        let no = ClientNo(self.clients.next);
        self.clients.next += 1;
        let scenario = &self.scenario;
        let mut rng = Rng::stream(scenario.seed, "client", u64::from(no.0));
        let settings = settings(&mut rng, scenario);
        let rho = u64::from(scenario.rho_ppm);
        let off_ppm = i64::try_from(rng.below(2 * rho + 1)).expect("small") - i64::from(scenario.rho_ppm);
        let clock = SimClock::new(self.now, rng.below(1 << 40), off_ppm);
        let client = Client::new(no, settings, rng);
        let slot = Slot { client, clock, paused_until: 0, wake_at: At::MAX, ticket: 0, waiting: Vec::new() };
        self.clients.slots.insert(no, slot);
        if self.healing.begun {
            self.clients.slots.get_mut(&no).expect("just added").client.heal();
        }
        self.plan(self.now + 1, Happening::Wake { client: no, ticket: 0 });
    }

    pub(super) fn client_wakes(&mut self, no: ClientNo, ticket: u64) {
        let now = self.now;
        let Some(slot) = self.clients.slots.get_mut(&no).filter(|slot| slot.ticket == ticket) else { return };
        slot.wake_at = At::MAX;
        if slot.paused_until > now {
            let until = slot.paused_until;
            self.plan_wake(no, until);
            return;
        }
        let waiting = std::mem::take(&mut slot.waiting);
        for (from, response) in waiting {
            self.with_client(no, |client, local, at, context| {
                client.response(from, response, local, at, context);
            });
        }
        self.with_client(no, Client::wake);
    }

    pub(super) fn response_arrives(&mut self, from: u64, to: ClientNo, epoch: u32, response: Response) {
        if !self.network.is_current(End::Node(from), End::Client(to.0), epoch) {
            return;
        }
        let now = self.now;
        let Some(slot) = self.clients.slots.get_mut(&to) else { return };
        let from = NodeId::new(from).expect("a node answered");
        if slot.paused_until > now {
            slot.waiting.push((from, response));
            let until = slot.paused_until;
            self.plan_wake(to, until);
            return;
        }
        self.with_client(to, |client, local, at, context| {
            client.response(from, response, local, at, context);
        });
    }

    /// Lets a client act, sends its messages, and plans its next wake-up.
    fn with_client(&mut self, no: ClientNo, act: impl FnOnce(&mut Client, u64, At, &mut ClientContext<'_>)) {
        let now = self.now;
        let nodes: Vec<NodeId> =
            self.nodes.values().filter(|node| !node.retired).map(|node| node.id).collect();
        let raised = self.is_raised();
        let Some(slot) = self.clients.slots.get_mut(&no) else { return };
        let local = slot.clock.read(now);
        self.trace.mix([u64::from(no.0) << 32, now, local]);
        let mut out: Vec<(NodeId, Request)> = Vec::new();
        let mut context = ClientContext {
            history: &mut self.history,
            stores: &mut self.stores,
            out: &mut out,
            nodes: &nodes,
            groups: self.scenario.groups,
            raised,
            stats: &mut self.client_stats,
            violations: &mut self.violations,
        };
        act(&mut slot.client, local, now, &mut context);
        let wake = slot.clock.when(now, slot.client.next_wake());
        self.plan_wake(no, wake.max(now + 10));
        for (to, request) in out {
            self.send_request(no, to.number(), request);
        }
    }

    /// Returns true if every group was raised to the newest version: then everything proposed from here on stands
    /// behind the raise in its log. Once true, this stays true.
    fn is_raised(&mut self) -> bool {
        let newest = tollgate_core::APPLY_VERSION_SUPPORTED;
        if !self.raised {
            let hosts: Vec<_> = self.nodes.values().filter_map(|node| node.process.as_ref()).collect();
            let is_raised = |group| {
                let states = hosts.iter().filter_map(|process| process.host.state(group));
                states.map(tollgate_core::State::apply_version).max() == Some(newest)
            };
            self.raised = self.groups().all(is_raised);
        }
        self.raised
    }

    fn plan_wake(&mut self, no: ClientNo, at: At) {
        let Some(slot) = self.clients.slots.get_mut(&no) else { return };
        if at >= slot.wake_at {
            return;
        }
        slot.wake_at = at;
        slot.ticket += 1;
        let ticket = slot.ticket;
        if at != At::MAX {
            self.plan(at, Happening::Wake { client: no, ticket });
        }
    }

    fn send_request(&mut self, from: ClientNo, to: u64, request: Request) {
        self.trace.say(self.now, || format!("{from} -> n{to} {request:?}"));
        let (arrivals, epoch) = self.network.send(self.now, End::Client(from.0), End::Node(to));
        if let Some(at) = arrivals[1] {
            let request = Box::new(request.clone());
            self.plan(at, Happening::Request { from, to, epoch, request });
        }
        if let Some(at) = arrivals[0] {
            self.plan(at, Happening::Request { from, to, epoch, request: Box::new(request) });
        }
    }

    /// Removes a client for good, and adds another.
    pub(super) fn crash_client(&mut self, number: u64) -> bool {
        let Some(no) = self.clients.pick(number) else { return false };
        self.clients.slots.remove(&no);
        self.network.forget(End::Client(no.0));
        self.record(Event::ClientGone { client: no.0 });
        self.say(|| format!("{no} is gone"));
        self.add_client();
        true
    }

    pub(super) fn pause_client(&mut self, number: u64, until: At) -> bool {
        let Some(no) = self.clients.pick(number) else { return false };
        let slot = self.clients.slots.get_mut(&no).expect("just picked");
        slot.paused_until = slot.paused_until.max(until);
        self.say(|| format!("{no} stands still"));
        true
    }

    /// Lets every client go on and wind down.
    pub(super) fn heal_clients(&mut self) {
        let now = self.now;
        let all: Vec<ClientNo> = self.clients.slots.keys().copied().collect();
        for no in all {
            let slot = self.clients.slots.get_mut(&no).expect("just listed");
            slot.paused_until = slot.paused_until.min(now);
            slot.client.heal();
            self.plan_wake(no, now + 1);
        }
    }
}

fn settings(rng: &mut Rng, scenario: &Scenario) -> ClientSettings {
    let ttl_ms = rng.range(scenario.ttl_ms_min, scenario.ttl_ms_max);
    let vanish_us = super::caller_liveness::unattended_us_max(scenario) + 1_000_000;
    let deadlocks_seen = scenario.groups > 1;
    ClientSettings { vanish_us, deadlocks_seen, ..ClientSettings::new(ttl_ms, scenario.rho_ppm) }
}
