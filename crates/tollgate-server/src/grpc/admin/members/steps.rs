//! From what an operator wants to the next step of one group towards it.
//!
//! Invariant: a wish that is fulfilled has no further step, so that it can be repeated. Not here: what the group makes
//! of a step (`tollgate_replica`).

use tollgate_proto::v1::{Error, ErrorReason};
use tollgate_replica::{MemberChange, MemberRefusal, Members, Whereabouts};
use tollgate_types::{GroupId, NodeId};

/// What an operator wants of the members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wish {
    /// A new node, under this id or the next. Those before it are members of group 0 with lower ids: a group that has
    /// not heard of them takes them first, for it takes ids in order and never one that it has passed over.
    Add { node: Option<NodeId>, witness: bool, whereabouts: Whereabouts, before: Vec<Earlier> },
    /// A vote for a node.
    Promote { node: NodeId },
    /// A node less.
    Remove { node: NodeId },
    /// One node's vote for another.
    Replace { out: NodeId, by: NodeId },
}

/// A member that was added before another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Earlier {
    pub(super) node: NodeId,
    pub(super) witness: bool,
    pub(super) whereabouts: Whereabouts,
}

/// What a group does next.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// Nothing: the wish is fulfilled here. The node that was added, if that was the wish.
    Done(Option<NodeId>),
    /// Propose this.
    Change(MemberChange),
    /// Look again soon: another change is under way.
    Wait,
    /// Nothing, for this reason.
    Refused(Error),
}

impl Wish {
    /// Whoever was added in the first group is added in the others, behind those whom that group, of these members,
    /// has had before.
    pub(super) fn settle(&mut self, added: Option<NodeId>, members: &Members) {
        let Wish::Add { node, before, .. } = self else { return };
        *node = node.or(added);
        let earlier = members.all().into_iter().filter(|earlier| node.is_some_and(|node| *earlier < node));
        let earlier = earlier.map(|node| Earlier {
            node,
            witness: members.witnesses.contains(&node),
            whereabouts: members.whereabouts_of(node).clone(),
        });
        // Where the first members of all are found need not be known, and every group has them.
        *before = earlier.filter(|earlier| earlier.whereabouts != Whereabouts::UNKNOWN).collect();
    }

    /// The groups in the order in which it is carried out. Group 0 is told first of whoever comes and last of whoever
    /// votes or goes: so it knows of everybody who is in any group, and who votes in it votes in all.
    pub(super) fn order(&self, mut groups: Vec<GroupId>) -> Vec<GroupId> {
        if !matches!(self, Wish::Add { .. }) {
            groups.reverse();
        }
        groups
    }

    /// Why nobody can fulfil it, by the members of group 0: it is about a node that never was a member, or is none.
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

    /// What the group of these members does next. `heard` are those who have spoken lately.
    pub(super) fn step(&self, group: GroupId, members: &Members, heard: &[NodeId]) -> Step {
        if members.is_joint() {
            return Step::Wait;
        }
        match self {
            Wish::Add { node, witness, whereabouts, before } => {
                add(members, heard, *node, *witness, whereabouts, before)
            }
            Wish::Promote { node } if members.voters.contains(node) => Step::Done(None),
            Wish::Promote { node } => Step::Change(MemberChange::Promote { node: *node }),
            Wish::Remove { node } if members.contains(*node) => {
                Step::Change(MemberChange::Remove { node: *node })
            }
            // Group 0 comes last, and is the one that knows of everybody.
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
    whereabouts: &Whereabouts,
    before: &[Earlier],
) -> Step {
    let is_same = |node: &NodeId| {
        let found = members.whereabouts_of(*node);
        let at = (&found.peer, &found.client) == (&whereabouts.peer, &whereabouts.client);
        at && members.witnesses.contains(node) == witness
    };
    // Asked for the second time, the first may have been carried out, here or everywhere.
    let added = match node {
        Some(node) => Some(node).filter(|node| members.contains(*node) && is_same(node)),
        None => members.learners.iter().copied().find(is_same),
    };
    if added.is_some() {
        return Step::Done(added);
    }
    let clashes = |other: &&NodeId| {
        let found = members.whereabouts_of(**other);
        let addresses = [&found.peer, &found.client];
        node != Some(**other)
            && (addresses.contains(&&whereabouts.peer) || addresses.contains(&&whereabouts.client))
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
    if let Some(Earlier { node, witness, whereabouts }) = before.iter().find(unheard).cloned() {
        return Step::Change(MemberChange::AddLearner { node, witness, whereabouts });
    }
    Step::Change(MemberChange::AddLearner { node, witness, whereabouts: whereabouts.clone() })
}

/// Both at once where both are to be done; what was done by other means before needs the rest only.
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

    fn at(host: &str) -> Whereabouts {
        let address = |port: u16| HostPort::new(format!("{host}:{port}")).unwrap();
        Whereabouts { peer: address(7401), client: address(7400), ..Whereabouts::UNKNOWN }
    }

    /// 1, 2 and 3 vote, 5 learns, 4 was removed.
    fn members() -> Members {
        let mut members = Members::first([1, 2, 3].map(node), []);
        members.learners.insert(node(5));
        members.next_node = 6;
        members.found_at([(node(1), at("a")), (node(5), at("e"))])
    }

    fn add(node: Option<u64>, host: &str) -> Wish {
        let node = node.and_then(NodeId::new);
        Wish::Add { node, witness: false, whereabouts: at(host), before: Vec::new() }
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
        // Another one at other addresses: the group refuses the id.
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
        // A group that has heard of nobody since node 5.
        let mut other = members();
        for (number, host, is_witness) in [(6, "g", true), (7, "f", false)] {
            let Step::Change(MemberChange::AddLearner { node: added, witness, whereabouts }) =
                wish.step(OTHER, &other, &[])
            else {
                panic!("it is added")
            };
            assert_eq!((added, witness, whereabouts), (node(number), is_witness, at(host)));
            other.learners.insert(added);
            other.next_node = number + 1;
            other.whereabouts.insert(added, at(host));
        }
        assert_eq!(wish.step(OTHER, &other, &[]), Step::Done(Some(node(7))));
        // Whom group 0 has no more is not added anew.
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
        // A group that an interrupted change never came to.
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
        // One that was removed before, and what is done already.
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
