/* Runs every file of a fuzzer's corpus, and no input at all, through
 * LLVMFuzzerTestOneInput(): a TAP test that needs no fuzzer. The corpus is
 * tests/fuzz/corpus/NAME, where NAME is what the program is called; other
 * files, such as those of a crash, are arguments. */
#include <dirent.h>

#include "tests/fuzz/fuzz.h"
#include "tests/tap.h"

#define INPUT_BYTES_MAX ((size_t)64 << 20)

static void replay(const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    if (fsio_read_file(path, INPUT_BYTES_MAX, &text, &bytes) != ERR_OK) {
        tap_ok(false, "%s", err_text());
        return;
    }
    /* exactly as long, so that a read beyond it is seen */
    uint8_t *data = malloc(bytes > 0 ? bytes : 1);
    if (data != NULL && bytes > 0)
        memcpy(data, text, bytes);
    free(text);
    if (data == NULL || LLVMFuzzerTestOneInput(data, bytes) != 0)
        tap_ok(false, "%s", path);
    free(data);
}

static int is_shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    char folder[FSIO_PATH_MAX];
    char path[FSIO_PATH_MAX];
    const char *slash = strrchr(argv[0], '/');
    const char *name = slash != NULL ? slash + 1 : argv[0];
    struct dirent **entries = NULL;
    if (argc > 1) {
        for (int i = 1; i < argc; i++)
            replay(argv[i]);
        tap_ok(true, "%s: %d files", name, argc - 1);
        return tap_done();
    }
    snprintf(folder, sizeof folder, "tests/fuzz/corpus/%s", name);
    int count = scandir(folder, &entries, is_shown, alphasort);
    (void)LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    for (int i = 0; i < count; i++) {
        if (fsio_path(path, "%s/%s", folder, entries[i]->d_name) == ERR_OK)
            replay(path);
        free(entries[i]);
    }
    free(entries);
    tap_ok(count > 0, "%s: %d inputs of %s", name, count, folder);
    return tap_done();
}
