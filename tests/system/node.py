"""A node with gmbd on it: the simulated GPU, a configuration, workers."""
import contextlib
import json
import os
import subprocess

import bed

SIM = '/dev/shm/gmbd-sim'
BUILD = '/gmbd-test/build'
WORKER = '/gmbd-test/source/tests/system/worker.py'
MIB = 1 << 20
MEMORY = 256 * MIB

# The units as they are installed, but for the driver; and waits of a length for tests.
DROP_IN = f'''[Service]
ExecStart=
ExecStart=/usr/local/sbin/gmbd --gpu=sim
Environment=GMB_SIM_DIR={SIM} GMB_SIM_MEMORY=256M
WatchdogSec=2
'''

CONFIG = '''[Broker]
HostTier=64M
LogLevel=debug

[Tenant chat]
Unit=chat-*.service
MemoryMax=192M
Priority=700

[Tenant pool]
CGroup=/pool.slice/*

[Tenant nobody]
User=nobody
MemoryMax=64M
'''


def prepare(config=CONFIG, drop_in=DROP_IN):
    """Everything but a start. A directory that everybody may enter and change is the simulated node
    of all users."""
    if not os.path.isdir(SIM):
        os.mkdir(SIM)
        os.chmod(SIM, 0o1777)
    configure(config)
    bed.write('/run/systemd/system/gmbd.service.d/sim.conf', drop_in)
    bed.run('systemctl', 'daemon-reload')
    bed.run('systemctl', 'start', 'gmbd.socket', 'gmbd-control.socket')


def configure(config):
    bed.write('/etc/gmbd/gmbd.conf', config)


def restart():
    """A fresh broker, whatever state the case before has left it in."""
    bed.run('systemctl', 'reset-failed', 'gmbd.service', ok=False)
    bed.run('systemctl', 'restart', 'gmbd.service')


def pid():
    return int(bed.show('gmbd.service', 'MainPID'))


def status():
    return bed.show('gmbd.service', 'StatusText')


def gmbctl(*arguments):
    return json.loads(bed.run('gmbctl', *arguments, '--json'))


def clients():
    return gmbctl('clients')


@contextlib.contextmanager
def worker(unit, size, *more, properties=()):
    """A service `unit` whose process holds a lease of `size` bytes; gives what gmbctl says of it."""
    properties = [f'Environment=GMB_SIM_DIR={SIM}', 'StandardOutput=journal', *properties]
    with bed.transient(unit, '/usr/bin/python3', WORKER, str(size), *more, properties=properties):
        yield bed.wait_for(f'the lease of {unit}', lambda: holder(unit))


@contextlib.contextmanager
def process(size):
    """A worker that no manager knows: for a system without a bus. It runs as `nobody`."""
    with subprocess.Popen(['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', 'python3',
                           WORKER, str(size)], env={**os.environ, 'GMB_SIM_DIR': SIM},
                          stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child.stdout.readline()
        finally:
            child.kill()


def holder(unit):
    """The client of a unit that has a lease, once there is one."""
    for client in clients():
        if client['unit'] == unit and client['leases'] > 0:
            return client
    return None


def proc_status(process, name):
    """A line of /proc/PID/status."""
    with open(f'/proc/{process}/status', encoding='utf-8') as file:
        for line in file:
            if line.startswith(f'{name}:'):
                return line.split(':', 1)[1].strip()
    raise AssertionError(f'no {name} in /proc/{process}/status')
