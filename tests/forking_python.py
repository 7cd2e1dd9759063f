"""An interpreter for Ray's processes that forks them from a server which has imported what they import.

Ray starts two fresh interpreters for each worker, one after the other, and two agents for each node. A trial on several
devices starts one for each further rank. Those of a worker import for three seconds of a processor. Under `forked_by`,
this file runs in their place. It asks the server for a child that runs the same program with the same arguments,
environment, folder and standard files, and waits for its end. All other programs run in a usual interpreter. The server
does not import Ray, which reads the id of a worker's job from the environment when it is loaded, but what Ray imports.

A worker that is killed dies as usual, and so does one whose raylet is killed, because it loses its connection. What
this cannot show is a module that a worker needs and does not import: `test_ray_partition.py` has usual workers.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SETUP = "ray/_private/workers/setup_worker.py"
"""What Ray starts a worker with; it applies the runtime environment of a job and starts the worker."""
_RANKS = "ablate.execution.ranks"
_PROGRAMS = (_RANKS, _SETUP, "ray/dashboard/agent.py", "ray/_private/runtime_env/agent/main.py")
"""What is forked: the last two are processes of each node."""
_IMPORTED = (
    *("torch.distributed.fsdp", "pandas", "pyarrow.fs", "pyarrow.dataset", "pyarrow.json", "requests", "jsonschema"),
    *("rich.live", "rich.layout", "fsspec", "yaml", "google.protobuf.json_format", "pdb", "filelock", "msgpack"),
    *("pydantic.v1", "starlette.concurrency", "tqdm.auto", "ablate.execution.job_runner", _RANKS, "torch._dynamo"),
)
_NO_THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}


@contextmanager
def forked_by() -> Iterator[Path]:
    """The path of the interpreter, which works inside the context."""
    with tempfile.TemporaryDirectory() as folder:
        address, interpreter = Path(folder) / "socket", Path(folder) / "python"
        fixed = [sys.executable, "-ISE", __file__, "run", str(address), sys.executable]
        interpreter.write_text(f'#!/bin/sh\nexec {shlex.join(fixed)} "$@"\n')
        interpreter.chmod(0o755)
        command = [sys.executable, __file__, "serve", str(address), str(interpreter)]
        environment = {**os.environ, **_NO_THREADS}
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n", "the server has ended"
            yield interpreter
            server.stdin.close()


def run(address: str, usual: str, arguments: list[str]) -> None:
    """Run one of `_PROGRAMS` by the server, any other program by the usual Python."""
    programs = [index for index, each in enumerate(arguments) if each.endswith(_PROGRAMS)]
    if not programs:
        os.execv(usual, [usual, *arguments])
    request = json.dumps([arguments[programs[0] :], dict(os.environ), os.getcwd()]).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        socket.send_fds(server, [len(request).to_bytes(4, "little")], [0, 1, 2])
        server.sendall(request)
        code = server.recv(1)
    os._exit(code[0] if code else 1)


def serve(address: str, interpreter: str) -> None:
    """Fork a child for each connection until standard input closes. A child whose connection closes is killed."""
    import importlib
    import selectors

    for module in _IMPORTED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # a collection in a child would visit all that was imported
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads cannot be forked safely"
    sys.executable = interpreter  # what children start ranks with
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    print("ready", flush=True)
    events = selectors.DefaultSelector()
    events.register(sys.stdin, selectors.EVENT_READ)
    events.register(listening, selectors.EVENT_READ)
    children: dict[int, tuple[int, socket.socket]] = {}  # by a descriptor of the process; its id, and its connection
    while True:
        for key, _ in events.select():
            if key.fileobj is sys.stdin:
                for child, _ in children.values():
                    os.kill(child, signal.SIGKILL)
                return
            if key.fileobj is listening:
                connection, _ = listening.accept()
                child = _fork(connection, [listening, *(each for _, each in children.values())])
                if child is None:
                    connection.close()
                    continue
                handle = os.pidfd_open(child)
                children[handle] = child, connection
                events.register(handle, selectors.EVENT_READ)
                events.register(connection, selectors.EVENT_READ, handle)
            elif key.data in children:  # the process that waits for this child has been killed
                events.unregister(key.fileobj)
                os.kill(children[key.data][0], signal.SIGKILL)
            elif key.fd in children:
                child, connection = children.pop(key.fd)
                code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                events.unregister(key.fd)
                os.close(key.fd)
                if connection in events.get_map():
                    events.unregister(connection)
                    with suppress(BrokenPipeError):  # nobody waits any more
                        connection.sendall(bytes([code if code >= 0 else 128 - code]))
                connection.close()


def _fork(connection: socket.socket, others: list[socket.socket]) -> int | None:
    """The id of a child that runs what a connection asks for; None if the connection closed before."""
    size, files, *_ = socket.recv_fds(connection, 4, 3)
    request = b""
    while len(request) < int.from_bytes(size, "little") and (part := connection.recv(1 << 20)):
        request += part
    child = None
    if size and len(request) == int.from_bytes(size, "little"):
        child = os.fork()
    if child == 0:
        from benchmarks.forked_process import exit_as_program

        for each in [connection, *others]:
            each.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
        exit_as_program(lambda: _become(*json.loads(request)))
    for file in files:
        os.close(file)
    return child


def _become(arguments: list[str], environment: dict[str, str], folder: str) -> None:
    import runpy

    os.closerange(3, 64)  # the server's
    os.setpgid(0, 0)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [path for path in environment.get("PYTHONPATH", "").split(":") if path]
    if arguments[0] == _RANKS:
        sys.argv = arguments
        sys.modules.pop(_RANKS)
        runpy.run_module(_RANKS, run_name="__main__", alter_sys=True)
    else:
        program = _setup_of_a_worker(arguments) if arguments[0].endswith(_SETUP) else arguments
        sys.argv = program
        sys.path.insert(0, os.path.dirname(program[0]))
        runpy.run_path(program[0], run_name="__main__")


def _setup_of_a_worker(arguments: list[str]) -> list[str]:
    """Apply the runtime environment in these arguments; the rest is the worker's program and its arguments."""
    from ray._private.runtime_env.context import RuntimeEnvContext
    from ray._private.utils import update_envs

    setup = argparse.ArgumentParser()
    setup.add_argument("--serialized-runtime-env-context", type=RuntimeEnvContext.deserialize)
    setup.add_argument("--language")
    asked, program = setup.parse_known_args(arguments[1:])
    update_envs(asked.serialized_runtime_env_context.env_vars)
    return program


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(*sys.argv[2:])
    else:
        run(*sys.argv[2:4], sys.argv[4:])
