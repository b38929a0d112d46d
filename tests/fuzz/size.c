/*
 * Sizes from configuration and command lines: a refused text leaves the output alone, an accepted
 * one fits in 63 bits or is infinity, and what size_format() makes of it is accepted again and not
 * larger.
 */
#include "base/size.h"

#include <errno.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

#define UNTOUCHED UINT64_C(0xfedcba9876543210) /* over 63 bits: no text yields it */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _cleanup_free_ char *text = malloc(size + 1);
    uint64_t bytes = UNTOUCHED, again = UNTOUCHED;
    char shown[SIZE_TEXT_MAX];
    int r;

    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    r = size_parse(text, &bytes);
    if (r < 0) {
        FUZZ_CHECK(r == -EINVAL || r == -ERANGE);
        FUZZ_CHECK(bytes == UNTOUCHED);
        return 0;
    }
    FUZZ_CHECK(r == 0);
    FUZZ_CHECK(bytes <= INT64_MAX || bytes == SIZE_INFINITY);
    FUZZ_CHECK(size_parse(size_format(shown, bytes), &again) == 0);
    FUZZ_CHECK(again <= bytes);
    return 0;
}
