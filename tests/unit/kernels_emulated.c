/* The GPU's side of every kernel, compiled for the CPU under names of its own. */
#define KERNEL_EMULATED
#include "kernels/module.c"
