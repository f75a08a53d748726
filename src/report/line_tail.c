/* Reads what has been added to a file, buffer by buffer.
 *
 * The file grows while it is read, and its last line may be half there: the bytes
 * behind the last line's end stay in the buffer until the rest comes. Nothing is
 * read twice, whatever the size of the file, so a live view of a run of a million
 * steps costs what is new. That the path names the same file as before is told by
 * its inode, and that it was not cut by its size; otherwise the caller begins
 * anew, since what it has taken may no longer stand there.
 *
 * A line is handed out as it lies in the buffer, so none may be longer than that.
 * A longer one is passed over: its bytes are dropped until its end comes, up to a
 * limit, behind which the file is none of lines at all. */
#include "src/report/line_tail.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/jsontext.h"
#include "src/base/new.h"
#include "src/base/regular.h"

static enum err check_file(struct line_tail *tail, int fd, int64_t *size)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return err_errno("%s: stat", tail->path);
    if ((tail->file != 0 && tail->file != (uint64_t)status.st_ino) ||
        status.st_size < tail->offset)
        return err_set(ERR_DATA, "%s: has become another file or shorter",
                       tail->path);
    tail->file = (uint64_t)status.st_ino;
    *size = status.st_size;
    return ERR_OK;
}

/* The whole lines of the buffer; what is left moves to its beginning. */
static enum err take_lines(struct line_tail *tail, size_t scanned,
                           line_tail_fn take, void *arg)
{
    char *line = tail->data;
    char *from = tail->data + scanned;
    char *end = tail->data + tail->held;
    char *newline;
    assert(scanned <= tail->held && tail->held <= LINE_TAIL_BYTES_MAX);
    while ((newline = memchr(from, '\n', (size_t)(end - from))) != NULL) {
        if (!tail->passing && newline > line)
            TRY(take(arg, line, (size_t)(newline - line)));
        tail->passing = false;
        line = from = newline + 1;
    }
    tail->held = (size_t)(end - line);
    memmove(tail->data, line, tail->held);
    if (tail->held == LINE_TAIL_BYTES_MAX && !tail->passing) {
        tail->too_long++;
        tail->passing = true;
        tail->passed = 0;
    }
    if (!tail->passing)
        return ERR_OK;
    tail->passed += (int64_t)tail->held;
    tail->held = 0;
    if (tail->passed > LINE_TAIL_PASSED_MAX)
        return err_set(ERR_DATA,
                       "%s: %lld MiB without the end of a line: this is no "
                       "file of lines; move it out of the run directory",
                       tail->path, (long long)(LINE_TAIL_PASSED_MAX >> 20));
    return ERR_OK;
}

/* Up to the size that the file had: one that grows faster than it is read
 * does not hold anybody up. */
static enum err read_to(struct line_tail *tail, int fd, int64_t size,
                        line_tail_fn take, void *arg)
{
    while (tail->offset < size) {
        size_t room = LINE_TAIL_BYTES_MAX - tail->held, scanned = tail->held;
        assert(tail->held < LINE_TAIL_BYTES_MAX); /* else it goes on for ever */
        if ((int64_t)room > size - tail->offset)
            room = (size_t)(size - tail->offset);
        ssize_t got =
            pread(fd, tail->data + tail->held, room, (off_t)tail->offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_errno("%s: read", tail->path);
        if (got == 0)
            break;
        tail->held += (size_t)got;
        tail->offset += got;
        TRY(take_lines(tail, scanned, take, arg));
    }
    return ERR_OK;
}

enum err line_tail_read(struct line_tail *tail, line_tail_fn take, void *arg)
{
    assert(tail->path[0] != '\0' && tail->held <= LINE_TAIL_BYTES_MAX);
    enum err rc = ERR_OK;
    int64_t size = 0;
    int fd = -1;
    struct stat status;
    if (tail->file == 0 && lstat(tail->path, &status) != 0 && errno == ENOENT)
        return ERR_OK;
    TRY(regular_open_at(AT_FDCWD, tail->path, O_RDONLY, REGULAR_NO_LINK,
                        tail->path, &fd));
    if (tail->data == NULL)
        TRY_OUT(new_room(&tail->data, LINE_TAIL_BYTES_MAX));
    TRY_OUT(check_file(tail, fd, &size));
    assert(tail->offset <= size);
    if (tail->offset == 0 && tail->newest > 0 && size > tail->newest) {
        tail->offset = size - tail->newest;
        tail->passing = true; /* over the rest of a line */
    }
    TRY_OUT(read_to(tail, fd, size, take, arg));
out:
    close(fd);
    return rc;
}

void line_tail_free(struct line_tail *tail)
{
    free(tail->data);
    tail->data = NULL;
}

/* --- the numbers of a line --- */

#define NUMBER_BYTES 64

/* strtod() wants a text that ends, and takes more than JSON has (inf, nan, hex). */
static double tail_number(const struct json_member *member)
{
    char word[NUMBER_BYTES];
    char *end = word;
    if (member->value_bytes >= sizeof word)
        return NAN;
    memcpy(word, member->value, member->value_bytes);
    word[member->value_bytes] = '\0';
    if (strspn(word, "+-.0123456789Ee") != member->value_bytes)
        return NAN; /* strtod takes more */
    double value = strtod(word, &end);
    return *end == '\0' && isfinite(value) ? value : NAN;
}

/* One pass over the line's members; those that nobody asks for are stepped over
 * without a look at their values. There are few keys, so they are compared one
 * after the other. */
bool line_tail_numbers(const char *line, size_t bytes, const char *const *keys,
                       int count, double *values)
{
    assert(line != NULL && keys != NULL && count >= 0 && values != NULL);
    bool done = false;
    struct json_member member;
    struct json_split split = json_split_begin(line, bytes);
    for (int i = 0; i < count; i++)
        values[i] = NAN;
    while (json_split_next(&split, &member, &done) == ERR_OK && !done)
        for (int i = 0; i < count; i++)
            if (strlen(keys[i]) == member.key_bytes - 2 &&
                memcmp(keys[i], member.key + 1, member.key_bytes - 2) == 0)
                values[i] = tail_number(&member);
    return done;
}
