/* Every kernel in one translation unit: what is compiled to the embedded PTX. */
#include "kernels/page_checksum.c"
#include "kernels/page_copy.c"
#include "kernels/page_dequantize.c"
#include "kernels/page_quantize.c"
#include "kernels/page_scrub.c"
#include "kernels/pattern_check.c"
#include "kernels/pattern_fill.c"
#include "kernels/pattern_foreign.c"
