//! Redis: one server, without disk or with each write synced, or five servers that vote (Redlock).
//!
//! A lock is `SET key token NX PX ttl`, released by a script that deletes the key if it still has the token. Redis has
//! no queue: a client that is refused retries after a pause.

use super::{Contender, PAUSE, READY_PATIENCE};
use crate::process::{Server, free_ports};
use anyhow::bail;
use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError, Script};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;
use tollgate_bench::{Blow, Caller, Failure, How, Patient, Peer};

const TTL_MS: u64 = 60_000;

/// Pause between two attempts at a lock that is taken. Libraries wait 50 to 200 ms, so this pause favours Redis.
const RETRY: Duration = Duration::from_millis(1);

const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

const DELETE_IF_MINE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
const RENEW_IF_MINE: &str = "\
    if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) \
    else return 0 end";

/// State of the disk at the time when a write is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    Nothing,
    EachWrite,
}

pub(crate) struct RedisServers {
    servers: Vec<Server>,
    ports: Vec<u16>,
    _dir: TempDir,
}

impl RedisServers {
    pub(crate) async fn start(count: usize, durability: Durability) -> anyhow::Result<RedisServers> {
        let dir = TempDir::with_prefix("bench-redis-")?;
        let ports = free_ports(count)?;
        let mut servers = Vec::new();
        for (index, port) in ports.iter().enumerate() {
            let data = dir.path().join(format!("node-{index}"));
            std::fs::create_dir_all(&data)?;
            let appends = if durability == Durability::EachWrite { "yes" } else { "no" };
            let flags = [
                ("--port", port.to_string()),
                ("--bind", "127.0.0.1".to_owned()),
                ("--dir", data.display().to_string()),
                ("--save", String::new()),
                ("--appendonly", appends.to_owned()),
                ("--appendfsync", "always".to_owned()),
            ];
            let flags = flags.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
            servers.push(Server::start("redis-server", flags, dir.path(), &format!("node-{index}"))?);
        }
        let redis = RedisServers { servers, ports, _dir: dir };
        let until = Instant::now() + READY_PATIENCE;
        while redis.connect(1, false).await.is_err() {
            if Instant::now() > until {
                bail!("Redis is not up after {READY_PATIENCE:?}:\n{}", redis.servers[0].last_words());
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(redis)
    }
}

impl Contender for RedisServers {
    type Peer = Redis;

    fn pids(&self) -> Vec<u32> {
        self.servers.iter().filter_map(Server::pid).collect()
    }

    async fn connect(&self, connections: usize, _restless: bool) -> anyhow::Result<Redis> {
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER_PATIENCE));
        let mut sets = Vec::new();
        for _ in 0..connections {
            let mut to_all = Vec::new();
            for port in &self.ports {
                let client = Client::open(format!("redis://127.0.0.1:{port}/"))?;
                to_all.push(client.get_multiplexed_async_connection_with_config(&config).await?);
            }
            sets.push(to_all);
        }
        let scripts =
            Arc::new(Scripts { delete: Script::new(DELETE_IF_MINE), renew: Script::new(RENEW_IF_MINE) });
        Ok(Redis { sets, scripts })
    }
}

impl Patient for RedisServers {
    async fn strike(&mut self, _blow: Blow) -> Result<Instant, Failure> {
        Err(Failure::says("no server of Redis takes over from another here"))
    }

    async fn heal(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

struct Scripts {
    delete: Script,
    renew: Script,
}

/// The servers, over some connections to each.
pub(crate) struct Redis {
    sets: Vec<Vec<MultiplexedConnection>>,
    scripts: Arc<Scripts>,
}

static TOKENS: AtomicU64 = AtomicU64::new(1);

impl Peer for Redis {
    type Caller = RedisCaller;

    async fn caller(&self, number: usize, _near: &str) -> Result<RedisCaller, Failure> {
        let servers = self.sets[number % self.sets.len()].clone();
        Ok(RedisCaller { servers, scripts: Arc::clone(&self.scripts) })
    }
}

pub(crate) struct RedisCaller {
    servers: Vec<MultiplexedConnection>,
    scripts: Arc<Scripts>,
}

/// A key that was set, and its value.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    key: String,
    token: u64,
}

#[allow(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
fn told(error: RedisError) -> Failure {
    Failure::says(error.to_string())
}

async fn set(mut server: MultiplexedConnection, mark: &Mark) -> Result<bool, RedisError> {
    let mut command = redis::cmd("SET");
    command.arg(&mark.key).arg(mark.token).arg("NX").arg("PX").arg(TTL_MS);
    let answer: Option<String> = command.query_async(&mut server).await?;
    Ok(answer.is_some())
}

/// Runs a script on a mark; returns 1 if the mark was there.
async fn run(mut server: MultiplexedConnection, script: &Script, mark: &Mark) -> Result<usize, RedisError> {
    let mut invocation = script.prepare_invoke();
    invocation.key(&mark.key).arg(mark.token).arg(TTL_MS);
    invocation.invoke_async(&mut server).await
}

impl RedisCaller {
    /// Sets a mark; returns true if a majority of the servers, or the only one, took it.
    async fn set_at_most(&self, mark: &Mark) -> Result<bool, Failure> {
        let answers = join_all(self.servers.iter().map(|server| set(server.clone(), mark))).await;
        let taken = answers.iter().filter(|answer| matches!(answer, Ok(true))).count();
        if taken >= self.majority() {
            return Ok(true);
        }
        match answers.into_iter().find_map(Result::err) {
            Some(error) => Err(told(error)),
            None => Ok(false),
        }
    }

    /// Runs a script on a mark at all servers; returns the number of servers that had the mark.
    async fn at_all(&self, script: &Script, mark: &Mark) -> Result<usize, Failure> {
        let answers = join_all(self.servers.iter().map(|server| run(server.clone(), script, mark))).await;
        answers.into_iter().sum::<Result<usize, _>>().map_err(told)
    }

    fn majority(&self) -> usize {
        self.servers.len() / 2 + 1
    }
}

impl Caller for RedisCaller {
    type Held = Mark;
    type Lease = Mark;

    async fn lock(&mut self, name: &str, how: How) -> Result<Mark, Failure> {
        if how != How::Exclusive {
            return Err(Failure::says("only exclusive locks are compared"));
        }
        loop {
            let mark = Mark { key: name.to_owned(), token: TOKENS.fetch_add(1, Ordering::Relaxed) };
            if self.set_at_most(&mark).await? {
                return Ok(mark);
            }
            if self.servers.len() > 1 {
                // Marks taken at a minority are deleted, or no client would ever get the lock.
                self.at_all(&self.scripts.delete, &mark).await?;
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn unlock(&mut self, held: Mark) -> Result<(), Failure> {
        match self.at_all(&self.scripts.delete, &held).await? {
            had if had >= self.majority() => Ok(()),
            _ => Err(Failure::says("the lock was lost")),
        }
    }

    async fn grant(&mut self) -> Result<Mark, Failure> {
        let token = TOKENS.fetch_add(1, Ordering::Relaxed);
        let mark = Mark { key: format!("lease/{}/{token}", std::process::id()), token };
        if self.set_at_most(&mark).await? { Ok(mark) } else { Err(Failure::says("the key is taken")) }
    }

    async fn keep_alive(&mut self, lease: &mut Mark) -> Result<(), Failure> {
        match self.at_all(&self.scripts.renew, lease).await? {
            had if had >= self.majority() => Ok(()),
            _ => Err(Failure::says("the key was lost")),
        }
    }

    async fn revoke(&mut self, lease: Mark) -> Result<(), Failure> {
        self.unlock(lease).await
    }

    async fn close(self) {}
}
