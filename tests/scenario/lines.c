/* One file, one line at a time, so that there is one line to speak of. */
#include "tests/scenario/lines.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"

#define WORDS 16

static const char *file_name;
static unsigned line_number, expectations;
static char *words[WORDS];
static size_t words_used;

void fail(const char *format, ...)
{
    va_list arguments;

    (void) fprintf(stderr, "%s:%u: ", file_name, line_number);
    va_start(arguments, format);
    (void) vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void) fputc('\n', stderr);
    exit(EXIT_FAILURE);
}

size_t word_count(void)
{
    return words_used;
}

const char *word(size_t index)
{
    if (index >= words_used)
        fail("a word is missing");
    return words[index];
}

bool is(size_t index, const char *text)
{
    return index < words_used && strcmp(words[index], text) == 0;
}

uint64_t size_of(const char *text)
{
    uint64_t bytes = 0;

    if (size_parse(text, &bytes) < 0)
        fail("no size: %s", text);
    return bytes;
}

uint64_t number_of(const char *text)
{
    char *end;
    uint64_t value = strtoull(text, &end, 10);

    if (*end != '\0' || end == text)
        fail("no number: %s", text);
    return value;
}

const char *value_of(size_t first, const char *key)
{
    size_t length = strlen(key);

    for (size_t i = first; i < words_used; i++) {
        if (strncmp(words[i], key, length) == 0 && words[i][length] == '=')
            return words[i] + length + 1;
    }
    return NULL;
}

uint64_t value_number(size_t first, const char *key, uint64_t otherwise)
{
    const char *text = value_of(first, key);

    return text ? number_of(text) : otherwise;
}

uint64_t value_size(size_t first, const char *key, uint64_t otherwise)
{
    const char *text = value_of(first, key);

    return text ? size_of(text) : otherwise;
}

static void split(char *line)
{
    char *state = NULL;

    line[strcspn(line, "#\n")] = '\0';
    words_used = 0;
    for (char *at = strtok_r(line, " \t", &state); at; at = strtok_r(NULL, " \t", &state)) {
        if (words_used == WORDS)
            fail("too many words");
        words[words_used++] = at;
    }
}

int lines_run(int argc, char **argv, void (*run)(void))
{
    char line[256];
    FILE *file;

    if (argc != 2) {
        (void) fprintf(stderr, "usage: %s SCENARIO\n", argv[0]);
        return 2;
    }
    file_name = argv[1];
    file = fopen(argv[1], "re");
    if (!file)
        fail("can't read it: %s", strerror(errno));
    while (fgets(line, sizeof(line), file)) {
        line_number++;
        split(line);
        if (words_used == 0)
            continue;
        expectations += is(0, "expect");
        run();
    }
    (void) fclose(file);
    if (expectations == 0)
        fail("nothing was expected");
    return 0;
}
