/* The choice of tokens: distributions beside a plain reference, draws beside
 * their distribution. tests/interop/generate.sh has transformers in its place.
 */

#include "src/base/rng.h"
#include "src/infer/sample.h"
#include "tests/tap.h"

#define VOCAB 97

static struct sample *sample;

static double uniform(uint64_t index)
{
    return rng_uniform(3, rng_stream("test"), index);
}

/* --- the reference: sorted, in long double --- */

static float score[VOCAB];

static int by_score(const void *a, const void *b)
{
    int i = *(const int *)a, j = *(const int *)b;
    if (score[i] != score[j])
        return score[i] < score[j] ? -1 : 1;
    return i - j;
}

/* Ascending, as transformers does it: those up to which the sum is at most
 * 1 - top_p go. *edge: how near one was. */
static void reference_top_p(double top_p, bool *in, double *edge)
{
    int order[VOCAB];
    long double sum = 0, up_to = 0, most = -INFINITY;
    for (int i = 0; i < VOCAB; i++) {
        order[i] = i;
        most = in[i] && score[i] > most ? score[i] : most;
    }
    for (int i = 0; i < VOCAB; i++)
        sum += in[i] ? expl(score[i] - most) : 0;
    qsort(order, VOCAB, sizeof *order, by_score);
    for (int o = 0; o < VOCAB - 1; o++) {
        int i = order[o];
        up_to += in[i] ? expl(score[i] - most) / sum : 0;
        double distance = fabs((double)(up_to - (1 - (long double)top_p)));
        *edge = in[i] && distance < *edge ? distance : *edge;
        in[i] = in[i] && up_to > 1 - (long double)top_p;
    }
}

static double reference(const struct sample_options *options,
                        const float *logits, struct sample_history history,
                        double *probability)
{
    bool in[VOCAB], seen[VOCAB] = { false };
    double edge = 1;
    long double sum = 0, most = -INFINITY;
    for (size_t h = 0; h < history.count; h++)
        if (history.tokens[h] >= 0 && history.tokens[h] < VOCAB)
            seen[history.tokens[h]] = true;
    for (int i = 0; i < VOCAB; i++) {
        float penalty = seen[i] ? (float)options->repetition_penalty : 1;
        float s = logits[i] < 0 ? logits[i] * penalty : logits[i] / penalty;
        score[i] = s / (float)options->temperature;
    }
    for (int i = 0; i < VOCAB; i++) {
        int larger = 0;
        for (int j = 0; j < VOCAB; j++)
            larger += score[j] > score[i];
        in[i] = options->top_k == 0 || larger < options->top_k;
        most = score[i] > most ? score[i] : most;
    }
    if (options->top_p < 1)
        reference_top_p(options->top_p, in, &edge);
    for (int i = 0; i < VOCAB; i++) {
        in[i] = in[i] && expl(score[i] - most) >= options->min_p;
        sum += in[i] ? expl(score[i] - most) : 0;
    }
    for (int i = 0; i < VOCAB; i++)
        probability[i] = in[i] ? (double)(expl(score[i] - most) / sum) : 0;
    return edge;
}

/* --- tests --- */

static double worst(const double *a, const double *b)
{
    double most = 0;
    for (int i = 0; i < VOCAB; i++) {
        bool apart = (a[i] > 0) != (b[i] > 0);
        double difference = apart ? 1 : fabs(a[i] - b[i]);
        most = difference > most ? difference : most;
    }
    return most;
}

static void test_distributions(void)
{
    double most = 0;
    int compared = 0;
    for (uint64_t n = 0; n < 3000; n++) {
        float logits[VOCAB];
        int32_t tokens[40];
        double want[VOCAB];
        const double *got;
        uint64_t at = n * 1000;
        struct sample_options options = {
            .temperature = uniform(at) < 0.3 ? 1 : 0.1 + 2 * uniform(at + 1),
            .top_k = (int64_t)(uniform(at + 2) * 2 * VOCAB) - VOCAB / 2,
            .top_p = uniform(at + 3) < 0.4 ? 1 : 0.001 + uniform(at + 4) * 0.99,
            .min_p = uniform(at + 5) < 0.5 ? 0 : uniform(at + 6),
            .repetition_penalty =
                uniform(at + 7) < 0.5 ? 1 : 0.5 + uniform(at + 8),
        };
        options.top_k = options.top_k < 0 ? 0 : options.top_k;
        struct sample_history history = { tokens,
                                          (size_t)(uniform(at + 9) * 40) };
        for (size_t h = 0; h < 40; h++) /* some of them no tokens */
            tokens[h] = (int32_t)(uniform(at + 10 + h) * (VOCAB + 10)) - 5;
        /* every third time with equal ones */
        for (uint64_t i = 0; i < VOCAB; i++)
            logits[i] = n % 3 == 0 ? (float)(int)(8 * uniform(at + 60 + i)) - 4
                                   : (float)(16 * uniform(at + 60 + i) - 8);
        double edge = reference(&options, logits, history, want);
        if (sample_distribution(sample, &options, logits, history, &got) !=
            ERR_OK) {
            most = INFINITY;
        } else if (edge > 1e-12) {
            double here = worst(got, want);
            most = here > most ? here : most;
            compared++;
        }
    }
    tap_ok(most < 1e-14 && compared > 2900,
           "%d distributions are the reference's within %g", compared, most);
}

/* Quantile of chi-square, one in a million above it (Wilson and Hilferty). */
static double chi_square_limit(double freedom)
{
    double v = 2 / (9 * freedom), z = 4.75;
    return freedom * pow(1 - v + z * sqrt(v), 3);
}

static void test_draws(void)
{
    enum { DRAWS = 40000 };
    float logits[VOCAB];
    double p[VOCAB];
    int drawn[VOCAB] = { 0 };
    const double *lent;
    const struct sample_options options = { .temperature = 0.9,
                                            .top_k = 60,
                                            .top_p = 0.99,
                                            .repetition_penalty = 1,
                                            .seed = 5 };
    const struct sample_history none = { NULL, 0 };
    for (uint64_t i = 0; i < VOCAB; i++)
        logits[i] = (float)(4 * uniform(i));
    sample_distribution(sample, &options, logits, none, &lent);
    memcpy(p, lent, sizeof p);
    bool outside = false, again = true;
    for (uint64_t n = 0; n < DRAWS; n++) {
        int32_t token = -1, same = -1;
        uint64_t prompt = n / 200, position = n % 200;
        sample_next(sample, &options, logits, none, prompt, position, &token);
        outside |= token < 0 || token >= VOCAB || p[token] == 0;
        drawn[outside ? 0 : token]++;
        if (n % 1000 == 0)
            sample_next(sample, &options, logits, none, prompt, position,
                        &same);
        again &= n % 1000 != 0 || same == token;
    }
    double statistic = 0, freedom = -1;
    for (int i = 0; i < VOCAB; i++) {
        double expected = p[i] * DRAWS;
        if (p[i] == 0)
            continue;
        statistic += (drawn[i] - expected) * (drawn[i] - expected) / expected;
        freedom++;
    }
    tap_ok(!outside, "only tokens with a probability are drawn");
    tap_ok(freedom > 20 && statistic < chi_square_limit(freedom),
           "%d draws follow the distribution: chi-square %.1f of %.0f", DRAWS,
           statistic, freedom);
    tap_ok(again, "the same prompt and position draw the same token");
}

static void test_keys(void)
{
    enum { COUNT = 2000 };
    float logits[VOCAB] = { 0 };
    int equal[3] = { 0 };
    struct sample_options options = sample_options_default;
    const struct sample_history none = { NULL, 0 };
    for (uint64_t n = 0; n < COUNT; n++) {
        int32_t token[4];
        options.seed = 1;
        sample_next(sample, &options, logits, none, 0, n, &token[0]);
        sample_next(sample, &options, logits, none, 1, n, &token[1]);
        sample_next(sample, &options, logits, none, 0, n + 1, &token[2]);
        options.seed = 2;
        sample_next(sample, &options, logits, none, 0, n, &token[3]);
        for (int k = 0; k < 3; k++)
            equal[k] += token[0] == token[k + 1];
    }
    for (int k = 0; k < 3; k++)
        tap_ok(equal[k] < 3 * COUNT / VOCAB,
               "another %s draws for itself: %d of %d equal",
               k == 0   ? "prompt"
               : k == 1 ? "position"
                        : "seed",
               equal[k], COUNT);
}

static void test_greedy(void)
{
    float logits[VOCAB] = { [7] = 3, [30] = 3, [31] = -1 };
    const int32_t said[] = { 7, 7, 31 };
    const double *p;
    int32_t token = -1;
    struct sample_options options = sample_options_default;
    options.greedy = true;
    struct sample_history history = { said, 3 };
    sample_next(sample, &options, logits, history, 0, 0, &token);
    tap_is_int(token, 7, "greedy: the first of the largest");
    options.repetition_penalty = 1.5;
    sample_next(sample, &options, logits, history, 0, 0, &token);
    tap_is_int(token, 30, "with a penalty for what was said");
    sample_distribution(sample, &options, logits, history, &p);
    tap_ok(p[30] == 1 && p[7] == 0, "all of the probability");
    options.greedy = false;
    options.top_k = 1;
    bool same = true;
    for (uint64_t n = 0; n < 100; n++) {
        sample_next(sample, &options, logits, history, 0, n, &token);
        same &= token == 30;
    }
    tap_ok(same, "so has top-k 1");
}

static void test_refused(void)
{
    static const struct {
        const char *name;
        struct sample_options options;
    } rows[] = {
        { "temperature", { .temperature = 0 } },
        { "temperature", { .temperature = -1 } },
        { "temperature", { .temperature = NAN } },
        { "temperature", { .temperature = INFINITY } },
        { "top-p", { .temperature = 1, .top_p = 0 } },
        { "top-p", { .temperature = 1, .top_p = 1.01 } },
        { "min-p", { .temperature = 1, .top_p = 1, .min_p = -0.1 } },
        { "min-p", { .temperature = 1, .top_p = 1, .min_p = 2 } },
        { "repetition-penalty", { .temperature = 1, .top_p = 1 } },
        { "top-k",
          { .temperature = 1,
            .top_p = 1,
            .repetition_penalty = 1,
            .top_k = -1 } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        tap_ok(sample_check(&rows[i].options) == ERR_USAGE &&
                   strstr(err_text(), rows[i].name) != NULL,
               "refused: %s", err_text());
    tap_ok(sample_check(&sample_options_default) == ERR_OK, "the default");
    float logits[VOCAB] = { [3] = NAN };
    const struct sample_history none = { NULL, 0 };
    int32_t token;
    struct sample_options options = sample_options_default;
    for (int g = 0; g < 2; g++) {
        options.greedy = g == 1;
        logits[3] = NAN;
        tap_ok(sample_next(sample, &options, logits, none, 0, 0, &token) ==
                   ERR_NUMERIC,
               "NaN: %s", err_text());
        logits[3] = INFINITY;
        tap_ok(sample_next(sample, &options, logits, none, 0, 0, &token) ==
                   ERR_NUMERIC,
               "infinity");
    }
    options.greedy = false;
    options.temperature = 1e-300;
    logits[3] = 1;
    tap_ok(sample_next(sample, &options, logits, none, 0, 0, &token) ==
               ERR_NUMERIC,
           "a temperature that fp32 has not");
    options.temperature = 1;
    for (int i = 0; i < VOCAB; i++)
        logits[i] = i == 5 ? 0 : -INFINITY;
    tap_ok(sample_next(sample, &options, logits, none, 0, 0, &token) ==
                   ERR_OK &&
               token == 5,
           "minus infinity is no probability");
}

static void test_words(void)
{
    char text[160];
    struct sample_options options = sample_options_default;
    sample_describe(&options, text, sizeof text);
    tap_is_str(text, "temperature 1, seed 17", "in words");
    options = (struct sample_options){ false, 0.7, 50, 0.9, 0.05, 1.1, 3 };
    sample_describe(&options, text, sizeof text);
    tap_is_str(text,
               "temperature 0.7, top-k 50, top-p 0.9, min-p 0.05, repetition "
               "penalty 1.1, seed 3",
               "all of them");
    options.greedy = true;
    sample_describe(&options, text, sizeof text);
    tap_is_str(text, "greedy, repetition penalty 1.1", "greedy");
}

int main(void)
{
    if (sample_create(VOCAB, &sample) != ERR_OK)
        return 1;
    test_distributions();
    test_draws();
    test_keys();
    test_greedy();
    test_refused();
    test_words();
    sample_destroy(sample);
    return tap_done();
}
