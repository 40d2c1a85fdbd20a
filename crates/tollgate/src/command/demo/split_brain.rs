//! Demo: a holder is stopped past its lease, wakes up, and writes with its old token. A store that checks the token
//! refuses the write; a store that does not is damaged.

use super::holder::{Holder, Wrote};
use super::stage::Stage;
use super::store::{Answer, Store, write};
use super::verdict::Verdict;
use nix::sys::signal::Signal;
use std::time::Duration;
use tollgate_fence::Fence;

/// TTL of the lease whose holder is stopped.
const TTL: Duration = Duration::from_millis(1_500);
const BEFORE: &str = "balance=100";
const OF_ANN: &str = "balance=90 (100 - 10, by ann)";
const OF_BOB: &str = "balance=150 (100 + 50, by bob)";

/// Everything that one act saw, with a fence or without.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Act {
    token_of_ann: u64,
    token_of_bob: u64,
    /// The store's answers to each client, in the order of their writes.
    to_bob: Answer,
    to_ann: Wrote,
    /// The value in the store at the end.
    value: String,
}

pub(super) async fn play(stage: &Stage) -> anyhow::Result<Verdict> {
    stage.tell.part("With fencing: the store remembers the highest token")?;
    let fenced = act(stage, "account/7", Some(Fence::new())).await?;
    stage.tell.part("The same without: the store takes every write")?;
    let unfenced = act(stage, "account/8", None).await?;
    Ok(judge(&fenced, &unfenced))
}

async fn act(stage: &Stage, lock: &str, fence: Option<Fence>) -> anyhow::Result<Act> {
    let tell = stage.tell;
    let store = Store::open(BEFORE, fence).await?;
    tell.say(&format!("the store has {BEFORE}"))?;
    let (mut ann, token_of_ann) = Holder::start(&stage.cluster.endpoints(), "ann", lock, TTL).await?;
    tell.who("ann", &format!("has the lock, token {token_of_ann}, reads 100, and means to write 90"))?;
    ann.signal(Signal::SIGSTOP)?;
    tell.say(&format!("kill -STOP {}: ann is paused just before her write, and does not know", ann.pid()))?;
    ann.tell_to_write(store.address, OF_ANN).await?;

    let bob = stage.person("bob", Duration::from_secs(10)).await?;
    tell.who("bob", "asks for the lock, and waits for ann's lease to end")?;
    let guard = bob.lock(lock).acquire().await?;
    let token_of_bob = guard.token()?;
    tell.who("bob", &format!("has the lock, token {token_of_bob}, reads 100, writes 150"))?;
    let to_bob = write(store.address, token_of_bob, OF_BOB).await?;
    tell.say(&format!("the store {}", said(&to_bob)))?;

    ann.signal(Signal::SIGCONT)?;
    tell.say(&format!("kill -CONT {}: ann wakes up, and the next thing she does is the write", ann.pid()))?;
    let to_ann = ann.wrote().await?;
    tell.say(&format!("the store {}", said(&to_ann.answer)))?;
    tell.who("ann", &format!("looks at her guard, too late: {}", to_ann.guard))?;
    let value = store.value();
    tell.say(&format!("the store has {value}"))?;
    guard.release().await?;
    Ok(Act { token_of_ann: token_of_ann.get(), token_of_bob: token_of_bob.get(), to_bob, to_ann, value })
}

fn said(answer: &Answer) -> String {
    match answer {
        Answer::Accepted => "accepts it".to_owned(),
        // The advice to the writer is not for the audience.
        Answer::Refused(why) => format!("refuses it: {}", why.split(". ").next().unwrap_or(why)),
    }
}

fn judge(fenced: &Act, unfenced: &Act) -> Verdict {
    let both = [fenced, unfenced];
    Verdict::new()
        .claim(
            both.iter().all(|act| act.token_of_ann < act.token_of_bob && act.to_bob == Answer::Accepted),
            "the lock passed to bob with a higher token while ann was paused",
        )
        .claim(
            matches!(fenced.to_ann.answer, Answer::Refused(_)) && fenced.value == OF_BOB,
            "with fencing the late write was refused, and bob's is there",
        )
        .claim(
            unfenced.to_ann.answer == Answer::Accepted && unfenced.value == OF_ANN,
            "without, the late write was taken, and bob's 50 are gone",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acts() -> (Act, Act) {
        let refused = Wrote { answer: Answer::Refused("stale".into()), guard: "lost".into() };
        let fenced = Act {
            token_of_ann: 3,
            token_of_bob: 6,
            to_bob: Answer::Accepted,
            to_ann: refused,
            value: OF_BOB.into(),
        };
        let taken = Wrote { answer: Answer::Accepted, guard: "lost".into() };
        let unfenced = Act { to_ann: taken, value: OF_ANN.into(), ..fenced.clone() };
        (fenced, unfenced)
    }

    #[test]
    fn the_two_acts_as_they_should_be_are_believed() {
        let (fenced, unfenced) = acts();
        assert!(judge(&fenced, &unfenced).holds());
    }

    #[test]
    fn a_fence_that_lets_a_stale_write_through_is_noticed_and_so_is_a_store_that_never_was_in_danger() {
        let (fenced, unfenced) = acts();
        assert_eq!(judge(&unfenced, &unfenced).missing().len(), 1);
        assert_eq!(judge(&fenced, &fenced).missing().len(), 1);
        let lost = Act { value: OF_ANN.into(), ..fenced.clone() };
        assert!(!judge(&lost, &unfenced).holds());
        let same = Act { token_of_bob: 3, ..fenced };
        assert!(!judge(&same, &unfenced).holds());
    }
}
