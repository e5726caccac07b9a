"""Prepares the public headers of this tree for doxygen.

Divvy's comments are plain `//`, which doxygen does not read. `for_doxygen` returns a header in
which every comment is a `///` above what it describes. It leaves out what a program does not use:
private and protected members, namespaces called `internal`, friend classes, and the bodies of
macros. It also leaves out declarations that are explained elsewhere: forward declarations,
specialisations and deduction guides without a comment, and members that are defined outside their
class.
"""
import ast
import bisect
import itertools
import os
import re

_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def roots(tree):
    """The headers that a program includes: `roots` of the sdk_tar in BUILD."""
    with open(os.path.join(tree, "BUILD"), encoding="utf-8") as file:
        calls = [node for node in ast.walk(ast.parse(file.read())) if isinstance(node, ast.Call)]
    (sdk,) = [call for call in calls if getattr(call.func, "id", "") == "sdk_tar"]
    return ast.literal_eval({word.arg: word.value for word in sdk.keywords}["roots"])


def public(tree):
    """Path -> text of the headers that a program includes, and of those that these include.

    Headers with nothing for a program are left out.
    """
    included = roots(tree)
    texts, left = {}, list(included)
    while left:
        path = left.pop()
        if path not in texts and os.path.isfile(os.path.join(tree, path)):
            with open(os.path.join(tree, path), encoding="utf-8") as file:
                texts[path] = file.read()
            left += _INCLUDE.findall(texts[path])
    return {path: text for path, text in sorted(texts.items())
            if path in included or Header(text).offers_something()}


# ---- comments

# They stand for /* and */ within `@code`, because doxygen 1.9 takes the latter for the end of the
# comment.
OPEN, CLOSE = "\ue000", "\ue001"


def _escaped(text):
    """Text without anything that doxygen takes for a command, tag, entity, dash or link."""
    return re.sub(r'[\\@<>&$#%"]|--+|(?<!\w)::', lambda found: "\\" + found.group(), text)


_EMPHASIS = re.compile(r"(?<![\w*])\*(\w(?:[\w ]*\w)?)\*(?![\w*])")


def _paragraph(lines):
    """Joins the lines, so that no line begins by chance like a list."""
    parts = " ".join(lines).split("`")
    if len(parts) % 2 == 0:
        parts[-2:] = ["`".join(parts[-2:])]
    return "".join("<code>%s</code>" % _escaped(part) if i % 2 else
                   _EMPHASIS.sub(r"<em>\1</em>", _escaped(part)) for i, part in enumerate(parts))


def _prose(lines):
    """A paragraph and its list: lines with a dash at its start or after a colon."""
    parts = [[]]
    for line in lines:
        listed = parts[-1] and parts[-1][0].startswith("- ")
        if line.startswith("- ") and (listed or not parts[-1] or parts[-1][-1].endswith(":")):
            parts.append([])
        parts[-1].append(line.strip())
    return [_paragraph(part) for part in parts if part]


def _example(lines):
    """Code or a table, unchanged."""
    indent = min(len(line) - len(line.lstrip()) for line in lines if line)
    lines = [line[indent:].replace("/*", OPEN).replace("*/", CLOSE) for line in lines]
    table = any(re.match(r"\w[^;{]*[^;{\s] {3,}(?!//)\S", line) for line in lines)
    cpp = not table and any(re.search(r"[;{}]|[\w>]\(", line) for line in lines)
    return ["@code{%s}" % (".cpp" if cpp else ".unparsed"), *lines, "@endcode"]


# No sentence ends after "et al." or "...", or before a small letter.
_SENTENCE = re.compile(r"(?<!\bal)(?<!\be\.g)(?<!\bi\.e)(?<!\.)[.?!] (?=[^a-z])")


def _summary(words):
    """The first sentence, and the rest."""
    for end in _SENTENCE.finditer(words):
        first = words[:end.start() + 1]
        if first.count("<code>") == first.count("</code>"):
            return first, words[end.end():]
    return words, ""


def parts(comment):
    """(kind, lines). The kind is "code" for indented lines, an example or a table; "prose"; or ""
    for empty lines."""
    kinds, in_list = [], False
    for line in comment:
        in_list = line.startswith("- ") or in_list and bool(re.match(r"  \S", line))
        kinds.append("code" if line.startswith("  ") and not in_list else "prose" if line else "")
    for i in range(1, len(kinds)):
        if not kinds[i] and kinds[i - 1] == "code" and next(filter(None, kinds[i:]), "") == "code":
            kinds[i] = "code"
    return [(kind, [line for _, line in part])
            for kind, part in itertools.groupby(zip(kinds, comment), key=lambda pair: pair[0])]


def doc(comment):
    """A comment (its lines, without //) for doxygen."""
    out, found = [], parts(comment)
    for kind, lines in found:
        out += _example(lines) if kind == "code" else _prose(lines) if kind else [""]
    if found and found[0][0] == "prose":
        first, rest = _summary(out[0])
        out[:1] = ["@brief " + first, "", *filter(None, [rest])]
    return out


# ---- declarations

_TOKEN = re.compile(r'''
  (?P<directive> ^[ \t]*\#(?:\\\n|[^\n])*)
| (?P<comment> //[^\n]*)
| (?P<literal> /\*.*?\*/ | R"(?P<mark>[^(\s"]*)\(.*?\)(?P=mark)" | "(?:[^"\\\n]|\\.)*"
             | '(?:[^'\\\n]|\\.)+')
| \w[\w']*
''', re.VERBOSE | re.MULTILINE | re.DOTALL)
_ACCESS = re.compile(r"(public|protected|private)\s*:(?!:)")
_NAMESPACE = re.compile(r"(?:inline\s+)?namespace\b\s*([\w:]*)\s*$|extern\s*$")
_CLASS = re.compile(r"(class|struct|union|enum)\b(?!.*\()", re.DOTALL)
_MACRO = re.compile(r"\s*#define (\w+)(\([^)]*\))?(.*)", re.DOTALL)


class Declaration:
    """A declaration in a header.

    start, end       its offsets in the text
    words            its head, without template <...>
    template         whether it is a template
    kind             "namespace", "class", "struct", "union", "enum", or "other"
    body             the offsets of the text between its braces, None if it has no braces
    children         the declarations in its body; none if `kind` is "other"
    above, behind    the comments above it and on its own lines
    hidden           whether a program does not use it
    outside          whether it is outside classes
    """

    def __init__(self, start, end, words, template, body, kind, children):
        self.start, self.end, self.body = start, end, body
        self.words, self.template = words, template
        self.kind, self.children, self.above, self.behind = kind, children, [], []
        self.hidden = self.outside = False

    def function(self):
        """Its name if it is a function, else None."""
        if self.kind != "other" or re.match(r"(using|typedef|friend)\b", self.words):
            return None
        found = re.search(r"(operator\s*(?:\(\)|\[\]|[^\s(]+)|~?\w+)\s*\(", self.words)
        return found.group(1) if found and "=" not in self.words[:found.start()] else None

    def is_internal(self):
        """Whether it is a namespace with nothing for a program."""
        name = _NAMESPACE.match(self.words) if self.kind == "namespace" else None
        return bool(name) and ("internal" in (name.group(1) or "").split("::")
                               or self.words == "namespace")

    def is_forward(self):
        return bool(re.match(r"(class|struct|enum class) \w+$", self.words)) and not self.body

    def is_elsewhere(self):
        """Whether it is explained elsewhere."""
        if self.is_forward() or re.match(r"friend (class|struct)\b", self.words):
            return not (self.template and self.above)
        if self.words.endswith("&& = delete"):
            return True
        if self.above:
            return False
        specialised = re.match(r"(class|struct) \w+<", self.words)
        guide = re.search(r"\) -> \w+<", self.words) and not self.words.startswith("auto ")
        member_of_class = re.match(r"[^=(]*\w(<[\w, .]*>)?::(~?\w+|operator\W+)\(", self.words)
        return bool(specialised or guide or self.outside and member_of_class and self.body)


def _without_template(words):
    while re.match(r"template\s*<", words):
        depth, i = 1, words.index("<") + 1
        while depth:
            depth += (words[i] == "<") - (words[i] == ">")
            i += 1
        words = words[i:].strip()
    return words


def _without_arguments(words):
    """The text without template arguments (what is between < and >)."""
    while re.search(r"<[^<>]*>", words):
        words = re.sub(r"<[^<>]*>", "", words)
    return words


def _closing(code, brace):
    depth = 0
    for i in range(brace, len(code)):
        depth += (code[i] == "{") - (code[i] == "}")
        if depth == 0:
            return i
    raise ValueError("a brace is not closed")


class Header:
    """The declarations of a header, and the comments that belong to each."""

    def __init__(self, text):
        self.lines = text.split("\n")
        self.starts = [0] + [i + 1 for i, char in enumerate(text) if char == "\n"]
        self.comments, self.macros, self.guard, code = [], {}, None, list(text)
        for token in _TOKEN.finditer(text):
            if token.lastgroup is None:
                continue
            if token.group("comment"):
                self.comments.append(token.start())
            if token.group("directive") and self.guard is None:
                self.guard = self.line(token.start())
            if token.group("directive") and _MACRO.match(token.group()):
                self.macros[self.line(token.start())] = token.group()
            for i in range(*token.span()):
                code[i] = "\n" if text[i] == "\n" else " "
        # The text with comments, literals and directives blanked.
        self.code = "".join(code)
        self.declarations = self._declarations(0, len(text), "namespace")
        # Comments about the whole file, about macros (by line), and about no declaration.
        self.about, self.about_macros, self.loose = [], {}, []
        self._place_comments()
        self._hide(self.declarations, False)

    def line(self, offset):
        return bisect.bisect_right(self.starts, offset) - 1

    def _declarations(self, start, end, scope):
        found, i, hidden = [], start, scope == "class"
        while True:
            i = re.compile(r"[\s;,]*").match(self.code, i, end).end()
            if i == end:
                return found
            access = _ACCESS.match(self.code, i) if scope not in ("namespace", "enum") else None
            if access:
                i, hidden = access.end(), access.group(1) != "public"
                continue
            found.append(self._declaration(i, end, scope))
            found[-1].hidden, found[-1].outside = hidden, scope == "namespace"
            i = found[-1].end

    def _declaration(self, start, end, scope):
        """The declaration that begins at `start`."""
        depth, i, words, body, kind = 0, start, None, None, "other"
        while i < end:
            char = self.code[i]
            depth += (char in "([") - (char in ")]")
            if char == "{":
                closing = _closing(self.code, i)
                if words is None and depth == 0:
                    words = _without_template(self.code[start:i].strip())
                    plain = _without_arguments(re.sub(r"\[\[.*?\]\]", "", words))
                    kind = ("namespace" if _NAMESPACE.match(plain) else
                            _CLASS.match(plain).group(1) if _CLASS.match(plain) else "other")
                if depth == 0:
                    body = (i + 1, closing)
                i = closing
                following = self.code[i + 1:end].lstrip()[:1]
                if depth == 0 and (kind == "namespace" or
                                   kind == "other" and following not in tuple(";,{=.)")):
                    break
            elif depth == 0 and (char == ";" or char == "," and scope == "enum"):
                break
            i += 1
        i = min(i + 1, end)
        words = words or _without_template(self.code[start:i].strip(" \n;,"))
        children = self._declarations(*body, kind) if kind != "other" else []
        template = self.code.startswith("template", start)
        return Declaration(start, i, re.sub(r"\s+", " ", words), template, body, kind, children)

    def _around(self, offset):
        """The owner and the siblings of the text at `offset`, and the sibling that contains it."""
        owner, siblings = None, self.declarations
        while True:
            around = next((one for one in siblings if one.start <= offset < one.end), None)
            if not around or not around.children or not around.body[0] <= offset < around.body[1]:
                return owner, siblings, around
            owner, siblings = around, around.children

    def _place_comments(self):
        blocks, behind = [], None
        for offset in self.comments:
            line, (owner, siblings, around) = self.line(offset), self._around(offset)
            column = offset - self.starts[line]
            words = re.sub(r"^// ?", "", self.lines[line][column:].rstrip())
            alone = not self.lines[line][:column].strip()
            if around and around.body and around.body[0] <= offset < around.body[1]:
                continue  # inside the body of a function
            if alone and behind and behind[:2] == (line - 1, column):
                target = behind[2]  # continues the comment of the line before
            elif alone:
                target = around
            else:
                target = around or self._left_of(offset, owner, siblings)
            if target:
                target.behind.append(words)
                behind = (line, column, target)
            elif alone and blocks and blocks[-1][0] == line - 1 and blocks[-1][1] is owner:
                blocks[-1][0] = line
                blocks[-1][2].append(words)
            elif alone:
                blocks.append([line, owner, [words]])
        for last, owner, words in blocks:
            self._place_block(last, owner, words)

    def _left_of(self, offset, owner, siblings):
        """The declaration that a comment after code, between two declarations, describes."""
        line = self.line(offset)
        if owner and self.line(owner.body[0]) == line and siblings[0].start > offset:
            return owner
        return next((one for one in siblings if one.kind != "namespace" and one.end <= offset
                     and self.line(one.end - 1) == line), None)

    def _place_block(self, last, owner, words):
        if re.fullmatch(r"-{4} [^-]+-*", "\n".join(words)):
            return  # a line that divides the header is no description
        siblings = owner.children if owner else self.declarations
        below = last + 1
        for one in siblings:
            if self.line(one.start) == below and one.is_forward() and not one.template:
                below += 1  # the comment is about the next declaration
            elif self.line(one.start) == below and one.kind != "namespace":
                one.above = words
                return
        if below == self.guard:
            self.about = words + self.about
        elif below in self.macros:
            self.about_macros[below] = words
        else:
            self.loose.append((owner, words))

    def _hide(self, declarations, hidden):
        for one in declarations:
            one.hidden = one.hidden or hidden or one.is_internal() or one.is_elsewhere()
            self._hide(one.children, one.hidden)

    # ---- for doxygen

    def _shown_lines(self):
        """The code of each line, without comments and without what is hidden."""
        lines = list(self.lines)
        for offset in self.comments:
            line = self.line(offset)
            lines[line] = lines[line][:offset - self.starts[line]].rstrip()
        for one in self._all(self.declarations):
            first, last = self.line(one.start), self.line(one.end - 1)
            if one.hidden:
                lines[first:last + 1] = [""] * (last + 1 - first)
            elif one.template and one.is_forward():
                # Doxygen does not document a class that is only declared.
                lines[last] = lines[last].replace(";", " {};")
        for first, text in self.macros.items():
            name, parameters, _ = _MACRO.match(text).groups()
            last, was_hidden = first + text.count("\n"), not lines[first]
            lines[first:last + 1] = [""] * (last + 1 - first)
            # A macro without a comment that another macro uses is not for programs.
            mine = first in self.about_macros or not any(
                re.search(r"\b%s\b" % name, other)
                for line, other in self.macros.items() if line != first)
            if mine and not was_hidden and first != self.guard + 1:
                lines[first] = "#define " + name + (parameters or "")
        return lines

    def _all(self, declarations):
        for one in declarations:
            yield one
            yield from self._all(one.children)

    def shown(self):
        """The declarations that a program may use, including those in classes and enums."""
        return [one for one in self._all(self.declarations)
                if not one.hidden and one.kind != "namespace"]

    def offers_something(self):
        return bool(self.shown() or self.about_macros)

    def _document(self, declarations, in_class, docs):
        """Adds the comment of each declaration to `docs`, by line."""
        before = None
        for one in [one for one in declarations if not one.hidden]:
            above = one.above
            if not above and before and self._share(before, one, in_class):
                above = one.above = before.above
            before = one
            words = above + ([""] if above and one.behind else []) + one.behind
            if words:
                docs.setdefault(self.line(one.start), []).extend(words)
            self._document(one.children, one.kind != "namespace", docs)

    def _share(self, before, one, in_class):
        """Whether the comment above `before` also describes the next declaration."""
        if self.line(one.start) != self.line(before.end - 1) + 1 or "= delete" in one.words:
            return False
        if in_class:
            return bool(one.function()) and one.function() == before.function()
        if one.function():
            return bool(before.function())
        return one.kind == before.kind == "struct" and not one.behind

    def for_doxygen(self):
        """(line of the header or -1, text) of each line of the output."""
        about = list(self.about)
        for owner, words in self.loose:
            if not owner or owner.kind == "namespace" and not owner.hidden:
                about += [""] + words
            elif owner.kind != "namespace":
                owner.above = owner.above + [""] + words
        docs = dict(self.about_macros)
        self._document(self.declarations, False, docs)
        out = [(-1, "/// @file")] + [(-1, ("/// " + text).rstrip()) for text in doc(about)]
        out.append((-1, ""))
        for i, line in enumerate(self._shown_lines()):
            if line and i in docs:
                indent = re.match(r" *", line).group()
                out += [(i, (indent + "/// " + text).rstrip()) for text in doc(docs[i])]
            if line and not re.match(r" *(private|protected):$", line):
                out.append((i, line))
        return out


def for_doxygen(text):
    """A header for doxygen, and for each line of it the line of the original header."""
    lines = Header(text).for_doxygen()
    return "\n".join(line for _, line in lines), [number + 1 for number, _ in lines]


def macro_name(define):
    return _MACRO.match(define).group(1)


def summary(text):
    """The first sentence about a header."""
    return doc(Header(text).about)[0].replace("@brief ", "")
