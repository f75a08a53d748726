/* A gauntlet file of any bytes: refused, or tasks, categories and averages that
 * name each other within bounds. One task's file, "t", is there. */

#include "src/base/log.h"
#include "src/eval/gauntlet.h"
#include "tests/fuzz/fuzz.h"

const char *__lsan_default_suppressions(void);

/* libconfig loses a string where text ends within quotes, once for each file. */
const char *__lsan_default_suppressions(void)
{
    return "leak:libconfig";
}

static void make_folder(void)
{
    char path[FSIO_PATH_MAX];
    bool made = !fuzz_folder_make() ||
                (fsio_path(path, "%s/t", fuzz_folder) == ERR_OK &&
                 fsio_write_hint(path, "{}\n", 3) == ERR_OK);
    assert(made);
}

static void check_tasks(const struct gauntlet *gauntlet)
{
    assert(gauntlet->task_count > 0);
    assert(gauntlet->subtract || !gauntlet->rescale);
    for (int t = 0; t < gauntlet->task_count; t++) {
        const struct icl_task *task = &gauntlet->tasks[t];
        char name[64];
        icl_task_name(task, name, sizeof name);
        assert(task->kind <= ICL_GENERATION && access(task->file, R_OK) == 0);
        assert(task->shots >= 0 && task->shots <= ICL_SHOTS_MAX);
        assert(task->stops[ICL_STOPS_MAX] == NULL);
        assert(task->prompt_string != NULL && task->prelimiter != NULL &&
               task->example_delimiter != NULL && task->cot_delimiter != NULL &&
               task->continuation_delimiter != NULL);
    }
}

static void check_scores(const struct gauntlet *gauntlet)
{
    for (int c = 0; c < gauntlet->category_count; c++) {
        const struct gauntlet_category *category = &gauntlet->categories[c];
        bool missing = false;
        assert(category->name != NULL && category->count > 0);
        for (int b = 0; b < category->count; b++) {
            const struct gauntlet_benchmark *at = &category->benchmarks[b];
            assert(at->baseline >= 0 && at->baseline < 1);
            assert(at->task >= -1 && at->task < gauntlet->task_count);
            missing = missing || at->task < 0;
        }
        assert(category->missing == missing);
    }
    for (int a = 0; a < gauntlet->average_count; a++) {
        const struct gauntlet_average *average = &gauntlet->averages[a];
        assert(average->name != NULL);
        for (int c = 0; c < average->count; c++)
            assert(average->categories[c] >= 0 &&
                   average->categories[c] < gauntlet->category_count);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct gauntlet *gauntlet = NULL;
    log_init("fuzz", -1, LOG_ERROR);
    make_folder();
    if (gauntlet_read(fuzz_file(data, bytes), fuzz_folder, 17, &gauntlet) ==
        ERR_OK) {
        check_tasks(gauntlet);
        check_scores(gauntlet);
    }
    gauntlet_destroy(gauntlet);
    return 0;
}
