"""gmbd.service and its sockets, as installed: start, watchdog, reload, status line, sandbox."""
import json
import os
import pwd
import signal
import stat

import bed
import node
from node import MIB


def setup():
    node.prepare()


def test_sysusers_and_tmpfiles_make_the_user_and_the_folder():
    user = pwd.getpwnam('gmbd')
    assert user.pw_shell.endswith('nologin'), user
    found = os.stat('/run/gmbd')
    bed.equal((found.st_uid, stat.S_IMODE(found.st_mode)), (0, 0o755))


def test_sockets_have_their_own_modes_and_groups():
    client, control = os.stat('/run/gmbd/client.sock'), os.stat('/run/gmbd/control.sock')
    bed.equal((client.st_uid, stat.S_IMODE(client.st_mode)), (0, 0o666))
    bed.equal((control.st_uid, stat.S_IMODE(control.st_mode)), (0, 0o660))
    bed.equal(control.st_gid, pwd.getpwnam('gmbd').pw_gid)


def test_the_first_connection_starts_the_broker():
    bed.equal(bed.show('gmbd.service', 'ActiveState'), 'inactive')
    bed.equal(node.gmbctl('status')['driver'], 'sim')
    bed.wait_for('active', lambda: bed.show('gmbd.service', 'ActiveState') == 'active')


def test_a_worker_starts_the_broker_too():
    bed.run('systemctl', 'stop', 'gmbd.service')
    bed.equal(bed.show('gmbd.socket', 'ActiveState'), 'active')
    # Nobody asks on the control socket before the worker has its lease.
    with bed.transient('chat-first.service', '/usr/bin/python3', node.WORKER, str(8 * MIB),
                       properties=[f'Environment=GMB_SIM_DIR={node.SIM}']):
        bed.wait_for('active', lambda: bed.show('gmbd.service', 'ActiveState') == 'active')
        bed.wait_for('lease', lambda: node.holder('chat-first.service'))


def test_the_control_socket_refuses_others():
    out = bed.run('gmbctl', 'status', ok=False, user='nobody')
    bed.contains(out, 'no permission for /run/gmbd/control.sock')


def test_the_broker_is_told_how_much_systemd_stores():
    most = bed.show('gmbd.service', 'FileDescriptorStoreMax')
    bed.contains(bed.show('gmbd.service', 'Environment').split(), f'FDSTORE={most}')


def test_it_runs_as_its_user_with_one_capability():
    node.restart()
    bed.equal(node.proc_status(node.pid(), 'Uid').split()[0], str(pwd.getpwnam('gmbd').pw_uid))
    kill = format(1 << 5, '016x')
    bed.equal(node.proc_status(node.pid(), 'CapEff'), kill)
    bed.equal(node.proc_status(node.pid(), 'CapBnd'), kill)
    # Not for its children: movers.
    bed.equal(node.proc_status(node.pid(), 'CapAmb'), format(0, '016x'))
    bed.equal(node.proc_status(node.pid(), 'NoNewPrivs'), '1')
    bed.equal(node.proc_status(node.pid(), 'Seccomp'), '2')


def test_it_has_no_network_and_can_write_nowhere():
    with open(f'/proc/{node.pid()}/net/dev', encoding='ascii') as file:
        bed.equal([line.split(':')[0].strip() for line in file if ':' in line], ['lo'])
    # Not even root could, where it is.
    for path in ('/file', '/etc/gmbd/file', '/usr/file', '/sys/fs/cgroup/file'):
        out = bed.run('nsenter', f'--target={node.pid()}', '--mount', 'touch', path, ok=False)
        bed.contains(out, 'Read-only file system')


def test_the_exposure_is_at_most_2():
    # Of the unit as it is installed, without the drop-in.
    path = '/usr/local/lib/systemd/system/gmbd.service'
    last = bed.run('systemd-analyze', 'security', '--offline=true', path).strip().splitlines()[-1]
    exposure = float(last.split(':')[1].split()[0])
    assert 0 < exposure <= 2.0, last


def test_each_exception_from_the_sandbox_is_explained_in_the_unit():
    path = '/usr/local/lib/systemd/system/gmbd.service'
    with open(path, encoding='utf-8') as file:
        explained = [line for line in file if line.startswith('# ')]
    counted = bed.run('systemd-analyze', 'security', '--offline=true', '--json=short', path)
    for entry in json.loads(counted):
        if entry['set'] is False and entry['exposure'] is not None:
            # As SystemCallFilter=~@resources, RootDirectory=/RootImage=, ProtectProc=.
            words = entry['name'].replace('=~', ' ').replace('=', '').replace('/', ' ').split()
            word = words[0] if 'Root' in words[0] else words[-1]
            assert any(word in line for line in explained), \
                f'{entry["name"]} is open and nothing in the unit says why'


def test_the_status_line_says_what_goes_on():
    node.restart()
    bed.wait_for('idle status', lambda: node.status().startswith('0 clients with 0 leases'))
    with node.worker('chat-line.service', 32 * MIB):
        bed.wait_for('status of a lease', lambda: node.status().startswith(
            '1 client with 1 lease, 32M of 256M leased, 0 requests waiting'))
    bed.wait_for('idle status', lambda: node.status().startswith('0 clients with 0 leases'))


def test_reload_takes_the_new_configuration():
    node.configure(node.CONFIG.replace('Priority=700', 'Priority=701'))
    bed.run('systemctl', 'reload', 'gmbd.service')
    bed.wait_for('priority', lambda: tenant('chat')['priority'] == 701)
    bed.equal(bed.show('gmbd.service', 'ActiveState'), 'active')


def test_a_refused_reload_keeps_the_old_configuration_and_says_so():
    node.configure(node.CONFIG.replace('Priority=700', 'Priority=x'))
    bed.run('systemctl', 'reload', 'gmbd.service', ok=False)
    bed.wait_for('refusal', lambda: 'reload refused: /etc/gmbd/gmbd.conf:' in node.status())
    bed.equal(tenant('chat')['priority'], 701)
    node.configure(node.CONFIG)
    bed.run('systemctl', 'reload', 'gmbd.service')
    bed.wait_for('priority', lambda: tenant('chat')['priority'] == 700)
    bed.wait_for('no refusal', lambda: 'refused' not in node.status())


def test_the_watchdog_ends_a_stopped_broker_and_systemd_starts_another():
    node.restart()
    before = node.pid()
    os.kill(before, signal.SIGSTOP)
    bed.wait_for('another broker', lambda: node.pid() not in (0, before))
    bed.wait_for('active', lambda: bed.show('gmbd.service', 'ActiveState') == 'active')
    bed.contains(bed.journal('gmbd.service'), 'Watchdog timeout (limit 2s)!')
    bed.equal(bed.show('gmbd.service', 'NRestarts'), '1')
    bed.equal(node.gmbctl('status')['clients'], 0)


def test_the_watchdog_is_fed_while_the_loop_runs():
    node.restart()
    before = node.pid()
    fed = bed.show('gmbd.service', 'WatchdogTimestampMonotonic')
    # Three times, at twice the rate that the manager asks for: it lives past its limit.
    for _each in range(3):
        fed = bed.wait_for('fed', lambda last=fed: newer(
            bed.show('gmbd.service', 'WatchdogTimestampMonotonic'), last))
    bed.equal(node.pid(), before)


def test_pages_move_through_the_mover_in_the_sandbox():
    node.restart()
    transformers = [f'{node.BUILD}/tests/compute/gmb-transformer', '--sequences', '8', '--length',
                    '64', '--pause', '20']
    with bed.transient('chat-pages.service', *transformers,
                       properties=[f'Environment=GMB_SIM_DIR={node.SIM}', 'RemainAfterExit=yes']):
        bed.wait_for('an arena', lambda: node.holder('chat-pages.service'))
        moved = bed.wait_for('evicted pages', evict)
        assert moved > 0
        mover = bed.wait_for('a mover', mover_pid)
        bed.equal(node.proc_status(mover, 'CapEff'), format(0, '016x'))
        bed.equal(node.proc_status(mover, 'CapPrm'), format(0, '016x'))
        bed.equal(node.proc_status(mover, 'NoNewPrivs'), '1')
        # Again and again, whatever it has pinned when we ask.
        bed.wait_for('the end', lambda: evict() is not None and
                     bed.show('chat-pages.service', 'SubState') == 'exited')
        bed.equal(bed.show('chat-pages.service', 'ExecMainStatus'), '0')
        # arena evictions N restores N …
        words = bed.journal('chat-pages.service').split('\narena ')[1].split()
        assert int(words[words.index('evictions') + 1]) > 0, words
        assert int(words[words.index('restores') + 1]) > 0, words
        assert 'cannot do a job' not in bed.journal('gmbd.service', 1000)


def test_stopping_the_service_leaves_the_sockets_and_no_process():
    bed.run('systemctl', 'stop', 'gmbd.service')
    bed.equal(bed.show('gmbd.service', 'Result'), 'success')
    assert os.path.exists('/run/gmbd/client.sock')
    bed.equal(bed.show('gmbd.service', 'TasksCurrent') in ('0', '[not set]'), True)


def tenant(name):
    return next(each for each in node.gmbctl('tenants') if each['name'] == name)


def newer(value, last):
    return value if value not in ('', '0') and int(value) > int(last or 0) else None


def evict():
    bed.run('gmbctl', 'evict', 'chat', '32M', ok=False)
    return tenant('chat')['devices'][0]['evicted_bytes']


def mover_pid():
    for process in os.listdir('/proc'):
        if process.isdigit():
            try:
                if node.proc_status(process, 'Name') == 'gmbd-mover':
                    return process
            except (AssertionError, OSError):
                pass
    return None


if __name__ == '__main__':
    setup()
    bed.main()
