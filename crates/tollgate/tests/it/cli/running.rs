//! A running command.

use super::{Ended, signal, until, until_or};
use parking_lot::Mutex;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A process with pipes, which are read as it writes.
pub(super) struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Reading,
    stderr: Reading,
}

/// Text read from a pipe so far.
struct Reading {
    text: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Reading {
    fn of(pipe: impl Read + Send + 'static) -> Reading {
        let text = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&text);
        let reader = std::thread::spawn(move || {
            let mut pipe = BufReader::new(pipe);
            let mut line = Vec::new();
            while pipe.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                heard.lock().push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
        });
        Reading { text, reader: Some(reader) }
    }

    fn so_far(&self) -> String {
        self.text.lock().clone()
    }

    fn all(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        self.so_far()
    }
}

impl Running {
    pub(super) fn start(mut command: Command) -> Running {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = Reading::of(child.stdout.take().unwrap());
        let stderr = Reading::of(child.stderr.take().unwrap());
        Running { child, stdin, stdout, stderr }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn signal(&self, name: &str) {
        signal(name, self.pid());
    }

    /// Returns the stdout so far.
    pub(super) fn stdout(&self) -> String {
        self.stdout.so_far()
    }

    /// Returns the stderr so far.
    pub(super) fn stderr(&self) -> String {
        self.stderr.so_far()
    }

    pub(super) fn write(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(text.as_bytes()).and_then(|()| stdin.flush()).unwrap();
    }

    /// Waits for a line on stdout.
    #[track_caller]
    pub(super) fn until_says(&self, line: &str) {
        until_or(
            &format!("{line:?} is printed"),
            || self.stdout().lines().any(|said| said.trim() == line),
            || format!("stdout:\n{}\nstderr:\n{}", self.stdout(), self.stderr()),
        );
    }

    /// Waits for a line on stdout with this beginning; returns the rest of it.
    #[track_caller]
    pub(super) fn until_tells(&self, begin: &str) -> String {
        let told =
            || self.stdout().lines().find_map(|line| Some(line.trim().strip_prefix(begin)?.to_owned()));
        until(&format!("{begin:?} is told"), || told().is_some());
        told().unwrap()
    }

    /// Closes stdin, and waits for the end of the command.
    pub(super) fn end(mut self) -> Ended {
        drop(self.stdin.take());
        let code = self.child.wait().unwrap().code();
        Ended { code, stdout: self.stdout.all(), stderr: self.stderr.all() }
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // If the command is a `run`, its guardian ends the command below.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
