/* Runs a template's statements over a conversation. A `for` has variables of
 * its own, anew for each item, as in Jinja; an `if` has not. */
#include "src/text/chat_render.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/text/chat_eval.h"

struct chat_render_job {
    struct chat_memory *memory;
    struct chat_scope scope;
    const struct chat_field *outer; /* variables from here on are not ours */
    struct chat_text *out;
};

static enum err chat_render_body(struct chat_render_job *job,
                                 const struct chat_node *body);

static enum err chat_render_put(struct chat_render_job *job, const char *text,
                                size_t bytes)
{
    struct chat_text *out = job->out;
    TRY(chat_value_work(job->memory, bytes));
    if (bytes >= out->capacity - out->bytes) {
        size_t capacity = 2 * (out->bytes + bytes) + 64;
        char *grown = realloc(out->text, capacity);
        if (grown == NULL)
            return err_set(ERR_MEMORY, "no memory for a conversation");
        out->text = grown;
        out->capacity = capacity;
    }
    memcpy(out->text + out->bytes, text, bytes);
    out->bytes += bytes;
    out->text[out->bytes] = '\0';
    return ERR_OK;
}

static enum err chat_render_define(struct chat_render_job *job,
                                   const char *name, size_t bytes,
                                   struct chat_value value)
{
    struct chat_value scope = { .kind = CHAT_VALUE_RECORD,
                                .as.record = job->scope.first };
    TRY(chat_value_add_field(job->memory, &scope, name, bytes, value));
    job->scope.first = scope.as.record;
    return ERR_OK;
}

static enum err chat_render_set(struct chat_render_job *job,
                                const struct chat_node *node)
{
    struct chat_value value, of;
    TRY(chat_eval(&job->scope, node->a, &value));
    if (node->b != NULL) {
        const struct chat_node name = { .kind = CHAT_NODE_NAME,
                                        .line = node->line,
                                        .text = node->text,
                                        .bytes = node->bytes };
        TRY(chat_eval(&job->scope, &name, &of));
        if (!of.may_change)
            return err_set(ERR_DATA,
                           "line %d: only fields of a namespace() "
                           "are set",
                           node->line);
        struct chat_field *field =
            chat_value_field(&of, node->b->text, node->b->bytes);
        if (field != NULL) {
            field->value = value;
            return ERR_OK;
        }
        struct chat_value rest = { .kind = CHAT_VALUE_RECORD,
                                   .as.record = of.as.record->next };
        TRY(chat_value_add_field(job->memory, &rest, node->b->text,
                                 node->b->bytes, value));
        of.as.record->next = rest.as.record;
        return ERR_OK;
    }
    for (struct chat_field *field = job->scope.first; field != job->outer;
         field = field->next)
        if (field->bytes == node->bytes &&
            memcmp(field->name, node->text, node->bytes) == 0) {
            field->value = value;
            return ERR_OK;
        }
    return chat_render_define(job, node->text, node->bytes, value);
}

/* `loop` of item i of the list. */
static enum err chat_render_loop(struct chat_render_job *job,
                                 const struct chat_value *list, size_t i)
{
    struct chat_value loop = { .kind = CHAT_VALUE_RECORD };
    const struct chat_value none = { 0 };
    const struct {
        const char *name;
        struct chat_value value;
    } fields[] = {
        { "length", chat_value_integer((int64_t)list->count) },
        { "revindex", chat_value_integer((int64_t)(list->count - i)) },
        { "revindex0", chat_value_integer((int64_t)(list->count - i - 1)) },
        { "previtem", i > 0 ? list->as.list[i - 1] : none },
        { "nextitem", i + 1 < list->count ? list->as.list[i + 1] : none },
        { "last", chat_value_boolean(i + 1 == list->count) },
        { "first", chat_value_boolean(i == 0) },
        { "index", chat_value_integer((int64_t)i + 1) },
        { "index0", chat_value_integer((int64_t)i) },
    };
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++)
        TRY(chat_value_add_field(job->memory, &loop, fields[f].name,
                                 strlen(fields[f].name), fields[f].value));
    return chat_render_define(job, "loop", 4, loop);
}

/* The items for which the loop's own condition holds. */
static enum err chat_render_choose(struct chat_render_job *job,
                                   const struct chat_node *node,
                                   struct chat_value *list)
{
    struct chat_field *outside = job->scope.first;
    struct chat_value holds;
    void *room = NULL;
    size_t count = 0;
    TRY(chat_value_room(job->memory, list->count * sizeof *list, &room));
    struct chat_value *chosen = room;
    for (size_t i = 0; i < list->count; i++) {
        TRY(chat_render_define(job, node->text, node->bytes, list->as.list[i]));
        TRY(chat_eval(&job->scope, node->c, &holds));
        if (chat_value_true(&holds))
            chosen[count++] = list->as.list[i];
        job->scope.first = outside;
    }
    list->as.list = chosen;
    list->count = count;
    return ERR_OK;
}

static enum err chat_render_for(struct chat_render_job *job,
                                const struct chat_node *node)
{
    struct chat_field *outside = job->scope.first;
    const struct chat_field *outer = job->outer;
    struct chat_value list;
    TRY(chat_eval(&job->scope, node->a, &list));
    if (list.kind == CHAT_VALUE_UNDEFINED)
        return ERR_OK;
    if (list.kind != CHAT_VALUE_LIST)
        return err_set(ERR_DATA, "line %d: 'for' over %s is not known here",
                       node->line, chat_value_name(&list));
    if (node->c != NULL)
        TRY(chat_render_choose(job, node, &list));
    for (size_t i = 0; i < list.count; i++) {
        job->outer = outside;
        TRY(chat_render_loop(job, &list, i));
        TRY(chat_render_define(job, node->text, node->bytes, list.as.list[i]));
        TRY(chat_render_body(job, node->b));
        job->scope.first = outside;
    }
    job->outer = outer;
    return ERR_OK;
}

static enum err chat_render_print(struct chat_render_job *job,
                                  const struct chat_node *node)
{
    struct chat_value value;
    TRY(chat_eval(&job->scope, node->a, &value));
    if (chat_value_text(job->memory, &value, &value) != ERR_OK)
        return err_prefix(ERR_DATA, "line %d", node->line);
    return chat_render_put(job, value.as.text, value.count);
}

static enum err chat_render_body(struct chat_render_job *job,
                                 const struct chat_node *body)
{
    for (const struct chat_node *node = body; node != NULL; node = node->next) {
        struct chat_value truth;
        TRY(chat_value_work(job->memory, 0));
        switch (node->kind) {
        case CHAT_NODE_DATA:
            TRY(chat_render_put(job, node->text, node->bytes));
            break;
        case CHAT_NODE_PRINT:
            TRY(chat_render_print(job, node));
            break;
        case CHAT_NODE_IF:
            TRY(chat_eval(&job->scope, node->a, &truth));
            TRY(chat_render_body(job,
                                 chat_value_true(&truth) ? node->b : node->c));
            break;
        case CHAT_NODE_FOR:
            TRY(chat_render_for(job, node));
            break;
        default:
            assert(node->kind == CHAT_NODE_SET);
            TRY(chat_render_set(job, node));
        }
    }
    return ERR_OK;
}

static enum err chat_render_messages(struct chat_render_job *job,
                                     const struct chat_render_input *input)
{
    void *room = NULL;
    TRY(chat_value_room(job->memory, input->count * sizeof(struct chat_value),
                        &room));
    struct chat_value *list = room;
    for (size_t m = 0; m < input->count; m++) {
        const struct chat_message *message = &input->messages[m];
        list[m] = (struct chat_value){ .kind = CHAT_VALUE_RECORD };
        TRY(chat_value_add_field(
            job->memory, &list[m], "content", 7,
            chat_value_string(message->content, message->bytes)));
        TRY(chat_value_add_field(
            job->memory, &list[m], "role", 4,
            chat_value_string(message->role, strlen(message->role))));
    }
    return chat_render_define(job, "messages", 8,
                              (struct chat_value){ .kind = CHAT_VALUE_LIST,
                                                   .as.list = list,
                                                   .count = input->count });
}

static enum err chat_render_all(struct chat_render_job *job,
                                const struct chat_tree *tree,
                                const struct chat_render_input *input)
{
    TRY(chat_render_put(job, "", 0));
    if (input->bos != NULL)
        TRY(chat_render_define(
            job, "bos_token", 9,
            chat_value_string(input->bos, input->bos_bytes)));
    if (input->eos != NULL)
        TRY(chat_render_define(
            job, "eos_token", 9,
            chat_value_string(input->eos, input->eos_bytes)));
    TRY(chat_render_define(job, "add_generation_prompt", 21,
                           chat_value_boolean(input->add_generation_prompt)));
    TRY(chat_render_messages(job, input));
    return chat_render_body(job, tree->body);
}

enum err chat_render_tree(const struct chat_tree *tree,
                          const struct chat_render_input *input,
                          struct chat_memory *memory, struct chat_text *out)
{
    struct chat_render_job job = { memory, { memory, NULL }, NULL, out };
    out->bytes = 0;
    enum err rc = chat_render_all(&job, tree, input);
    chat_value_release(memory);
    return rc;
}
