/* Random choices and orders of sets against CPython 3.11. */
#include "src/eval/python_random.h"

#include <inttypes.h>

#include "src/eval/icl_prompts.h"
#include "tests/tap.h"

static const struct {
    uint64_t seed;
    uint32_t word[4], five;
} seeds[] = {
    { 0, { 3626764237, 1654615998, 3255389356, 3823568514 }, 13 },
    { 1, { 577090037, 2444712010, 3639700191, 3445702192 }, 24 },
    { 1234, { 4150886329, 3342196574, 1892932127, 501869158 }, 0 },
    { 4294967301, { 675479763, 2085189291, 1213270837, 3822202474 }, 19 },
    { UINT64_MAX, { 93740670, 1068495656, 1452108352, 2657516307 }, 6 },
};

static void test_bits(void)
{
    for (size_t s = 0; s < sizeof seeds / sizeof seeds[0]; s++) {
        struct python_random random;
        bool same = true;
        python_random_seed(&random, seeds[s].seed);
        for (int i = 0; i < 4; i++)
            same = same && python_random_bits(&random, 32) == seeds[s].word[i];
        same = same && python_random_bits(&random, 5) == seeds[s].five;
        tap_ok(same, "getrandbits, seed %" PRIu64, seeds[s].seed);
    }
}

/* set(Random(seed).sample(range(n), k)), then choice(range(n)) */
static const struct {
    int64_t n, k;
    uint64_t seed;
    const char *drawn, *order;
    int64_t choice;
} samples[] = {
    { 100, 3, 1234, "99 56 14 ", "56 99 14 ", 0 },
    { 10, 5, 7, "5 2 6 9 0 ", "0 2 5 6 9 ", 1 },
    { 21, 5, 7, "10 4 12 1 2 ", "1 2 4 10 12 ", 17 },
    { 22, 5, 7, "10 4 12 20 1 ", "1 4 10 12 20 ", 2 },
    { 85, 6, 3, "30 75 69 16 47 77 ", "69 75 77 47 16 30 ", 60 },
    { 86, 6, 3, "30 75 69 16 47 77 ", "69 75 77 47 16 30 ", 60 },
    { 3, 3, 1, "0 2 1 ", "0 1 2 ", 0 },
    { 1, 1, 1, "0 ", "0 ", 0 },
    { 40, 10, 1234, "28 7 0 5 2 36 6 22 15 37 ", "0 2 36 5 6 7 37 15 22 28 ",
      1 },
    { 277, 16, 9, "237 191 136 70 95 3 173 257 41 171 20 194 86 231 216 80 ",
      "191 257 3 194 70 231 136 41 171 237 173 80 20 86 216 95 ", 86 },
    { 278, 16, 9, "237 191 136 70 95 3 173 257 41 171 20 194 86 231 216 80 ",
      "191 257 3 194 70 231 136 41 171 237 173 80 20 86 216 95 ", 86 },
    { 5000, 25, 17,
      "4276 3392 2485 2995 2372 1431 4425 2279 902 220 2039 3147 3437 2067 "
      "4109 2600 3289 1126 4515 509 1145 1610 1236 4365 4578 ",
      "902 4109 4365 2067 1431 4515 2600 2995 4276 2485 3392 2372 4425 1610 "
      "3147 1236 3289 220 4578 1126 2279 3437 2039 1145 509 ",
      1720 },
};

static void list(const int64_t *numbers, int64_t count, char *text)
{
    text[0] = '\0';
    for (int64_t i = 0; i < count; i++)
        sprintf(text + strlen(text), "%" PRId64 " ", numbers[i]);
}

static void test_samples(void)
{
    for (size_t s = 0; s < sizeof samples / sizeof samples[0]; s++) {
        struct python_random random;
        struct python_set set = { 0 };
        int64_t drawn[32];
        char text[512];
        enum err rc;
        python_random_seed(&random, samples[s].seed);
        rc = python_random_sample(&random, samples[s].n, samples[s].k, drawn);
        tap_is_int(rc, ERR_OK, "sample() of %" PRId64, samples[s].n);
        list(drawn, samples[s].k, text);
        tap_is_str(text, samples[s].drawn, "what it draws");
        for (int64_t i = 0; i < samples[s].k; i++)
            rc = python_set_add(&set, drawn[i]);
        python_set_list(&set, drawn);
        list(drawn, (int64_t)set.used, text);
        tap_is_str(text, samples[s].order, "the order of their set");
        /* the first case drew once only to tell its second draw elsewhere */
        if (s > 0)
            tap_is_int(python_random_choice(&random, samples[s].n),
                       samples[s].choice, "choice() after it");
        python_set_free(&set);
    }
}

/* The numbers of all examples' shots, in order, folded into one. */
static const struct {
    int64_t n, k;
    uint64_t want;
} shots[] = {
    { 2, 1, UINT64_C(2000007) },
    { 5, 3, UINT64_C(10006616284858866581) },
    { 5, 9, UINT64_C(1440380685039910300) },
    { 100, 3, UINT64_C(15469049024305996330) },
    { 30, 10, UINT64_C(4378482152309752153) },
    { 1000, 25, UINT64_C(14786322966448623477) },
    { 6000, 5, UINT64_C(6499037762231926989) },
    { 400, 60, UINT64_C(11697372657898450494) },
    { 3000, 700, UINT64_C(3332103319230385042) },
};

static void test_shots(void)
{
    for (size_t s = 0; s < sizeof shots / sizeof shots[0]; s++) {
        struct icl_shots *choice = NULL;
        uint64_t sum = 0;
        enum err rc = icl_shots_create(shots[s].n, shots[s].k, 1234, &choice);
        for (int64_t i = 0; i < shots[s].n && i < 200 && rc == ERR_OK; i++) {
            const int64_t *list;
            int64_t count;
            rc = icl_shots_next(choice, &list, &count);
            for (int64_t j = 0; j < count && rc == ERR_OK; j++)
                sum = sum * 1000003 + (uint64_t)list[j] + 1;
        }
        tap_is_int(rc, ERR_OK, "%" PRId64 " shots of %" PRId64, shots[s].k,
                   shots[s].n);
        tap_ok(sum == shots[s].want, "are those of LLM Foundry");
        icl_shots_destroy(choice);
    }
    struct icl_shots *choice = NULL;
    const int64_t *list;
    int64_t count = -1;
    tap_ok(icl_shots_create(1, 5, 1234, &choice) == ERR_OK &&
               icl_shots_next(choice, &list, &count) == ERR_OK && count == 0,
           "a file of one example has none to show");
    icl_shots_destroy(choice);
}

/* Against a plain list of flags: no number is lost or kept, whatever is added
 * and removed. */
static void test_sets(void)
{
    struct python_random random;
    struct python_set set = { 0 };
    enum { NUMBERS = 3000 };
    static bool has[NUMBERS];
    static int64_t listed[NUMBERS];
    bool right = true;
    size_t used = 0;
    python_random_seed(&random, 5);
    python_set_remove(&set, 3);
    for (int i = 0; i < 20000 && right; i++) {
        int64_t number = python_random_choice(&random, NUMBERS);
        bool add = python_random_bits(&random, 1) != 0;
        right = python_set_has(&set, number) == has[number];
        if (add)
            right = right && python_set_add(&set, number) == ERR_OK;
        else
            python_set_remove(&set, number);
        used += (size_t)add - (size_t)has[number];
        has[number] = add;
        right = right && set.used == used;
    }
    python_set_list(&set, listed);
    for (size_t i = 0; i < set.used; i++)
        right = right && has[listed[i]];
    tap_ok(right, "a set has what was added and not removed");
    python_set_free(&set);
}

int main(void)
{
    test_bits();
    test_samples();
    test_shots();
    test_sets();
    return tap_done();
}
