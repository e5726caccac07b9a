#!/usr/bin/env python3
"""outputs.py [--update|--files] [PAGE...]: the sample outputs and the copied files of README.md and docs/.

A block of a page that follows one of these comments is made, not written:

  <!-- output -->              The lines that begin with "$ " are commands (a line that ends in "\\"
                               or has an open quote goes on in the next). What they print stands
                               behind each. Words after "output:" say what of it is shown:
                               only=REGEX, the lines that have it; from=TEXT, from the first line
                               that has TEXT on; head=N and tail=N of these, with "..." between.
                               wants=NAME: it is left as it is where the environment lacks NAME.
  <!-- file: PATH -->          The block is that file of the tree; with from=TEXT behind the path,
                               from the first line that has TEXT on.
  <!-- write: NAME -->         The block is written here. The commands of the page find it as a file.

Without a flag it checks what can be checked without running anything: each output has a command,
each file is as it stands in the tree, each of the PAGES that promise it has no output without a
mark. Prints "page:line: words" and exits with 1 if anything is wrong.

--update runs the commands of these pages (default: all) and fills the blocks; --files copies files
only. Commands of the tutorial run in a new folder of a new home, where the SDK is unpacked; all
others in the tree.
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

# Where no command may be shown with an output that nobody made.
PAGES = ("README.md", "docs/start/tutorial.md", "docs/reference/performance.md")
ALONE = ("docs/start/tutorial.md",)

_BLOCK = re.compile(r"(?:^<!-- (output|file|write)(?:: (.*?))? -->\n)?^(```\w*)\n(.*?)^```$",
                    re.MULTILINE | re.DOTALL)
_OPTIONS = {"head": int, "tail": int, "from": str, "only": str, "wants": str}


class Block:
    """A fenced block of a page, with its mark."""

    def __init__(self, text, match):
        self.line = text.count("\n", 0, match.start(3)) + 1
        self.kind, self.words, self.body = match.group(1), match.group(2) or "", match.group(4)

    def file(self, read):
        """The path, and the text of the file that is shown; None: it is not there."""
        path, _, options = self.words.partition(" ")
        text = read(path)
        if text is None:
            return path, None
        return path, "\n".join(cut(text.split("\n"), self.options(options)))

    def options(self, words=None):
        """NAME -> value. ValueError: a word that is none of them."""
        found = {}
        for word in shlex.split(self.words if words is None else words):
            name, _, value = word.partition("=")
            if name not in _OPTIONS:
                raise ValueError("there is no option %s" % word)
            found[name] = _OPTIONS[name](value)
        return found

    def commands(self):
        """The commands, each as it stands, without the "$ "."""
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
        """What stands there beside the commands."""
        left = self.body
        for command in self.commands():
            left = left.replace("$ " + command + "\n", "", 1)
        return left.strip()


def goes_on(command):
    """Whether the next line belongs to it."""
    return command.endswith("\\") or command.count("'") % 2 == 1


def blocks(text):
    return [Block(text, match) for match in _BLOCK.finditer(text)]


def check(page, text, read):
    """(line, words) of what is wrong. `read`: path -> text of a file of the tree, or None."""
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
                found.append((block.line, "%s is not there" % path))
            elif there != block.body:
                words = "differs from %s; run tools/docs_outputs --files"
                found.append((block.line, words % path))
        elif block.kind is None and page in PAGES and block.commands() and block.shown():
            found.append((block.line, "an output that nobody made: mark it with <!-- output -->"))
    return found


def cut(lines, options):
    """The lines that are shown."""
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
    """The page with its blocks made anew. `run`: command -> what it prints; None: only files."""
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
        # Bazel says on standard error what it builds; a program that it runs prints the figures.
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
    # The tree itself, though Bazel runs a link to this file.
    here = os.path.dirname(os.path.realpath(__file__))
    sys.exit(main(os.path.dirname(os.path.dirname(here)), sys.argv[1:]))
