#!/usr/bin/env python3
"""outputs.py [--update|--files] [PAGE...]: generates the sample outputs and the copied files in
README.md and docs/.

A block of a page that follows one of these comments is generated:

  <!-- output -->              The lines that begin with "$ " are commands. (A line that ends in
                               "\\" or has an open quote continues in the next line.) The output of
                               each command follows it. Words after "output:" select what is shown:
                               only=REGEX, the lines that match; from=TEXT, the lines from the first
                               one with TEXT; head=N and tail=N of these, with "..." between.
                               wants=NAME: the block is unchanged if the environment lacks NAME.
  <!-- file: PATH -->          The block is that file of the tree. from=TEXT after the path: the
                               lines from the first one with TEXT.
  <!-- write: NAME -->         The block is the source: it is written to the file NAME, which the
                               commands of the page use.

Without a flag it checks what can be checked without running anything: each output has a command,
each copied file is the same as in the tree, and the pages in PAGES have no output without a mark.
Prints "page:line: words" for each finding. Exits with 1 if there is one.

--update runs the commands of these pages (default: all) and fills the blocks. --files copies files
only. Commands of the tutorial run in a new folder of a new home directory, where the SDK is
unpacked. All other commands run in the tree.
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

# The pages on which every output of a command must be generated.
PAGES = ("README.md", "docs/start/tutorial.md", "docs/reference/performance.md")
ALONE = ("docs/start/tutorial.md",)

_BLOCK = re.compile(r"(?:^<!-- (output|file|write)(?:: (.*?))? -->\n)?^(```\w*)\n(.*?)^```$",
                    re.MULTILINE | re.DOTALL)
_OPTIONS = {"head": int, "tail": int, "from": str, "only": str, "wants": str}


class Block:
    """A fenced block of a page, with the comment before it."""

    def __init__(self, text, match):
        self.line = text.count("\n", 0, match.start(3)) + 1
        self.kind, self.words, self.body = match.group(1), match.group(2) or "", match.group(4)

    def file(self, read):
        """The path of the file that is shown, and its text; None: it does not exist."""
        path, _, options = self.words.partition(" ")
        text = read(path)
        if text is None:
            return path, None
        return path, "\n".join(cut(text.split("\n"), self.options(options)))

    def options(self, words=None):
        """NAME -> value. ValueError: an unknown option."""
        found = {}
        for word in shlex.split(self.words if words is None else words):
            name, _, value = word.partition("=")
            if name not in _OPTIONS:
                raise ValueError("unknown option %s" % word)
            found[name] = _OPTIONS[name](value)
        return found

    def commands(self):
        """The commands, without the "$ "."""
        found, lines = [], self.body.split("\n")
        while lines:
            line = lines.pop(0)
            if not line.startswith("$ "):
                continue
            command = line[2:]
            while lines and goes_on(command):
                command += "\n" + lines.pop(0)
            found.append(command)
        return found

    def shown(self):
        """The text of the block without its commands."""
        left = self.body
        for command in self.commands():
            left = left.replace("$ " + command + "\n", "", 1)
        return left.strip()


def goes_on(command):
    """Whether the command continues in the next line."""
    return command.endswith("\\") or command.count("'") % 2 == 1


def blocks(text):
    return [Block(text, match) for match in _BLOCK.finditer(text)]


def check(page, text, read):
    """(line, words) of each finding. `read`: path -> text of a file of the tree, or None."""
    found = []
    for block in blocks(text):
        if block.kind == "output":
            if not block.commands():
                found.append((block.line, "an output without a command"))
            try:
                block.options()
            except ValueError as error:
                found.append((block.line, str(error)))
        elif block.kind == "file":
            path, there = block.file(read)
            if there is None:
                found.append((block.line, "%s does not exist" % path))
            elif there != block.body:
                words = "differs from %s; run tools/docs_outputs --files"
                found.append((block.line, words % path))
        elif block.kind is None and page in PAGES and block.commands() and block.shown():
            found.append((block.line, "an output that was not generated: mark it with <!-- output -->"))
    return found


def cut(lines, options):
    """The lines to show."""
    if "only" in options:
        lines = [line for line in lines if re.search(options["only"], line)]
    if "from" in options:
        starts = [i for i, line in enumerate(lines) if options["from"] in line]
        lines = lines[starts[0]:] if starts else lines
    head, tail = options.get("head", 0), options.get("tail", 0)
    if (head or tail) and len(lines) > head + tail:
        return lines[:head] + ["..."] + (lines[-tail:] if tail else [])
    return lines


def filled(text, run, read):
    """The page with new blocks. `run`: command -> its output; None: only files are copied."""
    def fill(match):
        block = Block(text, match)
        body = block.body
        if block.kind == "file":
            body = block.file(read)[1] or body
        elif block.kind == "output" and run and block.options().get("wants", "PATH") in os.environ:
            parts = []
            for command in block.commands():
                lines = [line.rstrip() for line in run(command).rstrip("\n").split("\n")]
                parts += ["$ " + command] + (cut(lines, block.options()) if lines != [""] else [])
            body = "\n".join(parts) + "\n"
        start = match.start(4) - match.start()
        return match.group(0)[:start] + body + "```"
    return _BLOCK.sub(fill, text)


class Runner:
    """Runs the commands of one page, one after another."""

    def __init__(self, root, page, text):
        self.root, self.home, self.folder = root, None, root
        tools = [os.path.join(root, "bazel-bin/tools")]
        if page in ALONE:
            self.home = tempfile.mkdtemp(prefix="divvy-docs-")
            self.folder = os.path.join(self.home, "points")
            sdk = os.path.join(self.home, "divvy")
            for made in (self.folder, sdk):
                os.makedirs(made)
            subprocess.check_call(["bazel", "build", "//:sdk"], cwd=root)
            subprocess.check_call(["tar", "-C", sdk, "-xf", os.path.join(root, "bazel-bin/sdk.tar")])
            tools = [os.path.join(sdk, "bin")]
            self._write(text)
        self.environment = dict(os.environ, PATH=os.pathsep.join(tools + [os.environ["PATH"]]))
        if self.home:
            self.environment["HOME"] = self.home
            self._build()

    def _write(self, text):
        for block in blocks(text):
            if block.kind in ("file", "write"):
                path = os.path.join(self.folder, os.path.basename(block.words))
                with open(path, "w", encoding="utf-8") as file:
                    file.write(block.body)

    def _build(self):
        prefix = "-DCMAKE_PREFIX_PATH=%s/divvy" % self.home
        for command in (["cmake", "-S", ".", "-B", "build", prefix], ["cmake", "--build", "build"]):
            subprocess.check_call(command, cwd=self.folder, env=self.environment)

    def __call__(self, command):
        print("$ " + command, file=sys.stderr)
        # `bazel run` prints the build to standard error, and the program prints its figures to
        # standard output.
        errors = subprocess.DEVNULL if command.startswith("bazel run") else subprocess.STDOUT
        done = subprocess.run(["bash", "-c", command], cwd=self.folder, env=self.environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                              check=False)
        if done.returncode:
            sys.exit("%s\nexit code %d: %s" % (done.stdout.decode(), done.returncode, command))
        text = done.stdout.decode()
        return text.replace(self.home or os.path.expanduser("~"), "/home/you")

    def close(self):
        if self.home:
            shutil.rmtree(self.home)


def all_pages(root):
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith((".", "bazel-"))]
        for name in names:
            if name.endswith(".md"):
                yield os.path.relpath(os.path.join(folder, name), root)


def reader(root):
    def read(path):
        whole = os.path.join(root, path)
        if not os.path.isfile(whole):
            return None
        with open(whole, encoding="utf-8") as file:
            return file.read()
    return read


def write(root, page, text):
    with open(os.path.join(root, page), "w", encoding="utf-8") as file:
        file.write(text)


def update(root, pages, files_only):
    read = reader(root)
    for page in pages:
        text = filled(read(page), None, read)
        write(root, page, text)
        if files_only or not any(block.kind == "output" for block in blocks(text)):
            continue
        runner = Runner(root, page, text)
        try:
            write(root, page, filled(text, runner, read))
        finally:
            runner.close()


def main(root, arguments):
    words = [word for word in arguments if word.startswith("--")]
    pages = [word for word in arguments if not word.startswith("--")] or sorted(all_pages(root))
    if words:
        update(root, pages, "--files" in words)
    read, wrong, count = reader(root), 0, 0
    for page in pages:
        text = read(page)
        count += sum(block.kind is not None for block in blocks(text))
        for line, said in check(page, text, read):
            wrong += 1
            print("%s:%d: %s" % (page, line, said))
    print("%d blocks that are made, %d findings" % (count, wrong))
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    # The real tree: Bazel runs this file through a link.
    here = os.path.dirname(os.path.realpath(__file__))
    sys.exit(main(os.path.dirname(os.path.dirname(here)), sys.argv[1:]))
