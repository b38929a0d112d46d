/* The locale of the caller decides what a character is; broken sequences count byte by byte. */
#include "client/ctl/terminal.h"

#include <string.h>
#include <wchar.h>
#include <wctype.h>

/* Unicode's embeddings, overrides and isolates, and marks without a width of their own. */
static bool reorders(wchar_t c)
{
    return (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) ||
           (c >= 0x200b && c <= 0x200f) || c == 0x061c || c == 0xfeff;
}

/* Bytes of the character at `text`; 0 when it isn't to be shown, and it has `*ret_step` bytes. */
static size_t character(const char *text, size_t left, mbstate_t *state, size_t *ret_step)
{
    wchar_t c;
    size_t size = mbrtowc(&c, text, left, state);

    if (size == (size_t) -1 || size == (size_t) -2) {
        memset(state, 0, sizeof(*state));
        *ret_step = 1;
        return 0;
    }
    *ret_step = MAX(size, (size_t) 1);
    return iswprint((wint_t) c) && wcwidth(c) >= 0 && !reorders(c) ? size : 0;
}

char *terminal_text(const char *text)
{
    size_t left = strlen(text), used = 0;
    char *copy = malloc(left + 1);
    mbstate_t state;

    memset(&state, 0, sizeof(state));
    if (copy == NULL)
        return NULL;
    while (left > 0) {
        size_t step, size = character(text, left, &state, &step);

        if (size == 0)
            copy[used++] = '?';
        else
            memcpy(copy + used, text, size);
        used += size;
        text += step;
        left -= step;
    }
    copy[used] = '\0';
    return copy;
}

size_t terminal_width(const char *text)
{
    size_t left = strlen(text), width = 0;
    mbstate_t state;

    memset(&state, 0, sizeof(state));
    while (left > 0) {
        wchar_t c;
        size_t size = mbrtowc(&c, text, left, &state);

        if (size == (size_t) -1 || size == (size_t) -2 || size == 0)
            return width + left;
        width += (size_t) MAX(wcwidth(c), 0);
        text += size;
        left -= size;
    }
    return width;
}

bool terminal_colour(void)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

    return (no == NULL || no[0] == '\0') && term != NULL && strcmp(term, "dumb") != 0 &&
           isatty(STDOUT_FILENO) == 1;
}
