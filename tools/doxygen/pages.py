"""The API reference: the public headers, as HTML, by headers.py and doxygen."""
import os
import re
import subprocess
import tempfile

import headers

_HERE = os.path.dirname(os.path.realpath(__file__))
_EXAMPLE_COMMENT = re.compile("%s(.*?)%s" % (headers.OPEN, headers.CLOSE))


def _write(folder, path, text):
    path = os.path.join(folder, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def _layout(folder):
    """Doxygen's order of a page, but with the text about a class before its members."""
    subprocess.run(["doxygen", "-l", "layout.xml"], cwd=folder, check=True)
    text = re.sub(r"\n *<detaileddescription [^\n]*", "", _read(folder, "layout.xml"))
    return re.sub(r"<briefdescription [^\n]*", '<detaileddescription title=""/>', text)


def _with_comments_of_examples(text):
    return _EXAMPLE_COMMENT.sub(r'<span class="comment">/*\1*/</span>', text)


def build(texts, out):
    """Writes the pages of `texts` (path -> header). Returns the errors; "" if there are none."""
    lines, rows = {}, []
    with tempfile.TemporaryDirectory() as folder:
        folder = os.path.realpath(folder)
        for path, text in texts.items():
            shown, lines[path] = headers.for_doxygen(text)
            _write(folder, path, shown)
            rows.append("<tr><td>%s</td><td>%s</td></tr>" % (path, headers.summary(text)))
        main_page = _read(_HERE, "mainpage.dox").replace("@HEADERS@", "\n".join(rows))
        _write(folder, "mainpage.dox", main_page)
        _write(folder, "layout.xml", _layout(folder))
        settings = _read(_HERE, "Doxyfile") + 'OUTPUT_DIRECTORY = "%s"\n' % os.path.abspath(out)
        done = subprocess.run(["doxygen", "-"], cwd=folder, input=settings, capture_output=True,
                              encoding="utf-8", check=False)
        log = (done.stdout + done.stderr).replace(folder + "/", "")
    for name in os.listdir(out):
        if name.endswith(".html"):
            _write(out, name, _with_comments_of_examples(_read(out, name)))

    def at(found):
        path, line = found.group(1), int(found.group(2))
        return "%s:%d: " % (path, lines[path][line - 1] if path in lines else line)
    found = re.sub(r"^(\S+?):(\d+): ", at, log, flags=re.MULTILINE).strip()
    return found or ("doxygen ended with %d" % done.returncode if done.returncode else "")
