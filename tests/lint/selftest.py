#!/usr/bin/env python3
"""Proves that each lint check can fail: plants one violation at a time into a clean scratch tree and
expects exactly the finding that it must cause. Prints TAP."""
import os
import shutil
import subprocess
import sys
import tempfile

import budgets
import external
import layers
import references
import text

HEADER = '/* A header. */\n#pragma once\n'
SOURCE = '/* Models nothing. */\n'


def function(lines):
    """A function of exactly that many lines, head included."""
    return 'int f(void)\n{\n' + '    f();\n' * (lines - 3) + '}\n'


CLEAN = {
    '.clang-format': 'BasedOnStyle: LLVM\nIndentWidth: 4\nSortIncludes: Never\n',
    'base/size.h': HEADER,
    'proto/frame.h': HEADER,
    'gpu/gpu.h': HEADER,
    'policies/evict.h': HEADER,
    'kernels/kernel.h': HEADER,
    'daemon/server.h': HEADER,
    'daemon/core/core.h': HEADER,
    'daemon/mover/mover.h': HEADER,
    'client/gmb.h': HEADER,
    'tests/unit/unit.h': HEADER,
    'daemon/core/core.c': SOURCE + '#include "daemon/core/core.h"\n\n#include <stdint.h>\n\n'
                          '#include "base/size.h"\n#include "policies/evict.h"\n',
    'client/lease.c': SOURCE + '#include "gmb.h"\n#include "proto/frame.h"\n#include "gpu/gpu.h"\n',
    'tests/unit/test.c': SOURCE + '#include "daemon/core/core.h"\n#include "client/gmb.h"\n',
    'tests/run.sh': '#!/bin/bash\necho "$1"\n',
    'docs/gmbctl.1': '.Dd January 1, 2026\n.Dt GMBCTL 1\n.Os\n.Sh NAME\n.Nm gmbctl\n'
                     '.Nd control program of gmbd\n.Sh DESCRIPTION\nText.\n',
}


def include(path, header):
    return path, SOURCE + f'#include {header}\n'


# Check, name, (path, content) planted, what the finding says.
PLANTED = [
    (layers.check, 'client includes daemon', include('client/a.c', '"daemon/server.h"'), 'daemon'),
    (layers.check, 'client includes core', include('client/a.c', '"daemon/core/core.h"'), 'core'),
    (layers.check, 'policies include daemon', include('policies/a.c', '"daemon/server.h"'),
     'daemon'),
    (layers.check, 'policies include core', include('policies/a.c', '"../daemon/core/core.h"'),
     'core'),
    (layers.check, 'core includes proto', include('daemon/core/a.c', '"proto/frame.h"'), 'proto'),
    (layers.check, 'core includes gpu', include('daemon/core/a.c', '"gpu/gpu.h"'), 'gpu'),
    (layers.check, 'core includes the shell', include('daemon/core/a.c', '"daemon/server.h"'),
     'daemon'),
    (layers.check, 'core includes generated messages', include('daemon/core/a.c', '"gmb.pb-c.h"'),
     'proto'),
    (layers.check, 'core includes the socket', include('daemon/core/a.c', '<sys/socket.h>'),
     'no I/O'),
    (layers.check, 'core reads a clock', include('daemon/core/a.c', '<time.h>'), 'no clock'),
    (layers.check, 'base includes proto', include('base/a.h', '"proto/frame.h"'), 'proto'),
    (layers.check, 'kernels include base', include('kernels/a.c', '"base/size.h"'), 'base'),
    (layers.check, 'the mover includes the core', include('daemon/mover/a.c',
                                                          '"daemon/core/core.h"'), 'core'),
    (layers.check, 'the product includes a test', include('daemon/a.c', '"tests/unit/unit.h"'),
     'test'),
    (layers.check, 'base includes libevent', include('base/a.c', '<event2/event.h>'), 'event2'),
    (layers.check, 'gpu includes the toolkit', include('gpu/a.c', '<cuda.h>'), 'cuda.h'),
    (layers.check, 'quotes around a foreign header', include('base/a.c', '"stdint.h"'), 'stdint'),
    (budgets.check, 'file over 600 lines', ('base/a.c', SOURCE + '\n' * 600), '601 lines'),
    (budgets.check, 'function over 80 lines', ('base/a.c', SOURCE + function(81)), '81 lines'),
    (budgets.check, 'line over 100 columns', ('base/a.c', '/*' + 'x' * 97 + '*/\n'), '101 columns'),
    (budgets.check, 'one function in ten over 45 lines',
     ('base/a.c', SOURCE + function(46) * 2 + function(3) * 8), 'p90 is 46'),
    (text.check, 'note to self', ('base/a.c', SOURCE + '/* TO' + 'DO: later */\n'), 'do it'),
    (text.check, 'path of one machine', ('README.md', 'See /ho' + 'me/me/notes.\n'), 'one machine'),
    (text.check, 'trailing space', ('base/a.c', SOURCE + 'int a; \n'), 'space'),
    (text.check, 'dead block', ('base/a.c', SOURCE + '#if 0\n#endif\n'), 'dead code'),
    (text.check, 'commented-out call', ('base/a.c', SOURCE + '/* free_all(list); */\n'), 'commented'),
    (text.check, 'commented-out assignment', ('base/a.c', SOURCE + '// bytes = 0;\n'), 'commented'),
    (text.check, 'commented-out block', ('base/a.c', SOURCE + '/*\n if (bytes > 0) {\n}\n*/\n'),
     'commented'),
    (text.check, 'no comment on the model', ('base/a.c', '#include "base/size.h"\n'), 'model'),
    (references.check, 'link to nothing', ('docs/a.md', 'See [b](b.md).\n'), 'b.md'),
    (references.check, 'test that is none', ('docs/field-failures.md', '`a_test_that_is_none`\n'),
     'does not exist'),
    (external.check_format, 'format', ('base/a.c', SOURCE + 'int  a ;\n'), 'clang-format'),
    (external.check_shell, 'shell', ('tests/a.sh', '#!/bin/bash\nrm -rf $1\n'), 'quote'),
    (external.check_shell, 'shell without suffix', ('deploy/a', '#!/bin/bash\nrm -rf $1\n'),
     'quote'),
    (external.check_man, 'man page', ('docs/a.1', '.Dd $Mdocdate$\n.Dt A 1\n.Os\n.Sh NAME\n'
                                      '.Nm a\n.Nd b\n.Sh X\n.Xy\n'), 'skipping unknown macro'),
    (external.check_cppcheck, 'cppcheck', ('base/a.c', 'int f(void);\nint f(void)\n{\n    int a[2];\n'
                                           '    a[2] = 1;\n    return a[1];\n}\n'), 'out of bounds'),
]

# At the budget and not past it: no finding.
ALLOWED = [
    (budgets.check, 'file of 600 lines', ('base/a.c', SOURCE + '\n' * 599)),
    (budgets.check, 'function of 80 lines', ('base/a.c', SOURCE + function(80) + function(3) * 9)),
    (budgets.check, 'line of 100 columns', ('base/a.c', '/*' + 'x' * 96 + '*/\n')),
    (budgets.check, 'p90 of 45 lines', ('base/a.c', SOURCE + function(45) * 2 + function(3) * 8)),
    (text.check, 'an example in a comment', ('base/a.h', '/*\n * So:\n *     run(now);\n */\n')),
    (text.check, 'prose that ends in a semicolon', ('base/a.h', '/* Zero is success;\n * more. */\n')),
    (layers.check, 'a test includes everything', include('tests/a.c', '"daemon/server.h"')),
]

MEDIAN = {f'base/long{i}.c': SOURCE + '\n' * 200 for i in range(20)}


def plant(root, content):
    for path, body in content.items():
        os.makedirs(os.path.dirname(os.path.join(root, path)) or root, exist_ok=True)
        with open(os.path.join(root, path), 'w', encoding='utf-8') as file:
            file.write(body)


def findings(check, content):
    """What `check` finds in the clean tree with `content` added."""
    with tempfile.TemporaryDirectory() as root:
        plant(root, CLEAN)
        plant(root, content)
        return list(check(root))


def expect_one(check, path, message):
    """A judge: exactly one file is found, for the right reason and at the right place."""
    def judge(content):
        found = findings(check, content)
        return bool(found) and all(each.path in (path, '.') for each in found) and any(
            message in each.message.lower() + each.message for each in found)
    return judge


def exports(source, expected):
    """A library that exports a foreign name is found, one that exports its own only is not."""
    with tempfile.TemporaryDirectory() as root:
        plant(root, {'client/a.c': source})
        subprocess.run(['cc', '-shared', '-fPIC', '-o', os.path.join(root, 'client/libgmb.so.0'),
                        os.path.join(root, 'client/a.c')], check=True)
        return [each.message for each in external.check_exports(root, root)] == expected


def commits(subject):
    """Whether a history with this subject is found fault with."""
    with tempfile.TemporaryDirectory() as root:
        git = ['git', '-C', root, '-c', 'user.name=a', '-c', 'user.email=a@b', '-c',
               'commit.gpgsign=false']
        subprocess.run(git + ['init', '-q'], check=True)
        subprocess.run(git + ['commit', '-q', '--allow-empty', '--no-verify', '-m', subject],
                       check=True)
        return bool(external.check_commits(root))


def cases():
    """(name, function that says whether the case holds, tool that it needs)."""
    tools = {external.check_format: 'clang-format', external.check_shell: 'shellcheck',
             external.check_man: 'mandoc', external.check_cppcheck: 'cppcheck'}
    every = {check for check, *_rest in PLANTED}
    for check in sorted(every, key=lambda each: each.__module__ + each.__name__):
        yield (f'{check.__module__}.{check.__name__}: the clean tree is clean',
               lambda check=check: not findings(check, {}), tools.get(check))
    for check, name, (path, body), message in PLANTED:
        judge = expect_one(check, path, message)
        yield f'found: {name}', lambda j=judge, c={path: body}: j(c), tools.get(check)
    for check, name, (path, body) in ALLOWED:
        yield (f'allowed: {name}', lambda check=check, c={path: body}: not findings(check, c),
               tools.get(check))
    yield ('found: median over 200 lines',
           lambda: 'median' in findings(budgets.check, MEDIAN)[0].message, None)
    yield ('allowed: exports of its own',
           lambda: exports('int gmb_a(void) { return 0; }\n', []), 'cc')
    yield ('found: foreign export', lambda: exports(
        'int gmb_a(void) { return 0; }\nint helper(void) { return 0; }\n', ['exports helper']), 'cc')
    yield ('found: no export at all', lambda: exports(
        'static int a;\n', ['exports nothing that starts with gmb_']), 'cc')
    yield 'allowed: commit subject', lambda: not commits('base, core: sizes hold'), 'git'
    yield 'found: commit without component', lambda: commits('Fix things'), 'git'
    yield 'found: commit with a full stop', lambda: commits('base: fix things.'), 'git'
    yield 'found: overlong commit subject', lambda: commits('base: ' + 'x' * 95), 'git'


def main():
    number = failed = 0
    for number, (name, holds, tool) in enumerate(cases(), 1):
        if tool is not None and shutil.which(tool) is None:
            print(f'ok {number} - {name} # SKIP {tool} is not installed')
        elif holds():
            print(f'ok {number} - {name}')
        else:
            print(f'not ok {number} - {name}')
            failed += 1
    print(f'1..{number}')
    sys.exit(1 if failed else 0)


if __name__ == '__main__':
    main()
