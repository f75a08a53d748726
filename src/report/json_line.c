/* Reads the numbers of one line. Only those that are asked for are made of their
 * digits. */
#include "src/report/json_line.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/jsontext.h"

#define NUMBER_BYTES 64

static double json_line_number(const struct json_member *member)
{
    char word[NUMBER_BYTES];
    char *end = word;
    if (member->value_bytes >= sizeof word)
        return NAN;
    memcpy(word, member->value, member->value_bytes);
    word[member->value_bytes] = '\0';
    if (strspn(word, "+-.0123456789Ee") != member->value_bytes)
        return NAN; /* strtod takes more */
    double value = strtod(word, &end);
    return *end == '\0' && isfinite(value) ? value : NAN;
}

bool json_line_numbers(const char *line, size_t bytes, const char *const *keys,
                       int count, double *values)
{
    assert(line != NULL && keys != NULL && count >= 0 && values != NULL);
    bool done = false;
    struct json_member member;
    struct json_split split = json_split_begin(line, bytes);
    for (int i = 0; i < count; i++)
        values[i] = NAN;
    while (json_split_next(&split, &member, &done) == ERR_OK && !done)
        for (int i = 0; i < count; i++)
            if (strlen(keys[i]) == member.key_bytes - 2 &&
                memcmp(keys[i], member.key + 1, member.key_bytes - 2) == 0)
                values[i] = json_line_number(&member);
    return done;
}
