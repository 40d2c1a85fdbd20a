//! The network between nodes, and between clients and nodes: decides if, when and how often a message arrives.
//!
//! Without faults a link is like a connection: nothing is lost and everything arrives in order. Faults make a link
//! lose, repeat, delay and reorder messages; a cut lets nothing through, in one direction or both. Invariant: a message
//! under way when its connection is reset never arrives. Not here: the faults and their times (`faults`).

use crate::rng::Rng;
use crate::types::At;
use std::collections::BTreeMap;

/// One end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum End {
    /// A node, by its number.
    Node(u64),
    /// A client, by its number.
    Client(u32),
}

/// Behaviour of a bad network, on some links or all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Weather {
    /// Messages lost, per million.
    pub drop_ppm: u32,
    /// Messages delivered twice, per million.
    pub duplicate_ppm: u32,
    /// Messages delayed, per million.
    pub delay_ppm: u32,
    /// Maximum delay, in microseconds.
    pub delay_us_max: u64,
    /// True if later messages may overtake earlier ones.
    pub reorder: bool,
}

/// Links that a fault affects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Links {
    /// All links.
    All,
    /// Links to and from one node, by its number.
    OfNode(u64),
    /// Links of clients.
    Clients,
}

/// Latency of the network without faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    /// Lowest latency of a link before jitter, in microseconds.
    pub us_min: u64,
    /// Highest latency of a link before jitter, in microseconds.
    pub us_max: u64,
}

#[derive(Debug, Clone)]
struct Link {
    /// Time that a message takes on this link, before jitter.
    base_us: u64,
    jitter_us: u64,
    /// Arrival of the last message of this connection: later messages don't arrive before it.
    last_arrival: At,
    /// Number of the connection: messages of an earlier epoch are lost, because their connection was reset.
    epoch: u32,
}

/// A cut: nothing passes from one side to the other.
#[derive(Debug, Clone)]
struct Cut {
    id: usize,
    /// The ends on the far side.
    far: Vec<End>,
    /// True if the cut holds in one direction only, from near to far.
    one_way: bool,
}

/// All links, and the faults on them.
pub(crate) struct Network {
    rng: Rng,
    latency: Latency,
    links: BTreeMap<(End, End), Link>,
    weathers: Vec<(usize, Links, Weather)>,
    cuts: Vec<Cut>,
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
}

/// Arrival times of the copies of a message: none, one or two.
pub(crate) type Arrivals = [Option<At>; 2];

impl Network {
    pub(crate) fn new(rng: Rng, latency: Latency) -> Network {
        Network {
            rng,
            latency,
            links: BTreeMap::new(),
            weathers: Vec::new(),
            cuts: Vec::new(),
            sent: 0,
            lost: 0,
            duplicated: 0,
        }
    }

    /// Sends a message. Returns the arrivals of its copies and the epoch of the connection, which `is_current` takes.
    pub(crate) fn send(&mut self, now: At, from: End, to: End) -> (Arrivals, u32) {
        self.sent += 1;
        let weather = self.weather(from, to);
        let is_cut = self.is_cut(from, to);
        let latency = self.latency;
        let rng = &mut self.rng;
        let link = self.links.entry((from, to)).or_insert_with(|| new_link(rng, latency));
        let epoch = link.epoch;
        if is_cut || rng.chance_ppm(weather.drop_ppm) {
            self.lost += 1;
            return ([None, None], epoch);
        }
        let mut takes = link.base_us + rng.below(link.jitter_us + 1);
        if rng.chance_ppm(weather.delay_ppm) {
            takes += rng.below(weather.delay_us_max + 1);
        }
        let mut arrival = now + takes;
        if !weather.reorder {
            arrival = arrival.max(link.last_arrival);
            link.last_arrival = arrival;
        }
        let mut arrivals = [Some(arrival), None];
        if rng.chance_ppm(weather.duplicate_ppm) {
            self.duplicated += 1;
            arrivals[1] = Some(arrival + rng.below(takes * 4 + 1));
        }
        (arrivals, epoch)
    }

    /// Returns true if a message of this epoch may still arrive.
    pub(crate) fn is_current(&self, from: End, to: End, epoch: u32) -> bool {
        self.links.get(&(from, to)).is_some_and(|link| link.epoch == epoch)
    }

    /// Breaks the connection between two ends: messages under way are lost.
    pub(crate) fn reset(&mut self, one: End, other: End) {
        for pair in [(one, other), (other, one)] {
            if let Some(link) = self.links.get_mut(&pair) {
                link.epoch += 1;
                link.last_arrival = 0;
            }
        }
    }

    /// Breaks all connections of an end whose process is gone.
    pub(crate) fn reset_all(&mut self, end: End) {
        for ((from, to), link) in &mut self.links {
            if *from == end || *to == end {
                link.epoch += 1;
                link.last_arrival = 0;
            }
        }
    }

    /// Forgets an end that will never send or receive again.
    pub(crate) fn forget(&mut self, end: End) {
        self.links.retain(|(from, to), _| *from != end && *to != end);
    }

    pub(crate) fn add_weather(&mut self, id: usize, links: Links, weather: Weather) {
        self.weathers.push((id, links, weather));
    }

    pub(crate) fn add_cut(&mut self, id: usize, far: Vec<End>, one_way: bool) {
        self.cuts.push(Cut { id, far, one_way });
    }

    /// Ends a fault.
    pub(crate) fn remove(&mut self, id: usize) {
        self.weathers.retain(|(of, ..)| *of != id);
        self.cuts.retain(|cut| cut.id != id);
    }

    /// Ends all faults.
    pub(crate) fn clear(&mut self) {
        self.weathers.clear();
        self.cuts.clear();
    }

    /// Returns true if this cut has the end on its far side.
    pub(crate) fn cuts_off(&self, id: usize, end: End) -> bool {
        self.cuts.iter().any(|cut| cut.id == id && cut.far.contains(&end))
    }

    /// Returns true if a cut lets nothing through from one end to the other.
    pub(crate) fn is_cut(&self, from: End, to: End) -> bool {
        self.cuts.iter().any(|cut| {
            let (from_far, to_far) = (cut.far.contains(&from), cut.far.contains(&to));
            from_far != to_far && (!cut.one_way || to_far)
        })
    }

    /// Returns the worst of all faults on a link, combined.
    fn weather(&self, from: End, to: End) -> Weather {
        let mut worst = Weather::default();
        for (_, links, weather) in &self.weathers {
            if links.contain(from, to) {
                worst.drop_ppm = worst.drop_ppm.max(weather.drop_ppm);
                worst.duplicate_ppm = worst.duplicate_ppm.max(weather.duplicate_ppm);
                worst.delay_ppm = worst.delay_ppm.max(weather.delay_ppm);
                worst.delay_us_max = worst.delay_us_max.max(weather.delay_us_max);
                worst.reorder |= weather.reorder;
            }
        }
        worst
    }
}

impl Links {
    fn contain(&self, from: End, to: End) -> bool {
        match self {
            Links::All => true,
            Links::OfNode(node) => [from, to].contains(&End::Node(*node)),
            Links::Clients => [from, to].iter().any(|end| matches!(end, End::Client(_))),
        }
    }
}

fn new_link(rng: &mut Rng, latency: Latency) -> Link {
    let base_us = rng.range(latency.us_min, latency.us_max);
    Link { base_us, jitter_us: base_us / 4 + 20, last_arrival: 0, epoch: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: End = End::Node(1);
    const B: End = End::Node(2);
    const C: End = End::Client(3);

    fn network() -> Network {
        Network::new(Rng::new(1), Latency { us_min: 100, us_max: 1_000 })
    }

    #[test]
    fn without_faults_everything_comes_once_and_in_order() {
        let mut network = network();
        let mut last = 0;
        for now in 0..1_000 {
            let ([Some(arrival), None], epoch) = network.send(now, A, B) else { panic!("lost or repeated") };
            assert!(arrival >= last && arrival > now && network.is_current(A, B, epoch));
            last = arrival;
        }
    }

    #[test]
    fn bad_weather_loses_repeats_and_reorders_as_often_as_asked() {
        let mut network = network();
        let weather = Weather {
            drop_ppm: 100_000,
            duplicate_ppm: 200_000,
            delay_ppm: 500_000,
            delay_us_max: 50_000,
            reorder: true,
        };
        network.add_weather(0, Links::OfNode(2), weather);
        let (mut lost, mut twice, mut overtaken, mut newest) = (0, 0, 0, 0);
        for now in 0..10_000 {
            let (arrivals, _) = network.send(now * 1_000, A, B);
            lost += u32::from(arrivals[0].is_none());
            twice += u32::from(arrivals[1].is_some());
            overtaken += u32::from(arrivals[0].is_some_and(|arrival| arrival < newest));
            newest = arrivals[0].unwrap_or(newest);
            assert!(network.send(now * 1_000, A, C).0[0].is_some(), "this link has good weather");
        }
        assert!((800..1_200).contains(&lost), "{lost}");
        assert!((1_600..2_000).contains(&twice), "{twice}");
        assert!(overtaken > 1_000, "{overtaken}");
        network.remove(0);
        assert_eq!(network.weather(A, B), Weather::default());
    }

    #[test]
    fn a_one_way_cut_lets_answers_through() {
        let mut network = network();
        network.add_cut(4, vec![B], true);
        assert!(
            network.is_cut(A, B) && !network.is_cut(B, A) && network.is_cut(C, B) && !network.is_cut(A, C)
        );
        network.remove(4);
        network.add_cut(5, vec![B, C], false);
        assert!(
            network.is_cut(A, B) && network.is_cut(B, A) && !network.is_cut(C, B) && network.is_cut(C, A)
        );
    }

    #[test]
    fn a_reset_loses_what_is_on_its_way() {
        let mut network = network();
        let (_, before) = network.send(0, A, B);
        network.reset(B, A);
        assert!(!network.is_current(A, B, before));
        let (_, after) = network.send(0, A, B);
        assert!(network.is_current(A, B, after));
    }
}
