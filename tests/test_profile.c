/* What surrounds a profile: the ranges of train.profile, its shapes, its table
 * and its file. */
#include <jansson.h>

#include "src/base/fsio.h"
#include "src/train/profile/profile.h"
#include "tests/tap.h"

#define GEMM TIMELINE_KINDS_OWN
#define EVALUATION (TIMELINE_KINDS_OWN + 1)
#define KINDS (TIMELINE_KINDS_OWN + 2)

static struct timeline_kind kinds[KINDS];

/* --- ranges --- */

static void test_ranges(void)
{
    static const struct {
        const char *text;
        int count;
        int64_t first, last; /* of the last one */
    } good[] = {
        { "", 0, 0, 0 },
        { "  ", 0, 0, 0 },
        { "10ba-12ba", 1, 10, 12 },
        { "1ba", 1, 1, 1 },
        { "1e3ba-2e3BA", 1, 1000, 2000 },
        { " 3ba-4ba ,  7ba", 2, 7, 7 },
        { "1ba-2ba,3ba-4ba", 2, 3, 4 },
    };
    static const struct {
        const char *text, *says;
    } bad[] = {
        { "10", "no range of steps" },
        { "10ba-", "no range of steps" },
        { "-3ba", "no range of steps" },
        { "10ba-12ba-14ba", "no range of steps" },
        { "10ba,", "no range of steps" },
        { ",10ba", "no range of steps" },
        { "all", "no range of steps" },
        { "1.5ba", "no range of steps" },
        { "1ep-2ep", "in ba" },
        { "10ba-12sec", "in ba" },
        { "0ba-3ba", "no step 0" },
        { "12ba-10ba", "ends before it begins" },
        { "10ba-12ba, 12ba-14ba", "step 12" },
        { "10ba-12ba, 3ba", "in order" },
        { "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
          "aaa"
          "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
          "no range of steps" },
        { "1ba,2ba,3ba,4ba,5ba,6ba,7ba,8ba,9ba,10ba,11ba,12ba,13ba,14ba,15ba,"
          "16ba,17ba,18ba,19ba,20ba,21ba,22ba,23ba,24ba,25ba,26ba,27ba,28ba,"
          "29ba,30ba,31ba,32ba,33ba",
          "more than 32" },
    };
    struct profile_ranges ranges;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        const struct profile_range *last = &ranges.list[0];
        enum err rc = profile_ranges_parse(good[i].text, &ranges);
        if (rc == ERR_OK && ranges.count > 0)
            last = &ranges.list[ranges.count - 1];
        tap_ok(rc == ERR_OK && ranges.count == good[i].count &&
                   (ranges.count == 0 || (last->first == good[i].first &&
                                          last->last == good[i].last)),
               "'%s'", good[i].text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        enum err rc = profile_ranges_parse(bad[i].text, &ranges);
        tap_ok(rc == ERR_USAGE && strstr(err_text(), bad[i].says) != NULL &&
                   strstr(err_text(), "train.profile") != NULL,
               "'%.40s' is refused: %s", bad[i].text, err_text());
    }
    tap_is_int(profile_ranges_parse("3ba-5ba, 9ba", &ranges), ERR_OK, "and");
    tap_ok(profile_ranges_at(&ranges, 2) == NULL &&
               profile_ranges_at(&ranges, 3) == &ranges.list[0] &&
               profile_ranges_at(&ranges, 5) == &ranges.list[0] &&
               profile_ranges_at(&ranges, 6) == NULL &&
               profile_ranges_at(&ranges, 9) == &ranges.list[1],
           "both ends belong to a range");
}

/* --- a timeline with known times --- */

static void put(struct timeline *timeline, int lane, int kind, int64_t begin_ns,
                int64_t end_ns, int64_t m, bool absorbed)
{
    struct timeline_event *event = &timeline->events[timeline->count++];
    *event = (struct timeline_event){ .begin_ns = begin_ns,
                                      .end_ns = end_ns,
                                      .kind = (int16_t)kind,
                                      .lane = (int16_t)lane,
                                      .absorbed = absorbed };
    if (kind == GEMM)
        event->detail = (struct timeline_detail){ .label = "gemm NT",
                                                  .dims = "m n k",
                                                  .dim = { m, 20, 30 },
                                                  .flop = 2e6,
                                                  .bytes = 1e6 };
}

/* A step of 10 ms: products of 1, 2 and 3 ms, and an evaluation of 2 ms with a
 * product of 1 ms. */
static struct timeline *make(void)
{
    struct timeline *timeline = NULL;
    timeline_kinds(kinds);
    kinds[GEMM] = (struct timeline_kind){ "gemm", TIMELINE_OP };
    kinds[EVALUATION] =
        (struct timeline_kind){ "evaluation", TIMELINE_ABSORBS };
    if (timeline_create(kinds, KINDS, 16, &timeline) != ERR_OK)
        return NULL;
    timeline_start(timeline);
    timeline_stop(timeline);
    put(timeline, 0, GEMM, 1000000, 2000000, 10, false);
    put(timeline, 0, GEMM, 2000000, 4000000, 11, false);
    put(timeline, 0, GEMM, 4000000, 7000000, 10, false);
    put(timeline, 0, GEMM, 7500000, 8500000, 12, true);
    put(timeline, 0, EVALUATION, 7000000, 9000000, 0, false);
    put(timeline, 0, TIMELINE_STEP, 0, 10000000, 0, false);
    timeline->host[GEMM] =
        (struct timeline_sum){ 3, 6000000, 6000000, 6e6, 3e6 };
    timeline->host[EVALUATION] =
        (struct timeline_sum){ 1, 2000000, 2000000, 0, 0 };
    timeline->host[TIMELINE_STEP] =
        (struct timeline_sum){ 1, 2000000, 10000000, 0, 0 };
    return timeline;
}

static void test_shapes(const struct timeline *timeline)
{
    struct profile_shape shapes[PROFILE_SHAPES];
    int count = 0;
    tap_is_int(profile_shapes(timeline, shapes, &count), ERR_OK, "shapes");
    tap_is_int(count, 2, "each once, evaluation's not");
    tap_ok(count == 2 && shapes[0].ns == 4000000 && shapes[0].count == 2 &&
               shapes[0].detail.dim[0] == 10 && shapes[0].detail.flop == 4e6 &&
               shapes[1].ns == 2000000,
           "those that took longest first, all calls together");
}

/* Whether a line begins with these words and numbers, blanks aside. */
static bool has_line(const char *text, const char *want)
{
    char squeezed[256];
    while (*text != '\0') {
        size_t used = 0, bytes = strcspn(text, "\n");
        for (size_t i = 0; i < bytes && used + 1 < sizeof squeezed; i++)
            if (text[i] != ' ' || (used > 0 && squeezed[used - 1] != ' '))
                squeezed[used++] = text[i];
        squeezed[used] = '\0';
        if (strncmp(squeezed, want, strlen(want)) == 0)
            return true;
        text += bytes + (text[bytes] != '\0');
    }
    return false;
}

static void test_table(struct comm *comm, const struct timeline *timeline)
{
    struct profile_sums sums = { .first = 7, .last = 7, .peak_flops = 2e9 };
    struct profile_shape shapes[PROFILE_SHAPES];
    struct buffer text = { 0 };
    int count = 0;
    static const char *const wants[] = {
        "profile of steps 7 to 7 on 1 rank: 10.00 ms a step, 20.0 % not "
        "accounted for; a rank's peak is 2 GFLOP/s",
        "evaluation 1.0 2.00 20.0 %",
        "between these 8.00 80.0 %",
        "gemm 3.0 6.00 60.0 % 1.0 0.5",
        "not accounted for 2.00 20.0 %",
        "gemm NT m 10 n 20 k 30 2.0 4.00 40.0 % 1.0",
        "gemm NT m 11 n 20 k 30 1.0 2.00 20.0 % 1.0",
    };
    tap_is_int(profile_sums_gather(comm, timeline, &sums), ERR_OK, "sums");
    tap_is_int(profile_sums_steps(&sums), 10000000, "of steps");
    tap_is_int(profile_sums_rest(&sums), 2000000, "and what has no kind");
    if (profile_shapes(timeline, shapes, &count) != ERR_OK ||
        profile_table(&sums, shapes, count, &text) != ERR_OK ||
        buffer_add(&text, "", 1) != ERR_OK)
        tap_ok(false, "%s", err_text());
    for (size_t i = 0; i < sizeof wants / sizeof wants[0]; i++)
        if (!tap_ok(has_line((char *)text.data, wants[i]), "'%s'", wants[i]))
            tap_note("%s", (char *)text.data);
    tap_ok(strstr((char *)text.data, "no room") == NULL, "nothing was lost");
    buffer_free(&text);
    sums.lost = 3;
    if (profile_table(&sums, shapes, count, &text) == ERR_OK &&
        buffer_add(&text, "", 1) == ERR_OK)
        tap_ok(has_line((char *)text.data, "3 spans found no room"),
               "what was lost is told");
    buffer_free(&text);
}

static void test_file(const char *folder, const struct timeline *timeline)
{
    char path[FSIO_PATH_MAX], nowhere[FSIO_PATH_MAX];
    const struct profile_about about = { .rank = 3,
                                         .ranks = 4,
                                         .attempt = 2,
                                         .host = "node1",
                                         .run = "uuid",
                                         .first = 7,
                                         .last = 7,
                                         .offset_ns = 5000,
                                         .error_ns = 1500,
                                         .device_error_ns = -1 };
    snprintf(path, sizeof path, "%.900s/rank-3.json", folder);
    tap_is_int(profile_file_write(path, timeline, &about), ERR_OK, "a file: %s",
               err_text());
    json_t *file = json_load_file(path, 0, NULL);
    const json_t *events = json_object_get(file, "traceEvents");
    const json_t *first = NULL;
    for (size_t i = 0; i < json_array_size(events) && first == NULL; i++)
        if (strcmp(json_string_value(
                       json_object_get(json_array_get(events, i), "ph")),
                   "X") == 0)
            first = json_array_get(events, i);
    tap_is_int((long long)json_array_size(events), 2 + 2 + 6,
               "names of the process and the lane, and all spans");
    const json_t *args = json_object_get(first, "args");
    tap_ok(json_integer_value(json_object_get(first, "pid")) == 3 &&
               json_number_value(json_object_get(first, "ts")) == 1005.0 &&
               json_number_value(json_object_get(first, "dur")) == 1000.0 &&
               json_integer_value(json_object_get(args, "m")) == 10 &&
               json_number_value(json_object_get(args, "GFLOP/s")) == 2.0 &&
               json_number_value(json_object_get(args, "bytes")) == 1e6,
           "a span by the common clock, with shape and rates");
    const json_t *told = json_object_get(file, "profile");
    const json_t *kind =
        json_object_get(json_object_get(told, "host_kinds"), "evaluation");
    tap_ok(json_integer_value(json_object_get(told, "first_step")) == 7 &&
               json_number_value(json_object_get(told, "clock_error_us")) ==
                   1.5 &&
               json_number_value(json_object_get(kind, "seconds")) == 0.002,
           "and what it is of");
    json_decref(file);
    snprintf(nowhere, sizeof nowhere, "%.900s/no/rank-3.json", folder);
    tap_is_int(profile_file_write(nowhere, timeline, &about), ERR_IO,
               "no folder: %s", err_text());
    tap_is_int(profile_file_write("/dev/full/rank-3.json", timeline, &about),
               ERR_SPACE, "no room: %s", err_text());
}

int main(void)
{
    char folder[] = "/tmp/tessera-profile.XXXXXX";
    struct comm *comm = NULL;
    struct timeline *timeline = make();
    test_ranges();
    if (timeline == NULL || mkdtemp(folder) == NULL ||
        comm_create("self", NULL, NULL, 10.0, &comm) != ERR_OK) {
        tap_ok(false, "%s", err_text());
        return tap_done();
    }
    test_shapes(timeline);
    test_table(comm, timeline);
    test_file(folder, timeline);
    timeline_destroy(timeline);
    comm_destroy(comm);
    (void)fsio_remove_tree(folder);
    return tap_done();
}
