/* tessera-ckpt diff: shows what checkpoint/tools/ckpt_diff.c finds between two
 * checkpoints, tensor by tensor. Whether they are equal is what their digests would
 * say: tensors and step. The state is shown and does not count, since every run has
 * a uuid and times of its own. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint/tools/ckpt_tools.h"
#include "src/base/clean.h"
#include "src/cmd/ckpt_cmd.h"

struct compared {
    bool json;
    int equal, different;
    json_t *list;
};

static const char *kind_name(enum ckpt_diff_kind kind)
{
    static const char *const names[] = { "equal", "values", "form", "only in a",
                                         "only in b" };
    assert((size_t)kind < sizeof names / sizeof names[0]);
    return names[kind];
}

static json_t *diff_json(const struct ckpt_diff *diff)
{
    assert(diff->a != NULL || diff->b != NULL);
    const char *name = diff->a != NULL ? diff->a->name : diff->b->name;
    if (diff->kind != CKPT_DIFF_VALUES)
        return json_pack("{s:s, s:s}", "name", name, "result",
                         kind_name(diff->kind));
    return json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:f}", "name", name, "result",
        kind_name(diff->kind), "elements", (json_int_t)diff->a->elements,
        "differing", (json_int_t)diff->differing, "first",
        (json_int_t)diff->first, "non_finite", (json_int_t)diff->non_finite,
        "max_absolute", diff->max_absolute, "max_relative", diff->max_relative);
}

static void print_diff(const struct ckpt_diff *diff)
{
    char form_a[128], form_b[128];
    switch (diff->kind) {
    case CKPT_DIFF_EQUAL:
        return;
    case CKPT_DIFF_VALUES:
        clean_printf("%s: %" PRId64 " of %" PRId64
                     " elements differ, first %" PRId64
                     ", max absolute %.9g, max relative %.3g",
                     diff->a->name, diff->differing, diff->a->elements,
                     diff->first, diff->max_absolute, diff->max_relative);
        if (diff->non_finite > 0)
            printf(", %" PRId64 " not finite", diff->non_finite);
        printf("\n");
        return;
    case CKPT_DIFF_FORM:
        ckpt_cmd_form(diff->a, form_a, sizeof form_a);
        ckpt_cmd_form(diff->b, form_b, sizeof form_b);
        clean_printf("%s: %s in the first, %s in the second\n", diff->a->name,
                     form_a, form_b);
        return;
    case CKPT_DIFF_ONLY_A:
        clean_printf("%s: only in the first\n", diff->a->name);
        return;
    case CKPT_DIFF_ONLY_B:
        clean_printf("%s: only in the second\n", diff->b->name);
        return;
    }
}

/* Each tensor of either checkpoint; equal ones are counted, and named in JSON. */
static enum err take(void *arg, const struct ckpt_diff *diff)
{
    struct compared *compared = arg;
    if (diff->kind == CKPT_DIFF_EQUAL)
        compared->equal++;
    else
        compared->different++;
    if (!compared->json)
        print_diff(diff);
    else if (json_array_append_new(compared->list, diff_json(diff)) != 0)
        return err_set(ERR_MEMORY, "diff: out of memory");
    return ERR_OK;
}

static void print_state(const json_t *states)
{
    for (size_t i = 0; i < json_array_size(states); i++) {
        const json_t *entry = json_array_get(states, i);
        int flags = JSON_COMPACT | JSON_ENCODE_ANY;
        char *a = json_dumps(json_object_get(entry, "a"), (size_t)flags);
        char *b = json_dumps(json_object_get(entry, "b"), (size_t)flags);
        clean_printf("state %s: %s, %s\n",
                     json_string_value(json_object_get(entry, "entry")),
                     a != NULL ? a : "?", b != NULL ? b : "?");
        free(a);
        free(b);
    }
}

enum err ckpt_cmd_diff(struct ckpt_cmd *cmd)
{
    assert(cmd->paths[0] != NULL && cmd->paths[1] != NULL);
    enum err rc = ERR_OK;
    struct ckpt_manifest *a = NULL, *b = NULL;
    json_t *states = NULL;
    struct compared compared = { .json = cmd->json, .list = json_array() };
    TRY_OUT(ckpt_manifest_read(cmd->paths[0], NULL, NULL, &a));
    TRY_OUT(ckpt_manifest_read(cmd->paths[1], NULL, NULL, &b));
    states = ckpt_diff_states(a->state, b->state);
    if (states == NULL || compared.list == NULL)
        TRY_OUT(err_set(ERR_MEMORY, "diff: out of memory"));
    TRY_OUT(
        ckpt_diff_tensors(cmd->paths[0], a, cmd->paths[1], b, take, &compared));
    bool equal = compared.different == 0 && a->step == b->step;
    if (!equal)
        cmd->exit_code = CKPT_CMD_DIFFERENT;
    if (cmd->json) {
        rc = ckpt_cmd_print(json_pack("{s:b, s:[I, I], s:O, s:O}", "equal",
                                      equal, "steps", (json_int_t)a->step,
                                      (json_int_t)b->step, "tensors",
                                      compared.list, "state", states));
        goto out;
    }
    if (a->step != b->step)
        printf("step: %" PRId64 ", %" PRId64 "\n", a->step, b->step);
    print_state(states);
    printf("%d tensors equal, %d different\n", compared.equal,
           compared.different);
out:
    json_decref(compared.list);
    json_decref(states);
    ckpt_manifest_destroy(b);
    ckpt_manifest_destroy(a);
    return rc;
}
