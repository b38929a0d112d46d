"""Which folder may include which: the table of docs/architecture.md, section 4."""
import os
import re

import tree
from tree import Finding

# A file belongs to the longest of these that its path starts with. What it may include besides its
# own layer; tests may include everything.
MAY_USE = {
    'base': set(),
    'proto': {'base'},
    'kernels': set(),
    'gpu': {'base', 'kernels'},
    'policies': {'base'},
    'daemon/core': {'policies', 'base'},
    # daemon/bus is main.c's alone: the library below it doesn't link.
    'daemon': {'daemon/bus', 'daemon/core', 'daemon/slab', 'policies', 'gpu', 'kernels', 'proto', 'base'},
    'daemon/bus': {'daemon', 'daemon/core', 'policies', 'gpu', 'proto', 'base'},
    'daemon/mover': {'gpu', 'kernels', 'proto', 'base'},
    'daemon/slab': {'gpu', 'base'},
    'daemon/keeper': {'daemon', 'base'},
    'client': {'proto', 'base', 'gpu'},
    'client/replay': {'client', 'gpu', 'kernels', 'policies', 'proto', 'base'},
}

# Generated headers are in no tracked folder.
GENERATED = {'gmb.pb-c.h': 'proto', 'pressure.pb-c.h': 'proto', 'segment.pb-c.h': 'proto', 'proto/gmb.pb-c.h': 'proto', 'proto/mover.pb-c.h': 'proto'}

# What a header from outside libc starts with, and the layers that may use it.
FOREIGN = {
    'protobuf-c/': {'proto'},
    'event2/': {'daemon', 'daemon/bus', 'daemon/mover', 'client', 'client/replay'},
    'systemd/': {'daemon', 'daemon/bus', 'daemon/keeper', 'daemon/mover', 'client'},
    'ini.h': {'daemon', 'client'},
    'jansson.h': {'daemon', 'client', 'client/replay'},
    'xxhash.h': {'daemon', 'daemon/bus', 'daemon/mover', 'client', 'client/replay', 'gpu', 'kernels', 'base'},
    'cuda': set(),
    'nvml.h': set(),
}

# The decisions do no I/O and read no clock: these headers are all that they get of libc.
PURE_LAYERS = {'daemon/core', 'policies'}
PURE_HEADERS = {'assert.h', 'ctype.h', 'errno.h', 'inttypes.h', 'limits.h', 'math.h', 'stdalign.h',
                'stdarg.h', 'stdbool.h', 'stddef.h', 'stdint.h', 'stdio.h', 'stdlib.h', 'string.h',
                'strings.h'}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def layer_of(path):
    best = ''
    for layer in MAY_USE:
        if path.startswith(layer + '/') and len(layer) > len(best):
            best = layer
    return best


def resolve(root, path, name):
    """Path of an included header of ours: beside the file first, then from the root."""
    beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
    for candidate in (beside, os.path.normpath(name)):
        if os.path.exists(os.path.join(root, candidate)):
            return candidate
    return None


def check_ours(root, path, layer, name):
    if name in GENERATED:
        target = GENERATED[name]
    else:
        header = resolve(root, path, name)
        if header is None:
            return f'"{name}" is no file of ours; headers from outside take <>'
        if header.startswith('tests/'):
            return f'{layer} includes {header}: nothing but a test includes a test'
        target = layer_of(header)
    if target and target != layer and target not in MAY_USE[layer]:
        return f'{layer} may not include {target} ({name})'
    return None


def check_system(layer, name):
    if layer in PURE_LAYERS and name not in PURE_HEADERS:
        return f'{layer} does no I/O and reads no clock: no <{name}>'
    for prefix, layers in FOREIGN.items():
        if name.startswith(prefix) and layer not in layers:
            return f'{layer} may not include <{name}>'
    return None


def check(root):
    for path in tree.c_files(root):
        layer = layer_of(path)
        if not layer:
            continue
        for number, line in enumerate(tree.lines(root, path), 1):
            include = INCLUDE.match(line)
            if not include:
                continue
            quote, name = include.groups()
            if quote == '"':
                message = check_ours(root, path, layer, name)
            else:
                message = check_system(layer, name)
            if message:
                yield Finding(path, number, message)
