#!/usr/bin/env python3
"""results.py counts what meson leaves out of its own sums. Prints TAP."""
import json
import os
import subprocess
import sys
import tempfile

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'results.py')


def stage(tests, cases, status=0):
    """`passed failed skipped` of a stage with these tests (name: result), and these TAP cases
    (name: list of XML elements inside a case)."""
    with tempfile.TemporaryDirectory() as folder:
        base = os.path.join(folder, 'dev-x')
        with open(base + '.json', 'w', encoding='utf-8') as file:
            for name, result in tests.items():
                file.write(json.dumps({'name': name, 'result': result}) + '\n')
        with open(base + '.junit.xml', 'w', encoding='utf-8') as file:
            file.write('<testsuites><testsuite name="gmbd"/>')
            for name, inner in cases.items():
                file.write(f'<testsuite name="gmbd.{name}">' + ''.join(
                    f'<testcase name="{i}">{each}</testcase>' for i, each in enumerate(inner)))
                file.write('</testsuite>')
            file.write('</testsuites>')
        done = subprocess.run([sys.executable, TOOL, '--status', str(status), base + '.junit.xml'],
                              check=True, capture_output=True, text=True)
        return done.stdout.strip()


def total(text):
    done = subprocess.run([sys.executable, TOOL, '--sum'], input=text, check=False,
                          capture_output=True, text=True)
    return done.stdout.splitlines()[-1], done.returncode


CASES = [
    ('a test without cases is one', stage({'a': 'OK', 'b': 'SKIP'}, {}), '1 0 1'),
    ('each case counts', stage({'p:s / a': 'OK'}, {'p:s / a': ['', '', '<skipped/>']}), '2 0 1'),
    ('a failed case counts once', stage({'a': 'FAIL'}, {'a': ['', '<failure/>']}, 1), '1 1 0'),
    ('a time-out is a failure', stage({'a': 'TIMEOUT'}, {}, 1), '0 1 0'),
    ('a crash after the last case is one', stage({'a': 'ERROR'}, {'a': ['', '']}, 1), '2 1 0'),
    ('an expected failure passes', stage({'a': 'EXPECTEDFAIL'}, {}), '1 0 0'),
    ('an unexpected pass fails', stage({'a': 'UNEXPECTEDPASS'}, {}, 1), '0 1 0'),
    ('no test at all is a failure', stage({}, {}), '0 1 0'),
    ("meson's own failure is one", stage({'a': 'OK'}, {}, 1), '1 1 0'),
    ('the sum', total('a 3 0 0\nb 2 0 0\n'), ('5 passed, 0 failed', 0)),
    ('the sum with skipped', total('a 3 0 1\n'), ('3 passed, 0 failed, 1 skipped', 0)),
    ('one failure fails all', total('a 3 0 0\nb 2 1 0\n'), ('5 passed, 1 failed', 1)),
    ('no stage fails', total(''), ('0 passed, 0 failed', 1)),
]


def main():
    failed = 0
    for number, (name, got, expected) in enumerate(CASES, 1):
        if got == expected:
            print(f'ok {number} - {name}')
        else:
            print(f'not ok {number} - {name}\n# {got}, not {expected}')
            failed += 1
    print(f'1..{len(CASES)}')
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
