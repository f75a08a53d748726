/* Results of evaluations for people and programs. */
#include "src/eval/eval_report.h"

#include <assert.h>

#include "src/base/clean.h"
#include "src/base/jsontext.h"

#define NAME_BYTES 256

static double accuracy_of(const struct icl_result *result)
{
    assert(result->examples > 0 && result->right <= result->examples);
    return (double)result->right / (double)result->examples;
}

json_t *eval_report_task(const struct eval_report *report, int number_of)
{
    const struct icl_task *task = &report->tasks[number_of];
    char name[NAME_BYTES];
    int count;
    const struct icl_result *results = icl_set_results(report->set, &count);
    json_int_t right = 0, examples = 0, shots = 0;
    json_t *categories = json_array();
    assert(number_of >= 0 && number_of < report->task_count);
    icl_task_name(task, name, sizeof name);
    for (int i = 0; i < count; i++) {
        const struct icl_result *result = &results[i];
        if (result->task != number_of)
            continue;
        right += result->right;
        examples += result->examples;
        shots = result->shots > shots ? result->shots : shots;
        if (result->category != NULL)
            json_array_append_new(
                categories, json_pack("{s:o?, s:I, s:I, s:f}", "category",
                                      jsontext_string(result->category),
                                      "examples", (json_int_t)result->examples,
                                      "right", (json_int_t)result->right,
                                      "accuracy", accuracy_of(result)));
    }
    json_t *out =
        json_pack("{s:o?, s:s, s:I, s:I, s:I, s:f}", "task",
                  jsontext_string(name), "kind", icl_kind_names[task->kind],
                  "shots", shots, "examples", examples, "right", right,
                  "accuracy", icl_set_accuracy(report->set, number_of));
    if (task->categories)
        json_object_set(out, "categories", categories);
    json_decref(categories);
    return out;
}

static json_t *benchmarks_json(const struct gauntlet_category *category)
{
    json_t *list = json_array();
    for (int b = 0; b < category->count; b++) {
        const struct gauntlet_benchmark *benchmark = &category->benchmarks[b];
        bool there = benchmark->task >= 0;
        json_array_append_new(
            list,
            json_pack("{s:o?, s:I, s:f, s:o, s:o}", "name",
                      jsontext_string(benchmark->name), "shots",
                      (json_int_t)benchmark->shots, "random_baseline",
                      benchmark->baseline, "accuracy",
                      there ? jsontext_real(benchmark->accuracy) : json_null(),
                      "score",
                      there ? jsontext_real(benchmark->score) : json_null()));
    }
    return list;
}

json_t *eval_report_gauntlet(const struct gauntlet *gauntlet)
{
    json_t *categories = json_array(), *averages = json_array();
    for (int c = 0; c < gauntlet->category_count; c++) {
        const struct gauntlet_category *category = &gauntlet->categories[c];
        json_array_append_new(
            categories,
            json_pack("{s:o?, s:o, s:o}", "category",
                      jsontext_string(category->name), "score",
                      category->missing ? json_null()
                                        : jsontext_real(category->score),
                      "benchmarks", benchmarks_json(category)));
    }
    for (int a = 0; a < gauntlet->average_count; a++) {
        const struct gauntlet_average *average = &gauntlet->averages[a];
        json_array_append_new(averages,
                              json_pack("{s:o?, s:o, s:i, s:i}", "average",
                                        jsontext_string(average->name), "score",
                                        average->there > 0
                                            ? jsontext_real(average->score)
                                            : json_null(),
                                        "categories", average->count, "missing",
                                        average->count - average->there));
    }
    return json_pack("{s:s, s:o, s:o}", "weighting",
                     gauntlet_weighting_names[gauntlet->weighting],
                     "categories", categories, "averages", averages);
}

static json_t *perplexity_json(const char *dataset,
                               const struct perplexity *result)
{
    bool bytes = result->bytes > 0;
    return json_pack(
        "{s:o?, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "dataset",
        jsontext_string(dataset), "samples", (json_int_t)result->samples,
        "tokens", (json_int_t)result->tokens, "nll", jsontext_real(result->nll),
        "nll_per_token", jsontext_real(result->per_token), "perplexity",
        jsontext_real(result->perplexity), "bytes",
        bytes ? json_integer(result->bytes) : json_null(), "nll_per_byte",
        bytes ? jsontext_real(result->per_byte) : json_null());
}

json_t *eval_report_json(const struct eval_report *report)
{
    json_t *tasks = json_array(), *perplexities = json_array();
    for (int t = 0; t < report->task_count; t++)
        json_array_append_new(tasks, eval_report_task(report, t));
    for (int d = 0; d < report->dataset_count; d++)
        json_array_append_new(
            perplexities,
            perplexity_json(report->datasets[d], &report->perplexities[d]));
    return json_pack("{s:o, s:o, s:o}", "tasks", tasks, "perplexity",
                     perplexities, "gauntlet",
                     report->gauntlet != NULL
                         ? eval_report_gauntlet(report->gauntlet)
                         : json_null());
}

/* A line for each part, and behind the parts of a task with categories one more
 * with their mean, which is what counts as the task's accuracy. */
static void print_tasks(const struct eval_report *report, FILE *out)
{
    int count;
    int64_t most = 0; /* shots of the task's parts */
    const struct icl_result *results = icl_set_results(report->set, &count);
    clean_fprintf(out, "%-40s %5s %8s %8s\n", "task", "shots", "examples",
                  "accuracy");
    for (int i = 0; i < count; i++) {
        const struct icl_result *result = &results[i];
        const struct icl_task *task = &report->tasks[result->task];
        char name[NAME_BYTES], line[2 * NAME_BYTES];
        bool last = i + 1 == count || results[i + 1].task != result->task;
        most =
            i > 0 && results[i - 1].task == result->task && most > result->shots
                ? most
                : result->shots;
        icl_task_name(task, name, sizeof name);
        snprintf(line, sizeof line, "%s%s%s", name, task->categories ? "/" : "",
                 task->categories ? result->category : "");
        clean_fprintf(out, "%-40s %5lld %8lld %8.4f\n", line,
                      (long long)result->shots, (long long)result->examples,
                      accuracy_of(result));
        if (last && task->categories)
            clean_fprintf(out, "%-40s %5lld %8s %8.4f\n", name, (long long)most,
                          "mean", icl_set_accuracy(report->set, result->task));
    }
}

static void print_gauntlet(const struct gauntlet *gauntlet, FILE *out)
{
    clean_fprintf(out, "\n%-40s %23s\n", "category", "score");
    for (int c = 0; c < gauntlet->category_count; c++) {
        const struct gauntlet_category *category = &gauntlet->categories[c];
        int missing = 0;
        for (int b = 0; b < category->count; b++)
            missing += category->benchmarks[b].task < 0;
        if (missing > 0)
            clean_fprintf(out, "%-40s %23s  %d of %d benchmarks missing\n",
                          category->name, "-", missing, category->count);
        else
            clean_fprintf(out, "%-40s %23.4f\n", category->name,
                          category->score);
    }
    for (int a = 0; a < gauntlet->average_count; a++) {
        const struct gauntlet_average *average = &gauntlet->averages[a];
        if (average->there == 0)
            clean_fprintf(out, "%-40s %23s  no category is there\n",
                          average->name, "-");
        else if (average->there < average->count)
            clean_fprintf(out, "%-40s %23.4f  of %d of %d categories\n",
                          average->name, average->score, average->there,
                          average->count);
        else
            clean_fprintf(out, "%-40s %23.4f\n", average->name, average->score);
    }
}

void eval_report_print(const struct eval_report *report, FILE *out)
{
    if (report->task_count > 0)
        print_tasks(report, out);
    if (report->gauntlet != NULL)
        print_gauntlet(report->gauntlet, out);
    for (int d = 0; d < report->dataset_count; d++) {
        const struct perplexity *result = &report->perplexities[d];
        clean_fprintf(out,
                      "%s%s: %lld samples, %lld tokens, %.6f nats per token, "
                      "perplexity %.6g",
                      d == 0 && report->task_count > 0 ? "\n" : "",
                      report->datasets[d], (long long)result->samples,
                      (long long)result->tokens, result->per_token,
                      result->perplexity);
        if (result->bytes > 0)
            clean_fprintf(out, ", %.6f nats per byte", result->per_byte);
        fputc('\n', out);
    }
}
