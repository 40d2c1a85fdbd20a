//! A store that others write to over the network: one value, with or without a fence in front of it.
//!
//! Invariant: with a fence, its check and the write are one step. Not here: the writers.

use anyhow::Context;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tollgate_client::Token;
use tollgate_fence::{Fence, FencedToken};

/// Answer of the store to a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Accepted,
    /// The write was refused, with the reason.
    Refused(String),
}

/// A store, served until it is dropped.
pub(super) struct Store {
    pub(super) address: SocketAddr,
    content: Arc<Mutex<Content>>,
    serving: JoinHandle<()>,
}

#[derive(Debug)]
struct Content {
    value: String,
    /// None for a store that checks no tokens.
    fence: Option<Fence>,
}

impl Content {
    fn write(&mut self, token: Token, value: &str) -> Answer {
        let passed = self.fence.as_mut().map_or(Ok(()), |fence| fence.accept(FencedToken::exclusive(token)));
        if let Err(rejected) = passed {
            return Answer::Refused(rejected.to_string());
        }
        value.clone_into(&mut self.value);
        Answer::Accepted
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Store {
    /// Opens a port and serves the store there.
    pub(super) async fn open(value: &str, fence: Option<Fence>) -> anyhow::Result<Store> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let content = Arc::new(Mutex::new(Content { value: value.to_owned(), fence }));
        let shared = Arc::clone(&content);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A malformed request gets no answer; the demo notices.
                let _ = serve(stream, &shared).await;
            }
        });
        Ok(Store { address, content, serving })
    }

    /// Returns the current value.
    pub(super) fn value(&self) -> String {
        self.content.lock().value.clone()
    }
}

/// Serves one write: a line with a token and a value, answered with a line.
async fn serve(stream: TcpStream, content: &Mutex<Content>) -> anyhow::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let (token, value) = line.trim_end().split_once(' ').context("no value")?;
    let token = Token::new(token.parse()?).context("a token is never 0")?;
    let answer = content.lock().write(token, value);
    let says = match answer {
        Answer::Accepted => "accepted\n".to_owned(),
        Answer::Refused(why) => format!("refused {why}\n"),
    };
    Ok(stream.write_all(says.as_bytes()).await?)
}

/// Writes to a store at an address.
pub(super) async fn write(store: SocketAddr, token: Token, value: &str) -> anyhow::Result<Answer> {
    let mut stream = BufReader::new(TcpStream::connect(store).await?);
    stream.write_all(format!("{token} {value}\n").as_bytes()).await?;
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    match line.trim_end().split_once(' ') {
        Some((_, why)) => Ok(Answer::Refused(why.to_owned())),
        None if line.trim_end() == "accepted" => Ok(Answer::Accepted),
        None => anyhow::bail!("the store said {line:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> Token {
        Token::new(number).unwrap()
    }

    #[tokio::test]
    async fn p3_a_fenced_store_refuses_a_stale_token_and_one_without_a_fence_takes_it() {
        for (fence, value) in [(Some(Fence::new()), "new"), (None, "old")] {
            let fenced = fence.is_some();
            let store = Store::open("empty", fence).await.unwrap();
            assert_eq!(write(store.address, token(8), "new").await.unwrap(), Answer::Accepted);
            let late = write(store.address, token(5), "old").await.unwrap();
            assert_eq!(matches!(late, Answer::Refused(_)), fenced, "{late:?}");
            assert_eq!(store.value(), value);
        }
    }
}
