/* The files of a run directory of any bytes, read as tessera-report and
 * tessera-top read them, also while they grow: a page and figures come of them,
 * or an error. Each line of the input belongs to the file that its first byte
 * names. */
#include <jansson.h>

#include "src/base/log.h"
#include "src/report/report.h"
#include "tests/fuzz/fuzz.h"

static const struct {
    char letter;
    const char *name;
} files[] = {
    { 'm', "metrics.jsonl" }, { 'l', "ledger.jsonl" }, { 'e', "eval.jsonl" },
    { 's', "samples.jsonl" }, { 'c', "config.cfg" },
};

/* Of the input's lines from `begin` up to `end` those of one file. */
static void write_file(const uint8_t *data, size_t begin, size_t end,
                       size_t number, const char *mode)
{
    char path[FSIO_PATH_MAX];
    assert(fsio_path(path, "%s/%s", fuzz_folder, files[number].name) == ERR_OK);
    FILE *file = fopen(path, mode);
    assert(file != NULL);
    while (begin < end) {
        const uint8_t *line = data + begin;
        const uint8_t *stop = memchr(line, '\n', end - begin);
        size_t length = stop != NULL ? (size_t)(stop - line) + 1 : end - begin;
        if (*line == (uint8_t)files[number].letter)
            assert(fwrite(line + 1, 1, length - 1, file) == length - 1);
        begin += length;
    }
    assert(fclose(file) == 0);
}

static void write_files(const uint8_t *data, size_t begin, size_t end,
                        const char *mode)
{
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        write_file(data, begin, end, i, mode);
}

static void check_report(struct run_history *run)
{
    char page[FSIO_PATH_MAX], figures[FSIO_PATH_MAX];
    struct report report = { .plots = NULL };
    assert(fsio_path(page, "%s/page", fuzz_folder) == ERR_OK);
    assert(fsio_path(figures, "%s/figures", fuzz_folder) == ERR_OK);
    if (report_create(&run, 1, 1.5, &report) == ERR_OK &&
        report_html(&report, page) == ERR_OK &&
        report_json(&report, figures) == ERR_OK) {
        json_t *runs = json_load_file(figures, 0, NULL);
        assert(json_array_size(runs) == 1);
        json_decref(runs);
    }
    report_free(&report);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct run_history *run = NULL;
    size_t half = bytes / 2;
    const uint8_t *end = NULL;
    if (bytes > 0)
        end = memchr(data + half, '\n', bytes - half);
    half = end != NULL ? (size_t)(end - data) + 1 : bytes;
    log_init("fuzz", -1, LOG_ERROR);
    (void)fuzz_folder_make();
    write_files(data, 0, half, "w");
    if (run_history_create(fuzz_folder, &run) == ERR_OK) {
        write_files(data, half, bytes, "a");
        if (run_history_update(run) == ERR_OK)
            check_report(run);
    }
    run_history_destroy(run);
    return 0;
}
