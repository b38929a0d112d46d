#!/usr/bin/env python3
"""Proves that run.py reports what goes wrong in a container, and leaves nothing behind."""
import os
import shutil
import subprocess
import sys
import tempfile

import boot

HERE = os.path.dirname(os.path.abspath(__file__))

# What the cases do, the status of run.py, and what its output contains.
RUNS = [
    ('a case that passes is a pass', 'def test_it(): pass', 60, 0, 'ok 1 - test_it'),
    ('a case that fails is a failure', 'def test_it(): bed.equal(1, 2)', 60, 0,
     'not ok 1 - test_it\n# said: Traceback'),
    ('cases that die are a failure', 'raise SystemExit(0)', 60, 1, 'Bail out!'),
    ('cases that hang are ended', 'import time\ntime.sleep(1000)', 3, 1, 'Bail out! not through after 3 s'),
]


def main():
    try:
        boot.check()
    except boot.Impossible as why:
        print(f'1..0 # SKIP {why}')
        return 0
    print(f'1..{len(RUNS) + 1}')
    number = 0
    before = cgroups()
    with tempfile.TemporaryDirectory(prefix='gmbd-system-', dir='/var/tmp') as source:
        os.chmod(source, 0o755)
        os.makedirs(f'{source}/tests/system')
        shutil.copy(f'{HERE}/bed.py', f'{source}/tests/system')
        for number, (name, text, seconds, status, part) in enumerate(RUNS, 1):
            with open(f'{source}/tests/system/cases.py', 'w', encoding='utf-8') as cases:
                cases.write(f'import bed\n{text}\nif __name__ == "__main__": bed.main()\n')
            done = subprocess.run(
                [sys.executable, f'{HERE}/run.py', '--source', source, *sys.argv[1:], '--seconds',
                 str(seconds), 'cases.py'], text=True, capture_output=True, check=False)
            good = done.returncode == status and part in done.stdout
            print('ok' if good else 'not ok', f'{number} - {name}')
            if not good:
                print(f'status {done.returncode}: {done.stdout}{done.stderr}', file=sys.stderr)
    # Each run had a cgroup named after run.py's pid, which nobody else has meanwhile.
    mine = [path for path in cgroups() - before if not alive(path)]
    print('not ok' if mine else 'ok', f'{number + 1} - no cgroup of a run that ended is left')
    return 0


def cgroups():
    """Those of runs, and of others that were killed and could not tidy up."""
    return {f'{root}/{each}' for root in boot.CGROUP_ROOTS if os.path.isdir(root)
            for each in os.listdir(root) if each.startswith('gmbd-test-')}


def alive(cgroup):
    """Whether the run.py that made it still runs: another stage's."""
    return os.path.isdir(f'/proc/{cgroup.rsplit("-", 1)[1]}')


if __name__ == '__main__':
    sys.exit(main())
