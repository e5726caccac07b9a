#!/usr/bin/env python3
"""layering.py [ROOT]: reads every C++ file below ROOT (default: this tree), and names each line
that breaks a rule of the layout:

  order    A file includes only from folders that its own folder may use (_FOLDERS below), and
           includes have no cycle.
  testing  X/testing belongs to X, and only tests use it.
  library  Only some folders may include headers of gRPC, protobuf, CUDA, BLAS and spdlog, and
           Abseil's locks.
  world    Time, waiting, threads, files and unseeded randomness come only from base/.
  lock     A class has at most 20 fields that a lock guards. The analysis of locks is switched off
           in at most 5 places outside tests.
  width    A line has at most 100 columns, unless a string needs more.

Comments and strings do not count, except for width. Prints "file:line: rule: words" for each
finding. Exits with 1 if there is one.
"""
import os
import re
import sys

# ---- the dependency order ------------------------------------------------------------------------
_PURE = {"base", "tensor", "formats"}
_KERNELS = _PURE | {"kernels"}  # arithmetic on elements, without BLAS
_FAMILIES = {"optimizers", "initializers", "partitioners"}
# Neither ops nor data: a parameter server links no BLAS and runs no user code.
_VARIABLES = _KERNELS | _FAMILIES | {"variables"}
_PROTOCOL = _VARIABLES | {"protocol"}
_CLUSTER = _PROTOCOL | {"cluster"}
_STRATEGY = _CLUSTER | {"ops", "data", "strategy"}
_WIRE = _PROTOCOL | {"proto", "wire"}
_RPC = _WIRE | {"cluster", "rpc"}
_TASK = _RPC | {"task"}  # the frame of a process


def _role(role, core, second):
    """The four folders of a role: core < `second` < service < main."""
    core = core | {role + "/core"}
    stored = core | _WIRE | {role + "/" + folder for folder in second}
    service = stored | _TASK | {role + "/service"}
    return {role + "/core": core, role + "/service": service, role: service | {role},
            **{role + "/" + folder: stored for folder in second}}


_ROLES = {
    **_role("ps_server", _CLUSTER, ["checkpoint"]),
    **_role("worker", _STRATEGY, []),
    **_role("coordinator", _STRATEGY, ["store", "report", "checkpoint"]),
}
for _stock in ("worker", "coordinator"):  # their mains load a program, so they may use program/
    _ROLES[_stock] = _ROLES[_stock] | {"program"}
_API = _STRATEGY | {"train", "."}
_PROGRAM = _API | _TASK | set(_ROLES) | {"program"}

# The folders that each folder may include from, itself included. "." is divvy.h. A file belongs to
# the folder with the longest matching name: ps_server/core/x.h to "ps_server/core".
_FOLDERS = {
    "base": {"base"},
    "tensor": {"base", "tensor"},
    "formats": _PURE,
    **{folder: _KERNELS | {folder} for folder in ["kernels", "ops"]},
    **{folder: _PURE | {folder} for folder in ["optimizers", "initializers", "partitioners", "data"]},
    "variables": _VARIABLES,
    "protocol": _PROTOCOL,
    "cluster": _CLUSTER,
    "strategy": _STRATEGY,
    "train": _STRATEGY | {"train"},
    ".": _API,
    "proto": {"proto"},
    "wire": _WIRE,
    "rpc": _RPC,
    "task": _TASK,
    **_ROLES,
    "program": _PROGRAM,
    **{folder: _PROGRAM | {folder} for folder in ["examples", "bench", "python", "tools"]},
    "tests": _PROGRAM | {"tests", "tools"},  # tests start processes by tools/launch
}

# ---- libraries and the folders that may use them -------------------------------------------------
_ON_TOP = ("tests", "bench", "tools/ctl")  # tools/ctl: the calls of divvyctl
_SERVICES = tuple(role for role in _ROLES if role.endswith("/service"))
_CORES = tuple(role for role in _ROLES if role.endswith("/core"))
_LIBRARIES = [
    (re.compile(r"grpc(\+\+|pp)?/|.*\.grpc\.pb\.h$"), ("rpc", "task") + _SERVICES + _ON_TOP, "gRPC stops at the door: rpc, task and the services"),
    (re.compile(r"google/protobuf/|.*\.pb\.h$"), ("proto", "wire", "rpc", "task") + _SERVICES + _ON_TOP, "protobuf belongs to wire, rpc, task and the services"),
    (re.compile(r"(cuda|cublas|cudnn|curand|cusparse|cusolver|cufft|nvrtc|nvml|nvToolsExt|nccl)\w*\.h(pp)?$|(cub|thrust|cuda|cooperative_groups|nvtx3)/"),
     ("ops/cuda", "bench"), "CUDA belongs to ops/cuda"),
    (re.compile(r"(.*/)?(cblas|openblas_config|lapacke)\.h$|(eigen3/)?Eigen/"), ("ops", "bench"), "BLAS belongs to ops: a parameter server links none"),
    (re.compile(r"(spdlog|fmt)/"), ("base/log.cc",), "spdlog is expensive to compile: base/log.cc alone includes it"),
]
_ABSL_LOCKS = re.compile(r"absl/(synchronization/|strings/cord)")

# ---- time, threads, files, randomness ------------------------------------------------------------
_WAITING = (re.compile(r"\bsleep_(for|until)\b|\bSleepFor\b|(?<![\w.>])(u|nano)?sleep\s*\(|\bclock_nanosleep\b"), "waiting: post a delayed task (base/executor.h)")
_WORLD = [
    (re.compile(r"\babsl::(Now|GetCurrentTimeNanos)\b|\b(system|steady|high_resolution)_clock\b|\b(gettimeofday|clock_gettime)\b|"
                r"(?<![\w.>])time\s*\(\s*(NULL|nullptr|0)\s*\)"), "time: take a Clock (base/clock.h)"),
    (re.compile(r"\bstd::(jthread|thread|async)\b|\bpthread_create\b"), "threads: post to an Executor (base/executor.h)"),
    (re.compile(r"\bstd::(random_device|default_random_engine|mt19937(_64)?|minstd_rand0?|rand|srand)\b|\babsl::(Insecure)?BitGen\b|"
                r"(?<![\w.>:])(s?rand|[dl]rand48)\s*\("), "randomness: from a seed (base/random.h)"),
]
_FILES = (re.compile(r"\bstd::(basic_)?[io]?f(stream|ilebuf)\b|\bstd::filesystem\b|(?<![\w.>])(fd?open|freopen|opendir|mkstemp|mkdtemp)\s*\(|"
                     r"(?<![\w>])::(open|creat|unlink|mkdir|rename|mmap)\s*\("), "files: take a FileSystem (base/file_system.h)")

# ---- locks ---------------------------------------------------------------------------------------
_MOST_GUARDED_FIELDS = 20
_MOST_SWITCHED_OFF = 5
_SWITCHED_OFF = re.compile(r"^(?![ \t]*#).*\bDIVVY_NO_THREAD_SAFETY_ANALYSIS\b", re.M)
# Matches a class with its name, any other opening brace, a closing brace, or a guarded field.
_SCOPE = re.compile(r"\b(?:class|struct)\s+(?:DIVVY_\w+(?:\([^()]*\))?\s+)?(?P<class>\w+(?:::\w+)*)[^;{}()]*\{|(?P<open>\{)|(?P<close>\})|"
                    r"(?P<field>\bDIVVY_(?:PT_)?GUARDED_BY\()")

_SOURCE = re.compile(r"\.(h|hpp|inc|cc|cpp|cu|cuh)$")
_TOKEN = re.compile(r'//(?:\\\n|[^\n])*|/\*.*?\*/|R"([^()\\\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^">\n]+)[">]', re.M)


_COLUMNS = 100


def _blank(text, keep_strings):
    """`text` without comments and raw strings, and without other strings unless they are kept. Line
    numbers stay the same."""

    def blank(match):
        token = match.group(0)
        return token if keep_strings and token[0] == '"' else re.sub(r"[^\n]", " ", token)

    return _TOKEN.sub(blank, text)


def _line(text, offset):
    return text.count("\n", 0, offset) + 1


def _folder_of(path):
    """The name in _FOLDERS that `path` belongs to; None if there is none."""
    parts = path.split("/")[:-1]
    for length in (2, 1):
        if len(parts) >= length and "/".join(parts[:length]) in _FOLDERS:
            return "/".join(parts[:length])
    return "." if path == "divvy.h" else None


def _is_within(path, folders):
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def _is_test(path):
    # bench/scale.cc measures a core in virtual time.
    return path == "bench/scale.cc" or path.startswith("tests/") or "/testing/" in path or re.search(r"_test\.\w+$", path) is not None


def _guarded_fields(text):
    """(line, class, guarded fields) of each class in `text`, which has no comments and strings. A
    field counts for the innermost class around it."""
    # `scopes` has, for each open brace, its index in `found`, or None.
    found, scopes = [], []
    for match in _SCOPE.finditer(text):
        if match.group("class"):
            scopes.append(len(found))
            found.append([_line(text, match.start()), match.group("class"), 0])
        elif match.group("open"):
            scopes.append(None)
        elif match.group("close"):
            del scopes[-1:]
        else:
            owner = next((index for index in reversed(scopes) if index is not None), None)
            if owner is not None:  # None: the definition of the macro
                found[owner][2] += 1
    return found


class Tree:
    """The sources below a folder, and the findings in them: (file, line, rule, words)."""

    def __init__(self, root):
        self.root = root
        self.findings = []
        self._switched_off = []  # (file, line)
        self._includes = {}  # file -> [(line, file of the tree)]
        self._files = set(self._list())

    def check(self):
        for path in sorted(self._files):
            with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as file:
                text = file.read()
            self._check_includes(path, _blank(text, keep_strings=True))
            code = _blank(text, keep_strings=False)
            self._check_world(path, code)
            self._check_locks(path, code)
            self._check_width(path, text, code)
        self._check_switched_off()
        self._check_cycles()
        return sorted(self.findings)

    def _list(self):
        for folder, folders, files in os.walk(self.root):
            # Links (bazel-*) are not followed. third_party has stand-ins for Bazel's rule sets,
            # which are not ours.
            folders[:] = [f for f in folders if not f.startswith(".") and not (folder == self.root and f == "third_party")]
            for name in files:
                if _SOURCE.search(name):
                    yield os.path.relpath(os.path.join(folder, name), self.root)

    def _add(self, path, line, rule, words):
        self.findings.append((path, line, rule, words))

    def _resolve(self, path, name):
        """The file of the tree that `name` means, also a generated one; None: a library's header."""
        beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
        for candidate in (name, beside):
            if candidate in self._files:
                return candidate
        return name if name.split("/")[0] in {folder.split("/")[0] for folder in _FOLDERS} else None

    def _check_includes(self, path, text):
        folder = _folder_of(path)
        if folder is None:
            self._add(path, 1, "order", "the dependency order does not name this folder")
        for match in _INCLUDE.finditer(text):
            line, name = _line(text, match.start(1)), match.group(1)
            target = self._resolve(path, name)
            self._check_library(path, line, name)
            if target is None or folder is None:
                continue
            if target in self._files:
                self._includes.setdefault(path, []).append((line, target))
            self._check_order(path, folder, line, target)

    def _check_order(self, path, folder, line, target):
        to = _folder_of(target)
        if to not in _FOLDERS[folder]:
            self._add(path, line, "order", "%s may not include from %s (%s)" % (folder, to or os.path.dirname(target), target))
        if "/testing/" in target and not _is_test(path):
            self._add(path, line, "testing", "only tests may use %s" % target)

    def _check_library(self, path, line, name):
        for pattern, folders, words in _LIBRARIES:
            if pattern.match(name) and not _is_within(path, folders):
                self._add(path, line, "library", "%s: %s" % (name, words))
                return
        if _ABSL_LOCKS.match(name) and _is_within(path, _CORES):
            self._add(path, line, "library", "%s: the packaged Abseil is not instrumented, ThreadSanitizer would see races that are not there" % name)

    def _check_world(self, path, text):
        # A benchmark reads the processor time of the processes that it starts.
        measures = path.startswith(("base/", "bench/"))
        rules = list(_WORLD) if not measures else []
        if not path.startswith("base/") or _is_test(path):
            rules.append(_WAITING)
        if not measures and not _is_test(path):
            rules.append(_FILES)
        for pattern, words in rules:
            for match in pattern.finditer(text):
                self._add(path, _line(text, match.start()), "world", "%s: %s" % (match.group(0).strip(), words))

    def _check_locks(self, path, text):
        for line, name, fields in _guarded_fields(text):
            if fields > _MOST_GUARDED_FIELDS:
                words = "%s has %d fields that a lock guards, the limit is %d: move some into a class of their own"
                self._add(path, line, "lock", words % (name, fields, _MOST_GUARDED_FIELDS))
        if not _is_test(path):
            self._switched_off += [(path, _line(text, match.end())) for match in _SWITCHED_OFF.finditer(text)]

    def _check_width(self, path, text, code):
        for line, (whole, without_strings) in enumerate(zip(text.split("\n"), code.split("\n")), 1):
            is_in_string = not without_strings.strip() and not whole.lstrip().startswith("//")
            if len(whole) > _COLUMNS and '"' not in whole and not is_in_string:
                self._add(path, line, "width", "%d columns, the limit is %d: clang-format -i" % (len(whole), _COLUMNS))

    def _check_switched_off(self):
        if len(self._switched_off) <= _MOST_SWITCHED_OFF:
            return
        words = "the analysis of locks is switched off in %d places, the limit is %d" % (len(self._switched_off), _MOST_SWITCHED_OFF)
        for path, line in self._switched_off:
            self._add(path, line, "lock", words)

    def _check_cycles(self):
        """Visits depth first. An include of a file that is still being visited closes a cycle."""
        done, path = set(), []

        def visit(file):
            path.append(file)
            for line, target in self._includes.get(file, []):
                if target in path:
                    self._add(file, line, "order", "a cycle: " + " -> ".join(path[path.index(target):] + [target]))
                elif target not in done:
                    visit(target)
            done.add(path.pop())

        for file in sorted(self._files):
            if file not in done:
                visit(file)

    def __len__(self):
        return len(self._files)


def main(root):
    tree = Tree(root)
    findings = tree.check()
    for finding in findings:
        print("%s:%d: %s: %s" % finding)
    print("%d files, %d findings" % (len(tree), len(findings)))
    return 1 if findings or not len(tree) else 0


if __name__ == "__main__":
    # The real tree: Bazel runs this file through a link.
    here = os.path.dirname(os.path.realpath(__file__))
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(here))))
