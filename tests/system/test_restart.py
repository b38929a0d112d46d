"""Leases that outlive the broker, by the fd store of a real systemd."""
import os
import signal

import bed
import node
from node import MIB

UNIT = 'chat-keeps.service'


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
            succeed(lambda before: bed.run('systemctl', 'restart', 'gmbd.service'))
            kept(client)


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


def test_memory_of_a_worker_that_ended_meanwhile_comes_back():
    with node.worker(UNIT, 32 * MIB) as client:
        os.kill(node.pid(), signal.SIGSTOP)
        os.kill(client['pid'], signal.SIGKILL)
        succeed(lambda before: os.kill(before, signal.SIGKILL))
        bed.wait_for('its memory', lambda: leased() == 0)
    bed.equal(node.clients(), [])


def test_the_store_is_empty_but_for_the_ledger_in_the_end():
    bed.wait_for('one fd', lambda: bed.show('gmbd.service', 'NFileDescriptorStore') == '1')


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


def kept(client):
    """The worker is the same client, with what it had, and connected."""
    bed.wait_for('the worker', lambda: (node.holder(UNIT) or {}).get('connected'))
    found = node.holder(UNIT)
    for name in ('id', 'pid', 'tenant', 'unit', 'leases', 'leased_bytes'):
        bed.equal(found[name], client[name])
    bed.equal(leased(), 32 * MIB)


def leased():
    return sum(each['leased_bytes'] for each in node.gmbctl('status')['devices'])


if __name__ == '__main__':
    setup()
    bed.main()
