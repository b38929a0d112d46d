"""The files that lint looks at, and the form of what it finds."""
import os
import subprocess
from collections import namedtuple

# A checkout that belongs to somebody else (a container's bind mount) is read all the same.
GIT = ['git', '-c', 'safe.directory=*']

# `line` 0: about the file as a whole.
Finding = namedtuple('Finding', 'path line message')


def files(root):
    """Paths relative to `root` of what git tracks or would track; every file where there is no
    repository (a release tarball, the self-test's scratch folder)."""
    if os.path.exists(os.path.join(root, '.git')):
        listed = subprocess.run(GIT + ['ls-files', '-z', '-co', '--exclude-standard'],
                                cwd=root, check=True, capture_output=True, text=True).stdout
        found = [path for path in listed.split('\0') if path]
    else:
        found = []
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if not name.startswith(('build', '.'))]
            found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(path for path in found if os.path.isfile(os.path.join(root, path)))


def c_files(root):
    return [path for path in files(root) if path.endswith(('.c', '.h'))]


def shell_files(root):
    found = []
    for path in files(root):
        if path.endswith('.sh'):
            found.append(path)
        elif '.' not in os.path.basename(path):
            with open(os.path.join(root, path), 'rb') as file:
                if file.readline().startswith((b'#!/usr/bin/env bash', b'#!/bin/bash',
                                               b'#!/bin/sh', b'#!/usr/bin/bash')):
                    found.append(path)
    return found


def lines(root, path):
    with open(os.path.join(root, path), encoding='utf-8', errors='replace') as file:
        return file.read().splitlines()
