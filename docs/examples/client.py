#!/usr/bin/env python3
"""Holds a Tollgate lock from Python, over gRPC, with nothing but the .proto files.

It takes a lock, keeps its lease alive, and does a step of work every so often until a signal comes, which gives the
lock back. It stops when the lock is lost, whatever the cause. docs/write-a-client.md explains each part.

    make python-client        # grpcio and the stubs, into target/python-client
    PYTHONPATH=target/python-client/stubs target/python-client/venv/bin/python docs/examples/client.py jobs/nightly

Exit codes: 0 released, 1 failed, 75 not acquired in time, 79 lock lost, 130 stopped while it waited.
"""

import argparse
import asyncio
import contextlib
import os
import random
import signal
import socket
import sys
import time

import grpc
from google.rpc import status_pb2
from tollgate.v1 import common_pb2, lock_pb2, lock_pb2_grpc

# Clock rates are trusted within 1%: of two clocks, one may be 1% slow and the other 1% fast.
RHO = 0.01
# The cluster counts whole milliseconds.
GRAIN_S = 0.001
# A call is given this much more than the time that it may wait in line: an election takes up to 2 s, and a node tries
# for 10 s to find a leader.
MARGIN_S = 15.0
# A pause of the machine is noticed this soon after it: timers of the event loop stand still meanwhile.
LOOK_S = 0.05

# The request did nothing, or is known by its seq: the same again, to the next node.
TRY_AGAIN = {
    common_pb2.ERROR_REASON_NOT_LEADER,
    common_pb2.ERROR_REASON_NO_LEADER,
    common_pb2.ERROR_REASON_SHUTTING_DOWN,
    common_pb2.ERROR_REASON_WRONG_GROUP,
    common_pb2.ERROR_REASON_STUB_PENDING,
    common_pb2.ERROR_REASON_NO_SUCH_GROUP,
    common_pb2.ERROR_REASON_OVERLOADED,
    common_pb2.ERROR_REASON_DISK_FULL,
    common_pb2.ERROR_REASON_INDETERMINATE,
    common_pb2.ERROR_REASON_TIMED_OUT,
    common_pb2.ERROR_REASON_CANCELLED,
}


def now():
    """Seconds on a clock that never jumps and goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Failed(Exception):
    """The cluster refused a request, or could not be reached."""

    def __init__(self, message, reason=common_pb2.ERROR_REASON_UNSPECIFIED, may_have_happened=True):
        super().__init__(message)
        self.reason = reason
        self.may_have_happened = may_have_happened


class Lost(Exception):
    """The lock is no longer held, or may no longer be. Stop what it protected."""


class NotAcquired(Exception):
    """Somebody else has the lock."""


def error_of(failure):
    """The tollgate.v1.Error of a failed call; None if the status is not the server's own words."""
    for key, value in failure.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                error = common_pb2.Error()
                if detail.Unpack(error):
                    return error
    return None


class Cluster:
    """Connections to all nodes, and the way from one to the next."""

    OPTIONS = [
        # Notices a node that was cut off or stands still, while a call waits there in line.
        ("grpc.keepalive_time_ms", 3_000),
        ("grpc.keepalive_timeout_ms", 2_000),
        # In this library the one above counts for nothing without it: it would be a minute.
        ("grpc.http2.ping_timeout_ms", 2_000),
        # To connect may take so long, instead of 20 s, and is tried again so soon, instead of after up to 2 min.
        ("grpc.min_reconnect_backoff_ms", 1_000),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        ("grpc.http2.max_pings_without_data", 0),
    ]

    def __init__(self, endpoints):
        self.channels = [grpc.aio.insecure_channel(endpoint, options=self.OPTIONS) for endpoint in endpoints]
        self.stubs = [lock_pb2_grpc.LockServiceStub(channel) for channel in self.channels]
        self.at = random.randrange(len(self.stubs))

    def stub(self):
        return self.stubs[self.at]

    def next(self):
        self.at = (self.at + 1) % len(self.stubs)

    async def call(self, rpc, request, patience_s=MARGIN_S):
        """One unary call, at one node after the other, until there is a final answer or `patience_s` is over.

        A request that changes something has a seq, so sending it again is harmless.
        """
        until, pause_s, unsure = now() + patience_s, 0.02, False
        while True:
            try:
                return await getattr(self.stub(), rpc)(request, timeout=max(until - now(), 0.001))
            except grpc.aio.AioRpcError as failure:
                error = error_of(failure)
                # Without the server's own words nobody knows, whatever the code: the connection may have broken
                # before the request was sent, or behind it.
                unsure |= error is None or error.may_have_happened
                if error is not None and error.reason not in TRY_AGAIN:
                    raise Failed(error.message, error.reason, unsure) from failure
                wait_s = max(pause_s * random.uniform(0.5, 1.5), error.retry_after_ms / 1_000 if error else 0)
                if now() + wait_s >= until:
                    reason = error.reason if error else common_pb2.ERROR_REASON_UNSPECIFIED
                    raise Failed(failure.details(), reason, unsure) from failure
            self.next()
            await asyncio.sleep(wait_s)
            pause_s = min(pause_s * 2, 1.0)
            if request.DESCRIPTOR.fields_by_name.get("request") and request.HasField("request"):
                request.request.attempt += 1

    async def close(self):
        await asyncio.gather(*(channel.close() for channel in self.channels))


class Seqs:
    """Numbers for the requests of one lease, and which of them were answered, as sorted ranges."""

    def __init__(self):
        self.last = 0
        self.answered = []

    def request(self):
        self.last += 1
        acked = [common_pb2.SeqRange(first=first, last=last) for first, last in self.answered[:64]]
        return common_pb2.Request(seq=self.last, acked=acked)

    def done(self, seq):
        """The final answer to this request is here: the cluster may forget it."""
        ranges = []
        for first, last in sorted([*self.answered, (seq, seq)]):
            if ranges and first <= ranges[-1][1] + 1:
                ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
            else:
                ranges.append((first, last))
        self.answered = ranges


class Session:
    """A lease that is kept alive, and until when this program believes in it."""

    def __init__(self, cluster, ttl_ms, client_id):
        self.cluster = cluster
        self.ttl_ms = ttl_ms
        self.client_id = client_id
        self.seqs = Seqs()
        self.lost = asyncio.get_running_loop().create_future()
        self.tasks = []
        self.watched = asyncio.Event()
        # How often the watch has missed something, because the history was gone when it went on.
        self.gaps = 0
        # What is held, by name and create_revision.
        self.held = {}
        # Locks that are asked for, and grants that have ended before their answers were here.
        self.locking = 0
        self.ended = {}

    async def open(self):
        # The cluster chooses the id. A repeat whose first answer was lost makes a second lease; the first one expires.
        grant = lock_pb2.LeaseGrantRequest(ttl_ms=self.ttl_ms, client_id=self.client_id)
        while True:
            sent = now()
            granted = await self.cluster.call("LeaseGrant", grant, patience_s=MARGIN_S)
            self.lease_id, self.ttl_ms = granted.id, granted.ttl_ms
            self.believed_until = sent + self.believable_s(granted.ttl_ms)
            if now() < self.believed_until:
                break
        works = [self.keep_alive(sent), self.disbelieve(), self.watch()]
        self.tasks = [asyncio.create_task(work) for work in works]
        # Whatever is granted from here on, its end will be told.
        try:
            await asyncio.wait_for(self.watched.wait(), MARGIN_S)
        except (TimeoutError, asyncio.TimeoutError):
            raise Failed("no node has begun the watch of the lease in time") from None
        self.check()
        return self

    @staticmethod
    def believable_s(ttl_ms):
        return (ttl_ms / 1_000 - GRAIN_S) * (1 - 2 * RHO)

    def check(self):
        """Looks at the clock, each time: a pause of this program ends no sooner than its next line of code."""
        if not self.lost.done() and now() >= self.believed_until:
            self.lose("UNREACHABLE: no keepalive was acknowledged in time")
        if self.lost.done():
            raise Lost(self.lost.result())

    def lose(self, why):
        if not self.lost.done():
            self.lost.set_result(why)

    async def disbelieve(self):
        while now() < self.believed_until:
            await asyncio.sleep(min(self.believed_until - now(), LOOK_S))
        self.lose("UNREACHABLE: no keepalive was acknowledged in time")

    async def keep_alive(self, sent):
        """A keepalive every third of the TTL; one that is not answered soon goes to the next node as well."""
        patience_s = min(max(self.ttl_ms / 10_000, 0.02), 0.5)
        stream, seq, at = None, 0, self.cluster.at
        while not self.lost.done():
            await asyncio.sleep(max(sent + self.ttl_ms / 3_000 - now(), 0))
            answer = None
            while answer is None and not self.lost.done():
                if now() >= self.believed_until:
                    return
                seq += 1
                sent = now()
                try:
                    stream = stream or self.cluster.stubs[at].LeaseKeepAlive()
                    answer = await asyncio.wait_for(self.ask_to_live(stream, seq), patience_s)
                except (grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError, asyncio.TimeoutError):
                    stream.cancel()
                    stream, at = None, (at + 1) % len(self.cluster.stubs)
                    await asyncio.sleep(0.02)
            if answer is not None and answer.ttl_ms == 0:
                self.lose("LEASE_ENDED: the cluster has no such lease any more")
            elif answer is not None and now() < self.believed_until:
                # Counted from the sending. An answer that comes too late moves nothing.
                self.believed_until = max(self.believed_until, sent + self.believable_s(answer.ttl_ms))

    async def watch(self):
        """Follows all grants of the lease, in every group: a grant can end although its lease lives."""
        at, cursor, missed = self.cluster.at, "", False
        filters = [lock_pb2.WATCH_FILTER_NO_PUT, lock_pb2.WATCH_FILTER_NO_WAITERS]
        while not self.lost.done():
            stream = self.cluster.stubs[at].Watch()
            try:
                await stream.write(
                    lock_pb2.WatchRequest(lease_id=self.lease_id, cursor=cursor, filters=filters, watch_id=1)
                )
                while (answer := await stream.read()) is not grpc.aio.EOF:
                    for event in answer.events:
                        self.judge(event)
                    cursor = answer.cursor or cursor
                    if answer.created and missed:
                        # From here on all is told again. What was missed is looked for.
                        self.gaps += 1
                        for held in list(self.held.values()):
                            await held.look()
                        missed = False
                    if answer.created:
                        self.watched.set()
                    if answer.compact_revision:
                        cursor, missed = "", True
                    if answer.canceled:
                        break
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError, Failed):
                # It goes on where it stopped, at another node.
                pass
            stream.cancel()
            at = (at + 1) % len(self.cluster.stubs)
            await asyncio.sleep(0.1)

    def judge(self, event):
        claim = event.kv.claim
        # A node of an older version knows no watches of leases, and tells of everything.
        if claim.lease_id != self.lease_id or event.type != lock_pb2.EVENT_TYPE_DELETE:
            return
        reason = common_pb2.EndReason.Name(event.end_reason).removeprefix("END_REASON_")
        why, grant = f"{reason}: {event.note}" if event.note else reason, (claim.name, claim.create_revision)
        if grant in self.held:
            self.held[grant].lose(why)
        elif self.locking:
            self.ended[grant] = why

    async def ask_to_live(self, stream, seq):
        await stream.write(lock_pb2.LeaseKeepAliveRequest(id=self.lease_id, seq=seq))
        while True:
            answer = await stream.read()
            if answer is grpc.aio.EOF:
                raise asyncio.InvalidStateError("the stream has ended")
            if answer.seq == seq:
                return answer

    async def call(self, rpc, request, patience_s=MARGIN_S):
        """A call under the lease, with a seq. It ends when the lease is lost."""
        self.check()
        request.request.CopyFrom(self.seqs.request())
        seq = request.request.seq
        called = asyncio.create_task(self.cluster.call(rpc, request, patience_s))
        try:
            await asyncio.wait({called, self.lost}, return_when=asyncio.FIRST_COMPLETED)
            self.check()
            answer = called.result()
        except Failed as failed:
            if not failed.may_have_happened:
                self.seqs.done(seq)
            raise
        finally:
            called.cancel()
        self.seqs.done(seq)
        return answer

    async def lock(self, name, wait_ms, why=""):
        """Takes a lock, waiting in line for it. Awaiting this can be cancelled at any time: nothing is left behind."""
        request = lock_pb2.LockRequest(name=name, lease_id=self.lease_id, timeout_ms=wait_ms, metadata=why)
        self.locking += 1
        try:
            gaps, answer = self.gaps, await self.call("Lock", request, wait_ms / 1_000 + MARGIN_S)
            if answer.acquired:
                held = self.held.get((name, answer.create_revision)) or Held(self, name, answer)
                if self.gaps != gaps:
                    await held.look()
                return held
        except asyncio.CancelledError:
            await self.give_up(request)
            raise
        except Failed as failed:
            if failed.may_have_happened:
                await self.give_up(request)
            raise
        finally:
            self.locking -= 1
            if self.locking == 0:
                self.ended.clear()
        held_by = ", ".join(f"{holder.client_id} (token {holder.fencing_token})" for holder in answer.holders)
        raise NotAcquired(f"{name} is held by {held_by or 'nobody, but closed'}")

    async def give_up(self, request):
        """A request whose answer is not known is forbidden, or undone."""
        cancel = lock_pb2.CancelWaitRequest(
            lease_id=self.lease_id, seq=request.request.seq, name=request.name, release_if_granted=True
        )
        with contextlib.suppress(Failed, Lost):
            self.check()
            await self.cluster.call("CancelWait", cancel, patience_s=2.0)
            self.seqs.done(request.request.seq)

    async def close(self):
        """Ends the lease, so that nobody has to wait for it. A lease that is lost is never renewed, only revoked."""
        for task in self.tasks:
            task.cancel()
        self.lose("CLOSED: by this program")
        with contextlib.suppress(Failed):
            await self.cluster.call("LeaseRevoke", lock_pb2.LeaseRevokeRequest(id=self.lease_id), patience_s=2.0)


class Held:
    """A lock that is held, until it is released or lost."""

    def __init__(self, session, name, answer):
        self.session = session
        self.name = name
        self.fencing_token = answer.fencing_token
        self.grant = (name, answer.create_revision)
        self.lost = asyncio.get_running_loop().create_future()
        session.lost.add_done_callback(lambda lost: self.lose(lost.result()))
        session.held[self.grant] = self
        # The news may have been faster than the answer.
        if self.grant in session.ended:
            self.lose(session.ended[self.grant])

    def lose(self, why):
        if not self.lost.done():
            self.lost.set_result(why)

    def token(self):
        """The token to send along with every write. Ask each time: it raises Lost once the lock may be another's."""
        self.session.check()
        if self.lost.done():
            raise Lost(self.lost.result())
        return self.fencing_token

    async def look(self):
        """Part of the history is gone: whether the grant stands is read."""
        seen = await self.session.cluster.call("GetLock", lock_pb2.GetLockRequest(name=self.name))
        mine = (holder.fencing_token == self.fencing_token for holder in seen.lock.holders)
        if not any(mine) and seen.lock.holder_count == len(seen.lock.holders):
            self.lose("GONE: the history that says why is gone as well")

    async def release(self):
        self.session.held.pop(self.grant, None)
        unlock = lock_pb2.UnlockRequest(
            name=self.name, lease_id=self.session.lease_id, fencing_token=self.fencing_token
        )
        await self.session.call("Unlock", unlock)


async def work(held, step_s):
    """Stands for what the lock protects: each step writes to a store that compares tokens."""
    step = 0
    while True:
        step += 1
        print(f"step {step} token {held.token()}", flush=True)
        await asyncio.sleep(step_s)


async def hold(options):
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    cluster = Cluster(options.endpoints.split(","))
    session = Session(cluster, options.ttl_ms, options.client_id)
    try:
        await session.open()
        print(f"lease {session.lease_id}", flush=True)
        stopping = asyncio.create_task(stopped.wait())
        waiting = asyncio.create_task(session.lock(options.name, options.wait_ms, why=options.why))
        await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            await asyncio.wait({waiting})
            return 130
        held = waiting.result()
        print(f"held {held.name} token {held.fencing_token}", flush=True)
        working = asyncio.create_task(work(held, options.step_ms / 1_000))
        await asyncio.wait({working, stopping, held.lost}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        working.cancel()
        held.token()
        await held.release()
        print("released", flush=True)
        return 0
    except NotAcquired as busy:
        print(busy, file=sys.stderr)
        return 75
    except Lost as lost:
        print(f"lost {lost}", flush=True)
        return 79
    except Failed as failed:
        print(f"failed: {failed}", file=sys.stderr)
        return 1
    finally:
        await session.close()
        await cluster.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="the lock")
    parser.add_argument("--endpoints", default="127.0.0.1:7400", help="nodes, some or all: HOST:PORT,...")
    parser.add_argument("--ttl-ms", type=int, default=10_000, help="time to live of the lease")
    parser.add_argument("--wait-ms", type=int, default=60_000, help="how long to wait in line")
    parser.add_argument("--step-ms", type=int, default=500, help="how long a step of work takes")
    parser.add_argument("--why", default="", help="why the lock is held, for people who look at it")
    called = f"{socket.gethostname()}:{os.getpid()}"
    parser.add_argument("--client-id", default=called, help="what this client is called")
    sys.exit(asyncio.run(hold(parser.parse_args())))


if __name__ == "__main__":
    main()
