#!/usr/bin/env python3
"""org.gmbd.Broker1 on a bus of the test's own, with a polkit that is a program of the tests: what a
booted system can't show (a bus that stops, a polkit that says nothing), and what is shown everywhere.

runs.py GMBD GMBCTL FAKE_POLKIT LIBGMB WORKER     prints TAP
"""
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

NAME, ROOT, MANAGER = 'org.gmbd.Broker1', '/org/gmbd/Broker1', 'org.gmbd.Broker1.Manager'
SECONDS = 30
GMBD = GMBCTL = POLKIT = LIBGMB = WORKER = None

BUS_CONFIG = '''<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path={path}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow own="*"/>
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
  </policy>
</busconfig>
'''


def wait_for(what, condition, seconds=SECONDS):
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f'{what}: not within {seconds} s, last {value!r}')
        time.sleep(0.02)


def contains(text, part):
    if part not in text:
        raise AssertionError(f'{part!r} is not in {text!r}')


def sanitizer():
    """What lets an interpreter without sanitizer load a library that was built with one; its own
    leaks are none of ours."""
    linked = subprocess.run(['ldd', LIBGMB], capture_output=True, text=True, check=True).stdout
    runtimes = [line.split()[2] for line in linked.splitlines() if 'libasan' in line]
    return [f'LD_PRELOAD={runtimes[0]}', 'ASAN_OPTIONS=detect_leaks=0'] if runtimes else []


class Node:
    """A folder with a bus, a broker and a polkit that come and go."""

    def __init__(self, folder):
        self.folder, self.path = folder, f'{folder}/bus'
        self.address = f'unix:path={self.path}'
        self.children = []
        os.chmod(folder, 0o755)
        os.mkdir(f'{folder}/sim')
        self.configure('[Tenant chat]\nUser=*\nPriority=700\n')
        self.environment = {**os.environ, 'DBUS_SYSTEM_BUS_ADDRESS': self.address,
                            'GMB_SIM_DIR': f'{folder}/sim', 'GMB_SIM_MEMORY': '256M',
                            'GMB_SOCKET': f'{folder}/client.sock', 'LIBGMB': LIBGMB}

    def configure(self, text):
        with open(f'{self.folder}/gmbd.conf', 'w', encoding='ascii') as file:
            file.write('[Broker]\nHostTier=0\n' + text)

    def start(self, *argv, **options):
        child = subprocess.Popen(argv, env=self.environment, stdin=subprocess.DEVNULL, **options)
        self.children.append(child)
        return child

    def end(self):
        for child in self.children:
            if child.poll() is None:
                child.send_signal(signal.SIGCONT)
                child.kill()
            child.wait()
            for pipe in (child.stdout, child.stderr):
                if pipe:
                    pipe.close()

    def bus(self):
        with open(f'{self.folder}/bus.conf', 'w', encoding='ascii') as file:
            file.write(BUS_CONFIG.format(path=self.path))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        child = self.start('dbus-daemon', f'--config-file={self.folder}/bus.conf', '--nofork')
        wait_for('the bus', self.listening)
        os.chmod(self.path, 0o777)
        return child

    def listening(self):
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(self.path) == 0

    def polkit(self, answer):
        child = self.start(POLKIT, self.address, answer, stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == 'ready\n'
        return child

    def broker(self):
        with open(f'{self.folder}/log', 'wb') as log:
            child = self.start(
                GMBD, '--gpu=sim', '--dbus=yes', '--config', f'{self.folder}/gmbd.conf',
                '--client-socket', f'{self.folder}/client.sock', '--control-socket',
                f'{self.folder}/control.sock', stderr=log)
        wait_for('the broker', lambda: self.gmbctl('status'))
        return child

    def worker(self, size):
        """A process that holds a lease."""
        child = self.start('env', *sanitizer(), 'python3', WORKER, str(size),
                           stdout=subprocess.PIPE, text=True)
        contains(child.stdout.readline(), 'holds as chat')
        return child

    def log(self):
        with open(f'{self.folder}/log', encoding='utf-8') as file:
            return file.read()

    def gmbctl(self, *arguments):
        done = subprocess.run([GMBCTL, '--socket', f'{self.folder}/control.sock', *arguments],
                              capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else ''

    def stranger(self):
        """The start of a command line that isn't root's."""
        if os.geteuid() != 0:
            return []
        return ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups']

    def busctl(self, *arguments, stranger=False, patience=SECONDS):
        argv = [*(self.stranger() if stranger else []), 'busctl', f'--address={self.address}',
                '--json=short', f'--timeout={patience}', '--', *arguments]
        done = subprocess.run(argv, capture_output=True, text=True, check=False,
                              timeout=2 * SECONDS)
        return done.stderr if done.returncode != 0 else json.loads(done.stdout or 'null')

    def named(self):
        return self.busctl('call', 'org.freedesktop.DBus', '/org/freedesktop/DBus',
                           'org.freedesktop.DBus', 'NameHasOwner', 's', NAME)['data'][0]

    def get(self, name, path='', interface=MANAGER):
        return self.busctl('get-property', NAME, ROOT + path, interface, name)['data']

    def reload(self, stranger=False, patience=SECONDS):
        return self.busctl('call', NAME, ROOT, MANAGER, 'Reload', stranger=stranger,
                           patience=patience)


class Signals:
    """What the broker says on the bus, from the beginning of the block on."""

    def __init__(self, node):
        self.node, self.text, self.seen = node, b'', []

    def __enter__(self):
        self.monitor = self.node.start(
            'busctl', f'--address={self.node.address}', '--json=short', 'monitor', '--match',
            f"type='signal',sender='{NAME}'", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        # It says so when it listens.
        contains(self.monitor.stderr.readline(), b'Monitoring')
        os.set_blocking(self.monitor.stdout.fileno(), False)
        return self

    def __exit__(self, *_exception):
        self.monitor.kill()

    def of(self, path, member):
        """The data of every signal of that name so far."""
        while chunk := read_some(self.monitor.stdout.fileno()):
            self.text += chunk
        *lines, self.text = self.text.split(b'\n')
        self.seen += [json.loads(line) for line in lines if line]
        return [each['payload']['data'] for each in self.seen
                if each['path'] == ROOT + path and each['member'] == member]

    def told(self, path, name):
        """The values of a property so far."""
        return [data[1][name]['data'] for data in self.of(path, 'PropertiesChanged')
                if name in data[1]]


def read_some(fd):
    with contextlib.suppress(BlockingIOError):
        return os.read(fd, 65536)
    return b''


def equal(found, wanted):
    if found != wanted:
        raise AssertionError(f'{found!r} is not {wanted!r}')


CHAT, TENANT, DEVICE = '/tenant/chat', f'{NAME}.Tenant', f'{NAME}.Device'
MIB = 1 << 20


def pressed(node, limits, worker_bytes):
    """A broker with a tenant of those limits and a worker; the worker and the device's UUID."""
    node.configure(f'PressureDwell=1ms\n[Tenant chat]\nUser=*\n{limits}\n')
    node.bus()
    node.broker()
    wait_for('the name', node.named)
    uuid, = node.get('Pressure', CHAT, TENANT)
    equal(node.get('Pressure', CHAT, TENANT), {uuid: 'none'})
    return (node.worker(worker_bytes) if worker_bytes else None), uuid


def device_path(uuid):
    return '/device/' + uuid.replace('-', '_2d')


def test_another_level_is_told_with_its_figures_and_its_end_too(node):
    _none, uuid = pressed(node, 'MemoryMax=40M', 0)
    with Signals(node) as signals:
        worker = node.worker(36 * MIB) # 90 %; a seventh of the device
        data = wait_for('the level', lambda: signals.of(CHAT, 'PressureChanged'))[0]
        equal(data[:4], [uuid, 'medium', 'none', 4 * MIB])
        assert all(isinstance(total, int) for total in data[4:]) and len(data) == 6, data
        wait_for('the property', lambda: {uuid: 'medium'} in signals.told(CHAT, 'Pressure'))
        equal(node.get('Pressure', CHAT, TENANT), {uuid: 'medium'})
        worker.kill()
        wait_for('the end', lambda: signals.of(CHAT, 'PressureChanged')[-1][:3] ==
                 [uuid, 'none', 'none'])
        wait_for('the property', lambda: signals.told(CHAT, 'Pressure')[-1] == {uuid: 'none'})


def test_a_full_device_has_its_level(node):
    _none, uuid = pressed(node, 'MemoryMax=100%', 0)
    equal(node.get('Pressure', device_path(uuid), DEVICE), 'none')
    capacity = sum(node.get(name, device_path(uuid), DEVICE) * sign
                   for name, sign in (('TotalBytes', 1), ('ReserveBytes', -1)))
    with Signals(node) as signals:
        node.worker(capacity // (2 * MIB) * 2 * MIB) # all but less than a chunk
        data = wait_for('the level', lambda: signals.of(CHAT, 'PressureChanged'))[0]
        equal(data[:3], [uuid, 'critical', 'critical'])
        wait_for('the property',
                 lambda: 'critical' in signals.told(device_path(uuid), 'Pressure'))
        equal(node.get('Pressure', device_path(uuid), DEVICE), 'critical')


def flap(node, times):
    """Limits under which 36 MiB are little and much by turns; at last all."""
    for limit in ['200M', '40M'] * times + ['36M']:
        contains(node.gmbctl('set', 'chat', f'MemoryMax={limit}'), 'chat')


def test_levels_that_flap_are_told_at_most_ten_times_a_second_and_the_last_one_always(node):
    pressed(node, 'MemoryMax=200M', 36 * MIB)
    with Signals(node) as signals:
        start = time.monotonic()
        flap(node, 20)
        wait_for('the last level', lambda: [
            data[1] for data in signals.of(CHAT, 'PressureChanged')][-1:] == ['critical'])
        most = int((time.monotonic() - start) / 0.1) + 1
        levels = [data[1] for data in signals.of(CHAT, 'PressureChanged')]
        assert len(levels) <= most, (levels, most)
        # Nothing is told twice.
        assert all(a != b for a, b in zip(levels, levels[1:])), levels


def test_a_bus_that_stopped_hears_the_last_level(node):
    bus = node.bus
    started = []
    node.bus = lambda: started.append(bus())
    pressed(node, 'MemoryMax=200M', 36 * MIB)
    with Signals(node) as signals:
        started[0].send_signal(signal.SIGSTOP)
        flap(node, 10)
        started[0].send_signal(signal.SIGCONT)
        wait_for('the last level', lambda: [
            data[1] for data in signals.of(CHAT, 'PressureChanged')][-1:] == ['critical'])


def test_a_bus_that_comes_later_is_found(node):
    node.broker()
    contains(node.log(), 'no system bus')
    node.bus()
    wait_for('the name', node.named)
    assert node.get('Driver') == 'sim'


def test_a_bus_that_was_killed_is_found_again(node):
    bus = node.bus()
    broker = node.broker()
    wait_for('the name', node.named)
    bus.kill()
    bus.wait()
    wait_for('the loss', lambda: 'the system bus is gone' in node.log())
    assert node.gmbctl('status')
    node.bus()
    wait_for('the name', node.named)
    assert broker.poll() is None


def test_a_name_that_is_taken_is_left_to_its_owner(node):
    node.bus()
    node.broker()
    wait_for('the name', node.named)
    first = node.get('Version')
    other = Node(tempfile.mkdtemp(dir=node.folder))
    other.address = node.address
    other.environment['DBUS_SYSTEM_BUS_ADDRESS'] = node.address
    try:
        other.broker()
        wait_for('the refusal', lambda: "is somebody else's" in other.log())
        assert other.gmbctl('status')
        assert node.get('Version') == first
    finally:
        other.end()


def test_a_bus_that_stops_holds_up_nobody(node):
    bus = node.bus()
    node.broker()
    wait_for('the name', node.named)
    bus.send_signal(signal.SIGSTOP)
    for priority in range(1, 20):
        contains(node.gmbctl('set', 'chat', f'Priority={priority}'), 'chat')
    bus.send_signal(signal.SIGCONT)
    wait_for('the latest value', lambda: node.busctl(
        'get-property', NAME, f'{ROOT}/tenant/chat', 'org.gmbd.Broker1.Tenant', 'Priority')
        == {'type': 'u', 'data': 19})


def crowd_a_bus_that_does_not_read_is_given_up(node):
    def tenants(priority):
        node.configure(''.join(f'[Tenant t{i}]\nUser={100000 + i}\nPriority={priority}\n'
                               for i in range(1000)))
        node.gmbctl('reload') # may take longer than gmbctl waits, on a busy machine

    bus = node.bus()
    node.broker()
    wait_for('the name', node.named)
    tenants(500)
    wait_for('the tenants', lambda: node.get('Tenants') >= 1000)
    bus.send_signal(signal.SIGSTOP)
    # Each change of all tenants is a thousand signals, told once in half a second.
    priorities = iter(range(1, 1000))
    wait_for('the end of patience', lambda: tenants(next(priorities)) or
             "the system bus doesn't read" in node.log(), 10 * SECONDS)
    assert node.gmbctl('status')
    bus.send_signal(signal.SIGCONT)
    # The bus has yet to see that the first connection is gone.
    wait_for('the values', lambda: node.busctl('get-property', NAME, ROOT, MANAGER, 'Tenants') in
             ({'type': 'u', 'data': count} for count in (1000, 1001)))


def test_polkit_is_asked_for_the_action_and_its_yes_counts(node):
    node.bus()
    node.broker()
    polkit = node.polkit('yes')
    wait_for('the name', node.named)
    assert node.reload(stranger=True)['data'][1] == 1
    # busctl allows interaction.
    contains(polkit.stdout.readline(), 'system-bus-name org.gmbd.broker1.reload 1')
    contains(node.log(), f'configuration reloaded by uid {os.geteuid() or 65534}')


def refused_by(node, answer, part):
    node.bus()
    node.broker()
    node.polkit(answer)
    wait_for('the name', node.named)
    contains(node.reload(stranger=True), part)
    assert 'configuration reloaded' not in node.log()


def test_polkits_no_counts(node):
    refused_by(node, 'no', 'Access denied')


def test_a_challenge_that_nobody_can_meet_is_a_refusal(node):
    refused_by(node, 'challenge', 'nteractive authentication required')


def test_an_answer_of_another_shape_is_a_refusal(node):
    refused_by(node, 'wrong', 'Access denied')


def test_without_polkit_others_than_root_are_refused(node):
    node.bus()
    node.broker()
    wait_for('the name', node.named)
    contains(node.reload(stranger=True), 'Access denied')
    contains(node.log(), "polkit can't be asked about uid")
    if os.geteuid() == 0:
        assert node.reload()['data'][1] == 1


def test_a_polkit_that_says_nothing_holds_up_its_askers_alone(node):
    node.bus()
    node.broker()
    node.polkit('silent')
    wait_for('the name', node.named)
    asking = [node.start(*node.stranger(), 'busctl', f'--address={node.address}', 'call', NAME,
                         ROOT, MANAGER, 'Reload', stderr=subprocess.PIPE, text=True)
              for _i in range(20)]
    # Those beyond the bound of one user are turned away at once.
    wait_for('the bound', lambda: sum(each.poll() is None for each in asking) == 16)
    for each in asking:
        if each.poll() is not None:
            contains(each.stderr.read(), 'too many calls of this user wait for polkit')
    assert node.gmbctl('status')
    if os.geteuid() == 0:
        assert node.reload()['data'][1] == 1


def main():
    global GMBD, GMBCTL, POLKIT, LIBGMB, WORKER # pylint: disable=global-statement
    GMBD, GMBCTL, POLKIT, LIBGMB, WORKER, suite = sys.argv[1:]
    prefix = {'bus': 'test_', 'bus_crowd': 'crowd_'}[suite]
    for tool in ('dbus-daemon', 'busctl', 'setpriv'):
        if shutil.which(tool) is None:
            print(f'1..0 # SKIP {tool} is missing')
            return 0
    cases = [(name, case) for name, case in globals().items() if name.startswith(prefix)]
    print(f'1..{len(cases)}')
    for number, (name, case) in enumerate(cases, 1):
        with tempfile.TemporaryDirectory(prefix='gmbd-bus-') as folder:
            node = Node(folder)
            try:
                case(node)
                print(f'ok {number} - {name}', flush=True)
            except Exception: # pylint: disable=broad-except
                print(f'not ok {number} - {name}', flush=True)
                print(traceback.format_exc(), file=sys.stderr)
                if os.path.exists(f'{folder}/log'):
                    print(node.log()[-3000:], file=sys.stderr)
            finally:
                node.end()
    return 0


if __name__ == '__main__':
    sys.exit(main())
