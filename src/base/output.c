/* Compares outputs with inputs, and keeps the list of temporary files.
 *
 * An output is written under a temporary name beside its place and renamed when
 * it is complete. The name has host and process: so one that is left behind by
 * a kill -9 can be told from one that is being written, and the next output of
 * the same name on that host removes it. Signals that can be caught remove what
 * is in the list themselves; a handler may only call what is safe there, which
 * unlink() and raise() are. */
#include "src/base/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/globs.h"

#define OUTPUT_HOST_BYTES 32
#define OUTPUT_NAMES_MAX 100

/* What folders are made of: in one that has a marker (another one than the name
 * itself) these names are not written over, nor made. */
static const struct {
    const char *what, *markers, *names;
} output_kinds[] = {
    { "the run in that folder", "config.cfg ledger.jsonl",
      ".* config.cfg ledger.jsonl metrics.jsonl eval.jsonl samples.jsonl "
      "tracking.json checkpoints choices reasons profile tensorboard "
      "settings.sha256 STOP" },
    { "the checkpoints in that folder", "RUN_UUID LATEST",
      ".* RUN_UUID LATEST step-*" },
    { "the checkpoint in that folder", "MANIFEST.json checkpoint.h5", "*" },
    { "the model in that folder",
      "config.json model.safetensors model.safetensors.index.json "
      "adapter_config.json",
      "config.json generation_config.json *.safetensors "
      "*.safetensors.index.json tokenizer.json tokenizer.model "
      "tokenizer_config.json special_tokens_map.json added_tokens.json "
      "chat_template.* vocab.json merges.txt adapter_config.json" },
    { "the data set in that folder", "index.json tessera.json",
      "index.json tessera.json tokenizer.json shard.*" },
};

static bool output_same(const char *one, const char *other)
{
    char parents[2][FSIO_PATH_MAX];
    struct stat st[2];
    bool there = stat(one, &st[0]) == 0;
    if (there != (stat(other, &st[1]) == 0))
        return false;
    if (!there &&
        (strcmp(basename(one), basename(other)) != 0 ||
         fsio_parent(one, parents[0]) != ERR_OK ||
         fsio_parent(other, parents[1]) != ERR_OK ||
         stat(parents[0], &st[0]) != 0 || stat(parents[1], &st[1]) != 0))
        return false;
    return st[0].st_dev == st[1].st_dev && st[0].st_ino == st[1].st_ino;
}

static bool output_has_marker(const char *parent, const char *markers,
                              const char *name)
{
    char marker[GLOBS_GLOB_MAX], path[FSIO_PATH_MAX];
    while (globs_next(&markers, marker))
        if (strcmp(marker, name) != 0 &&
            fsio_path(path, "%s/%s", parent, marker) == ERR_OK &&
            fsio_exists(path))
            return true;
    return false;
}

static enum err output_check_place(const char *path)
{
    char parent[FSIO_PATH_MAX];
    const char *name = basename(path);
    TRY(fsio_parent(path, parent));
    for (size_t k = 0; k < sizeof output_kinds / sizeof *output_kinds; k++)
        if (globs_match(output_kinds[k].names, name) &&
            output_has_marker(parent, output_kinds[k].markers, name))
            return err_set(ERR_USAGE,
                           "%s belongs to %s: name another file for the output",
                           path, output_kinds[k].what);
    return ERR_OK;
}

enum err output_check(const char *path, const char *const *inputs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (inputs[i] != NULL && output_same(path, inputs[i]))
            return err_set(ERR_USAGE,
                           "%s is %s, which this command reads or writes "
                           "besides: name another file for its output",
                           path, inputs[i]);
    char *real = realpath(path, NULL); /* NULL: there is nothing yet */
    enum err rc = output_check_place(real != NULL ? real : path);
    free(real);
    return rc;
}

/* What stands behind the prefix is the number of a process that is gone. */
static bool output_is_left(int folder, const char *entry, const char *prefix)
{
    struct stat st;
    char *end = NULL;
    size_t length = strlen(prefix);
    if (strncmp(entry, prefix, length) != 0)
        return false;
    long number = strtol(entry + length, &end, 10);
    return number > 1 && (*end == '\0' || *end == '.') &&
           kill((pid_t)number, 0) != 0 && errno == ESRCH &&
           fstatat(folder, entry, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           st.st_uid == geteuid();
}

static void output_remove_left(const char *parent, const char *prefix)
{
    const struct dirent *entry = NULL;
    char path[FSIO_PATH_MAX];
    DIR *folder = opendir(parent);
    while (folder != NULL && (entry = readdir(folder)) != NULL)
        if (output_is_left(dirfd(folder), entry->d_name, prefix) &&
            fsio_path(path, "%s/%s", parent, entry->d_name) == ERR_OK)
            (void)fsio_remove_tree(path);
    if (folder != NULL)
        closedir(folder);
}

enum err output_temporary(const char *path, char temporary[FSIO_PATH_MAX])
{
    char parent[FSIO_PATH_MAX], prefix[FSIO_PATH_MAX];
    char host[OUTPUT_HOST_BYTES] = "";
    struct stat st;
    (void)gethostname(host, sizeof host - 1);
    host[strcspn(host, ".")] = '\0';
    TRY(fsio_parent(path, parent));
    TRY(fsio_path(prefix, ".%s.tmp.%s.", basename(path), host));
    output_remove_left(parent, prefix);
    for (int i = 0; i < OUTPUT_NAMES_MAX; i++) {
        TRY(fsio_path(temporary, "%s/%s%ld.%d", parent, prefix, (long)getpid(),
                      i));
        if (lstat(temporary, &st) != 0)
            return ERR_OK;
    }
    return err_set(ERR_SPACE, "%s exists, as do others: remove them",
                   temporary);
}

static struct output *output_list; /* those that are begun */

static void output_on_signal(int number)
{
    for (const struct output *out = output_list; out != NULL; out = out->next)
        unlink(out->temporary);
    raise(number); /* blocked until this returns; its action is back */
}

static void output_handle_signals(void)
{
    static const int numbers[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE };
    const struct sigaction action = { .sa_handler = output_on_signal,
                                      .sa_flags = (int)SA_RESETHAND };
    struct sigaction now;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (sigaction(numbers[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
            sigaction(numbers[i], &action, NULL);
}

/* What is written as it comes: a shell's >(...), a terminal, /dev/null. */
static bool output_streams(const char *path)
{
    struct stat status;
    return fsio_is_given(path) || strcmp(path, "/dev/stdout") == 0 ||
           strcmp(path, "/dev/stderr") == 0 ||
           (stat(path, &status) == 0 && S_ISCHR(status.st_mode));
}

enum err output_begin(const char *path, const char *const *inputs, size_t count,
                      struct output *out)
{
    struct stat status;
    *out = (struct output){ .file = NULL };
    TRY(fsio_path(out->path, "%s", path));
    TRY(output_check(path, inputs, count));
    if (output_streams(path)) {
        out->file = fopen(path, "we");
        return out->file != NULL ? ERR_OK : err_errno("%s: open", path);
    }
    TRY(fsio_check_replaceable(path));
    TRY(output_temporary(path, out->temporary));
    output_handle_signals();
    out->next = output_list;
    output_list = out;
    out->file = fopen(out->temporary, "wxe");
    if (out->file != NULL && lstat(path, &status) == 0)
        (void)fchmod(fileno(out->file), status.st_mode & 0777);
    if (out->file != NULL)
        return ERR_OK;
    enum err rc = err_errno("%s: create %s", path, out->temporary);
    output_drop(out);
    return rc;
}

static enum err output_put(struct output *out, bool fresh)
{
    char parent[FSIO_PATH_MAX];
    bool streams = out->temporary[0] == '\0';
    if (fflush(out->file) != 0 || ferror(out->file) ||
        (!streams && fsync(fileno(out->file)) != 0))
        return err_errno("%s: writing", out->path);
    int closed = fclose(out->file); /* NFS tells of a full disk only here */
    out->file = NULL;
    if (closed != 0)
        return err_errno("%s: close", out->path);
    if (streams)
        return ERR_OK;
    if (fresh)
        TRY(fsio_rename_new(out->temporary, out->path));
    else if (rename(out->temporary, out->path) != 0)
        return err_errno("%s: rename to %s", out->temporary, out->path);
    TRY(fsio_parent(out->path, parent));
    return fsio_fsync_dir(parent);
}

enum err output_end(struct output *out, bool fresh)
{
    enum err rc = out->file != NULL ? output_put(out, fresh) : ERR_OK;
    output_drop(out);
    return rc;
}

void output_drop(struct output *out)
{
    if (out->file != NULL)
        fclose(out->file);
    out->file = NULL;
    if (out->temporary[0] == '\0')
        return;
    unlink(out->temporary); /* or nothing has the name by now */
    struct output **at = &output_list;
    while (*at != NULL && *at != out)
        at = &(*at)->next;
    if (*at != NULL)
        *at = out->next;
    out->temporary[0] = '\0';
}
