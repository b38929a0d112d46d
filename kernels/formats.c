/* Names of what pages hold and of how the tier holds it. */
#include "kernels/quantize.h"

#include <assert.h>
#include <stddef.h>

static const char *const element_names[] = {
    [PAGE_ELEMENT_NONE] = "none",
    [PAGE_ELEMENT_FP16] = "fp16",
    [PAGE_ELEMENT_BF16] = "bf16",
};
static_assert(sizeof(element_names) / sizeof(element_names[0]) == PAGE_ELEMENT_MAX,
    "a name for each element");

static const char *const format_names[] = {
    [PAGE_FORMAT_RAW] = "raw",
    [PAGE_FORMAT_INT8] = "int8",
    [PAGE_FORMAT_FP8] = "fp8",
};
static_assert(
    sizeof(format_names) / sizeof(format_names[0]) == PAGE_FORMAT_MAX, "a name for each format");

const char *page_element_name(enum page_element element)
{
    return (unsigned) element < PAGE_ELEMENT_MAX ? element_names[element] : NULL;
}

const char *page_format_name(enum page_format format)
{
    return (unsigned) format < PAGE_FORMAT_MAX ? format_names[format] : NULL;
}
