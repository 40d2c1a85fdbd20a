//! Servers as child processes.
//!
//! Invariant: no process outlives this program: a dropped server is killed, and if the program is killed, the kernel
//! kills its servers at the request of `setpriv`.

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A server that can be restarted with the same arguments.
#[derive(Debug)]
pub(crate) struct Server {
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
}

impl Server {
    /// Starts the server; its output goes to a file in `dir`.
    pub(crate) fn start(
        program: impl AsRef<Path>,
        arguments: Vec<String>,
        dir: &Path,
        name: &str,
    ) -> anyhow::Result<Server> {
        let (program, log) = (program.as_ref().to_owned(), dir.join(format!("{name}.log")));
        let mut server = Server { program, arguments, log, child: None };
        server.start_again()?;
        Ok(server)
    }

    /// Restarts the server with the same arguments.
    pub(crate) fn start_again(&mut self) -> anyhow::Result<()> {
        if self.child.is_some() {
            bail!("{} runs already", self.program.display());
        }
        let log = File::options().create(true).append(true).open(&self.log)?;
        // The id of this process is the server's: setpriv executes the server in its place.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(&self.program).args(&self.arguments);
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            // Variables for other servers on this machine are not meant for these.
            if ["TOLLGATE_", "ETCD_", "ZOO", "JAVA_"].iter().any(|prefix| name.starts_with(prefix)) {
                command.env_remove(name);
            }
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("can't start {}", self.program.display()))?;
        self.child = Some(child);
        Ok(())
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Kills the server with SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // The process may be gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = self.pid().context("the server does not run")?;
        kill(Pid::from_raw(i32::try_from(pid)?), signal).context("a signal can't be sent")
    }

    /// Returns the end of the server's log, for an error.
    pub(crate) fn last_words(&self) -> String {
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns ports that are free now, all different. Another process may take one before a server does.
pub(crate) fn free_ports(count: usize) -> anyhow::Result<Vec<u16>> {
    let bound = (0..count).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<Result<Vec<_>, _>>()?;
    let ports = bound.iter().map(|listener| Ok(listener.local_addr()?.port()));
    ports.collect::<Result<_, std::io::Error>>().context("no free ports")
}
