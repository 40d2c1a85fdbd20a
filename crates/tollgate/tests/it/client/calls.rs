//! Every call that needs no session, from a client that starts with the leader and from one that starts with a
//! follower.

use crate::cluster::{self, Cluster};
use std::time::Duration;
use tokio_stream::StreamExt;
use tollgate_client::{
    Client, Compare, Consistency, ErrorKind, GroupId, LeaseId, MemberKind, Mode, NodeId, Relation, Role,
    SettingOrigin, Sort, Token, TxnOp, TxnResult,
};
use tollgate_proto::v1::{self, LockRequest};

/// Context of one round of checks, with a prefix for the names that it uses.
struct Round<'a> {
    cluster: &'a Cluster,
    client: Client,
    name: &'static str,
}

impl Round<'_> {
    fn of(&self, name: &str) -> String {
        format!("{}/{name}", self.name)
    }

    async fn lease(&self) -> LeaseId {
        self.client.leases().grant(Duration::from_mins(1)).await.unwrap().id
    }

    /// Holds a lock without using the client, so that only reads are tested here.
    async fn hold(&self, name: &str, lease: LeaseId, why: &str) -> Token {
        let request = LockRequest {
            name: self.of(name),
            lease_id: lease.get(),
            metadata: why.into(),
            owner: "holder".into(),
            ..Default::default()
        };
        let held = self.cluster.nodes[0].locks().lock(request).await.unwrap().into_inner();
        assert!(held.acquired);
        Token::new(held.fencing_token).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_is_answered_whichever_node_the_client_was_given() {
    let cluster = cluster::three().await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    for (node, name) in [(leader, "leader"), (follower, "follower")] {
        let endpoint = cluster.nodes[node].endpoint();
        let client = Client::connect([&endpoint]).await.unwrap();
        let round = Round { cluster: &cluster, client, name };
        locks_are_read(&round).await;
        locks_are_listed_in_pages(&round).await;
        locks_are_taken_away_and_given_back(&round).await;
        leases_are_granted_renewed_read_and_revoked(&round).await;
        registers_are_written_read_compared_and_deleted(&round).await;
        an_election_without_candidates_has_no_leader_until_one_holds_its_lock(&round).await;
        operators_see_nodes_groups_limits_and_settings(&round).await;
        what_is_wrong_is_refused_with_its_field(&round).await;
    }
    leadership_is_handed_on_whichever_node_is_asked(&cluster).await;
}

async fn locks_are_read(round: &Round<'_>) {
    let (client, name) = (&round.client, round.of("read"));
    assert!(client.get_lock(&name).await.unwrap().is_free());
    let lease = round.lease().await;
    let token = round.hold("read", lease, "to be read").await;
    for consistency in [Consistency::Linearizable, Consistency::Leader] {
        let lock = client.get_lock_with(&name, consistency).await.unwrap();
        assert_eq!((lock.holder_count, lock.waiter_count, lock.is_free()), (1, 0, false));
        let holder = &lock.holders[0];
        assert_eq!((holder.lease, holder.token, holder.mode), (lease, token, Mode::Exclusive));
        assert_eq!((holder.owner.as_str(), holder.why.as_str()), ("holder", "to be read"));
        assert_eq!(holder.client_id, client.client_id());
        assert!(holder.remaining.unwrap() <= Duration::from_mins(1));
        assert!(lock.revision.get() >= token.get());
    }
    // A stale read: the node may not know of the lock yet, but it answers.
    client.get_lock_with(&name, Consistency::Stale).await.unwrap();

    let explained = client.explain(&name).await.unwrap();
    assert_eq!(explained.lock.holders[0].token, token);
    assert!(explained.to_string().contains("to be read"), "{explained}");
    assert!(explained.leader.is_some());
    client.leases().revoke(lease).await.unwrap();
}

async fn locks_are_listed_in_pages(round: &Round<'_>) {
    let lease = round.lease().await;
    for number in 0..5 {
        round.hold(&format!("list/{number}"), lease, "").await;
    }
    let list = round.client.list_locks(&round.of("list/"));
    let names = |locks: &[tollgate_client::LockInfo]| -> Vec<String> {
        locks.iter().map(|lock| lock.name.clone()).collect()
    };
    let all = list.clone().limit(2).all().await.unwrap();
    let expected: Vec<String> = (0..5).map(|number| round.of(&format!("list/{number}"))).collect();
    assert_eq!(names(&all), expected);

    let first = list.clone().limit(2).page(None).await.unwrap();
    assert_eq!(names(&first.locks), expected[..2]);
    let second = list.limit(4).page(first.next.as_deref()).await.unwrap();
    assert_eq!((names(&second.locks), second.next), (expected[2..].to_vec(), None));
    assert!(round.client.list_locks(&round.of("none/")).all().await.unwrap().is_empty());
    round.client.leases().revoke(lease).await.unwrap();
}

async fn locks_are_taken_away_and_given_back(round: &Round<'_>) {
    let (client, lease) = (&round.client, round.lease().await);
    let token = round.hold("forced", lease, "").await;
    let name = round.of("forced");
    let stale = Token::new(token.get() - 1).unwrap();
    let refused = client.force_release(&name, stale, "wrong one").await.unwrap_err();
    assert_eq!((refused.kind(), refused.reason()), (ErrorKind::Conflict, Some("STALE_TOKEN")));
    assert!(!refused.may_have_happened());
    client.force_release(&name, token, "stuck").await.unwrap();
    assert!(client.get_lock(&name).await.unwrap().is_free());

    let token = round.hold("forced", lease, "").await;
    let refused = client.unlock(&name, lease, "holder", Some(stale)).await.unwrap_err();
    assert_eq!(refused.reason(), Some("STALE_TOKEN"));
    client.unlock(&name, lease, "holder", Some(token)).await.unwrap();
    let again = client.unlock(&name, lease, "holder", None).await.unwrap_err();
    assert_eq!((again.kind(), again.reason()), (ErrorKind::Conflict, Some("NOT_HELD")));
    client.leases().revoke(lease).await.unwrap();
}

async fn leases_are_granted_renewed_read_and_revoked(round: &Round<'_>) {
    let leases = round.client.leases();
    let ttl = Duration::from_secs(40);
    let near = round.of("near");
    let granted = leases.grant(ttl).near(&near).client_id("tool").await.unwrap();
    assert_eq!((granted.ttl, granted.renewed), (ttl, false));
    assert_eq!(granted.id.slot(), tollgate_types::Name::new(&near).unwrap().slot());
    let renewed = leases.grant(ttl).id(granted.id).client_id("tool").await.unwrap();
    assert_eq!((renewed.renewed, renewed.incarnation), (true, granted.incarnation));
    let refused = leases.grant(ttl).id(granted.id).client_id("another").await.unwrap_err();
    assert_eq!((refused.kind(), refused.reason()), (ErrorKind::Conflict, Some("LEASE_TAKEN")));

    assert_eq!(leases.keep_alive(granted.id).await.unwrap(), ttl);
    let token = round.hold("leased", granted.id, "").await;
    let detail = leases.time_to_live(granted.id).await.unwrap();
    assert_eq!((detail.lease.ttl, detail.lease.client_id.as_str()), (ttl, "tool"));
    assert!(detail.lease.remaining <= ttl && !detail.lease.remaining.is_zero());
    assert_eq!((detail.claims[0].name.as_str(), detail.claims[0].token), (&*round.of("leased"), Some(token)));
    let listed = leases.list().limit(1).all().await.unwrap();
    assert!(listed.iter().any(|lease| lease.id == granted.id && lease.claims == 1), "{listed:?}");

    leases.revoke(granted.id).await.unwrap();
    assert!(round.client.get_lock(&round.of("leased")).await.unwrap().is_free());
    for gone in [
        leases.keep_alive(granted.id).await.unwrap_err(),
        leases.time_to_live(granted.id).await.unwrap_err(),
        leases.revoke(granted.id).await.unwrap_err(),
    ] {
        assert_eq!((gone.kind(), gone.may_have_happened()), (ErrorKind::NotFound, false), "{gone}");
    }
}

async fn registers_are_written_read_compared_and_deleted(round: &Round<'_>) {
    let registers = round.client.registers();
    let key = |text: &str| round.of(text);
    let put = registers.put(key("r/1"), "one").await.unwrap();
    let read = registers.get(key("r/1")).await.unwrap().unwrap();
    assert_eq!((read.value.as_slice(), read.mod_revision, read.version), (&b"one"[..], put, 1));
    assert_eq!(registers.get(key("r/none")).await.unwrap(), None);

    let lease = round.lease().await;
    registers.put(key("r/2"), "two").lease(lease).await.unwrap();
    let found = registers.range(key("r/")).sort(Sort::CreateDescending).limit(1).await.unwrap();
    assert_eq!((found.count, found.registers[0].lease), (2, Some(lease)));
    round.client.leases().revoke(lease).await.unwrap();
    assert_eq!(registers.get(key("r/2")).await.unwrap(), None, "it ended with its lease");

    let swap = |from: &'static str, to: &'static str| {
        let then = TxnOp::put(key("r/1"), to);
        let when = Compare::value(key("r/1"), from);
        registers.txn().when(when).then(then).otherwise(TxnOp::get(key("r/1"))).commit()
    };
    let swapped = swap("one", "uno").await.unwrap();
    assert_eq!((swapped.succeeded, swapped.results), (true, Some(vec![TxnResult::Put])));
    let kept = swap("one", "ein").await.unwrap();
    let Some([TxnResult::Get(Some(seen))]) = kept.results.as_deref() else { panic!("{kept:?}") };
    assert_eq!((kept.succeeded, seen.value.as_slice()), (false, &b"uno"[..]));
    assert_eq!(seen.mod_revision, swapped.revision);

    let create = registers
        .txn()
        .when(Compare::missing(key("r/3")))
        .when(Compare::exists(key("r/1")))
        .when(Compare::new(key("r/1"), Relation::Less, tollgate_client::CompareWith::Version(9)))
        .then(TxnOp::put(key("r/3"), "three"))
        .then(TxnOp::delete(key("r/1")));
    let created = create.commit().await.unwrap();
    assert_eq!(created.results, Some(vec![TxnResult::Put, TxnResult::Deleted(1)]));
    assert_eq!(registers.delete(key("r/1")).await.unwrap(), 0);
    assert_eq!(registers.delete_prefix(key("r/")).await.unwrap(), 1);
}

async fn an_election_without_candidates_has_no_leader_until_one_holds_its_lock(round: &Round<'_>) {
    let name = round.of("election");
    let election = round.client.election(&name);
    assert_eq!(election.leader().await.unwrap(), None);
    let mut seen = election.observe();
    assert_eq!(seen.next().await.unwrap().unwrap(), None);

    let mut elected = None;
    for value in ["first", "second"] {
        let lease = round.lease().await;
        let request = v1::CampaignRequest {
            name: name.clone(),
            lease_id: lease.get(),
            value: value.into(),
            ..Default::default()
        };
        let channel = round.cluster.nodes[1].channel(cluster::PATIENCE);
        let mut service = v1::election_service_client::ElectionServiceClient::new(channel);
        assert!(service.campaign(request).await.unwrap().into_inner().elected);
        let leader = election.leader().await.unwrap().unwrap();
        assert_eq!((leader.lease, leader.value.as_slice()), (lease, value.as_bytes()));
        assert!(elected < Some(leader.token), "every leader has a higher token");
        elected = Some(leader.token);
        assert_eq!(seen.next().await.unwrap().unwrap(), Some(leader));
        round.client.leases().revoke(lease).await.unwrap();
        assert_eq!(seen.next().await.unwrap().unwrap(), None);
    }
}

async fn operators_see_nodes_groups_limits_and_settings(round: &Round<'_>) {
    let admin = round.client.admin();
    let members = admin.members().await.unwrap();
    assert_eq!(members.len(), 3);
    assert!(members.iter().all(|member| member.kind == MemberKind::Voter && member.connected), "{members:?}");

    let groups = admin.groups().await.unwrap();
    let group = &groups.groups[0];
    assert_eq!(
        (group.id, group.voters.len(), group.slots.as_slice()),
        (GroupId::new(0), 3, &[(0, 16_383)][..])
    );

    cluster::until("the client knows all nodes", || async { round.client.endpoints().len() == 3 }).await;
    let status = admin.status().await;
    let told: Vec<_> = status.iter().map(|node| node.status.as_ref().unwrap()).collect();
    assert_eq!(told.len(), 3);
    let leads = |node: &&&tollgate_client::NodeStatus| node.replicas[0].role == Role::Leader;
    assert_eq!(told.iter().filter(leads).count(), 1, "{told:?}");

    let endpoint = round.cluster.nodes[2].endpoint();
    let taken = admin.snapshot(&endpoint, &[]).await.unwrap();
    assert!(taken[0].index > 0, "{taken:?}");
    let settings = admin.config(&endpoint).await.unwrap();
    let dir = settings.iter().find(|setting| setting.key == "node.data_dir").unwrap();
    assert_eq!(dir.origin, SettingOrigin::Flag);
    assert_eq!(dir.value.as_deref().map(|dir| dir.contains("node-3")), Some(true), "{dir:?}");

    let group = GroupId::new(0);
    let limits = admin.limits(group).await.unwrap();
    let waiters = limits.iter().find(|limit| limit.name == "waiters_per_lock_max").unwrap();
    let changed = admin.set_limits(&[("waiters_per_lock_max", waiters.value - 1)], &[group]).await.unwrap();
    let now = changed.iter().find(|limit| limit.name == "waiters_per_lock_max").unwrap();
    assert_eq!(now.value, waiters.value - 1);
    let unknown = admin.set_limits(&[("no_such_limit", 1)], &[]).await.unwrap_err();
    assert_eq!((unknown.kind(), unknown.field()), (ErrorKind::Invalid, Some("limits")));
    assert_eq!(admin.deadlocks(0).await.unwrap().found, 0);
}

async fn what_is_wrong_is_refused_with_its_field(round: &Round<'_>) {
    let client = &round.client;
    let wrong = client.get_lock("").await.unwrap_err();
    assert_eq!(
        (wrong.kind(), wrong.field(), wrong.may_have_happened()),
        (ErrorKind::Invalid, Some("name"), false)
    );
    let wrong = client.registers().put(vec![7; 513], "").await.unwrap_err();
    assert_eq!((wrong.kind(), wrong.field()), (ErrorKind::Invalid, Some("key")));
    let token = Token::new(1).unwrap();
    let wrong = client.force_release("a", token, " ").await.unwrap_err();
    assert_eq!((wrong.kind(), wrong.field()), (ErrorKind::Invalid, Some("reason")));
    let wrong = client.list_locks("").page(Some("nonsense")).await.unwrap_err();
    assert_eq!((wrong.kind(), wrong.field()), (ErrorKind::Invalid, Some("cursor")));
    let wrong = client.watch().name("").open().await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Invalid, "{wrong}");
    let wrong = client.watch().prefix("a").cursor("nonsense").open().await.unwrap_err();
    assert_eq!((wrong.kind(), wrong.field()), (ErrorKind::Invalid, Some("cursor")));
    let wrong = client.leases().grant(Duration::from_nanos(1)).await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Invalid, "{wrong}");
    let mut seen = client.election("").observe();
    assert_eq!(seen.next().await.unwrap().unwrap_err().kind(), ErrorKind::Invalid);
    assert!(seen.next().await.is_none(), "an error is the last");
}

/// The client's stream goes to the previous leader, which names the present one.
async fn leadership_is_handed_on_whichever_node_is_asked(cluster: &Cluster) {
    let client = Client::connect(cluster.endpoints()).await.unwrap();
    for _ in 0..2 {
        let from = cluster.leader().await;
        let to = NodeId::new((from as u64 + 1) % 3 + 1);
        assert_eq!(client.admin().transfer(GroupId::new(0), to).await.unwrap(), to);
    }
}
