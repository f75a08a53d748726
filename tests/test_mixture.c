/* Mixtures: their text, the counts of every step, and the samples that an order
 * makes of them. */
#include "src/data/set/mixture_text.h"

#include "src/base/rng.h"
#include "src/data/set/order.h"
#include "tests/tap.h"

static struct mixture_text text;

static void test_text(void)
{
    tap_is_int(mixture_text_parse(" web 0.7 to .3 at 1000ba then 0 at 2e3ba,\n"
                                  "code=/a/b-c proportion 1, wiki=w then",
                                  &text),
               ERR_USAGE, "'then' is no weight: %s", err_text());
    tap_is_int(mixture_text_parse(" web 0.7 to .3 at 1000ba then 0 at 2e3ba,\n"
                                  "code=/a/b-c proportion 1,wiki repeat 1.5 , "
                                  "x.y_z-1=d choose 12,all",
                                  &text),
               ERR_OK, "five data sets");
    const struct mixture_entry *e = text.entries;
    tap_ok(text.count == 5 && text.scheduled, "a schedule among them");
    tap_ok(strcmp(e[0].name, "web") == 0 && strcmp(e[0].folder, "web") == 0 &&
               e[0].count == 3 && e[0].times[0].weight == 0.7 &&
               e[0].times[1].weight == 0.3 && !e[0].times[1].jump &&
               e[0].times[1].at.value == 1000 && e[0].times[2].jump &&
               e[0].times[2].at.value == 2000,
           "a line and a jump");
    tap_ok(strcmp(e[1].folder, "/a/b-c") == 0 && e[1].amount == 1 &&
               e[1].weight == STREAM_PROPORTION,
           "a folder of its own");
    tap_ok(e[2].weight == STREAM_REPEAT && e[2].amount == 1.5 &&
               e[3].weight == STREAM_CHOOSE && e[3].amount == 12 &&
               e[4].weight == STREAM_ALL,
           "repeat, choose and all");
}

static void test_bad_text(void)
{
    static const char *const bad[][2] = {
        { "", "no name" },
        { "a 1,", "no name" },
        { "a 1,,b 1", "no name" },
        { "a -1", "0 or more" },
        { "a nan", "weight" },
        { "a 0x10", "weight" },
        { "a inf", "weight" },
        { "a 1e99", "weight" },
        { "a 1 b 1", "','" },
        { "a 1, a 2", "twice" },
        { "/data/a 1", "NAME=FOLDER" },
        { "../a 1", "NAME=FOLDER" },
        { "a= 1", "folder" },
        { "a 1 to 2", "at TIME" },
        { "a 1 to 2 at", "duration" },
        { "a 1 to 2 at 5", "5" },
        { "a 1 to 2 at 5sec", "speed" },
        { "a 1 to 2 at 0.5dur", "longer" },
        { "a 1 to 2 at 5ba to 3 at 5ba", "grow" },
        { "a 1 to 2 at 5ba to 3 at 4ba", "grow" },
        { "a repeat", "number" },
        { "a repeat -1", "number" },
        { "a choose 1.5", "whole" },
        { "a repeat 1 to 2 at 5ba", "','" },
        { "a 1 to 1 at 1ba to 1 at 2ba to 1 at 3ba to 1 at 4ba to 1 at 5ba to "
          "1 at 6ba to 1 at 7ba to 1 at 8ba to 1 at 9ba to 1 at 10ba to 1 at "
          "11ba to 1 at 12ba to 1 at 13ba to 1 at 14ba to 1 at 15ba to 1 at "
          "16ba",
          "more than 16" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        tap_ok(mixture_text_parse(bad[i][0], &text) == ERR_USAGE &&
                   strstr(err_text(), bad[i][1]) != NULL,
               "'%.30s': %s", bad[i][0], err_text());
    char many[1024] = "";
    for (int i = 0; i < 65; i++) {
        size_t used = strlen(many);
        snprintf(many + used, sizeof many - used, "%sd%d", i > 0 ? "," : "", i);
    }
    tap_ok(mixture_text_parse(many, &text) == ERR_USAGE, "too many: %s",
           err_text());
}

/* Curves with jumps, lines, and times of no weight. */
static void random_curves(uint64_t number, struct mixture_curve *curves,
                          int count)
{
    for (int i = 0; i < count; i++) {
        struct mixture_curve *curve = &curves[i];
        uint64_t stream = number * 100 + (uint64_t)i;
        int64_t step = 0;
        curve->count = 1 + (int)(rng_u64(1, stream, 0) % 6);
        for (int p = 0; p < curve->count; p++) {
            uint64_t draw = rng_u64(2, stream, (uint64_t)p);
            double weight = rng_uniform(3, stream, (uint64_t)p) * 5;
            curve->points[p] = (struct mixture_point){
                step, draw % 3 == 0 && i > 0 ? 0 : weight, draw % 2 == 0
            };
            step += 1 + (int64_t)(draw >> 8) % 400;
        }
    }
}

/* The weight of a curve: the line between the points around the step. */
static double weight_at(const struct mixture_curve *curve, int64_t step)
{
    const struct mixture_point *from = curve->points, *to = from + 1;
    const struct mixture_point *end = from + curve->count;
    for (; to < end && to->step <= step; to++)
        from = to;
    return to == end || to->jump
               ? from->weight
               : from->weight + (to->weight - from->weight) *
                                    ((double)(step - from->step) /
                                     (double)(to->step - from->step));
}

/* Counts are whole and add up, nothing comes of no weight, and what has come is
 * what should have within two samples, as often as no stream is stopped. */
static void test_counts(void)
{
    int bad = 0, other = 0;
    double worst = 0;
    for (uint64_t number = 0; number < 40; number++) {
        struct mixture_curve curves[9];
        struct order_mixture *mixture = NULL, *again = NULL;
        int count = 1 + (int)(number % 9);
        int64_t batch = 1 + (int64_t)(rng_u64(4, number, 0) % 300);
        int64_t before[9] = { 0 };
        double should[9] = { 0 };
        bool stopped = false;
        random_curves(number, curves, count);
        bad +=
            order_mixture_create(curves, count, batch, 0, &mixture) != ERR_OK;
        bad += order_mixture_create(curves, count, batch, 0, &again) != ERR_OK;
        for (int64_t step = 0; step < 3000; step++) {
            const struct mixture_counts *counts = NULL;
            double weights[9], sum = 0;
            int64_t all = 0;
            bad += order_mixture_at(mixture, step, &counts) != ERR_OK;
            for (int i = 0; i < count; i++)
                sum += weights[i] = weight_at(&curves[i], step);
            for (int i = 0; i < count; i++) {
                stopped = stopped || weights[i] == 0;
                should[i] += (double)batch * weights[i] / sum;
                bad += counts->before[i] != before[i] || counts->now[i] < 0 ||
                       (weights[i] == 0 && counts->now[i] != 0);
                before[i] += counts->now[i];
                all += counts->now[i];
                if (!stopped)
                    worst = fmax(worst, fabs((double)before[i] - should[i]));
            }
            bad += all != batch;
        }
        for (uint64_t i = 0; i < 20; i++) {
            const struct mixture_counts *a = NULL, *b = NULL;
            int64_t step = (int64_t)(rng_u64(5, number, i) % 5000);
            bad += order_mixture_at(mixture, step, &a) != ERR_OK;
            bad += order_mixture_at(again, step, &b) != ERR_OK;
            other += memcmp(a, b, sizeof *a) != 0;
            order_mixture_destroy(again);
            bad +=
                order_mixture_create(curves, count, batch, 0, &again) != ERR_OK;
        }
        order_mixture_destroy(mixture);
        order_mixture_destroy(again);
    }
    tap_is_int(bad, 0, "counts are whole, add up, and none of no weight");
    tap_is_int(other, 0, "the same from whatever step one comes");
    tap_ok(worst < 2.0, "shares hold within two samples: %.3f", worst);
}

static void test_no_weight(void)
{
    struct order_mixture *mixture = NULL;
    const struct mixture_curve curves[] = {
        { 2, { { 0, 1, false }, { 10, 0, true } } },
        { 2, { { 0, 0, false }, { 11, 1, true } } },
    };
    tap_ok(order_mixture_create(curves, 2, 8, 0, &mixture) == ERR_USAGE &&
               strstr(err_text(), "step 11") != NULL,
           "a step without any weight: %s", err_text());
}

/* A mixture whose first stream is swapped for the second at step 7. */
static struct order *make(int64_t first, const int64_t *begin)
{
    static const struct stream streams[] = { { .samples = 50 },
                                             { .samples = 30 } };
    static const struct mixture_curve curves[] = {
        { 2, { { 0, 3, false }, { 7, 0, true } } },
        { 2, { { 0, 1, false }, { 7, 2, true } } },
    };
    static const char *const names[] = { "web", "code" };
    struct order_spec spec = { .kind = ORDER_CANONICAL,
                               .seed = 17,
                               .first = first,
                               .batch = 6,
                               .count = 2,
                               .streams = streams,
                               .curves = curves,
                               .names = names,
                               .begin = begin };
    struct order *order = NULL;
    if (order_create(&spec, &order) != ERR_OK)
        abort();
    return order;
}

static void test_order(void)
{
    static const int64_t begin[] = { 5, 0 };
    struct order *order = make(0, NULL), *later = make(60, begin);
    int64_t of[2] = { 0, 0 }, counts[STREAMS_MAX];
    int times[2][50] = { { 0 } };
    int bad = 0, swapped = 0;
    for (int64_t p = 0; p < 600; p++) {
        int stream = -1, again = -1;
        int64_t sample = -1, same = -1;
        bad += order_sample(order, p, &stream, &sample) != ERR_OK ||
               stream < 0 || stream > 1 || sample < 0 ||
               sample >= order_samples(order, stream);
        bad += order_sample(order, p, &again, &same) != ERR_OK ||
               again != stream || same != sample;
        swapped += p >= 42 && stream == 0;
        times[stream][sample]++;
        of[stream]++;
    }
    tap_is_int(bad, 0, "samples of both streams");
    tap_is_int(swapped, 0, "none of the first after the swap");
    for (int64_t s = 0; s < 30; s++)
        bad += times[1][s] != of[1] / 30 && times[1][s] != of[1] / 30 + 1;
    tap_is_int(bad, 0, "every sample of an epoch once");
    tap_ok(order_read(order, 600, counts) && counts[0] == of[0] &&
               counts[1] == of[1],
           "what was read is counted: %lld and %lld", (long long)of[0],
           (long long)of[1]);
    tap_ok(order_read(later, 60, counts) && counts[0] == 5 && counts[1] == 0,
           "a stream may have begun before");
    tap_is_int(order_epoch(order), 80, "samples of an epoch");
    order_destroy(order);
    order_destroy(later);
}

int main(void)
{
    test_text();
    test_bad_text();
    test_counts();
    test_no_weight();
    test_order();
    return tap_done();
}
