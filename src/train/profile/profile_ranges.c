/* Reads the ranges of train.profile. They must rise and not meet, so that a step
 * belongs to one at most and the end of one is known when it comes. */
#include "src/train/profile/profile.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define KEY "train.profile"
#define PART_BYTES 96
#define BLANKS " \t"

/* What is between two commas, without blanks around it; *text goes on. */
static enum err next_part(const char **text, char part[PART_BYTES])
{
    *text += strspn(*text, BLANKS);
    size_t bytes = strcspn(*text, ",");
    size_t kept = bytes;
    while (kept > 0 && strchr(BLANKS, (*text)[kept - 1]) != NULL)
        kept--;
    if (kept >= PART_BYTES)
        return err_set(ERR_USAGE,
                       KEY ": '%.40s...' is no range of steps: write "
                           "FIRSTba-LASTba, such as 10ba-12ba",
                       *text);
    memcpy(part, *text, kept);
    part[kept] = '\0';
    *text += bytes;
    return ERR_OK;
}

static enum err read_step(const char *text, const char *part, int64_t *step)
{
    struct duration duration;
    if (units_parse(text, &duration) != ERR_OK)
        return err_set(ERR_USAGE,
                       KEY ": '%s' is no range of steps: write FIRSTba-LASTba, "
                           "such as 10ba-12ba, or one step, such as 10ba",
                       part);
    if (duration.unit != UNIT_BA)
        return err_set(ERR_USAGE,
                       KEY ": '%s' is not in steps: write it in ba, such as "
                           "10ba-12ba",
                       part);
    if (duration.value < 1)
        return err_set(ERR_USAGE,
                       KEY ": '%s': there is no step 0, the first one is 1ba",
                       part);
    *step = (int64_t)duration.value;
    return ERR_OK;
}

static enum err read_range(const char *part, struct profile_range *range)
{
    char first[PART_BYTES];
    const char *dash = strchr(part, '-');
    snprintf(first, sizeof first, "%.*s",
             dash != NULL ? (int)(dash - part) : (int)strlen(part), part);
    TRY(read_step(first, part, &range->first));
    range->last = range->first;
    if (dash != NULL)
        TRY(read_step(dash + 1, part, &range->last));
    if (range->last < range->first)
        return err_set(ERR_USAGE,
                       KEY ": '%s' ends before it begins: write the smaller "
                           "step first",
                       part);
    return ERR_OK;
}

enum err profile_ranges_parse(const char *text, struct profile_ranges *out)
{
    char part[PART_BYTES];
    *out = (struct profile_ranges){ 0 };
    if (text[strspn(text, BLANKS)] == '\0')
        return ERR_OK;
    for (;;) {
        struct profile_range range;
        TRY(next_part(&text, part));
        TRY(read_range(part, &range));
        if (out->count == PROFILE_RANGES_MAX)
            return err_set(ERR_USAGE,
                           KEY " has more than %d ranges: leave some out",
                           PROFILE_RANGES_MAX);
        if (out->count > 0 && range.first <= out->list[out->count - 1].last)
            return err_set(ERR_USAGE,
                           KEY ": '%s' begins at or before step %lld, where "
                               "the range before it ends: write ranges in "
                               "order, each step once",
                           part, (long long)out->list[out->count - 1].last);
        out->list[out->count++] = range;
        if (*text == '\0')
            return ERR_OK;
        text++;
    }
}

const struct profile_range *
profile_ranges_at(const struct profile_ranges *ranges, int64_t step)
{
    assert(step > 0 && ranges->count <= PROFILE_RANGES_MAX);
    for (int i = 0; i < ranges->count; i++)
        if (step >= ranges->list[i].first && step <= ranges->list[i].last)
            return &ranges->list[i];
    return NULL;
}
