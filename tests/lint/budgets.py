"""Budgets of the house style: rooms that are too full are split along what they do."""
import re
import unicodedata

import tree
from tree import Finding

FILE_LINES_MAX = 600
FILE_LINES_MEDIAN = 200
FUNCTION_LINES_MAX = 80
FUNCTION_LINES_P90 = 45
COLUMNS_MAX = 100

# What a function's head cannot be part of: the end of what stands before it.
BEFORE_HEAD = re.compile(r'^(\s*$|[#}/]|\s+\*| \*/)|[;:{]\s*$|\*/\s*$')


def functions(lines):
    """(first line, number of lines) of each function, head included. clang-format puts a function's
    braces, and no others that stand alone, into column 0."""
    opened = None
    for number, line in enumerate(lines, 1):
        if line == '{':
            opened = number
            while opened > 1 and not BEFORE_HEAD.search(lines[opened - 2]):
                opened -= 1
        elif line == '}' and opened is not None:
            yield opened, number - opened + 1
            opened = None


def percentile(values, percent):
    """The smallest value that `percent` per cent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else 0


def width(line):
    """Columns on a terminal; a tab goes to the next multiple of 8."""
    return sum(0 if unicodedata.combining(each) else 1 for each in line.expandtabs(8))


def check(root):
    sizes, lengths = [], []
    for path in tree.c_files(root):
        lines = tree.lines(root, path)
        sizes.append(len(lines))
        for number, line in enumerate(lines, 1):
            if width(line) > COLUMNS_MAX:
                yield Finding(path, number, f'{width(line)} columns, over {COLUMNS_MAX}')
        for first, length in functions(lines):
            lengths.append(length)
            if length > FUNCTION_LINES_MAX:
                yield Finding(path, first, f'function of {length} lines, over {FUNCTION_LINES_MAX}')
    for path in tree.files(root):
        if path.endswith(('.c', '.h', '.py', '.sh', '.proto')) or path == 'dev':
            count = len(tree.lines(root, path))
            if count > FILE_LINES_MAX:
                yield Finding(path, 0, f'{count} lines, over {FILE_LINES_MAX}')
    if percentile(sizes, 50) > FILE_LINES_MEDIAN:
        yield Finding('.', 0, f'median file has {percentile(sizes, 50)} lines, over '
                      f'{FILE_LINES_MEDIAN}')
    if percentile(lengths, 90) > FUNCTION_LINES_P90:
        yield Finding('.', 0, f'one function in ten is over {FUNCTION_LINES_P90} lines (p90 is '
                      f'{percentile(lengths, 90)})')
