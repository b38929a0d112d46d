/* A simulated node of a test's own: a state directory and the environment that names it. */
#pragma once

#include "base/macro.h"

#define NODE_CAPACITY_BYTES (UINT64_C(1) << 30)
#define NODE_DEVICES 2

struct node {
    char directory[64];
};

/* Makes the directory and sets GMB_SIM_* for this process and its children. Negative errno. */
int node_create(struct node *ret) _must_check_;
void node_remove(struct node *node);
