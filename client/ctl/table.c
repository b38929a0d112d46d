/* Cells in one array, row by row; widths are counted in columns when everything is known. */
#include "client/ctl/table.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "base/size.h"
#include "client/ctl/terminal.h"

#define COLUMNS_MAX 24
#define GAP 2

struct cell {
    char *text;
    enum style style;
};

struct table {
    const char *const *headings;
    size_t columns;
    size_t count, room;
    struct cell *cells;
    bool failed;
};

static const char *const style_codes[] = {
    [STYLE_PLAIN] = "",
    [STYLE_GOOD] = "\x1b[32m",
    [STYLE_WARNING] = "\x1b[33m",
    [STYLE_ALARM] = "\x1b[31m",
};
_Static_assert(ARRAY_SIZE(style_codes) == STYLE_MAX, "a code for each style");

struct table *table_new(const char *const *headings, size_t columns)
{
    struct table *table = columns <= COLUMNS_MAX ? calloc(1, sizeof(*table)) : NULL;

    if (table == NULL)
        return NULL;
    table->headings = headings;
    table->columns = columns;
    return table;
}

struct table *table_free(struct table *table)
{
    if (table == NULL)
        return NULL;
    for (size_t i = 0; i < table->count; i++)
        free(table->cells[i].text);
    free(table->cells);
    free(table);
    return NULL;
}

void table_free_ptr(struct table **table)
{
    *table = table_free(*table);
}

/* Consumes `text`, which may be NULL for want of memory. */
static void cell_add(struct table *table, enum style style, char *text)
{
    if (text != NULL && table->count == table->room) {
        size_t room = MAX(table->room * 2, (size_t) 64);
        struct cell *cells = reallocarray(table->cells, room, sizeof(*cells));

        if (cells != NULL) {
            table->cells = cells;
            table->room = room;
        }
    }
    if (text == NULL || table->count == table->room) {
        table->failed = true;
        free(text);
        return;
    }
    table->cells[table->count++] = (struct cell){text, style};
}

void table_cell(struct table *table, enum style style, const char *format, ...)
{
    _cleanup_free_ char *text = NULL;
    va_list args;

    if (table == NULL)
        return;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    cell_add(table, style, text == NULL ? NULL : terminal_text(text[0] != '\0' ? text : "-"));
}

void table_size(struct table *table, enum style style, uint64_t bytes)
{
    char text[SIZE_TEXT_MAX];

    table_cell(table, style, "%s", bytes == 0 ? "-" : size_format(text, bytes));
}

void table_count(struct table *table, uint32_t used, uint32_t max)
{
    if (max == UINT32_MAX)
        table_cell(table, STYLE_PLAIN, "%u", used);
    else
        table_cell(table, used >= max ? STYLE_WARNING : STYLE_PLAIN, "%u/%u", used, max);
}

static bool left_aligned(const struct table *table, size_t column)
{
    return table->headings[column][0] == '<';
}

static bool left_out_if_empty(const struct table *table, size_t column)
{
    return table->headings[column][0] == '?';
}

static const char *heading(const struct table *table, size_t column)
{
    bool marked = left_aligned(table, column) || left_out_if_empty(table, column);

    return table->headings[column] + (marked ? 1 : 0);
}

/* In columns of the terminal; 0 for what is left out. */
static size_t column_width(const struct table *table, size_t column)
{
    bool empty = true;
    size_t width = terminal_width(heading(table, column));

    for (size_t i = column; i < table->count; i += table->columns) {
        empty = empty && strcmp(table->cells[i].text, "-") == 0;
        width = MAX(width, terminal_width(table->cells[i].text));
    }
    return empty && left_out_if_empty(table, column) ? 0 : width;
}

static void cell_print(const struct table *table, size_t column, const char *text, const char *code,
    size_t width, FILE *to)
{
    bool left = left_aligned(table, column), last = column + 1 == table->columns;
    size_t padding;

    if (width == 0)
        return;
    padding = width - terminal_width(text);
    if (!left)
        (void) fprintf(to, "%*s", (int) padding, "");
    (void) fprintf(to, "%s%s%s", code, text, code[0] != '\0' ? "\x1b[0m" : "");
    if (last)
        (void) fputc('\n', to);
    else
        (void) fprintf(to, "%*s", (int) (left ? padding : 0) + GAP, "");
}

int table_print(const struct table *table, FILE *to, bool colour)
{
    size_t widths[COLUMNS_MAX];

    if (table == NULL || table->failed)
        return -ENOMEM;
    for (size_t i = 0; i < table->columns; i++)
        widths[i] = column_width(table, i);
    for (size_t i = 0; i < table->columns; i++)
        cell_print(table, i, heading(table, i), colour ? "\x1b[1m" : "", widths[i], to);
    for (size_t i = 0; i < table->count; i++) {
        const struct cell *cell = &table->cells[i];

        cell_print(table, i % table->columns, cell->text, colour ? style_codes[cell->style] : "",
            widths[i % table->columns], to);
    }
    return ferror(to) ? -EIO : 0;
}
