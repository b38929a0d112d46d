"""Checks that are other people's tools, each turned into findings."""
import glob
import os
import re
import shutil
import subprocess

import tree
from tree import Finding

GCC_STYLE = re.compile(r'^(?:mandoc: )?([^:\s][^:]*):(\d+):(?:\d+:)? ?(.*)$')
# Shared libraries in the build folder, and what each name that they export starts with.
EXPORTS = {
    'client/libgmb.so*': 'gmb_',
    'gpu/sim/libcuda-sim.so*': 'cu',
    'gpu/sim/libnvidia-ml-sim.so*': 'nvml',
}
SUBJECT = re.compile(r'^[a-z0-9][\w./+-]*(, [a-z0-9][\w./+-]*)*: \S.*[^.\s]$')
SUBJECT_MAX = 100


class Unavailable(Exception):
    """The tool, or what it would look at, is not here."""


def run_tool(root, command, paths):
    if shutil.which(command[0]) is None:
        raise Unavailable(f'{command[0]} is not installed')
    if not paths:
        return []
    done = subprocess.run(command + paths, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return []
    return [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]


def findings(lines, tool):
    """Findings of lines in the form file:line:column: message; a tool that fails without one is
    itself a finding."""
    found = []
    for line in lines:
        match = GCC_STYLE.match(line)
        if match:
            found.append(Finding(match.group(1), int(match.group(2)), match.group(3)))
    if lines and not found:
        found.append(Finding('.', 0, f'{tool}: {lines[0]}'))
    return found


def check_format(root):
    command = ['clang-format', '--style=file', '--dry-run', '-Werror', '--ferror-limit=1']
    return findings(run_tool(root, command, tree.c_files(root)), 'clang-format')


def check_shell(root):
    command = ['shellcheck', '--external-sources', '--format=gcc']
    return findings(run_tool(root, command, tree.shell_files(root)), 'shellcheck')


def check_man(root):
    pages = [path for path in tree.files(root) if re.search(r'\.[1-8]$', path)]
    return findings(run_tool(root, ['mandoc', '-Tlint', '-Wwarning'], pages), 'mandoc')


def check_cppcheck(root, build_dir=None):
    """With a build folder, what was found in files that are as they were is kept there."""
    sources = [path for path in tree.c_files(root) if path.endswith('.c')]
    kept = []
    if build_dir is not None and os.path.isdir(build_dir):
        known = os.path.join(build_dir, 'cppcheck')
        os.makedirs(known, exist_ok=True)
        kept = ['--cppcheck-build-dir=' + known]
    command = ['cppcheck', '--quiet', '--error-exitcode=1', '--std=c11', '--language=c', '-I.',
               f'-j{os.cpu_count()}', '--enable=warning,portability', '--inline-suppr',
               '--suppress=missingInclude', '--suppress=missingIncludeSystem',
               '--suppressions-list=' + os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                                     'cppcheck.suppressions'),
               '--template={file}:{line}: {message} [{id}]']
    return findings(run_tool(root, command + kept, sources), 'cppcheck')


def exported_names(library):
    listed = subprocess.run(['nm', '-D', '--defined-only', library], check=True,
                            capture_output=True, text=True).stdout
    return [line.split()[-1].split('@')[0] for line in listed.splitlines()]


def check_exports(_root, build_dir):
    """Our shared libraries export nothing but their interface."""
    found, seen = [], False
    for pattern, prefix in EXPORTS.items():
        for library in glob.glob(os.path.join(build_dir, pattern)):
            if not os.path.isfile(library) or os.path.islink(library):
                continue
            seen = True
            names = exported_names(library)
            if not any(name.startswith(prefix) for name in names):
                found.append(Finding(library, 0, f'exports nothing that starts with {prefix}'))
            found += [Finding(library, 0, f'exports {name}') for name in names
                      if not name.startswith(prefix)]
    if not seen:
        raise Unavailable(f'no shared library of ours in {build_dir}')
    return found


def check_commits(root):
    """Subjects of the history are `component: summary`."""
    if shutil.which('git') is None or not os.path.exists(os.path.join(root, '.git')):
        raise Unavailable('no history here')
    listed = subprocess.run(tree.GIT + ['log', '--no-merges', '--format=%h %s'], cwd=root,
                            check=False, capture_output=True, text=True)
    if listed.returncode != 0:
        raise Unavailable('no commit yet')
    found = []
    for line in listed.stdout.splitlines():
        commit, _space, subject = line.partition(' ')
        if not SUBJECT.match(subject) or len(subject) > SUBJECT_MAX:
            found.append(Finding(f'commit {commit}', 0, f'"{subject}" is not `component: summary` '
                                 f'of at most {SUBJECT_MAX} characters without a full stop'))
    return found
