#!/usr/bin/env python3
"""Lists what an ABI header declares: abi_entries.py cuda_abi.h abi_entries.h

Writes one line for each type (ABI_SIZE), struct member (ABI_OFFSET), enumerator and numeric macro
(ABI_VALUE). Made from the header, the list can't miss anything that somebody adds to it.
"""
import re
import sys


def without_comments(text):
    return re.sub(r'/\*.*?\*/', '', text, flags=re.S)


def members(body, prefix=''):
    """Names of the members of a struct body, those of nested structs with their path."""
    nested = re.compile(r'struct\s*\{([^{}]*)\}\s*(\w+)\s*;')
    found = []
    for inner, name in nested.findall(body):
        found.append(prefix + name)
        found += members(inner, prefix + name + '.')
    for declaration in nested.sub('', body).split(';'):
        match = re.search(r'(\w+)\s*(\[[^\]]*\])?\s*$', declaration)
        if match:
            found.append(prefix + match.group(1))
    return found


def entries(text):
    for name in re.findall(r'typedef\s+[\w ]+[ *](\w+);', text):
        yield f'ABI_SIZE({name})'
    for body in re.findall(r'enum\s*\w*\s*\{([^{}]*)\}', text):
        for name in re.findall(r'(\w+)\s*=', body):
            yield f'ABI_VALUE({name})'
    for name in re.findall(r'typedef enum \w+ \{[^{}]*\}\s*(\w+);', text):
        yield f'ABI_SIZE({name})'
    for body, name in re.findall(
            r'typedef struct \w+ \{((?:[^{}]|\{[^{}]*\})*)\}\s*(\w+);', text):
        yield f'ABI_SIZE({name})'
        for member in members(body):
            yield f'ABI_OFFSET({name}, {member})'
    for name in re.findall(r'^#define (\w+) \S', text, flags=re.M):
        yield f'ABI_VALUE({name})'


def main():
    with open(sys.argv[1], encoding='ascii') as header:
        text = without_comments(header.read())
    with open(sys.argv[2], 'w', encoding='ascii') as out:
        out.write(''.join(line + '\n' for line in entries(text)))


main()
