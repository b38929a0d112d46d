/*
 * A buffer that grows with the longest line seen, up to TRACE_LINE_BYTES_MAX. We read byte by byte
 * from stdio's own buffer rather than with getline(), which would take a file without line ends for
 * one line and fill memory with it.
 */
#include "client/replay/trace_lines.h"

#include <errno.h>
#include <string.h>

struct trace_lines {
    FILE *file;
    char *text;
    size_t capacity;
    uint64_t number; /* of line ends consumed, plus one for the line in `text` */
    uint64_t ended;  /* line ends consumed so far */
    bool begun;      /* the byte order mark was looked for */
};

int trace_lines_new_consume(FILE *file, struct trace_lines **ret)
{
    struct trace_lines *lines = calloc(1, sizeof(*lines));

    if (!lines) {
        (void) fclose(file);
        return -ENOMEM;
    }
    lines->file = file;
    *ret = lines;
    return 0;
}

struct trace_lines *trace_lines_free(struct trace_lines *lines)
{
    if (!lines)
        return NULL;
    (void) fclose(lines->file);
    free(lines->text);
    free(lines);
    return NULL;
}

uint64_t trace_lines_number(const struct trace_lines *lines)
{
    return lines->number;
}

static void skip_byte_order_mark(struct trace_lines *lines)
{
    static const int mark[] = {0xef, 0xbb, 0xbf};
    int byte;

    if (lines->begun)
        return;
    lines->begun = true;
    byte = getc_unlocked(lines->file);
    if (byte != mark[0]) {
        (void) ungetc(byte, lines->file);
        return;
    }
    /* What starts like one and isn't is left to the format to refuse: it has lost its first byte,
     * which no format allows anyway. */
    for (size_t i = 1; i < ARRAY_SIZE(mark); i++) {
        byte = getc_unlocked(lines->file);
        if (byte != mark[i]) {
            (void) ungetc(byte, lines->file);
            return;
        }
    }
}

int trace_lines_peek(struct trace_lines *lines)
{
    int byte;

    skip_byte_order_mark(lines);
    do {
        byte = getc_unlocked(lines->file);
        if (byte == '\n')
            lines->ended++;
    } while (byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n');
    (void) ungetc(byte, lines->file);
    return byte;
}

static int append(struct trace_lines *lines, size_t size, char byte)
{
    if (size >= lines->capacity) {
        size_t capacity = lines->capacity > 0 ? 2 * lines->capacity : 256;
        char *text = realloc(lines->text, capacity);

        if (!text)
            return -ENOMEM;
        lines->text = text;
        lines->capacity = capacity;
    }
    lines->text[size] = byte;
    return 0;
}

/* Reads up to the next line end or the end of the file. */
static int read_line(struct trace_lines *lines, size_t *ret_size, struct trace_error *error)
{
    size_t size = 0;
    int r;

    lines->number = lines->ended + 1;
    for (;;) {
        int byte = getc_unlocked(lines->file);

        if (byte == EOF && ferror(lines->file))
            return trace_fail(error, -EIO, lines->number, "cannot read");
        if (byte == EOF && size == 0)
            return TRACE_END;
        if (byte == EOF || byte == '\n') {
            lines->ended++;
            break;
        }
        if (byte == '\0')
            return trace_fail(error, -EBADMSG, lines->number, "a NUL byte: this is no text");
        if (size == TRACE_LINE_BYTES_MAX)
            return trace_fail(
                error, -EBADMSG, lines->number, "longer than %u bytes", TRACE_LINE_BYTES_MAX);
        r = append(lines, size, (char) byte);
        if (r < 0)
            return trace_fail(error, r, lines->number, "no memory for the line");
        size++;
    }
    if (size > 0 && lines->text[size - 1] == '\r')
        size--;
    r = append(lines, size, '\0');
    if (r < 0)
        return trace_fail(error, r, lines->number, "no memory for the line");
    *ret_size = size;
    return TRACE_OK;
}

static bool is_blank(const char *text)
{
    return text[strspn(text, " \t\r")] == '\0';
}

int trace_lines_next(
    struct trace_lines *lines, char **ret_text, size_t *ret_size, struct trace_error *error)
{
    size_t size = 0;
    int r;

    skip_byte_order_mark(lines);
    do {
        r = read_line(lines, &size, error);
        if (r != TRACE_OK)
            return r;
    } while (is_blank(lines->text));
    *ret_text = lines->text;
    *ret_size = size;
    return TRACE_OK;
}
