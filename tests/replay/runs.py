"""Whole runs of gmb-replay, with its own gmbd and real processes, each in a directory of its own.

usage: runs.py GMB_REPLAY GMBD TRACES NAME      runs the test NAME; 77: skipped, with the reason

After each, no process of the run and no file of it may be left.
"""
import contextlib
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
DEADLINE_S = 240
COUNTS = ('requests_total', 'admitted_at_once', 'waited', 'refused', 'wait_ms_p50', 'wait_ms_p99',
          'peak_bytes', 'static_peak_bytes', 'saved_ratio', 'corrupt_bytes', 'orphaned_bytes',
          'seconds')


def poll(what, condition):
    """Waits until the condition holds."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError(f'not within {DEADLINE_S} s: {what}')


def read(path):
    try:
        with open(path, 'rb') as file:
            return file.read()
    except OSError:  # it is gone, or somebody else's
        return b''


class Run:
    """gmb-replay with the given arguments, in a directory that only it uses."""

    def __init__(self, directory, *arguments, environment=None):
        self.directory = directory
        self.report_path = os.path.join(directory, 'report.json')
        self.process = subprocess.Popen(
            [REPLAY, '--json', self.report_path, *arguments],
            env={**os.environ, **(environment or {}), 'TMPDIR': directory}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)

    def processes(self):
        """Pids of the run but its first, by program name."""
        mark = f'TMPDIR={self.directory}'.encode()
        found = {}
        for path in glob.glob('/proc/[0-9]*'):
            pid = int(os.path.basename(path))
            if pid != self.process.pid and mark in read(f'{path}/environ').split(b'\0'):
                found.setdefault(read(f'{path}/comm').decode().strip(), []).append(pid)
        return found

    def started(self, workers):
        """Pids of the workers, once memory of the device is in use."""
        poll('memory in use', lambda: glob.glob(f'{self.directory}/gmb-replay-device-*/dev0/*'))
        return poll('the workers', lambda: (
            pids if len(pids := self.processes().get('gmb-replay', [])) == workers else None))

    def end(self, status, deadline_s=DEADLINE_S):
        """Waits for the end, which must be with that status; the report."""
        out, err = self.process.communicate(timeout=deadline_s)
        said = f'{out}\n{err}'
        assert self.process.returncode == status, f'status {self.process.returncode}: {said}'
        assert not self.processes(), f'left running: {self.processes()}'
        with open(self.report_path, encoding='utf-8') as file:
            report = json.load(file)
        os.remove(self.report_path)
        assert os.listdir(self.directory) == [], f'left: {os.listdir(self.directory)}'
        check_sums(report)
        return report


def check_sums(report):
    missing = [key for key in COUNTS if key not in report]
    assert not missing, f'the report lacks {missing}'
    for part in [report, *report['tenants']]:
        assert (part['admitted_at_once'] + part['waited'] + part['refused'] + part['lost']
                == part['requests_total']), part
    for key in ('requests_total', 'admitted_at_once', 'waited', 'refused', 'static_peak_bytes'):
        assert sum(tenant[key] for tenant in report['tenants']) == report[key], key
    assert sum(report['refused_by'].values()) == report['refused']
    assert report['peak_bytes'] <= report['device_bytes']
    saved = 1 - report['peak_bytes'] / report['static_peak_bytes']
    assert abs(report['saved_ratio'] - saved) < 1e-9


def check_clean(report, requests):
    assert report['result'] == 'clean'
    assert report['requests_total'] == requests
    for key in ('lost', 'corrupt_bytes', 'orphaned_bytes', 'workers_failed'):
        assert report[key] == 0, (key, report[key])
    assert report['checked_bytes'] > 0


@contextlib.contextmanager
def directory():
    with tempfile.TemporaryDirectory(prefix='gmb-') as path:
        yield path


def prefix_cache(*arguments, status=0):
    """The figures of a prefix cache, or what was said on standard error."""
    done = subprocess.run([REPLAY, '--json', '-', *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == status, f'status {done.returncode}: {done.stderr}'
    return json.loads(done.stdout) if status == 0 else done.stderr


def test_policies_get_the_published_hit_ratios():
    """In hundredths of a per cent, by policy and number of blocks."""
    for policy, expected in {
            'lru': {1000: 825, 5000: 2791, 10000: 4235, 30000: 6242, 50000: 6396},
            'belady': {1000: 2767, 5000: 5263, 10000: 6180, 30000: 6396, 50000: 6396},
            'sieve': {5000: 1973}, 's3fifo': {5000: 2890},
            'default': {1000: 988, 5000: 3102, 10000: 4732, 30000: 6304, 50000: 6396}}.items():
        for blocks, ratio in expected.items():
            figures = prefix_cache('--trace', shared('mooncake_synthetic.jsonl'), '--policy',
                                   policy, '--blocks', str(blocks))
            assert round(figures['hit_ratio'] * 10000) == ratio, (policy, blocks, figures)


def test_a_policy_writes_its_figures_as_json():
    """Of 2 blocks: a, b, then a hits; c takes b's place; b takes a's. 1 hit of 5, the bound has 2."""
    with directory() as path:
        trace = os.path.join(path, 'trace.jsonl')
        with open(trace, 'w', encoding='utf-8') as file:
            for time_ms, block in enumerate([7, 8, 7, 9, 8]):
                file.write(f'{{"timestamp": {time_ms}, "input_length": 512, "output_length": 1, '
                           f'"hash_ids": [{block}]}}\n')
        figures = prefix_cache('--trace', trace, '--policy', 'lru', '--blocks', '2', '--bound')
    assert figures == {'policy': 'lru', 'blocks': 2, 'requests': 5, 'references': 5, 'distinct': 3,
                       'hits': 1, 'hit_ratio': 0.2, 'bound': 0.4}, figures


def test_an_unknown_policy_is_told_the_names():
    said = prefix_cache('--trace', 'none', '--policy', 'clock', '--blocks', '2', status=2)
    for name in ('clock', 'default', 'lru', 'sieve', 's3fifo', 'gittins', 'belady'):
        assert name in said, said


def test_generated_requests_end_clean():
    with directory() as path:
        report = Run(path, '--limit', '150', '--speed', '20', '--scale', '256').end(0)
    check_clean(report, 150)
    assert report['refused'] == 0 and report['saved_ratio'] > 0


def test_a_full_device_makes_requests_wait_and_none_is_lost():
    with directory() as path:
        report = Run(path, '--limit', '200', '--speed', '50', '--scale', '1024', '--device-memory',
                     '3M').end(0)
    check_clean(report, 200)
    assert report['waited'] > 0 and report['wait_ms_p99'] > 0
    assert report['static_split_refused'] > 0


def test_what_can_never_fit_is_refused_by_the_name_of_its_limit():
    with directory() as path, directory() as beside:
        config = os.path.join(beside, 'gmbd.conf')
        with open(config, 'w', encoding='utf-8') as file:
            file.write('[Tenant small]\nUser=*\nMemoryMax=256K\n')
        report = Run(path, '--limit', '100', '--speed', '50', '--scale', '1024', '--device-memory',
                     '8M', '--config', config).end(0)
    check_clean(report, 100)
    assert report['refused_by'] == {'MemoryMax': report['refused']}
    assert 0 < report['refused'] < 100
    assert report['tenants'][0]['name'] == 'small'
    assert report['peak_bytes'] <= 256 << 10


def test_a_killed_worker_fails_the_run_and_its_memory_comes_back():
    with directory() as path:
        run = Run(path, '--limit', '2000', '--speed', '20', '--scale', '256')
        os.kill(run.started(6)[0], signal.SIGKILL)
        report = run.end(4)
    assert report['result'] == 'lost' and report['lost'] > 0
    assert report['workers_failed'] == 1
    assert report['orphaned_bytes'] == 0 and report['corrupt_bytes'] == 0


def test_a_stopped_worker_is_ended_with_the_run():
    with directory() as path:
        run = Run(path, '--limit', '2000', '--speed', '20', '--scale', '256')
        os.kill(run.started(6)[0], signal.SIGSTOP)
        run.process.send_signal(signal.SIGINT)
        report = run.end(130)
    assert report['orphaned_bytes'] == 0


def test_an_interrupt_gives_everything_back():
    with directory() as path:
        run = Run(path, '--limit', '2000', '--speed', '20', '--scale', '256')
        run.started(6)
        run.process.send_signal(signal.SIGINT)
        report = run.end(130)
    assert report['result'] == 'interrupted'
    assert report['workers_failed'] == 0
    assert report['orphaned_bytes'] == 0 and report['corrupt_bytes'] == 0


def test_a_killed_broker_fails_the_run():
    with directory() as path:
        run = Run(path, '--limit', '2000', '--speed', '20', '--scale', '256')
        run.started(6)
        os.kill(run.processes()['gmbd'][0], signal.SIGKILL)
        report = run.end(4)
    assert report['lost'] > 0 and report['orphaned_bytes'] is None


def spoil(run, path):
    """Writes into the device's memory until the run ends, which must be for corrupt bytes."""
    deadline = time.monotonic() + DEADLINE_S
    while run.process.poll() is None and time.monotonic() < deadline:
        for name in glob.glob(f'{path}/gmb-replay-device-*/dev0/*'):
            with contextlib.suppress(OSError), open(name, 'r+b', buffering=0) as file:
                os.pwrite(file.fileno(), b'not mine', 2048)
        time.sleep(0.05)
    return run.end(3)


def test_bytes_changed_from_outside_are_found():
    with directory() as path:
        run = Run(path, '--limit', '300', '--speed', '10', '--scale', '256')
        run.started(6)
        report = spoil(run, path)
    assert report['result'] == 'corrupt' and report['corrupt_bytes'] > 0
    assert report['lost'] == 0


def test_a_broker_that_is_there_is_used():
    with directory() as path, directory() as beside:
        config, client, control, device = (
            os.path.join(beside, name)
            for name in ('gmbd.conf', 'client.sock', 'control.sock', 'device'))
        with open(config, 'w', encoding='utf-8') as file:
            file.write('[Tenant here]\nUser=*\n')
        settings = {'GMB_SIM_DIR': device, 'GMB_SIM_MEMORY': '64M', 'GMB_SIM_GRANULARITY': '16K'}
        with subprocess.Popen([GMBD, '--gpu', 'sim', '--config', config, '--client-socket', client,
                               '--control-socket', control, '--log-level', 'warning'],
                              env={**os.environ, **settings}) as broker:
            try:
                poll('the broker', lambda: os.path.exists(control))
                run = Run(path, '--limit', '100', '--speed', '20', '--socket', client,
                          environment=settings)
                report = run.end(0)
            finally:
                broker.terminate()
    check_clean(report, 100)
    assert report['device_bytes'] == 64 << 20
    assert [tenant['name'] for tenant in report['tenants']] == ['here']


def shared(name):
    """Path of a published trace; without it, the test is skipped."""
    trace = os.path.join(TRACES, name)
    if not os.path.exists(trace):
        print(f'skipped: there is no {trace}')
        sys.exit(SKIPPED)
    return trace


def weights_are_shared(*arguments):
    with directory() as where:
        run = Run(where, '--tenants', '2', '--workers', '2', '--weights', '2G', '--limit', '120',
                  '--speed', '20', '--scale', '256', *arguments)
        report = run.end(0)
        check_clean(report, 120)
        weights = report['weights_bytes']
        assert weights * report['scale'] >= 2 << 30, report
        assert report['peak_bytes'] >= 2 * weights, report
        # Each of four workers with its own copy, against one for each of two tenants.
        assert report['static_peak_bytes'] >= 4 * weights, report
        assert report['completed'] == 120, report
        assert report['static_split_completed'] == 120 - report['static_split_refused'], report


def test_workers_share_the_weights_of_their_model():
    weights_are_shared()


def test_workers_with_arenas_share_the_weights_of_their_model():
    weights_are_shared('--arena')


def test_requests_with_an_arena_end_clean():
    """All that they left is read again, and everything is given back."""
    with directory() as path:
        report = Run(path, '--arena', '--limit', '150', '--speed', '20', '--scale', '256',
                     '--device-memory', '300%').end(0)
    check_clean(report, 150)
    assert report['refused'] == 0 and report['dropped_pages'] == 0
    assert report['reread_pages'] > 0 and report['workers_killed'] == 0


def memory_moves(requests, deadline_s, *arguments):
    """Four tenants of two priorities on 60 % of what they need at once, and what is cold besides.
    However slow the machine is: nobody is refused for having waited long."""
    if os.geteuid() != 0:
        print('skipped: only root can make processes of four tenants')
        sys.exit(SKIPPED)
    with directory() as path:
        report = Run(path, '--arena', '--limit', str(requests), '--tenants', '4', '--priorities',
                     '200,200,100,100', '--device-memory', '60%', '--wait', str(deadline_s),
                     *arguments).end(0, deadline_s)
    check_clean(report, requests)
    assert report['workers_killed'] == 0 and report['refused'] == 0
    assert report['evictions'] > 0 and report['restores'] > 0 and report['reread_pages'] > 0
    assert report['moved_bytes'] > report['device_bytes']
    assert [tenant['priority'] for tenant in report['tenants']] == [200, 200, 100, 100]
    assert report['entitled'] > 0 and report['entitled_refused'] == 0
    for key in ('evictions', 'restores', 'moved_bytes', 'entitled'):
        assert sum(tenant[key] for tenant in report['tenants']) == report[key], key


def test_memory_moves_so_that_four_tenants_fit_on_a_small_device():
    memory_moves(300, 500, '--speed', '20', '--scale', '256')


def test_memory_moves_under_the_azure_trace():
    memory_moves(5000, 1500, '--trace', shared('azure_conv.csv'))


def test_memory_moves_under_the_mooncake_trace():
    memory_moves(3993, 1500, '--trace', shared('mooncake_synthetic.jsonl'))


def test_workers_obey_their_ladder():
    """The device is so small that every rung is reached; who isn't turned away completes."""
    if os.geteuid() != 0:
        print('skipped: only root can make processes of four tenants')
        sys.exit(SKIPPED)
    with directory() as path, tempfile.NamedTemporaryFile('w') as ladder:
        ladder.write('DegradeLow=drop-prefix-cache 1\n'
                     'DegradeMedium=quantize-kv int8, shrink-context 100\n'
                     'DegradeCritical=reject-below-priority 50, reduce-batch 0.5\n')
        ladder.flush()
        report = Run(path, '--arena', '--limit', '200', '--speed', '20', '--scale', '256',
                     '--tenants', '4', '--load', '400%', '--request-priorities', '100,10',
                     '--ladder', ladder.name).end(0, 90)
    check_clean(report, 200)
    assert report['workers_killed'] == 0
    high, low = report['priorities']
    assert (high['priority'], low['priority']) == (100, 10)
    assert high['requests_total'] + low['requests_total'] == 200
    assert high['rejected'] == 0 and high['completed'] + high['refused'] == high['requests_total']
    assert report['refused_by'].get('reject-below-priority', 0) == low['rejected']
    assert report['goodput_tokens_s'] > 0
    steps = report['ladder']
    for name in ('drop-prefix-cache', 'quantize-kv', 'shrink-context', 'reject-below-priority',
                 'reduce-batch'):
        assert steps[name]['asked'] > 0 and steps[name]['answered'] >= steps[name]['asked'], steps
    assert steps['reject-below-priority']['affected'] == low['rejected'], steps
    for name in ('drop-prefix-cache', 'quantize-kv', 'shrink-context'):
        assert steps[name]['affected'] > 0 and steps[name]['bytes'] > 0, steps
    assert steps['pause-new'] == {'asked': 0, 'answered': 0, 'affected': 0, 'bytes': 0}


def test_a_ladder_with_an_unknown_step_starts_nothing():
    with directory() as path, tempfile.NamedTemporaryFile('w') as ladder:
        ladder.write('DegradeLow=shut-up 1\n')
        ladder.flush()
        done = subprocess.run([REPLAY, '--arena', '--limit', '10', '--ladder', ladder.name],
                              env={**os.environ, 'TMPDIR': path}, capture_output=True, text=True,
                              timeout=DEADLINE_S, check=False)
        assert done.returncode == 1 and 'shut-up' in done.stderr, done
        assert os.listdir(path) == []


def test_an_interrupt_gives_the_arenas_back():
    with directory() as path:
        run = Run(path, '--arena', '--limit', '2000', '--speed', '20', '--scale', '256')
        run.started(6)
        run.process.send_signal(signal.SIGINT)
        report = run.end(130)
    assert report['result'] == 'interrupted'
    assert report['workers_failed'] == 0
    assert report['orphaned_bytes'] == 0 and report['corrupt_bytes'] == 0


def test_bytes_changed_in_an_arena_are_found():
    with directory() as path:
        run = Run(path, '--arena', '--limit', '300', '--speed', '10', '--scale', '256')
        run.started(6)
        report = spoil(run, path)
    assert report['result'] == 'corrupt' and report['corrupt_bytes'] > 0
    assert report['lost'] == 0


def replay_shared(name):
    trace = shared(name)
    with directory() as path:
        report = Run(path, '--trace', trace, '--limit', '200', '--speed', '10').end(0)
    check_clean(report, 200)


def test_the_first_requests_of_the_azure_trace_end_clean():
    replay_shared('azure_conv.csv')


def test_the_first_requests_of_the_mooncake_trace_end_clean():
    replay_shared('mooncake_synthetic.jsonl')


if __name__ == '__main__':
    REPLAY, GMBD, TRACES, NAME = sys.argv[1:]
    globals()['test_' + NAME]()
