"""Runs client.py against a cluster of three processes, through what may happen to a lock. `make test-python-client`.

TOLLGATE says which binary to run. Each step waits for what it is about; only that something is still so after some
TTLs takes these TTLs.
"""

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import grpc
from tollgate.v1 import admin_pb2, admin_pb2_grpc, lock_pb2, lock_pb2_grpc

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parent / "write-a-client.md"
TTL_MS = 3_000
# Much longer than anything here takes, so that only what never happens fails.
PATIENCE_S = 30.0


def until(holds, what):
    """Waits until `holds()` gives something, and returns it."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = holds()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {PATIENCE_S} s: {what}")


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Cluster:
    """Three nodes, each a process with a disk of its own, and two groups."""

    def __init__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="tollgate-python-")
        ports = free_ports(9)
        self.clients = [f"127.0.0.1:{port}" for port in ports[:3]]
        self.peers = [f"127.0.0.1:{port}" for port in ports[3:6]]
        self.http = [f"127.0.0.1:{port}" for port in ports[6:]]
        self.processes = [None, None, None]
        self.channels = [grpc.insecure_channel(client) for client in self.clients]
        for node in range(3):
            self.start(node)
        until(lambda: all(self.leader(group) is not None for group in (0, 1)), "both groups are led")

    def start(self, node):
        members = ", ".join(
            f'{{ id = {id}, peer = "{peer}", client = "{client}" }}'
            for id, (peer, client) in enumerate(zip(self.peers, self.clients), 1)
        )
        log = open(f"{self.directory.name}/node-{node + 1}.log", "ab")
        command = [
            os.environ["TOLLGATE"], "server", "--bootstrap",
            "--node-id", str(node + 1), "--node-data-dir", f"{self.directory.name}/node-{node + 1}",
            "--cluster-name", "python", "--cluster-members", f"[{members}]", "--cluster-groups", "2",
            "--listen-client", self.clients[node], "--listen-peer", self.peers[node], "--listen-http", self.http[node],
        ]  # fmt: skip
        with log:
            self.processes[node] = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def ask(self, stub, rpc, request):
        """The first answer that any living node gives."""
        for node, channel in enumerate(self.channels):
            if self.processes[node] is not None:
                with contextlib.suppress(grpc.RpcError):
                    return getattr(stub(channel), rpc)(request, timeout=5)
        return None

    def locks(self, rpc, request):
        return until(lambda: self.ask(lock_pb2_grpc.LockServiceStub, rpc, request), rpc)

    def leader(self, group):
        """The process that leads the group, by its index."""
        groups = self.ask(admin_pb2_grpc.AdminServiceStub, "Groups", admin_pb2.GroupsRequest())
        if groups is None:
            return None
        led = {one.group_id: one.leader_id for one in groups.groups}
        return led[group] - 1 if led.get(group) else None

    def holders(self, name):
        return self.locks("GetLock", lock_pb2.GetLockRequest(name=name)).lock.holders

    def waiters(self, name):
        return self.locks("GetLock", lock_pb2.GetLockRequest(name=name)).lock.waiters

    def group_of(self, name):
        return self.locks("Explain", lock_pb2.ExplainRequest(name=name)).group_id

    def signal(self, node, number):
        self.processes[node].send_signal(number)
        if number == signal.SIGKILL:
            self.processes[node].wait()
            self.processes[node] = None

    def stop(self):
        for channel in self.channels:
            channel.close()
        for process in self.processes:
            if process is not None:
                process.kill()
                process.wait()
        self.directory.cleanup()


class Program:
    """client.py as a process, and what it has said."""

    def __init__(self, cluster, name, *options):
        command = [
            sys.executable, str(HERE / "client.py"), name, "--endpoints", ",".join(cluster.clients),
            "--ttl-ms", str(TTL_MS), "--step-ms", "50", *options,
        ]  # fmt: skip
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, bufsize=1
        )
        self.said = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.said.append((time.monotonic(), line.strip()))

    def line(self, pattern):
        """The first line that matches, and when it was said."""
        for at, line in list(self.said):
            if match := re.match(pattern, line):
                return at, match
        return None

    def says(self, pattern):
        return until(lambda: self.line(pattern), f"{pattern!r}, but {[line for _, line in self.said][-5:]}")[1]

    def steps(self):
        return [line for _, line in list(self.said) if line.startswith("step")]

    def goes_on(self):
        """Waits until it has done something that it had not done before."""
        before = len(self.steps())
        until(lambda: len(self.steps()) >= before + 3, "the program goes on")

    def token(self):
        return int(self.says(r"held \S+ token (\d+)").group(1))

    def ends(self):
        code = self.process.wait(PATIENCE_S)
        self.reader.join(PATIENCE_S)
        return code

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()


class ClientTest(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster()
        self.addCleanup(self.cluster.stop)

    def program(self, name, *options):
        program = Program(self.cluster, name, *options)
        self.addCleanup(program.stop)
        return program

    def names(self):
        """A name in each group."""
        found = {}
        for number in range(64):
            found.setdefault(self.cluster.group_of(f"jobs/{number}"), f"jobs/{number}")
        self.assertEqual(sorted(found), [0, 1])
        return found.values()

    def test_a_signal_gives_the_lock_back(self):
        holder = self.program("jobs")
        holder.says("step 3 token")
        holder.process.send_signal(signal.SIGTERM)
        self.assertEqual(holder.ends(), 0)
        self.assertEqual(holder.said[-1][1], "released")
        self.assertFalse(self.cluster.holders("jobs"))

    def test_a_forced_release_is_noticed_whichever_group_has_the_lock(self):
        for name in self.names():
            holder = self.program(name)
            token = holder.token()
            holder.goes_on()
            forced_at = time.monotonic()
            self.cluster.locks(
                "ForceRelease", lock_pb2.ForceReleaseRequest(name=name, fencing_token=token, reason="stuck")
            )
            self.assertEqual(holder.ends(), 79)
            lost_at, _ = holder.line("lost FORCED: stuck$")
            # By the watch, long before a keepalive or the deadline could tell.
            self.assertLess(lost_at - forced_at, TTL_MS / 3_000)
            next_holder = self.program(name)
            self.assertGreater(next_holder.token(), token)

    def test_a_revoked_lease_is_noticed(self):
        holder = self.program("jobs")
        lease = int(holder.says(r"lease (\d+)").group(1))
        holder.goes_on()
        self.cluster.locks("LeaseRevoke", lock_pb2.LeaseRevokeRequest(id=lease))
        self.assertEqual(holder.ends(), 79)
        holder.says("lost LEASE_")

    def test_a_program_that_was_paused_past_its_lease_stops_when_it_wakes(self):
        holder = self.program("jobs")
        token = holder.token()
        holder.goes_on()
        waiter = self.program("jobs")
        until(lambda: self.cluster.waiters("jobs"), "the second program waits in line")
        holder.process.send_signal(signal.SIGSTOP)
        self.assertGreater(waiter.token(), token)
        steps = len(holder.steps())
        holder.process.send_signal(signal.SIGCONT)
        self.assertEqual(holder.ends(), 79)
        holder.says("lost ")
        # A step that had its token before the pause may end after it. This is what the store's fence is for.
        self.assertLessEqual(len(holder.steps()), steps + 1)

    def test_a_killed_leader_costs_neither_the_lock_nor_the_place_in_line(self):
        for name in self.names():
            with self.subTest(name=name):
                holder = self.program(name)
                token = holder.token()
                waiter = self.program(name, "--wait-ms", "120000")
                until(lambda: self.cluster.waiters(name), "the second program waits in line")
                leader = self.cluster.leader(self.cluster.group_of(name))
                self.cluster.signal(leader, signal.SIGKILL)
                killed_at = time.monotonic()
                until(lambda: time.monotonic() - killed_at > 2 * TTL_MS / 1_000, "two TTLs")
                holder.goes_on()
                self.assertEqual([one.fencing_token for one in self.cluster.holders(name)], [token])
                self.assertEqual(len(self.cluster.waiters(name)), 1)
                holder.process.send_signal(signal.SIGTERM)
                self.assertEqual(holder.ends(), 0)
                self.assertGreater(waiter.token(), token)
                waiter.goes_on()
                waiter.process.send_signal(signal.SIGTERM)
                self.assertEqual(waiter.ends(), 0)
                self.assertFalse(self.cluster.holders(name))
                self.cluster.start(leader)

    def test_a_forced_release_while_the_leader_is_killed_is_noticed(self):
        for name in self.names():
            with self.subTest(name=name):
                holder = self.program(name)
                token = holder.token()
                holder.goes_on()
                leader = self.cluster.leader(self.cluster.group_of(name))
                self.cluster.signal(leader, signal.SIGKILL)
                self.cluster.locks(
                    "ForceRelease", lock_pb2.ForceReleaseRequest(name=name, fencing_token=token, reason="stuck")
                )
                self.assertEqual(holder.ends(), 79)
                self.assertIsNotNone(holder.line("lost FORCED: stuck$"))
                self.cluster.start(leader)

    def test_a_leader_that_stands_still_costs_neither_the_lock_nor_the_place_in_line(self):
        holder = self.program("jobs")
        token = holder.token()
        # Each asks a node that it draws, so some of them stand in line by way of the leader.
        waiters = [self.program("jobs", "--wait-ms", "120000") for _ in range(4)]
        until(lambda: len(self.cluster.waiters("jobs")) == len(waiters), "all wait in line")
        line = [one.create_revision for one in self.cluster.waiters("jobs")]
        leader = self.cluster.leader(self.cluster.group_of("jobs"))
        self.cluster.signal(leader, signal.SIGSTOP)
        stopped_at = time.monotonic()
        until(lambda: time.monotonic() - stopped_at > 4 * TTL_MS / 1_000, "four TTLs")
        holder.goes_on()
        self.assertEqual([one.fencing_token for one in self.cluster.holders("jobs")], [token])
        self.assertEqual([one.create_revision for one in self.cluster.waiters("jobs")], line)
        holder.process.send_signal(signal.SIGTERM)
        self.assertEqual(holder.ends(), 0)
        next_holder = until(lambda: next((one for one in waiters if one.line("held")), None), "the next in line has it")
        self.assertGreater(next_holder.token(), token)
        self.cluster.signal(leader, signal.SIGCONT)

    def test_a_cluster_that_is_silent_ends_the_work_before_the_lease(self):
        holder = self.program("jobs")
        holder.goes_on()
        for node in range(3):
            self.cluster.signal(node, signal.SIGSTOP)
        silent_at = time.monotonic()
        self.assertEqual(holder.ends(), 79)
        lost_at, _ = holder.line("lost UNREACHABLE")
        self.assertLess(lost_at - silent_at, TTL_MS / 1_000)
        for node in range(3):
            self.cluster.signal(node, signal.SIGCONT)


class PageTest(unittest.TestCase):
    def test_the_page_shows_the_program_as_it_is(self):
        program = (HERE / "client.py").read_text()
        blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
        self.assertTrue(blocks)
        for block in blocks:
            self.assertIn(block, program)


if __name__ == "__main__":
    unittest.main(verbosity=2)
