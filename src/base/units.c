/* Durations ("60ba", "2ep") and sizes ("8GiB") from text, as text, and
 * durations in steps.
 *
 * A run's length must be the same number of steps on every machine. So a
 * duration that is a whole number is counted in whole numbers, and one that has
 * to be multiplied, epochs and parts of a run, is rounded up but for what the
 * product's own rounding may have added. */
#include "src/base/units.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Whole numbers up to here are exact in a double. */
#define UNITS_WHOLE_MAX 0x1p53
/* Relative error of a product of two doubles, with room: 0.07dur of 100 steps
 * is 7 steps and not 8. */
#define UNITS_ROUNDING 1e-12

static const char *const units_names[] = {
    [UNIT_BA] = "ba", [UNIT_TOK] = "tok", [UNIT_SP] = "sp",
    [UNIT_EP] = "ep", [UNIT_DUR] = "dur", [UNIT_SEC] = "sec",
};

#define UNITS_NAMES (int)(sizeof units_names / sizeof *units_names)

/* The number at the start of `text`: digits with an optional fraction and
 * exponent, none of strtod()'s signs, blanks, hex, inf and nan. Returns what
 * follows it, NULL if there is none. */
static const char *units_number(const char *text, double *number)
{
    if (!isdigit((unsigned char)text[0]) &&
        !(text[0] == '.' && isdigit((unsigned char)text[1])))
        return NULL;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
        return NULL;
    char *end = NULL;
    *number = strtod(text, &end);
    return isfinite(*number) ? end : NULL;
}

/* "1h30m5s": each of the letters at most once, in this order. */
static bool units_parse_clock(const char *text, double *seconds)
{
    static const char letters[] = "hms";
    static const double factors[] = { 3600, 60, 1 };
    double sum = 0;
    const char *next = letters;
    while (*text != '\0') {
        double number = 0;
        text = units_number(text, &number);
        if (text == NULL || *text == '\0')
            return false;
        const char *letter = strchr(next, tolower((unsigned char)*text));
        if (letter == NULL)
            return false;
        sum += number * factors[letter - letters];
        next = letter + 1;
        text++;
    }
    *seconds = sum;
    return next != letters && isfinite(sum);
}

static enum err units_bad(const char *text)
{
    return err_set(
        ERR_USAGE,
        "'%.64s' is not a duration; write a number and a unit: 60ba "
        "(batches), 1e9tok (tokens), 5000sp (samples), 2ep (epochs), "
        "0.1dur (part of max_duration), 90sec or 1h30m5s",
        text);
}

enum err units_parse(const char *text, struct duration *out)
{
    double number = 0;
    const char *name = units_number(text, &number);
    if (name == NULL)
        return units_bad(text);
    int unit = 0;
    while (unit < UNITS_NAMES && strcasecmp(name, units_names[unit]) != 0)
        unit++;
    if (unit == UNITS_NAMES) {
        if (!units_parse_clock(text, &number))
            return units_bad(text);
        unit = UNIT_SEC;
    }
    bool whole = unit == UNIT_BA || unit == UNIT_TOK || unit == UNIT_SP;
    if (whole && (number != floor(number) || number > UNITS_WHOLE_MAX))
        return err_set(ERR_USAGE,
                       "'%.64s' is not a duration: %s must be a whole number "
                       "of at most 2^53",
                       text, units_names[unit]);
    out->value = number;
    out->unit = (enum unit)unit;
    return ERR_OK;
}

void units_format(struct duration duration, char *text, size_t bytes)
{
    assert(bytes >= 32);
    double value = duration.value;
    assert(isfinite(value) && value >= 0);
    if (duration.unit == UNIT_AUTO) {
        snprintf(text, bytes, "auto");
        return;
    }
    assert((int)duration.unit >= 0 && (int)duration.unit < UNITS_NAMES);
    const char *name = units_names[duration.unit];
    if (value == floor(value) && value <= UNITS_WHOLE_MAX) {
        snprintf(text, bytes, "%.0f%s", value, name);
        return;
    }
    /* the fewest digits that read back as the same number */
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, bytes, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%s", name);
}

/* ceil(x), taking what is a rounding error above a whole number for it. */
static double units_ceil(double x)
{
    double nearest = nearbyint(x);
    if (fabs(x - nearest) <= UNITS_ROUNDING * fmax(1, nearest))
        return nearest;
    return ceil(x);
}

/* Both are whole, so the division need not round. */
static double units_whole_steps(double value, int64_t per_step)
{
    assert(per_step > 0);
    assert(value <= UNITS_WHOLE_MAX);
    int64_t whole = (int64_t)value;
    return (double)(whole / per_step + (whole % per_step != 0));
}

enum err units_steps(struct duration duration, const struct unit_rates *rates,
                     int64_t *steps)
{
    double value = duration.value;
    double count = 0;
    assert(value >= 0);
    switch (duration.unit) {
    case UNIT_BA:
        count = value;
        break;
    case UNIT_TOK:
        count = units_whole_steps(value, rates->tokens_per_step);
        break;
    case UNIT_SP:
        count = units_whole_steps(value, rates->samples_per_step);
        break;
    case UNIT_EP:
        if (rates->samples_per_epoch <= 0)
            return err_set(ERR_USAGE,
                           "%gep has no step count: the number of "
                           "samples in an epoch is not known",
                           value);
        assert(rates->samples_per_step > 0);
        count = units_ceil(value * (double)rates->samples_per_epoch /
                           (double)rates->samples_per_step);
        break;
    case UNIT_DUR:
        if (rates->max_steps <= 0)
            return err_set(ERR_USAGE,
                           "%gdur has no step count: max_duration "
                           "itself needs another unit, such as ba",
                           value);
        count = units_ceil(value * (double)rates->max_steps);
        break;
    case UNIT_SEC:
        return err_set(ERR_USAGE,
                       "%gsec has no step count: use ba, tok, sp, "
                       "ep or dur here",
                       value);
    case UNIT_AUTO:
        return err_set(ERR_USAGE, "auto has no step count: use ba, tok, sp, "
                                  "ep or dur here");
    }
    if (count > UNITS_WHOLE_MAX)
        return err_set(ERR_USAGE, "%g%s is %g steps, more than 2^53", value,
                       units_names[duration.unit], count);
    *steps = (int64_t)count;
    return ERR_OK;
}

static const char *const byte_names[] = {
    "B", "KiB", "MiB", "GiB", "TiB", "PiB"
};

#define BYTE_NAMES (int)(sizeof byte_names / sizeof *byte_names)

enum err units_bytes_parse(const char *text, int64_t *bytes)
{
    double number = 0;
    int unit = 0;
    const char *name = units_number(text, &number);
    if (strcasecmp(text, "none") == 0)
        name = "";
    while (name != NULL && *name == ' ')
        name++;
    if (name != NULL && *name != '\0')
        while (unit < BYTE_NAMES && strcasecmp(name, byte_names[unit]) != 0)
            unit++;
    if (name == NULL || unit == BYTE_NAMES)
        return err_set(ERR_USAGE,
                       "'%.64s' is not a size; write a number and a unit: "
                       "80GiB, 512MiB, 1.5TiB, 64KiB, 4096B, or none",
                       text);
    number = ldexp(number, 10 * unit);
    if (number > 0x1p62)
        return err_set(ERR_USAGE, "'%.64s' is a size of more than 2^62 bytes",
                       text);
    *bytes = (int64_t)number;
    return ERR_OK;
}

void units_bytes_format(int64_t bytes, char *text, size_t size)
{
    assert(bytes >= 0 && size >= 32);
    int unit = 0;
    while (bytes > 0 && bytes % 1024 == 0 && unit + 1 < BYTE_NAMES) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, size, "%lld%s", (long long)bytes, byte_names[unit]);
}

/* Scale by `base` as long as the number would not print short, and print it
 * with its suffix: one digit after the point below `whole`, none from there. */
static char *units_scaled(double number, double base, double whole,
                          const char *const suffixes[], int count, char *text,
                          size_t size)
{
    if (!isfinite(number)) {
        snprintf(text, size, "?");
        return text;
    }
    int i = 0;
    /* what would be rounded up to the base gets the next suffix */
    double last = whole < base ? base - 0.5 : base - 0.05;
    while (i + 1 < count && fabs(number) >= (i == 0 ? base - 0.5 : last)) {
        number /= base;
        i++;
    }
    int digits = i == 0 || fabs(number) >= whole - 0.05 ? 0 : 1;
    snprintf(text, size, "%.*f%s", digits, number, suffixes[i]);
    return text;
}

char *units_bytes(double bytes, char *text, size_t size)
{
    static const char *const suffixes[] = { " B",   " KiB", " MiB", " GiB",
                                            " TiB", " PiB", " EiB" };
    return units_scaled(bytes, 1024, 100, suffixes, 7, text, size);
}

char *units_count(double count, char *text, size_t size)
{
    static const char *const suffixes[] = { "", "K", "M", "B", "T" };
    return units_scaled(count, 1000, 1000.05, suffixes, 5, text, size);
}

char *units_seconds(double seconds, char *text, size_t size)
{
    const char *sign = seconds < 0 ? "-" : "";
    double s = fabs(seconds);
    if (!isfinite(s) || s > UNITS_WHOLE_MAX) {
        snprintf(text, size, "?");
    } else if (s == 0) {
        snprintf(text, size, "0s");
    } else if (s < 0.9995e-3) {
        snprintf(text, size, "%s%.0fus", sign, s * 1e6);
    } else if (s < 0.9995) {
        snprintf(text, size, "%s%.0fms", sign, s * 1e3);
    } else if (s < 59.95) {
        snprintf(text, size, "%s%.1fs", sign, s);
    } else if (s < 3599.5) {
        long long whole = llround(s);
        snprintf(text, size, "%s%lldm%02llds", sign, whole / 60, whole % 60);
    } else if (s < 86370) {
        long long minutes = llround(s / 60);
        snprintf(text, size, "%s%lldh%02lldm", sign, minutes / 60,
                 minutes % 60);
    } else {
        long long hours = llround(s / 3600);
        snprintf(text, size, "%s%lldd%02lldh", sign, hours / 24, hours % 24);
    }
    return text;
}
