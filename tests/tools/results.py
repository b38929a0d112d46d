#!/usr/bin/env python3
"""Sums up test results.

results.py --status N JUNIT...  one stage of `./dev test`: prints `passed failed skipped`, counting
                                the cases of each test; names what failed on standard error
results.py --sum                reads lines `stage passed failed skipped`, prints them as a table and
                                the total as the last line; exit status 1 when anything failed
"""
import argparse
import json
import os
import sys
import xml.etree.ElementTree as ElementTree

# What meson calls a test that is no failure of ours.
GOOD = {'OK', 'SKIP', 'EXPECTEDFAIL'}


def read_cases(junit):
    """The cases of the tests that report them one by one (TAP), by test name, each as
    [passed, failed, skipped]."""
    tests = {}
    for suite in ElementTree.parse(junit).getroot().iter('testsuite'):
        _project, dot, name = suite.get('name', '').partition('.') # then as in the JSON log
        if not dot:
            continue # tests with an exit status only: meson leaves a time-out out of this file
        counts = tests.setdefault(name, [0, 0, 0])
        for case in suite.iter('testcase'):
            if case.find('failure') is not None or case.find('error') is not None:
                counts[1] += 1
                print(f"failed: {name}: {case.get('name')}", file=sys.stderr)
            elif case.find('skipped') is not None:
                counts[2] += 1
            else:
                counts[0] += 1
    return tests


def count_test(name, result, cases):
    """[passed, failed, skipped] of one test, which is one case unless it reports several."""
    counts = list(cases.get(name, [0, 0, 0]))
    if result not in GOOD and counts[1] == 0:
        # Also a crash after the last case, a wrong exit status.
        print(f'failed: {name}: {result}', file=sys.stderr)
        counts[1] = 1
    elif counts == [0, 0, 0]:
        counts[2 if result == 'SKIP' else 0] = 1
    return counts


def sum_stage(files, status):
    total = [0, 0, 0]
    for junit in files:
        if not os.path.exists(junit):
            continue # the shell's pattern, unmatched: no test ran
        cases = read_cases(junit)
        with open(junit.removesuffix('.junit.xml') + '.json', encoding='utf-8') as lines:
            for line in lines:
                test = json.loads(line)
                counts = count_test(test['name'], test['result'], cases)
                total = [a + b for a, b in zip(total, counts)]
    if total[1] == 0 and (status != 0 or total[0] + total[2] == 0):
        total[1] = 1 # meson says so, or nothing ran at all: never a pass
    print(*total)
    return 0


def sum_stages(lines):
    rows = [line.split() for line in lines if line.strip()]
    total = [0, 0, 0]
    print(f"{'stage':<12}{'passed':>8}{'failed':>8}{'skipped':>9}")
    for name, *counts in rows:
        counts = [int(count) for count in counts]
        total = [a + b for a, b in zip(total, counts)]
        print(f'{name:<12}{counts[0]:>8}{counts[1]:>8}{counts[2]:>9}')
    skipped = f', {total[2]} skipped' if total[2] else ''
    print(f'{total[0]} passed, {total[1]} failed{skipped}')
    return 1 if total[1] or not rows else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--status', type=int, default=0)
    parser.add_argument('--sum', action='store_true')
    parser.add_argument('files', nargs='*')
    options = parser.parse_args()
    if options.sum:
        return sum_stages(sys.stdin)
    return sum_stage(options.files, options.status)


if __name__ == '__main__':
    sys.exit(main())
