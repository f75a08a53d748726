/* Finds the files to read, and tells whether they change.
 *
 * What a user names is taken as it is, and refused loudly if it is not text.
 * What merely lies in a folder that was named is looked at first: programs and
 * pictures there are passed over, and told of. Files of a folder come in the
 * order of their names, byte by byte, so that two machines read the same
 * stream. Size and time of each are kept from here on, for a file that grows
 * while it is read belongs to no set (documents.c), and one that has changed
 * since an interrupted run to no other (tokenize_journal.c). */
#include "src/data/texts/inputs_impl.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/clean.h"
#include "src/base/fsio.h"
#include "src/base/globs.h"
#include "src/base/log.h"
#include "src/base/array.h"
#include "src/base/new.h"
#include "src/data/columns/columns.h"
#include "src/data/mds/mds_index.h"
#include "src/base/regular.h"
#include "src/data/set/sidecar.h"
#include "src/data/texts/source.h"

/* Folders in folders. */
#define INPUTS_DEPTH_MAX 64

static const struct columns_format *inputs_columns(const struct inputs *inputs,
                                                   const char *path)
{
    return inputs->kind != INPUTS_TEXT ? columns_by_name(path) : NULL;
}

static bool inputs_is_json(const struct inputs *inputs, const char *path)
{
    static const char names[] = "?*.jsonl ?*.ndjson ?*.json "
                                "?*.jsonl.gz ?*.ndjson.gz ?*.json.gz "
                                "?*.jsonl.zst ?*.ndjson.zst ?*.json.zst "
                                "?*.jsonl.bz2 ?*.ndjson.bz2 ?*.json.bz2 "
                                "?*.jsonl.br ?*.ndjson.br ?*.json.br";
    return inputs->kind == INPUTS_BY_NAME ? globs_match(names, path)
                                          : inputs->kind == INPUTS_JSON;
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
    const struct columns_format *columns = inputs_columns(inputs, path);
    bool json = columns == NULL && inputs_is_json(inputs, path);
    struct inputs_file file = {
        .bytes = regular ? (int64_t)status->st_size : -1,
        .changed_ns = regular ? inputs_ns(status) : 0,
        .json = json,
        .columns = columns,
    };
    TRY(new_text(&file.path, path));
    inputs->file[inputs->count++] = file;
    inputs->by_name += json && inputs->kind == INPUTS_BY_NAME;
    return ERR_OK;
}

enum err inputs_pass(struct inputs *inputs, const char *path, const char *why)
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

/* A file of a folder, which nobody named. */
static enum err inputs_add_text(struct inputs *inputs, const char *path,
                                const struct stat *status)
{
    const char *why = NULL;
    if (inputs_columns(inputs, path) == NULL)
        TRY(source_kind(path,
                        inputs->binary                 ? SOURCE_ANY
                        : inputs_is_json(inputs, path) ? SOURCE_RECORDS
                                                       : SOURCE_TEXT,
                        inputs->encoding, &why));
    if (why != NULL && inputs->split == NULL && !inputs_is_json(inputs, path))
        inputs->remedy = "; --binary reads those that are no text";
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
    const char *remedy = inputs->remedy; /* of those before */
    TRY(inputs_folder(inputs, path, 0));
    TRY(inputs_split(inputs, before, path));
    if (inputs->remedy == NULL)
        inputs->remedy = remedy;
    if (inputs->count == before && inputs->passed_first != NULL)
        return err_set(ERR_DATA, "%s has no text in it: %s; the first: %s%s",
                       path, inputs_passed(inputs, passed, sizeof passed),
                       inputs->passed_first,
                       inputs->remedy != NULL ? inputs->remedy : "");
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
                 "over: %s; the first: %s%s",
                 inputs_passed(inputs, passed, sizeof passed),
                 inputs->passed_first,
                 inputs->remedy != NULL ? inputs->remedy : "");
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
