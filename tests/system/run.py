#!/usr/bin/env python3
"""Runs a file of cases in a booted container, on an installed tree of the build.

run.py --build DIR --source DIR --prefix DIR --seconds N FILE   prints what the cases print: TAP
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

import boot


def comment(title, text):
    for line in text.splitlines():
        print(f'# {title}: {line}')


def tree_install(build, destination):
    """What `meson install` puts on a machine."""
    subprocess.run(['meson', 'install', '-C', build, '--destdir', destination, '--no-rebuild',
                    '--quiet'], check=True, stdout=subprocess.DEVNULL)


def polkit_actions(installed, folder):
    """polkit reads one folder only: what the machine has there, and ours."""
    shutil.copytree('/usr/share/polkit-1/actions', folder)
    if os.path.isdir(installed):
        shutil.copytree(installed, folder, dirs_exist_ok=True)


def binds_make(arguments, work):
    tree = f'{work}/tree'
    share = f'{tree}{arguments.prefix}/share'
    tree_install(arguments.build, tree)
    binds = [(tree + arguments.prefix, arguments.prefix, False),
             (arguments.source, '/gmbd-test/source', False),
             (arguments.build, '/gmbd-test/build', False)]
    # The bus reads /usr/share and /etc, whatever the prefix is.
    policy = f'{share}/dbus-1/system.d/org.gmbd.Broker1.conf'
    if os.path.exists(policy):
        binds.append((policy, '/etc/dbus-1/system.d/org.gmbd.Broker1.conf', False))
    if os.path.isdir('/usr/share/polkit-1/actions'):
        polkit_actions(f'{share}/polkit-1/actions', f'{work}/actions')
        binds.append((f'{work}/actions', '/usr/share/polkit-1/actions', False))
    return binds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--build', required=True)
    parser.add_argument('--source', required=True)
    parser.add_argument('--prefix', required=True)
    parser.add_argument('--seconds', type=int, default=150)
    parser.add_argument('cases')
    arguments = parser.parse_args()
    try:
        boot.check()
    except boot.Impossible as why:
        print(f'1..0 # SKIP {why}')
        return 0
    # Not below /tmp, which the container hides beneath its own.
    with tempfile.TemporaryDirectory(prefix='gmbd-system-', dir='/var/tmp') as work:
        os.chmod(work, 0o755)
        python = shutil.which('python3', path='/usr/bin:/usr/local/bin') or 'python3'
        output, complaints, said, in_time = boot.run(
            work, binds_make(arguments, work),
            f'{python} /gmbd-test/source/tests/system/{arguments.cases}', arguments.seconds)
    print(output, end='')
    comment('said', complaints)
    comment('container', said)
    if not in_time:
        print(f'Bail out! not through after {arguments.seconds} s')
        return 1
    if '1..' not in output:
        print('Bail out! the container ended before the cases did')
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
