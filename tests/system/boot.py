"""A container that boots this machine's own systemd, from this machine's own /usr, in half a second.

The root is empty memory (--volatile=yes): /etc is what sysusers.d and tmpfiles.d make of it, as on a
fresh machine. What `meson install` installs is bound into its place, so that the units, the users
and the programs under test are the installed ones. Nothing is registered anywhere; a cgroup of its
own, in each hierarchy that systemd looks at, keeps two containers apart and tells what to kill.
"""
import contextlib
import os
import shutil
import signal
import subprocess
import time

TARGET = 'gmbd-test.target'
SERVICE = 'gmbd-test.service'

# The one unit that is wanted, and what it needs: no timers, no logins, no network.
UNITS = {
    TARGET: '''[Unit]
Description=Tests of gmbd
Requires={service}
''',
    SERVICE: '''[Unit]
Description=Tests of gmbd
Requires=sysinit.target
Wants=dbus.socket
After=sysinit.target dbus.socket
SuccessAction=exit
FailureAction=exit

[Service]
Type=oneshot
Environment=PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
ExecStart={command}
StandardOutput=file:{out}/stdout
StandardError=file:{out}/stderr
''',
}

# Hierarchies that systemd uses: the unified one, and what a machine of the old kind has beside it.
CGROUP_ROOTS = ['/sys/fs/cgroup', '/sys/fs/cgroup/unified', '/sys/fs/cgroup/systemd']


class Impossible(Exception):
    """This machine permits no containers: why."""


def check():
    """Raises Impossible where no container can be booted, whatever gmbd is like."""
    if os.geteuid() != 0:
        raise Impossible('only root can boot a container')
    for tool, package in (('systemd-nspawn', 'systemd-container'), ('unshare', 'util-linux'),
                          ('busctl', 'systemd'), ('dbus-daemon', 'dbus')):
        if shutil.which(tool) is None:
            raise Impossible(f'{tool} is missing (package {package})')
    tried = subprocess.run(['unshare', '--mount', '--pid', '--ipc', '--uts', '--fork', 'mount', '-t',
                            'tmpfs', 'tmpfs', '/mnt'], stdin=subprocess.DEVNULL, text=True,
                           capture_output=True, check=False)
    if tried.returncode != 0:
        raise Impossible(f'namespaces or mounts are not permitted: {tried.stderr.strip()}')
    try:
        with cgroups(f'gmbd-test-{os.getpid()}-probe'):
            pass
    except OSError as error:
        raise Impossible(f'cgroups cannot be made: {error}') from None


def cgroup_remove(path):
    """Kills what is left in the cgroup and below, and removes it."""
    deadline = time.monotonic() + 20
    while os.path.isdir(path):
        for folder, _folders, _files in os.walk(path, topdown=False):
            with contextlib.suppress(OSError), open(f'{folder}/cgroup.procs', encoding='ascii') as procs:
                for pid in procs.read().split():
                    os.kill(int(pid), signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        if time.monotonic() > deadline:
            raise RuntimeError(f'{path} cannot be removed')
        time.sleep(0.01)


@contextlib.contextmanager
def cgroups(name):
    """A cgroup of that name in every hierarchy, as a list of paths; removed at the end, with all that
    runs in it."""
    made = []
    try:
        for root in CGROUP_ROOTS:
            # A tmpfs with hierarchies in it is none itself.
            if os.path.exists(f'{root}/cgroup.procs'):
                os.mkdir(f'{root}/{name}')
                made.append(f'{root}/{name}')
        if not made:
            raise OSError('no cgroup hierarchy is mounted')
        yield made
    finally:
        for path in made:
            cgroup_remove(path)


def units_write(folder, command, out):
    os.mkdir(folder)
    for name, text in UNITS.items():
        with open(f'{folder}/{name}', 'w', encoding='ascii') as unit:
            unit.write(text.format(service=SERVICE, command=command, out=out))


def run(work, binds, command, seconds):
    """Boots, runs `command` (one line of ExecStart=) as the container's one wanted service, and ends
    when it ends. `work` is an empty folder of the caller's; `binds` are (outside, inside, writable).
    Returns what the command wrote, what it complained, what nspawn said, and whether the time was
    enough."""
    out = f'{work}/out'
    os.mkdir(out)
    units_write(f'{work}/units', command, '/gmbd-test/out')
    binds = [*binds, (out, '/gmbd-test/out', True)]
    for unit in UNITS:
        binds.append((f'{work}/units/{unit}', f'/run/systemd/system/{unit}', False))
    name = f'gmbd-test-{os.getpid()}'
    # nspawn leaves folders of its own in /run: those go with a mount namespace.
    argv = ['unshare', '--mount', '--propagation', 'private', 'sh', '-c',
            'mkdir -p /run/systemd/nspawn && mount -t tmpfs tmpfs /run/systemd/nspawn && exec "$@"', 'sh',
            'systemd-nspawn', '--directory=/', '--volatile=yes', f'--machine={name}', '--register=no',
            '--keep-unit', '--console=pipe', '--quiet', '--kill-signal=SIGKILL']
    for outside, inside, writable in binds:
        argv.append(f'--bind{"" if writable else "-ro"}={outside}:{inside}')
    argv += ['--boot', f'systemd.unit={TARGET}', 'systemd.firstboot=no', 'systemd.show_status=no']

    with cgroups(name) as paths:
        def enter():
            for path in paths:
                with open(f'{path}/cgroup.procs', 'w', encoding='ascii') as procs:
                    procs.write('0')
        # pylint: disable-next=subprocess-popen-preexec-fn
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, preexec_fn=enter,
                                 env={**os.environ, 'SYSTEMD_NSPAWN_UNIFIED_HIERARCHY': '1'})
        try:
            said, _none = child.communicate(timeout=seconds)
            in_time = True
        except subprocess.TimeoutExpired:
            for path in paths:
                cgroup_remove(path)
            said, _none = child.communicate()
            in_time = False
    return read(f'{out}/stdout'), read(f'{out}/stderr'), said.decode(errors='replace'), in_time


def read(path):
    if not os.path.exists(path):
        return ''
    with open(path, encoding='utf-8', errors='replace') as file:
        return file.read()
