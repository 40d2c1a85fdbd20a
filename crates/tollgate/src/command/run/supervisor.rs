//! The supervisor: runs a command while a lock or a leadership is held, and ends the command before that is lost.
//!
//! One loop watches the command, the signals and the time left until the deadline. Invariant: when it returns, no
//! process that the command started is left, in its process group or (unless daemons may stay) out of it, or stderr
//! says why. Not here: which processes those are (`family`), when each step is due (`schedule`), and who takes it when
//! this process can't (`guardian`).

use super::boot_clock::boot_time;
use super::family::{self, Family, Reach};
use super::forwarding::Forwarding;
use super::guardian::Guardian;
use super::launcher;
use super::on_lost::OnLost;
use super::process::Process;
use super::process_group::ProcessGroup;
use super::run_id::RunId;
use super::schedule::{Schedule, Step};
use super::terminal::{Terminal, a_shell_would_notice_a_stop, in_a_pipeline};
use crate::exit::Exit;
use crate::output::{get_ready_to_say, say};
use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpgrp};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal as UnixSignal, SignalKind, signal};
use tokio::sync::mpsc;

/// After SIGKILL a process is gone as soon as the kernel gets to it; a process that waits for a broken disk may never
/// be.
const KILL_PATIENCE: Duration = Duration::from_secs(2);

/// Interval at which members are asked to end whose parents, asked in their place, have ended.
const ASKED_LOOK: Duration = Duration::from_millis(50);

/// Minimum delay that counts as a standstill, and not only as waiting for a processor.
const STANDSTILL_MIN: Duration = Duration::from_secs(1);

/// Interval at which the supervisor checks for a terminal that the stopped command waits for.
const TERMINAL_LOOK: Duration = Duration::from_millis(100);

/// The loss of what a command runs under, past or about to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loss {
    /// Reason, for people.
    pub(crate) why: String,
    /// True if the passing of time ends the belief: then every moment counts. Otherwise the loss is over already, and
    /// the command has its grace to end in order.
    pub(crate) by_time: bool,
}

impl Loss {
    fn by_deadline(stood_still: Option<Duration>) -> Loss {
        let why = match stood_still {
            Some(span) => format!(
                "tollgate stood still for {} (stopped, starved, or the machine slept), and the lease is about to end",
                crate::span::text(span)
            ),
            None => "the cluster does not answer keepalives, and the lease is about to end".to_owned(),
        };
        Loss { why, by_time: true }
    }

    /// Loss of a command that is stopped itself, and keeps others from the lock without doing any work.
    fn by_stop(longest: Duration) -> Loss {
        let longest = crate::span::text(longest);
        Loss { why: format!("the command was stopped for longer than its TTL of {longest}"), by_time: false }
    }
}

/// The lock or leadership that a command runs under.
pub(crate) trait Held {
    /// Time left of the belief that it is held; zero once it is lost.
    fn remaining(&self) -> Duration;

    /// The loss, if it is no longer held.
    fn lost_now(&self) -> Option<Loss>;

    /// Waits until it is no longer held.
    fn until_lost(&self) -> impl Future<Output = ()>;
}

/// A command and the rules for running it.
pub(crate) struct Order<'a> {
    pub(crate) command: &'a [OsString],
    pub(crate) environment: Vec<(&'static str, String)>,
    pub(crate) schedule: Schedule,
    pub(crate) on_lost: OnLost,
    /// The processes that end with the command.
    pub(crate) reach: Reach,
    /// Interval at which the deadline is checked.
    pub(crate) look_every: Duration,
    /// Maximum time that the command may be stopped where no shell could continue it: the TTL, as for a job of a shell,
    /// which is stopped together with us.
    pub(crate) stopped_max: Duration,
}

/// The end of a command.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The command ended by itself, or by a signal from somebody else.
    ByItself(ExitStatus),
    /// The command was ended, because what it ran under was lost or about to be.
    Lost,
}

impl Ended {
    /// Returns the exit of this process for that end.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Ended::ByItself(status) => exit_of(*status),
            Ended::Lost => Exit::Lost,
        }
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, Some(signal)) => Exit::signal(signal),
        (None, None) => Exit::Failed,
    }
}

/// Change of the command's state.
enum Change {
    Stopped(Signal),
    Ended,
}

/// Progress of the reaction to a loss.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Running,
    /// The command was told of the loss, and runs on.
    Notified,
    /// The command was asked to end by itself until this time.
    Asked(Loss, Instant),
    Killed,
}

/// Reason for not waking a stopped command yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    /// The command waits for the terminal.
    Terminal,
    /// The command waits for the lock to be renewed: it was not woken because its end seemed near.
    Renewal,
}

struct Supervisor<'a, H> {
    held: &'a H,
    schedule: Schedule,
    on_lost: OnLost,
    look_every: Duration,
    /// Boot time of the last check. If it is much longer ago than the interval, this process stood still.
    looked: Duration,
    stopped_max: Duration,
    /// Boot time since which the command is stopped without a terminal, as far as is known.
    stopped_since: Option<Duration>,
    family: Family,
    guardian: Guardian,
    terminal: Option<Terminal>,
    /// True if a `run` is around this one, with which it shares a process group.
    nested: bool,
    /// Event after which the stopped command is continued, if any.
    awaits: Option<Awaited>,
    /// True if we were asked to stop for a while, rather than the command.
    to_stop: bool,
    phase: Phase,
}

/// Runs the command to its end. Must be called on the main thread, like `launcher::prepare`.
pub(crate) async fn supervise<H: Held>(
    held: &H,
    order: Order<'_>,
    signals: &mut Forwarding,
) -> anyhow::Result<Ended> {
    get_ready_to_say();
    let id = RunId::new();
    let mut guardian = Guardian::start(order.schedule, order.on_lost, order.reach, &id)?;
    // From here on orphans are reparented to us, and belong to the command unless they existed before. This is needed
    // even if daemons may stay: the guardians of nested runs are among the orphans.
    let besides = family::descendants_so_far();
    let _ = set_child_subreaper(true);
    let environment = order.environment.into_iter().chain([id.environment()]);
    let (child, group) = launcher::prepare(order.command, order.on_lost, environment)?;
    // The group is sent first, the deadline after it: a step that is due must find its processes.
    guardian.guard(group);
    guardian.until(deadline(held).0);
    signals.listen_to_all()?;
    let mut deaths = signal(SignalKind::child())?;
    let mut terminal = Terminal::open();
    if let Some(terminal) = terminal.as_mut().filter(|terminal| terminal.is_ours() && !in_a_pipeline()) {
        terminal.hand_to(group);
    }
    let mut changes = watch(&child);
    // All this took time, and nothing of the command has run yet.
    if let Some(loss) = loss_by_now(held, order.schedule) {
        return give_up(&loss, child, group, guardian, terminal);
    }
    group.signal(Signal::SIGCONT)?;
    let mut supervisor = Supervisor {
        held,
        schedule: order.schedule,
        on_lost: order.on_lost,
        look_every: order.look_every,
        looked: boot_time(),
        stopped_max: order.stopped_max,
        stopped_since: None,
        family: Family::below_us(group, order.reach, besides, guardian.pid(), &id),
        guardian,
        terminal,
        nested: RunId::is_inside(),
        awaits: None,
        to_stop: false,
        phase: Phase::Running,
    };
    supervisor.run(&mut changes, &mut deaths, signals).await;
    supervisor.finish(child)
}

/// Returns the end of the belief by the boot clock, and the time left until then.
fn deadline(held: &impl Held) -> (Duration, Duration) {
    // The order matters: the time that passes between the two makes the deadline earlier, never later.
    let now = boot_time();
    let remaining = held.remaining();
    (now + remaining, remaining)
}

/// Returns the reason not to start a command, if there is one.
fn loss_by_now(held: &impl Held, schedule: Schedule) -> Option<Loss> {
    let is_near = schedule.step(held.remaining()) != Step::Run;
    held.lost_now().or_else(|| is_near.then(|| Loss::by_deadline(None)))
}

/// Ends the launcher's process, which has not become the command yet.
fn give_up(
    loss: &Loss,
    mut child: Child,
    group: ProcessGroup,
    guardian: Guardian,
    mut terminal: Option<Terminal>,
) -> anyhow::Result<Ended> {
    let killed = group.signal(Signal::SIGKILL);
    if let Some(terminal) = &mut terminal {
        terminal.take_from(group);
    }
    // A process that could not be killed stays stopped for ever: a wait would never end, and the guardian tries again.
    killed?;
    child.wait()?;
    guardian.done();
    say(&format!("tollgate: lock lost: {}: the command was not started", loss.why));
    Ok(Ended::Lost)
}

/// Reports the changes of the command's state. The command stays a zombie, so that its number is not reused.
fn watch(child: &Child) -> mpsc::UnboundedReceiver<Change> {
    let (changes, incoming) = mpsc::unbounded_channel();
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("it was made from an i32"));
    std::thread::spawn(move || {
        let both = WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT;
        let stopped = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
        loop {
            let change = match waitid(Id::Pid(pid), both) {
                Err(Errno::EINTR) => continue,
                // Consumes this stop, so that the next one can be seen.
                Ok(WaitStatus::Stopped(_, signal)) => {
                    let _ = waitid(Id::Pid(pid), stopped);
                    Change::Stopped(signal)
                }
                // A signal that has no name in this library is an error, and an end.
                _ => Change::Ended,
            };
            let is_over = matches!(change, Change::Ended);
            if changes.send(change).is_err() || is_over {
                return;
            }
        }
    });
    incoming
}

impl<H: Held> Supervisor<'_, H> {
    async fn run(
        &mut self,
        changes: &mut mpsc::UnboundedReceiver<Change>,
        deaths: &mut UnixSignal,
        signals: &mut Forwarding,
    ) {
        loop {
            let pause = self.look();
            tokio::select! {
                change = changes.recv() => match change {
                    Some(Change::Stopped(signal)) => self.stopped(signal),
                    Some(Change::Ended) | None => return,
                },
                signal = signals.next() => self.forward(signal),
                _ = deaths.recv() => self.bury(),
                () = self.held.until_lost(), if self.held.lost_now().is_none() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Takes the steps that are due; returns the time until the next check.
    fn look(&mut self) -> Duration {
        let (until, remaining) = deadline(self.held);
        let loss = self.held.lost_now();
        let stood_still = self.stood_still();
        let stopped_too_long = self.was_stopped_too_long();
        if loss.is_none() {
            self.guardian.until(until);
        }
        if loss.is_none() || self.phase == Phase::Notified {
            self.wake_if_terminal_is_free();
        }
        let step = self.schedule.step(remaining);
        match (&self.phase, loss) {
            (Phase::Running, Some(loss)) if self.on_lost == OnLost::Kill || loss.by_time => self.kill(loss),
            (Phase::Running, Some(loss)) => self.ask(loss),
            (Phase::Running, None) if step == Step::Kill => self.kill(Loss::by_deadline(stood_still)),
            (Phase::Running, None) if step == Step::Ask && self.on_lost != OnLost::Kill => {
                self.ask(Loss::by_deadline(stood_still));
            }
            (Phase::Running, None) if stopped_too_long => {
                let loss = Loss::by_stop(self.stopped_max);
                if self.on_lost == OnLost::Kill { self.kill(loss) } else { self.ask(loss) }
            }
            (Phase::Asked(asked, until), loss) => {
                let deadline = step == Step::Kill && loss.is_none_or(|loss| loss.by_time);
                if deadline || Instant::now() >= *until {
                    self.kill(asked.clone());
                } else {
                    // Members whose parents have ended since.
                    let sent = self.family.ask_outside(Duration::ZERO);
                    self.sent(sent);
                }
            }
            _ => {}
        }
        if self.awaits == Some(Awaited::Renewal) && self.phase == Phase::Running {
            self.resume();
        }
        let until_step = self.schedule.until_next(remaining);
        let until_kill = match &self.phase {
            Phase::Asked(_, until) => until.saturating_duration_since(Instant::now()).min(ASKED_LOOK),
            _ => Duration::MAX,
        };
        let awaits_terminal = self.awaits == Some(Awaited::Terminal);
        let until_terminal = if awaits_terminal { TERMINAL_LOOK } else { Duration::MAX };
        self.look_every.min(until_step).min(until_kill).min(until_terminal).max(Duration::from_millis(1))
    }

    /// Returns the time without checks, if that is much longer than it should have been.
    fn stood_still(&mut self) -> Option<Duration> {
        let looked = std::mem::replace(&mut self.looked, boot_time());
        Some(self.looked.saturating_sub(looked)).filter(|span| *span > self.look_every * 2 + STANDSTILL_MIN)
    }

    fn was_stopped_too_long(&mut self) -> bool {
        let Some(since) = self.stopped_since else { return false };
        if boot_time().saturating_sub(since) < self.stopped_max {
            return false;
        }
        // The command may have been continued without our knowledge.
        let stands = Process::of(self.family.group().pid()).is_some_and(Process::is_stopped);
        if !stands {
            self.stopped_since = None;
        }
        stands
    }

    fn ask(&mut self, loss: Loss) {
        if self.on_lost == OnLost::Notify {
            self.guardian.asked();
            let told = self.family.group().signal_leader(Signal::SIGUSR1);
            self.phase = Phase::Notified;
            // A stopped command does not receive the signal, and nobody else would wake it.
            self.wake();
            say(&format!("tollgate: lock lost: {}: the command was told with SIGUSR1 and runs on", loss.why));
            self.sent(told);
            return;
        }
        let grace = self.schedule.grace();
        let until = Instant::now() + grace;
        self.guardian.asked();
        let asked = self.family.ask(Duration::ZERO);
        say(&format!(
            "tollgate: lock lost: {}: ending the command (SIGTERM now, SIGKILL in {})",
            loss.why,
            crate::span::text(grace)
        ));
        self.sent(asked);
        self.phase = Phase::Asked(loss, until);
    }

    fn kill(&mut self, loss: Loss) {
        if self.on_lost == OnLost::Notify {
            return self.ask(loss);
        }
        let killed = self.family.kill();
        say(&format!("tollgate: lock lost: {}: killing the command (SIGKILL)", loss.why));
        self.sent(killed);
        self.phase = Phase::Killed;
    }

    fn sent(&self, sent: Result<(), Errno>) {
        if let Err(error) = sent {
            let group = self.family.group().pid();
            say(&format!("error: can't signal the command (process group {group}): {error}; end it by hand"));
        }
    }

    /// Reaps all processes that have ended, also those that were reparented to us. Only the command itself stays a
    /// zombie until the end.
    fn bury(&mut self) {
        let any = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        loop {
            let buried = match waitid(Id::All, any).map(|status| status.pid()) {
                Ok(Some(pid)) => self.bury_one(pid),
                Err(Errno::EINTR) => true,
                // A process that ended by a signal without a name in this library is not reported by number: it has to
                // be searched for.
                Err(Errno::EINVAL) => self.bury_all_seen(),
                Ok(None) | Err(_) => return,
            };
            if !buried {
                return;
            }
        }
    }

    /// Reaps a process unless it is the command; returns true if it was not.
    fn bury_one(&mut self, pid: Pid) -> bool {
        if pid == self.family.group().pid() {
            return false;
        }
        if !(pid == self.guardian.pid() && self.guardian.bury()) {
            // Its status is not needed, and an error only says that its signal has no name in this library.
            let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG);
        }
        true
    }

    /// Reaps all dead children but the command; returns true if there was one.
    fn bury_all_seen(&mut self) -> bool {
        let all = Process::all().unwrap_or_default().into_iter();
        let dead = all.filter(|process| process.parent == Pid::this() && process.is_dead());
        dead.filter(|process| self.bury_one(process.pid)).count() > 0
    }

    /// Forwards a signal that is meant for the command.
    fn forward(&mut self, signal: Signal) {
        match signal {
            Signal::SIGCONT => self.resume(),
            Signal::SIGUSR1 | Signal::SIGUSR2 | Signal::SIGWINCH => {
                self.sent(self.family.group().signal_leader(signal));
            }
            signal => {
                self.to_stop |= signal == Signal::SIGTSTP;
                self.sent(self.family.group().signal(signal));
            }
        }
    }

    /// Handles a stop of the command, after Ctrl-Z or for want of a terminal.
    fn stopped(&mut self, signal: Signal) {
        // The request counts for this stop only, whatever its outcome.
        let asked = std::mem::take(&mut self.to_stop);
        let Some(terminal) = &mut self.terminal else {
            self.stopped_since = Some(boot_time());
            return;
        };
        let group = self.family.group();
        self.awaits = None;
        let wants_terminal = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        if wants_terminal && (terminal.is_ours() || terminal.is_of(group)) {
            // The terminal may have come back since the command wanted it.
            terminal.hand_to(group);
            self.sent(group.signal(Signal::SIGCONT));
            return;
        }
        let is_stop = terminal.is_of(group) || asked;
        let noticed = a_shell_would_notice_a_stop();
        if !is_stop && wants_terminal && (self.nested || !noticed || terminal.was_handed()) {
            // Another command has the terminal, of a `run` beside this one or inside it: the terminal will come back to
            // one of us, and all must not be stopped by then with nobody to wake them. Or a dead process has the
            // terminal.
            self.awaits = Some(Awaited::Terminal);
            return;
        }
        // In the background the command must wait for the terminal, and can get it only together with us, by `fg`.
        if !(is_stop || wants_terminal) {
            return;
        }
        if noticed {
            terminal.take_from(group);
            // The shell sees its whole job stopped, as it would without us. Execution goes on here when the job is
            // continued.
            let _ = killpg(getpgrp(), Signal::SIGSTOP);
        }
        self.resume();
    }

    /// Gives the command the terminal that it waits for, once the terminal is back.
    fn wake_if_terminal_is_free(&mut self) {
        let awaits_terminal = self.awaits == Some(Awaited::Terminal);
        let Some(terminal) = self.terminal.as_mut().filter(|_| awaits_terminal) else { return };
        terminal.take_if_abandoned();
        if terminal.is_ours() || terminal.is_of(self.family.group()) {
            self.resume();
        }
    }

    /// Wakes the command, unless it is about to be ended: the next check does that. A command that is only told of a
    /// loss is told first, and runs on.
    fn resume(&mut self) {
        self.to_stop = false;
        let (loss, step) = (self.held.lost_now(), self.schedule.step(self.held.remaining()));
        let is_near_its_end = match self.on_lost {
            OnLost::Term => loss.is_some() || step != Step::Run,
            OnLost::Kill => loss.is_some() || step == Step::Kill,
            OnLost::Notify => false,
        };
        if is_near_its_end {
            self.awaits = Some(Awaited::Renewal);
            return;
        }
        let is_to_be_told = self.on_lost == OnLost::Notify && self.phase == Phase::Running;
        if is_to_be_told && (loss.is_some() || step != Step::Run) {
            return self.ask(loss.unwrap_or_else(|| Loss::by_deadline(None)));
        }
        self.wake();
    }

    /// Wakes the command, with the terminal if we have it.
    fn wake(&mut self) {
        (self.awaits, self.stopped_since) = (None, None);
        let group = self.family.group();
        if let Some(terminal) =
            self.terminal.as_mut().filter(|terminal| terminal.is_ours() && !in_a_pipeline())
        {
            terminal.hand_to(group);
        }
        self.sent(group.signal(Signal::SIGCONT));
    }

    /// Ends the processes that an ended command left behind, before the lock is released.
    fn finish(mut self, mut child: Child) -> anyhow::Result<Ended> {
        if !self.family.is_gone(Duration::ZERO) {
            self.end_rest();
        }
        if let Some(terminal) = &mut self.terminal {
            terminal.take_from(self.family.group());
        }
        let by_guardian = self.guardian.done();
        let status = child.wait()?;
        Ok(match self.phase {
            Phase::Running if by_guardian => {
                say(
                    "tollgate: lock lost: tollgate stood still for too long (stopped, starved, or the machine slept); \
                    the command was ended meanwhile",
                );
                Ended::Lost
            }
            Phase::Running | Phase::Notified => Ended::ByItself(status),
            Phase::Asked(..) | Phase::Killed => Ended::Lost,
        })
    }

    fn end_rest(&mut self) {
        let left = self.held.remaining().saturating_sub(self.schedule.kill_before());
        let patience = match &self.phase {
            Phase::Killed => Duration::ZERO,
            Phase::Asked(_, until) => until.saturating_duration_since(Instant::now()),
            Phase::Running | Phase::Notified => {
                let (names, left_group) = (self.family.names(), self.family.has_left_its_group());
                if names.is_empty() && self.family.is_gone(Duration::ZERO) {
                    // They have just ended by themselves.
                    return;
                }
                let hint = if left_group { "\nhint: --leave-daemons lets daemons be" } else { "" };
                let asked = self.family.ask(Duration::ZERO);
                say(&format!(
                    "tollgate: the command left processes behind; ending them, since the lock ends with the command: \
                     {names}{hint}"
                ));
                self.sent(asked);
                self.schedule.grace().min(left)
            }
        };
        let gone = !patience.is_zero() && self.family.wait_asked(patience, || false);
        if !gone && !self.family.wait_killed(KILL_PATIENCE) {
            say(&self.family.tell_of_survivors());
        }
    }
}

/// Returns the interval at which the deadline of a lease with this TTL is checked: several times between two
/// keepalives.
pub(crate) fn look_every(ttl: Duration) -> Duration {
    (ttl / 12).clamp(Duration::from_millis(10), Duration::from_secs(1))
}
