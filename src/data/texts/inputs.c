/* Finds the files to read, and tells whether they change.
 *
 * What a user names is taken as it is, and refused loudly if it is not text.
 * What merely lies in a folder that was named is looked at first: programs and
 * pictures there are passed over, and told of. Files of a folder come in the
 * order of their names, byte by byte, so that two machines read the same
 * stream. Size and time of each are kept from here on, for a file that grows
 * while it is read belongs to no set (documents.c), and one that has changed
 * since an interrupted run to no other (tokenize_journal.c). */
#include "src/data/texts/inputs.h"

#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/clean.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/array.h"
#include "src/base/new.h"
#include "src/data/mds/mds_index.h"
#include "src/base/regular.h"
#include "src/data/set/sidecar.h"
#include "src/data/texts/source.h"

/* Folders in folders. */
#define INPUTS_DEPTH_MAX 64

static bool inputs_ends_in(const char *name, size_t bytes, const char *end)
{
    size_t length = strlen(end);
    return bytes > length && strncmp(name + bytes - length, end, length) == 0;
}

static bool inputs_is_parquet(const struct inputs *inputs, const char *path)
{
    return inputs->kind != INPUTS_TEXT &&
           inputs_ends_in(path, strlen(path), ".parquet");
}

static bool inputs_is_json(const struct inputs *inputs, const char *path)
{
    static const char *const packed[] = { ".gz", ".zst", ".bz2", ".br" };
    static const char *const names[] = { ".jsonl", ".ndjson", ".json" };
    size_t bytes = strlen(path);
    if (inputs->kind != INPUTS_BY_NAME)
        return inputs->kind == INPUTS_JSON;
    for (size_t i = 0; i < sizeof packed / sizeof packed[0]; i++)
        if (inputs_ends_in(path, bytes, packed[i])) {
            bytes -= strlen(packed[i]);
            break;
        }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (inputs_ends_in(path, bytes, names[i]))
            return true;
    return false;
}

static int64_t inputs_ns(const struct stat *status)
{
    return (int64_t)status->st_mtim.tv_sec * 1000000000 +
           status->st_mtim.tv_nsec;
}

static enum err inputs_add(struct inputs *inputs, const char *path,
                           const struct stat *status)
{
    TRY(array_room(&inputs->file, &inputs->capacity, inputs->count + 1));
    bool regular = S_ISREG(status->st_mode); /* of stdin nothing is known */
    bool parquet = inputs_is_parquet(inputs, path);
    bool json = !parquet && inputs_is_json(inputs, path);
    struct inputs_file file = {
        .bytes = regular ? (int64_t)status->st_size : -1,
        .changed_ns = regular ? inputs_ns(status) : 0,
        .json = json,
        .parquet = parquet,
    };
    TRY(new_text(&file.path, path));
    inputs->file[inputs->count++] = file;
    inputs->by_name += json && inputs->kind == INPUTS_BY_NAME;
    return ERR_OK;
}

/* A file of a folder is left out. */
static enum err inputs_pass(struct inputs *inputs, const char *path,
                            const char *why)
{
    size_t k = 0;
    /* how many of each kind were passed over, for one line at the end */
    while (k < INPUTS_KINDS_MAX - 1 && inputs->passed[k].why != NULL &&
           strcmp(inputs->passed[k].why, why) != 0)
        k++;
    inputs->passed[k].why = k < INPUTS_KINDS_MAX - 1 ? why : "others";
    inputs->passed[k].files++;
    return inputs->passed_first != NULL ? ERR_OK
                                        : new_text(&inputs->passed_first, path);
}

/* What of a folder is meant. One with Parquet files, and beside them a card alone,
 * is laid out as the Hugging Face hub's are: files of several splits, whose names
 * tell which. Among other texts a little Parquet is passed over, as what is no text
 * is: a tree of sources may have some for its tests. */
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

/* The split that a path inside a folder tells of; "": none. */
static void split_of(const char *path, char split[SPLIT_BYTES])
{
    const char *base = basename(path);
    size_t bytes = split_prefix(base);
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
    static const char *const begins[] = { "README", "LICENSE", "dataset_info" };
    const char *base = basename(path);
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(base, begins[i], strlen(begins[i])) == 0)
            return true;
    return base[0] == '_' || /* as Spark's _SUCCESS */
           inputs_ends_in(base, strlen(base), ".md");
}

/* ERR_USAGE where there are several and none was named, or that is not there. */
static enum err split_check(const struct inputs *inputs, size_t first,
                            const char *folder, bool parquet)
{
    char names[256] = ",", split[SPLIT_BYTES], whole[SPLIT_BYTES + 3];
    size_t kept = 0, splits = 0;
    for (size_t i = first; i < inputs->count; i++) {
        const char *path = inputs->file[i].path + strlen(folder);
        kept += split_wanted(inputs->split, path);
        split_of(path, split);
        snprintf(whole, sizeof whole, ",%s,", split);
        if (split[0] == '\0' || strstr(names, whole) != NULL ||
            (parquet && !inputs->file[i].parquet))
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
    if (inputs->split != NULL || !parquet || splits < 2)
        return ERR_OK;
    return err_set(
        ERR_USAGE,
        "%s has the splits %s: name one with --split, or say --split all",
        folder, names + 1);
}

static enum err inputs_split(struct inputs *inputs, size_t first,
                             const char *folder)
{
    bool parquet = true;
    size_t kept = first, cards = 0;
    int64_t bytes[2] = { 0 };
    for (size_t i = first; i < inputs->count; i++) {
        bool card = split_card(inputs->file[i].path);
        cards += card;
        parquet = parquet && (card || inputs->file[i].parquet);
        bytes[inputs->file[i].parquet] += inputs->file[i].bytes;
    }
    if (!parquet && bytes[1] > bytes[0])
        return err_set(ERR_USAGE,
                       "%s has more in Parquet than in the texts beside it: "
                       "name the files that are meant",
                       folder);
    parquet = parquet && cards < inputs->count - first;
    TRY(split_check(inputs, first, folder, parquet));
    for (size_t i = first; i < inputs->count; i++) {
        struct inputs_file file = inputs->file[i];
        bool wanted = split_wanted(inputs->split, file.path + strlen(folder));
        inputs->file[i].path = NULL;
        if (wanted && file.parquet == parquet) {
            inputs->file[kept++] = file;
            continue;
        }
        inputs->by_name -= file.json && inputs->kind == INPUTS_BY_NAME;
        enum err rc = inputs_pass(inputs, file.path,
                                  !wanted        ? "of other splits"
                                  : file.parquet ? "Parquet"
                                                 : "beside Parquet");
        free(file.path);
        TRY(rc);
    }
    inputs->count = kept;
    return ERR_OK;
}

/* A file of a folder, which nobody named. */
static enum err inputs_add_text(struct inputs *inputs, const char *path,
                                const struct stat *status)
{
    const char *why = NULL;
    if (!inputs_is_parquet(inputs, path))
        TRY(source_kind(path,
                        inputs->binary                 ? SOURCE_ANY
                        : inputs_is_json(inputs, path) ? SOURCE_RECORDS
                                                       : SOURCE_TEXT,
                        inputs->encoding, &why));
    return why == NULL ? inputs_add(inputs, path, status)
                       : inputs_pass(inputs, path, why);
}
/* "2 ELF program, 1 zip". */
static const char *inputs_passed(const struct inputs *inputs, char *text,
                                 size_t bytes)
{
    text[0] = '\0';
    for (size_t k = 0; k < INPUTS_KINDS_MAX && inputs->passed[k].files > 0; k++)
        clean_join(text, bytes, ", ", "%zu %s", inputs->passed[k].files,
                   inputs->passed[k].why);
    return text;
}

static int inputs_by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static enum err inputs_folder(struct inputs *inputs, const char *path,
                              int depth);

/* Other programs have an index.json, too. */
static enum err inputs_no_set(const char *folder)
{
    static const char *const signs[] = { SIDECAR_NAME, "shard.00000.mds" };
    char path[FSIO_PATH_MAX];
    struct mds_index *index = NULL;
    bool set = false;
    TRY(fsio_path(path, "%s/" MDS_INDEX_NAME, folder));
    if (!fsio_exists(path))
        return ERR_OK;
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++) {
        TRY(fsio_path(path, "%s/%s", folder, signs[i]));
        set = set || fsio_exists(path);
    }
    /* last, as it takes longest: whether it reads as an index of MDS */
    set = set || mds_index_read(folder, &index) == ERR_OK;
    mds_index_destroy(index);
    return set ? err_set(ERR_DATA, "%s is a data set, not text", folder)
               : ERR_OK;
}

/* What a folder has in it. */
static enum err inputs_entry(struct inputs *inputs, const char *folder,
                             const char *name, int depth)
{
    char path[FSIO_PATH_MAX];
    struct stat status, itself;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return ERR_OK;
    if (name[0] == '.') {
        inputs->hidden++;
        return ERR_OK;
    }
    /* "data/" and "data" name the same files */
    bool slash = folder[strlen(folder) - 1] == '/';
    TRY(fsio_path(path, "%s%s%s", folder, slash ? "" : "/", name));
    if (lstat(path, &itself) != 0)
        return err_errno("%s: stat", path);
    if (stat(path, &status) != 0 && errno == ENOENT && S_ISLNK(itself.st_mode))
        return err_set(ERR_DATA, "%s is a link to nothing; remove it", path);
    if (stat(path, &status) != 0)
        return err_errno("%s: stat", path);
    if (S_ISREG(status.st_mode))
        return inputs_add_text(inputs, path, &status);
    /* links to folders are refused: they may lead round in a circle, or to the
     * same files a second time */
    if (S_ISDIR(status.st_mode) && !S_ISLNK(itself.st_mode))
        return inputs_folder(inputs, path, depth + 1);
    return err_set(ERR_DATA, "%s is %s; name what to read of it", path,
                   S_ISDIR(status.st_mode) ? "a link to a folder"
                                           : "neither a file nor a folder");
}

static enum err inputs_folder(struct inputs *inputs, const char *path,
                              int depth)
{
    enum err rc = ERR_OK;
    struct dirent **entries = NULL;
    TRY(inputs_no_set(path));
    if (depth > INPUTS_DEPTH_MAX)
        return err_set(ERR_DATA, "%s: more than %d folders in each other", path,
                       INPUTS_DEPTH_MAX);
    int count = scandir(path, &entries, NULL, inputs_by_name);
    if (count < 0)
        return err_errno("%s: open", path);
    for (int i = 0; i < count; i++) {
        if (rc == ERR_OK)
            rc = inputs_entry(inputs, path, entries[i]->d_name, depth);
        free(entries[i]);
    }
    free(entries);
    return rc;
}

static enum err inputs_operand(struct inputs *inputs, const char *path)
{
    char passed[1024];
    struct stat status = { .st_mode = 0 };
    size_t before = inputs->count;
    if (strcmp(path, "-") == 0)
        return inputs_add(inputs, path, &status);
    TRY(regular_local(path));
    if (stat(path, &status) != 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? err_set(ERR_DATA, "%s: no such file", path)
                   : err_errno("%s: stat", path);
    if (!S_ISDIR(status.st_mode))
        return inputs_add(inputs, path, &status);
    inputs->folders++;
    TRY(inputs_folder(inputs, path, 0));
    TRY(inputs_split(inputs, before, path));
    if (inputs->count == before && inputs->passed_first != NULL)
        return err_set(
            ERR_DATA,
            "%s has no text in it: %s; the first: %s; --binary reads all files",
            path, inputs_passed(inputs, passed, sizeof passed),
            inputs->passed_first);
    if (inputs->count == before)
        return err_set(ERR_DATA, "%s is a folder without files%s", path,
                       inputs->hidden > 0 ? " but hidden ones" : "");
    return ERR_OK;
}

enum err inputs_choose(bool text, const char *field, enum inputs_kind *out)
{
    if (text && field != NULL)
        return err_set(ERR_USAGE, "--text and --field exclude each other");
    *out = text ? INPUTS_TEXT : field != NULL ? INPUTS_JSON : INPUTS_BY_NAME;
    return ERR_OK;
}

enum err inputs_find(char *const *operands, int count, enum inputs_kind kind,
                     bool binary, struct inputs *out)
{
    assert(operands != NULL && count > 0 && out != NULL);
    *out = (struct inputs){ .kind = kind,
                            .binary = binary,
                            .split = out->split,
                            .encoding = out->encoding };
    for (int i = 0; i < count; i++)
        TRY(inputs_operand(out, operands[i]));
    return out->split == NULL || out->folders > 0
               ? ERR_OK
               : err_set(ERR_USAGE, "--split is for folders, and none is "
                                    "named; leave it out");
}

enum err inputs_find_sets(char *const *operands, int count, struct inputs *out)
{
    assert(operands != NULL && count > 0 && out != NULL);
    *out = (struct inputs){ .kind = INPUTS_TEXT };
    for (int i = 0; i < count; i++) {
        char index[FSIO_PATH_MAX];
        struct stat status;
        TRY(regular_local(operands[i]));
        TRY(fsio_path(index, "%s/" MDS_INDEX_NAME, operands[i]));
        if (stat(index, &status) != 0 || !S_ISREG(status.st_mode))
            return err_set(ERR_DATA,
                           "%s: no such file, so %s is no MDS data set", index,
                           operands[i]);
        TRY(inputs_add(out, operands[i], &status));
        out->file[out->count - 1].set = true;
    }
    return ERR_OK;
}

enum err inputs_check_separator(const struct inputs *inputs,
                                const char *separator)
{
    assert(inputs != NULL);
    for (size_t i = 0; i < inputs->count; i++)
        if (separator == NULL || inputs_is_text(&inputs->file[i]))
            return ERR_OK;
    return err_set(ERR_USAGE, "--separator divides text files, but all inputs "
                              "have records, of which each is a document");
}

void inputs_tell(const struct inputs *inputs)
{
    char passed[1024];
    if (inputs->by_name > 0)
        log_info("JSON lines by their names: %zu of %zu files; the text is in "
                 "the field 'text' (--field KEY: in another; --text: such "
                 "files are text)",
                 inputs->by_name, inputs->count);
    if (inputs->hidden > 0)
        log_info("hidden files and folders that are left out: %zu",
                 inputs->hidden);
    if (inputs->passed_first != NULL)
        log_warn("files of folders that are no text, or not meant, are passed "
                 "over: %s; "
                 "the first: %s (--binary reads them)",
                 inputs_passed(inputs, passed, sizeof passed),
                 inputs->passed_first);
}

void inputs_release(struct inputs *inputs)
{
    for (size_t i = 0; i < inputs->count; i++)
        free(inputs->file[i].path);
    free(inputs->file);
    free(inputs->passed_first);
    *inputs = (struct inputs){ .count = 0 };
}

int64_t inputs_bytes(const struct inputs *inputs)
{
    int64_t total = 0;
    for (size_t i = 0; i < inputs->count; i++) {
        if (inputs->file[i].bytes < 0)
            return -1;
        total += inputs->file[i].bytes;
    }
    return total;
}

enum err inputs_check(const struct inputs_file *file)
{
    struct stat status;
    char path[FSIO_PATH_MAX];
    if (file->bytes < 0)
        return ERR_OK;
    TRY(fsio_path(path, "%s%s", file->path,
                  file->set ? "/" MDS_INDEX_NAME : ""));
    bool there = stat(path, &status) == 0;
    if (!there && errno != ENOENT && errno != ENOTDIR)
        return err_errno("%s: look at", path);
    if (!there)
        return err_set(ERR_DATA, "%s: was there at the beginning, and is gone",
                       file->path);
    if (status.st_size != file->bytes || inputs_ns(&status) != file->changed_ns)
        return err_set(ERR_DATA,
                       "%s: changed while it was read; begin anew when it "
                       "is complete",
                       file->path);
    return ERR_OK;
}
