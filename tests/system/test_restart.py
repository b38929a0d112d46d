"""Leases that outlive the broker, by the fd store of a real systemd."""
import contextlib
import os
import signal

import bed
import node
from node import MIB

UNIT = 'chat-keeps.service'
# Another build, by what it says, which has no mover beside it; the drop-in is read behind node's.
MOVER = f'{node.BUILD}/daemon/gmbd-mover'
NEXT = f'{node.BUILD}/tests/integration/gmbd-next'
TRANSFORMER = f'{node.BUILD}/tests/compute/gmb-transformer'
WORK = ['--sequences', '8', '--length', '256', '--turn', '8']
TOKENS = '/run/chat-pages.tokens'
UPGRADE = '/run/systemd/system/gmbd.service.d/upgrade.conf'


def setup():
    node.prepare()


def test_a_killed_broker_leaves_its_leases_to_the_next():
    node.restart()
    with node.worker(UNIT, 32 * MIB) as client:
        for _each in range(3):
            succeed(lambda before: os.kill(before, signal.SIGKILL))
            kept(client)


def test_a_restarted_broker_leaves_its_leases_to_the_next():
    with node.worker(UNIT, 32 * MIB) as client:
        for _each in range(3):
            succeed(restarted)
            kept(client)


def test_an_upgraded_broker_takes_the_leases_over_and_gives_them_back():
    with upgrade_undone(), node.worker(UNIT, 32 * MIB) as client:
        before = node.gmbctl('status')['version']
        succeed(upgraded)
        kept(client)
        bed.equal(node.gmbctl('status')['version'], before + '-next')
        downgrade()
        kept(client)
        bed.equal(node.gmbctl('status')['version'], before)


def test_a_broker_that_the_watchdog_ends_leaves_its_leases_to_the_next():
    with node.worker(UNIT, 32 * MIB) as client:
        succeed(lambda before: os.kill(before, signal.SIGSTOP))
        kept(client)


def test_a_broker_that_dies_again_and_again_is_started_again():
    # More often than systemd would by itself before it gives a unit up, and drops what is stored.
    with node.worker(UNIT, 32 * MIB) as client:
        for _each in range(7):
            succeed(lambda before: os.kill(before, signal.SIGKILL))
        kept(client)


def test_tokens_are_the_same_whatever_ends_the_broker():
    """Computed on pages that are evicted and restored while it is killed, restarted, hangs until the
    watchdog ends it, and is upgraded."""
    node.restart()
    undisturbed = bed.run(TRANSFORMER, '--plain', *WORK)
    properties = [f'Environment=GMB_SIM_DIR={node.SIM}', f'StandardOutput=truncate:{TOKENS}',
                  'RemainAfterExit=yes']
    try:
        with upgrade_undone(), bed.transient('chat-pages.service', TRANSFORMER, *WORK, '--batch',
                                             '1', '--pause', '150', properties=properties):
            bed.wait_for('an arena', lambda: node.holder('chat-pages.service'))
            for end in (lambda before: os.kill(before, signal.SIGKILL), restarted,
                        lambda before: os.kill(before, signal.SIGSTOP), restarted, upgraded):
                bed.wait_for('evicted pages', evict)
                succeed(end)
                bed.equal(bed.show('chat-pages.service', 'SubState'), 'running')
            downgrade()
            bed.wait_for('the end', lambda: bed.show('chat-pages.service', 'SubState') == 'exited',
                         3 * bed.SECONDS)
            bed.equal(bed.show('chat-pages.service', 'ExecMainStatus'), '0')
        with open(TOKENS, encoding='utf-8') as file:
            lines = file.read().splitlines()
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(TOKENS)
    bed.equal([line for line in lines if line.startswith('sequence')],
              [line for line in undisturbed.splitlines() if line.startswith('sequence')])
    words = lines[-1].split()
    assert int(words[words.index('restores') + 1]) > 0, words
    bed.equal(words[words.index('lost') + 1], '0')
    assert "can't go on with" not in bed.journal('gmbd.service', 1000)


def test_memory_of_a_worker_that_ended_meanwhile_comes_back():
    with node.worker(UNIT, 32 * MIB) as client:
        os.kill(node.pid(), signal.SIGSTOP)
        os.kill(client['pid'], signal.SIGKILL)
        succeed(lambda before: os.kill(before, signal.SIGKILL))
        bed.wait_for('its memory', lambda: leased() == 0)
    bed.equal(node.clients(), [])


def test_the_store_has_the_ledger_and_the_tier_alone_in_the_end():
    bed.wait_for('two fds', lambda: bed.show('gmbd.service', 'NFileDescriptorStore') == '2')


def test_what_a_stop_leaves_is_not_kept_from_others():
    with node.worker(UNIT, 32 * MIB):
        bed.run('systemctl', 'stop', 'gmbd.service')
        bed.wait_for('an empty store',
                     lambda: bed.show('gmbd.service', 'NFileDescriptorStore') == '0')
        # The worker comes back as another client. What it has mapped is in use by others now.
        bed.wait_for('the worker', node.clients)
        bed.equal(node.holder(UNIT), None)
        bed.equal(leased(), 0)


def succeed(end):
    """Another broker in the place of this one."""
    before = node.pid()
    end(before)
    bed.wait_for('another broker', lambda: node.pid() not in (0, before))
    bed.wait_for('active', lambda: bed.show('gmbd.service', 'ActiveState') == 'active')


def restarted(_before):
    bed.run('systemctl', 'restart', 'gmbd.service')


def upgraded(before):
    bed.write(UPGRADE, f'[Service]\nExecStart=\nExecStart={NEXT} --gpu=sim\n'
              f'Environment=GMB_MOVER={MOVER}\n')
    bed.run('systemctl', 'daemon-reload')
    restarted(before)


def downgrade():
    os.unlink(UPGRADE)
    bed.run('systemctl', 'daemon-reload')
    succeed(restarted)


@contextlib.contextmanager
def upgrade_undone():
    """Whatever becomes of the block, the cases behind it have the broker of this build."""
    try:
        yield
    finally:
        if os.path.exists(UPGRADE):
            os.unlink(UPGRADE)
            bed.run('systemctl', 'daemon-reload')
            node.restart()


def kept(client):
    """The worker is the same client, with what it had, and connected."""
    bed.wait_for('the worker', lambda: (node.holder(UNIT) or {}).get('connected'))
    found = node.holder(UNIT)
    for name in ('id', 'pid', 'tenant', 'unit', 'leases', 'leased_bytes'):
        bed.equal(found[name], client[name])
    bed.equal(leased(), 32 * MIB)


def evict():
    bed.run('gmbctl', 'evict', 'chat', '32M', ok=False)
    chat = next(each for each in node.gmbctl('tenants') if each['name'] == 'chat')
    return chat['devices'][0]['evicted_bytes']


def leased():
    return sum(each['leased_bytes'] for each in node.gmbctl('status')['devices'])


if __name__ == '__main__':
    setup()
    bed.main()
