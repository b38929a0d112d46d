"""What the cases in the container have in common. A case is a function `test_…`, named after what it
proves; it fails by an exception."""
import contextlib
import inspect
import os
import pwd
import subprocess
import sys
import time
import traceback

SECONDS = 30 # for anything that comes by itself, on a busy machine


def run(*argv, ok=True, user=None, stdin=None):
    """Standard output of a command; its failure is the case's, unless `ok` is false: then both
    outputs."""
    if user is not None:
        entry = pwd.getpwnam(user)
        argv = ('setpriv', f'--reuid={entry.pw_uid}', f'--regid={entry.pw_gid}', '--clear-groups',
                *argv)
    done = subprocess.run(argv, input=stdin, text=True, capture_output=True, check=False,
                          timeout=2 * SECONDS)
    if ok and done.returncode != 0:
        raise AssertionError(f'{" ".join(argv)}: status {done.returncode}: '
                             f'{done.stdout}{done.stderr}')
    return done.stdout if ok else done.stdout + done.stderr


def show(unit, name):
    """A property of a unit."""
    return run('systemctl', 'show', '--value', '-p', name, unit).strip()


def wait_for(what, condition, seconds=SECONDS):
    """What `condition` gives, once it is true."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f'{what}: not within {seconds} s, last {value!r}')
        time.sleep(0.02)


def equal(got, wanted):
    if got != wanted:
        raise AssertionError(f'got {got!r}, wanted {wanted!r}')


def contains(text, part):
    if part not in text:
        raise AssertionError(f'{part!r} is not in {text!r}')


@contextlib.contextmanager
def transient(unit, *argv, properties=()):
    """A service of that name that runs `argv`, until the end of the block."""
    run('systemd-run', f'--unit={unit}', '--collect', '--quiet',
        *(f'--property={each}' for each in properties), *argv)
    try:
        yield
    finally:
        run('systemctl', 'stop', unit, ok=False)


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w', encoding='utf-8') as file:
        file.write(text)


def journal(unit, lines=40):
    return run('journalctl', '--no-pager', '-o', 'cat', '-n', str(lines), '-u', unit, ok=False)


def main(units=('gmbd.service',)):
    """Runs every case of the calling file in the order in which they stand, as TAP."""
    module = inspect.getmodule(inspect.stack()[1].frame)
    cases = [(name, case) for name, case in vars(module).items() if name.startswith('test_')]
    print(f'1..{len(cases)}')
    failed = 0
    for number, (name, case) in enumerate(cases, 1):
        try:
            case()
            print(f'ok {number} - {name}')
        except Exception: # pylint: disable=broad-except
            failed += 1
            print(f'not ok {number} - {name}')
            print(traceback.format_exc(), file=sys.stderr)
            for unit in units:
                print(journal(unit), file=sys.stderr)
    sys.exit(1 if failed else 0)
