/* What of a folder is meant. One with files of columns (Parquet, Arrow), and beside them
 * a card alone, is laid out as the Hugging Face hub's are: files of several splits, whose
 * names tell which; or as datasets saves them to a disk: a folder of each split, with
 * data-00000-of-00002.arrow. Among other texts a little of them is passed over, as what is no
 * text is: a tree of sources may have some for its tests. */
#include "src/data/texts/inputs_impl.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/data/columns/columns_format.h"

#define SPLIT_BYTES 64

/* What names mean to Python's datasets. */
static const char *const split_words[][2] = {
    { "train", "train" },      { "training", "train" },
    { "test", "test" },        { "testing", "test" },
    { "eval", "test" },        { "evaluation", "test" },
    { "dev", "validation" },   { "val", "validation" },
    { "valid", "validation" }, { "validation", "validation" },
};

static const char *split_word(const char *word, size_t bytes)
{
    for (size_t i = 0; i < sizeof split_words / sizeof *split_words; i++)
        if (strlen(split_words[i][0]) == bytes &&
            strncmp(split_words[i][0], word, bytes) == 0)
            return split_words[i][1];
    return NULL;
}

/* "train" of "train-00000-of-00010.parquet"; 0: it is no such name. */
static size_t split_prefix(const char *base)
{
    static const char form[] = "-ddddd-of-ddddd";
    size_t bytes = strcspn(base, "-"), i = 0;
    while (form[i] != '\0' &&
           (form[i] == 'd' ? isdigit((unsigned char)base[bytes + i])
                           : form[i] == base[bytes + i]))
        i++;
    return form[i] == '\0' && bytes < SPLIT_BYTES ? bytes : 0;
}

/* Whether Python's datasets has saved it: data-00000-of-00001.arrow, or, what map()
 * left beside it, cache-0123456789abcdef.arrow. */
static bool split_saved(const char *path, const char *begin)
{
    const char *end = strrchr(path, '.');
    return end != NULL && strcmp(end, ".arrow") == 0 &&
           strncmp(basename(path), begin, strlen(begin)) == 0;
}

/* The split that a path inside a folder tells of; "": none. */
static void split_of(const char *path, char split[SPLIT_BYTES])
{
    const char *base = basename(path);
    size_t bytes = split_prefix(base);
    if (bytes == 4 && split_saved(path, "data-")) { /* its folder's name */
        const char *end = base > path ? base - 1 : base;
        for (base = end; base > path && base[-1] != '/';)
            base--;
        bytes = (size_t)(end - base);
    }
    const char *word = split_word(base, bytes);
    for (const char *at = path; bytes == 0 && *at != '\0';) {
        size_t length = strcspn(at, "-._/ 0123456789");
        const char *found = split_word(at, length);
        word = found != NULL ? found : word; /* the file's own comes last */
        at += length + (at[length] != '\0');
    }
    snprintf(split, SPLIT_BYTES, "%.*s",
             word != NULL ? SPLIT_BYTES : (int)bytes,
             word != NULL ? word : base);
}

static bool split_wanted(const char *wanted, const char *path)
{
    char split[SPLIT_BYTES];
    if (wanted == NULL || strcmp(wanted, "all") == 0)
        return true;
    const char *word = split_word(wanted, strlen(wanted));
    split_of(path, split);
    return strcmp(split, word != NULL ? word : wanted) == 0;
}

/* What lies beside the files of a data set. */
static bool split_card(const char *path)
{
    static const char *const begins[] = { "README", "LICENSE", "dataset_info",
                                          "dataset_dict", "state.json" };
    const char *base = basename(path);
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(base, begins[i], strlen(begins[i])) == 0)
            return true;
    const char *end = strrchr(base, '.');
    return base[0] == '_' || /* as Spark's _SUCCESS */
           split_saved(path, "cache-") ||
           (end != NULL && end > base && strcmp(end, ".md") == 0);
}

/* ERR_USAGE where there are several and none was named, or that is not there. */
static enum err split_check(const struct inputs *inputs, size_t first,
                            const char *folder, bool columns)
{
    char names[256] = ",", split[SPLIT_BYTES], whole[SPLIT_BYTES + 3];
    size_t kept = 0, splits = 0, bare = 0;
    for (size_t i = first; i < inputs->count; i++) {
        const char *path = inputs->file[i].path + strlen(folder);
        kept += split_wanted(inputs->split, path);
        split_of(path, split);
        snprintf(whole, sizeof whole, ",%s,", split);
        bare += split[0] == '\0' && inputs->file[i].columns != NULL &&
                !split_saved(path, "cache-");
        if (split[0] == '\0' || strstr(names, whole) != NULL ||
            (columns && inputs->file[i].columns == NULL))
            continue;
        splits++;
        if (strlen(names) + strlen(whole) < sizeof names)
            strcat(names, whole + 1);
    }
    names[splits > 0 ? strlen(names) - 1 : 0] = '\0';
    if (inputs->split != NULL && kept == 0)
        return err_set(ERR_USAGE,
                       "%s has no files of the split '%s', but of: %s", folder,
                       inputs->split, splits > 0 ? names + 1 : "none");
    if (inputs->split != NULL || !columns || splits + (bare > 0) < 2)
        return ERR_OK;
    return err_set(ERR_USAGE,
                   "%s has the splits %s%s: name one with --split, or say "
                   "--split all",
                   folder, names + 1, bare > 0 ? ", and files of none" : "");
}

/* "train-00003-of-00010.parquet" is one of ten, which are all there: files are in the order
 * of their names. */
static enum err split_whole(const struct inputs *inputs, size_t first)
{
    for (size_t i = first, end; i < inputs->count; i = end) {
        const char *path = inputs->file[i].path;
        const char *base = basename(path);
        size_t bytes = split_prefix(base), head = (size_t)(base - path) + bytes;
        long all = bytes > 0 ? strtol(base + bytes + 10, NULL, 10) : 1;
        long there = 0;
        for (end = i; end < inputs->count; end++) {
            const char *other = inputs->file[end].path;
            if (end > i && (strncmp(path, other, head) != 0 || bytes == 0 ||
                            split_prefix(basename(other)) != bytes))
                break;
            there += bytes == 0 || strtol(other + head + 10, NULL, 10) == all;
        }
        if (there != all || (size_t)there != end - i)
            return err_set(
                ERR_DATA,
                "%s: of the %ld files of this kind %ld are there, and "
                "%zu of another number: fetch or remove what is too few "
                "or too much, or name the files that are meant",
                path, all, there, end - i - (size_t)there);
    }
    return ERR_OK;
}

enum err inputs_split(struct inputs *inputs, size_t first, const char *folder)
{
    bool columns = true;
    size_t kept = first, cards = 0;
    int64_t bytes[2] = { 0 };
    const char *name = "tables"; /* of their format */
    for (size_t i = first; i < inputs->count; i++) {
        const struct inputs_file *file = &inputs->file[i];
        bool card = split_card(file->path);
        cards += card;
        columns = columns && (card || file->columns != NULL);
        bytes[file->columns != NULL] += file->bytes;
        if (file->columns != NULL)
            name = file->columns->name;
    }
    if (!columns && bytes[1] > bytes[0])
        return err_set(ERR_USAGE,
                       "%s has more in %s than in the texts beside it: "
                       "name the files that are meant",
                       folder, name);
    columns = columns && cards < inputs->count - first;
    if (columns) /* what is beside them is not meant */
        inputs->remedy = NULL;
    TRY(split_check(inputs, first, folder, columns));
    for (size_t i = first; i < inputs->count; i++) {
        struct inputs_file file = inputs->file[i];
        bool wanted = split_wanted(inputs->split, file.path + strlen(folder));
        inputs->file[i].path = NULL;
        bool cache = split_saved(file.path, "cache-");
        if (wanted && (file.columns != NULL) == columns && !cache) {
            inputs->file[kept++] = file;
            continue;
        }
        inputs->by_name -= file.json && inputs->kind == INPUTS_BY_NAME;
        enum err rc = inputs_pass(inputs, file.path,
                                  !wanted                ? "of other splits"
                                  : cache                ? "caches of datasets"
                                  : file.columns != NULL ? file.columns->name
                                                         : "beside the tables");
        free(file.path);
        TRY(rc);
    }
    inputs->count = kept;
    return columns ? split_whole(inputs, first) : ERR_OK;
}
