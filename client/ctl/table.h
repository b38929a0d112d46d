/*
 * Aligned columns for people. Cells are added row by row; running out of memory is remembered and
 * told once, by table_print().
 */
#pragma once

#include <stdio.h>

#include "base/macro.h"

struct table;

enum style { STYLE_PLAIN, STYLE_GOOD, STYLE_WARNING, STYLE_ALARM, STYLE_MAX };

/*
 * One heading for each column, borrowed. One that starts with `<` is left-aligned, one that starts
 * with `?` is left out while every row has `-` there; both without the sign. The last one may not
 * be left out.
 */
struct table *table_new(const char *const *headings, size_t columns);
/* Accepts NULL; returns NULL. */
struct table *table_free(struct table *table);
void table_free_ptr(struct table **table);

/* The next cell. What a terminal shouldn't show becomes `?`; an empty text is shown as `-`. */
void table_cell(struct table *table, enum style style, const char *format, ...) _printf_(3, 4);
/* The same for bytes, as people write them; 0 is shown as `-`. */
void table_size(struct table *table, enum style style, uint64_t bytes);
/* `used`, or `used/max` where max isn't UINT32_MAX. */
void table_count(struct table *table, uint32_t used, uint32_t max);

/* Colours are for terminals. -ENOMEM if a cell was lost; -EIO when `to` can't be written. */
int table_print(const struct table *table, FILE *to, bool colour) _must_check_;
