#!/usr/bin/env python3
"""tools/api_pages.py OUT [ROOT]: writes the reference of the API, made of the contracts in the public headers, as Markdown into the folder OUT.

Public is what divvy.h and program/main.h include, and what that includes, but for headers that no program names (_UNSEEN): a page for each, an index of the
headers, and one of all names. A page has what stands before its first declaration, then each declaration with the comment above it; of a class the public part.
Bodies of functions and macros, private and protected members, `namespace internal` and what is deleted are left out.
"""
import os
import re
import sys
import textwrap

ROOTS = ("divvy.h", "program/main.h")

# Included by public headers, for their private parts and for those who implement Divvy.
_UNSEEN = {"base/executor.h", "base/mutex.h", "base/strong_id.h", "cluster/error.h", "cluster/horizon.h", "cluster/ids.h", "cluster/layout.h",
           "cluster/messages.h", "cluster/transfer_plan.h", "strategy/local_objects.h", "strategy/rendezvous.h", "strategy/variable_store.h"}

_INCLUDE = re.compile(r'^#include "([\w/]+\.h)"', re.MULTILINE)
_CLASS = re.compile(r"^(?:template\s*<.*?>\s*)?(class|struct)\s+(?:\[\[\w+\]\]\s+)?(\w+(?:<[^{;]*>)?)[^;(=]*$", re.DOTALL)
# Told of elsewhere, where no comment says otherwise: what is declared before its use, parts of
# macros, members defined outside their class, deduction guides, specialisations of a struct.
_ELSEWHERE = re.compile(r"(?:template\s*<[^\n]*>\s*)?(?:class|struct|enum class) \w+;|namespace |#define \w+_(?:INNER|CONCAT)\b|"
                        r"[^;{]*\b\w+::~?\w+\([^;]*\{|[^;{]*\) -> \w+<|template\s*<[^\n]*>\s*struct \w+<", re.DOTALL)
_ENUM = re.compile(r"^enum\s+(?:class\s+|struct\s+)?(\w+)")
_NAMES = tuple(re.compile(pattern) for pattern in (
    r"^using\s+(\w+)\s*=", r"^#define\s+(\w+)", r"^(?:class|struct)\s+(\w+);", r"(operator\s*(?:\(\)|\[\]|[^\s(]+))\s*\(", r"([A-Za-z_]\w*)\s*\(",
    r"([A-Za-z_]\w*)\s*(?:=|\{|;|$)"))


def headers(root):
    """The public headers, each behind those that it is made of."""
    found = []

    def add(path):
        if path in found or not os.path.isfile(os.path.join(root, path)):
            return
        with open(os.path.join(root, path), encoding="utf-8") as file:
            for included in _INCLUDE.findall(file.read()):
                add(included)
        if path not in found:
            found.append(path)
    for path in ROOTS:
        add(path)
    return [path for path in found if path not in _UNSEEN]


class Item:
    """A declaration, or several that stand together, with the comment above; or words that stand alone (no code)."""

    def __init__(self, comment, code, names):
        self.comment, self.code, self.names = comment, code, names


def without_comment(line):
    """The line up to a // that is in no text."""
    quoted, i = False, 0
    while i < len(line):
        if line[i] == "\\":
            i += 1
        elif line[i] == '"':
            quoted = not quoted
        elif line.startswith("//", i) and not quoted:
            return line[:i]
        i += 1
    return line


def depth(code):
    """Open brackets at the end of `code`, texts and characters left out."""
    code = re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'', "", "\n".join(without_comment(line) for line in code.split("\n")))
    return sum(code.count(bracket) for bracket in "({[") - sum(code.count(bracket) for bracket in ")}]")


def first_brace(code):
    """Where the first { stands that is in no parenthesis; -1 if there is none."""
    open_ones = 0
    for i, char in enumerate(code):
        open_ones += (char in "([") - (char in ")]")
        if char == "{" and open_ones == 0:
            return i
    return -1


def is_whole(lines):
    """Whether the lines are a whole declaration."""
    code = "\n".join(lines)
    if depth(code) != 0:
        return False
    end = "\n".join(without_comment(line) for line in lines).rstrip()
    if end.endswith(";"):
        return True
    return end.endswith("}") and not _CLASS.match(end[:first_brace(end)].strip())


def without_body(code):
    """A function without its body and its initialisers; anything else as it is."""
    macro = re.match(r"#define \w+(?:\([^)]*\))?", code)
    if macro:
        return macro.group(0)
    plain = "\n".join(without_comment(line) for line in code.split("\n")).rstrip()
    if not plain.endswith("}"):
        return code
    trailing = code[len(plain):].strip() if "\n" not in code else ""
    head = plain[:first_brace(plain)].rstrip()
    head = re.split(r"\)\s*(?:noexcept\s*)?:\s", head)[0] + ")" if re.search(r"\)\s*(?:noexcept\s*)?:\s", head) else head
    return head + ";" + ("  " + trailing if trailing else "")


def name_of(code):
    code = "\n".join(without_comment(line).rstrip() for line in code.strip().split("\n"))
    code = re.sub(r"^template\s*<[^\n]*>\s*\n\s*", "", code)
    for pattern in _NAMES:
        found = pattern.search(code)
        if found:
            return re.sub(r"\s+", " ", found.group(1))
    return code.split("\n")[0]


def declarations(lines):
    """(comment lines, code lines, whether a blank line stands before) of each declaration in `lines`; code is empty for a comment that stands alone."""
    comment, code, blank, found = [], [], True, []
    for line in lines:
        stripped = line.strip()
        if code:
            code.append(line)
        elif stripped.startswith("//"):
            comment.append(stripped)
            continue
        elif not stripped:
            if comment:
                found.append((comment, [], blank))
            comment, blank = [], True
            continue
        else:
            code = [line]
        if is_macro(code) or is_whole(code) or is_label(code):
            found.append((comment, code, blank))
            comment, code, blank = [], [], False
    return found + ([(comment, [], blank)] if comment else [])


def is_macro(code):
    return code[0].startswith("#") and not code[-1].endswith("\\")


def is_label(code):
    return code[0].strip() in ("public:", "private:", "protected:")


def interface(code):
    """The public part of a class, as code."""
    brace = first_brace(code)
    head, body = code[:brace].rstrip(), code[brace + 1:code.rindex("}")]
    public, parts = _CLASS.match(head.strip()).group(1) == "struct", []
    for comment, lines, blank in declarations(body.split("\n")):
        if lines and is_label(lines):
            public = lines[0].strip() == "public:"
            continue
        text = "\n".join(lines)
        if not public or text.strip().startswith("friend ") or text.endswith("= delete;") or not lines and not comment:
            continue
        indent = re.match(r" *", lines[0]).group(0) if lines else "  "
        if text and _CLASS.match(text[:first_brace(text)].strip()) and first_brace(text) >= 0:
            text = interface(text)
        parts.append(("\n" if blank and parts else "") + "".join(indent + line + "\n" for line in comment) + (without_body(text) + "\n" if text else ""))
    return head + " {\n" + "".join(parts) + "};" if parts else head + " {};"


def namespace_body(text):
    """The lines of a header that a program may use: without guards, includes, and what is internal."""
    kept, skipping = [], 0
    for line in text.split("\n"):
        if skipping:
            skipping += 1 if re.match(r"namespace \w*\s*\{", line) else -1 if re.match(r"\}\s*// namespace", line) else 0
        elif re.match(r"namespace (internal|divvy::internal)? ?\{", line):
            skipping = 1
        elif not re.match(r'(namespace [\w:]+ \{|\}\s*// namespace|#ifndef|#endif|#include|#define \w+_H_$|extern "C" \{)', line):
            kept.append(line)
        else:
            kept.append("")
    return kept


def items(text):
    """The items of a header, in order."""
    found = []
    for comment, lines, blank in declarations(namespace_body(text)):
        code = "\n".join(lines)
        brace = first_brace(code)
        is_class = brace >= 0 and _CLASS.match(code[:brace].strip())
        if _ELSEWHERE.match(code.strip()) and not comment:
            continue
        if is_class:
            found.append(Item(comment, interface(code), [is_class.group(2)]))
            continue
        name = [] if not code else [_ENUM.match(code).group(1)] if _ENUM.match(code) else [name_of(code)]
        if code and not comment and not blank and found and found[-1].code and not found[-1].code.endswith("};"):
            found[-1].code += "\n" + without_body(code)
            found[-1].names += [one for one in name if one not in found[-1].names]
        else:
            found.append(Item(comment, without_body(code) if code else "", name))
    return found


def prose(comment):
    """A comment as Markdown: paragraphs, and what is indented as code."""
    out = []
    for line in comment + [""]:
        text = re.sub(r"^// ?", "", line)
        verbatim = text.startswith("  ")
        if out and isinstance(out[-1], list) == verbatim:
            out[-1] += [text] if verbatim else "\n" + escaped(text)
        else:
            out.append([text] if verbatim else escaped(text))
    return "\n\n".join(fenced(part) if isinstance(part, list) else part for part in out).strip()


def escaped(text):
    """Words as Markdown, what is in backticks as it is."""
    return "`".join(part if i % 2 else re.sub(r"([<*_|])", r"\\\1", part) for i, part in enumerate(text.split("`")))


def fenced(lines):
    code = textwrap.dedent("\n".join(lines))
    return "```%s\n%s\n```" % ("cpp" if ";" in code else "", code)


def anchor(name):
    return re.sub(r"[^\w]", lambda char: "-%x" % ord(char.group(0)), name.replace(" ", ""))


def page(path, found):
    lines, told = ["# `%s`" % path, ""], set()
    for item in found:
        if item.names:
            shown = ", ".join("`%s`" % name for name in item.names[:6]) + (" ..." if len(item.names) > 6 else "")
            lines += ["".join('<a id="%s"></a>' % anchor(name) for name in item.names if name not in told), "## " + shown, ""]
            told.update(item.names)
        if item.comment:
            lines += [prose(item.comment), ""]
        if item.code:
            lines += ["```cpp", item.code, "```", ""]
    return "\n".join(lines)


def file_of(path):
    return path.replace("/", "_").replace(".h", ".md")


def first_words(found):
    words = " ".join(re.sub(r"^// ?", "", line) for line in (found[0].comment if found else []))
    return escaped(re.split(r"(?<=\.)\s", words)[0])


def pages(root):
    """File name -> text."""
    made, names = {}, []
    index = ["# The API", "", "What `divvy.h` and `program/main.h` include, header by header. [All names](names.md).", "", "| header | what it has |",
             "|---|---|"]
    for path in headers(root):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            found = items(file.read())
        if not any(item.code for item in found):
            continue
        made[file_of(path)] = page(path, found)
        index.append("| [%s](%s) | %s |" % (path, file_of(path), first_words(found)))
        names += [(name, file_of(path)) for item in found for name in item.names]
    made["index.md"] = "\n".join(index) + "\n"
    made["names.md"] = "# All names\n\n" + "".join("- [`%s`](%s#%s)\n" % (name, file, anchor(name)) for name, file in sorted(set(names), key=str))
    return made


def main(out, root):
    made = pages(root)
    os.makedirs(out, exist_ok=True)
    for name, text in made.items():
        with open(os.path.join(out, name), "w", encoding="utf-8") as file:
            file.write(text)
    print("%s/index.md: %d headers" % (out, len(made) - 2))


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
