"""Memory moves while two workers compute: what `./dev demo` shows after the trace.

usage: demo.py GMB_TRANSFORMER GMBD GMBCTL
"""
import os
import queue
import sys
import threading
import time

import runs

LOW_WORK = [*runs.LOW_WORK, '--pause', '5', '--progress']
HIGH_WORK = [*runs.HIGH_WORK, '--pause', '5', '--progress']
FULL_PAGES = 600  # of the low tenant's 768; the device holds 768


class Show:
    """A worker whose progress is printed as it comes."""

    def __init__(self, name, running, group, work, lines):
        self.name, self.out, self.lines = name, '', lines
        self.process = running.worker(group, *work)
        self.threads = [threading.Thread(target=self.follow), threading.Thread(target=self.keep)]
        for thread in self.threads:
            thread.start()

    def follow(self):
        for line in self.process.stderr:
            self.lines.put((self, line.rstrip()))
        self.lines.put((self, None))

    def keep(self):
        self.out = self.process.stdout.read()

    def end(self):
        for thread in self.threads:
            thread.join()
        assert self.process.wait() == 0, f'{self.name} failed'
        return [line for line in self.out.splitlines() if line.startswith('sequence')]


def used_pages(line):
    """Those on the device and those on the host."""
    words = line.split('pages: ')[-1].split()
    return int(words[0]) + int(words[4])


def show(running):
    begin = time.monotonic()

    def say(text):
        print(f'{time.monotonic() - begin:5.1f} s  {text}', flush=True)

    lines = queue.Queue()
    say('low  (priority 100) comes and computes: 24 sequences, 6 MiB of KV; the device has 6 MiB')
    low, high = Show('low', running, runs.LOW, LOW_WORK, lines), None
    alive = 1
    while alive:
        source, line = lines.get()
        if line is None:
            alive -= 1
            say(f'{source.name:4} has ended')
            continue
        say(line)
        if high is None and used_pages(line) >= FULL_PAGES:
            say('high (priority 200) comes: 12 sequences, 3 MiB of KV')
            high = Show('high', running, runs.HIGH, HIGH_WORK, lines)
            alive += 1
    for worker, work in ((low, runs.LOW_WORK), (high, runs.HIGH_WORK)):
        same = worker is not None and worker.end() == runs.plain(*work)
        name = worker.name if worker else 'high'
        say(f'{name:4} generated the tokens of an undisturbed run: {"yes" if same else "NO"}')
        if not same:
            sys.exit(1)


if __name__ == '__main__':
    runs.TRANSFORMER, runs.GMBD, runs.GMBCTL = sys.argv[1:]
    if os.geteuid() != 0:
        print('memory between tenants: only root can make processes of two tenants')
        sys.exit(0)
    with runs.broker('', 'MemoryLow=3584K\n') as broker:
        show(broker)
