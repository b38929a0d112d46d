"""The container is what the other files take it for."""
import os

import bed


def test_a_systemd_of_its_own_runs():
    bed.equal(bed.run('ps', '-o', 'comm=', '-p', '1').strip(), 'systemd')
    bed.equal(bed.run('systemctl', 'show', '--value', '-p', 'Version').split()[0],
              bed.run('systemctl', '--version').split('(')[1].split(')')[0])


def test_cgroups_are_unified():
    with open('/proc/self/cgroup', encoding='ascii') as file:
        bed.contains(file.read(), '0::/system.slice/gmbd-test.service\n')


def test_the_installed_tree_is_there():
    for program in ('gmbd', 'gmbd-mover', 'gmbd-slab'):
        assert os.access(f'/usr/local/sbin/{program}', os.X_OK), program
    bed.equal(bed.show('gmbd.service', 'LoadState'), 'loaded')
    bed.equal(bed.show('gmbd.service', 'FragmentPath'), '/usr/local/lib/systemd/system/gmbd.service')


def test_the_system_bus_works():
    bed.contains(bed.run('busctl', '--system', 'list'), 'org.freedesktop.DBus')


if __name__ == '__main__':
    bed.main()
