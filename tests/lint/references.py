"""What the documents point at exists: the files they link to, the tests that they name."""
import os
import re

import tree
from tree import Finding

LINK = re.compile(r'\]\(([^)#\s:]+)(?:#[^)]*)?\)')
TEST = re.compile(r'START_TEST\((\w+)\)')
# The pages whose backticked names are tests, where they look like one: words, no call, no path.
TEST_PAGES = ('docs/field-failures.md',)
TEST_NAME = re.compile(r'`([a-z0-9]+(?:_[a-z0-9]+){3,})`')


def test_names(root):
    return {name for path in tree.c_files(root) if path.startswith('tests/')
            for line in tree.lines(root, path) for name in TEST.findall(line)}


def check(root):
    known = None
    for path in tree.files(root):
        if not path.endswith('.md'):
            continue
        for number, line in enumerate(tree.lines(root, path), 1):
            for target in LINK.findall(line):
                if not os.path.exists(os.path.join(root, os.path.dirname(path), target)):
                    yield Finding(path, number, f'links to {target}, which does not exist')
            if path not in TEST_PAGES:
                continue
            known = test_names(root) if known is None else known
            for name in TEST_NAME.findall(line):
                if name not in known:
                    yield Finding(path, number, f'names the test {name}, which does not exist')
