/* Keeps the calls of one leaf as a device graph (kernel_memory.h) and launches
 * it for later leaves of the same kind. What is called is in the other
 * model_*.c files. The bits are the same.
 *
 * A small model's leaf is a thousand kernels of some microseconds, and to
 * enqueue one takes the host as long as the device takes to run it. A graph is
 * enqueued as a whole. So the calls of a leaf are made twice at most for all
 * leaves of its kind: the first leaf is enqueued op by op, because libraries
 * make their plans then; the second one is kept, and from then on a leaf is one
 * launch.
 *
 * But a graph has its arguments in it, pointers and numbers: it may be launched
 * again only where every one of them is the same. `struct kind` is the list of
 * what decides them. A leaf's numbers are uploaded before, and its loss goes to
 * a place of the model's and is copied from there, so that neither belongs to
 * the graph. Not kept are leaves with dropout or jitter, which draw by the
 * number of the sample, those of a group of ranks, and those whose weights come
 * by exchanges (params.h: `fixed`). What cannot be captured is said once, and
 * goes on op by op, as do leaves while a profile is on, which is to show their
 * ops. */
#include "src/model/model_impl.h"

#include <assert.h>
#include <stdlib.h>

#include "kernels/kernel_profile.h"
#include "src/base/log.h"
#include "src/base/new.h"

/* Whatever decides the calls of a leaf and their arguments. */
struct kind {
    const void *access; /* whose, and ... */
    int64_t fixed;      /* ... what it says */
    int64_t samples, seq_len;
    /* With experts, whose balance is weighed by them; in 8 bits whether there
     * are any, for only then operands count. */
    int64_t loss_tokens;
    bool documents;
};

struct kept {
    struct kind kind;
    void *graph; /* NULL: there was one leaf so far */
};

struct model_graphs {
    struct kept kept[MODEL_GRAPHS_MAX];
    int count;
    int64_t launches;
    bool failed; /* the device does not keep what the model does */
};

/* --- what can be kept --- */

static bool is_wanted(const struct model *model)
{
    const struct model_options *options = &model->options;
    return options->graphs && model->kernels->memory->capture_begin != NULL &&
           options->chunks == 1 && options->expert_degree <= 1;
}

static int64_t loss_tokens_of(const struct model *model)
{
    if (model->config.experts > 0)
        return model->loss_tokens;
    return model->options.fp8 && model->loss_tokens > 0;
}

static struct kind kind_of(const struct model *model)
{
    const struct pass *pass = &model->passes[0];
    const struct param_access *access = pass->access;
    return (struct kind){
        .access = access->arg,
        .fixed = access->fixed(access->arg),
        .samples = pass->leaf.samples,
        .seq_len = pass->leaf.seq_len,
        .loss_tokens = loss_tokens_of(model),
        .documents = pass->leaf.sequence_ids != NULL,
    };
}

static bool same_kind(const struct kind *a, const struct kind *b)
{
    return a->access == b->access && a->fixed == b->fixed &&
           a->samples == b->samples && a->seq_len == b->seq_len &&
           a->loss_tokens == b->loss_tokens && a->documents == b->documents;
}

/* NULL: no leaf of this kind was there before; from now on there was, if there
 * is room. */
static struct kept *find(struct model_graphs *graphs, const struct kind *kind)
{
    for (int i = 0; i < graphs->count; i++)
        if (same_kind(&graphs->kept[i].kind, kind))
            return &graphs->kept[i];
    if (graphs->count < MODEL_GRAPHS_MAX)
        graphs->kept[graphs->count++].kind = *kind;
    return NULL;
}

/* --- a leaf --- */

static enum err capture(struct model *model, enum err (*run)(struct model *),
                        void **graph)
{
    enum err rc = ERR_OK;
    struct err_kept kept;
    const struct kernel_memory *memory = model->kernels->memory;
    struct leaf_loss *loss = model->passes[0].loss;
    assert(!model->capturing && model->options.own_chunks == 1);
    TRY(memory->capture_begin(model->ctx.stream));
    model->passes[0].loss = model->graph_loss;
    model->capturing = true;
    rc = run(model);
    model->capturing = false;
    model->passes[0].loss = loss;
    err_keep(&kept, rc);
    enum err end = memory->capture_end(model->ctx.stream, graph);
    if (rc == ERR_OK)
        return end;
    memory->graph_destroy(*graph);
    *graph = NULL;
    return err_again(&kept);
}

static enum err launch(struct model *model, void *graph)
{
    const struct kernel_memory *memory = model->kernels->memory;
    TRY(memory->graph_launch(graph, model->ctx.stream));
    TRY(memory->copy(model->ctx.stream, sizeof *model->graph_loss,
                     model->graph_loss, model->passes[0].loss));
    model->graphs->launches++;
    return ERR_OK;
}

enum err model_graph_run(struct model *model, enum err (*run)(struct model *))
{
    struct model_graphs *graphs = model->graphs;
    if (graphs == NULL || graphs->failed || model->draws ||
        kernel_profile_on(model->ctx.profile) ||
        model->passes[0].access->fixed == NULL)
        return run(model);
    struct kind kind = kind_of(model);
    struct kept *kept = find(graphs, &kind);
    if (kept == NULL)
        return run(model);
    if (kept->graph == NULL && capture(model, run, &kept->graph) != ERR_OK) {
        /* nothing was done; what is wrong with the leaf itself shows now */
        graphs->failed = true;
        log_warn("ops are enqueued one by one, not as graphs: %s", err_text());
        return run(model);
    }
    return launch(model, kept->graph);
}

/* --- making and forgetting --- */

void model_graph_layout(struct model *model, struct arena *arena)
{
    if (is_wanted(model))
        model->graph_loss = arena_take(arena, sizeof *model->graph_loss);
}

enum err model_graph_create(struct model *model)
{
    if (!is_wanted(model))
        return ERR_OK;
    TRY(new_zeroed(&model->graphs, 1));
    return ERR_OK;
}

enum err model_graph_forget(struct model *model)
{
    struct model_graphs *graphs = model->graphs;
    const struct kernel_memory *memory = model->kernels->memory;
    if (graphs == NULL || graphs->count == 0)
        return ERR_OK;
    assert(!model->capturing);
    TRY(memory->wait(model->ctx.stream));
    for (int i = 0; i < graphs->count; i++)
        memory->graph_destroy(graphs->kept[i].graph);
    *graphs = (struct model_graphs){ .launches = graphs->launches,
                                     .failed = graphs->failed };
    return ERR_OK;
}

void model_graph_destroy(struct model *model)
{
    (void)model_graph_forget(model);
    free(model->graphs);
}

int64_t model_graph_launches(const struct model *model)
{
    return model->graphs != NULL ? model->graphs->launches : 0;
}
