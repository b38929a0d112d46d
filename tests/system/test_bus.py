"""org.gmbd.Broker1 on the booted system's bus, driven by busctl: every property, method and signal."""
import contextlib
import json
import os
import re
import signal
import struct
import subprocess
import xml.etree.ElementTree as ElementTree

import bed
import node
from node import MIB

NAME = 'org.gmbd.Broker1'
ROOT = '/org/gmbd/Broker1'
DOCUMENT = '/gmbd-test/source/docs/dbus.md'
MANAGER, DEVICE, TENANT = f'{NAME}.Manager', f'{NAME}.Device', f'{NAME}.Tenant'


def start(config, drop_in):
    node.prepare(config, drop_in)
    node.restart()
    bed.wait_for('the name', lambda: NAME in bed.run('busctl', 'list', '--acquired'))


def busctl(*arguments, user=None):
    return json.loads(bed.run('busctl', '--json=short', '--', *arguments, user=user) or 'null')


def get(path, interface, name):
    return busctl('get-property', NAME, path, interface, name)['data']


def call(member, *arguments, user=None):
    reply = busctl('call', NAME, ROOT, MANAGER, member, *arguments, user=user)
    return reply['data'] if reply else []


def refused(member, *arguments, user=None):
    """What busctl says of a call that must fail."""
    argv = ['busctl', '--', 'call', NAME, ROOT, MANAGER, member, *arguments]
    out = bed.run(*argv, ok=False, user=user)
    assert out.startswith('Call failed:') or 'Access denied' in out, out
    return out


def objects():
    return busctl('call', NAME, ROOT, 'org.freedesktop.DBus.ObjectManager', 'GetManagedObjects')[
        'data'][0]


def tenant_path(name):
    return f'{ROOT}/tenant/{name}'


def device_path():
    return next(path for path in objects() if path.startswith(f'{ROOT}/device/'))


def uuid():
    return get(device_path(), DEVICE, 'UUID')


def read_some(fd):
    try:
        return os.read(fd, 65536)
    except BlockingIOError:
        return b''


class Signals:
    """What is said on the bus, from the beginning of the block on."""

    def __enter__(self):
        self.monitor = subprocess.Popen(
            ['busctl', '--json=short', 'monitor', '--match', f"type='signal',sender='{NAME}'"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        # It says so when it listens.
        assert b'Monitoring' in self.monitor.stderr.readline()
        os.set_blocking(self.monitor.stdout.fileno(), False)
        self.text, self.seen = b'', []
        return self

    def __exit__(self, *_exception):
        self.monitor.kill()
        self.monitor.communicate()

    def read(self):
        while chunk := read_some(self.monitor.stdout.fileno()):
            self.text += chunk
        *lines, self.text = self.text.split(b'\n')
        self.seen += [json.loads(line) for line in lines if line]
        return self.seen

    def find(self, member, accept=lambda data: True):
        """The data of the first signal of that name that is accepted."""
        return bed.wait_for(f'signal {member}', lambda: next(
            ([each['payload']['data']] for each in self.read()
             if each['member'] == member and accept(each['payload']['data'])), None))[0]

    def changed(self, path, name, value):
        """Waits until an object has told that value of a property."""
        bed.wait_for(f'{name}={value}', lambda: any(
            each['member'] == 'PropertiesChanged' and each['path'] == path and
            each['payload']['data'][1].get(name, {}).get('data') == value for each in self.read()))


def test_the_name_belongs_to_the_service():
    line = next(line for line in bed.run('busctl', 'list', '--acquired').splitlines()
                if line.startswith(NAME))
    bed.equal(line.split()[1:5], [str(node.pid()), 'gmbd', 'gmbd', line.split()[4]])
    bed.contains(line, 'gmbd.service')


def described():
    """Members of each interface as the document has them: (kind, name, takes, gives)."""
    found, interface = {}, None
    with open(DOCUMENT, encoding='utf-8') as file:
        for line in file:
            head = re.match(r'## \S+: (\S+)$', line)
            row = re.match(r'\| (method|property|signal) \| `(\w+)` \| (\S*) ?\| (\S*) ?\| (.*)\|$', line)
            if head:
                interface = head[1]
            elif row:
                kind, name, takes, gives, text = row.groups()
                constant = kind == 'property' and text.startswith('constant')
                found.setdefault(interface, set()).add(
                    (kind, name, takes.strip('`'), gives.strip('`'), constant))
    return found


def introspected(path, interface):
    """The same, as the daemon says."""
    text = busctl('call', NAME, path, 'org.freedesktop.DBus.Introspectable', 'Introspect')['data'][0]
    node_xml = next(each for each in ElementTree.fromstring(text).iter('interface')
                    if each.get('name') == interface)
    found = set()
    for member in node_xml:
        if member.tag == 'annotation':
            continue
        args = {way: ''.join(arg.get('type') for arg in member.iter('arg')
                             if arg.get('direction', 'out') == way) for way in ('in', 'out')}
        emits = [each.get('value') for each in member.iter('annotation')
                 if each.get('name') == 'org.freedesktop.DBus.Property.EmitsChangedSignal']
        found.add((member.tag, member.get('name'), args['in'],
                   member.get('type') if member.tag == 'property' else args['out'],
                   emits == ['const']))
        if member.tag == 'property':
            bed.equal(member.get('access'), 'read')
    return found


def test_the_document_says_what_the_daemon_says():
    wanted = described()
    bed.equal(sorted(wanted), [DEVICE, MANAGER, TENANT])
    for path, interface in ((ROOT, MANAGER), (device_path(), DEVICE),
                            (tenant_path('chat'), TENANT)):
        bed.equal(sorted(introspected(path, interface)), sorted(wanted[interface]))


def test_objects_are_the_manager_each_device_and_each_tenant():
    bed.equal(sorted(path.removeprefix(ROOT) for path in objects()),
              ['/device/' + device_path().rsplit('/', 1)[1], '/tenant/chat', '/tenant/nobody',
               '/tenant/pool'])
    tree = bed.run('busctl', '--list', 'tree', NAME)
    for path in (ROOT, device_path(), tenant_path('chat')):
        bed.contains(tree, path + '\n')


def test_every_property_of_the_manager_is_what_gmbctl_says():
    status = node.gmbctl('status')
    for name, member in (('Version', 'version'), ('Driver', 'driver'), ('Revision', 'revision'),
                         ('Tenants', 'tenants'), ('Clients', 'clients'), ('Leases', 'leases'),
                         ('Waiting', 'waiting'), ('GrantedTotal', 'granted_total'),
                         ('RefusedTotal', 'refused_total'), ('TimedOutTotal', 'timed_out_total'),
                         ('Degraded', 'degraded')):
        bed.equal((name, get(ROOT, MANAGER, name)), (name, status[member]))
    bed.equal(get(ROOT, MANAGER, 'ReloadError'), '')


def test_every_property_of_a_device_is_what_gmbctl_says():
    with node.worker('chat-a.service', 32 * MIB):
        device = node.gmbctl('status')['devices'][0]
        for name, member in (
                ('UUID', 'uuid'), ('Name', 'name'), ('TotalBytes', 'total_bytes'),
                ('ReserveBytes', 'reserve_bytes'), ('LeasedBytes', 'leased_bytes'),
                ('CachedBytes', 'cached_bytes'), ('CleanBytes', 'clean_bytes'),
                ('ReleasingBytes', 'releasing_bytes'), ('OrphanedBytes', 'orphaned_bytes'),
                ('UnaccountedBytes', 'unaccounted_bytes'), ('FreeBytes', 'free_bytes'),
                ('TierBytes', 'tier_bytes'), ('TierUsedBytes', 'tier_used_bytes'),
                ('Healthy', 'healthy'), ('Draining', 'draining'), ('Backend', 'backend'),
                ('MemoryLosses', 'memory_losses')):
            bed.equal((name, get(device_path(), DEVICE, name)), (name, device[member]))
        bed.equal(get(device_path(), DEVICE, 'LeasedBytes'), 32 * MIB)


def test_every_property_of_a_tenant_is_what_gmbctl_says():
    with node.worker('chat-a.service', 32 * MIB):
        tenant = next(each for each in node.gmbctl('tenants') if each['name'] == 'chat')
        path = tenant_path('chat')
        for name, member in (('Name', 'name'), ('Revision', 'revision'), ('Priority', 'priority'),
                             ('Weight', 'weight'), ('Clients', 'clients'), ('Leases', 'leases'),
                             ('Waiting', 'waiting'), ('Configured', 'configured')):
            bed.equal((name, get(path, TENANT, name)), (name, tenant[member]))
        for name in ('ClientsMax', 'LeasesMax'):
            bed.equal((name, get(path, TENANT, name)), (name, 0xffffffff))
        values = get(path, TENANT, 'Devices')[uuid()]
        bed.equal({name: values[name] for name in ('MemoryMin', 'MemoryMax', 'UsedBytes',
                                                   'LeasedBytes', 'EvictedBytes')},
                  {'MemoryMin': 0, 'MemoryMax': 192 * MIB, 'UsedBytes': 32 * MIB,
                   'LeasedBytes': 32 * MIB, 'EvictedBytes': 0})
        bed.equal(len(values), 14)


def test_changes_are_told_with_their_values():
    with Signals() as signals:
        # More than any case before had, which need not have been seen to go.
        with node.worker('chat-a.service', 32 * MIB), node.worker('chat-b.service', 16 * MIB):
            signals.changed(ROOT, 'Leases', 2)
            signals.changed(device_path(), 'LeasedBytes', 48 * MIB)
            signals.changed(tenant_path('chat'), 'Clients', 2)
        signals.changed(ROOT, 'Leases', 0)
        signals.changed(tenant_path('chat'), 'Clients', 0)
        # Nobody touched these.
        assert not [each for each in signals.seen if each['path'] == tenant_path('pool')]


def test_a_level_that_rises_is_told_and_so_is_its_end():
    bed.equal(get(device_path(), DEVICE, 'Pressure'), 'none')
    with Signals() as signals:
        with node.worker('chat-a.service', 176 * MIB): # of 192 MiB: 91 %
            data = signals.find('PressureChanged')
            bed.equal((data[:2], data[3]), ([uuid(), 'medium'], 16 * MIB))
            signals.changed(tenant_path('chat'), 'Pressure', {uuid(): 'medium'})
            bed.equal(get(tenant_path('chat'), TENANT, 'Pressure'), {uuid(): 'medium'})
        signals.find('PressureChanged', lambda data: data[:2] == [uuid(), 'none'])


def test_set_tenant_sets_what_gmbctl_would_set():
    before = get(tenant_path('chat'), TENANT, 'Revision')
    with Signals() as signals:
        revision, = call('SetTenant', 'ssa(ss)t', 'chat', '', '2', 'MemoryMax', '128M', 'Priority',
                         '800', '0')
        assert revision > before
        signals.changed(tenant_path('chat'), 'Priority', 800)
    bed.equal(get(tenant_path('chat'), TENANT, 'Devices')[uuid()]['MemoryMax'], 128 * MIB)
    bed.contains(bed.journal('gmbd.service'), 'set MemoryMax=128M of tenant chat')
    call('SetTenant', 'ssa(ss)t', 'chat', uuid(), '1', 'MemoryMax', '192M', str(revision))
    bed.equal(get(tenant_path('chat'), TENANT, 'Devices')[uuid()]['MemoryMax'], 192 * MIB)


def test_set_tenant_refuses_what_gmbctl_would_refuse():
    before = get(tenant_path('chat'), TENANT, 'Revision')
    for arguments, part in (
            (('nobodys', '', '1', 'Priority', '1', '0'), 'there is no tenant nobodys'),
            (('chat', '', '0', '0'), 'nothing is to be set'),
            (('chat', '', '2', 'Priority', '1', 'Nonsense', '1', '0'), 'there is no key Nonsense'),
            (('chat', '', '1', 'Priority', '-1', '0'), 'Priority'),
            (('chat', '', '1', 'Priority', '1', str(before + 1)), 'revision'),
            (('chat', 'GPU-1', '1', 'MemoryMax', '1M', '0'), 'a device is named by its UUID'),
            (('chat', 'GPU-00000000-0000-0000-0000-000000000000', '1', 'MemoryMax', '1M', '0'),
             'there is no such device'),
            (('chat', '', '1', 'Priority', '1\n2', '0'), 'control characters'),
            (('chat', '', '1', 'Priority', '1' * 257, '0'), 'too long'),
            (('chat', '', '65', *(['Priority', '1'] * 65), '0'), 'too many assignments')):
        bed.contains(refused('SetTenant', 'ssa(ss)t', *arguments), part)
    bed.equal(get(tenant_path('chat'), TENANT, 'Revision'), before)


def test_reload_reads_the_files_and_says_what_is_wrong_with_them():
    node.configure(node.CONFIG + '\n[Tenant added]\nUser=daemon\n')
    with Signals() as signals:
        bed.equal(call('Reload')[1], 4)
        data = signals.find('InterfacesAdded', lambda data: data[0] == tenant_path('added'))
        bed.equal(data[1][TENANT]['Name']['data'], 'added')
        node.configure(node.CONFIG + 'nonsense')
        bed.contains(refused('Reload'), '/etc/gmbd/gmbd.conf:')
        bed.contains(get(ROOT, MANAGER, 'ReloadError'), '/etc/gmbd/gmbd.conf:')
        node.configure(node.CONFIG)
        bed.equal(call('Reload')[1], 3)
        bed.equal(get(ROOT, MANAGER, 'ReloadError'), '')
        bed.equal(signals.find('InterfacesRemoved', lambda data: data[0] == tenant_path('added'))[1],
                  [TENANT])


def test_a_refusal_is_told():
    with Signals() as signals:
        bed.contains(bed.run('python3', node.WORKER, '1024', ok=False), 'refused')
        data = signals.find('Refusal')
        bed.equal((data[0], data[2], data[3]), ('', 'denied', 'none'))
        bed.contains(data[6], 'no tenant is configured for uid 0')
        with node.worker('chat-a.service', 128 * MIB), \
                bed.transient('chat-b.service', 'python3', node.WORKER, str(128 * MIB), '0',
                              properties=[f'Environment=GMB_SIM_DIR={node.SIM}']):
            data = signals.find('Refusal', lambda data: data[0] == 'chat')
            bed.equal((data[2], data[3], data[4]), ('exhausted', 'MemoryMax', 128 * MIB))


def pages(unit, sequences='8'):
    """A worker with an arena whose pages are mostly unpinned."""
    return bed.transient(unit, f'{node.BUILD}/tests/compute/gmb-transformer', '--sequences',
                         sequences, '--length', '256', '--pause', '50',
                         properties=[f'Environment=GMB_SIM_DIR={node.SIM}'])


def test_evict_moves_pages_and_tells_of_it():
    with Signals() as signals, pages('chat-pages.service'):
        bed.wait_for('an arena', lambda: node.holder('chat-pages.service'))
        bed.wait_for('a dry run that has a plan', lambda: plan('Evict', 'chat', 'true'))
        planned, shortfall, steps = bed.wait_for('a plan', lambda: plan('Evict', 'chat'))
        bed.equal((shortfall, steps[0][0]), ('', 'chat'))
        assert planned >= 2 * MIB, planned
        data = signals.find('Eviction')
        bed.equal((data[0], data[1], data[3]), ('chat', uuid(), ''))
        assert data[2] >= 2 * MIB and data[2] % (2 * MIB) == 0, data


def plan(member, tenant, dry_run='false'):
    found = call(member, 'sstb', tenant, '', str(2 * MIB), dry_run)
    return found if found[0] > 0 else None


def test_reclaim_plans_what_others_would_give():
    with pages('chat-pages.service'):
        bed.wait_for('an arena', lambda: node.holder('chat-pages.service'))
        call('SetTenant', 'ssa(ss)t', 'pool', '', '2', 'MemoryMin', '64M', 'Priority', '900', '0')
        planned, _shortfall, steps = bed.wait_for('a plan', lambda: plan('Reclaim', 'pool'))
        bed.equal(steps[0][0], 'chat')
        assert planned >= 2 * MIB, planned
        call('SetTenant', 'ssa(ss)t', 'pool', '', '2', 'MemoryMin', '0', 'Priority', '500', '0')
    for member in ('Evict', 'Reclaim'):
        bed.contains(refused(member, 'sstb', 'nobodys', '', '1', 'true'), 'there is no tenant')
        bed.contains(refused(member, 'sstb', 'chat', '', '0', 'true'), 'nothing is to be moved')


def test_drain_and_undrain_take_a_device_out_of_use_and_back():
    with Signals() as signals:
        bed.equal(call('Drain', 's', uuid()), [0, 0])
        signals.changed(device_path(), 'Draining', True)
        bed.contains(bed.run('systemd-run', '--pipe', '--wait', '--quiet', '--unit=chat-d.service',
                             f'--setenv=GMB_SIM_DIR={node.SIM}', 'python3', node.WORKER, '1024',
                             ok=False), 'refused')
        bed.equal(call('Undrain', 's', uuid()), [])
        signals.changed(device_path(), 'Draining', False)
    bed.contains(refused('Drain', 's', ''), 'a device is named by its UUID')


def grown(unit):
    client = node.holder(unit)
    return client if client and client['leased_bytes'] >= 2 * MIB else None


def stopped_unpinned(process):
    """Stops the worker, and lets it go on when that was while its pages were pinned."""
    os.kill(process, signal.SIGSTOP)
    if call('Evict', 'sstb', 'chat', '', str(2 * MIB), 'true')[0] > 0:
        return True
    os.kill(process, signal.SIGCONT)
    return False


def test_a_kill_is_told_and_the_broker_may_do_it():
    node.configure(node.CONFIG.replace('[Broker]', '[Broker]\nKill=yes\nRecallTimeout=100ms'))
    call('Reload')
    with Signals() as signals, pages('chat-pages.service'):
        victim = bed.wait_for('an arena with memory', lambda: grown('chat-pages.service'))
        # It no longer answers: what is recalled from it does not come back.
        bed.wait_for('a worker stopped between two turns', lambda: stopped_unpinned(victim['pid']))
        free = get(device_path(), DEVICE, 'FreeBytes')
        call('SetTenant', 'ssa(ss)t', 'pool', '', '2', 'MemoryMin', '100%', 'Priority', '900', '0')
        with bed.transient('pool-a.service', 'python3', node.WORKER, str(free + 2 * MIB),
                           properties=[f'Environment=GMB_SIM_DIR={node.SIM}', 'Slice=pool.slice']):
            bed.equal(signals.find('Kill'), ['chat', victim['pid'], uuid(), 'pool'])
            bed.wait_for('the lease', lambda: node.holder('pool-a.service'))
    bed.contains(bed.journal('gmbd.service'), f'killed pid {victim["pid"]} (tenant chat)')
    node.configure(node.CONFIG)
    call('Reload')


MEMBER = f'{node.BUILD}/tests/integration/integration-member'
CREATE, FILL, SEAL, POKE = 0, 4, 6, 7  # enum member_what


@contextlib.contextmanager
def member():
    """A process of `nobody` that does with segments what it is told; gives what tells it."""
    command = f'exec {MEMBER} /run/gmbd/client.sock 3<&0 4>&1 >/dev/null'
    with subprocess.Popen(['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', 'sh', '-c',
                           command], env={**os.environ, 'GMB_SIM_DIR': node.SIM},
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:

        def answered():
            """struct member_answer."""
            result, _writable, _bytes, _limit, text = struct.unpack(
                '=iIQ32s256s', child.stdout.read(304))
            bed.equal((result, text.rstrip(b'\0')), (0, b''))

        def tell(what, size):
            """struct member_order."""
            child.stdin.write(struct.pack(
                '=IIQQQQ80s', what, 0, size, 2 * MIB, 30 * 10**9, 1, b'weights'))
            child.stdin.flush()
            answered()

        answered()
        try:
            yield tell
        finally:
            child.kill()


def test_a_segment_that_was_changed_is_told():
    with Signals() as signals, member() as tell:
        for what in (CREATE, FILL, SEAL):
            tell(what, 4 * MIB)
        tell(POKE, 2 * MIB + 5)
        bed.run('gmbctl', 'segments', '--verify', 'weights', ok=False)
        bed.equal(signals.find('Quarantine'), [
            'nobody', 'weights', uuid(),
            'the 2M at 2M are not what was sealed: somebody has written to it'])
        bed.run('gmbctl', 'segments', '--remove', 'weights')


def test_every_property_of_the_tiers_disk_is_what_gmbctl_says():
    config = node.CONFIG.replace(
        'HostTier=64M', 'HostTier=4M\nHostTierPath=/var/lib/gmbd/tier\nHostTierDisk=64M')
    names = (('TierPath', 'tier_path'), ('TierDiskBytes', 'tier_disk_bytes'),
             ('TierDiskUsedBytes', 'tier_disk_used_bytes'),
             ('TierDiskFailure', 'tier_disk_failure'))

    def shown():
        """Of both, at a moment when they agree."""
        device = node.gmbctl('status')['devices'][0]
        values = [get(device_path(), DEVICE, name) for name, _member in names]
        return values if values == [device[member] for _name, member in names] else None

    bed.equal(shown(), ['', 0, 0, ''])
    # The sandbox doesn't let it write there, and then it does.
    start(config, node.DROP_IN)
    path, _size, used, failure = bed.wait_for('the same figures', shown)
    bed.equal((path, used), ('/var/lib/gmbd/tier', 0))
    bed.contains(failure, 'HostTierPath=/var/lib/gmbd/tier')
    start(config, node.DROP_IN + 'StateDirectory=gmbd/tier\nStateDirectoryMode=0700\n')
    bed.equal(bed.wait_for('the same figures', shown), ['/var/lib/gmbd/tier', 64 * MIB, 0, ''])
    with pages('chat-pages.service'):
        bed.wait_for('pages on the disk', lambda: call(
            'Evict', 'sstb', 'chat', '', str(16 * MIB), 'false') and get(
                device_path(), DEVICE, 'TierDiskUsedBytes') > 0)
        bed.wait_for('the same figures', shown)
    start(node.CONFIG, node.DROP_IN)


CHANGES = (('SetTenant', 'ssa(ss)t', 'chat', '', '1', 'Priority', '1', '0'),
           ('Reclaim', 'sstb', 'chat', '', '1024', 'true'),
           ('Evict', 'sstb', 'chat', '', '1024', 'true'),
           ('Drain', 's', 'GPU-00000000-0000-0000-0000-000000000000'),
           ('Undrain', 's', 'GPU-00000000-0000-0000-0000-000000000000'),
           ('Reload',))


def test_an_unprivileged_caller_may_look_and_is_refused_every_change():
    before = get(tenant_path('chat'), TENANT, 'Revision')
    bed.equal(busctl('get-property', NAME, ROOT, MANAGER, 'Version', user='nobody')['data'],
              get(ROOT, MANAGER, 'Version'))
    for arguments in CHANGES:
        out = refused(*arguments, user='nobody')
        assert 'nteractive authentication required' in out or 'Access denied' in out, out
    bed.equal(get(tenant_path('chat'), TENANT, 'Revision'), before)


def test_a_polkit_rule_lets_a_user_do_what_it_names_and_nothing_else():
    bed.write('/etc/polkit-1/rules.d/10-gmbd.rules', '''
polkit.addRule(function (action, subject) {
    if (action.id == "org.gmbd.broker1.reload" && subject.user == "nobody")
        return polkit.Result.YES;
});
''')
    os.chmod('/etc/polkit-1/rules.d/10-gmbd.rules', 0o644)
    # polkitd reads its rules again by itself.
    bed.wait_for('the rule', lambda: 'failed' not in bed.run(
        'busctl', 'call', NAME, ROOT, MANAGER, 'Reload', ok=False, user='nobody'))
    for arguments in CHANGES[:-1]:
        refused(*arguments, user='nobody')
    bed.contains(bed.journal('gmbd.service'), 'configuration reloaded by uid 65534')


def test_without_polkit_only_root_may():
    bed.run('systemctl', 'mask', '--runtime', '--now', 'polkit.service')
    out = bed.run('dbus-send', '--system', '--print-reply', f'--dest={NAME}', ROOT,
                  f'{MANAGER}.Reload', ok=False, user='nobody')
    bed.contains(out, "AccessDenied: only root may: polkit can't be asked")
    bed.equal(call('Reload')[1], 3)
    bed.run('systemctl', 'unmask', '--runtime', 'polkit.service')


def test_a_call_starts_the_service():
    bed.run('systemctl', 'stop', 'gmbd.service')
    bed.equal(get(ROOT, MANAGER, 'Driver'), 'sim')
    bed.equal(bed.show('gmbd.service', 'ActiveState'), 'active')


def test_the_broker_works_without_a_bus_and_is_back_when_there_is_one():
    before = node.pid()
    # systemctl itself speaks to systemd over a socket of its own.
    bed.run('systemctl', 'stop', 'dbus.socket', 'dbus.service')
    with node.process(8 * MIB) as line:
        bed.equal(line, 'holds as nobody\n')
        bed.equal(node.gmbctl('status')['leases'], 1)
        bed.run('systemctl', 'start', 'dbus.socket')
        bed.wait_for('the name', lambda: NAME in bed.run('busctl', 'list', '--acquired', ok=False))
        bed.equal(get(ROOT, MANAGER, 'Leases'), 1)
    bed.equal(node.pid(), before)


if __name__ == '__main__':
    start(node.CONFIG, node.DROP_IN)
    bed.main()
