/* Finds the files to read, and tells whether they change. */
#include "src/data/inputs.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/base/fsio.h"
#include "src/data/mds_index.h"
#include "src/data/regular.h"

/* Folders in folders. */
#define INPUTS_DEPTH_MAX 64

static bool inputs_ends_in(const char *name, size_t bytes, const char *end)
{
    size_t length = strlen(end);
    return bytes > length && strncmp(name + bytes - length, end, length) == 0;
}

static bool inputs_is_json(const char *path)
{
    static const char *const packed[] = { ".gz", ".zst", ".bz2", ".br" };
    static const char *const names[] = { ".jsonl", ".ndjson", ".json" };
    size_t bytes = strlen(path);
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
                           const struct stat *status, bool json)
{
    if (inputs->count == inputs->capacity) {
        size_t capacity = 2 * inputs->capacity + 16;
        struct inputs_file *file =
            realloc(inputs->file, capacity * sizeof *file);
        if (file == NULL)
            return err_set(ERR_MEMORY, "no memory for %zu file names",
                           capacity);
        inputs->file = file;
        inputs->capacity = capacity;
    }
    bool regular = S_ISREG(status->st_mode); /* of stdin nothing is known */
    bool by_name = !json && inputs_is_json(path);
    struct inputs_file file = {
        .path = strdup(path),
        .bytes = regular ? (int64_t)status->st_size : -1,
        .changed_ns = regular ? inputs_ns(status) : 0,
        .json = json || by_name,
    };
    if (file.path == NULL)
        return err_set(ERR_MEMORY, "no memory for a file name");
    inputs->file[inputs->count++] = file;
    inputs->by_name += by_name;
    return ERR_OK;
}

static int inputs_by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static enum err inputs_folder(struct inputs *inputs, const char *path,
                              bool json, int depth);

/* What a folder has in it. */
static enum err inputs_entry(struct inputs *inputs, const char *folder,
                             const char *name, bool json, int depth)
{
    char path[FSIO_PATH_MAX];
    struct stat status, itself;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return ERR_OK;
    if (name[0] == '.') {
        inputs->hidden++;
        return ERR_OK;
    }
    bool slash = folder[strlen(folder) - 1] == '/';
    TRY(fsio_path(path, "%s%s%s", folder, slash ? "" : "/", name));
    if (stat(path, &status) != 0 || lstat(path, &itself) != 0)
        return err_errno("%s: stat", path);
    if (S_ISREG(status.st_mode))
        return inputs_add(inputs, path, &status, json);
    if (S_ISDIR(status.st_mode) && !S_ISLNK(itself.st_mode))
        return inputs_folder(inputs, path, json, depth + 1);
    return err_set(ERR_DATA, "%s is %s; name what to read of it", path,
                   S_ISDIR(status.st_mode) ? "a link to a folder"
                                           : "neither a file nor a folder");
}

static enum err inputs_folder(struct inputs *inputs, const char *path,
                              bool json, int depth)
{
    enum err rc = ERR_OK;
    char index[FSIO_PATH_MAX];
    struct dirent **entries = NULL;
    TRY(fsio_path(index, "%s/%s", path, MDS_INDEX_NAME));
    if (fsio_exists(index))
        return err_set(ERR_DATA, "%s is a data set, not text", path);
    if (depth > INPUTS_DEPTH_MAX)
        return err_set(ERR_DATA, "%s: more than %d folders in each other", path,
                       INPUTS_DEPTH_MAX);
    int count = scandir(path, &entries, NULL, inputs_by_name);
    if (count < 0)
        return err_errno("%s: open", path);
    for (int i = 0; i < count; i++) {
        if (rc == ERR_OK)
            rc = inputs_entry(inputs, path, entries[i]->d_name, json, depth);
        free(entries[i]);
    }
    free(entries);
    return rc;
}

static enum err inputs_operand(struct inputs *inputs, const char *path,
                               bool json)
{
    struct stat status = { .st_mode = 0 };
    size_t before = inputs->count;
    if (strcmp(path, "-") == 0)
        return inputs_add(inputs, path, &status, json);
    TRY(regular_local(path));
    if (stat(path, &status) != 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? err_set(ERR_DATA, "%s: no such file", path)
                   : err_errno("%s: stat", path);
    if (!S_ISDIR(status.st_mode))
        return inputs_add(inputs, path, &status, json);
    TRY(inputs_folder(inputs, path, json, 0));
    if (inputs->count == before)
        return err_set(ERR_DATA, "%s is a folder without files%s", path,
                       inputs->hidden > 0 ? " but hidden ones" : "");
    return ERR_OK;
}

enum err inputs_find(char *const *operands, int count, bool json,
                     struct inputs *out)
{
    assert(operands != NULL && count > 0 && out != NULL);
    *out = (struct inputs){ .count = 0 };
    for (int i = 0; i < count; i++)
        TRY(inputs_operand(out, operands[i], json));
    return ERR_OK;
}

enum err inputs_find_sets(char *const *operands, int count, struct inputs *out)
{
    assert(operands != NULL && count > 0 && out != NULL);
    *out = (struct inputs){ .count = 0 };
    for (int i = 0; i < count; i++) {
        char index[FSIO_PATH_MAX];
        struct stat status;
        TRY(regular_local(operands[i]));
        TRY(fsio_path(index, "%s/" MDS_INDEX_NAME, operands[i]));
        if (stat(index, &status) != 0 || !S_ISREG(status.st_mode))
            return err_set(ERR_DATA,
                           "%s: no such file, so %s is no MDS data set", index,
                           operands[i]);
        TRY(inputs_add(out, operands[i], &status, true));
        out->file[out->count - 1].json = false;
        out->file[out->count - 1].set = true;
    }
    return ERR_OK;
}

void inputs_release(struct inputs *inputs)
{
    for (size_t i = 0; i < inputs->count; i++)
        free(inputs->file[i].path);
    free(inputs->file);
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

bool inputs_stay(const struct inputs *inputs)
{
    return inputs_bytes(inputs) >= 0;
}

enum err inputs_check(const struct inputs_file *file)
{
    struct stat status;
    char path[FSIO_PATH_MAX];
    if (file->bytes < 0)
        return ERR_OK;
    TRY(fsio_path(path, "%s%s", file->path,
                  file->set ? "/" MDS_INDEX_NAME : ""));
    if (stat(path, &status) != 0)
        return err_set(ERR_DATA, "%s: was there at the beginning, and is gone",
                       file->path);
    if (status.st_size != file->bytes || inputs_ns(&status) != file->changed_ns)
        return err_set(ERR_DATA,
                       "%s: changed while it was read; begin anew when it "
                       "is complete",
                       file->path);
    return ERR_OK;
}
