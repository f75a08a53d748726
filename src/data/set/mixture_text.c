/* Reads the text of a mixture, word by word, by recursive descent:
 *
 *     mixture := entry { "," entry }
 *     entry   := NAME [ "=" FOLDER ] [ weight ]
 *     weight  := [ "proportion" ] W { ( "to" | "then" ) W "at" TIME }
 *              | "repeat" R | "choose" K
 *
 * Errors name the entry, since a setting of many lines has no line numbers. */
#include "src/data/set/mixture_text.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MIXTURE_WORD_BYTES (MIXTURE_NAME_BYTES + MIXTURE_FOLDER_BYTES)

struct reader {
    const char *at;
    struct mixture_entry *entry;
    char word[MIXTURE_WORD_BYTES];
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The next word of the entry; "": it ends. */
static enum err next_word(struct reader *reader)
{
    size_t bytes = 0;
    while (is_blank(*reader->at))
        reader->at++;
    while (reader->at[bytes] != '\0' && reader->at[bytes] != ',' &&
           !is_blank(reader->at[bytes]))
        bytes++;
    if (bytes >= sizeof reader->word)
        return err_set(ERR_USAGE, "'%.40s...' is too long", reader->at);
    memcpy(reader->word, reader->at, bytes);
    reader->word[bytes] = '\0';
    reader->at += bytes;
    return ERR_OK;
}

static enum err wrong(const struct reader *reader, const char *wanted)
{
    return err_set(ERR_USAGE, "%s: %s, not '%.60s'", reader->entry->name,
                   wanted, reader->word[0] != '\0' ? reader->word : "nothing");
}

/* A number as digits, without a sign, hex, inf or nan. */
static enum err read_number(const struct reader *reader, const char *wanted,
                            double *out)
{
    char *end = NULL;
    const char *word = reader->word;
    if (!isdigit((unsigned char)word[0]) && word[0] != '.')
        return wrong(reader, wanted);
    *out = strtod(word, &end);
    if (*end != '\0' || strpbrk(word, "xXnN") != NULL ||
        !(*out <= MIXTURE_WEIGHT_MAX))
        return wrong(reader, wanted);
    return ERR_OK;
}

static enum err read_name(struct reader *reader, const struct mixture_text *all)
{
    struct mixture_entry *entry = reader->entry;
    char *folder = strchr(reader->word, '=');
    if (folder != NULL)
        *folder++ = '\0';
    const char *name = reader->word;
    if (name[0] == '\0')
        return err_set(ERR_USAGE, "data set %d has no name", all->count + 1);
    if (strlen(name) >= sizeof entry->name || name[0] == '.' ||
        name[strspn(name, "abcdefghijklmnopqrstuvwxyz"
                          "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] != '\0')
        return err_set(ERR_USAGE,
                       "'%.60s' is no name: letters, digits, '.', '_' and '-' "
                       "make one, and its folder follows: NAME=FOLDER",
                       name);
    if (folder != NULL && folder[0] == '\0')
        return err_set(ERR_USAGE, "%s: no folder follows '='", name);
    folder = folder != NULL ? folder : reader->word;
    if (strlen(folder) >= sizeof entry->folder)
        return err_set(ERR_USAGE, "%s: its folder's name is too long", name);
    for (int i = 0; i < all->count; i++)
        if (strcmp(all->entries[i].name, name) == 0)
            return err_set(ERR_USAGE, "%s is there twice", name);
    memcpy(entry->name, name, strlen(name) + 1);
    memcpy(entry->folder, folder, strlen(folder) + 1);
    return ERR_OK;
}

static enum err read_time(struct reader *reader, bool jump)
{
    struct mixture_entry *entry = reader->entry;
    if (entry->count == MIXTURE_POINTS_MAX)
        return err_set(ERR_USAGE, "%s: more than %d weights", entry->name,
                       MIXTURE_POINTS_MAX);
    struct mixture_time *time = &entry->times[entry->count];
    const struct mixture_time *before = time - 1;
    time->jump = jump;
    TRY(next_word(reader));
    TRY(read_number(reader, "a weight should follow 'to' and 'then'",
                    &time->weight));
    TRY(next_word(reader));
    if (strcmp(reader->word, "at") != 0)
        return wrong(reader, "'at TIME' should follow a later weight");
    TRY(next_word(reader));
    TRY(err_prefix(units_parse(reader->word, &time->at), "%s", entry->name));
    if (time->at.unit == UNIT_SEC || time->at.unit == UNIT_DUR)
        return wrong(reader, "a time in ba, tok, sp or ep: another would move "
                             "with the machine's speed, or when the run is "
                             "made longer");
    if (entry->count > 1 && time->at.unit == before->at.unit &&
        time->at.value <= before->at.value)
        return wrong(reader, "times should grow");
    entry->count++;
    return ERR_OK;
}

static enum err read_weight(struct reader *reader)
{
    struct mixture_entry *entry = reader->entry;
    const char *word = reader->word;
    bool repeat = strcmp(word, "repeat") == 0;
    if (word[0] == '\0')
        return ERR_OK;
    if (repeat || strcmp(word, "choose") == 0) {
        entry->weight = repeat ? STREAM_REPEAT : STREAM_CHOOSE;
        TRY(next_word(reader));
        TRY(read_number(reader, "a number should follow", &entry->amount));
        if (!repeat && entry->amount != floor(entry->amount))
            return wrong(reader, "a whole number of samples");
        return next_word(reader);
    }
    entry->weight = STREAM_PROPORTION;
    if (strcmp(word, "proportion") == 0)
        TRY(next_word(reader));
    TRY(read_number(reader,
                    "a weight of 0 or more, 'repeat R' or 'choose K' should "
                    "follow",
                    &entry->amount));
    TRY(next_word(reader));
    while (strcmp(word, "to") == 0 || strcmp(word, "then") == 0) {
        TRY(read_time(reader, word[1] == 'h'));
        TRY(next_word(reader));
    }
    return ERR_OK;
}

static enum err read_entry(struct reader *reader, struct mixture_text *out)
{
    struct mixture_entry *entry = reader->entry;
    TRY(next_word(reader));
    TRY(read_name(reader, out));
    entry->count = 1;
    TRY(next_word(reader));
    TRY(read_weight(reader));
    if (reader->word[0] != '\0')
        return wrong(reader, "',' or the end should follow");
    entry->times[0].weight = entry->amount;
    return ERR_OK;
}

enum err mixture_text_parse(const char *text, struct mixture_text *out)
{
    assert(text != NULL && out != NULL);
    struct reader reader = { .at = text };
    memset(out, 0, sizeof *out);
    do {
        if (out->count == STREAMS_MAX)
            return err_set(ERR_USAGE, "more than %d data sets", STREAMS_MAX);
        reader.entry = &out->entries[out->count];
        TRY(read_entry(&reader, out));
        out->scheduled = out->scheduled || reader.entry->count > 1;
        out->count++;
    } while (*reader.at++ == ',');
    return ERR_OK;
}
