/*
 * A reader for the outside of PTX ("Parallel Thread Execution ISA", sections 4 and 5): directives
 * up to `.version`, `.target` and `.address_size`, then `.entry NAME ( parameters )`, with balanced
 * braces around bodies that nobody here looks into. So an error inside a body goes unnoticed.
 *
 * Parameters lie in the parameter buffer as a C struct's members do: each at the next multiple of
 * its alignment, which is its element's size unless `.align` says otherwise.
 */
#include "gpu/sim/ptx.h"

#include <ctype.h>
#include <string.h>

/* The largest parameter buffer of any PTX version (8.1 raised it from 4352 to this). */
#define PARAMS_BYTES_MAX 32764
#define ALIGN_MAX 128

struct token {
    const char *at;
    size_t length; /* 0: end of text */
};

struct reader {
    const char *next;
};

static bool word_char(char c)
{
    return isalnum((unsigned char) c) || c == '_' || c == '$' || c == '.' || c == '%';
}

static const char *skip_blank(const char *at)
{
    for (;;) {
        if (isspace((unsigned char) *at)) {
            at++;
        } else if (strncmp(at, "//", 2) == 0) {
            at += strcspn(at, "\n");
        } else if (strncmp(at, "/*", 2) == 0) {
            const char *end = strstr(at + 2, "*/");

            at = end == NULL ? at + strlen(at) : end + 2;
        } else {
            return at;
        }
    }
}

/* A word, a string or one character of punctuation. */
static struct token token_next(struct reader *reader)
{
    struct token token = {.at = skip_blank(reader->next)};

    if (word_char(*token.at)) {
        while (word_char(token.at[token.length]))
            token.length++;
    } else if (*token.at == '"') {
        token.length = 1 + strcspn(token.at + 1, "\"");
        token.length += token.at[token.length] == '"';
    } else if (*token.at != '\0') {
        token.length = 1;
    }
    reader->next = token.at + token.length;
    return token;
}

static bool token_is(struct token token, const char *text)
{
    return token.length == strlen(text) && memcmp(token.at, text, token.length) == 0;
}

static bool token_number(struct token token, uint64_t max, uint64_t *ret)
{
    uint64_t value = 0;

    if (token.length == 0)
        return false;
    for (size_t i = 0; i < token.length; i++) {
        if (!isdigit((unsigned char) token.at[i]))
            return false;
        value = value * 10 + (uint64_t) (token.at[i] - '0');
        if (value > max)
            return false;
    }
    *ret = value;
    return true;
}

/* Bytes of a fundamental type, `.u64` and the like; 0 for anything else. */
static uint64_t type_bytes(struct token token)
{
    static const char *const kinds = "busf";
    static const struct {
        const char *bits;
        uint64_t bytes;
    } widths[] = {{"8", 1}, {"16", 2}, {"32", 4}, {"64", 8}, {"128", 16}};

    if (token.length < 3 || token.at[0] != '.' || strchr(kinds, token.at[1]) == NULL)
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(widths); i++)
        if (token_is((struct token){token.at + 2, token.length - 2}, widths[i].bits))
            return widths[i].bytes;
    return 0;
}

/* ---- parameters ---- */

static bool array_length(struct reader *reader, uint64_t *ret)
{
    return token_number(token_next(reader), PARAMS_BYTES_MAX, ret) &&
           token_is(token_next(reader), "]");
}

/*
 * `.param [.align N] .type [.ptr [.space] [.align N]] name [ [N] ]`, its first word already read,
 * up to the comma or bracket behind it, which is left in `ret_end`.
 */
static bool param_parse(
    struct reader *reader, uint64_t *ret_bytes, uint64_t *ret_align, struct token *ret_end)
{
    uint64_t element = 0, count = 1, align = 0, ignored;
    bool named = false;

    for (;;) {
        struct token token = token_next(reader);

        if (token_is(token, ",") || token_is(token, ")")) {
            *ret_end = token;
            break;
        }
        if (token_is(token, ".align")) {
            if (!token_number(token_next(reader), ALIGN_MAX, element == 0 ? &align : &ignored))
                return false;
        } else if (token_is(token, "[")) {
            if (!named || !array_length(reader, &count))
                return false;
        } else if (token.length > 0 && token.at[0] == '.') {
            element = element == 0 ? type_bytes(token) : element;
        } else if (token.length > 0 && word_char(token.at[0]) && !named) {
            named = true;
        } else {
            return false;
        }
    }
    if (align == 0)
        align = element;
    if (!named || element == 0 || (align & (align - 1)) != 0)
        return false;
    *ret_bytes = element * count;
    *ret_align = align;
    return true;
}

static CUresult param_add(struct ptx_entry *entry, uint64_t bytes, uint64_t align)
{
    struct ptx_param *params;
    uint64_t offset;

    if (!round_up(entry->params_bytes, align, &offset) || offset + bytes > PARAMS_BYTES_MAX)
        return CUDA_ERROR_INVALID_PTX;
    params = realloc(entry->params, (entry->params_count + 1) * sizeof(*params));
    if (params == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    entry->params = params;
    params[entry->params_count++] = (struct ptx_param){.offset = offset, .bytes = bytes};
    entry->params_bytes = offset + bytes;
    return CUDA_SUCCESS;
}

/* Behind the opening bracket. */
static CUresult params_parse(struct reader *reader, struct ptx_entry *entry)
{
    struct token token = token_next(reader);

    while (!token_is(token, ")")) {
        uint64_t bytes, align;
        CUresult result;

        if (!token_is(token, ".param") || !param_parse(reader, &bytes, &align, &token))
            return CUDA_ERROR_INVALID_PTX;
        result = param_add(entry, bytes, align);
        if (result != CUDA_SUCCESS)
            return result;
        if (token_is(token, ","))
            token = token_next(reader);
    }
    return CUDA_SUCCESS;
}

/* ---- module ---- */

static void entry_clear(struct ptx_entry *entry)
{
    free(entry->name);
    free(entry->params);
    *entry = (struct ptx_entry){0};
}

/* From behind `.entry` to the brace that opens the body. */
static CUresult entry_parse(struct reader *reader, struct ptx_entry *entry)
{
    struct token token = token_next(reader);

    if (token.length == 0 || !word_char(token.at[0]) || token.at[0] == '.')
        return CUDA_ERROR_INVALID_PTX;
    entry->name = strndup(token.at, token.length);
    if (entry->name == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    token = token_next(reader);
    if (token_is(token, "(")) {
        CUresult result = params_parse(reader, entry);

        if (result != CUDA_SUCCESS)
            return result;
        token = token_next(reader);
    }
    /* Performance directives such as `.maxntid 256, 1, 1` stand between. */
    while (!token_is(token, "{")) {
        if (token.length == 0 || token_is(token, "}") || token_is(token, ";"))
            return CUDA_ERROR_INVALID_PTX;
        token = token_next(reader);
    }
    return CUDA_SUCCESS;
}

static CUresult entry_add(struct ptx *ptx, struct reader *reader)
{
    struct ptx_entry *entries;
    struct ptx_entry entry = {0};
    CUresult result = entry_parse(reader, &entry);

    if (result == CUDA_SUCCESS) {
        entries = realloc(ptx->entries, (ptx->entries_count + 1) * sizeof(*entries));
        if (entries != NULL) {
            ptx->entries = entries;
            entries[ptx->entries_count++] = entry;
            return CUDA_SUCCESS;
        }
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    entry_clear(&entry);
    return result;
}

/* `.version M.m`, which PTX must begin with. */
static bool version_parse(struct reader *reader, unsigned *ret)
{
    struct token token;
    const char *point;
    uint64_t major, minor;

    if (!token_is(token_next(reader), ".version"))
        return false;
    token = token_next(reader);
    point = memchr(token.at, '.', token.length);
    if (point == NULL ||
        !token_number((struct token){token.at, (size_t) (point - token.at)}, 99, &major) ||
        !token_number(
            (struct token){point + 1, token.length - 1 - (size_t) (point - token.at)}, 9, &minor))
        return false;
    *ret = (unsigned) (10 * major + minor);
    return true;
}

/* Everything behind `.version`. */
static CUresult body_parse(struct reader *reader, struct ptx *ptx)
{
    bool target = false;
    unsigned depth = 0;
    uint64_t bits;

    for (;;) {
        struct token token = token_next(reader);
        CUresult result = CUDA_SUCCESS;

        if (token.length == 0)
            return target && depth == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
        if (token_is(token, "{")) {
            depth++;
        } else if (token_is(token, "}")) {
            if (depth-- == 0)
                return CUDA_ERROR_INVALID_PTX;
        } else if (token_is(token, ".target")) {
            token = token_next(reader);
            target = token.length > 3 && memcmp(token.at, "sm_", 3) == 0;
        } else if (token_is(token, ".address_size")) {
            if (!token_number(token_next(reader), 64, &bits) || bits != 64)
                return CUDA_ERROR_INVALID_PTX;
        } else if (token_is(token, ".entry")) {
            if (depth > 0 || !target)
                return CUDA_ERROR_INVALID_PTX;
            result = entry_add(ptx, reader);
            depth = 1; /* entry_parse ends behind the opening brace */
        }
        if (result != CUDA_SUCCESS)
            return result;
    }
}

CUresult ptx_parse(const char *text, unsigned version_max, struct ptx *ret)
{
    struct reader reader = {.next = text};
    struct ptx ptx = {0};
    CUresult result;

    if (!version_parse(&reader, &ptx.version))
        return CUDA_ERROR_INVALID_PTX;
    if (ptx.version > version_max)
        return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    result = body_parse(&reader, &ptx);
    if (result != CUDA_SUCCESS) {
        ptx_clear(&ptx);
        return result;
    }
    *ret = ptx;
    return CUDA_SUCCESS;
}

void ptx_clear(struct ptx *ptx)
{
    for (size_t i = 0; i < ptx->entries_count; i++)
        entry_clear(&ptx->entries[i]);
    free(ptx->entries);
    *ptx = (struct ptx){0};
}
