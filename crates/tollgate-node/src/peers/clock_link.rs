//! Readings of a peer's clock, over a connection of their own: the node that dialled asks, the other answers.
//!
//! A question is the byte 1. Its answer is the id of the clock that was read (u64; different after each start of the
//! process) and its microseconds (u64), little-endian. The connection begins with a hello for this purpose (`hello`),
//! which older nodes refuse; they are asked again after their restart, which shows as a break of the connection for
//! frames. Clock readings thus do not use the connection for frames, and no piece of a snapshot delays them.
//!
//! Invariant: one question is in flight at a time. Not here: the meaning of readings (`clock_monitor`).

use super::disks::Disks;
use super::hello::{Hello, Refusal};
use super::outgoing::{self, Undialled};
use crate::clock_monitor::ClockMonitor;
use crate::clock_rate::Reading;
use crate::planted::{Bug, planted};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, timeout};
use tollgate_replica::MonotonicTime;

const QUESTION: u8 = 1;
const ANSWER_BYTES: usize = 2 * 8;

/// Maximum time for an answer: a later one says nothing about a clock's rate, and the connection may be broken.
const PATIENCE: Duration = Duration::from_secs(2);

/// Pause between two attempts to dial: doubles from `PAUSE_MIN` to `PAUSE_MAX`.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_mins(1);

/// Number of the current connection for frames to a peer; none while there is none.
pub(super) type FramesConnection = Option<u64>;

/// Task that reads the clock of one peer.
pub(super) struct ClockLink {
    pub(super) hello: Hello,
    pub(super) address: String,
    pub(super) disks: Disks,
    pub(super) monitor: Arc<ClockMonitor>,
    pub(super) frames: watch::Receiver<FramesConnection>,
}

impl ClockLink {
    /// Runs until the node stops.
    pub(super) async fn run(mut self) {
        if planted(Bug::WrongClockUnread) {
            return;
        }
        let peer = self.hello.to;
        let mut pause = PAUSE_MIN;
        loop {
            // An error means that this peer is no longer dialled.
            let Ok(frames) = self.frames.wait_for(Option::is_some).await.map(|frames| *frames) else {
                return;
            };
            match outgoing::dial(&self.address, self.hello, &self.disks).await {
                Ok(mut stream) => {
                    let error = self.ask(&mut stream, &mut pause).await;
                    tracing::debug!(%peer, %error, "the connection for clock readings was lost");
                }
                Err(Undialled::Refused(refusal @ (Refusal::OtherVersion | Refusal::NotAPeer))) => {
                    tracing::debug!(%peer, %refusal, "the peer's clock can't be read");
                    // The peer refuses in the same way until it is restarted.
                    if self.frames.wait_for(|now| *now != frames).await.is_err() {
                        return;
                    }
                    continue;
                }
                Err(Undialled::Refused(refusal)) => {
                    tracing::debug!(%peer, %refusal, "the peer's clock can't be read");
                }
                Err(Undialled::Failed(error)) => {
                    tracing::debug!(%peer, %error, "no connection for clock readings");
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Asks again and again, until the connection breaks.
    async fn ask<S>(&self, stream: &mut S, pause: &mut Duration) -> io::Error
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut ticks = tokio::time::interval(self.monitor.sampling().every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match timeout(PATIENCE, question(stream, &self.monitor)).await {
                Ok(Ok(reading)) => {
                    self.monitor.read(self.hello.to, reading);
                    *pause = PAUSE_MIN;
                }
                Ok(Err(error)) => return error,
                Err(_) => return io::ErrorKind::TimedOut.into(),
            }
        }
    }
}

/// Asks once.
async fn question<S>(stream: &mut S, monitor: &ClockMonitor) -> io::Result<Reading>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (_, asked) = monitor.now();
    stream.write_all(&[QUESTION]).await?;
    let mut answer = [0; ANSWER_BYTES];
    stream.read_exact(&mut answer).await?;
    let (_, answered) = monitor.now();
    let number = |at: usize| u64::from_le_bytes(answer[at..at + 8].try_into().expect("eight bytes"));
    Ok(Reading { asked, answered, clock: number(0), peer: MonotonicTime::from_us(number(8)) })
}

/// Answers the questions of a peer, until it goes, or sends something else.
pub(super) async fn answer<S>(stream: &mut S, monitor: &ClockMonitor) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        if stream.read_u8().await? != QUESTION {
            return Err(io::Error::other("not a question about a clock"));
        }
        let (clock, now) = monitor.now();
        let mut bytes = [0; ANSWER_BYTES];
        bytes[..8].copy_from_slice(&clock.to_le_bytes());
        bytes[8..].copy_from_slice(&now.us().to_le_bytes());
        stream.write_all(&bytes).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, ClockSampling, NodeClock};
    use tollgate_types::NodeId;

    /// A clock that stands still.
    #[derive(Debug)]
    struct Still(u64);

    impl Clock for Still {
        fn now(&self) -> MonotonicTime {
            MonotonicTime::from_us(self.0)
        }
    }

    fn monitor(shows_us: u64, clock_id: u64) -> ClockMonitor {
        let clock = NodeClock { clock: Arc::new(Still(shows_us)), sampling: ClockSampling::STANDARD };
        ClockMonitor::new(NodeId::new(1).unwrap(), clock, clock_id)
    }

    #[tokio::test]
    async fn the_bytes_of_a_question_and_its_answer_are_these() {
        let (mut near, mut far) = tokio::io::duplex(100);
        let theirs = monitor(0x0807_0605_0403_0201, 0x1817_1615_1413_1211);
        let answers = tokio::spawn(async move { answer(&mut far, &theirs).await });
        near.write_all(&[1]).await.unwrap();
        let mut bytes = [0; 16];
        near.read_exact(&mut bytes).await.unwrap();
        assert_eq!(bytes[..8], [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
        assert_eq!(bytes[8..], [1, 2, 3, 4, 5, 6, 7, 8]);
        // A byte that is not a question ends the connection.
        near.write_all(&[2]).await.unwrap();
        assert!(answers.await.unwrap().is_err());
        assert_eq!(near.read(&mut bytes).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_reading_is_what_the_peers_clock_showed_between_two_looks_at_this_one() {
        let (mut near, mut far) = tokio::io::duplex(100);
        let (ours, theirs) = (monitor(70, 1), monitor(9_000, 2));
        tokio::spawn(async move { answer(&mut far, &theirs).await });
        let here = MonotonicTime::from_us(70);
        for _ in 0..2 {
            let read = question(&mut near, &ours).await.unwrap();
            assert_eq!(
                read,
                Reading { asked: here, answered: here, clock: 2, peer: MonotonicTime::from_us(9_000) }
            );
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_cut_off_is_no_reading() {
        for length in 0..ANSWER_BYTES {
            let (mut near, mut far) = tokio::io::duplex(100);
            far.write_all(&[0; ANSWER_BYTES][..length]).await.unwrap();
            drop(far);
            assert!(question(&mut near, &monitor(0, 1)).await.is_err(), "{length} bytes");
        }
    }
}
