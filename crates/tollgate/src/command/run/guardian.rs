//! The guardian process: ends a command when `run` itself can't, because it was killed, stopped, or starved of time.
//!
//! The guardian is a process of this binary that knows little: the command's process group, the run id, the time until
//! which the client believes in the lock, and a pipe from `run`. If the pipe breaks before `run` has sent `done`, the
//! guardian ends the command with all that it started; it does the same if the deadline comes near and was not moved.
//! An outer `run` that is about to end tells the guardian to hurry: then it kills at once. Until then it does nothing
//! and talks to no network, and work that may take long (`search`) is left to other threads, so that the guardian is on
//! time when others are not. Not here: the work of `run` while it can do it (`supervisor`).

use super::boot_clock::boot_time;
use super::family::{Family, Reach};
use super::launcher::own_binary;
use super::on_lost::OnLost;
use super::process_group::ProcessGroup;
use super::run_id::RunId;
use super::schedule::{Schedule, Step};
use crate::exit::Exit;
use crate::output::{END_PATIENCE, get_ready_to_say, say};
use anyhow::Context;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{self, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::{Pid, read, setsid};
use std::ffi::{CString, OsString};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The first argument of a guardian's process.
pub(crate) const GUARD: &str = "__guardian";

/// Process name that distinguishes a guardian from other processes of this binary, so that a kill by name does not hit
/// both.
pub(crate) const PROCESS_NAME: &str = "tg-guardian";

/// Signal that tells a guardian whose `run` is gone that there is no time to ask. A guardian that does not listen yet
/// ignores the signal, and is sent it again.
pub(crate) const HURRY: Signal = Signal::SIGURG;

/// Maximum time that `run` waits for its guardian to get ready, before there is a command that could be late.
const START_PATIENCE: Duration = Duration::from_secs(5);

/// Time in which the killed processes are watched for others that they started just before, while `run` waits for it.
const KILL_PATIENCE: Duration = Duration::from_millis(500);

/// Maximum time that `run` waits for the end of a guardian with nothing left to do. Everything that the guardian may
/// still be doing is over by then, and a guardian that stands still must not keep the lock.
const DONE_PATIENCE: Duration =
    KILL_PATIENCE.saturating_add(END_PATIENCE).saturating_add(Duration::from_secs(1));

/// Pause between two checks for the end of the guardian.
const DONE_PAUSE: Duration = Duration::from_millis(2);

/// Handle of `run` on its guardian.
pub(crate) struct Guardian {
    process: Child,
    buried: bool,
    pipe: Option<ChildStdin>,
    /// The deadline that the guardian was told last.
    told: Option<Duration>,
}

impl Guardian {
    /// Starts the guardian. When this returns, the guardian has left our process group, so that it does not die with
    /// us, and waits for its instructions.
    pub(crate) fn start(
        schedule: Schedule,
        on_lost: OnLost,
        reach: Reach,
        id: &RunId,
    ) -> anyhow::Result<Guardian> {
        let ms = |span: Duration| span.as_millis().to_string();
        let schedule = schedule.for_guardian();
        let mut command = Command::new(own_binary());
        command.arg0("tollgate-guardian").args([GUARD, on_lost.name(), reach.name()]);
        command.args([ms(schedule.grace()), ms(schedule.kill_before())]).arg(id.as_str());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().context("can't start the guardian of the command")?;
        let pipe = process.stdin.take().context("the guardian has no pipe")?;
        let ready = process.stdout.take().context("the guardian has no pipe")?;
        anyhow::ensure!(is_told(ready)?, "the guardian of the command does not start");
        // A guardian that stands still must not block `run`.
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Guardian { process, buried: false, pipe: Some(pipe), told: None })
    }

    /// Tells the guardian which process group to guard.
    pub(crate) fn guard(&mut self, group: ProcessGroup) {
        self.tell(&format!("group {}", group.pid()));
    }

    /// Tells the guardian the deadline, by `boot_time`, if it has moved.
    pub(crate) fn until(&mut self, until: Duration) {
        // A deadline is only exact to some ten microseconds, depending on when it is computed.
        let moved = self.told.is_none_or(|told| until.abs_diff(told) > Duration::from_millis(2));
        // A deadline that could not be sent is sent again.
        if moved && self.tell(&format!("until {}", until.as_millis())) {
            self.told = Some(until);
        }
    }

    /// Tells the guardian that the command has been asked to end, and must not be asked twice.
    pub(crate) fn asked(&mut self) {
        self.tell("asked");
    }

    /// Reaps the guardian if it has died. Returns true once only, since its number is free after that. Its exit status
    /// is kept for the end.
    pub(crate) fn bury(&mut self) -> bool {
        let has_ended = matches!(self.process.try_wait(), Ok(Some(_)));
        has_ended && !std::mem::replace(&mut self.buried, true)
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.process.id()).expect("it was made from an i32"))
    }

    /// Tells the guardian that nothing is left to guard, and waits for its end. Returns true if the guardian ended the
    /// command.
    pub(crate) fn done(mut self) -> bool {
        self.tell("done");
        self.pipe = None;
        if let Some(status) = self.ended_within(DONE_PATIENCE) {
            return status.code() == Some(Exit::Lost.code().into());
        }
        say("warning: the guardian of the command stands still, and is killed");
        // If the guardian waits for a broken disk, only the system can end it.
        let _ = self.process.kill();
        self.ended_within(KILL_PATIENCE);
        false
    }

    fn ended_within(&mut self, patience: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + patience;
        loop {
            match self.process.try_wait() {
                Ok(None) if Instant::now() < until => std::thread::sleep(DONE_PAUSE),
                ended => return ended.ok().flatten(),
            }
        }
    }

    /// Sends a line to the guardian. Returns false if it was not sent, such as when the pipe is full.
    fn tell(&mut self, line: &str) -> bool {
        let Some(pipe) = &mut self.pipe else { return false };
        // The line is so short that it is written as a whole or not at all.
        let told = pipe.write_all(format!("{line}\n").as_bytes());
        if told.as_ref().is_err_and(|error| error.kind() != ErrorKind::WouldBlock) {
            say(
                "warning: the guardian of the command has died; should tollgate die too, nobody ends the command",
            );
            self.pipe = None;
        }
        told.is_ok()
    }
}

/// Waits until the guardian writes a byte; false if its pipe is closed, or none comes in time.
fn is_told(mut ready: ChildStdout) -> anyhow::Result<bool> {
    // One deadline for all attempts: repeated signals must not make the wait longer.
    let until = Instant::now() + START_PATIENCE;
    let mut one = [PollFd::new(ready.as_fd(), PollFlags::POLLIN)];
    while let Err(error) = poll(&mut one, poll_until(until)) {
        anyhow::ensure!(error == Errno::EINTR, "can't wait for the guardian of the command: {error}");
    }
    Ok(one[0].any() == Some(true) && ready.read(&mut [0])? > 0)
}

/// True if the pipe has data to read, or has reached its end.
fn has_more(pipe: &impl AsFd) -> nix::Result<bool> {
    let mut one = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
    loop {
        match poll(&mut one, PollTimeout::ZERO) {
            Err(Errno::EINTR) => {}
            polled => return polled.map(|_| one[0].any() == Some(true)),
        }
    }
}

fn poll_until(until: Instant) -> PollTimeout {
    let left = until.saturating_duration_since(Instant::now());
    PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO)
}

/// Runs the guardian's process.
pub(crate) fn run(arguments: &[OsString]) -> Exit {
    let Some(mut watch) = Watch::new(arguments) else { return Exit::Usage };
    // Blocked before there are threads, which would receive the signal otherwise.
    let hurry = SigSet::from(HURRY);
    if hurry.thread_block().is_ok() {
        watch.hurry = SignalFd::with_flags(&hurry, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).ok();
    }
    // Prepared before there is a command: when it has to be killed, no output may delay the guardian.
    get_ready_to_say();
    // A session of its own: signals of the terminal are not meant for the guardian.
    let _ = setsid();
    if let Ok(name) = CString::new(PROCESS_NAME) {
        let _ = prctl::set_name(&name);
    }
    let mut stdout = std::io::stdout();
    if stdout.write_all(b"\n").and_then(|()| stdout.flush()).is_err() {
        // `run` is gone, and has started nothing.
        return Exit::Done;
    }
    match watch.run() {
        Ok(false) => Exit::Done,
        Ok(true) => Exit::Lost,
        Err(error) => {
            say(&format!("error: the guardian of the command failed: {error}"));
            Exit::Fault
        }
    }
}

/// State of the guardian's process.
struct Watch {
    on_lost: OnLost,
    reach: Reach,
    schedule: Schedule,
    id: RunId,
    family: Option<Family>,
    until: Option<Duration>,
    /// The last step taken, by `run` or here.
    taken: Step,
    /// True if the guardian has signalled the command, which had not ended by itself before.
    acted: bool,
    /// True once `run` is gone.
    alone: bool,
    /// Receives the signal by which an outer `run` says that it is about to end, and with it the lock.
    hurry: Option<SignalFd>,
    heard: String,
}

impl Watch {
    fn new(arguments: &[OsString]) -> Option<Watch> {
        let [on_lost, reach, grace, kill_before, id] = arguments else { return None };
        let ms = |text: &OsString| text.to_str()?.parse().ok().map(Duration::from_millis);
        let schedule = Schedule::from_parts(ms(grace)?, ms(kill_before)?);
        let on_lost = OnLost::of_name(on_lost.to_str()?)?;
        Some(Watch {
            on_lost,
            reach: Reach::of_name(reach.to_str()?)?,
            schedule,
            id: RunId::from_text(id.to_str()?),
            family: None,
            until: None,
            taken: Step::Run,
            acted: false,
            alone: false,
            hurry: None,
            heard: String::new(),
        })
    }

    /// Watches until the end. Returns true if the guardian signalled the command.
    fn run(mut self) -> anyhow::Result<bool> {
        let timer = TimerFd::new(timerfd::ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_NONBLOCK)?;
        let stdin = std::io::stdin();
        loop {
            self.set(&timer)?;
            let mut both = [
                PollFd::new(stdin.as_fd(), PollFlags::POLLIN),
                PollFd::new(timer.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut both, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            // Read before the lines of `run`: however long this process stands still in between, a deadline that has
            // been moved by this time is then known.
            let now = boot_time();
            if self.hear(&stdin)? {
                return Ok(self.acted);
            }
            self.look(now);
        }
    }

    /// Sets the timer to the time when the next step is due.
    fn set(&self, timer: &TimerFd) -> nix::Result<()> {
        let Some(until) = self.until.filter(|_| self.family.is_some()) else { return timer.unset() };
        let before = match self.taken {
            Step::Run => self.schedule.ask_before(),
            Step::Ask => self.schedule.kill_before(),
            Step::Kill => return timer.unset(),
        };
        // Zero would switch the timer off.
        let at = until.saturating_sub(before).max(Duration::from_nanos(1));
        let at = Expiration::OneShot(TimeSpec::from_duration(at));
        timer.set(at, TimerSetTimeFlags::TFD_TIMER_ABSTIME)
    }

    /// Reads all lines that `run` has sent; returns true if there is nothing more to do. All of them are read before
    /// any step is taken, since the last line counts. So no buffer may hold back a part of the pipe.
    fn hear(&mut self, pipe: &impl AsFd) -> anyhow::Result<bool> {
        let mut bytes = [0; 4096];
        while has_more(pipe)? {
            let count = match read(pipe, &mut bytes) {
                Err(Errno::EINTR) => continue,
                count => count?,
            };
            self.heard.push_str(&String::from_utf8_lossy(&bytes[..count]));
            if self.heed() {
                return Ok(true);
            }
            if count == 0 {
                self.abandoned();
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Applies the complete lines that were read; returns true if `done` was among them.
    fn heed(&mut self) -> bool {
        while let Some(end) = self.heard.find('\n') {
            let line: String = self.heard.drain(..=end).collect();
            match line.trim_end().split_once(' ').unwrap_or((line.trim_end(), "")) {
                ("group", number) => {
                    let group = number.parse().ok().map(ProcessGroup::of);
                    self.family = group.map(|group| Family::of_run(group, self.reach, self.id.clone()));
                    // Steps that were taken before reached no process.
                    self.taken = Step::Run;
                }
                ("until", ms) => self.until = ms.parse().ok().map(Duration::from_millis),
                ("asked", _) => self.taken = self.taken.max(Step::Ask),
                ("done", _) => return true,
                _ => {}
            }
        }
        false
    }

    /// Takes the next step if the deadline is near.
    fn look(&mut self, now: Duration) {
        let Some(until) = self.until.filter(|_| self.family.is_some()) else { return };
        let step = self.schedule.step(until.saturating_sub(now));
        if step > self.taken {
            self.take(step);
        }
    }

    fn until_deadline(&self) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_sub(boot_time()))
    }

    fn until_kill(&self) -> Duration {
        self.until_deadline().saturating_sub(self.schedule.kill_before())
    }

    /// Returns the time to search for processes that have to be killed. While an environment may be unreadable, another
    /// attempt is worthwhile as long as nobody else can have the lock.
    fn kill_patience(&self) -> Duration {
        if self.alone { self.until_deadline().max(KILL_PATIENCE) } else { KILL_PATIENCE }
    }

    fn take(&mut self, step: Step) {
        let (until_kill, kill_patience) = (self.until_kill(), self.kill_patience());
        let Some(family) = &mut self.family else { return };
        self.taken = step;
        let led = family.group().leader_lives();
        // Failures are ignored: there is nobody to report them to who could do better.
        match (self.on_lost, step) {
            (_, Step::Run) | (OnLost::Notify, Step::Kill) => return,
            (OnLost::Kill, Step::Ask) => {
                if !until_kill.is_zero() {
                    family.note();
                }
                return;
            }
            (OnLost::Notify, Step::Ask) => {
                let _ = family.signal_leader(Signal::SIGUSR1);
                return;
            }
            (OnLost::Term, Step::Ask) => {
                let _ = family.ask(until_kill);
            }
            (OnLost::Term | OnLost::Kill, Step::Kill) => {
                if !family.wait_killed(kill_patience) {
                    say(&family.tell_of_survivors());
                }
            }
        }
        self.acted |= led;
    }

    /// Handles the death of `run`: its lease will end, since nobody keeps it alive.
    fn abandoned(&mut self) {
        if self.family.is_none() {
            return;
        }
        self.alone = true;
        if self.taken == Step::Run {
            self.take(Step::Ask);
            let done = match self.on_lost {
                OnLost::Term => "ending the command",
                OnLost::Kill => "killing the command",
                OnLost::Notify => "the command was told with SIGUSR1 and runs on",
            };
            say(&format!("tollgate: run died without releasing its lock; {done}"));
        }
        let left = self.until_kill();
        if let Some(family) = self.family.as_mut().filter(|_| self.on_lost == OnLost::Term) {
            let hurry = self.hurry.as_ref();
            let is_hurried = || hurry.is_some_and(|hurry| matches!(hurry.read_signal(), Ok(Some(_))));
            family.wait_asked(left.min(self.schedule.grace()), is_hurried);
        }
        self.take(Step::Kill);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_counts_as_ended_here_only_if_it_was_signalled() {
        let mut child = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let id = RunId::new();
        let arguments = ["kill", "all", "1000", "100", id.as_str()].map(OsString::from);
        let mut watch = Watch::new(&arguments).unwrap();
        let group = ProcessGroup::of(i32::try_from(child.id()).unwrap());
        watch.family = Some(Family::of_run(group, Reach::All, id));
        watch.take(Step::Ask);
        assert!(!watch.acted, "with --on-lost kill it is not asked");
        watch.take(Step::Kill);
        assert!(watch.acted);
        child.wait().unwrap();
    }

    /// Returns a command, its guardian's state, and both ends of the pipe to the guardian.
    fn watched() -> (Child, Watch, std::io::PipeReader, std::io::PipeWriter) {
        let child = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let arguments = ["kill", "all", "1000", "100", RunId::new().as_str()].map(OsString::from);
        let (reader, writer) = std::io::pipe().unwrap();
        (child, Watch::new(&arguments).unwrap(), reader, writer)
    }

    #[test]
    fn a_deadline_that_passed_before_there_was_a_command_counts_when_there_is_one() {
        let (mut child, mut watch, reader, mut writer) = watched();
        writer.write_all(b"until 1\n").unwrap();
        assert!(!watch.hear(&reader).unwrap());
        watch.look(boot_time());
        assert_eq!(watch.taken, Step::Run, "there is nobody yet");
        writer.write_all(format!("group {}\n", child.id()).as_bytes()).unwrap();
        assert!(!watch.hear(&reader).unwrap());
        watch.look(boot_time());
        assert!(watch.acted && watch.taken == Step::Kill);
        child.wait().unwrap();
    }

    /// As after a time in which the guardian stood still.
    #[test]
    fn all_that_was_said_is_heard_before_anything_is_done() {
        let (mut child, mut watch, reader, mut writer) = watched();
        let long_past = "until 1\n".repeat(4_000);
        let far = boot_time() + Duration::from_secs(1_000);
        let said = format!("group {}\n{long_past}until {}\n", child.id(), far.as_millis());
        writer.write_all(said.as_bytes()).unwrap();
        let now = boot_time();
        assert!(!watch.hear(&reader).unwrap());
        watch.look(now);
        assert!(!watch.acted && watch.taken == Step::Run);
        assert_eq!(child.try_wait().unwrap(), None);
        drop(writer);
        assert!(watch.hear(&reader).unwrap(), "it has been left alone");
        assert!(watch.acted);
        child.wait().unwrap();
    }
}
