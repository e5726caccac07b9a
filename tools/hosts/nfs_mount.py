"""nfs_mount.py SERVER_FOLDER MOUNT_POINT CONTROL_FILE: mounts SERVER_FOLDER by FUSE, with what
programs see of a folder on NFS, for a kernel need not have NFS. The control file is JSON, and is
read at each call:

  cache_s      at the start: how long names, attributes and lists of names may be old
  away         true: the server does not answer, and calls wait (a hard mount)
  write_error  the name of an errno, such as "EDQUOT": write() succeeds, and fsync() and close() fail,
               for the client sends data only then; what was written is lost
  generation   a higher number: what was opened under a lower one is ESTALE
  lost         the part of the answers to rename, unlink, mkdir and rmdir that are lost; the client
               asks again, and is told that the thing is done already

A file that another host has removed is ESTALE. One that is open here gets another name until it is
closed (libfuse calls it .fuse_hidden, NFS .nfs).
"""
import errno
import functools
import json
import os
import random
import sys
import threading
import time

import fusepy


class Control:
    def __init__(self, path):
        self.path, self.stamp, self.values = path, None, {}

    def get(self, name, default=None):
        stamp = os.stat(self.path).st_mtime_ns
        if stamp != self.stamp:
            with open(self.path, encoding="utf-8") as file:
                self.values = json.load(file)
            self.stamp = stamp
        return self.values.get(name, default)

    def wait_for_server(self):
        while self.get("away"):
            time.sleep(0.05)


class File:
    def __init__(self, descriptor, generation):
        self.descriptor, self.generation = descriptor, generation
        self.dirty = []  # (offset, bytes): not at the server yet
        self.mutex = threading.Lock()


def asks_server(call):
    @functools.wraps(call)
    def wrapped(self, *args):
        self.control.wait_for_server()
        return call(self, *args)
    return wrapped


def may_lose_answer(told):
    """`told`: the errno that a repeated call gets."""
    def decorate(call):
        @functools.wraps(call)
        def wrapped(self, *args):
            self.control.wait_for_server()
            result = call(self, *args)
            if self.random.random() < self.control.get("lost", 0):
                raise fusepy.FuseOSError(told)
            return result
        return wrapped
    return decorate


class Nfs(fusepy.Operations):
    def __init__(self, server, control):
        self.server, self.control, self.random = server, control, random.Random(os.getpid())
        self.files, self.next = {}, 1
        self.lists = {}  # path -> (names, when)
        self.mutex = threading.Lock()

    # ---- helpers ----

    def at(self, path):
        return self.server + path

    def keep(self, descriptor):
        with self.mutex:
            handle, self.next = self.next, self.next + 1
            self.files[handle] = File(descriptor, self.control.get("generation", 0))
        return handle

    def file(self, handle):
        file = self.files[handle]
        if file.generation < self.control.get("generation", 0) or os.fstat(file.descriptor).st_nlink == 0:
            raise fusepy.FuseOSError(errno.ESTALE)
        return file

    def send(self, file):
        with file.mutex:
            dirty, file.dirty = file.dirty, []
            if dirty and self.control.get("write_error"):
                raise fusepy.FuseOSError(getattr(errno, self.control.get("write_error")))
            for offset, data in dirty:
                os.pwrite(file.descriptor, data, offset)

    def forget_list(self, path):
        self.lists.pop(os.path.dirname(path), None)

    # ---- files ----

    @asks_server
    def create(self, path, mode, fi=None):
        self.forget_list(path)
        return self.keep(os.open(self.at(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode))

    @asks_server
    def open(self, path, flags):
        # Appending is the kernel's: it gives offsets.
        return self.keep(os.open(self.at(path), flags & ~(os.O_APPEND | os.O_CREAT | os.O_EXCL)))

    def write(self, path, data, offset, handle):
        file = self.file(handle)
        with file.mutex:
            file.dirty.append((offset, bytes(data)))
        return len(data)

    @asks_server
    def read(self, path, size, offset, handle):
        file = self.file(handle)
        self.send(file)
        return os.pread(file.descriptor, size, offset)

    @asks_server
    def truncate(self, path, length, handle=None):
        if handle is not None:
            self.send(self.file(handle))
        os.truncate(self.at(path), length)

    @asks_server
    def flush(self, path, handle):
        self.send(self.file(handle))

    @asks_server
    def fsync(self, path, datasync, handle):
        file = self.file(handle)
        self.send(file)
        os.fsync(file.descriptor)

    def release(self, path, handle):
        with self.mutex:
            file = self.files.pop(handle)
        os.close(file.descriptor)

    @asks_server
    def getattr(self, path, handle=None):
        if handle is not None:
            self.send(self.file(handle))
        stat = os.lstat(self.at(path))
        return {name: getattr(stat, name) for name in ("st_atime", "st_ctime", "st_gid", "st_mode",
                                                       "st_mtime", "st_nlink", "st_size", "st_uid")}

    @asks_server
    def chmod(self, path, mode):
        os.chmod(self.at(path), mode)

    def chown(self, path, uid, gid):
        raise fusepy.FuseOSError(errno.EPERM)  # root is squashed

    @asks_server
    def utimens(self, path, times=None):
        os.utime(self.at(path), times)

    @asks_server
    def statfs(self, path):
        stat = os.statvfs(self.at(path))
        return {name: getattr(stat, name) for name in ("f_bavail", "f_bfree", "f_blocks", "f_bsize",
                                                       "f_favail", "f_ffree", "f_files", "f_frsize")}

    # ---- names ----

    @asks_server
    def readdir(self, path, handle):
        names, when = self.lists.get(path, ([], -1e9))
        if time.monotonic() - when > self.control.get("cache_s", 0):
            names = os.listdir(self.at(path))
            self.lists[path] = (names, time.monotonic())
        return [".", "..", *names]

    @may_lose_answer(errno.ENOENT)
    def rename(self, old, new):
        self.forget_list(old)
        self.forget_list(new)
        os.rename(self.at(old), self.at(new))

    @may_lose_answer(errno.ENOENT)
    def unlink(self, path):
        self.forget_list(path)
        os.unlink(self.at(path))

    @may_lose_answer(errno.EEXIST)
    def mkdir(self, path, mode):
        self.forget_list(path)
        os.mkdir(self.at(path), mode)

    @may_lose_answer(errno.ENOENT)
    def rmdir(self, path):
        self.forget_list(path)
        self.lists.pop(path, None)
        os.rmdir(self.at(path))

    @asks_server
    def fsyncdir(self, path, datasync, handle):
        return 0


def main():
    server, mount_point, control_file = sys.argv[1:]
    control = Control(control_file)
    cache_s = control.get("cache_s", 0)
    fusepy.FUSE(Nfs(os.path.realpath(server), control), mount_point, foreground=True, raw_fi=False,
                attr_timeout=cache_s, entry_timeout=cache_s, negative_timeout=cache_s,
                fsname="divvy-nfs")


if __name__ == "__main__":
    main()
