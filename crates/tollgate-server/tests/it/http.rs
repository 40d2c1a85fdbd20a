//! HTTP requests to a node of their own.

pub(crate) mod served;

use serde_json::{Value, json};
use served::{Answered, Served};
use std::time::Duration;

/// Returns a lock request with a lease.
fn lock(name: &str, lease: &str, timeout_ms: i64) -> Value {
    json!({ "name": name, "lease_id": lease, "timeout_ms": timeout_ms })
}

async fn lease(served: &Served) -> String {
    let answer = served.post("/v1/lease/grant", &json!({ "ttl_ms": 60_000, "client_id": "test" })).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["id"].as_str().expect("ids are strings").to_owned()
}

async fn waiters(served: &Served, name: &str) -> Value {
    served.get(&format!("/v1/lock?name={name}")).await.json()["lock"]["waiter_count"].clone()
}

/// Retries until the condition holds.
async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let patience = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), patience).await.expect("in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_with_slashes_in_its_name_is_taken_seen_and_given_back() {
    let served = Served::start().await;
    let (first, second) = (lease(&served).await, lease(&served).await);
    let granted = served.post("/v1/lock", &lock("db/migrate/ä", &first, 0)).await.json();
    assert_eq!((&granted["acquired"], &granted["mode"]), (&json!(true), &json!("EXCLUSIVE")));
    let token: u64 = granted["fencing_token"].as_str().unwrap().parse().unwrap();
    let busy = served.post("/v1/try-lock", &lock("db/migrate/ä", &second, 0)).await;
    assert_eq!((busy.status, &busy.json()["acquired"]), (423, &json!(false)));
    assert_eq!(busy.json()["holders"][0]["lease_id"], json!(first));

    let seen = served.get("/v1/lock?name=db%2Fmigrate%2F%C3%A4").await.json();
    assert_eq!(seen["lock"]["holders"][0]["fencing_token"], json!(token.to_string()));
    let listed = served.get("/v1/locks?prefix=db/&limit=10&consistency=linearizable").await.json();
    assert_eq!(listed["locks"][0]["name"], "db/migrate/ä");
    let left = served.get(&format!("/v1/lease?id={first}&keys")).await.json();
    assert_eq!(left["keys"][0]["name"], "db/migrate/ä");
    assert_eq!(left["lease"]["client_id"], "test");
    assert!(left["lease"]["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{left}");
    assert_eq!(served.get("/v1/leases").await.json()["leases"].as_array().unwrap().len(), 2);

    // Tokens are accepted as numbers too.
    let unlock = json!({ "name": "db/migrate/ä", "lease_id": first, "fencing_token": token });
    assert_eq!(served.post("/v1/unlock", &unlock).await.status, 200);
    let again = served.post("/v1/unlock", &unlock).await;
    assert_eq!((again.status, &again.json()["error"]["reason"]), (404, &json!("NOT_HELD")));
    assert_eq!(again.json()["error"]["code"], "NOT_FOUND");
    assert!(again.json()["error"]["message"].as_str().unwrap().contains("nothing was held"), "{again:?}");
    served.post("/v1/lock", &lock("db/migrate/ä", &first, 0)).await;
    let stale = served.post("/v1/unlock", &unlock).await;
    assert_eq!((stale.status, &stale.json()["error"]["reason"]), (400, &json!("STALE_TOKEN")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_granted_and_a_lease_that_has_ended_have_a_status_that_says_so() {
    let served = Served::start().await;
    let (first, second) = (lease(&served).await, lease(&served).await);
    assert_eq!(served.post("/v1/lock", &lock("jobs", &first, 0)).await.status, 200);
    for (path, timeout_ms) in [("/v1/lock", 0), ("/v1/lock", 1), ("/v1/try-lock", 0)] {
        let busy = served.post(path, &lock("jobs", &second, timeout_ms)).await;
        assert_eq!(busy.status, 423, "{path}: {busy:?}");
        let plain = served.post(&format!("{path}?missed=200"), &lock("jobs", &second, timeout_ms)).await;
        assert_eq!(plain.status, 200, "{path}: {plain:?}");
        for answer in [busy.json(), plain.json()] {
            assert_eq!((&answer["acquired"], &answer["fencing_token"]), (&json!(false), &json!("0")));
            assert_eq!(answer["holders"][0]["lease_id"], json!(first));
        }
    }
    let shared = |lease: &str| json!({ "name": "shared", "lease_id": lease, "mode": "SHARED" });
    for lease in [&first, &second] {
        assert_eq!(served.post("/v1/lock", &shared(lease)).await.status, 200);
    }
    let upgrade = json!({ "name": "shared", "lease_id": first });
    assert_eq!(served.post("/v1/convert", &upgrade).await.status, 423);

    let keep_alive = json!({ "id": second });
    assert_eq!(served.post("/v1/lease/keep-alive", &keep_alive).await.status, 200);
    assert_eq!(served.post("/v1/lease/revoke", &keep_alive).await.status, 200);
    let ended = served.post("/v1/lease/keep-alive", &keep_alive).await;
    assert_eq!((ended.status, &ended.json()["ttl_ms"]), (404, &json!(0)));
    let plain = served.post("/v1/lease/keep-alive?missed=200", &keep_alive).await;
    assert_eq!((plain.status, &plain.json()["ttl_ms"]), (200, &json!(0)));
    let typo = served.post("/v1/lock?timeout_ms=5", &lock("jobs", &first, 0)).await;
    assert_eq!((typo.status, &typo.json()["error"]["field"]), (400, &json!("timeout_ms")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_is_no_text_is_refused_and_not_guessed_at() {
    let served = Served::start().await;
    for (path, field) in [
        ("/v1/lock?name=%ff", "name"),
        ("/v1/lock?name=jobs%C3", "name"),
        ("/v1/lock?name=%zz", "name"),
        ("/v1/locks?prefix=%c3%28", "prefix"),
        ("/v1/locks?cursor=%ff", "cursor"),
        ("/v1/lease?id=%ff", "id"),
        ("/v1/leases?%ff=1", "query"),
        ("/readyz?verbose=%ff", "verbose"),
    ] {
        let refused = served.get(path).await;
        assert_eq!(
            (refused.status, &refused.json()["error"]["reason"]),
            (400, &json!("BAD_FIELD")),
            "{path}"
        );
        assert_eq!(refused.json()["error"]["field"], field, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_may_be_named_as_people_see_it_and_not_in_digits_that_may_be_hex() {
    let served = Served::start().await;
    let id = "1234567890123456";
    let grant = json!({ "id": id, "ttl_ms": 60_000, "client_id": "test" });
    assert_eq!(served.post("/v1/lease/grant", &grant).await.json()["id"], json!(id));
    let shown = "L-000462d53c8abac0";
    assert_eq!(served.get(&format!("/v1/lease?id={shown}")).await.json()["id"], json!(id));
    assert_eq!(served.post("/v1/lock", &lock("jobs", shown, 0)).await.status, 200);
    assert_eq!(served.post("/v1/lease/keep-alive", &json!({ "id": shown })).await.json()["id"], json!(id));
    let unlock = json!({ "name": "jobs", "lease_id": shown });
    assert_eq!(served.post("/v1/unlock", &unlock).await.status, 200);
    let refused = served.get("/v1/lease?id=0000000000001234").await;
    assert_eq!((refused.status, &refused.json()["error"]["field"]), (400, &json!("id")));
    let says = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(says.contains("L-0000000000001234") && says.contains("L-00000000000004d2"), "{says}");
    let gone = served.get("/v1/lease?id=L-00000000000004d2").await.json();
    assert!(
        gone["error"]["message"].as_str().unwrap().contains("lease L-00000000000004d2 not found"),
        "{gone}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_request_is_said_to_need_it_needs() {
    let served = Served::start().await;
    let document = served.get("/openapi.json").await.json();
    let some = |field: &str| match field {
        "name" | "names" | "reason" => json!("jobs"),
        _ => json!(7),
    };
    let mut asked = 0;
    for (path, verbs) in document["paths"].as_object().unwrap() {
        if let Some(body) = verbs["post"].get("requestBody") {
            let reference = body["content"]["application/json"]["schema"]["$ref"].as_str().unwrap();
            let schema = &document["components"]["schemas"][reference.rsplit('/').next().unwrap()];
            let all = schema["required"].as_array().cloned().unwrap_or_default();
            let first = |rule: &str| schema[rule][0]["required"].get(0).cloned();
            let needed: Vec<Value> = all.into_iter().chain(first("oneOf")).chain(first("anyOf")).collect();
            for missing in &needed {
                let others =
                    needed.iter().filter(|field| *field != missing).map(|field| field.as_str().unwrap());
                let body: Value = others.map(|field| (field.to_owned(), some(field))).collect();
                let refused = served.post(path, &body).await;
                assert_eq!(
                    (refused.status, &refused.json()["error"]["reason"]),
                    (400, &json!("BAD_FIELD")),
                    "{path} {body}"
                );
                asked += 1;
            }
        }
        for parameter in verbs["get"]["parameters"].as_array().into_iter().flatten() {
            if parameter["required"] == json!(true) {
                let refused = served.get(path).await;
                assert_eq!(
                    (refused.status, &refused.json()["error"]["field"]),
                    (400, &parameter["name"]),
                    "{path}"
                );
                asked += 1;
            }
        }
    }
    assert!(asked > 15, "{asked}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_waits_is_answered_when_its_turn_comes_and_leaves_the_queue_when_it_hangs_up() {
    let served = Served::start().await;
    let (first, second, third) = (lease(&served).await, lease(&served).await, lease(&served).await);
    served.post("/v1/lock", &lock("jobs", &first, 0)).await;
    let hangs_up = served.begin_post("/v1/lock", &lock("jobs", &second, -1)).await;
    until(async || waiters(&served, "jobs").await == "1").await;
    let (body, there) = (lock("jobs", &third, 30_000), served.clone());
    let waits = tokio::spawn(async move { there.post("/v1/lock", &body).await });
    until(async || waiters(&served, "jobs").await == "2").await;
    drop(hangs_up);
    until(async || waiters(&served, "jobs").await == "1").await;
    assert_eq!(served.post("/v1/unlock", &json!({ "name": "jobs", "lease_id": first })).await.status, 200);
    let granted = waits.await.unwrap().json();
    assert_eq!(granted["acquired"], true);
    assert!(granted["waited_ms"].is_i64());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_kept_alive_and_revoked_and_then_unknown() {
    let served = Served::start().await;
    let id = lease(&served).await;
    let kept = served.post("/v1/lease/keep-alive", &json!({ "id": id, "seq": 3 })).await.json();
    assert_eq!((&kept["ttl_ms"], &kept["seq"]), (&json!(60_000), &json!("3")));
    assert_eq!(served.post("/v1/lease/revoke", &json!({ "id": id })).await.status, 200);
    let gone = served.get(&format!("/v1/lease?id={id}")).await;
    assert_eq!((gone.status, &gone.json()["error"]["reason"]), (404, &json!("LEASE_NOT_FOUND")));
    assert_eq!(gone.json()["error"]["may_have_happened"], false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_gets_an_error_in_json() {
    let served = Served::start().await;
    let status_of = |answer: &Answered| {
        assert!(answer.json()["error"]["message"].is_string(), "{answer:?}");
        answer.status
    };
    assert_eq!(status_of(&served.get("/").await), 404);
    assert_eq!(status_of(&served.get("/v1/lock/a/b").await), 404);
    let wrong_method = served.get("/v1/unlock").await;
    assert_eq!(status_of(&wrong_method), 405);
    assert!(wrong_method.head.to_lowercase().contains("allow: post"), "{}", wrong_method.head);
    for body in ["", "{", "[]", "null", "\u{0}", r#"{"name":"a"}"#, r#"{"name":"a","lease_id":-1}"#] {
        assert_eq!(status_of(&served.send("POST", "/v1/lock", "", body.as_bytes()).await), 400, "{body}");
    }
    let typo = served.post("/v1/lock", &json!({ "name": "a", "lease": 5 })).await;
    assert_eq!((status_of(&typo), &typo.json()["error"]["field"]), (400, &json!("lease")));
    assert_eq!(status_of(&served.get("/v1/locks?prefx=a").await), 400);
    assert_eq!(status_of(&served.get("/v1/locks?cursor=nonsense").await), 400);
    let long = vec![b' '; 256 * 1024 + 1];
    assert_eq!(status_of(&served.send("POST", "/v1/lock", "", &long).await), 413);
    let foreign = served.send("POST", "/v1/lock", "Origin: http://evil.example\r\n", b"{}").await;
    assert_eq!((status_of(&foreign), &foreign.json()["error"]["reason"]), (403, &json!("DENIED")));
    assert_eq!(status_of(&served.get("/v1/status").await), 501, "nobody gave it an admin service");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_not_the_clusters_is_refused() {
    let served = Served::start().await;
    for (host, status) in [("evil.example:7402", 403), ("localhost:7402", 200)] {
        assert_eq!(served.get_as(host, "/v1/locks").await.status, status, "{host}");
        for path in ["/livez", "/readyz", "/metrics"] {
            assert_eq!(served.get_as(host, path).await.status, 200, "{path} is for probes, by any name");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_described_route_exists() {
    let served = Served::start().await;
    let document = served.get("/openapi.json").await.json();
    assert_eq!(document["openapi"], "3.1.0");
    for (path, verbs) in document["paths"].as_object().unwrap() {
        for verb in verbs.as_object().unwrap().keys() {
            let answer = served.send(&verb.to_uppercase(), path, "", b"{}").await;
            assert!(
                answer.status != 405 && !answer.body.contains("there is nothing at"),
                "{verb} {path}: {answer:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_ready_while_it_leads_and_not_when_it_has_stopped() {
    let served = Served::start().await;
    assert_eq!(served.get("/livez").await.status, 200);
    let ready = served.get("/readyz?verbose").await;
    assert_eq!(ready.status, 200, "{ready:?}");
    assert_eq!(ready.json()["groups"][0], json!({ "group_id": 0, "ready": true, "leader_id": "1" }));
    assert_eq!(served.get("/readyz").await.json(), json!({ "ready": true }));
    served.stop_node().await;
    let not_ready = served.get("/readyz").await;
    assert_eq!((not_ready.status, &not_ready.json()["ready"]), (503, &json!(false)));
    assert!(not_ready.json()["groups"][0]["why"].is_string(), "{not_ready:?}");
    assert_eq!(served.get("/livez").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_has_stopped_says_so_at_once() {
    let served = Served::start().await;
    served.stop_node().await;
    let grant = json!({ "id": "7", "ttl_ms": 60_000 });
    let asked = served.post("/v1/lease/grant", &grant);
    let refused = tokio::time::timeout(Duration::from_secs(5), asked).await.expect("no waiting for a leader");
    assert_ne!(refused.status, 200, "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_tell_of_the_node_and_its_groups() {
    let served = Served::start().await;
    lease(&served).await;
    served.sample().await;
    let open =
        served.send("GET", "/metrics", "Accept: application/openmetrics-text;version=1.0.0\r\n", b"").await;
    assert!(
        open.head.contains("application/openmetrics-text") && open.body.ends_with("# EOF\n"),
        "{}",
        open.head
    );
    let answer = served.get("/metrics").await;
    assert!(answer.head.contains("text/plain; version=0.0.4"), "{}", answer.head);
    assert!(
        !answer.body.contains("EOF") && answer.body.contains("# TYPE tollgate_elections_won_total counter")
    );
    for line in [
        "tollgate_limit{limit=\"locks_max\"} 10000000",
        "tollgate_elections_won_total 1",
        "tollgate_group_is_leader{group=\"0\"} 1",
        "tollgate_group_leases{group=\"0\"} 1",
    ] {
        assert!(answer.body.contains(line), "{line} is not in\n{}", answer.body);
    }
}
