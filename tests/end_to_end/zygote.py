"""Starts Python's console scripts as processes of their own, without paying for their imports each time.

Nearly all that a start costs is imports. A zygote is a process that has made them once: a fresh interpreter, started
by its first user and never a fork of the tests. For each start it forks a child, which takes its own streams, folder,
environment, arguments and session, and then runs the very file of the script as `__main__`. What is under test is a
process like any other: it has a pid, takes signals, and ends as the interpreter ends it.

Owns the zygotes, their children, and when a start must be a fresh interpreter after all: when the caller asks for it
(`real=True`, or REAL_STARTS in the environment for all), when the command is not one of `PRELOADED`, or when it sets
a variable that an interpreter or a preloaded module has read before it knows its caller's environment; see
`Zygote.suits`. `service.py` is not preloaded: it reads its settings when it is imported.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from threading import Event, Lock, Thread
from typing import IO, Any, Self

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(sys.executable).parent

_CLOUD = ("google.cloud.firestore", "google.cloud.storage", "interpreters.cloud")
_CONSOLE = ("cli", "interpreters.sandbox.whole", *_CLOUD)
_SERVICE = ("functions_framework._cli", "interpreters.firestore_events", *_CLOUD)
PRELOADED = {
    str(SCRIPTS / "worker-chart-export"): _CONSOLE,
    str(SCRIPTS / "advance-flow"): _CONSOLE,
    str(SCRIPTS / "tda"): _CONSOLE,
    str(SCRIPTS / "functions-framework"): _SERVICE,
}
"""What each script's zygote imports beforehand. Not gunicorn: it takes note of the folder it is imported in."""

_MODEL = "google.genai"
_ASKING = frozenset({"reports", "worker_llm_client"})
"""Words of commands that may ask the model; a second more for a zygote that not everybody needs."""

_BASICS = frozenset({"PATH", "HOME", "TMPDIR", "LANG", "COLUMNS"})
"""Variables that a zygote shares with its children; callers with others of them have a zygote of their own."""
_READ_UNSEEN = ("PYTHON", "LC_", "TZ", "LD_", "MALLOC_", "GRPC_")
"""How the names begin of what the interpreter and libraries in C read on their own."""
_LARGEST_MESSAGE = 1 << 20
_STARTED = b"started"
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Order:
    """A start that is asked of a zygote; the streams come beside it."""

    command: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    start_new_session: bool


# What tests use.


def start(
    command: Sequence[str | Path],
    *,
    cwd: Path,
    env: Mapping[str, str],
    start_new_session: bool = False,
    real: bool = False,
) -> Process:
    """Start a command with no input and with pipes for what it says; `real` insists on a fresh interpreter."""
    order = Order([*map(str, command)], str(cwd), env, start_new_session)
    zygote = None if real else _zygote_for(order)
    if zygote is not None:
        return zygote.fork(order)
    return subprocess.Popen(
        order.command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=start_new_session,
    )


class Forked:
    """A child of a zygote, with what tests use of `subprocess.Popen`."""

    def __init__(
        self, args: Sequence[str], pid: int, zygote: socket.socket, stdout: IO[str], stderr: IO[str]
    ) -> None:
        self.args, self.pid, self.stdout, self.stderr = args, pid, stdout, stderr
        self.returncode: int | None = None
        self._zygote = zygote
        self._said: dict[IO[str], str] = {}
        self._last_words = b""
        self._ended = Event()
        Thread(target=self._await_end, daemon=True).start()

    def poll(self) -> int | None:
        """Return the exit code if there is one; only then is the pid given back, as with any child."""
        if self.returncode is None and self._ended.is_set():
            assert self._last_words, "the zygote has died"
            self.returncode = int(self._last_words)
            self._zygote.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        code = self.poll()
        assert code is not None
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read both streams to their ends, and wait for the process; say the same when asked again."""
        readers = [Thread(target=self._read, args=(one,), daemon=True) for one in (self.stdout, self.stderr)]
        ends = None if timeout is None else time.monotonic() + timeout
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(_left(ends))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(_left(ends))
        return self._said[self.stdout], self._said[self.stderr]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()
        self.stderr.close()
        self.wait()

    def _read(self, stream: IO[str]) -> None:
        if not stream.closed:
            self._said[stream] = stream.read()

    def _await_end(self) -> None:
        self._last_words = self._zygote.recv(_LARGEST_MESSAGE)
        self._ended.set()


Process = subprocess.Popen[str] | Forked


def _left(ends: float | None) -> float | None:
    return None if ends is None else max(0.0, ends - time.monotonic())


# The side of the tests.


class Zygote:
    """A process that waits with its imports made, and forks a child for each order."""

    def __init__(self, modules: Sequence[str], env: Mapping[str, str]) -> None:
        """Start it, with the kinds of streams that its children get: those decide how Python buffers."""
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), *modules],
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
            )
        hello = self._control.recv(_LARGEST_MESSAGE)
        if not hello:
            raise RuntimeError(self._process.communicate()[1].decode())
        self._env = env
        self._read = frozenset(json.loads(hello))

    def suits(self, env: Mapping[str, str]) -> bool:
        """Tell whether what was read while the modules were imported is what a child would have read."""
        unseen = (name for name in env if name.startswith(_READ_UNSEEN))
        return all(env.get(name) == self._env.get(name) for name in (*self._read, *unseen))

    def fork(self, order: Order) -> Forked:
        (stdout, child_stdout), (stderr, child_stderr) = os.pipe(), os.pipe()
        ours, childs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stdin = os.open(os.devnull, os.O_RDONLY)
        with childs:
            given = (stdin, child_stdout, child_stderr)
            socket.send_fds(self._control, [json.dumps(asdict(order)).encode()], [*given, childs.fileno()])
            for one in given:
                os.close(one)
        streams = os.fdopen(stdout, encoding="utf-8"), os.fdopen(stderr, encoding="utf-8")
        ours.settimeout(_PATIENCE_SECONDS)
        word, _, number = ours.recv(_LARGEST_MESSAGE).partition(b" ")
        ours.settimeout(None)
        assert word == _STARTED, f"not started: {word!r} {streams[1].read()}"
        return Forked(order.command, int(number), ours, *streams)

    def stop(self) -> None:
        self._control.close()
        self._process.communicate()


_zygotes: dict[object, Zygote] = {}
_one_at_a_time = Lock()


def _zygote_for(order: Order) -> Zygote | None:
    """Return the zygote that can do this; None if only a fresh interpreter can."""
    modules = PRELOADED.get(order.command[0])
    if modules and not _ASKING.isdisjoint(order.command):
        modules = (*modules, _MODEL)
    if modules is None or os.environ.get("REAL_STARTS") or not can_fork():
        return None
    basics = {name: value for name, value in order.env.items() if name in _BASICS}
    key = (modules, *sorted(basics.items()))
    with _one_at_a_time:
        if key not in _zygotes:
            _zygotes[key] = Zygote(modules, basics)
    return _zygotes[key] if _zygotes[key].suits(order.env) else None


@cache
def can_fork() -> bool:
    """Tell whether the system can wait for a process as for a file, as Linux does."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def stop_zygotes() -> None:
    while _zygotes:
        _zygotes.popitem()[1].stop()


# The side of the zygote, where this file is run as a program.


def _preload(modules: Sequence[str]) -> set[str]:
    """Import the modules; return the names of the variables that were read meanwhile."""
    names: set[str] = set()
    kind: Any = type(os.environ)
    look_up = kind.__getitem__

    def note(environ: os._Environ[str], name: str) -> str:
        names.add(name)
        return str(look_up(environ, name))

    kind.__getitem__ = note
    try:
        for module in modules:
            importlib.import_module(module)
    finally:
        kind.__getitem__ = look_up
    return names


def _await_order(control: socket.socket) -> Order | None:
    """Fork a child for each order, and return the order in that child; return None when no more can come."""
    watched = selectors.PollSelector()
    watched.register(control, selectors.EVENT_READ)
    while True:
        for key, _ in watched.select():
            if key.fileobj is control:
                message, descriptors, *_ = socket.recv_fds(control, _LARGEST_MESSAGE, 4)
                if not message:
                    return None
                *streams, owner_descriptor = descriptors
                owner = socket.socket(fileno=owner_descriptor)
                pid = os.fork()
                if not pid:
                    order = Order(**json.loads(message))
                    _close_all(watched)
                    _settle(order, streams)
                    with owner:
                        owner.send(b"%s %d" % (_STARTED, os.getpid()))
                    return order
                for one in streams:
                    os.close(one)
                watched.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, owner))
            elif isinstance(key.fileobj, int):
                # It has ended. Its pid stays its own until its owner has seen that.
                watched.unregister(key.fileobj)
                os.close(key.fileobj)
                pid, owner = key.data
                with suppress(BrokenPipeError):
                    owner.send(str(_exit_code(pid)).encode())
                watched.register(owner, selectors.EVENT_READ, (pid, owner))
            else:
                pid, owner = key.data
                watched.unregister(owner)
                owner.close()
                os.waitpid(pid, 0)


def _exit_code(pid: int) -> int:
    """Return the exit code of a process that has ended, negative for a signal, and leave it a zombie."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _close_all(watched: selectors.PollSelector) -> None:
    """Close in a child what is the zygote's."""
    for key in watched.get_map().values():
        if isinstance(key.fileobj, int):
            os.close(key.fileobj)
            key.data[1].close()
        else:
            key.fileobj.close()  # type: ignore[attr-defined]


def _settle(order: Order, streams: Sequence[int]) -> None:
    """Make this process the one that was ordered."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if order.start_new_session:
        os.setsid()
    os.chdir(order.cwd)
    os.environ.clear()
    os.environ.update(order.env)
    sys.argv = [*order.command]


def _main() -> None:
    descriptor, *modules = sys.argv[1:]
    sys.path[0] = str(ROOT)
    endings: list[int] = []

    @atexit.register
    def leave() -> None:
        """End here, as the last of all that is done at exit: what is left is to free memory, module by module."""
        with suppress(Exception):  # the interpreter tries again, and says in its own way what is wrong
            if endings:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(endings[0])

    before = dict(os.environ)
    names = _preload(modules)
    added = {name: value for name, value in os.environ.items() if name not in before}
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(descriptor)) as control:
        control.send(json.dumps(sorted(names)).encode())
        order = _await_order(control)
    if order is None:
        return
    for name, value in added.items():
        os.environ.setdefault(name, value)
    try:
        runpy.run_path(order.command[0], run_name="__main__")
    except SystemExit as ending:
        # Only the usual ending is shortened: whatever else it is, the interpreter knows what to do.
        if isinstance(ending.code, int):
            endings.append(ending.code & 0xFF)
        raise


if __name__ == "__main__":
    _main()
