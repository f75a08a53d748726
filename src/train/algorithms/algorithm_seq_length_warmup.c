/* Short sequences first (Li, Zhang and He 2021; Composer's SeqLengthWarmup):
 * the length grows by step_size in equal times. Of each sample the first tokens
 * are trained on; the rest of it is not seen in this epoch. With n lengths in
 * `duration` steps, step t trains on step_size floor(t / (duration / n)) tokens,
 * at least min_seq_len and at most max_seq_len. Long sequences are where early
 * gradients vary most, and short ones cost less. */
#include <assert.h>

#include "src/train/run/run.h"

struct seq_length_warmup {
    struct run *run;
    int64_t least, most, size;
    int64_t duration, every; /* steps: until the longest, between lengths */
};

static int64_t longest(const struct algorithm_seq_length_warmup *s,
                       const struct train_settings *all)
{
    return s->max_seq_len > 0 ? s->max_seq_len : all->data.seq_len;
}

#define FP8_ROWS 16 /* model.h */

static enum err seq_length_warmup_check(const void *settings,
                                        const struct train_settings *all)
{
    const struct algorithm_seq_length_warmup *s = settings;
    int64_t chunks = all->parallel.sequence_chunks;
    const int64_t rows = FP8_ROWS * chunks;
    if (all->train.precision == PRECISION_FP8 &&
        (s->min_seq_len % rows != 0 || s->step_size % rows != 0))
        return err_set(ERR_USAGE,
                       "train.precision = \"fp8\" computes rows in multiples "
                       "of %d: give min_seq_len and step_size as multiples of "
                       "%lld",
                       FP8_ROWS, (long long)rows);
    if (longest(s, all) > all->data.seq_len)
        return err_set(ERR_USAGE,
                       "max_seq_len (%lld) is larger than data.seq_len (%lld)",
                       (long long)s->max_seq_len, (long long)all->data.seq_len);
    if (s->min_seq_len > longest(s, all))
        return err_set(ERR_USAGE,
                       "min_seq_len (%lld) is larger than max_seq_len (%lld)",
                       (long long)s->min_seq_len, (long long)longest(s, all));
    if (s->min_seq_len % chunks != 0 || s->step_size % chunks != 0 ||
        longest(s, all) % chunks != 0)
        return err_set(ERR_USAGE,
                       "min_seq_len, max_seq_len and step_size must be "
                       "multiples of parallel.sequence_chunks (%lld)",
                       (long long)chunks);
    return ERR_OK;
}

static enum err seq_length_warmup_create(void *self, const void *settings,
                                         struct run *run)
{
    struct seq_length_warmup *w = self;
    const struct algorithm_seq_length_warmup *s = settings;
    w->run = run;
    w->least = s->min_seq_len;
    w->most = longest(s, &run->settings);
    w->size = s->step_size;
    return run_algorithm_steps(run, w, "duration", s->duration, &w->duration);
}

static enum err seq_length_warmup_begin(void *self)
{
    struct seq_length_warmup *w = self;
    int64_t lengths = (w->most - w->least) / w->size;
    w->every = lengths > 0 && w->duration > lengths ? w->duration / lengths : 1;
    return ERR_OK;
}

static enum err seq_length_warmup_before_batch(void *self,
                                               struct algorithm_step *step)
{
    const struct seq_length_warmup *w = self;
    assert(w->every > 0 && w->least <= w->most);
    int64_t length = w->run->position.step / w->every;
    /* so large a product is beyond the longest anyway */
    length = length > w->most / w->size ? w->most : length * w->size;
    if (length < w->least)
        length = w->least;
    step->seq_len = length < w->most ? length : w->most;
    return ERR_OK;
}

const struct algorithm_ops algorithm_seq_length_warmup_ops = {
    ALGORITHM_OF(struct seq_length_warmup), .check = seq_length_warmup_check,
    .create = seq_length_warmup_create, .begin = seq_length_warmup_begin,
    .before_batch = seq_length_warmup_before_batch
};
