"""gmbd-keeper with brokers that are small scripts of this file.

usage: keeper.py GMBD_KEEPER NAME GMBD GMBCTL        runs the test NAME
"""
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

DEADLINE_S = 60

# What every broker of these tests begins with. `said` appends a line to the log that a test reads.
PRELUDE = '''
import array, os, signal, socket, sys, time
names = os.environ.get('LISTEN_FDNAMES', '')
names = names.split(':') if names else []
assert int(os.environ['LISTEN_FDS']) == len(names)
assert int(os.environ['LISTEN_PID']) == os.getpid()
fds = {name: 3 + i for i, name in enumerate(names)}

def said(text):
    with open('log', 'a') as log:
        log.write(text + '\\n')

def notify(text, *send):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.connect(os.environ['NOTIFY_SOCKET'])
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', send))] if send else []
        s.sendmsg([text.encode()], control)

def barrier():
    here, there = os.pipe()
    notify('BARRIER=1', there)
    os.close(there)
    assert os.read(here, 1) == b''
    os.close(here)

def memory(text):
    fd = os.memfd_create('t')
    os.write(fd, text)
    return fd

said(f'start {os.getpid()} ' + ','.join(sorted(names)))
'''


def poll(what, condition):
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError(f'not within {DEADLINE_S} s: {what}')


class Keeper:
    """A keeper in a folder of its own, whose broker runs the given script."""

    def __init__(self, directory, script, *options, program=None, runtime=None):
        self.directory = directory
        with open(os.path.join(directory, 'broker.py'), 'w', encoding='utf-8') as file:
            file.write(PRELUDE + script)
        self.process = subprocess.Popen(
            [program or KEEPER, *options, '--', sys.executable, 'broker.py'], cwd=directory,
            env={**os.environ, 'XDG_RUNTIME_DIR': runtime or directory})

    def log(self):
        try:
            with open(os.path.join(self.directory, 'log'), encoding='utf-8') as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    def lines(self, word):
        return [line for line in self.log() if line.split()[0] == word]

    def wait_for(self, word, count=1):
        return poll(f'{count} of "{word}"', lambda: (
            lines if len(lines := self.lines(word)) >= count else None))

    def broker(self, number=-1):
        return int(self.lines('start')[number].split()[1])

    def kill_broker(self, number=signal.SIGKILL):
        os.kill(self.broker(), number)

    def status(self):
        return self.process.wait(DEADLINE_S)

    def end(self):
        self.process.terminate()
        return self.status()


@contextlib.contextmanager
def keeper(script, *options, **more):
    """Whatever the test leaves: the keeper is gone at the end, its folder for the socket with it."""
    with tempfile.TemporaryDirectory(prefix='gmbd-keeper-test.') as directory:
        runtime = '/run' if os.geteuid() == 0 else directory
        before = set(os.listdir(runtime))  # of one that was killed, and had the same pid
        made = Keeper(directory, script, *options, **more)
        try:
            yield made
        finally:
            if made.process.poll() is None:
                made.process.terminate()
                try:
                    made.process.wait(DEADLINE_S)
                except subprocess.TimeoutExpired:
                    made.process.kill()
                    made.process.wait()
                    raise
        left = [name for name in set(os.listdir(runtime)) - before
                if name.startswith(f'gmbd-keeper.{made.process.pid}.')]
        assert not left, left


PAUSE = 'while True: signal.pause()\n'


def what_a_killed_broker_stored_is_there_for_the_next_one():
    with keeper('''
if names:
    said('found ' + '|'.join(os.pread(fds[name], 99, 0).decode() for name in names))
else:
    notify('FDSTORE=1\\nFDNAME=first', memory(b'one'))
    notify('FDSTORE=1\\nFDNAME=second', memory(b'two'))
    said('stored')
''' + PAUSE) as k:
        k.wait_for('stored')
        k.kill_broker()
        assert k.wait_for('found') == ['found one|two'], k.log()
        # And for the one after that, which stores nothing new.
        k.kill_broker()
        assert k.wait_for('found', 2)[1] == 'found one|two', k.log()


def what_was_removed_by_name_is_gone():
    with keeper('''
if not names:
    for name in 'a', 'b', 'b', 'c':
        notify('FDSTORE=1\\nFDNAME=' + name, memory(name.encode()))
    notify('FDSTOREREMOVE=1\\nFDNAME=b')
    notify('FDSTOREREMOVE=1\\nFDNAME=unknown')
    said('stored')
''' + PAUSE) as k:
        k.wait_for('stored')
        k.kill_broker()
        assert k.wait_for('start', 2)[1].endswith(' a,c'), k.log()


def nobody_but_the_broker_is_heard():
    with keeper('''
if not names:
    notify('FDSTORE=1\\nFDNAME=mine', memory(b'mine'))
    child = os.fork()
    if child == 0:
        notify('FDSTORE=1\\nFDNAME=theirs', memory(b'theirs'))
        notify('FDSTOREREMOVE=1\\nFDNAME=mine')
        os._exit(0)
    os.waitpid(child, 0)
    barrier()
    said('stored')
''' + PAUSE) as k:
        k.wait_for('stored')
        k.kill_broker()
        assert k.wait_for('start', 2)[1].endswith(' mine'), k.log()


def a_barrier_ends_when_all_before_it_was_taken():
    with keeper('''
if not names:
    for i in range(200):
        notify(f'FDSTORE=1\\nFDNAME=n{i}', memory(b'x'))
    barrier()
    count = sum('memfd' in os.readlink(f'/proc/{os.getppid()}/fd/{fd}')
                for fd in os.listdir(f'/proc/{os.getppid()}/fd'))
    said(f'held {count}')
''' + PAUSE) as k:
        assert k.wait_for('held') == ['held 200'], k.log()


def the_store_is_full_at_its_limit_and_goes_on():
    with keeper('''
if not names:
    for name in 'a', 'b', 'c':
        notify('FDSTORE=1\\nFDNAME=' + name, memory(b'x'))
    barrier()
    said('stored')
''' + PAUSE, '--fds', '2') as k:
        k.wait_for('stored')
        k.kill_broker()
        assert k.wait_for('start', 2)[1].endswith(' a,b'), k.log()


def who_connects_while_the_broker_is_away_waits():
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, 'client.sock')
        with keeper('''
if os.path.exists('ready'):
    server = socket.socket(fileno=fds['client'])
    server.setblocking(True)
    peer, _ = server.accept()
    peer.send(b'hello')
    said('answered')
else:
    said('waiting')
''' + PAUSE, '--listen', f'client={path}:0600') as k:
            k.wait_for('waiting')
            assert os.stat(path).st_mode & 0o777 == 0o600
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.settimeout(DEADLINE_S)
                client.connect(path)
                with open(os.path.join(k.directory, 'ready'), 'w', encoding='utf-8'):
                    pass
                k.kill_broker()
                assert client.recv(9) == b'hello'
            assert k.end() == 128 + signal.SIGTERM
            assert not os.path.exists(path)


def sigterm_ends_the_broker_and_then_the_keeper_with_its_status():
    with keeper('''
signal.signal(signal.SIGTERM, lambda *_: (said('term'), os._exit(7)))
said('ready')
''' + PAUSE) as k:
        k.wait_for('ready')
        assert k.end() == 7
        assert k.log()[-1] == 'term'
        assert len(k.lines('start')) == 1


def a_second_sigterm_is_passed_on_too():
    with keeper('''
count = 0
def term(*_):
    global count
    count += 1
    said(f'term {count}')
    if count == 2:
        os._exit(0)
signal.signal(signal.SIGTERM, term)
said('ready')
''' + PAUSE) as k:
        k.wait_for('ready')
        k.process.terminate()
        k.wait_for('term')
        assert k.process.poll() is None
        assert k.end() == 0
        assert k.lines('term') == ['term 1', 'term 2']


def a_broker_that_does_not_end_is_killed():
    with keeper('''
signal.signal(signal.SIGTERM, signal.SIG_IGN)
said('ready')
''' + PAUSE, '--stop-timeout', '1') as k:
        k.wait_for('ready')
        assert k.end() == 128 + signal.SIGKILL


def sighup_goes_to_the_broker():
    with keeper('''
signal.signal(signal.SIGHUP, lambda *_: said('hup'))
said('ready')
''' + PAUSE) as k:
        k.wait_for('ready')
        k.process.send_signal(signal.SIGHUP)
        k.wait_for('hup')
        assert len(k.lines('start')) == 1


def what_a_killed_keeper_left_is_gone_with_the_next():
    script = "said('notify ' + os.environ['NOTIFY_SOCKET'])\n" + PAUSE

    def folder(k):
        return os.path.dirname(k.wait_for('notify')[0].split()[1])

    with tempfile.TemporaryDirectory(prefix='gmbd-keeper-test.') as runtime, \
            keeper(script, runtime=runtime) as living, keeper(script, runtime=runtime) as killed:
        left = folder(killed)
        killed.process.kill()
        killed.process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.kill(killed.broker(), signal.SIGKILL)
        with keeper(script, runtime=runtime) as k:
            assert os.path.exists(folder(k))
            assert not os.path.exists(left)
            assert os.path.exists(folder(living))


def sigusr1_starts_the_broker_anew_with_what_it_stored():
    with keeper('''
signal.signal(signal.SIGTERM, lambda *_: (said('term'), os._exit(0)))
if not names:
    notify('FDSTORE=1\\nFDNAME=first', memory(b'one'))
    barrier()
said('ready ' + ','.join(names))
''' + PAUSE) as k:
        for count in range(1, 4):
            k.wait_for('ready', count)
            k.process.send_signal(signal.SIGUSR1)
        k.wait_for('ready', 4)
        assert k.lines('ready')[1:] == ['ready first'] * 3, k.log()
        assert len(k.lines('term')) == 3, k.log()
        # Which says nothing of the end.
        assert k.end() == 0
        assert len(k.lines('start')) == 4, k.log()


def sigterm_ends_a_broker_that_is_to_be_started_anew():
    with keeper('''
def term(*_):
    said('term')
    if len([line for line in open('log') if line.startswith('term')]) == 2:
        os._exit(5)
signal.signal(signal.SIGTERM, term)
said('ready')
''' + PAUSE) as k:
        k.wait_for('ready')
        k.process.send_signal(signal.SIGUSR1)
        k.wait_for('term')
        assert k.end() == 5
        assert len(k.lines('start')) == 1, k.log()


def a_broker_that_is_stopped_hears_its_end_all_the_same():
    script = '''
signal.signal(signal.SIGABRT, lambda *_: (said('abort'), os._exit(1)))
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
said('ready')
''' + PAUSE
    with keeper(script, '--watchdog', '1') as k:
        k.wait_for('ready')
        k.kill_broker(signal.SIGSTOP)
        k.wait_for('abort')
    with keeper(script) as k:
        k.wait_for('ready')
        k.kill_broker(signal.SIGSTOP)
        assert k.end() == 0


def a_silent_broker_is_aborted_and_started_again():
    with keeper('''
assert os.environ['WATCHDOG_USEC'] == '2000000'
assert int(os.environ['WATCHDOG_PID']) == os.getpid()
signal.signal(signal.SIGABRT, lambda *_: (said('abort'), os._exit(1)))
for i in range(3):
    notify('WATCHDOG=1')
    time.sleep(1)
said('silent')
''' + PAUSE, '--watchdog', '2') as k:
        k.wait_for('abort')
        # It lived longer than one period, since it spoke.
        assert k.log()[1:3] == ['silent', 'abort'], k.log()
        k.wait_for('start', 2)


def a_broker_that_ends_well_ends_the_keeper():
    with keeper('sys.exit(0)') as k:
        assert k.status() == 0
        assert len(k.lines('start')) == 1


def a_broker_that_cannot_start_is_tried_again_and_again():
    with keeper('sys.exit(3)') as k:
        k.wait_for('start', 4)
        assert k.end() in (0, 3, 128 + signal.SIGTERM)
        # The second at once, then 100 ms, 200 ms: nobody is kept busy by a broker that can't start.
        assert len(set(line.split()[1] for line in k.lines('start'))) == len(k.lines('start'))


def orphans_of_the_broker_are_reaped():
    with keeper('''
if os.path.exists('orphan'):
    said('again')
else:
    pid = os.fork()
    if pid == 0:
        signal.pause()
    with open('orphan', 'w') as file:
        file.write(str(pid))
    said('forked')
''' + PAUSE) as k:
        k.wait_for('forked')
        k.kill_broker()
        k.wait_for('again')
        with open(os.path.join(k.directory, 'orphan'), encoding='utf-8') as file:
            orphan = int(file.read())
        with open(f'/proc/{orphan}/stat', encoding='utf-8') as file:
            assert int(file.read().rsplit(')', 1)[1].split()[1]) == k.process.pid
        os.kill(orphan, signal.SIGKILL)
        poll('the orphan is reaped', lambda: not os.path.exists(f'/proc/{orphan}'))


STORING = '''
if not names or names == ['client']:
    notify('FDSTORE=1\\nFDNAME=first', memory(b'one'))
    barrier()
    said('stored')
else:
    said('found ' + os.pread(fds['first'], 99, 0).decode())
    notify('FDSTORE=1\\nFDNAME=second', memory(b'two'))
    barrier()
    said('more')
''' + PAUSE


def a_newer_keeper_takes_over_broker_and_fds():
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, 'client.sock')
        with keeper(STORING, '--listen', f'client={path}') as k:
            k.wait_for('stored')
            before = len(os.listdir(f'/proc/{k.process.pid}/fd'))
            k.process.send_signal(signal.SIGUSR2)
            # Only the successor was told of a child.
            poll('the successor runs', lambda: b'GMBD_KEEPER_CHILD=' in environment(k.process.pid))
            assert len(k.lines('start')) == 1
            os.kill(k.broker(), 0)
            k.kill_broker()
            assert k.wait_for('found') == ['found one'], k.log()
            k.wait_for('more')
            assert len(os.listdir(f'/proc/{k.process.pid}/fd')) == before + 1
            k.process.send_signal(signal.SIGUSR2)
            k.kill_broker()
            assert k.wait_for('start', 3)[2].endswith(' client,first,second'), k.log()
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.connect(path)
            assert k.end() == 128 + signal.SIGTERM
            assert not os.path.exists(path)


def environment(pid):
    with open(f'/proc/{pid}/environ', 'rb') as file:
        return file.read()


def a_handover_that_fails_changes_nothing():
    with tempfile.TemporaryDirectory() as directory:
        program = os.path.join(directory, 'gmbd-keeper')
        with open(KEEPER, 'rb') as source, open(program, 'wb') as copy:
            copy.write(source.read())
        os.chmod(program, 0o755)
        with keeper(STORING, program=program) as k:
            k.wait_for('stored')
            os.unlink(program)
            k.process.send_signal(signal.SIGUSR2)
            k.kill_broker()
            assert k.wait_for('found') == ['found one'], k.log()
            k.wait_for('more')


def broker_pid(keeper_pid):
    with open(f'/proc/{keeper_pid}/task/{keeper_pid}/children', encoding='utf-8') as file:
        children = file.read().split()
    return int(children[0]) if children else 0


def the_broker_itself_is_watched_and_comes_back_on_the_same_sockets():
    with tempfile.TemporaryDirectory(prefix='gmbd-keeper-test.') as directory:
        control = os.path.join(directory, 'control.sock')
        config = os.path.join(directory, 'gmbd.conf')
        with open(config, 'w', encoding='utf-8') as file:
            file.write('[Tenant test]\nUser=*\n')
        with subprocess.Popen(
                [KEEPER, '--watchdog', '60',
                 '--listen', f'client={directory}/client.sock', '--listen', f'control={control}:0600',
                 '--', GMBD, '--gpu=sim', '--config', config],
                env={**os.environ, 'XDG_RUNTIME_DIR': directory, 'GMB_SIM_DIR': directory}) as process:
            try:
                poll('the keeper listens', lambda: said(control).returncode == 0)
                first = broker_pid(process.pid)
                for number in signal.SIGKILL, signal.SIGABRT:
                    os.kill(broker_pid(process.pid), number)
                    # The socket never goes away: this waits for the next broker and isn't refused.
                    status(control)
                assert broker_pid(process.pid) not in (0, first)
            finally:
                process.terminate()
                ended = process.wait(DEADLINE_S)
                assert ended == 0, ended
            assert not os.path.exists(control)


def said(control):
    return subprocess.run([GMBCTL, '--socket', control, 'status'], capture_output=True, text=True,
                          timeout=DEADLINE_S, check=False)


def status(control):
    answer = said(control)
    assert answer.returncode == 0, answer


def main():
    global KEEPER, GMBD, GMBCTL
    name = sys.argv[2]
    KEEPER, GMBD, GMBCTL = (os.path.abspath(sys.argv[i]) for i in (1, 3, 4))
    globals()[name]()


if __name__ == '__main__':
    main()
