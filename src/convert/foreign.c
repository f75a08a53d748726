/* A configuration of another trainer as ours: by the rows of its table, then through
 * those of our settings, each of which judges its value as on a command line. So what
 * is written is what tessera-train takes; the rest stands below as comments. */
#include "src/convert/foreign.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "src/base/clean.h"
#include "src/base/new.h"
#include "src/train/settings/train_settings.h"

/* The table, as it is. */
__asm__(".pushsection .rodata\n"
        "foreign_table: .incbin \"src/convert/foreign.table\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char foreign_table[];

struct foreign {
    struct foreign_file file;
    const char *rows, *about; /* of the trainer; to the line's end */
    double ranks;             /* 0: not told */
    char **settings; /* "key=value", by number of the schema; NULL: not set */
    char *comments;
    size_t comments_bytes;
    FILE *comment;
    int expansions; /* so many more ${key}, or a file could take forever */
};

struct row {
    char text[FOREIGN_TEXT_BYTES];
    char theirs[64], before[64];        /* of the @ above */
    char *ours, *values, *preset, *why; /* NULL: none; keys are in `text` */
};

static void say(struct foreign *f, const struct foreign_pair *pair,
                const char *why)
{
    if (pair != NULL)
        fprintf(f->comment, "# line %d: %s%s%s: ", pair->line, pair->key,
                pair->value[0] != '\0' ? " = " : "", pair->value);
    fprintf(f->comment, "%s%s\n", pair != NULL ? "" : "# ", why);
}

/* Sets one of ours, unless it is set. */
static enum err put(struct foreign *f, const struct foreign_pair *pair,
                    const char *before, const char *name, const char *value)
{
    char text[FOREIGN_TEXT_BYTES + 128], *override = text;
    struct train_settings *into = NULL;
    snprintf(text, sizeof text, "%s%s", before, name);
    const struct setting *setting = train_settings_setting(text);
    if (setting == NULL) /* KEY =: there is nothing to tell */
        return ERR_OK;
    char **place = &f->settings[setting - train_settings_schema];
    if (*place != NULL)
        return ERR_OK;
    snprintf(text, sizeof text, "%s=%s", setting->key, value);
    TRY(new_zeroed(&into, 1));
    enum err rc = settings_load(setting, 1, NULL, &override, 1, into, NULL);
    free(into);
    if (rc == ERR_OK)
        return new_text(place, text);
    if (rc != ERR_USAGE)
        return rc;
    const char *from = "command line: ";
    bool placed = strncmp(err_text(), from, strlen(from)) == 0;
    say(f, pair, err_text() + (placed ? strlen(from) : 0));
    return ERR_OK;
}

/* Appends `text` to out[FOREIGN_TEXT_BYTES], with `value` for $ (NULL: no such) and
 * the values of other keys for ${key}; what is not known stays. */
static void expand(struct foreign *f, const char *text, const char *value,
                   char *out, int depth)
{
    char key[FOREIGN_TEXT_BYTES];
    size_t n = strlen(out);
    for (const char *at = text; *at != '\0' && n + 1 < FOREIGN_TEXT_BYTES;
         at++) {
        struct foreign_pair *other = NULL;
        if (at[0] == '$' && at[1] == '{' && depth < 8 && f->expansions-- > 0) {
            size_t length = strcspn(at, "}");
            snprintf(key, sizeof key, "%.*s", (int)length - 2, at + 2);
            other = at[length] == '}' ? foreign_find(&f->file, key) : NULL;
            at += other != NULL ? length : 0;
        }
        if (other != NULL)
            expand(f, other->value, NULL, out, depth + 1);
        else if (*at == '$' && at[1] != '{' && value != NULL)
            expand(f, value, NULL, out, depth + 1);
        else
            memcpy(out + n, (const char[]){ *at, '\0' }, 2);
        n += strlen(out + n);
    }
}

/* What is behind VALUE= in the row, "$" without it. */
static void form_of(const struct row *row, const char *value,
                    char form[FOREIGN_TEXT_BYTES])
{
    size_t bytes = strlen(value);
    snprintf(form, FOREIGN_TEXT_BYTES, "$");
    for (const char *at = row->values; at != NULL; at = strchr(at, '|')) {
        at += *at == '|';
        if (strncmp(at, "*=", 2) != 0 &&
            (strncasecmp(at, value, bytes) != 0 || at[bytes] != '='))
            continue;
        at = strchr(at, '=') + 1;
        snprintf(form, FOREIGN_TEXT_BYTES, "%.*s", (int)strcspn(at, "|"), at);
        return;
    }
}

/* The row at *at, which goes on to the next; none where the section ends. */
static bool next_row(const char **at, struct row *row)
{
    for (;; *at += strcspn(*at, "\n") + 1) {
        if (**at == '\0' || **at == '[')
            return false;
        if (**at == '@') {
            row->theirs[0] = row->before[0] = '\0';
            (void)sscanf(*at, "@%63[^ \n]%*1[ ]%63[^\n]", row->theirs,
                         row->before);
        }
        if (strchr("@#\n", **at) == NULL)
            break;
    }
    int bytes = (int)strcspn(*at, "\n");
    snprintf(row->text, sizeof row->text, "%.*s", bytes, *at);
    *at += bytes + 1;
    char **parts[] = { &row->why, &row->preset, &row->values, &row->ours };
    static const char *const marks[] = { " ! ", " : ", " ? ", " > " };
    for (int i = 0; i < 4; i++) {
        char *mark = strstr(row->text, marks[i]);
        *parts[i] = mark != NULL ? mark + 3 : NULL;
        if (mark != NULL)
            *mark = '\0';
    }
    return true;
}

static bool matches(const struct row *row, const char *name,
                    const struct foreign_pair *pair)
{
    size_t bytes = strlen(name), before = strlen(row->theirs);
    if (strncmp(row->theirs, pair->key, before) != 0)
        return false;
    if (name[bytes - 1] == '*')
        return !pair->done && strncmp(name, pair->key + before, bytes - 1) == 0;
    return strcmp(name, pair->key + before) == 0;
}

static enum err take_pair(struct foreign *f, const struct row *row,
                          const char *name, struct foreign_pair *pair)
{
    char theirs[FOREIGN_TEXT_BYTES] = "", form[FOREIGN_TEXT_BYTES],
         value[FOREIGN_TEXT_BYTES] = "";
    pair->done = true;
    expand(f, pair->value, NULL, theirs, 0);
    form_of(row, theirs, form);
    if (theirs[0] != '\0')
        expand(f, form, theirs, value, 0);
    bool off = strcmp(value, "false") == 0 || strcmp(value, "[]") == 0;
    if (value[0] == '\0' || (off && row->why != NULL))
        return ERR_OK;
    if (row->why != NULL)
        say(f, pair, row->why);
    else if (strstr(value, "${") != NULL)
        say(f, pair, "its value is not in the file");
    else
        return put(f, pair, row->before, row->ours != NULL ? row->ours : name,
                   value);
    return ERR_OK;
}

/* All pairs that the row is of, or its preset; `count`: only how many these are. */
static enum err take_row(struct foreign *f, struct row *row, int *count)
{
    bool found = false, shape = foreign_find(&f->file, "model.d_model") != NULL;
    char *rest = NULL, *name = strtok_r(row->text, " ", &rest);
    for (; name != NULL; name = strtok_r(NULL, " ", &rest))
        for (size_t i = 0; i < f->file.count; i++) {
            if (!matches(row, name, &f->file.pairs[i]))
                continue;
            found = true;
            if (count != NULL)
                ++*count;
            else
                TRY(take_pair(f, row, name, &f->file.pairs[i]));
        }
    bool skip = strcmp(row->before, "model.") == 0 && !shape;
    if (count != NULL || found || row->preset == NULL || skip)
        return ERR_OK;
    return put(f, NULL, row->before, row->ours, row->preset);
}

/* A number from 1 on, which has been seen to; `otherwise` if it is none. */
static double number(struct foreign *f, const char *key, double otherwise)
{
    char value[FOREIGN_TEXT_BYTES] = "";
    struct foreign_pair *pair = foreign_find(&f->file, key);
    if (pair == NULL)
        return otherwise;
    pair->done = true;
    expand(f, pair->value, NULL, value, 0);
    double given = strtod(value, NULL);
    return given >= 1 && given <= 1e9 ? given : otherwise;
}

/* The batch of all ranks, and the part computed at once, which divides a slot. */
static enum err put_batch(struct foreign *f)
{
    char text[32];
    double groups = number(f, "parallelism.data_parallel_replicate_degree", 1);
    double ranks = groups * number(f, "parallelism.data_parallel_shard_degree",
                                   f->ranks / groups);
    double steps = number(f, "gradient_accumulation_steps", 1);
    double each = number(f, "training.batch_size", 8);
    each = number(f, "training.local_batch_size", each);
    each = number(f, "per_device_train_batch_size", each);
    each = number(f, "device_train_microbatch_size", each);
    double all = number(f, "training.global_batch_size", 0);
    all = number(f, "global_train_batch_size", all);
    if (all == 0 && ranks == 0)
        say(f, NULL, "train.global_batch is that of one GPU: --ranks N, of N");
    all = all == 0 ? each * steps * (ranks > 0 ? ranks : 1) : all;
    int64_t batch = all < 1e10 ? (int64_t)all : (int64_t)1e10, slots = 8;
    while (batch % slots != 0)
        slots /= 2;
    if (ranks > 0 && ranks <= 65536 && batch % (int64_t)ranks == 0) {
        slots = (int64_t)ranks;
        snprintf(text, sizeof text, "%" PRId64, slots);
        TRY(put(f, NULL, "parallel.", "slots", text));
    }
    snprintf(text, sizeof text, "%" PRId64, batch);
    TRY(put(f, NULL, "train.", "global_batch", text));
    bool divides = batch / slots % (int64_t)each == 0;
    snprintf(text, sizeof text, "%.0f", divides ? each : 0);
    return put(f, NULL, "train.", "microbatch", text);
}

/* The section of this name, or the one that has most of the keys. */
static enum err choose(struct foreign *f, const char *name)
{
    int most = 0;
    for (const char *at = foreign_table; (at = strstr(at, "\n[")) != NULL;) {
        int count = 0;
        struct row row = { .ours = NULL };
        const char *head = at + 2, *rows = strchr(head, '\n') + 1;
        for (at = rows; next_row(&at, &row);)
            TRY(take_row(f, &row, &count));
        size_t bytes = strcspn(head, "]");
        if (name == NULL
                ? count > most
                : strncmp(name, head, bytes) == 0 && name[bytes] == '\0') {
            most = count;
            f->rows = rows;
            f->about = head + bytes + 2;
        }
        at--;
    }
    return f->rows != NULL
               ? ERR_OK
               : err_set(ERR_USAGE, "%s: no key of a trainer that is known",
                         f->file.path);
}

static enum err take_all(struct foreign *f)
{
    struct row row = { .ours = NULL };
    TRY(put_batch(f));
    for (const char *at = f->rows; next_row(&at, &row);)
        TRY(take_row(f, &row, NULL));
    for (size_t i = 0; i < f->file.count; i++) {
        const struct foreign_pair *pair = &f->file.pairs[i];
        if (pair->done || pair->value[0] == '\0')
            continue;
        (void)settings_no_such(train_settings_schema, train_settings_count,
                               pair->key, "unknown");
        say(f, pair, err_text());
    }
    for (int i = 0; i < train_settings_count; i++)
        if (train_settings_schema[i].preset == NULL && f->settings[i] == NULL)
            fprintf(f->comment, "# To be given: %s\n",
                    train_settings_schema[i].key);
    return fflush(f->comment) == 0 ? ERR_OK : err_set(ERR_MEMORY, "no memory");
}

/* The settings that were put, as a schema of their own, and the comments. */
static enum err write_all(struct foreign *f, char **text)
{
    enum err rc = ERR_OK;
    struct setting *schema = NULL;
    struct train_settings *values = NULL;
    char *settings = NULL;
    size_t bytes = 0;
    int count = 0;
    TRY_OUT(new_zeroed(&schema, (size_t)train_settings_count));
    TRY_OUT(new_zeroed(&values, 1));
    for (int i = 0; i < train_settings_count; i++)
        if (f->settings[i] != NULL) {
            schema[count] = train_settings_schema[i];
            char *setting = f->settings[i];
            f->settings[i] = NULL;
            f->settings[count++] = setting;
        }
    TRY_OUT(
        settings_load(schema, count, NULL, f->settings, count, values, NULL));
    TRY_OUT(settings_format(schema, count, values, &settings));
    FILE *out = open_memstream(text, &bytes);
    if (out == NULL)
        TRY_OUT(err_set(ERR_MEMORY, "no memory for the configuration"));
    fprintf(out,
            "# %s, of %.*s, by tessera convert.\n%s\n# Not taken over:\n%s",
            f->file.path, (int)strcspn(f->about, "\n"), f->about, settings,
            f->comments);
    fclose(out);
    clean_text(*text, true);
out:
    free(settings);
    free(values);
    free(schema);
    return rc;
}

enum err foreign_convert(const char *path, const char *name, int64_t ranks,
                         char **text)
{
    enum err rc = ERR_OK;
    struct foreign f = { .ranks = (double)ranks, .expansions = 8192 };
    *text = NULL;
    TRY(foreign_read(path, &f.file));
    TRY_OUT(new_zeroed(&f.settings, (size_t)train_settings_count));
    f.comment = open_memstream(&f.comments, &f.comments_bytes);
    if (f.comment == NULL)
        TRY_OUT(err_set(ERR_MEMORY, "no memory for the comments"));
    TRY_OUT(choose(&f, name));
    TRY_OUT(take_all(&f));
    rc = write_all(&f, text);
out:
    if (f.comment != NULL)
        fclose(f.comment);
    free(f.comments);
    for (int i = 0; f.settings != NULL && i < train_settings_count; i++)
        free(f.settings[i]);
    free(f.settings);
    foreign_free(&f.file);
    return rc;
}
