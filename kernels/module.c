/* Every kernel in one translation unit: what is compiled to the embedded PTX. */
#include "kernels/pattern_check.c"
#include "kernels/pattern_fill.c"
#include "kernels/pattern_foreign.c"
