#!/usr/bin/env python3
"""Runs every check of `./dev lint`: findings as `file:line: message`, one line for each check, and
the sum as the last line."""
import argparse
import os
import sys

import budgets
import external
import layers
import references
import text


def checks(build_dir):
    """Name and function of each check, in the order of cost."""
    return [
        ('layers', layers.check),
        ('budgets', budgets.check),
        ('text', text.check),
        ('references', references.check),
        ('exports', lambda root: external.check_exports(root, build_dir)),
        ('commits', external.check_commits),
        ('format', external.check_format),
        ('shell', external.check_shell),
        ('man pages', external.check_man),
        ('cppcheck', lambda root: external.check_cppcheck(root, build_dir)),
    ]


def run(root, build_dir):
    passed = failed = skipped = 0
    for name, check in checks(build_dir):
        try:
            found = list(check(root))
        except external.Unavailable as reason:
            print(f'lint: {name}: skipped, {reason}')
            skipped += 1
            continue
        for each in found:
            print(f'{each.path}:{each.line}: {each.message}')
        print(f'lint: {name}: ' + (f'{len(found)} findings' if found else 'clean'))
        passed += not found
        failed += bool(found)
    print(f'{passed} passed, {failed} failed' + (f', {skipped} skipped' if skipped else ''))
    return failed == 0


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser()
    parser.add_argument('--root', default=os.path.dirname(os.path.dirname(here)))
    parser.add_argument('--build-dir', default='build')
    options = parser.parse_args()
    sys.exit(0 if run(options.root, os.path.join(options.root, options.build_dir)) else 1)


if __name__ == '__main__':
    main()
