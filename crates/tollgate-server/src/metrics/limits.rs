//! The limits in force, as metrics beside the counts that they limit.
//!
//! Limits of the state are set in each group separately; the metric is the lowest of this node's groups. Not here:
//! enforcing the limits.

use super::add;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tollgate_types::{Limit, Limits};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Name {
    limit: &'static str,
}

#[derive(Debug)]
pub(super) struct LimitsInForce(Family<Name, Gauge>);

impl LimitsInForce {
    pub(super) fn register(registry: &mut Registry) -> LimitsInForce {
        let says =
            "Limits in force, by name: the lowest of all groups of this node, and those of this server";
        LimitsInForce(add(registry, "limit", says, Family::default()))
    }

    pub(super) fn set(&self, limit: &'static str, max: u64) {
        self.0.get_or_create(&Name { limit }).set(i64::try_from(max).unwrap_or(i64::MAX));
    }

    /// Sets each limit of the state to the lowest of all groups. Without groups, the known values stay.
    pub(super) fn set_lowest<'a>(&self, groups: &(impl Iterator<Item = &'a Limits> + Clone)) {
        for limit in Limit::ALL {
            if let Some(lowest) = groups.clone().map(|limits| limits.get(*limit)).min() {
                self.set(limit.name(), lowest);
            }
        }
    }
}
