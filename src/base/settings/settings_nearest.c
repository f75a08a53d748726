/* Finds the key or choice that a misspelt one was meant to be, by edit
 * distance. */
#include "src/base/settings/settings_private.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>

static int settings_nearest_min(int a, int b)
{
    return a < b ? a : b;
}

int settings_nearest_edits(const char *a, const char *b)
{
    int rows[3][SETTINGS_KEY_BYTES];
    int a_bytes = (int)strnlen(a, SETTINGS_KEY_BYTES - 1);
    int b_bytes = (int)strnlen(b, SETTINGS_KEY_BYTES - 1);
    int *before = rows[0];
    int *above = rows[1];
    int *row = rows[2];
    for (int j = 0; j <= b_bytes; j++)
        row[j] = j;
    for (int i = 1; i <= a_bytes; i++) {
        int *spare = before;
        before = above;
        above = row;
        row = spare;
        row[0] = i;
        for (int j = 1; j <= b_bytes; j++) {
            int differ = tolower((unsigned char)a[i - 1]) !=
                         tolower((unsigned char)b[j - 1]);
            int edits = above[j - 1] + differ;
            edits = settings_nearest_min(edits, above[j] + 1);
            edits = settings_nearest_min(edits, row[j - 1] + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                edits = settings_nearest_min(edits, before[j - 2] + 1);
            row[j] = edits;
        }
    }
    return row[b_bytes];
}

static const char *settings_nearest_last(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot == NULL ? key : dot + 1;
}

/* How far a candidate is, for sorting; INT_MAX if too far to suggest. Equal
 * last components count as one edit more than they are, and a short one must be
 * met exactly, as two of three letters say little. */
static int settings_nearest_score(const char *key, const char *candidate)
{
    int length = (int)strlen(key);
    int whole = settings_nearest_edits(key, candidate);
    int limit = length / 3 > 2 ? length / 3 : 2;
    int score = whole <= limit && whole < length ? whole : INT_MAX;

    const char *key_last = settings_nearest_last(key);
    const char *last = settings_nearest_last(candidate);
    int edits = settings_nearest_edits(key_last, last);
    if (last != candidate && edits <= (int)strlen(key_last) / 3)
        score = settings_nearest_min(score, edits + 1);
    if (score == INT_MAX)
        return INT_MAX;
    /* among equals the one whose group is nearer */
    return score * SETTINGS_KEY_BYTES + whole;
}

const char *settings_nearest(const struct setting *schema, int count,
                             const char *key, char out[SETTINGS_KEY_BYTES])
{
    int best = INT_MAX;
    for (int i = 0; i < count; i++) {
        char candidate[SETTINGS_KEY_BYTES] = "";
        strncat(candidate, schema[i].key, sizeof candidate - 1);
        /* the key, then the groups around it */
        for (;;) {
            int score = settings_nearest_score(key, candidate);
            if (score < best) {
                best = score;
                memcpy(out, candidate, sizeof candidate);
            }
            char *dot = strrchr(candidate, '.');
            if (dot == NULL)
                break;
            *dot = '\0';
        }
    }
    return best == INT_MAX ? NULL : out;
}

const char *settings_nearest_choice(const char *const *names, const char *text)
{
    int best = (int)strlen(text) / 3 + 1;
    const char *nearest = NULL;
    for (; *names != NULL; names++) {
        int edits = settings_nearest_edits(text, *names);
        if (edits < best) {
            best = edits;
            nearest = *names;
        }
    }
    return nearest;
}
