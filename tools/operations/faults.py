"""Ten faults are planted in clusters of real processes, one after another. Each must fire its alert,
within the time that the rule asks for and two scrape intervals, and no other. A healthy job fires
none, from its start until after its end. Time runs faster by prometheus.FASTER."""
import os
import signal
import subprocess
import threading
import time

from built import built

from . import common
from .certificates import replace_by_short_one
from .cluster import LaunchedCluster, TlsCluster
from .prometheus import FASTER, SCRAPE_S, Prometheus, waiting_time

PROGRAM = "tools/operations/faulty_program"
CHECKPOINT_EVERY_S = 2
JOB = "digits"
# What a busy machine may add: processes start late, and a page comes late.
SLACK_S = 5


class Run:
    """One cluster with a Prometheus of its own."""

    def __init__(self, folder, cluster, prometheus):
        self.folder, self.cluster, self.prometheus = folder, cluster, prometheus

    def follow(self):
        """A task that was started again has another port."""
        if isinstance(self.cluster, LaunchedCluster):
            self.prometheus.set_targets(JOB, self.cluster.tasks())

    def await_up(self):
        self.cluster.all_tasks()

        def is_up():
            self.follow()
            up, down = self.prometheus.healthy_targets()
            return len(up) == len(self.cluster.all_tasks()) and not down
        if not common.await_true(is_up, 30):
            raise RuntimeError("Prometheus does not reach the tasks: %s" % self.prometheus.healthy_targets()[1])

    def await_steps(self):
        self.cluster.wait_for("trains")


class Fault:
    """`reach_s`: from the moment at which the fault is there until the rule's expression holds, by
    its ranges and thresholds."""
    name = alert = None
    reach_s = 0
    # How long the job is watched after its alert, for others that follow: five minutes.
    watched_s = 300 / FASTER
    ps, workers = 2, 2
    flags = ()
    launch_flags = ()

    def cluster(self, folder, bin_folder):
        flags = ["--stop_file=" + os.path.join(folder, "stop"), *self.more_flags(folder)]
        if not any(flag.startswith("--checkpoint_every") for flag in self.flags):
            flags.append("--checkpoint_every=%ds" % CHECKPOINT_EVERY_S)
        return LaunchedCluster(folder, bin_folder, PROGRAM, [*self.flags, *flags], self.ps, self.workers, self.launch_flags)

    def more_flags(self, folder):
        return []

    def prometheus(self, folder, cluster):
        return Prometheus(folder)

    def plant(self, run):
        """Makes the fault, while all tasks are scraped and steps run."""

    def meanwhile(self, run):
        """Called again and again until the alert fires."""

    def remove(self, run):
        """Takes back what `plant` did."""

    def clean_up(self):
        """Called when the cluster has ended, or could not start."""

    @property
    def allowed_s(self):
        return self.reach_s + waiting_time(self.alert) + 2 * SCRAPE_S + SLACK_S


class SlowWorker(Fault):
    name, alert = "a slow worker (SIGSTOP pulses)", "DivvyStraggler"
    reach_s = 600 / FASTER
    _pulses = None
    workers = 3
    flags = ("--step_time=20ms", "--round=0s", "--steps_of_round=60")

    def plant(self, run):
        self._over = threading.Event()
        self._pulses = threading.Thread(target=self._pulse, args=(run.cluster,), daemon=True)
        self._pulses.start()

    def _pulse(self, cluster):
        while not self._over.is_set():
            cluster.signal("worker", 1, signal.SIGSTOP)
            self._over.wait(0.4)
            cluster.signal("worker", 1, signal.SIGCONT)
            self._over.wait(0.1)

    def remove(self, run):
        if self._pulses is not None:
            self._over.set()
            self._pulses.join()


class HotShard(Fault):
    name, alert = "a hot shard", "DivvyHotShard"
    reach_s = 300 / FASTER
    ps, workers = 3, 4
    flags = ("--hot", "--rows_of_step=4000", "--round=0s", "--steps_of_round=100", "--pipeline_depth=2")


class NearBudget(Fault):
    name, alert = "a ps near its budget", "DivvyMemoryForecast"
    reach_s = 420 / FASTER
    flags = ("--grow_bytes=1000000", "--round=1s", "--memory_limit_bytes=60000000")


class StuckStep(Fault):
    name, alert = "a stuck step", "DivvyStepsStalled"
    reach_s = 300 / FASTER

    def more_flags(self, folder):
        return ["--stuck_file=" + os.path.join(folder, "stuck")]

    def plant(self, run):
        common.write(os.path.join(run.folder, "stuck"), "")


class LostCoordinator(Fault):
    name, alert = "a lost coordinator", "DivvyCoordinatorAway"
    reach_s = SCRAPE_S

    def plant(self, run):
        run.cluster.signal("chief", 0, signal.SIGSTOP)

    def remove(self, run):
        run.cluster.signal("chief", 0, signal.SIGCONT)


class FullDisk(Fault):
    name, alert = "a failing disk (a full tmpfs)", "DivvyDiskFailing"
    reach_s = 2 * CHECKPOINT_EVERY_S
    # Until the job has owed a checkpoint for three intervals, and DivvyCheckpointOld would fire, too.
    watched_s = 4 * CHECKPOINT_EVERY_S + waiting_time("DivvyCheckpointOld") + 2 * SCRAPE_S + 2

    _disk = None

    def more_flags(self, folder):
        disk = os.path.join(folder, "disk")
        os.mkdir(disk)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "divvy-operations", disk],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, check=False)
        if done.returncode != 0:
            raise common.Skipped("no tmpfs can be mounted: " + done.stdout.strip())
        self._disk = disk
        return ["--checkpoint_dir=" + self._disk]

    def plant(self, run):
        with open(os.path.join(self._disk, "other"), "wb") as other:
            try:
                while True:
                    other.write(bytes(1 << 20))
                    other.flush()
            except OSError:
                pass

    def clean_up(self):
        if self._disk:
            subprocess.run(["umount", self._disk], check=False)


class Kills(Fault):
    name, alert = "recoveries by kills", "DivvyRecoveriesFrequent"
    # From the last of the kills.
    reach_s = 3
    launch_flags = ("--max_restarts=50",)
    _KILLS = 4

    def plant(self, run):
        for kill in range(self._KILLS):
            before = self._recoveries(run)
            if self.alert in run.prometheus.firing():
                raise RuntimeError("the alert fires after %d kills, and the rule allows 3" % kill)
            run.cluster.signal("ps", kill % 2, signal.SIGKILL)
            if kill + 1 < self._KILLS and not common.await_true(lambda: self._recoveries(run) > before, 30):
                raise RuntimeError("no recovery:\n" + common.tail(run.cluster.log))

    def _recoveries(self, run):
        run.follow()
        return sum(value for _, value in run.prometheus.value('divvy_recoveries_total{exported_job="ps"}'))


class ShortCertificate(Fault):
    name, alert = "a certificate that ends in 2 minutes", "DivvyCertificateEnding"

    def cluster(self, folder, bin_folder):
        for name in ("checkpoints", "state"):
            os.mkdir(os.path.join(folder, name), 0o700)
        return TlsCluster(folder, bin_folder, PROGRAM,
                          ["--stop_file=" + os.path.join(folder, "stop"), "--checkpoint_every=%ds" % CHECKPOINT_EVERY_S,
                           "--checkpoint_dir=" + os.path.join(folder, "checkpoints"), "--state_dir=" + os.path.join(folder, "state")],
                          replace=lambda certs: replace_by_short_one(certs, "ps-1", minutes=2))

    def prometheus(self, folder, cluster):
        return Prometheus(folder, cluster.scrape_configs())


class HangingDisk(Fault):
    name, alert = "no checkpoint (fsync does not return)", "DivvyCheckpointOld"
    # One interval may have begun with a checkpoint.
    reach_s = 4 * CHECKPOINT_EVERY_S
    # None: strace was not found, or was not started yet.
    _strace = None

    def plant(self, run):
        pid = run.cluster.tasks()[("ps", 0)].pid
        log = os.path.join(run.folder, "strace.log")
        self._strace = common.Process([common.debian("usr/bin/strace"), "-f", "-q", "-e", "trace=fsync,fdatasync",
                                       "-e", "inject=fsync,fdatasync:delay_enter=1000000000", "-o", os.devnull, "-p", str(pid)], log,
                                      env=common.unpacked_environment())
        common.await_true(lambda: "TracerPid:\t0" not in common.read("/proc/%d/status" % pid) or self._strace.child.poll() is not None, 10)
        if self._strace.child.poll() is not None:
            raise common.Skipped("strace cannot trace: " + common.tail(log))

    def remove(self, run):
        # Without strace the delayed call returns.
        if self._strace is not None:
            self._strace.end()


class SlowInput(Fault):
    name, alert = "slow input", "DivvyInputBound"
    reach_s = 600 / FASTER
    flags = ("--input_wait=20ms", "--round=0s", "--steps_of_round=100")


FAULTS = (SlowWorker, HotShard, NearBudget, StuckStep, LostCoordinator, FullDisk, Kills, ShortCertificate, HangingDisk, SlowInput)


class Result:
    def __init__(self, fault, seconds, others, end):
        self.fault, self.seconds, self.others, self.end = fault, seconds, others, end

    def row(self):
        return "| %s | %s | %s | %.1f | %s |" % (self.fault.name, self.fault.alert, "never" if self.seconds is None else "%.1f" % self.seconds,
                                              self.fault.allowed_s, ", ".join(sorted(self.others)) or "none")


def _try(fault, folder, bin_folder):
    with fault.cluster(folder, bin_folder) as cluster, fault.prometheus(folder, cluster) as prometheus:
        run = Run(folder, cluster, prometheus)
        run.await_up()
        run.await_steps()
        before = prometheus.fired() - {fault.alert}
        try:
            fault.plant(run)

            def meanwhile():
                run.follow()
                fault.meanwhile(run)
            seconds = prometheus.await_firing(fault.alert, fault.allowed_s, meanwhile)
            time.sleep(fault.watched_s)
        finally:
            fault.remove(run)
        fired = prometheus.fired()
        if seconds is not None and fault.alert not in fired:
            raise RuntimeError("Prometheus does not know any more that %s has fired; it knows of %s" % (fault.alert, sorted(fired)))
        others = (fired | before) - {fault.alert}
        return Result(fault, seconds, others, common.tail(cluster.log) if hasattr(cluster, "log") else "")


def _healthy(checks, bin_folder):
    """No alert for a job that starts, trains for a minute (half an hour), and has ended well."""
    fault = Fault()
    fault.workers = 3
    with common.scratch() as folder, fault.cluster(folder, bin_folder) as cluster, Prometheus(folder) as prometheus:
        run = Run(folder, cluster, prometheus)
        prometheus.set_targets(JOB, cluster.all_tasks())
        run.await_up()
        run.await_steps()
        time.sleep(60)
        steps = sum(value for _, value in prometheus.value("divvy_steps_total"))
        code = cluster.finish()
        # The tasks are gone, and their targets stay.
        time.sleep(10)
        fired = prometheus.fired()
        # No alert is the answer of a Prometheus that has lost its samples, too.
        if not prometheus.value("count_over_time(divvy_steps_total[10m])"):
            raise RuntimeError("Prometheus does not know any more that the job has finished steps:\n" + common.tail(prometheus.log))
        checks.record("a healthy job fires no alert (%d steps)" % steps, not fired and code == 0 and steps > 100,
                      "fired %s, exit code %d, %d steps\n%s" % (sorted(fired), code, steps, common.tail(cluster.log)))


# What may follow "faults:".
NAMES = tuple(fault.alert for fault in FAULTS)


def main(checks, only=None):
    """`only`: those of NAMES whose faults are tried; None: all, and the healthy job."""
    common.debian("usr/bin/prometheus")
    bin_folder = built("//tools/operations:faulty_program", "//tools:divvyctl")
    rows = []
    for kind in FAULTS:
        fault = kind()
        if only and fault.alert not in only:
            continue
        with common.scratch() as folder:
            try:
                result = _try(fault, folder, bin_folder)
            except common.Skipped as why:
                checks.skip(fault.name, why)
                continue
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                checks.record(fault.name, False, str(error))
                continue
            finally:
                fault.clean_up()
        rows.append(result.row())
        took = "never" if result.seconds is None else "after %.1f s" % result.seconds
        checks.record("%s: %s %s of %.1f" % (fault.name, fault.alert, took, fault.allowed_s),
                      result.seconds is not None and not result.others,
                      "other alerts: %s\n%s" % (sorted(result.others) or "none", result.end))
    if not only:
        try:
            _healthy(checks, bin_folder)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            checks.record("a healthy job fires no alert", False, str(error))
    print("| fault | alert | fired after (s) | allowed (s) | other alerts |\n|---|---|---|---|---|\n" + "\n".join(rows), flush=True)
