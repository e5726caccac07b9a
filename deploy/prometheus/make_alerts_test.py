#!/usr/bin/env python3
"""make_alerts_test.py: prints alerts_test.yaml, the cases of `promtool test rules` for alerts.yaml.

Each case is a healthy job of three workers and two parameter servers in which some series differ.
At each of its times exactly the alerts of the case fire: no other does. Values are in promtool's
notation: 'A+BxN' are A, A+B, ... (one a minute), '_xN' is nothing, 'stale' is a target that is gone.
"""
import json

PS, WORKERS = ("0", "1"), ("0", "1", "2")
LENGTH = 180  # minutes


def series(name, role, task, **labels):
    of_all = dict(labels, job="digits", role=role, task=task)
    return "%s{%s}" % (name, ", ".join('%s="%s"' % pair for pair in sorted(of_all.items())))


def chief(name, **labels):
    return series(name, "chief", "0", **labels)


def ps(name, task="0", **labels):
    return series(name, "ps", task, **labels)


def worker(name, task="0", **labels):
    return series(name, "worker", task, **labels)


SERVANTS_EPOCHS = [ps("divvy_epoch", i) for i in PS] + [worker("divvy_epoch", i) for i in WORKERS]


def constant(value, minutes=LENGTH):
    return "%s+0x%d" % (value, minutes)


def growing(by, minutes=LENGTH):
    return "0+%sx%d" % (by, minutes)


def healthy(minutes=LENGTH):
    """Ten steps a second, a checkpoint every 10 minutes, certificates of a year."""
    values = {
        chief("up"): constant(1, minutes),
        chief("process_start_time_seconds"): constant(0, minutes),
        ps("divvy_certificate_expiry_timestamp_seconds", "1"): constant(365 * 86400, minutes),
    }
    values.update({name: constant(1, minutes) for name in SERVANTS_EPOCHS})
    values.update({
        chief("divvy_steps_total", kind="training"): growing(600, minutes),
        chief("divvy_oldest_step_seconds"): constant(2, minutes),
        chief("divvy_replayed_steps_total"): constant(0, minutes),
        chief("divvy_recoveries_total", exported_job="ps"): constant(0, minutes),
        chief("divvy_recoveries_total", exported_job="worker"): constant(0, minutes),
        chief("divvy_checkpoint_interval_seconds"): constant(600, minutes),
        chief("divvy_checkpoint_last_success_timestamp_seconds"): "_x9 " + " ".join("%d+0x9" % (600 * i) for i in range(1, minutes // 10 + 1)),
        chief("divvy_checkpoint_failures_total"): constant(0, minutes),
        chief("divvy_checkpoint_failing"): constant(0, minutes),
        chief("divvy_undurable_steps"): constant(3000, minutes),
    })
    for task in PS:
        values.update({
            ps("divvy_shards", task): constant(4, minutes),
            ps("divvy_pull_rows_total", task): growing(60000, minutes),
            ps("divvy_push_rows_total", task): growing(60000, minutes),
            ps("process_cpu_seconds_total", task): growing(30, minutes),
            ps("divvy_memory_used_bytes", task): constant("4e9", minutes),
            ps("divvy_memory_limit_bytes", task): constant("8e9", minutes),
        })
    for task in WORKERS:
        values.update({
            worker("divvy_step_seconds_sum", task): growing(40, minutes),
            worker("divvy_step_seconds_count", task): growing(200, minutes),
            worker("divvy_step_busy_seconds_total", task): growing(40, minutes),
            worker("divvy_input_wait_seconds_total", task): growing(4, minutes),
        })
    return values


def changed(*changes):
    values = healthy()
    for change in changes:
        for name, value in change.items():
            if name not in values and "_checkpoint_" not in name:
                raise SystemExit("no series %s" % name)
            values[name] = value
    return {name: value for name, value in values.items() if value is not None}


def every(names, value):
    return {name: value for name in names}


def idle():
    """The program computes something of its own, between two steps."""
    still = {name: constant(1000) for name in healthy() if "_total" in name or "_seconds_sum" in name or "_seconds_count" in name}
    still.update({name: constant(0) for name in healthy() if "_failures_total" in name or "_recoveries_" in name})
    return changed(still, {chief("divvy_oldest_step_seconds"): constant(0), chief("divvy_undurable_steps"): constant(0),
                           chief("divvy_checkpoint_last_success_timestamp_seconds"): constant(600)})


def idle_workers(*tasks):
    return {worker(name, task): constant(0) for task in tasks for name in ("divvy_step_seconds_sum", "divvy_step_seconds_count")}


def starting():
    """Parameter servers and workers wait 4 minutes for the coordinator. It loads an old checkpoint
    of a job that was stopped for hours; memory leaps, and the first step takes 4 minutes."""
    begin = 4
    values = {name: ("_x%d " % begin) + value for name, value in healthy().items() if 'role="chief"' in name}
    return changed(values, {chief("up"): "0x%d 1x%d" % (begin - 1, LENGTH)},
                   every(SERVANTS_EPOCHS, "0x%d 1x%d" % (begin - 1, LENGTH)),
                   {chief("divvy_oldest_step_seconds"): "_x4 10+60x4 2x170", chief("divvy_undurable_steps"): "_x4 0x4 3000x170",
                    chief("process_start_time_seconds"): "_x4 240x176", chief("divvy_checkpoint_last_success_timestamp_seconds"): "_x4 0x14 1200x20 2400x20",
                    chief("divvy_steps_total", kind="training"): "_x4 0x4 0+600x170"},
                   {ps("divvy_memory_used_bytes", i): "0x4 0+2e9x3 6e9x170" for i in PS})


def ended():
    """The job is complete after 60 minutes, and all of its tasks end."""
    values = {name: value + " stale" for name, value in healthy(59).items()}
    return dict(values, **{chief("up"): "1x59 0x%d" % (LENGTH - 60)})


def case(name, values, at, fires=None, labels=None, summary=None):
    return {"name": name, "values": values, "at": at, "fires": fires, "labels": labels, "summary": summary}


CHIEF = {"job": "digits", "role": "chief", "task": "0"}
JOB = {"job": "digits"}


def of_ps(task):
    return {"job": "digits", "role": "ps", "task": task}


def of_worker(task):
    return {"job": "digits", "role": "worker", "task": task}


SEVERITY = {"DivvyStepsStalled": "critical", "DivvyCheckpointOld": "critical", "DivvyDiskFailing": "critical", "DivvyCoordinatorAway": "critical"}
NEWEST = chief("divvy_checkpoint_last_success_timestamp_seconds")
STEPS = chief("divvy_steps_total", kind="training")
STALLED = changed({STEPS: "0+600x60 36000x120", chief("divvy_oldest_step_seconds"): "2x60 0+60x119"},
                  every([worker("divvy_step_seconds_sum", i) for i in WORKERS], "0+40x60 2400x120"),
                  every([worker("divvy_step_seconds_count", i) for i in WORKERS], "0+200x60 12000x120"))

CASES = [
    case("a healthy job", healthy(), ["5m", "31m", "90m", "179m"]),
    case("a job that idles", idle(), ["10m", "60m", "179m"]),
    case("a job that starts", starting(), ["%dm" % i for i in range(1, 60)]),
    case("a job that has ended well", ended(), ["59m", "61m", "62m", "65m", "90m", "179m"]),

    case("steps stalled", STALLED, ["70m", "90m"], "DivvyStepsStalled", JOB, "Job digits: the oldest step is 9m 0s old, and none has finished for 5 minutes. Run `divvyctl status`: it names what the coordinator waits for."),
    case("not stalled: a step waits long in a queue, and others finish", changed({chief("divvy_oldest_step_seconds"): constant(3000)}), ["60m", "120m"]),
    case("not stalled: steps of the past run again", changed({STEPS: "0+600x60 36000x120", chief("divvy_oldest_step_seconds"): "2x60 0+60x119",
                                                              chief("divvy_replayed_steps_total"): "0x60 0+600x119"}), ["70m", "90m"]),

    case("a straggler", changed({worker("divvy_step_seconds_sum", "1"): growing(100)}), ["60m"], "DivvyStraggler", of_worker("1"),
         "Job digits: a step of worker 1 takes 500ms, more than twice the median of all workers. Look at the load of its machine, or replace the worker."),
    case("a straggler, and most workers idle", dict(changed({worker("divvy_step_seconds_sum", "1"): growing(100)}), **idle_workers("3", "4", "5", "6")), ["60m"],
         "DivvyStraggler", of_worker("1"), None),
    case("no straggler: all are slow", changed(every([worker("divvy_step_seconds_sum", i) for i in WORKERS], growing(100))), ["60m"]),
    case("no straggler: slower by a half", changed({worker("divvy_step_seconds_sum", "1"): growing(60)}), ["60m"]),
    case("no straggler: two workers cannot tell", changed({worker("divvy_step_seconds_sum", "1"): growing(100)}, every(
        [worker(name, "2") for name in ("divvy_step_seconds_sum", "divvy_step_seconds_count")], None)), ["60m"]),

    case("a hot shard", changed({ps("divvy_pull_rows_total", "1"): growing(400000)}), ["60m"], "DivvyHotShard", of_ps("1"),
         "Job digits: ps 1 serves 7.667k rows/s, more than three times the mean of the others, and bounds the job. "
         "Run `divvyctl rebalance`, cut the variable into more shards (its partitioner), or add parameter servers with `divvyctl resize`."),
    case("no hot shard: twice the load of the other", changed({ps("divvy_pull_rows_total", "1"): growing(180000)}), ["60m"]),
    case("no hot shard: a server that has time", changed({ps("divvy_pull_rows_total", "1"): growing(400000), ps("process_cpu_seconds_total", "1"): growing(6)}), ["60m"]),

    case("memory full within 2 hours", changed({ps("divvy_memory_used_bytes", "1"): "4e9+3e7x130"}), ["60m"], "DivvyMemoryForecast", of_ps("1"),
         "Job digits: the memory of ps 1 is full within 2 hours at this rate. Add parameter servers with `divvyctl resize`, "
         "give the tables a max_rows, or raise --memory_limit_bytes."),
    case("memory is not forecast: full in 6 hours", changed({ps("divvy_memory_used_bytes", "1"): "4e9+5e6x170"}), ["60m", "120m"]),
    case("memory is not forecast: full, but it does not grow", changed({ps("divvy_memory_used_bytes", "1"): constant("7.9e9")}), ["60m"]),
    case("memory is not forecast: a slow load, and then it does not grow", changed(every(
        [ps("divvy_memory_used_bytes", i) for i in PS], "0+6e8x10 6e9x160")), ["%dm" % i for i in range(1, 60)]),
    case("memory is not forecast: two leaps, 10 minutes apart", changed({ps("divvy_memory_used_bytes", "1"): "2e9x29 4e9x9 6e9x130"}),
         ["%dm" % i for i in range(25, 75)]),
    case("memory is not forecast: there is no limit", changed({ps("divvy_memory_used_bytes", "1"): "4e9+3e7x130"}, every(
        [ps("divvy_memory_limit_bytes", i) for i in PS], None)), ["60m"]),

    case("no checkpoint for long", changed({NEWEST: "_x9 600+0x170"}), ["60m"], "DivvyCheckpointOld", JOB,
         "Job digits: no checkpoint for more than three intervals. Run `divvyctl checkpoint save`: it says why none can be made."),
    case("never a checkpoint", changed({NEWEST: None}), ["60m"], "DivvyCheckpointOld", JOB, None),
    case("no checkpoint is due: nothing has finished since", changed({NEWEST: "_x9 600+0x170", chief("divvy_undurable_steps"): constant(0)}), ["60m", "120m"]),
    case("no checkpoint is due: the coordinator waited 45 minutes for its tasks", changed({
        NEWEST: "_x55 3360+0x120", chief("divvy_undurable_steps"): "0x45 3000x130", STEPS: "0x45 0+600x130"}), ["%dm" % i for i in range(30, 86)]),
    case("no checkpoint since the steps began, 45 minutes after the start", changed({
        NEWEST: None, chief("divvy_undurable_steps"): "0x45 3000x130", STEPS: "0x45 0+600x130"}), ["90m"], "DivvyCheckpointOld", JOB, None),
    case("no checkpoint is due: the program idled for an hour", changed({
        NEWEST: "_x9 600+0x59 4800+0x110", chief("divvy_undurable_steps"): "0x69 3000x110"}), ["%dm" % i for i in range(60, 85)]),
    case("no checkpoint is wanted", changed({NEWEST: None, chief("divvy_checkpoint_interval_seconds"): constant(0)}), ["60m", "120m"]),

    case("checkpoints fail", changed({chief("divvy_checkpoint_failures_total"): "0x55 2x100", chief("divvy_checkpoint_failing"): "0x55 1x100"}), ["60m"], "DivvyDiskFailing", CHIEF,
         "Job digits: a disk fails or is full, so a checkpoint could not be written. Make room; the coordinator's log names the path. "
         "`divvyctl doctor --checkpoint_dir=DIR` looks at the directory."),
    case("checkpoints fail, and so there is none for long", changed({
        NEWEST: "_x9 600+0x170", chief("divvy_checkpoint_failures_total"): "0x19 1+1x160", chief("divvy_checkpoint_failing"): "0x19 1x160"}),
         ["40m", "60m", "90m"], "DivvyDiskFailing", CHIEF, None),
    case("checkpoints failed, and none is tried any more", changed({
        NEWEST: "_x9 600+0x170", chief("divvy_checkpoint_failures_total"): "0x19 1+1x20 21x140", chief("divvy_checkpoint_failing"): "0x19 1x160"}),
         ["60m", "120m"], "DivvyDiskFailing", CHIEF, None),
    case("one checkpoint failed between two scrapes", changed({chief("divvy_checkpoint_failures_total"): "0x55 1x100"}), ["60m"], "DivvyDiskFailing", CHIEF, None),
    case("checkpoints of each 40 minutes fail, and so there is none for long", changed({
        NEWEST: None, chief("divvy_checkpoint_interval_seconds"): constant(2400),
        chief("divvy_checkpoint_failures_total"): "0x39 1x39 2x39 3x39", chief("divvy_checkpoint_failing"): "0x39 1x130"}),
         ["%dm" % i for i in range(41, 160, 7)], "DivvyDiskFailing", CHIEF, None),
    case("no disk fails: it did, an hour ago", changed({chief("divvy_checkpoint_failures_total"): "0x5 2x150"}), ["65m"]),

    case("parameter servers are lost again and again", changed({chief("divvy_recoveries_total", exported_job="ps"): "0x49 0+1x9 9x100"}), ["60m"],
         "DivvyRecoveriesFrequent", {"job": "digits", "exported_job": "ps"},
         "Job digits: 9 recoveries of role ps within 30 minutes. See with which exit code the tasks end: 137 is the kernel's, when memory is short."),
    case("workers are lost again and again", changed({chief("divvy_recoveries_total", exported_job="worker"): "0x39 0+1x19 19x100"}), ["60m"],
         "DivvyRecoveriesFrequent", {"job": "digits", "exported_job": "worker"}, None),
    case("recoveries are not frequent: some workers are lost", changed({chief("divvy_recoveries_total", exported_job="worker"): "0x49 0+1x5 5x100"}), ["60m", "90m"]),

    case("recoveries are not frequent: three parameter servers are lost", changed({chief("divvy_recoveries_total", exported_job="ps"): "0x49 1x4 2x4 3x100"}), ["60m", "75m"]),

    case("the coordinator is away", changed({name: "1x60 stale" for name in healthy() if 'role="chief"' in name}, {chief("up"): "1x60 0x119"}), ["65m", "90m"],
         "DivvyCoordinatorAway", JOB,
         "Job digits: parameter servers or workers run, and the coordinator does not answer. Start it again with the same --state_dir, or end the other tasks (SIGTERM)."),
    case("the coordinator is not away: it is started again", changed({chief("up"): "1x60 0x1 1x110"}), ["60m", "61m", "62m", "63m", "64m"]),

    case("a certificate ends soon", changed({ps("divvy_certificate_expiry_timestamp_seconds", "1"): constant(3600 + 2 * 86400)}), ["60m"],
         "DivvyCertificateEnding", of_ps("1"),
         "Job digits: the certificate of ps 1 ends in 2d 0h 0m 0s. Put a new one in its place: tasks read it within a minute, without a restart."),
    case("a certificate has ended, and its task cannot be scraped", changed({
        ps("divvy_certificate_expiry_timestamp_seconds", "1"): "3000+0x49 stale"}), ["60m"], "DivvyCertificateEnding", of_ps("1"),
         "Job digits: the certificate of ps 1 has ended. Put a new one in its place: tasks read it within a minute, without a restart."),
    case("no certificate ends soon", changed({ps("divvy_certificate_expiry_timestamp_seconds", "1"): constant(8 * 86400)}), ["60m"]),

    case("workers wait for their input", changed(every([worker("divvy_input_wait_seconds_total", i) for i in WORKERS], growing(32))), ["60m"],
         "DivvyInputBound", JOB,
         "Job digits: workers wait for their input 80% of the time of their steps. Let datasets prefetch (Prefetch, Map with parallel_calls), or put the data on a faster disk."),
    case("not bound by input: a third of the time", changed(every([worker("divvy_input_wait_seconds_total", i) for i in WORKERS], growing(13))), ["60m"]),
    case("not bound by input: workers do little", changed(every([worker("divvy_input_wait_seconds_total", i) for i in WORKERS], growing(3)), every(
        [worker("divvy_step_busy_seconds_total", i) for i in WORKERS], growing(4))), ["60m"]),
]


def text(value):
    return json.dumps(value)


def lines_of(case):
    yield "  - name: %s" % text(case["name"])
    yield "    interval: 1m"
    yield "    input_series:"
    for name, values in case["values"].items():
        yield "      - {series: %s, values: %s}" % (text(name), text(values))
    yield "    promql_expr_test:"
    for at in case["at"]:
        yield "      - expr: count by (alertname) (ALERTS{alertstate=\"firing\"})"
        yield "        eval_time: %s" % at
        yield "        exp_samples:" + ("" if case["fires"] else " []")
        if case["fires"]:
            yield "          - {labels: %s, value: 1}" % text("{alertname=\"%s\"}" % case["fires"])
    if case["summary"]:
        yield "    alert_rule_test:"
        yield "      - eval_time: %s" % case["at"][0]
        yield "        alertname: %s" % case["fires"]
        yield "        exp_alerts:"
        yield "          - exp_labels: %s" % text(dict(case["labels"], severity=SEVERITY.get(case["fires"], "warning")))
        yield "            exp_annotations:"
        yield "              summary: %s" % text(case["summary"])
        yield "              runbook_url: docs/operating/operations.md#%s" % case["fires"].lower()


def main():
    print("# Made by make_alerts_test.py, for `promtool test rules`. tools/operations_test runs it.")
    print("rule_files:\n  - alerts.yaml\nevaluation_interval: 1m\ntests:")
    for one in CASES:
        print("\n".join(lines_of(one)))


if __name__ == "__main__":
    main()
