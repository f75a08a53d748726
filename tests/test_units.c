#include "src/base/units.h"

#include "src/base/rng.h"
#include "tests/tap.h"

static void test_parse(void)
{
    static const struct {
        const char *text;
        double value;
        enum unit unit;
        const char *formatted;
    } cases[] = {
        { "60ba", 60, UNIT_BA, "60ba" },
        { "0BA", 0, UNIT_BA, "0ba" },
        { "1e9tok", 1e9, UNIT_TOK, "1000000000tok" },
        { "2.5e3Tok", 2500, UNIT_TOK, "2500tok" },
        { "5000sp", 5000, UNIT_SP, "5000sp" },
        { "2ep", 2, UNIT_EP, "2ep" },
        { "0.5Ep", 0.5, UNIT_EP, "0.5ep" },
        { "0.1dur", 0.1, UNIT_DUR, "0.1dur" },
        { ".25dur", 0.25, UNIT_DUR, "0.25dur" },
        { "1dur", 1, UNIT_DUR, "1dur" },
        { "90sec", 90, UNIT_SEC, "90sec" },
        { "1.5SEC", 1.5, UNIT_SEC, "1.5sec" },
        { "1h30m5s", 5405, UNIT_SEC, "5405sec" },
        { "2H", 7200, UNIT_SEC, "7200sec" },
        { "30m", 1800, UNIT_SEC, "1800sec" },
        { "5s", 5, UNIT_SEC, "5sec" },
        { "1h5s", 3605, UNIT_SEC, "3605sec" },
        { "0.5h", 1800, UNIT_SEC, "1800sec" },
        { "9007199254740992tok", 0x1p53, UNIT_TOK, "9007199254740992tok" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct duration got = { -1, UNIT_BA };
        char text[32];
        if (!tap_is_int(units_parse(cases[i].text, &got), ERR_OK, "parse '%s'",
                        cases[i].text))
            continue;
        tap_ok(got.value == cases[i].value && got.unit == cases[i].unit,
               "value of '%s'", cases[i].text);
        units_format(got, text, sizeof text);
        tap_is_str(text, cases[i].formatted, "format '%s'", cases[i].text);
    }
}

static void test_auto(void)
{
    char text[32];
    int64_t steps = 7;
    struct unit_rates rates = { 1, 1, 1, 1 };
    units_format((struct duration){ .unit = UNIT_AUTO }, text, sizeof text);
    tap_is_str(text, "auto", "auto has no number");
    tap_is_int(
        units_steps((struct duration){ .unit = UNIT_AUTO }, &rates, &steps),
        ERR_USAGE, "and no step count");
}

static void test_parse_failures(void)
{
    static const char *const texts[] = {
        "",         "60",
        "ba",       " 60ba",
        "60 ba",    "60ba ",
        "-1ba",     "+1ba",
        "1.5ba",    "0.5sp",
        "1e-3tok",  "1e300tok",
        "60bax",    "nanep",
        "infdur",   "0x10ba",
        "1e999ep",  "5m1h",
        "1h1h",     "1h30",
        "h",        "1.h.",
        "60 batch", "1,5ep",
        "1h-5m",    "99999999999999999999ba",
        "5ms",      "..5ep",
        "1e9",      "auto",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct duration got = { 7, UNIT_EP };
        tap_is_int(units_parse(texts[i], &got), ERR_USAGE, "refuse '%s'",
                   texts[i]);
        tap_ok(strstr(err_text(), texts[i]) != NULL &&
                   strstr(err_text(), "not a duration") != NULL,
               "'%s' is named", texts[i]);
        tap_ok(got.value == 7 && got.unit == UNIT_EP, "'%s' changes nothing",
               texts[i]);
    }
    struct duration got;
    units_parse("12", &got);
    tap_ok(strstr(err_text(), "60ba") != NULL &&
               strstr(err_text(), "1h30m5s") != NULL,
           "the forms are told");
}

static void test_round_trip(void)
{
    int wrong = 0;
    for (uint64_t i = 0; i < 2000; i++) {
        int exponent = (int)(rng_u64(1, 1, i) % 600) - 300;
        struct duration in = { ldexp(rng_uniform(1, 0, i), exponent),
                               i % 2 == 0 ? UNIT_EP : UNIT_DUR };
        struct duration out = { 0, UNIT_BA };
        char text[32];
        units_format(in, text, sizeof text);
        wrong += units_parse(text, &out) != ERR_OK || out.value != in.value ||
                 out.unit != in.unit;
    }
    tap_is_int(wrong, 0, "parse(format(x)) is x");
}

static void test_steps(void)
{
    static const struct unit_rates rates = {
        .samples_per_step = 32,
        .tokens_per_step = 32 * 2048,
        .samples_per_epoch = 1000,
        .max_steps = 100,
    };
    static const struct {
        const char *text;
        int64_t want;
    } cases[] = {
        { "0ba", 0 },
        { "60ba", 60 },
        { "1tok", 1 },
        { "65536tok", 1 },
        { "65537tok", 2 },
        { "0tok", 0 },
        { "32sp", 1 },
        { "33sp", 2 },
        { "1ep", 32 },
        { "2ep", 63 },
        { "0.1dur", 10 },
        { "0.07dur", 7 },
        { "0.29dur", 29 },
        { "0.001dur", 1 },
        { "1dur", 100 },
        { "0dur", 0 },
        { "9007199254740991sp", 281474976710656 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct duration duration;
        int64_t steps = -1;
        units_parse(cases[i].text, &duration);
        tap_is_int(units_steps(duration, &rates, &steps), ERR_OK, "steps of %s",
                   cases[i].text);
        tap_is_int(steps, cases[i].want, "count of %s", cases[i].text);
    }
}

static void test_steps_failures(void)
{
    struct unit_rates rates = { .samples_per_step = 1, .tokens_per_step = 1 };
    int64_t steps = -1;
    tap_is_int(units_steps((struct duration){ 5, UNIT_SEC }, &rates, &steps),
               ERR_USAGE, "seconds have no step count");
    tap_ok(strstr(err_text(), "5sec") != NULL, "seconds are named");
    tap_is_int(units_steps((struct duration){ 0.5, UNIT_DUR }, &rates, &steps),
               ERR_USAGE, "dur needs max_steps");
    tap_ok(strstr(err_text(), "max_duration") != NULL, "max_duration is named");
    tap_is_int(units_steps((struct duration){ 2, UNIT_EP }, &rates, &steps),
               ERR_USAGE, "ep needs the samples of an epoch");
    rates.samples_per_epoch = 1000000;
    tap_is_int(units_steps((struct duration){ 1e300, UNIT_EP }, &rates, &steps),
               ERR_USAGE, "too many steps");
    tap_is_int(steps, -1, "failures leave the result alone");
}

static void test_people(void)
{
    static const struct {
        char *(*print)(double, char *, size_t);
        double value;
        const char *want;
    } cases[] = {
        { units_bytes, 0, "0 B" },
        { units_bytes, 1023, "1023 B" },
        { units_bytes, 1024, "1.0 KiB" },
        { units_bytes, 312 * 1024.0, "312 KiB" },
        { units_bytes, 1023.9 * 1024, "1.0 MiB" },
        { units_bytes, 1.5 * 0x1p30, "1.5 GiB" },
        { units_bytes, 99.97 * 0x1p30, "100 GiB" },
        { units_bytes, 0x1p70, "1024 EiB" },
        { units_bytes, -2048, "-2.0 KiB" },
        { units_bytes, NAN, "?" },
        { units_count, 0, "0" },
        { units_count, 999, "999" },
        { units_count, 1000, "1.0K" },
        { units_count, 125.3e6, "125.3M" },
        { units_count, 999.96e6, "1.0B" },
        { units_count, 6.65e9, "6.7B" },
        { units_count, 1.2e12, "1.2T" },
        { units_seconds, 0, "0s" },
        { units_seconds, 25e-6, "25us" },
        { units_seconds, 0.042, "42ms" },
        { units_seconds, 0.9996, "1.0s" },
        { units_seconds, 4.2, "4.2s" },
        { units_seconds, 59.96, "1m00s" },
        { units_seconds, 65, "1m05s" },
        { units_seconds, 3599.7, "1h00m" },
        { units_seconds, 3720, "1h02m" },
        { units_seconds, 86399, "1d00h" },
        { units_seconds, 100 * 3600, "4d04h" },
        { units_seconds, -65, "-1m05s" },
        { units_seconds, INFINITY, "?" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[32];
        cases[i].print(cases[i].value, text, sizeof text);
        tap_is_str(text, cases[i].want, "print %s", cases[i].want);
    }
    char text[4];
    units_bytes(1.5 * 0x1p30, text, sizeof text);
    tap_is_str(text, "1.5", "a small buffer is not overrun");
}

static void test_bytes(void)
{
    static const struct {
        const char *text;
        int64_t bytes;
        const char *formatted;
    } cases[] = {
        { "0", 0, "0B" },
        { "none", 0, "0B" },
        { "4096", 4096, "4KiB" },
        { "123B", 123, "123B" },
        { "80GiB", (int64_t)80 << 30, "80GiB" },
        { "1.5 TiB", (int64_t)1536 << 30, "1536GiB" },
        { "512mib", (int64_t)512 << 20, "512MiB" },
        { "0.001KiB", 1, "1B" },
        { "1e3B", 1000, "1000B" },
    };
    static const char *const wrong[] = { "",      "GiB",   "-1GiB", "8 GB",
                                         "8GiBs", "inf",   "8G",    "8192PiB",
                                         "1GiB ", "nones", "0x10" };
    char text[32];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t bytes = -1;
        tap_is_int(units_bytes_parse(cases[i].text, &bytes), ERR_OK,
                   "size '%s'", cases[i].text);
        tap_is_int(bytes, cases[i].bytes, "its bytes");
        units_bytes_format(bytes, text, sizeof text);
        tap_is_str(text, cases[i].formatted, "and back");
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int64_t bytes = -1;
        tap_is_int(units_bytes_parse(wrong[i], &bytes), ERR_USAGE,
                   "'%s' is no size", wrong[i]);
        tap_is_int(bytes, -1, "and changes nothing");
    }
}

int main(void)
{
    test_bytes();
    test_parse();
    test_auto();
    test_parse_failures();
    test_round_trip();
    test_steps();
    test_steps_failures();
    test_people();
    return tap_done();
}
