"""python3 -m divvy COMMAND ...: divvyctl, which came with this package."""
import os
import sys


def divvyctl():
    """The path of divvyctl: the wheel's, or that of a build of the sources. None: there is none."""
    here = os.path.dirname(os.path.abspath(__file__))
    for path in ("bin/divvyctl", "../../tools/divvyctl"):
        path = os.path.join(here, path)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


def main():
    """Becomes divvyctl, with the arguments of this process."""
    path = divvyctl()
    if path is None:
        sys.exit("divvy: this copy of the package has no divvyctl: install the wheel that "
                 "tools/wheel makes, or call the divvyctl of another installation")
    os.execv(path, [path] + sys.argv[1:])


if __name__ == "__main__":
    main()
