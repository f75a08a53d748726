/* Sink: TensorBoard event files in RUN/tensorboard, one for each attempt.
 *
 * A file begins by saying from which step on it is right, so a reader that
 * drops what restarts have made stale (TensorBoard does) shows each step once.
 * Readers take files in the order of their names, which begin with a time: it
 * is made later than that of all files that are there, whatever the clock says.
 * A file is only ever appended to, whole frames at a time, and what a failed
 * write has left is cut off: readers stop for good at a frame whose checksum is
 * wrong. */
#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/regular.h"
#include "src/tracking/tracking_events.h"
#include "src/tracking/tracking_sink.h"

#define PREFIX "events.out.tfevents."

struct tensorboard {
    int fd;
    bool opened, wrote; /* wrote: a record */
    char path[FSIO_PATH_MAX];
    struct buffer out;
};

static bool tensorboard_wanted(const struct tracking_settings *settings)
{
    return settings->tensorboard;
}

/* The folder's last time, 0: there is none. */
static enum err last_time(int folder, const char *path, int64_t *last)
{
    int copy = fcntl(folder, F_DUPFD_CLOEXEC, 0);
    DIR *entries = copy >= 0 ? fdopendir(copy) : NULL;
    if (entries == NULL) {
        enum err rc = err_errno("%s: read the folder", path);
        fsio_close(copy);
        return rc;
    }
    *last = 0;
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0)
            continue;
        long long time = strtoll(entry->d_name + strlen(PREFIX), NULL, 10);
        if (time > *last &&
            time < 10000000000) /* ten digits sort as they are */
            *last = time;
    }
    closedir(entries);
    return ERR_OK;
}

static enum err tensorboard_open(void *self,
                                 const struct tracking_options *options)
{
    enum err rc = ERR_OK;
    struct tensorboard *tb = self;
    char folder[FSIO_PATH_MAX], name[64 + 256], host[256] = "";
    int at = -1;
    int64_t last = 0;
    int64_t now = (int64_t)clock_wall();
    tb->fd = -1;
    tb->opened = true;
    TRY_OUT(fsio_path(folder, "%s/tensorboard", options->run_dir));
    TRY_OUT(regular_folder(folder, &at));
    TRY_OUT(last_time(at, folder, &last));
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, PREFIX "%010" PRId64 ".%s.%d",
             now > last ? now : last + 1, host, (int)getpid());
    TRY_OUT(fsio_path(tb->path, "%s/%s", folder, name));
    TRY_OUT(regular_open_at(at, name, O_WRONLY | O_CREAT | O_EXCL,
                            REGULAR_NO_LINK, tb->path, &tb->fd));
    TRY_OUT(tracking_events_version(clock_wall(), &tb->out));
    TRY_OUT(regular_append(tb->fd, tb->path, tb->out.data, tb->out.bytes));
out:
    fsio_close(at);
    return rc;
}

static enum err tensorboard_begin(void *self, int64_t step)
{
    struct tensorboard *tb = self;
    tb->out.bytes = 0;
    TRY(tracking_events_restart(clock_wall(), step + 1, &tb->out));
    return regular_append(tb->fd, tb->path, tb->out.data, tb->out.bytes);
}

static enum err tensorboard_write(void *self,
                                  const struct tracking_record *const *records,
                                  int count)
{
    assert(count > 0);
    struct tensorboard *tb = self;
    tb->out.bytes = 0;
    for (int i = 0; i < count; i++)
        TRY(tracking_events_record(records[i], &tb->out));
    TRY(regular_append(tb->fd, tb->path, tb->out.data, tb->out.bytes));
    tb->wrote = true;
    return ERR_OK;
}

/* Every try makes a file: one without records goes again. */
static void tensorboard_close(void *self)
{
    struct tensorboard *tb = self;
    if (tb->opened && tb->fd >= 0) {
        if (!tb->wrote)
            unlink(tb->path);
        close(tb->fd);
    }
    buffer_free(&tb->out);
}

const struct tracking_sink_ops tracking_tensorboard_ops = {
    TRACKING_SINK("tensorboard", struct tensorboard),
    .wanted = tensorboard_wanted,
    .open = tensorboard_open,
    .begin = tensorboard_begin,
    .write = tensorboard_write,
    .close = tensorboard_close
};
