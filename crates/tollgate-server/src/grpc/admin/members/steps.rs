//! Derives the next step of a group from an operator's wish.
//!
//! Invariant: a fulfilled wish has no further step, so that it can be repeated. Not here: the execution of a step by
//! the group (`tollgate_replica`).

use tollgate_proto::v1::{Error, ErrorReason};
use tollgate_replica::{MemberChange, MemberRefusal, Members, NodeAddresses};
use tollgate_types::{GroupId, NodeId};

/// A change of members that an operator wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wish {
    /// Add a new node, under this id or the next free one. `before` lists members of group 0 with lower ids: a group
    /// that has not heard of them adds them first, because a group takes ids in order and never an id that it has
    /// passed over.
    Add { node: Option<NodeId>, witness: bool, node_addresses: NodeAddresses, before: Vec<Earlier> },
    /// Make a node a voter.
    Promote { node: NodeId },
    /// Remove a node.
    Remove { node: NodeId },
    /// Remove a node and make another node a voter in its place.
    Replace { out: NodeId, by: NodeId },
}

/// A member that was added before another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Earlier {
    pub(super) node: NodeId,
    pub(super) witness: bool,
    pub(super) node_addresses: NodeAddresses,
}

/// Next step of a group.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// Nothing to do: the wish is fulfilled here. Holds the node that was added, if that was the wish.
    Done(Option<NodeId>),
    /// Propose this change.
    Change(MemberChange),
    /// Look again soon: another change is under way.
    Wait,
    /// The wish is refused, for this reason.
    Refused(Error),
}

impl Wish {
    /// Fixes the id of a new node once the first group has added it, so that the other groups add the same node, after
    /// the earlier nodes among that group's `members`.
    pub(super) fn settle(&mut self, added: Option<NodeId>, members: &Members) {
        let Wish::Add { node, before, .. } = self else { return };
        *node = node.or(added);
        let earlier = members.all().into_iter().filter(|earlier| node.is_some_and(|node| *earlier < node));
        let earlier = earlier.map(|node| Earlier {
            node,
            witness: members.witnesses.contains(&node),
            node_addresses: members.addresses_of(node).clone(),
        });
        // The addresses of the cluster's initial members may be unknown, but every group has these members.
        *before = earlier.filter(|earlier| earlier.node_addresses != NodeAddresses::UNKNOWN).collect();
    }

    /// Returns the groups in the order in which the wish is carried out. A node is added to group 0 first; it is
    /// promoted, removed or replaced there last. So group 0 knows every node that is in any group, and a voter of group
    /// 0 votes in all groups.
    pub(super) fn order(&self, mut groups: Vec<GroupId>) -> Vec<GroupId> {
        if !matches!(self, Wish::Add { .. }) {
            groups.reverse();
        }
        groups
    }

    /// Returns the reason why no group can fulfil the wish, by the members of group 0: it names a node that never was a
    /// member, or is not a member now.
    pub(super) fn objection(&self, members: &Members) -> Option<MemberRefusal> {
        let never_was = |node: &NodeId| !members.contains(*node) && !members.is_past(*node);
        let is_none = |node: &NodeId| !members.contains(*node);
        let stranger = match self {
            Wish::Add { .. } => None,
            Wish::Promote { node } => Some(node).filter(|node| is_none(node)),
            Wish::Remove { node } => Some(node).filter(|node| never_was(node)),
            Wish::Replace { out, by } => {
                Some(out).filter(|out| never_was(out)).or_else(|| Some(by).filter(|by| is_none(by)))
            }
        };
        stranger.map(|node| MemberRefusal::NotMember { node: *node })
    }

    /// Returns the next step of a group with these members. `heard` lists the nodes that the leader has heard from
    /// lately.
    pub(super) fn step(&self, group: GroupId, members: &Members, heard: &[NodeId]) -> Step {
        if members.is_joint() {
            return Step::Wait;
        }
        match self {
            Wish::Add { node, witness, node_addresses, before } => {
                add(members, heard, *node, *witness, node_addresses, before)
            }
            Wish::Promote { node } if members.voters.contains(node) => Step::Done(None),
            Wish::Promote { node } => Step::Change(MemberChange::Promote { node: *node }),
            Wish::Remove { node } if members.contains(*node) => {
                Step::Change(MemberChange::Remove { node: *node })
            }
            // Group 0 comes last, and is the group that knows every node.
            Wish::Remove { node } if group == GroupId::MAP && !members.is_past(*node) => {
                refused(&MemberRefusal::NotMember { node: *node })
            }
            Wish::Remove { .. } => Step::Done(None),
            Wish::Replace { out, by } => replace(group, members, *out, *by),
        }
    }
}

fn add(
    members: &Members,
    heard: &[NodeId],
    node: Option<NodeId>,
    witness: bool,
    node_addresses: &NodeAddresses,
    before: &[Earlier],
) -> Step {
    let is_same = |node: &NodeId| {
        let found = members.addresses_of(*node);
        let at = (&found.peer, &found.client) == (&node_addresses.peer, &node_addresses.client);
        at && members.witnesses.contains(node) == witness
    };
    // A repeated wish may have been carried out already, in this group or in all groups.
    let added = match node {
        Some(node) => Some(node).filter(|node| members.contains(*node) && is_same(node)),
        None => members.learners.iter().copied().find(is_same),
    };
    if added.is_some() {
        return Step::Done(added);
    }
    let clashes = |other: &&NodeId| {
        let found = members.addresses_of(**other);
        let addresses = [&found.peer, &found.client];
        node != Some(**other)
            && (addresses.contains(&&node_addresses.peer) || addresses.contains(&&node_addresses.client))
    };
    if let Some(other) = heard.iter().find(clashes) {
        let says = format!(
            "node {other} is at one of these addresses, and answers: give the new node addresses of its own, or stop \
             and remove node {other} first"
        );
        return Step::Refused(Error::new(ErrorReason::MemberRefused, says));
    }
    let Some(node) = node.or_else(|| NodeId::new(members.next_node)) else { return Step::Wait };
    let unheard = |earlier: &&Earlier| earlier.node < node && earlier.node.number() >= members.next_node;
    if let Some(Earlier { node, witness, node_addresses }) = before.iter().find(unheard).cloned() {
        return Step::Change(MemberChange::AddLearner { node, witness, node_addresses });
    }
    Step::Change(MemberChange::AddLearner { node, witness, node_addresses: node_addresses.clone() })
}

/// Replaces a voter in one change if both parts are still to be done; if one part was done by other means before, only
/// the rest.
fn replace(group: GroupId, members: &Members, out: NodeId, by: NodeId) -> Step {
    match (members.contains(out), members.voters.contains(&by)) {
        (false, _) if group == GroupId::MAP && !members.is_past(out) => {
            refused(&MemberRefusal::NotMember { node: out })
        }
        (false, true) => Step::Done(None),
        (false, false) => Step::Change(MemberChange::Promote { node: by }),
        (true, true) => Step::Change(MemberChange::Remove { node: out }),
        (true, false) => Step::Change(MemberChange::Replace { out, by }),
    }
}

fn refused(refusal: &MemberRefusal) -> Step {
    Step::Refused(Error::new(ErrorReason::MemberRefused, refusal.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_types::HostPort;

    const OTHER: GroupId = GroupId::new(3);

    fn node(number: u64) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn at(host: &str) -> NodeAddresses {
        let address = |port: u16| HostPort::new(format!("{host}:{port}")).unwrap();
        NodeAddresses { peer: address(7401), client: address(7400), ..NodeAddresses::UNKNOWN }
    }

    /// Nodes 1, 2 and 3 vote, node 5 is a learner, node 4 was removed.
    fn members() -> Members {
        let mut members = Members::first([1, 2, 3].map(node), []);
        members.learners.insert(node(5));
        members.next_node = 6;
        members.found_at([(node(1), at("a")), (node(5), at("e"))])
    }

    fn add(node: Option<u64>, host: &str) -> Wish {
        let node = node.and_then(NodeId::new);
        Wish::Add { node, witness: false, node_addresses: at(host), before: Vec::new() }
    }

    #[test]
    fn a_new_member_gets_the_next_id_and_a_repeat_the_same() {
        let Step::Change(MemberChange::AddLearner { node: added, .. }) =
            add(None, "f").step(GroupId::MAP, &members(), &[])
        else {
            panic!("it is added")
        };
        assert_eq!(added, node(6));
        assert_eq!(add(None, "e").step(GroupId::MAP, &members(), &[]), Step::Done(Some(node(5))));
        assert_eq!(add(Some(5), "e").step(OTHER, &members(), &[]), Step::Done(Some(node(5))));
        // The same id at other addresses: the group refuses it.
        assert!(matches!(add(Some(5), "x").step(OTHER, &members(), &[]), Step::Change(_)));
        let mut wish = add(None, "f");
        wish.settle(Some(node(6)), &Members::default());
        assert_eq!(wish, add(Some(6), "f"));
    }

    #[test]
    fn a_group_takes_first_whom_group_0_had_first() {
        let mut first = members();
        let mut wish = add(None, "f");
        first.learners.extend([node(6), node(7)]);
        first.witnesses.insert(node(6));
        first.next_node = 8;
        let mut first = first.found_at([(node(5), at("e")), (node(6), at("g")), (node(7), at("f"))]);
        wish.settle(Some(node(7)), &first);
        // A group that has heard of no node since node 5.
        let mut other = members();
        for (number, host, is_witness) in [(6, "g", true), (7, "f", false)] {
            let Step::Change(MemberChange::AddLearner { node: added, witness, node_addresses }) =
                wish.step(OTHER, &other, &[])
            else {
                panic!("it is added")
            };
            assert_eq!((added, witness, node_addresses), (node(number), is_witness, at(host)));
            other.learners.insert(added);
            other.next_node = number + 1;
            other.node_addresses.insert(added, at(host));
        }
        assert_eq!(wish.step(OTHER, &other, &[]), Step::Done(Some(node(7))));
        // A node that group 0 no longer has is not added anew.
        first.learners.remove(&node(6));
        wish.settle(None, &first);
        let step = wish.step(OTHER, &members(), &[]);
        assert!(
            matches!(step, Step::Change(MemberChange::AddLearner { node: added, .. }) if added == node(7)),
            "{step:?}"
        );
    }

    #[test]
    fn the_address_of_a_member_that_answers_is_taken_and_that_of_a_dead_one_is_free() {
        let taken = add(None, "a").step(GroupId::MAP, &members(), &[node(1), node(2)]);
        assert!(
            matches!(&taken, Step::Refused(error) if error.message.contains("node 1 is at one")),
            "{taken:?}"
        );
        assert!(matches!(add(None, "a").step(GroupId::MAP, &members(), &[node(2)]), Step::Change(_)));
    }

    #[test]
    fn what_is_fulfilled_needs_no_step() {
        let done = Step::Done(None);
        assert_eq!(Wish::Promote { node: node(2) }.step(OTHER, &members(), &[]), done);
        assert_eq!(Wish::Remove { node: node(4) }.step(GroupId::MAP, &members(), &[]), done);
        assert_eq!(Wish::Replace { out: node(4), by: node(2) }.step(GroupId::MAP, &members(), &[]), done);
        // A group that an interrupted change never reached.
        assert_eq!(Wish::Remove { node: node(9) }.step(OTHER, &members(), &[]), done);
    }

    #[test]
    fn whom_group_0_never_knew_nobody_knows() {
        for wish in [Wish::Remove { node: node(9) }, Wish::Replace { out: node(9), by: node(5) }] {
            let step = wish.step(GroupId::MAP, &members(), &[]);
            assert!(
                matches!(&step, Step::Refused(error) if error.message.contains("not a member")),
                "{step:?}"
            );
        }
    }

    #[test]
    fn what_is_about_strangers_is_refused_before_any_group_is_asked() {
        let stranger = |wish: Wish| wish.objection(&members());
        let not_member = |number| Some(MemberRefusal::NotMember { node: node(number) });
        let replace = |out, by| Wish::Replace { out: node(out), by: node(by) };
        assert_eq!(stranger(replace(9, 5)), not_member(9));
        assert_eq!(stranger(replace(1, 9)), not_member(9));
        assert_eq!(stranger(replace(1, 4)), not_member(4), "who was removed never comes back");
        assert_eq!(stranger(Wish::Remove { node: node(9) }), not_member(9));
        assert_eq!(stranger(Wish::Promote { node: node(9) }), not_member(9));
        // A node that was removed before, and changes that are done already.
        for wish in [replace(4, 5), replace(1, 2), Wish::Remove { node: node(4) }, add(None, "f")] {
            assert_eq!(stranger(wish), None);
        }
    }

    #[test]
    fn group_0_hears_first_of_who_comes_and_last_of_who_votes_or_goes() {
        let groups = || [0, 1, 2].map(GroupId::new).to_vec();
        let reversed = [2, 1, 0].map(GroupId::new);
        assert_eq!(add(None, "f").order(groups()), groups());
        let (node, by) = (node(1), node(5));
        for wish in [Wish::Promote { node }, Wish::Remove { node }, Wish::Replace { out: node, by }] {
            assert_eq!(wish.order(groups()), reversed, "{wish:?}");
        }
    }

    #[test]
    fn a_replacement_takes_what_is_left_of_it() {
        let step = |out, by| Wish::Replace { out: node(out), by: node(by) }.step(OTHER, &members(), &[]);
        assert_eq!(step(1, 5), Step::Change(MemberChange::Replace { out: node(1), by: node(5) }));
        assert_eq!(step(1, 2), Step::Change(MemberChange::Remove { node: node(1) }));
        assert_eq!(step(4, 5), Step::Change(MemberChange::Promote { node: node(5) }));
    }

    #[test]
    fn while_a_joint_change_is_under_way_one_waits() {
        let mut joint = members();
        joint.outgoing.insert(node(1));
        assert_eq!(Wish::Remove { node: node(2) }.step(OTHER, &joint, &[]), Step::Wait);
    }
}
