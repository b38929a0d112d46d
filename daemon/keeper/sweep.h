/*
 * Folders of keepers that were killed, which nobody but the next keeper would ever remove.
 */
#pragma once

/* The name of a keeper's folder, whose socket is `notify`: this, its pid and something random. */
#define SWEEP_PREFIX "gmbd-keeper."

/* Removes those in `base` that are this user's and whose socket nobody listens to. */
void sweep_folders(const char *base);
