/* Gauntlets: many tasks, and what comes of them as a few numbers, by LLM
 * Foundry's rules.
 *
 * A benchmark is a task with a number of shots; its score is (accuracy -
 * baseline) / (1 - baseline), where a random answer has the baseline as its
 * accuracy. A category's score is the mean of its benchmarks', weighted, and it
 * is left out if one of them is missing; an average is the mean of the
 * categories that are there.
 *
 * The file is libconfig's:
 *
 *   weighting = "EQUAL";  # or SAMPLE_SZ, LOG_SAMPLE_SZ: by examples, or log2
 *   subtract_random_baseline = true;
 *   rescale_accuracy = true;
 *   tasks = ( { label = "piqa"; file = "piqa.jsonl"; kind = "multiple_choice";
 *               shots = [0]; continuation_delimiter = "\nAnswer: "; }, ... );
 *   categories = ( { name = "commonsense"; benchmarks = (
 *       { name = "piqa"; shots = 0; random_baseline = 0.5; }, ... ); }, ... );
 *   averages = ( { name = "core"; categories = ["commonsense"]; }, ... );
 *
 * What is not known in it is refused. Without averages all categories are in
 * "default_average". */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/eval/icl_set.h"
#include "src/eval/icl_task.h"

enum gauntlet_weighting {
    GAUNTLET_EQUAL,
    GAUNTLET_SIZE,
    GAUNTLET_LOG_SIZE /* at least 1 */
};
static const char *const gauntlet_weighting_names[] = { "EQUAL", "SAMPLE_SZ",
                                                        "LOG_SAMPLE_SZ", NULL };

struct gauntlet_benchmark {
    const char *name;
    int64_t shots;
    double baseline;
    int task; /* of the gauntlet's; -1: it is missing */
    double weight, accuracy, score;
};

struct gauntlet_category {
    const char *name;
    struct gauntlet_benchmark *benchmarks;
    int count;
    bool missing; /* one of them is */
    double score;
};

struct gauntlet_average {
    const char *name;
    int *categories; /* their numbers */
    int count;
    int there; /* of them; 0: there is no score */
    double score;
};

/* Read only. */
struct gauntlet {
    enum gauntlet_weighting weighting;
    bool subtract, rescale;
    struct icl_task *tasks; /* whose files are there, once for each of shots */
    int task_count;
    struct gauntlet_category *categories;
    int category_count;
    struct gauntlet_average *averages;
    int average_count;
    struct gauntlet_texts *texts; /* that all names are lent from */
};

/* Files of tasks are in the folder `data`; NULL: in that of the gauntlet. Tasks
 * whose files are not there, or only as a pointer of Git LFS, are left out,
 * which the log tells. seed: of the choice of shots where a task says none.
 * ERR_USAGE: what is wrong with the file, and in which line; or there is none.
 */
enum err gauntlet_read(const char *path, const char *data, uint64_t seed,
                       struct gauntlet **out);
void gauntlet_destroy(struct gauntlet *gauntlet);

/* Fills in what came of it: task number t of the gauntlet is number first + t
 * of the set, which is scored. */
void gauntlet_score(struct gauntlet *gauntlet, const struct icl_set *set,
                    int first);
