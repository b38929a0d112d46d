"""Computing workers under a real gmbd on a simulated GPU that is too small for them.

usage: runs.py GMB_TRANSFORMER GMBD GMBD_KEEPER GMBCTL NAME     runs the test NAME; 77: skipped, with the reason

The tokens and logits of a worker whose KV pages are evicted and restored must be those of a run on
plain memory. Two tenants take two groups, which only root can take on.
"""
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
DEADLINE_S = 240
LOW, HIGH = 61184, 61185  # groups
# 24 sequences of 512 tokens, 512 bytes each: 6 MiB; and 3 MiB.
LOW_WORK = ['--sequences', '24', '--length', '512', '--turn', '8', '--chunk-pages', '8']
HIGH_WORK = ['--sequences', '12', '--length', '512', '--turn', '8', '--chunk-pages', '8', '--seed', '2']
DEVICE = 8 << 20  # of which the mover has two: a driver allocates no less


def poll(what, condition):
    """Waits until the condition holds."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError(f'not within {DEADLINE_S} s: {what}')


class Broker:
    """gmbd with a tenant `low` and a tenant `high`, each with further lines of configuration. By
    default 3.5 MiB are guaranteed to the latter, so that the former is short of memory from the
    start. Kept: by a keeper, which starts it again when it dies. Tier: how the host tier is
    configured."""

    def __init__(self, directory, low='', high='MemoryMin=3584K\n', kept=False,
                 tier='HostTier=256M'):
        self.client, self.control, config, device, self.log = (
            os.path.join(directory, name) for name in
            ('client.sock', 'control.sock', 'gmbd.conf', 'device', 'log'))
        with open(config, 'w', encoding='utf-8') as file:
            tier = tier.replace('HERE', directory)
            file.write(f'[Broker]\n{tier}\n[Device *]\nReserve=2M\n'
                       f'[Tenant low]\nGroup={LOW}\nPriority=100\n{low}'
                       f'[Tenant high]\nGroup={HIGH}\nPriority=200\n{high}')
        self.environment = {**os.environ, 'GMB_SIM_DIR': device, 'GMB_SIM_MEMORY': str(DEVICE),
                            'GMB_SIM_GRANULARITY': '64K'}
        command = [GMBD, '--gpu', 'sim', '--config', config]
        if kept:
            command = [KEEPER, '--listen', f'client={self.client}', '--listen',
                       f'control={self.control}', '--', *command]
        else:
            command += ['--client-socket', self.client, '--control-socket', self.control]
        with open(self.log, 'w', encoding='utf-8') as log:
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        poll('the broker', lambda: os.path.exists(self.control))

    def said(self):
        with open(self.log, encoding='utf-8') as file:
            return file.read()

    def worker(self, group, *arguments):
        return subprocess.Popen(
            [TRANSFORMER, '--socket', self.client, *arguments], env=self.environment, group=group,
            extra_groups=[], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def set(self, *arguments):
        subprocess.run([GMBCTL, '--socket', self.control, 'set', *arguments], check=True,
                       stdout=subprocess.DEVNULL, timeout=DEADLINE_S)

    def metrics(self, name):
        """The lines of that one."""
        said = subprocess.run([GMBCTL, '--socket', self.control, 'metrics'], check=True, text=True,
                              stdout=subprocess.PIPE, timeout=DEADLINE_S).stdout
        return re.findall(rf'^{name}{{.*', said, re.MULTILINE)

    def evicted(self):
        """Bytes of each tenant's pages in the host tier."""
        return self.metrics('gmbd_tenant_evicted_bytes')

    def leased(self, tenant):
        return sum(int(line.split()[-1]) for line in self.metrics('gmbd_tenant_leased_bytes')
                   if f'tenant="{tenant}"' in line)

    def children(self):
        """Pids of a broker's movers, or of what a keeper has: its broker, and orphaned movers."""
        path = f'/proc/{self.process.pid}/task/{self.process.pid}/children'
        with open(path, encoding='ascii') as file:
            return [int(pid) for pid in file.read().split()]

    def end(self):
        self.process.terminate()
        status = self.process.wait(timeout=DEADLINE_S)
        assert status == 0, f'gmbd ended with {status}: {self.said()}'


@contextlib.contextmanager
def broker(*limits, **options):
    if os.geteuid() != 0:
        print('skipped: only root can make processes of two tenants')
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory(prefix='gmb-') as path:
        running = Broker(path, *limits, **options)
        try:
            yield running
        finally:
            running.end()


def plain(*arguments):
    """Lines of the sequences in an undisturbed run."""
    done = subprocess.run([TRANSFORMER, '--plain', *arguments], stdout=subprocess.PIPE, text=True,
                          check=True, timeout=DEADLINE_S)
    return [line for line in done.stdout.splitlines() if line.startswith('sequence')]


def finish(worker, running):
    """Lines of the sequences, and what the last line counts."""
    out, err = worker.communicate(timeout=DEADLINE_S)
    assert worker.returncode == 0, f'status {worker.returncode}: {err}\n{running.said()}'
    lines = out.splitlines()
    counts = dict(re.findall(r'(\w+) (\d+)', lines[-1].removeprefix('arena ')))
    return ([line for line in lines if line.startswith('sequence')],
            {name: int(count) for name, count in counts.items()}, lines)


def play(running, disturb=lambda low: None, arguments=(), head=0):
    """A worker of the low tenant fills the device, one of the high tenant comes when that has `head`
    bytes; both must end with the tokens of an undisturbed run. `disturb` is called again and again
    meanwhile."""
    low = running.worker(LOW, *LOW_WORK, *arguments)
    high = None
    deadline = time.monotonic() + DEADLINE_S
    while low.poll() is None or high is None or high.poll() is None:
        assert time.monotonic() < deadline, running.said()
        if high is None and (head == 0 or running.leased('low') >= head):
            high = running.worker(HIGH, *HIGH_WORK)
        disturb(low)
        time.sleep(0.02)
    sequences, counts, _ = finish(low, running)
    assert sequences == plain(*LOW_WORK), 'the low tenant computed something else'
    sequences, _, _ = finish(high, running)
    assert sequences == plain(*HIGH_WORK), 'the high tenant computed something else'
    return counts


def test_tokens_are_the_same_while_memory_moves():
    with broker() as running:
        counts = play(running)
    assert counts['evictions'] > 0 and counts['restores'] > 0, counts
    assert counts['lost'] == 0, counts


def test_tokens_are_the_same_when_who_has_priority_takes_memory():
    """Nothing is guaranteed: the low tenant may have it all, until the other one comes."""
    with broker('', '') as running:
        counts = play(running, head=4 << 20)
    assert counts['evictions'] > 0 and counts['lost'] == 0, counts


KILLS = 12


def test_tokens_are_the_same_while_movers_are_killed():
    """Each second one as soon as it is seen, before it is ready or in the middle of its work; the
    others once they have moved something, since else nothing would ever be moved."""
    killed, before = set(), {}

    with broker() as running:
        def disturb(low):
            for pid in set(running.children()) - killed if len(killed) < KILLS else ():
                if pid not in before:
                    before[pid] = running.evicted()
                if len(killed) % 2 == 1 or running.evicted() != before[pid]:
                    killed.add(pid)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

        counts = play(running, disturb)
    assert len(killed) == KILLS, killed
    assert counts['restores'] > 0 and counts['lost'] == 0, counts


STOPS = 3  # the broker looks once a second


def test_tokens_are_the_same_while_movers_are_stopped():
    """Each once it has moved something: the broker sees that it stands still, and starts another."""
    stopped, before = set(), {}

    with broker() as running:
        def disturb(low):
            for pid in set(running.children()) - stopped if len(stopped) < STOPS else ():
                evicted = running.evicted()
                if evicted == before.setdefault(pid, evicted):
                    continue
                stopped.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)

        counts = play(running, disturb)
        # Of the last one it may not be known yet when the workers end.
        assert running.said().count('it is stopped') >= STOPS - 1, running.said()
    assert len(stopped) == STOPS, stopped
    assert counts['restores'] > 0 and counts['lost'] == 0, counts


def test_tokens_are_the_same_where_the_tier_is_on_a_disk():
    with broker(tier='HostTier=0\nHostTierPath=HERE\nHostTierDisk=64M') as running:
        counts = play(running)
    assert counts['evictions'] > 0 and counts['restores'] > 0, counts
    assert counts['lost'] == 0, counts


def test_tokens_are_the_same_without_a_host_tier():
    """What has to leave is dropped and computed again."""
    with broker(tier='HostTier=0') as running:
        counts = play(running, arguments=['--recomputable'])
    assert counts['evictions'] == 0 and counts['lost'] > 0, counts


def comm(pid):
    try:
        with open(f'/proc/{pid}/comm', encoding='ascii') as file:
            return file.read().strip()
    except OSError:
        return ''


RESTARTS = 7  # the keeper's pause after the fourth death, 400 ms, is the longest


def test_tokens_are_the_same_while_the_broker_is_killed_and_renewed():
    """By turns killed and renewed as for an upgrade, each as soon as pages have moved under it: with
    arenas, evicted pages and both tenants' requests on their way. The low tenant holds one sequence
    at a time: where all grow in step, two can lie in more chunks, a page in each, than it may have."""
    restarts = 0

    with broker(kept=True) as running:
        def disturb(low):
            nonlocal restarts
            said = running.said().split('ready: driver')
            if restarts == RESTARTS or len(said) != restarts + 2 or 'planned' not in said[-1]:
                return
            brokers = [pid for pid in running.children() if comm(pid) == 'gmbd']
            if len(brokers) != 1:
                return
            if restarts % 2 == 0:
                os.kill(brokers[0], signal.SIGKILL)
            else:
                running.process.send_signal(signal.SIGUSR1)
            restarts += 1

        counts = play(running, disturb, ['--batch', '1'])
    assert restarts == RESTARTS, restarts
    assert counts['restores'] > 0 and counts['lost'] == 0, counts


def test_tokens_are_the_same_while_quotas_change():
    limits = ['4M', '5M', '6M', 'infinity']
    changes = 0

    with broker() as running:
        def disturb(low):
            nonlocal changes
            running.set('low', f'MemoryMax={limits[changes % len(limits)]}')
            changes += 1

        counts = play(running, disturb)
    assert changes > len(limits)
    assert counts['evictions'] > 0, counts


def test_dropped_pages_are_computed_again_to_the_same_tokens():
    with broker('HostMax=0\n') as running:
        counts = play(running, arguments=['--recomputable'])
    assert counts['lost'] > 0 and counts['recomputed'] >= counts['lost'], counts


def test_a_quantized_tier_stays_within_its_tolerance():
    """Each step is computed on restored pages and on plain memory: the same choice in 97 of 100, and
    no logit, whose standard deviation is 2, is off by more than a half."""
    with broker('QuantizedTier=int8\n') as running:
        low = running.worker(LOW, *LOW_WORK, '--compare')
        high = running.worker(HIGH, *HIGH_WORK)
        _, counts, lines = finish(low, running)
        sequences, _, _ = finish(high, running)
    assert sequences == plain(*HIGH_WORK)
    steps, equal, worst = re.match(
        r'compared steps (\d+) equal (\d+) worst ([\d.]+)', lines[-2]).groups()
    assert counts['restores'] > 0, counts
    assert 0 < float(worst) < 0.5, worst
    assert int(equal) >= 0.97 * int(steps), (steps, equal)


if __name__ == '__main__':
    TRANSFORMER, GMBD, KEEPER, GMBCTL, NAME = sys.argv[1:]
    globals()['test_' + NAME]()
