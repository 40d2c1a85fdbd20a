//! Demo: three clients want one lock, and get it in the order in which they asked.

use super::narrator::Narrator;
use super::stage::Stage;
use super::verdict::Verdict;
use anyhow::Context;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tollgate_client::Session;

const PEOPLE: [&str; 3] = ["ann", "bob", "cid"];
const ROUNDS: usize = 3;
const LOCK: &str = "till/4";
const TTL: Duration = Duration::from_secs(10);
/// Time that each client keeps the lock.
const HOLD: Duration = Duration::from_millis(250);

/// One grant of the lock: its holder, its token and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    who: &'static str,
    token: u64,
    from: Duration,
    until: Duration,
}

/// Everything that the play saw.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Seen {
    /// The clients that asked, in order.
    asked: Vec<&'static str>,
    /// The grants, in order.
    held: Vec<Held>,
}

pub(super) async fn play(stage: &Stage) -> anyhow::Result<Verdict> {
    let seen = Arc::new(Mutex::new(Seen::default()));
    // The first client keeps the lock until the others stand in line, or there would be no line.
    let (in_line, _) = watch::channel(false);
    let mut people = JoinSet::new();
    for (place, who) in PEOPLE.into_iter().enumerate() {
        let session = stage.person(who, TTL).await?;
        let person = Person { who, session, tell: stage.tell, seen: Arc::clone(&seen) };
        people.spawn(person.come_and_go(in_line.subscribe()));
        match place {
            0 => until_held(stage).await?,
            others => stage.until_waiting(LOCK, u64::try_from(others)?).await?,
        }
    }
    in_line.send_replace(true);
    while let Some(done) = people.join_next().await {
        done??;
    }
    let seen = seen.lock().clone();
    let between = seen.held.windows(2).map(|pair| pair[1].from.saturating_sub(pair[0].until));
    if let (Some(least), Some(most)) = (between.clone().min(), between.max()) {
        let ms = |span: Duration| span.as_secs_f64() * 1_000.0;
        stage.tell.say(&format!("from hand to hand in {:.1} to {:.1} ms", ms(least), ms(most)))?;
    }
    Ok(judge(&seen))
}

async fn until_held(stage: &Stage) -> anyhow::Result<()> {
    while stage.client.get_lock(LOCK).await?.is_free() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

struct Person {
    who: &'static str,
    session: Session,
    tell: Narrator,
    seen: Arc<Mutex<Seen>>,
}

impl Person {
    async fn come_and_go(self, mut in_line: watch::Receiver<bool>) -> anyhow::Result<()> {
        for round in 0..ROUNDS {
            let again = if round == 0 { "asks for the lock" } else { "asks again, behind the others" };
            self.tell.who(self.who, again)?;
            self.seen.lock().asked.push(self.who);
            let guard = self.session.lock(LOCK).why("to pay").acquire().await?;
            let (from, token) = (self.tell.now(), guard.token()?);
            self.tell.who(self.who, &format!("has it, token {token}"))?;
            in_line.wait_for(|all| *all).await.context("the play ended")?;
            tokio::time::sleep(HOLD).await;
            let until = self.tell.now();
            self.seen.lock().held.push(Held { who: self.who, token: token.get(), from, until });
            self.tell.who(self.who, "lets it go")?;
            guard.release().await?;
        }
        self.session.close().await?;
        Ok(())
    }
}

fn judge(seen: &Seen) -> Verdict {
    let order: Vec<&str> = seen.held.iter().map(|held| held.who).collect();
    let tokens: Vec<u64> = seen.held.iter().map(|held| held.token).collect();
    let list = tokens.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
    let apart = seen.held.windows(2).all(|pair| pair[0].until <= pair[1].from);
    Verdict::new()
        .claim(seen.held.len() == PEOPLE.len() * ROUNDS, format!("everybody had the lock {ROUNDS} times"))
        .claim(order == seen.asked, format!("in the order in which they asked: {}", order.join(" ")))
        .claim(apart, "never two at once")
        .claim(tokens.windows(2).all(|pair| pair[0] < pair[1]), format!("tokens only grew: {list}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fair() -> Seen {
        let asked: Vec<_> = PEOPLE.into_iter().cycle().take(9).collect();
        let held = asked.iter().zip(1_u32..).map(|(who, place)| Held {
            who,
            token: u64::from(place) * 3,
            from: HOLD * place,
            until: HOLD * place + HOLD / 2,
        });
        Seen { held: held.collect(), asked }
    }

    #[test]
    fn a_fair_run_is_believed() {
        assert!(judge(&fair()).holds(), "{:?}", judge(&fair()));
    }

    #[test]
    fn who_jumps_the_queue_shares_the_lock_or_gets_an_old_token_is_noticed() {
        let mut jumped = fair();
        jumped.held.swap(3, 4);
        assert!(!judge(&jumped).holds());
        let mut shared = fair();
        shared.held[2].until = shared.held[3].from + Duration::from_millis(1);
        assert_eq!(judge(&shared).missing(), ["never two at once"]);
        let mut stale = fair();
        stale.held[8].token = stale.held[7].token;
        assert_eq!(judge(&stale).missing().len(), 1);
        let mut short = fair();
        short.held.pop();
        assert!(!judge(&short).holds());
        assert!(!judge(&Seen::default()).holds());
    }
}
