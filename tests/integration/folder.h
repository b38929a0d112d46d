/* Folders for a disk of the host tier: with a file system of their own, which takes root and is
 * there for the test's processes alone. */
#pragma once

#include <sys/types.h>

#include "base/macro.h"

/* A new file system at `folder`; further ones after the first, too. False where that isn't
 * permitted. */
bool folder_mount(const char *folder, const char *type, unsigned long flags, const char *options);
/* The file there that the process has open: writable, and the caller's. */
int folder_file(const char *folder, pid_t pid);
/* Takes all room there is, until the fd is closed. */
int folder_fill(const char *folder);
