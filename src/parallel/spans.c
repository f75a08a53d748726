/* Cuts what a rank updates into spans and lays out what is kept of them.
 *
 * A span is the longest interval whose tensors have one optimizer, one group's
 * settings and, where the optimizer wants whole tensors, that is one tensor:
 * an update is one call for each. Moments are packed span after span and not as
 * the flat space is, since optimizers keep different numbers of them, and room
 * for what is not kept would be lost. */
#include "src/parallel/spans.h"

#include <stdlib.h>

#include "src/base/new.h"

/* An interval of an owner's block that this rank updates. */
struct interval {
    int64_t begin, end;
    int block;
};

static struct interval interval_of(const struct spans_input *input, int block)
{
    const struct owner_block *b = &input->owner->blocks[block];
    if (input->all)
        return (struct interval){ 0, input->params->elements, 0 };
    return (struct interval){ b->begin, b->end, block };
}

const struct optimizer_ops *spans_optimizer(const struct spans_input *input,
                                            const struct param *param)
{
    const struct optimizer_ops *optimizer;
    optimizer_find(input->rest, input->groups, input->group_count, param,
                   &optimizer);
    return optimizer;
}

const char *spans_whole(const struct spans_input *input)
{
    for (int p = 0; p < input->params->count; p++) {
        const struct optimizer_ops *optimizer =
            spans_optimizer(input, &input->params->list[p]);
        if (optimizer->whole_tensors)
            return optimizer->name;
    }
    return NULL;
}

/* Where the tensor's part of the space ends: at the next one. */
static int64_t end_of(const struct params *params, int tensor)
{
    return tensor + 1 < params->count ? params->list[tensor + 1].offset
                                      : params->elements;
}

/* The tensor goes on the span before it. */
static bool joins(const struct spans *spans, const struct span *next,
                  int64_t begin)
{
    const struct span *last =
        spans->count > 0 ? &spans->list[spans->count - 1] : NULL;
    return last != NULL && last->end == begin && last->block == next->block &&
           last->group == next->group && last->optimizer == next->optimizer &&
           !next->optimizer->whole_tensors;
}

static void add_tensor(struct spans *spans, const struct spans_input *input,
                       const struct interval *interval, int tensor)
{
    const struct params *params = input->params;
    /* padding before the first tensor is its block's */
    int64_t begin = tensor == 0 ? 0 : params->list[tensor].offset;
    int64_t end = end_of(params, tensor);
    struct span span = { .block = interval->block,
                         .first = tensor,
                         .last = tensor + 1 };
    span.begin = begin > interval->begin ? begin : interval->begin;
    span.end = end < interval->end ? end : interval->end;
    if (span.begin >= span.end)
        return;
    span.group = optimizer_find(input->rest, input->groups, input->group_count,
                                &params->list[tensor], &span.optimizer);
    if (joins(spans, &span, span.begin)) {
        spans->list[spans->count - 1].end = span.end;
        spans->list[spans->count - 1].last = span.last;
        return;
    }
    spans->list[spans->count++] = span;
}

/* Ranks whose parts begin before `element` begin here in the arena: cut[] is
 * filled from *next on. `at` is where element `begin` of the space lies. */
static void cut_before(const struct spans_input *input, int64_t element,
                       int64_t begin, int64_t at, int64_t *cut, int *next)
{
    const struct owner *owner = input->owner;
    if (!input->all)
        return;
    for (; *next <= owner->ranks; (*next)++) {
        int64_t first = owner_begin(owner, 0, *next);
        if (first >= element)
            return;
        cut[*next] = at + (first > begin ? first - begin : 0);
    }
}

/* Places what is kept; arenas are cut where ranks' parts of the space are. */
static void lay_out(struct spans *spans, const struct spans_input *input)
{
    const int64_t end = input->params->elements + 1;
    int next[UPDATE_MOMENTS + 1] = { 0 };
    for (int i = 0; i < spans->count; i++) {
        struct span *span = &spans->list[i];
        const struct optimizer_ops *o = span->optimizer;
        for (int m = 0; m < optimizer_moments(o); m++) {
            span->moment_at[m] = spans->moments[m];
            cut_before(input, span->end, span->begin, spans->moments[m],
                       spans->moment_cut[m], &next[m]);
            spans->moments[m] += span->end - span->begin;
        }
        for (int s = 0; s < optimizer_states(o); s++) {
            int64_t elements = optimizer_state_elements(
                o, input->params, &input->params->list[span->first], s);
            span->state_at[s] = elements > 0 ? spans->states : -1;
            /* of the rank that has the tensor's first element */
            cut_before(input, span->begin + 1, span->begin, spans->states,
                       spans->state_cut, &next[UPDATE_MOMENTS]);
            /* multiples of 64 bytes, as tensors begin */
            spans->states += (elements + 15) / 16 * 16;
        }
    }
    for (int m = 0; m < UPDATE_MOMENTS; m++)
        cut_before(input, end, end, spans->moments[m], spans->moment_cut[m],
                   &next[m]);
    cut_before(input, end, end, spans->states, spans->state_cut,
               &next[UPDATE_MOMENTS]);
}

static enum err make_cuts(struct spans *spans, int ranks)
{
    size_t count = (size_t)ranks + 1;
    int64_t *cuts = NULL;
    TRY(new_zeroed(&cuts, (UPDATE_MOMENTS + 1) * count));
    for (int m = 0; m < UPDATE_MOMENTS; m++)
        spans->moment_cut[m] = cuts + (size_t)m * count;
    spans->state_cut = cuts + UPDATE_MOMENTS * count;
    return ERR_OK;
}

enum err spans_create(const struct spans_input *input, struct spans **out)
{
    enum err rc = ERR_OK;
    const struct params *params = input->params;
    int blocks = input->all ? 1 : input->owner->block_count;
    struct spans *spans = NULL;
    TRY(new_zeroed(&spans, 1));
    /* each tensor is in one of an owner's blocks */
    TRY_OUT(new_zeroed(&spans->list, (size_t)(params->count + blocks)));
    TRY_OUT(make_cuts(spans, input->owner->ranks));
    for (int b = 0, first = 0; b < blocks; b++) {
        struct interval interval = interval_of(input, b);
        /* both ascend: what ends before a block ends before those behind it */
        while (first < params->count && end_of(params, first) <= interval.begin)
            first++;
        for (int p = first; p < params->count &&
                            (p == 0 || end_of(params, p - 1) < interval.end);
             p++)
            add_tensor(spans, input, &interval, p);
    }
    for (int p = 0; p < params->count; p++) {
        const struct optimizer_ops *o =
            spans_optimizer(input, &params->list[p]);
        int64_t floats = o->scratch != NULL ? o->scratch(&params->list[p]) : 0;
        spans->scratch = floats > spans->scratch ? floats : spans->scratch;
    }
    lay_out(spans, input);
out:
    return new_or_none(rc, spans, out, spans_destroy);
}

void spans_destroy(struct spans *spans)
{
    if (spans == NULL)
        return;
    free(spans->moment_cut[0]); /* all of them */
    free(spans->list);
    free(spans);
}

const struct span *spans_at(const struct spans *spans, int64_t element)
{
    int low = 0;
    int high = spans->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (spans->list[middle].end <= element)
            low = middle + 1;
        else
            high = middle;
    }
    return low < spans->count && spans->list[low].begin <= element
               ? &spans->list[low]
               : NULL;
}
