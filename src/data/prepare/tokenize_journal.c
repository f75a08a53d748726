/* Writes, reads and compares the journal.
 *
 * The folder PARENT/.NAME.tokenize holds "journal", "lock", perhaps "spool",
 * and in "set" what becomes PARENT/NAME. The journal's first line says what is
 * made of what; every further line is a step that is on disk: JSON objects.
 *
 *   {"version": 1, "options": {..}, "inputs": [[PATH, BYTES, NS], ..]}
 *   {"shard": ENTRY, "mark": MARK}     a shard, by its entry in the index
 *   {"mark": MARK, "spooled": false}   the spool to the mark; true: all of it
 *   {"complete": RESULT, "inode": N}   the set; its place may be open
 *
 * A line is appended and synced after the files that it speaks of, never
 * before; half a line at the end, of a process that was killed, is left out.
 * What lies in the folder beyond the last line is removed and made again.
 *
 * Options and inputs are compared before anything is gone on with. Work of
 * hours would go if a mistyped option began anew, so a difference is an error
 * that names it. */
#include "src/data/prepare/tokenize_journal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/jsontext.h"

#define JOURNAL_VERSION 1
#define JOURNAL_BYTES_MAX ((size_t)1 << 30)
#define JOURNAL_LOCK_TRIES 16

/* The lock's file may be removed, with its folder, by the one who had it.
 * Readers cannot open it, so they cannot hold it. */
static enum err journal_lock(struct tokenize_journal *journal,
                             const char *folder)
{
    char path[FSIO_PATH_MAX];
    struct stat mine, there;
    TRY(fsio_path(path, "%s/lock", folder));
    for (int i = 0; i < JOURNAL_LOCK_TRIES; i++) {
        TRY(fsio_mkdirs(folder));
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 && errno == ENOENT)
            continue;
        if (fd < 0)
            return err_errno("%s: create", path);
        journal->lock = fd;
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            if (errno == EWOULDBLOCK)
                return err_set(ERR_BUSY,
                               "%s: another process makes this data set; "
                               "wait for it or choose another --out",
                               folder);
            log_warn("%s can't be locked (%s): do not start this command twice",
                     path, strerror(errno));
            return ERR_OK;
        }
        if (fstat(fd, &mine) == 0 && stat(path, &there) == 0 &&
            mine.st_ino == there.st_ino)
            return ERR_OK;
        journal->lock = -1;
        close(fd);
    }
    return err_set(ERR_IO, "%s: is made and removed by others", folder);
}

static json_t *journal_header(const json_t *options,
                              const struct inputs *inputs)
{
    json_t *list = json_array();
    for (size_t i = 0; i < inputs->count; i++) {
        const struct inputs_file *file = &inputs->file[i];
        /* files are compared as what they are called, how long, and when
         * changed */
        json_t *path = json_string(file->path);
        if (path == NULL) /* not UTF-8: its bytes, as numbers */
            path = json_array();
        for (const char *c = file->path; json_is_array(path) && *c != '\0'; c++)
            jsontext_append(&path, json_integer((unsigned char)*c));
        jsontext_append(&list,
                        json_pack("[o, I, I]", path, (json_int_t)file->bytes,
                                  (json_int_t)file->changed_ns));
    }
    return json_pack("{s:i, s:O, s:o}", "version", JOURNAL_VERSION, "options",
                     (json_t *)options, "inputs", list);
}

static enum err journal_differs(const char *folder, const char *what,
                                const char *which)
{
    return err_set(ERR_USAGE,
                   "%s holds an unfinished data set of %s%s%s; give the "
                   "command as it was to go on with it, or --fresh to begin "
                   "anew",
                   folder, what, which[0] != '\0' ? ": " : "", which);
}

/* Whether what was begun is what is wanted now. */
static enum err journal_compare(const char *folder, const json_t *then,
                                const json_t *now)
{
    const char *key = NULL;
    json_t *value = NULL, *options = json_object_get(now, "options");
    if (json_equal(then, now))
        return ERR_OK;
    if (!json_equal(json_object_get(then, "version"),
                    json_object_get(now, "version")))
        return journal_differs(folder, "another version of tessera-data", "");
    json_object_foreach(options, key, value) if (
        !json_equal(value, json_object_get(
                               json_object_get(then, "options"),
                               key))) return journal_differs(folder,
                                                             "other options",
                                                             key);
    const json_t *old_files = json_object_get(then, "inputs");
    const json_t *files = json_object_get(now, "inputs");
    size_t count = json_array_size(files);
    for (size_t i = 0; i < count && i < json_array_size(old_files); i++) {
        const json_t *file = json_array_get(files, i);
        const char *path = json_string_value(json_array_get(file, 0));
        if (!json_equal(file, json_array_get(old_files, i)))
            return journal_differs(folder, "other or older files",
                                   path != NULL ? path : "");
    }
    return journal_differs(folder, "other files", "");
}

static int64_t journal_int(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

/* The counts of a struct tokenize_result, by which they are called in the file. */
#define COUNTS(X)                                                              \
    X(bytes), X(documents), X(tokens), X(samples), X(eval_samples),            \
        X(dropped), X(held_tokens), X(held_documents), X(empty)

static void journal_get_result(const json_t *object,
                               struct tokenize_result *out)
{
#define GET(name) .name = journal_int(object, #name)
    *out = (struct tokenize_result){ COUNTS(GET) };
}

static json_t *journal_put_result(const struct tokenize_result *result)
{
    json_t *object = json_object();
#define PUT(name) jsontext_set(&object, #name, json_integer(result->name))
    COUNTS(PUT);
    return object;
}

static void journal_get_mark(const json_t *object, struct tokenize_mark *out)
{
    *out = (struct tokenize_mark){
        .place = { .file = journal_int(object, "file"),
                   .offset = journal_int(object, "offset"),
                   .line = journal_int(object, "line"),
                   .skip = journal_int(object, "skip"),
                   .empty = journal_int(object, "empty"),
                   .inside = json_is_true(json_object_get(object, "inside")),
                   .held = json_is_true(json_object_get(object, "held")),
                   .midline =
                       json_is_true(json_object_get(object, "midline")) },
        .tokens = journal_int(object, "used"),
        .dropping = json_is_true(json_object_get(object, "dropping")),
    };
    journal_get_result(json_object_get(object, "before"), &out->before);
}

static json_t *journal_put_mark(const struct tokenize_mark *mark)
{
    const struct text_place *place = &mark->place;
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:b, s:I, s:b, s:o}", "file",
        (json_int_t)place->file, "offset", (json_int_t)place->offset, "line",
        (json_int_t)place->line, "skip", (json_int_t)place->skip, "empty",
        (json_int_t)place->empty, "inside", place->inside, "held", place->held,
        "midline", place->midline, "used", (json_int_t)mark->tokens, "dropping",
        mark->dropping, "before", journal_put_result(&mark->before));
}

/* Whether text could be read on from there: who reads it asserts that. */
static bool journal_is_mark(const struct tokenize_mark *mark, size_t files)
{
    const struct text_place *place = &mark->place;
    const struct tokenize_result *before = &mark->before;
    bool counted = mark->tokens >= 0;
#define CHECK(name) counted = counted && before->name >= 0
    COUNTS(CHECK);
    return counted && place->file >= 0 && place->file <= (int64_t)files &&
           place->offset >= 0 && place->line >= 0 && place->skip >= 0 &&
           place->empty >= 0;
}

static enum err journal_step(struct tokenize_journal *journal,
                             const json_t *step)
{
    json_t *shard = json_object_get(step, "shard");
    const json_t *mark = json_object_get(step, "mark");
    const json_t *complete = json_object_get(step, "complete");
    journal->steps++;
    if (shard != NULL && json_array_append(journal->shards, shard) != 0)
        return err_set(ERR_MEMORY, "%s: out of memory", journal->path);
    if (mark != NULL)
        journal_get_mark(mark, &journal->mark);
    /* each step replaces what the one before said, but for shards, which add up
     */
    journal->spooled = json_is_true(json_object_get(step, "spooled"));
    /* what an older version wrote is there still when another one has gone on */
    journal->uncounted =
        journal->uncounted ||
        json_object_get(complete != NULL ? complete : mark, "empty") == NULL;
    if (complete != NULL) {
        journal->complete = true;
        journal->inode = (uint64_t)journal_int(step, "inode");
        journal_get_result(complete, &journal->mark.before);
    }
    return ERR_OK;
}

static enum err journal_damaged(const struct tokenize_journal *journal,
                                int64_t line)
{
    return err_set(ERR_DATA,
                   "%s:%lld: is damaged; --fresh begins the data set anew",
                   journal->path, (long long)line);
}

/* Read the lines that there are; *good: bytes of them. */
static enum err journal_lines(struct tokenize_journal *journal,
                              const char *folder, const json_t *header,
                              const char *text, size_t bytes, size_t *good)
{
    enum err rc = ERR_OK;
    const char *at = text, *end = text + bytes;
    json_error_t problem;
    size_t files = json_array_size(json_object_get(header, "inputs"));
    for (int64_t n = 1; rc == ERR_OK && at < end; n++) {
        const char *next = memchr(at, '\n', (size_t)(end - at));
        if (next == NULL)
            break; /* killed while it was written */
        json_t *line = jsontext_load(at, (size_t)(next - at),
                                     JSON_REJECT_DUPLICATES, &problem);
        if (line == NULL && jsontext_wrong(&problem) == ERR_MEMORY)
            rc = err_set(ERR_MEMORY, "%s: %s", journal->path, problem.text);
        else if (!json_is_object(line))
            rc = journal_damaged(journal, n);
        else
            rc = n == 1 ? journal_compare(folder, line, header)
                        : journal_step(journal, line);
        if (rc == ERR_OK && !journal_is_mark(&journal->mark, files))
            rc = journal_damaged(journal, n);
        json_decref(line);
        at = next + 1;
    }
    *good = (size_t)(at - text);
    return rc;
}

static enum err journal_append(struct tokenize_journal *journal, json_t *line)
{
    assert(journal->fd >= 0);
    enum err rc = ERR_OK;
    char *text = line != NULL ? json_dumps(line, JSON_COMPACT) : NULL;
    json_decref(line);
    if (text == NULL)
        return err_set(ERR_MEMORY, "%s: out of memory", journal->path);
    size_t bytes = strlen(text);
    text[bytes] = '\n'; /* in place of the NUL */
    off_t end = lseek(journal->fd, 0, SEEK_END);
    if (end < 0)
        rc = err_errno("%s: seek", journal->path);
    else
        rc = fsio_pwrite(journal->fd, text, bytes + 1, end, journal->path);
    if (rc == ERR_OK && fsync(journal->fd) != 0)
        rc = err_errno("%s: fsync", journal->path);
    free(text);
    return rc;
}

/* Remove what is in the folder but the lock. */
static enum err journal_clear(const char *folder)
{
    static const char *const names[] = { "journal", "spool", "set" };
    char path[FSIO_PATH_MAX];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        TRY(fsio_path(path, "%s/%s", folder, names[i]));
        TRY(fsio_remove_tree(path));
    }
    return ERR_OK;
}

static enum err journal_begin(struct tokenize_journal *journal,
                              const char *folder, json_t *header)
{
    TRY(journal_clear(folder));
    journal->fd = open(journal->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (journal->fd < 0)
        return err_errno("%s: create", journal->path);
    TRY(journal_append(journal, json_incref(header)));
    return fsio_fsync_dir(folder);
}

static enum err journal_read(struct tokenize_journal *journal,
                             const char *folder, json_t *header)
{
    enum err rc = ERR_OK;
    char *text = NULL;
    size_t bytes = 0, good = 0;
    TRY_OUT(fsio_read_file(journal->path, JOURNAL_BYTES_MAX, &text, &bytes));
    TRY_OUT(journal_lines(journal, folder, header, text, bytes, &good));
    if (good == 0) { /* killed before the first line was there */
        rc = journal_begin(journal, folder, header);
        goto out;
    }
    if (journal->uncounted)
        log_warn("%s: an older version began it: records with an empty text, "
                 "or none, are counted from where this one goes on only",
                 journal->path);
    journal->fd = open(journal->path, O_RDWR | O_CLOEXEC);
    if (journal->fd < 0 || ftruncate(journal->fd, (off_t)good) != 0)
        rc = err_errno("%s: open", journal->path);
out:
    free(text);
    return rc;
}

enum err tokenize_journal_open(const char *folder, const json_t *options,
                               const struct inputs *inputs, bool fresh,
                               struct tokenize_journal **out)
{
    enum err rc = ERR_OK;
    json_t *header = NULL;
    struct tokenize_journal *journal = NULL;
    TRY(new_zeroed(&journal, 1));
    journal->lock = journal->fd = -1;
    journal->shards = json_array();
    TRY_OUT(fsio_path(journal->path, "%s/journal", folder));
    TRY_OUT(journal_lock(journal, folder));
    if (fresh)
        TRY_OUT(journal_clear(folder));
    header = journal_header(options, inputs);
    if (header == NULL || journal->shards == NULL)
        TRY_OUT(err_set(ERR_MEMORY, "%s: out of memory", folder));
    if (fsio_exists(journal->path))
        TRY_OUT(journal_read(journal, folder, header));
    else
        TRY_OUT(journal_begin(journal, folder, header));
out:
    json_decref(header);
    return new_or_none(rc, journal, out, tokenize_journal_close);
}

void tokenize_journal_close(struct tokenize_journal *journal)
{
    if (journal == NULL)
        return;
    fsio_close(journal->fd);
    fsio_close(journal->lock);
    json_decref(journal->shards);
    free(journal);
}

static enum err journal_add(struct tokenize_journal *journal, json_t *step)
{
    assert(!journal->complete);
    TRY(journal_append(journal, step));
    journal->steps++;
    return ERR_OK;
}

enum err tokenize_journal_add_shard(struct tokenize_journal *journal,
                                    json_t *shard,
                                    const struct tokenize_mark *mark)
{
    return journal_add(journal, json_pack("{s:O, s:o}", "shard", shard, "mark",
                                          journal_put_mark(mark)));
}

enum err tokenize_journal_add_spool(struct tokenize_journal *journal, bool all,
                                    const struct tokenize_mark *mark)
{
    return journal_add(journal,
                       json_pack("{s:o, s:b}", "mark", journal_put_mark(mark),
                                 "spooled", all));
}

enum err tokenize_journal_add_complete(struct tokenize_journal *journal,
                                       const struct tokenize_result *result,
                                       uint64_t inode)
{
    return journal_add(journal, json_pack("{s:o, s:I}", "complete",
                                          journal_put_result(result), "inode",
                                          (json_int_t)inode));
}
