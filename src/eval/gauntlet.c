/* Reads gauntlets, and works out their scores.
 *
 * Accuracies of tasks cannot be averaged as they are: a coin is right in half of
 * the cases with two choices and in a quarter of those with four. So the
 * accuracy of chance is subtracted first, and what is left is stretched until a
 * model without a mistake has 1 (LLM Foundry's subtract_random_baseline and
 * rescale_accuracy): (0.62 - 0.5) / (1 - 0.5) = 0.24. A model that is worse than
 * chance has less than 0, which is not cut off.
 *
 * A file names tasks, and benchmarks of categories by label and number of
 * shots. Whoever has only a part of the tasks' files still gets the scores that
 * can be had: a task without its file is left out, with it each category that
 * needs it, and an average is taken over the categories that are left. How many
 * are missing is told with every score, since it is another score then. */
#include "src/eval/gauntlet.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/array.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/settings/settings.h"
#include "src/base/regular.h"
#include "src/eval/gauntlet_file.h"

#define SHOTS_LISTED_MAX 16

struct gauntlet_texts {
    config_t config;
    char **paths; /* of the tasks */
    int path_count, path_room;
    int task_room; /* of the gauntlet's list */
};

#define TEXT(name, of, field, needed)                                          \
    {                                                                          \
        name, GAUNTLET_FILE_TEXT, offsetof(struct of, field), needed           \
    }
#define TRUTH(name, of, field)                                                 \
    {                                                                          \
        name, GAUNTLET_FILE_TRUTH, offsetof(struct of, field), false           \
    }
#define OTHER(name, needed)                                                    \
    {                                                                          \
        name, GAUNTLET_FILE_OTHER, 0, needed                                   \
    }

static const struct gauntlet_file_field file_fields[] = {
    OTHER("weighting", false),
    TRUTH("subtract_random_baseline", gauntlet, subtract),
    TRUTH("rescale_accuracy", gauntlet, rescale),
    OTHER("tasks", true),
    OTHER("categories", false),
    OTHER("averages", false),
};

static const struct gauntlet_file_field task_fields[] = {
    TEXT("label", icl_task, label, true),
    TEXT("file", icl_task, file, true),
    OTHER("kind", true),
    OTHER("shots", false),
    { "seed", GAUNTLET_FILE_WHOLE, offsetof(struct icl_task, seed), false },
    TEXT("prompt_string", icl_task, prompt_string, false),
    TEXT("prelimiter", icl_task, prelimiter, false),
    TEXT("example_delimiter", icl_task, example_delimiter, false),
    TEXT("continuation_delimiter", icl_task, continuation_delimiter, false),
    TRUTH("strip_dataset", icl_task, strip),
    TRUTH("has_categories", icl_task, categories),
    TEXT("cot_delimiter", icl_task, cot_delimiter, false),
    OTHER("early_stopping_criteria", false),
    TRUTH("do_normalization", icl_task, normalize),
};

static const struct gauntlet_file_field benchmark_fields[] = {
    TEXT("name", gauntlet_benchmark, name, true),
    { "shots", GAUNTLET_FILE_WHOLE, offsetof(struct gauntlet_benchmark, shots),
      true },
    { "random_baseline", GAUNTLET_FILE_NUMBER,
      offsetof(struct gauntlet_benchmark, baseline), true },
};

static const struct gauntlet_file_field category_fields[] = {
    TEXT("name", gauntlet_category, name, true),
    OTHER("benchmarks", true),
};

static const struct gauntlet_file_field average_fields[] = {
    TEXT("name", gauntlet_average, name, true),
    OTHER("categories", true),
};

#define COUNT(fields) (int)(sizeof(fields) / sizeof(fields)[0])

/* Whether there is a file, and more than a pointer to what Git LFS would fetch;
 * if not, err_text() says what. */
static bool is_there(const char *path)
{
    static const char pointer[] = "version https://git-lfs";
    char begin[sizeof pointer] = "";
    int fd = -1;
    int64_t bytes = 0;
    if (regular_open(path, &fd, &bytes) != ERR_OK)
        return false;
    ssize_t got = read(fd, begin, sizeof pointer - 1);
    close(fd);
    if (got < (ssize_t)sizeof pointer - 1 || strcmp(begin, pointer) != 0)
        return true;
    (void)err_set(ERR_DATA, "%s: a pointer of Git LFS, no data", path);
    return false;
}

/* task->file becomes its path. */
static enum err find_file(struct gauntlet *gauntlet, const char *folder,
                          struct icl_task *task, bool *there)
{
    char path[FSIO_PATH_MAX];
    struct gauntlet_texts *texts = gauntlet->texts;
    TRY(task->file[0] == '/' ? fsio_path(path, "%s", task->file)
                             : fsio_path(path, "%s/%s", folder, task->file));
    *there = is_there(path);
    if (!*there)
        log_warn("task '%s' is left out: %s", task->label, err_text());
    TRY(array_room(&texts->paths, &texts->path_room, texts->path_count + 1));
    TRY(new_text(&texts->paths[texts->path_count], path));
    task->file = texts->paths[texts->path_count++];
    return ERR_OK;
}

/* `shots = 5` or `shots = [0, 5]`; without it, 0. */
static enum err read_shots(const config_setting_t *from, int64_t *shots,
                           int *count)
{
    const config_setting_t *list = config_setting_get_member(from, "shots");
    if (list != NULL && config_setting_type(list) != CONFIG_TYPE_INT)
        TRY(gauntlet_file_list(from, "shots", &list, count));
    else
        *count = 1;
    if (*count < 1 || *count > SHOTS_LISTED_MAX)
        return gauntlet_file_wrong(from, "'shots' has to list 1 to %d numbers",
                                   SHOTS_LISTED_MAX);
    shots[0] = 0;
    for (int i = 0; list != NULL && i < *count; i++) {
        const config_setting_t *value =
            config_setting_type(list) == CONFIG_TYPE_INT
                ? list
                : config_setting_get_elem(list, (unsigned)i);
        shots[i] = config_setting_type(value) == CONFIG_TYPE_INT
                       ? config_setting_get_int(value)
                       : -1;
        if (shots[i] < 0 || shots[i] > ICL_SHOTS_MAX)
            return gauntlet_file_wrong(
                value, "'shots' has to be whole numbers of 0 to %d",
                ICL_SHOTS_MAX);
    }
    return ERR_OK;
}

static enum err read_stops(const config_setting_t *from, struct icl_task *task)
{
    const config_setting_t *list;
    int count;
    TRY(gauntlet_file_list(from, "early_stopping_criteria", &list, &count));
    if (count > ICL_STOPS_MAX)
        return gauntlet_file_wrong(list, "more than %d of them", ICL_STOPS_MAX);
    for (int i = 0; i < count; i++) {
        task->stops[i] = config_setting_get_string_elem(list, i);
        if (task->stops[i] == NULL)
            return gauntlet_file_wrong(list, "texts in quotes are expected");
    }
    return ERR_OK;
}

static enum err read_task(struct gauntlet *gauntlet,
                          const config_setting_t *from, const char *folder,
                          uint64_t seed)
{
    struct icl_task task;
    int64_t shots[SHOTS_LISTED_MAX];
    int count = 0;
    bool there;
    const char *kind = NULL;
    icl_task_default(&task);
    task.seed = seed;
    TRY(gauntlet_file_group(from, task_fields, COUNT(task_fields), &task));
    config_setting_lookup_string(from, "kind", &kind);
    enum err rc = icl_task_kind(kind != NULL ? kind : "", &task.kind);
    if (rc != ERR_OK)
        return gauntlet_file_wrong(from, "%s", err_text());
    TRY(read_shots(from, shots, &count));
    TRY(read_stops(from, &task));
    TRY(find_file(gauntlet, folder, &task, &there));
    for (int i = 0; i < count && there; i++) {
        task.shots = shots[i];
        TRY(array_room(&gauntlet->tasks, &gauntlet->texts->task_room,
                       gauntlet->task_count + 1));
        gauntlet->tasks[gauntlet->task_count++] = task;
    }
    return ERR_OK;
}

/* The task whose label and shots they are; -1: none. A task that lists several
 * numbers of shots is several tasks by now. */
static int find_task(const struct gauntlet *gauntlet, const char *name,
                     int64_t shots)
{
    for (int t = 0; t < gauntlet->task_count; t++)
        if (strcmp(gauntlet->tasks[t].label, name) == 0 &&
            gauntlet->tasks[t].shots == shots)
            return t;
    return -1;
}

static enum err read_category(struct gauntlet *gauntlet,
                              const config_setting_t *from,
                              struct gauntlet_category *category)
{
    const config_setting_t *list;
    int count;
    TRY(gauntlet_file_group(from, category_fields, COUNT(category_fields),
                            category));
    TRY(gauntlet_file_list(from, "benchmarks", &list, &count));
    if (count == 0)
        return gauntlet_file_wrong(from, "a category needs benchmarks");
    TRY(new_zeroed(&category->benchmarks, (size_t)count));
    for (; category->count < count; category->count++) {
        struct gauntlet_benchmark *benchmark =
            &category->benchmarks[category->count];
        const config_setting_t *at =
            config_setting_get_elem(list, (unsigned)category->count);
        TRY(gauntlet_file_group(at, benchmark_fields, COUNT(benchmark_fields),
                                benchmark));
        if (!(benchmark->baseline >= 0 && benchmark->baseline < 1))
            return gauntlet_file_wrong(at,
                                       "'random_baseline' has to be in [0, 1)");
        benchmark->task =
            find_task(gauntlet, benchmark->name, benchmark->shots);
        if (benchmark->task < 0)
            log_warn("category '%s' is left out: benchmark '%s' of %lld shots "
                     "is missing",
                     category->name, benchmark->name,
                     (long long)benchmark->shots);
        category->missing = category->missing || benchmark->task < 0;
    }
    return ERR_OK;
}

static int find_category(const struct gauntlet *gauntlet, const char *name)
{
    for (int c = 0; c < gauntlet->category_count; c++)
        if (strcmp(gauntlet->categories[c].name, name) == 0)
            return c;
    return -1;
}

static enum err read_average(const struct gauntlet *gauntlet,
                             const config_setting_t *from,
                             struct gauntlet_average *average)
{
    const config_setting_t *list;
    int count;
    TRY(gauntlet_file_group(from, average_fields, COUNT(average_fields),
                            average));
    TRY(gauntlet_file_list(from, "categories", &list, &count));
    if (find_category(gauntlet, average->name) >= 0)
        return gauntlet_file_wrong(from,
                                   "'%s' is a category's name already; an "
                                   "average needs another",
                                   average->name);
    TRY(new_zeroed(&average->categories, (size_t)count + 1));
    for (; average->count < count; average->count++) {
        const char *name = config_setting_get_string_elem(list, average->count);
        int category = name != NULL ? find_category(gauntlet, name) : -1;
        if (category < 0)
            return gauntlet_file_wrong(list, "there is no category '%s'",
                                       name != NULL ? name : "?");
        average->categories[average->count] = category;
    }
    return ERR_OK;
}

/* All categories, where the file says nothing of averages. */
static enum err average_all(struct gauntlet *gauntlet)
{
    struct gauntlet_average *average = &gauntlet->averages[0];
    gauntlet->average_count = 1;
    average->name = "default_average";
    average->count = gauntlet->category_count;
    TRY(new_zeroed(&average->categories, (size_t)average->count + 1));
    for (int c = 0; c < average->count; c++)
        average->categories[c] = c;
    return ERR_OK;
}

static enum err read_weighting(struct gauntlet *gauntlet,
                               const config_setting_t *root)
{
    const char *name = "EQUAL";
    const config_setting_t *at = config_setting_get_member(root, "weighting");
    if (at != NULL && config_setting_get_string(at) == NULL)
        return gauntlet_file_wrong(at, "'weighting' has to be a text");
    if (at != NULL)
        name = config_setting_get_string(at);
    for (int w = 0; gauntlet_weighting_names[w] != NULL; w++)
        if (strcmp(name, gauntlet_weighting_names[w]) == 0) {
            gauntlet->weighting = (enum gauntlet_weighting)w;
            return ERR_OK;
        }
    return gauntlet_file_wrong(
        at, "'weighting' is one of EQUAL, SAMPLE_SZ, LOG_SAMPLE_SZ, not '%s'",
        name);
}

static enum err read_lists(struct gauntlet *gauntlet,
                           const config_setting_t *root, const char *folder,
                           uint64_t seed)
{
    const config_setting_t *list;
    int count;
    TRY(gauntlet_file_list(root, "tasks", &list, &count));
    for (int i = 0; i < count; i++)
        TRY(read_task(gauntlet, config_setting_get_elem(list, (unsigned)i),
                      folder, seed));
    TRY(gauntlet_file_list(root, "categories", &list, &count));
    TRY(new_zeroed(&gauntlet->categories, (size_t)count + 1));
    for (int i = 0; i < count; i++) {
        gauntlet->category_count = i + 1;
        TRY(read_category(gauntlet, config_setting_get_elem(list, (unsigned)i),
                          &gauntlet->categories[i]));
    }
    TRY(gauntlet_file_list(root, "averages", &list, &count));
    TRY(new_zeroed(&gauntlet->averages, (size_t)count + 1));
    if (list == NULL && gauntlet->category_count > 0)
        return average_all(gauntlet);
    for (int i = 0; i < count; i++) {
        gauntlet->average_count = i + 1;
        TRY(read_average(gauntlet, config_setting_get_elem(list, (unsigned)i),
                         &gauntlet->averages[i]));
    }
    return ERR_OK;
}

static enum err read_all(struct gauntlet *gauntlet, const char *path,
                         const char *data, uint64_t seed)
{
    char folder[FSIO_PATH_MAX], beside[SETTINGS_TEXT_BYTES];
    config_t *config = &gauntlet->texts->config;
    const char *slash = strrchr(path, '/');
    TRY(data != NULL    ? fsio_path(folder, "%s", data)
        : slash == NULL ? fsio_path(folder, ".")
                        : fsio_path(folder, "%.*s", (int)(slash - path), path));
    /* libconfig is given the text, not the file: what it gets wrong of numbers
     * and ends is refused before (settings_parse.h) */
    TRY(settings_parse(path, beside, config));
    const config_setting_t *root = config_root_setting(config);
    enum err rc =
        gauntlet_file_group(root, file_fields, COUNT(file_fields), gauntlet);
    if (rc == ERR_OK)
        rc = read_weighting(gauntlet, root);
    if (rc == ERR_OK && gauntlet->rescale && !gauntlet->subtract)
        rc = gauntlet_file_wrong(root, "'rescale_accuracy' needs "
                                       "'subtract_random_baseline'");
    if (rc == ERR_OK)
        rc = read_lists(gauntlet, root, folder, seed);
    return rc != ERR_OK ? err_prefix(rc, "%s", path) : ERR_OK;
}

enum err gauntlet_read(const char *path, const char *data, uint64_t seed,
                       struct gauntlet **out)
{
    enum err rc = ERR_OK;
    struct gauntlet *gauntlet = NULL;
    TRY(new_zeroed(&gauntlet, 1));
    TRY_OUT(new_zeroed(&gauntlet->texts, 1));
    gauntlet->subtract = gauntlet->rescale = true;
    config_init(&gauntlet->texts->config);
    TRY_OUT(read_all(gauntlet, path, data, seed));
    if (gauntlet->task_count == 0)
        TRY_OUT(
            err_set(ERR_DATA, "%s: none of the tasks' files is there", path));
out:
    return new_or_none(rc, gauntlet, out, gauntlet_destroy);
}

void gauntlet_destroy(struct gauntlet *gauntlet)
{
    if (gauntlet == NULL)
        return;
    for (int c = 0; c < gauntlet->category_count; c++)
        free(gauntlet->categories[c].benchmarks);
    for (int a = 0; a < gauntlet->average_count; a++)
        free(gauntlet->averages[a].categories);
    struct gauntlet_texts *texts = gauntlet->texts;
    if (texts != NULL) {
        for (int p = 0; p < texts->path_count; p++)
            free(texts->paths[p]);
        free(texts->paths);
        config_destroy(&texts->config);
        free(texts);
    }
    free(gauntlet->tasks);
    free(gauntlet->categories);
    free(gauntlet->averages);
    free(gauntlet);
}

/* A benchmark's within its category, by the file's weighting. The size is that
 * of the task's file, whatever part of it was scored (--limit). */
static double weight_of(const struct gauntlet *gauntlet,
                        const struct icl_set *set, int task)
{
    int count;
    double size = 0.0;
    const struct icl_result *results = icl_set_results(set, &count);
    for (int i = 0; i < count; i++)
        if (results[i].task == task)
            size += (double)results[i].size;
    switch (gauntlet->weighting) {
    case GAUNTLET_SIZE:
        return size;
    case GAUNTLET_LOG_SIZE:
        return fmax(log2(size), 1);
    default:
        return 1;
    }
}

static void score_category(const struct gauntlet *gauntlet,
                           const struct icl_set *set, int first,
                           struct gauntlet_category *category)
{
    double sum = 0.0, total = 0.0;
    /* what is there is worked out for the report, also where one is missing */
    for (int b = 0; b < category->count; b++) {
        struct gauntlet_benchmark *benchmark = &category->benchmarks[b];
        if (benchmark->task < 0)
            continue;
        int task = first + benchmark->task;
        benchmark->weight = weight_of(gauntlet, set, task);
        benchmark->accuracy = benchmark->score = icl_set_accuracy(set, task);
        if (gauntlet->subtract)
            benchmark->score -= benchmark->baseline;
        if (gauntlet->rescale)
            benchmark->score /= 1 - benchmark->baseline;
        total += benchmark->weight;
    }
    assert(category->missing || total > 0);
    for (int b = 0; b < category->count && !category->missing; b++)
        sum += category->benchmarks[b].score *
               (category->benchmarks[b].weight / total);
    category->score = sum;
}

void gauntlet_score(struct gauntlet *gauntlet, const struct icl_set *set,
                    int first)
{
    assert(first >= 0);
    for (int c = 0; c < gauntlet->category_count; c++)
        score_category(gauntlet, set, first, &gauntlet->categories[c]);
    for (int a = 0; a < gauntlet->average_count; a++) {
        struct gauntlet_average *average = &gauntlet->averages[a];
        double sum = 0.0;
        average->there = 0;
        for (int c = 0; c < average->count; c++) {
            const struct gauntlet_category *category =
                &gauntlet->categories[average->categories[c]];
            sum += category->missing ? 0 : category->score;
            average->there += !category->missing;
        }
        assert(average->there <= average->count);
        average->score = average->there > 0 ? sum / average->there : 0;
    }
}
