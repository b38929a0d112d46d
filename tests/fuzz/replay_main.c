/*
 * Runs a fuzz target over every file of the folders that it is given: the corpus as a regression
 * test, without a fuzzer. An empty corpus is an error, since it would prove nothing.
 */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/macro.h"

static void close_file(FILE **file)
{
    if (*file != NULL)
        (void) fclose(*file);
}

static void close_folder(DIR **folder)
{
    if (*folder != NULL)
        (void) closedir(*folder);
}

/* The target gets a block of exactly the file's size, so that a sanitizer sees one byte past it. */
static int replay_file(const char *path)
{
    _cleanup_(close_file) FILE *file = fopen(path, "rbe");
    _cleanup_free_ uint8_t *data = NULL;
    struct stat status;

    if (file == NULL || fstat(fileno(file), &status) < 0)
        return -errno;
    data = malloc((size_t) status.st_size);
    if (data == NULL && status.st_size > 0)
        return -ENOMEM;
    if (fread(data, 1, (size_t) status.st_size, file) != (size_t) status.st_size)
        return -EIO;
    (void) LLVMFuzzerTestOneInput(data, (size_t) status.st_size);
    return 0;
}

/* Returns how many files it replayed, or a negative errno. */
static int replay_folder(const char *path)
{
    _cleanup_(close_folder) DIR *folder = opendir(path);
    const struct dirent *entry;
    int count = 0;

    if (folder == NULL)
        return -errno;
    while ((entry = readdir(folder)) != NULL) {
        char file[PATH_MAX];
        int r;

        if (entry->d_name[0] == '.')
            continue;
        if ((size_t) snprintf(file, sizeof(file), "%s/%s", path, entry->d_name) >= sizeof(file))
            return -ENAMETOOLONG;
        r = replay_file(file);
        if (r < 0)
            return r;
        count++;
    }
    return count;
}

int main(int argc, char *argv[])
{
    for (int i = 1; i < argc; i++) {
        int count = replay_folder(argv[i]);

        if (count <= 0) {
            fprintf(stderr, "%s: %s\n", argv[i], count < 0 ? strerror(-count) : "no input");
            return EXIT_FAILURE;
        }
        printf("%s: %d inputs\n", argv[i], count);
    }
    return argc > 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}
