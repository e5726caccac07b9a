#!/usr/bin/env python3
"""terminal_test.py DIVVYCTL: runs `divvyctl top` in a terminal of its own (a pty), types, resizes
it and sends signals. However it ends, the terminal must be as before."""
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import unittest

DIVVYCTL = os.path.realpath(sys.argv.pop(1))
COMMAND = [DIVVYCTL, "top", "--addr=127.0.0.1:1,127.0.0.1:2"]  # nobody serves there
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
NO_WRAP, WRAP = b"\x1b[?7l", b"\x1b[?7h"
PATIENCE = 60


class Terminal:
    """`divvyctl top` in a terminal."""

    def __init__(self, own_session=True):
        self.ours, self._theirs = pty.openpty()
        self.resize(24, 100)
        self.before = termios.tcgetattr(self._theirs)
        self.seen = b""
        # Ctrl-C needs a session with this terminal. A process that leads a session cannot be stopped.
        take = (lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if own_session else os.setpgrp
        self.process = subprocess.Popen(COMMAND, stdin=self._theirs, stdout=self._theirs, stderr=self._theirs, start_new_session=own_session,
                                        preexec_fn=take, env=dict(os.environ, TERM="xterm"))

    def resize(self, rows, columns):
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        os.write(self.ours, text)

    def read_until(self, wanted):
        """Forgets what was read before, and returns what came until `wanted`. The lines of a
        terminal that is left wrap again."""
        self.seen = b""
        while wanted not in self.seen:
            ready, _, _ = select.select([self.ours], [], [], PATIENCE)
            if not ready:
                raise AssertionError("no %r within %d s, but %r" % (wanted, PATIENCE, self.seen[-2000:]))
            self.seen += os.read(self.ours, 65536)
        if wanted == LEAVE and WRAP not in self.seen:
            raise AssertionError("lines do not wrap: %r" % self.seen[-2000:])
        return self.seen

    def mode(self):
        return termios.tcgetattr(self._theirs)

    def end(self):
        """(exit code, whether the terminal is as before)"""
        code = self.process.wait(PATIENCE)
        return code, self.mode() == self.before

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.ours)
        os.close(self._theirs)


class TopTest(unittest.TestCase):
    def start(self, **how):
        terminal = Terminal(**how)
        self.addCleanup(terminal.close)
        shown = terminal.read_until(b"q quit")
        self.assertIn(ENTER, shown)
        self.assertIn(NO_WRAP, shown)
        self.assertNotEqual(terminal.mode(), terminal.before)
        return terminal

    def test_q_ends_it(self):
        terminal = self.start()
        self.assertIn(b"no coordinator answers; 0 of 2 tasks do", terminal.seen)
        self.assertIn(b"cannot reach 127.0.0.1:1", terminal.seen)
        terminal.type(b"q")
        terminal.read_until(LEAVE)
        self.assertEqual(terminal.end(), (0, True))

    def test_signals_end_it_with_their_code(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            terminal = self.start()
            terminal.process.send_signal(number)
            terminal.read_until(LEAVE)
            self.assertEqual(terminal.end(), (128 + number, True), number)

    def test_a_crash_restores_the_terminal_too(self):
        for number in (signal.SIGSEGV, signal.SIGABRT):
            terminal = self.start()
            terminal.process.send_signal(number)
            terminal.read_until(LEAVE)
            self.assertEqual(terminal.end(), (-number, True), number)

    def test_ctrl_c_is_a_signal(self):
        terminal = self.start()
        terminal.type(b"\x03")
        self.assertEqual(terminal.end(), (130, True))

    def test_it_can_be_stopped_and_goes_on(self):
        terminal = self.start(own_session=False)
        terminal.process.send_signal(signal.SIGTSTP)
        terminal.read_until(LEAVE)
        os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED)
        self.assertEqual(terminal.mode(), terminal.before)
        terminal.process.send_signal(signal.SIGCONT)
        terminal.read_until(ENTER)
        terminal.type(b"q")
        self.assertEqual(terminal.end(), (0, True))

    def test_it_goes_on_where_nobody_could_continue_it(self):
        terminal = self.start()
        terminal.process.send_signal(signal.SIGTSTP)
        terminal.read_until(ENTER)
        terminal.type(b"q")
        self.assertEqual(terminal.end(), (0, True))

    def test_a_digit_shows_one_task_and_escape_all(self):
        terminal = self.start()
        terminal.type(b"2")
        terminal.read_until(b"address  127.0.0.1:2")
        terminal.type(b"\x1b")
        terminal.read_until(b"servers first")
        terminal.type(b"q")
        self.assertEqual(terminal.end(), (0, True))

    def test_it_follows_the_size_of_the_terminal(self):
        terminal = self.start()
        terminal.resize(6, 20)
        # Its lines are erased before they are written, so the last column stays.
        shown = terminal.read_until(b"\x1b[J\x1b[1mq quit  p servers fi\x1b[0m")
        self.assertIn(b"\x1b[K", shown)
        terminal.type(b"q")
        self.assertEqual(terminal.end(), (0, True))


class LinesTest(unittest.TestCase):
    def test_without_a_terminal_there_are_lines_and_no_control_codes(self):
        done = subprocess.run(COMMAND + ["--once"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertTrue(done.stdout.startswith(b"no coordinator answers; 0 of 2 tasks do\n\n#  TASK"), done.stdout)
        self.assertNotIn(b"\x1b", done.stdout)
        self.assertNotIn(b"q quit", done.stdout)

    def test_lines_come_again_until_nobody_reads_them(self):
        process = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        for _ in range(2):
            while not process.stdout.readline().startswith(b"no coordinator answers"):
                pass
        process.stdout.close()
        self.assertIn(process.wait(PATIENCE), (0, -signal.SIGPIPE))

    def test_a_word_is_a_misuse(self):
        done = subprocess.run([DIVVYCTL, "top", "now"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
        self.assertEqual((done.returncode, done.stderr), (64, b"divvyctl top takes flags only\n"))


if __name__ == "__main__":
    unittest.main()
