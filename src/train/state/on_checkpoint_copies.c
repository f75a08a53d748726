/* Copies a device's tensors to and from the host for checkpoints, on a stream
 * beside the training.
 *
 * Two events put the streams in order without the host: the copies wait for what
 * the training has enqueued so far (`computed`), and the next update, which would
 * change what is being copied, waits for the copies (run->engine.copied). Forward
 * and backward of the next step read weights alone and run beside them. The saver's
 * thread waits for the copies to come before it writes. */
#include "src/train/state/on_checkpoint_parts.h"

#include <assert.h>
#include <stdlib.h>

#include "src/base/new.h"

struct on_checkpoint_copies {
    struct run *run;
    const struct kernel_memory *memory;
    int local_rank;
    void *stream;
    void *computed; /* event: what is to be copied is there */
    struct ckpt_memory table;
};

static enum err copy_out(void *arg, void *to, const void *from, size_t bytes)
{
    const struct on_checkpoint_copies *copies = arg;
    return copies->memory->download(copies->stream, bytes, from, to);
}

/* Waits in the saver's thread until the copies have come. */
static enum err finish(void *arg)
{
    const struct on_checkpoint_copies *copies = arg;
    TRY(copies->memory->use(copies->local_rank));
    return copies->memory->wait(copies->stream);
}

/* On the training's stream, after what has made the tensors. `from` is not
 * pinned and is used again at once. */
static enum err copy_in(void *arg, void *to, const void *from, size_t bytes)
{
    const struct on_checkpoint_copies *copies = arg;
    void *stream = copies->run->engine.stream;
    TRY(copies->memory->upload(stream, bytes, from, to));
    return copies->memory->wait(stream);
}

enum err on_checkpoint_copies_create(struct run *run,
                                     struct on_checkpoint_copies **out)
{
    enum err rc = ERR_OK;
    const struct kernel_memory *memory = run->engine.kernels->memory;
    *out = NULL;
    if (!memory->device)
        return ERR_OK;
    struct on_checkpoint_copies *copies = NULL;
    TRY(new_zeroed(&copies, 1));
    *copies = (struct on_checkpoint_copies){
        .run = run,
        .memory = memory,
        .local_rank = comm_local_rank(run->comm),
        .table = { .arg = copies,
                   .copy_out = copy_out,
                   .finish = finish,
                   .stage_create = memory->host_create,
                   .stage_destroy = memory->host_destroy,
                   .copy_in = copy_in },
    };
    TRY_OUT(memory->stream_create(false, &copies->stream));
    TRY_OUT(memory->event_create(&copies->computed));
out:
    return new_or_none(rc, copies, out, on_checkpoint_copies_destroy);
}

void on_checkpoint_copies_destroy(struct on_checkpoint_copies *copies)
{
    if (copies == NULL)
        return;
    if (copies->computed != NULL)
        copies->memory->event_destroy(copies->computed);
    if (copies->stream != NULL)
        copies->memory->stream_destroy(copies->stream);
    free(copies);
}

const struct ckpt_memory *
on_checkpoint_copies_memory(const struct on_checkpoint_copies *copies)
{
    return copies != NULL ? &copies->table : NULL;
}

enum err on_checkpoint_copies_begin(struct on_checkpoint_copies *copies)
{
    if (copies == NULL)
        return ERR_OK;
    assert(copies->run->engine.copied != NULL);
    TRY(copies->memory->event_record(copies->computed,
                                     copies->run->engine.stream));
    return copies->memory->event_await(copies->computed, copies->stream);
}

enum err on_checkpoint_copies_end(struct on_checkpoint_copies *copies)
{
    if (copies == NULL)
        return ERR_OK;
    return copies->memory->event_record(copies->run->engine.copied,
                                        copies->stream);
}
