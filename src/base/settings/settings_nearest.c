/* Finds the key or choice that was meant: a misspelt one by edit distance, one
 * of another program by the names that stand in the rows.
 *
 * The distance counts insertions, deletions, substitutions and swaps of
 * neighbours, which most slips of a hand are (Damerau 1964), by the usual table
 * of prefixes, of which three rows are enough. A key is near if a third of its
 * letters would do, and two at least. Keys are often right in their last part
 * and wrong in the group, or without any group: so that part is compared by
 * itself, too. */
#include "src/base/settings/settings_private.h"

#include <assert.h>
#include <ctype.h>
#include <limits.h>
#include <string.h>
#include <strings.h>

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
            /* the last characters of both paired, one left out, or swapped */
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
    assert(names != NULL && text != NULL);
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

/* --- by what other programs call it --- */

/* Whether one of the words, up to the tab or the end, is the text, or how it
 * begins, with a *. */
static bool settings_foreign_has(const char *words, const char *text)
{
    for (size_t bytes; *words != '\t' && *words != '\0'; words += bytes) {
        bytes = strcspn(words, " \t");
        assert(bytes > 0); /* one blank between */
        bool begins = words[bytes - 1] == '*';
        if (strncasecmp(words, text, bytes - begins) == 0 &&
            (begins || text[bytes] == '\0'))
            return true;
        bytes += words[bytes] == ' ';
    }
    return false;
}

const char *settings_foreign_choice(const struct setting *setting,
                                    const char *text)
{
    for (int i = 0; i < SETTING_THEIRS && setting->theirs[i] != NULL; i++)
        if (setting->theirs[i][0] == '=' &&
            settings_foreign_has(setting->theirs[i] + 1, text))
            return strchr(setting->theirs[i], '\t') + 1;
    return NULL;
}

/* Makes lr_decay of "--Lr-Decay": names are in the tables as most programs that read
 * YAML write them, but people copy them from command lines, too. */
static void settings_foreign_plain(const char *key,
                                   char out[SETTINGS_KEY_BYTES])
{
    key += strspn(key, "-");
    size_t i = 0;
    for (; i < SETTINGS_KEY_BYTES - 1 && key[i] != '\0'; i++)
        out[i] = key[i] == '-' ? '_' : (char)tolower((unsigned char)key[i]);
    out[i] = '\0';
}

const struct setting *settings_foreign(const struct settings_table *table,
                                       const char *key, const char **note)
{
    char plain[SETTINGS_KEY_BYTES];
    settings_foreign_plain(key, plain);
    const char *dot = strrchr(plain, '.');
    for (int i = 0; i < SETTING_THEIRS * table->count; i++) {
        const struct setting *setting = &table->schema[i / SETTING_THEIRS];
        const char *theirs = setting->theirs[i % SETTING_THEIRS];
        if (theirs == NULL || theirs[0] == '=' ||
            !(settings_foreign_has(theirs, plain) ||
              (dot != NULL && settings_foreign_has(theirs, dot + 1))))
            continue;
        const char *tab = strchr(theirs, '\t');
        *note = tab != NULL ? tab + 1 : setting->help;
        return setting;
    }
    return NULL;
}
