/* One table for both ways; what is missing in it job_next() never hears of. */
#include "src/control/job_words.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const char *const answers[] = { "unknown", "no", "yes", NULL };
static const char *const flags[] = { "no", "yes", NULL };

/* A row has names where its value is one of them, `text` where it is a text. */
struct fact {
    const char *name;
    size_t offset;
    bool text;
    const char *const *names;
};
#define FACT(field) #field, offsetof(struct job_facts, field)
#define TEXT(field)                                                            \
    {                                                                          \
        FACT(field), true, NULL                                                \
    }
#define FLAG(field)                                                            \
    {                                                                          \
        FACT(field), false, flags                                              \
    }
#define NAMES(field, names)                                                    \
    {                                                                          \
        FACT(field), false, names                                              \
    }
#define NUMBER(field)                                                          \
    {                                                                          \
        FACT(field), false, NULL                                               \
    }

static const struct fact facts_table[] = {
    NAMES(ended, job_ended_names),
    NUMBER(code),
    TEXT(detail),
    TEXT(written),
    TEXT(stop),
    FLAG(stop_file),
    TEXT(left),
    FLAG(excused),
    FLAG(opened),
    FLAG(advanced),
    FLAG(may_requeue),
    FLAG(elsewhere),
    NUMBER(futile),
    TEXT(silent),
    NUMBER(silenced),
    NUMBER(unstarted),
    TEXT(newest),
    TEXT(job),
    TEXT(run_dir),
    TEXT(state),
    NAMES(room, answers),
    FLAG(room_came),
    NAMES(scavenged, answers),
    TEXT(last_state),
    NAMES(requeued, answers),
};
#define FACTS (sizeof facts_table / sizeof *facts_table)

_Static_assert(sizeof(enum job_ended) == sizeof(int) &&
                   sizeof(enum job_answer) == sizeof(int),
               "enums are read and written as int");

/* -1: none of the names, or no whole number from 0 on. */
static int number_of(const struct fact *fact, const char *text)
{
    char *end;
    if (fact->names == NULL) {
        long number = strtol(text, &end, 10);
        return end != text && *end == '\0' && number >= 0 && number <= 1000000
                   ? (int)number
                   : -1;
    }
    for (int i = 0; fact->names[i] != NULL; i++)
        if (strcmp(fact->names[i], text) == 0)
            return i;
    return -1;
}

static enum err take(const struct fact *fact, const char *value,
                     struct job_facts *facts)
{
    char *field = (char *)facts + fact->offset;
    if (fact->text) {
        memcpy(field, &value, sizeof value);
        return ERR_OK;
    }
    int number = number_of(fact, value);
    if (number < 0)
        return err_set(ERR_USAGE, "%s=%s: not such a value", fact->name, value);
    if (fact->names == flags)
        *(bool *)field = number != 0;
    else
        memcpy(field, &number, sizeof number);
    return ERR_OK;
}

enum err job_words_read(char *const *words, int count, struct job_facts *facts)
{
    for (int i = 0; i < count; i++) {
        size_t length = strcspn(words[i], "="), row = 0;
        while (row < FACTS &&
               (strncmp(facts_table[row].name, words[i], length) != 0 ||
                facts_table[row].name[length] != '\0'))
            row++;
        if (row == FACTS || words[i][length] == '\0')
            return err_set(ERR_USAGE, "'%s': no fact of a job", words[i]);
        TRY(take(&facts_table[row], words[i] + length + 1, facts));
    }
    return ERR_OK;
}

static void write_one(const struct fact *fact, const struct job_facts *facts,
                      FILE *out)
{
    const char *field = (const char *)facts + fact->offset, *text = NULL;
    int number = 0;
    if (fact->text)
        memcpy(&text, field, sizeof text);
    else if (fact->names == flags)
        number = *(const bool *)field;
    else
        memcpy(&number, field, sizeof number);
    if (fact->names != NULL)
        text = number != 0 || fact == facts_table ? fact->names[number] : NULL;
    if (text != NULL)
        fprintf(out, "%s=%s\t", fact->name, text);
    else if (number != 0)
        fprintf(out, "%s=%d\t", fact->name, number);
}

void job_words_write(const struct job_facts *facts, FILE *out)
{
    for (size_t row = 0; row < FACTS; row++)
        write_one(&facts_table[row], facts, out);
}
