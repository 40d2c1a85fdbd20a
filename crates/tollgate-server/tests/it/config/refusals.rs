//! Refused configurations: the mistakes, their places and the messages.

use super::{LEAST, load, load_with, wrongs};

#[test]
fn an_unknown_key_is_shown_with_its_line_and_a_guess() {
    let text = load_with("[raft]\ntick_ms = 250\nhearbeat_ms = 100\n").unwrap_err().to_string();
    let expected = "\
error: raft.hearbeat_ms is no key
 --> t.toml:9:1
  |
9 | hearbeat_ms = 100
  | ^^^^^^^^^^^
  = did you mean `heartbeat_ms`?

1 problem in the configuration";
    assert_eq!(text, expected);
}

#[test]
fn a_key_in_the_wrong_section_is_sent_to_the_right_one() {
    let problems = load_with("[server]\ntick_ms = 250\n").unwrap_err();
    assert_eq!(problems.iter().next().unwrap().notes, ["`tick_ms` belongs in [raft]"]);
    let problems = load(&format!("tick_ms = 250\n{LEAST}"), &[], &[]).unwrap_err();
    let problem = problems.iter().next().unwrap();
    assert_eq!(
        (problem.what.as_str(), problem.notes[0].as_str()),
        ("stands outside any section", "move it below [raft]")
    );
}

#[test]
fn an_unknown_section_is_shown_with_a_guess() {
    let problems = load_with("[strorage]\nlog_file_bytes = 1\n[extra]\n").unwrap_err();
    let told: Vec<_> =
        problems.iter().map(|problem| (problem.key.as_str(), problem.notes[0].as_str())).collect();
    let all = "the sections are node, cluster, listen, raft, storage, limits, server, log";
    assert_eq!(told, [("strorage", "did you mean [storage]?"), ("extra", all)]);
}

#[test]
fn a_wrong_type_is_refused() {
    let more = "[raft]\nheartbeat_ms = true\ntick_ms = 1.5\nproposals_max = \"9\"\n\
                [listen]\ninsecure = \"true\"\nclient = 7400\n[log]\nformat = \"jsno\"\n";
    let expected = [
        "8:16 raft.heartbeat_ms must be milliseconds from 1 to 60000, and is a boolean",
        "9:11 raft.tick_ms must be milliseconds from 1 to 60000, and is a float",
        "10:17 raft.proposals_max must be a whole number from 1 to 16777216, and is a string",
        "12:12 listen.insecure must be true or false, and is a string",
        "13:10 listen.client must be an IP address and a port, and is an integer",
        "15:10 log.format is \"jsno\": it must be pretty or json",
    ];
    assert_eq!(wrongs(load_with(more)), expected);
    let told = wrongs(load("node = 1\nraft = []\n", &[], &[]));
    assert!(told.contains(&"1:1 node must be a section".to_owned()), "{told:?}");
}

#[test]
fn a_number_out_of_range_is_refused_with_the_range() {
    let more = "[raft]\nheartbeat_ms = 0\ntick_ms = -1\nchunk_bytes = \"5MiB\"\n\
                [limits]\nname_bytes_max = 99999999999999999999999999999999999999999999\n";
    let expected = [
        "8:16 raft.heartbeat_ms is 0: it must be from 1 to 60000 ms",
        "9:11 raft.tick_ms is -1: it must be from 1 to 60000 ms",
        "10:15 raft.chunk_bytes is 5MiB: it must be from 1024 to 4194304 bytes",
        "12:18 limits.name_bytes_max is 99999999999999999999999999999999999999999999: \
         it must be from 16 to 512 bytes",
    ];
    assert_eq!(wrongs(load_with(more)), expected);
}

#[test]
fn all_problems_of_a_file_are_told_at_once_in_its_order() {
    let text = "[node]\nid = 0\nzone = 3\n[cluster]\nname = \"\"\nmenbers = []\n[raft]\nelection_timeout_ms = 200\n\
                [listen]\npeer = \"0.0.0.0:7401\"\n";
    let expected = [
        "2:6 node.id is 0: it must be from 1 to 9007199254740991",
        "3:8 node.zone must be a text, and is an integer",
        "5:8 cluster.name is empty",
        "6:1 cluster.menbers is no key",
        "8:23 raft.election_timeout_ms must be at least 3 times raft.heartbeat_ms, or one lost heartbeat unseats a \
         leader",
        "10:8 listen.peer is 0.0.0.0:7401: without TLS, which is not there yet, only loopback is allowed",
        "- node.data_dir is missing",
    ];
    assert_eq!(wrongs(load(text, &[], &[])), expected);
}

#[test]
fn text_that_is_no_toml_is_refused_and_the_rest_still_read() {
    let text = LEAST.replace("id = 1\n", "id = \"1\n") + "[raft]\ntock_ms = 1\n[raft]\n[node]\n";
    let told = wrongs(load(&text, &[], &[]));
    assert!(told[0].starts_with("2:8  this is not TOML: "), "{told:?}");
    let expected = [
        "8:1 raft.tock_ms is no key",
        "9:2  this key or table was given before",
        "10:2  this key or table was given before",
    ];
    assert_eq!(told[1..], expected);
}

#[test]
fn what_must_be_set_is_asked_for_with_every_way_to_set_it() {
    let text = load("", &[], &[]).unwrap_err().to_string();
    let expected =
        "error: node.id is missing\n  = set `id` in [node] of the file, TOLLGATE_NODE_ID or --node-id\n";
    assert!(text.contains(expected), "{text}");
    assert!(text.ends_with("4 problems in the configuration"), "{text}");
}

/// Returns the problems of the minimal configuration with other members.
fn with_members(members: &str) -> Vec<String> {
    let first = LEAST.lines().take(5).collect::<Vec<_>>().join("\n");
    wrongs(load(&format!("{first}\nmembers = [\n{members}\n]\n"), &[], &[]))
}

#[test]
fn members_with_one_id_are_refused() {
    let members =
        "{ id = 1, peer = \"a:1\", client = \"a:2\" },\n{ id = 1, peer = \"b:1\", client = \"b:2\" },";
    assert_eq!(
        with_members(members),
        ["8:8 cluster.members[1].id is 1, which an earlier member has already"]
    );
}

#[test]
fn members_with_one_address_are_refused() {
    let members =
        "{ id = 1, peer = \"a:1\", client = \"a:1\" },\n{ id = 2, peer = \"A:1\", client = \"b:2\" },";
    let expected = [
        "7:34 cluster.members[0].client is a:1, which cluster.members[0].peer has already",
        "8:18 cluster.members[1].peer is a:1, which cluster.members[0].peer has already",
    ];
    assert_eq!(with_members(members), expected);
}

#[test]
fn a_node_that_is_not_among_the_members_is_refused() {
    let problems = load(LEAST, &[], &[("node.id", "4")]).unwrap_err();
    let text = problems.to_string();
    assert!(
        text.contains("error: node.id is 4, and cluster.members has 1, 2\n --> flag --node-id=\"4\"\n"),
        "{text}"
    );
    assert!(text.contains("to join a cluster that runs, set cluster.join"), "{text}");
    // The node was added to a running cluster, and its configuration has the addresses of some members.
    load(LEAST, &[], &[("node.id", "4"), ("cluster.join", "a:7400")]).unwrap();
}

#[test]
fn a_node_founds_a_cluster_or_joins_one() {
    let joins = [("cluster.join", "a:7400"), ("cluster.bootstrap", "true")];
    let text = load(LEAST, &[], &joins).unwrap_err().to_string();
    assert!(text.contains("cluster.join is set, and so is cluster.bootstrap"), "{text}");
    let first = "[node]\nid = 4\ndata_dir = \"d\"\n[cluster]\nname = \"t\"\n";
    let text = load(first, &[], &[]).unwrap_err().to_string();
    assert!(text.contains("cluster.members is empty") && text.contains("set cluster.join"), "{text}");
    let joining = load(&format!("{first}join = [\"http://A:7400\", \"[::1]:1\"]\n"), &[], &[]).unwrap();
    let join: Vec<String> = joining.config.cluster.join.iter().map(ToString::to_string).collect();
    assert_eq!(join, ["a:7400", "[::1]:1"]);
    assert!(load(&format!("{first}join = [1]\n"), &[], &[]).is_err());
}

#[test]
fn p2_a_cluster_with_the_id_of_a_restored_one_is_not_founded() {
    let founds = ("cluster.bootstrap", "true");
    let text = load(LEAST, &[], &[founds, ("cluster.id", "00000000000000ff")]).unwrap_err().to_string();
    assert!(text.contains("cluster.bootstrap is set, and cluster.id is 00000000000000ff"), "{text}");
    assert!(text.contains("tollgate snapshot restore"), "{text}");
    // The id that follows from the name is accepted, written down or not.
    let id = load(LEAST, &[], &[founds]).unwrap().config.cluster.id.to_string();
    load(LEAST, &[], &[founds, ("cluster.id", &id)]).unwrap();
}

#[test]
fn members_that_can_not_be_a_cluster_are_refused() {
    assert_eq!(with_members(""), ["6:11 cluster.members is empty"]);
    let witness = "{ id = 1, peer = \"a:1\", client = \"a:2\", witness = true }";
    assert_eq!(
        with_members(witness),
        ["6:11 cluster.members has witnesses only: somebody must keep the locks"]
    );
    let many: Vec<String> =
        (1..=65).map(|id| format!("{{ id = {id}, peer = \"h{id}:1\", client = \"h{id}:2\" }}")).collect();
    assert_eq!(
        with_members(&many.join(",")),
        ["6:11 cluster.members has 65 members: a cluster has at most 64"]
    );
}

#[test]
fn a_member_that_is_not_complete_is_shown() {
    let told = with_members("{ id = 1, peer = \"0.0.0.0:1\", clint = \"a:2\" }");
    let expected = [
        "7:1 cluster.members[0].client is missing",
        "7:18 cluster.members[0].peer is \"0.0.0.0:1\": nobody can dial the address of everywhere",
        "7:31 cluster.members[0].clint is no key",
    ];
    assert_eq!(told, expected);
}

#[test]
fn only_loopback_is_listened_on_unless_told_insecure() {
    let listen = "[listen]\nclient = \"10.0.0.1:7400\"\nhttp = \"[::]:7402\"\npeer = \"[::1]:7401\"\n";
    let problems = load_with(listen).unwrap_err();
    let text = problems.to_string();
    assert_eq!(problems.iter().count(), 2, "{text}");
    assert!(text.contains("8 | client = \"10.0.0.1:7400\"\n  |          ^^^^^^^^^^^^^^^\n"), "{text}");
    assert!(text.contains("  = listen.insecure is false (default)\n"), "{text}");
    assert!(load_with(&format!("{listen}insecure = true\n")).is_ok());
}

#[test]
fn listening_twice_on_one_port_is_refused() {
    let told = wrongs(load_with("[listen]\nhttp = \"127.0.0.1:7400\"\n"));
    assert_eq!(told, ["8:8 listen.http is 127.0.0.1:7400, which listen.client (127.0.0.1:7400) has already"]);
    let any = "[listen]\nhttp = \"127.0.0.1:0\"\nclient = \"127.0.0.1:0\"\n";
    assert!(load_with(any).is_ok());
}

#[test]
fn no_group_and_more_than_a_map_can_have_are_refused() {
    assert_eq!(
        load(LEAST, &[("TOLLGATE_CLUSTER_GROUPS", "16")], &[]).unwrap().config.group_map().groups().len(),
        16
    );
    for groups in ["0", "1025"] {
        let told = wrongs(load(LEAST, &[("TOLLGATE_CLUSTER_GROUPS", groups)], &[]));
        assert!(told[0].contains("from 1 to 1024") || told[0].contains("from 1 to 1,024"), "{told:?}");
    }
}

#[test]
fn numbers_that_do_not_go_together_are_refused_where_they_were_set() {
    let cases = [
        ("[raft]\nheartbeat_ms = 500\n", "8:16 raft.election_timeout_ms must be at least 3 times"),
        ("[raft]\ntick_ms = 501\n", "8:11 raft.tick_ms must be at most raft.log_time_step_max_ms"),
        ("[raft]\nuncommitted_bytes_max = \"8KiB\"\n", "8:25 raft.uncommitted_bytes_max must be at least"),
        ("[raft]\nmessage_bytes_max = \"17MiB\"\n", "8:21 raft.message_bytes_max is 17MiB: it must be"),
        ("[raft]\nread_timeout_ms = 100\n", "8:19 raft.read_retry_ms must be at most raft.read_timeout_ms"),
        ("[storage]\nlog_purge_bytes = \"1MiB\"\n", "8:19 storage.log_purge_bytes must be at least"),
        (
            "[server]\noperations_admitted_max = 50_000\noperations_in_flight_max = 62_500\n",
            "8:27 server.operations_admitted_max and a quarter more must be less",
        ),
        ("[limits]\nttl_ms_max = 50\n", "8:14 limits.ttl_ms_min must be at most limits.ttl_ms_max"),
    ];
    for (more, expected) in cases {
        let told = wrongs(load_with(more));
        assert!(told.len() == 1 && told[0].starts_with(expected), "{told:?}");
    }
    let text = load_with("[raft]\nheartbeat_ms = 500\n").unwrap_err().to_string();
    let notes = "  = raft.election_timeout_ms is 1000 (default)\n  = raft.heartbeat_ms is 500 (t.toml:8)\n";
    assert!(text.contains(notes), "{text}");
}

#[test]
fn lowering_what_may_be_in_flight_alone_lowers_what_is_admitted_with_it() {
    let server = |more: &str| load_with(&format!("[server]\n{more}")).unwrap().config.server;
    assert_eq!(server("").operations_admitted_max, 50_000);
    assert_eq!(server("operations_in_flight_max = 1_000_000\n").operations_admitted_max, 50_000);
    assert_eq!(server("operations_in_flight_max = 62_500\n").operations_admitted_max, 49_999);
    assert_eq!(server("operations_in_flight_max = 1_001\n").operations_admitted_max, 800);
    assert_eq!(server("operations_in_flight_max = 3\n").operations_admitted_max, 1);
    let told = wrongs(load_with("[server]\noperations_in_flight_max = 2\n"));
    assert_eq!(told, ["8:28 server.operations_in_flight_max is 2: it must be from 3 to 16777216"]);
    // A value that somebody set is used as it is, or refused.
    let set = server("operations_in_flight_max = 1_001\noperations_admitted_max = 10\n");
    assert_eq!(set.operations_admitted_max, 10);
    let told =
        wrongs(load_with("[server]\noperations_in_flight_max = 1_001\noperations_admitted_max = 801\n"));
    assert!(told.len() == 1 && told[0].starts_with("9:27 server.operations_admitted_max and"), "{told:?}");
}

#[test]
fn every_configuration_that_is_cut_off_is_judged_without_a_panic() {
    let text = tollgate_server::config::EXAMPLE;
    for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)).step_by(7) {
        if let Err(problems) = load(&text[..end], &[], &[]) {
            assert!(!problems.to_string().is_empty());
        }
    }
}
