"""The pages of each role, as promtool and Prometheus read them: plain, and over TLS."""
import os
import ssl
import time
import urllib.request

from built import built

from . import common
from .cluster import LaunchedCluster, TlsCluster
from .faults import PROGRAM
from .prometheus import Prometheus
from .rules import Promtool


def _page(url, context=None):
    with urllib.request.urlopen(url, timeout=10, context=context) as answer:
        return answer.read().decode()


def _metrics(checks, bin_folder):
    promtool = Promtool(checks)
    with common.scratch() as folder, LaunchedCluster(folder, bin_folder, PROGRAM, ["--stop_file=" + os.path.join(folder, "stop"),
                                                                                    "--memory_limit_bytes=1000000000"]) as cluster:
        tasks = cluster.all_tasks()
        cluster.wait_for("trains")
        for key in (("chief", 0), ("ps", 0), ("worker", 0)):
            promtool.check("promtool check metrics: " + tasks[key].name, "check", "metrics", text=_page(tasks[key].url("/metrics")))
        code = cluster.finish()
        checks.record("the job ends well", code == 0, common.tail(cluster.log))


def _over_tls(checks, bin_folder):
    with common.scratch() as folder:
        with TlsCluster(folder, bin_folder, PROGRAM, ["--stop_file=" + os.path.join(folder, "stop")]) as cluster:
            configs = cluster.scrape_configs()
            cluster.wait_for("trains")
            with Prometheus(folder, configs) as prometheus:
                good = common.await_true(lambda: len(prometheus.healthy_targets()[0]) == len(configs), 20)
                checks.record("Prometheus scrapes all %d tasks over TLS, by the configuration of divvyctl gen prometheus" % len(configs),
                              good, str(prometheus.healthy_targets()[1]))
                ends = common.await_true(lambda: [s for s in prometheus.value("divvy_certificate_expiry_timestamp_seconds")
                                                  if s[1] > time.time() + 300 * 86400], 10)
                checks.record("each task tells the end of its certificate", len(ends) == len(configs), str(ends))
                checks.record("no alert fires", not prometheus.fired(), str(prometheus.fired()))
            stranger = ssl.create_default_context(cafile=os.path.join(cluster.certs, "ca.pem"))
            stranger.check_hostname = False
            port = cluster.all_tasks()[("chief", 0)].address.rpartition(":")[2]
            try:
                said = _page("https://127.0.0.1:%s/metrics" % port, stranger)[:100]
            except OSError as error:
                said = None
            checks.record("a caller without a certificate reads nothing", said is None, str(said))
            checks.record("the job ends well", cluster.finish() == 0, common.tail(os.path.join(folder, "chief-0.log")))


def main(checks):
    common.debian("usr/bin/prometheus")
    bin_folder = built("//tools/operations:faulty_program", "//tools:divvyctl")
    _metrics(checks, bin_folder)
    _over_tls(checks, bin_folder)
