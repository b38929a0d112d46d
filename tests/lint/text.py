"""What does not stay in a source: notes to self, commented-out code, paths of one machine."""
import re

import tree
from tree import Finding

SOURCES = ('.c', '.h', '.py', '.sh', '.proto', '.build', '.md', '.conf', '.service')

# Spelled in two parts, so that this file does not find itself.
NOTES = re.compile(r'\b(' + '|'.join(['TO' + 'DO', 'FIX' + 'ME', 'X' + 'XX', 'HA' + 'CK']) + r')\b')
HOMES = re.compile(r'(?<![\w.$}])/(home|root|work|Users)/\w')

# Code in a C comment: a line that ends as only a statement or a block does. Prose may end in a
# semicolon; a call, an assignment or a control statement in front of it makes it code.
CODE_LINE = re.compile(r'^(?:(?:if|for|while|switch)\s*\(.*\)\s*\{?|\}\s*(?:else\b.*)?|'
                       r'(?:return\b[^.]*|[\w>.\[\]*-]+\s*[-+|&]?=\s*[^=].*|\w+\([^)]*\)|'
                       r'(?:break|continue|goto \w+)|#\s*(?:include|define|if|endif)\b.*);?)$')
# Indented further than the prose around it: an example of use.
EXAMPLE = re.compile(r'\*\s{2,}')
DEAD_BLOCK = re.compile(r'^\s*#\s*if\s+0\b')


def is_code(text):
    """Statement-like text that ends in ; or { or } as prose does not."""
    return bool(CODE_LINE.match(text)) and text.endswith((';', '{', '}'))


def commented_code(lines):
    """Numbers of lines in comments that are code."""
    inside = False
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if inside:
            comment, closed, _rest = text.partition('*/')
            inside = not closed
            if not EXAMPLE.match(comment) and is_code(comment.lstrip('* ').strip()):
                yield number
        elif text.startswith('/*'):
            comment, closed, _rest = text[2:].partition('*/')
            inside = not closed
            if is_code(comment.strip('* ')):
                yield number
        elif text.startswith('//') and is_code(text[2:].strip()):
            yield number


def check(root):
    for path in tree.files(root):
        if not path.endswith(SOURCES) and path not in ('dev', '.ci/run'):
            continue
        lines = tree.lines(root, path)
        for number, line in enumerate(lines, 1):
            if NOTES.search(line):
                yield Finding(path, number, f'{NOTES.search(line).group(1)}: do it or file it')
            if HOMES.search(line):
                yield Finding(path, number, 'path of one machine')
            if line != line.rstrip():
                yield Finding(path, number, 'space at the end of the line')
            if path.endswith(('.c', '.h')) and DEAD_BLOCK.match(line):
                yield Finding(path, number, 'dead code: delete it')
        if path.endswith(('.c', '.h')):
            for number in commented_code(lines):
                yield Finding(path, number, 'commented-out code: delete it')
            if path.endswith('.c') and lines and not lines[0].startswith('/*'):
                yield Finding(path, 1, 'opens without a comment on the model that it implements')
