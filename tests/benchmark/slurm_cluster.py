"""A Slurm cluster of one node on this machine, with its own keys, ports and folders; Debian's `slurm-wlm` is enough."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_CONFIG = """ClusterName=polymodal
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1
JobAcctGatherType=jobacct_gather/none
KillWait=5
MinJobAge=600
JobRequeue=1
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "scontrol")
_START = 60.0  # seconds for the node to be idle


class NoSlurm(RuntimeError):
    """There is no Slurm here, or it does not start; the message says why."""


class Cluster:
    """A cluster that is up."""

    def __init__(self, folder: Path) -> None:
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def call(self, *command: str, cwd: Path | None = None) -> str:
        """What a program of Slurm's says."""
        done = subprocess.run(
            command, env=self.environment, cwd=cwd, capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def submit(self, script: Path, *options: str) -> str:
        """Submit a batch script; the number of its job."""
        return self.call("sbatch", "--parsable", *options, script.name, cwd=script.parent)

    def task(self, job: str, number: int) -> dict[str, str]:
        """What the controller knows of one task of an array."""
        words = self.call("scontrol", "show", "job", f"{job}_{number}", "--oneliner").split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def ended(self, job: str, number: int, seconds: float = 600) -> tuple[str, str]:
        """State and exit code of a task, once it has ended."""
        deadline = time.monotonic() + seconds
        while (facts := self.task(job, number))["JobState"] in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING"):
            if time.monotonic() > deadline:
                raise RuntimeError(f"task {number} is still {facts['JobState']} ({facts.get('Reason')})")
            time.sleep(0.5)
        return facts["JobState"], facts["ExitCode"]


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Start a cluster in a folder, and end it.

    Raises:
        NoSlurm: If it cannot be started, with the reason.
    """
    os.environ["PATH"] += os.pathsep + "/usr/sbin"
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        raise NoSlurm(f"Slurm is not installed: no {', '.join(missing)} (Debian: slurm-wlm)")
    if os.geteuid() != 0:
        raise NoSlurm("Slurm is started by root only, whose jobs are anybody's")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "key").write_bytes(os.urandom(256))
    (folder / "key").chmod(0o400)
    folder.chmod(0o755)
    config = _CONFIG.format(host=socket.gethostname().partition(".")[0], folder=folder, ports=_ports())
    (folder / "slurm.conf").write_text(config)
    up, started = Cluster(folder), []
    try:
        files = {"key": "key", "pid": "munged.pid", "log": "munged.log", "seed": "munged.seed"}
        given = [f"--{name}-file={folder / path}" for name, path in files.items()]
        started += [_start(folder, up, "munged", "-F", "--force", f"--socket={folder}/munge.socket", *given)]
        _until(lambda: (folder / "munge.socket").exists(), "munged makes no socket")
        started += [_start(folder, up, "slurmctld", "-D"), _start(folder, up, "slurmd", "-D")]
        _until(lambda: "State=IDLE" in _node(up), f"the node is not idle: {_last(folder)}")
        yield up
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start(folder: Path, up: Cluster, *command: str) -> subprocess.Popen[bytes]:
    with (folder / f"{command[0]}.out").open("wb") as out:
        return subprocess.Popen(command, env=up.environment, stdout=out, stderr=out, start_new_session=True)


def _until(condition: Callable[[], object], otherwise: str) -> None:
    deadline = time.monotonic() + _START
    while not condition():
        if time.monotonic() > deadline:
            raise NoSlurm(f"Slurm does not start: {otherwise}")
        time.sleep(0.2)


def _node(up: Cluster) -> str:
    try:
        return up.call("scontrol", "show", "node", "--oneliner")
    except RuntimeError:
        return ""


def _last(folder: Path) -> str:
    return " | ".join(f"{path.name}: {path.read_text(errors='replace')[-300:]}" for path in folder.glob("*.out"))


def _ports() -> list[int]:
    with socket.socket() as one, socket.socket() as other:
        for free in (one, other):
            free.bind(("127.0.0.1", 0))
        return [one.getsockname()[1], other.getsockname()[1]]
