/* Runs a template's statements over a conversation. A `for` has variables of
 * its own, anew for each item, as in Jinja, and so has a macro; an `if` has
 * not.
 *
 * Variables lie in frames, from the innermost outwards. A name is looked up
 * through all of them, but `set` writes into the innermost alone, whatever the
 * outer ones have of that name. That is Jinja's rule and the one that is met
 * most often: a variable that is set in a loop has its old value behind it, and
 * the next turn does not see it either. Python's loops have no frame of their
 * own.
 *
 * Statements write to job->out. A block that is a value ({% set x %}, a macro,
 * a filter) has a text of its own for that time (chat_render_capture()). What a
 * {% generation %} block writes is the assistant's, and its place in the text
 * is noted; within such a text it has none, so it is refused there.
 *
 * `break` and `continue` leave blocks without an error: a note in the job stops
 * every body that is being run, up to the loop, which takes the note away. */
#include "src/text/chat/chat_impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/text/chat/chat_eval.h"

enum render_leaves { RENDER_GOES_ON, RENDER_BREAKS, RENDER_CONTINUES };

struct chat_render_job {
    struct chat_memory *memory;
    struct chat_scope scope;
    struct chat_text *out;
    struct chat_turn *turns; /* where blocks of generation are written; NULL */
    size_t turn_count, turns_most;
    int captures; /* that are going on, whose places are not known */
    enum render_leaves leaves; /* a loop */
};

static enum err chat_render_body(struct chat_render_job *job,
                                 const struct chat_node *body);

static enum err chat_render_put(struct chat_render_job *job, const char *text,
                                size_t bytes)
{
    struct chat_text *out = job->out;
    TRY(chat_value_work(job->memory, bytes));
    if (bytes > CHAT_VALUE_BYTES_MAX - out->bytes)
        return err_set(ERR_DATA,
                       "the conversation is too long: more than "
                       "%zu MiB of text",
                       CHAT_VALUE_BYTES_MAX >> 20);
    TRY(array_room(&out->text, &out->capacity, out->bytes + bytes + 1));
    memcpy(out->text + out->bytes, text, bytes);
    out->bytes += bytes;
    out->text[out->bytes] = '\0';
    return ERR_OK;
}

/* A variable of the block that is being run. */
static enum err chat_render_define(struct chat_render_job *job,
                                   const char *name, size_t bytes,
                                   struct chat_value value)
{
    struct chat_value *own = &job->scope.frame->own;
    struct chat_field *field = chat_value_field(own, name, bytes);
    if (field == NULL)
        return chat_value_add_field(job->memory, own, name, bytes, value);
    field->value = value;
    return ERR_OK;
}

static enum err chat_render_set(struct chat_render_job *job,
                                const struct chat_node *node)
{
    struct chat_value value, of;
    TRY(chat_eval(&job->scope, node->a, &value));
    if (node->b == NULL)
        return chat_render_define(job, node->text, node->bytes, value);
    TRY(chat_eval_variable(&job->scope, node->text, node->bytes, &of));
    if (!of.may_change)
        return err_set(ERR_DATA,
                       "line %d: only fields of a namespace() are set",
                       node->line);
    return chat_value_set_field(job->memory, &of, node->b->text, node->b->bytes,
                                value);
}

/* The variables of a loop: one, or as many as the item has parts. */
static enum err chat_render_unpack(struct chat_render_job *job,
                                   const struct chat_node *node,
                                   const struct chat_value *item)
{
    const struct chat_node *name = node->d;
    size_t i = 0;
    if (name->next == NULL)
        return chat_render_define(job, name->text, name->bytes, *item);
    for (; name != NULL; name = name->next, i++) {
        if (item->kind != CHAT_VALUE_LIST || i >= item->count)
            break;
        TRY(chat_render_define(job, name->text, name->bytes, item->as.list[i]));
    }
    if (name == NULL && i == item->count)
        return ERR_OK;
    return err_set(ERR_DATA, "line %d: %s has not as many parts as variables",
                   node->line, chat_value_name(item));
}

/* `loop` of item i of the list. Fields go in front of those before them, so what
 * templates ask for most is found first. */
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

/* A frame of variables within the present one. Leaving it is to point to the one
 * around it again: its memory goes with the arena. */
static enum err chat_render_enter(struct chat_render_job *job)
{
    void *room = NULL;
    TRY(chat_value_room(job->memory, sizeof(struct chat_frame), &room));
    *(struct chat_frame *)room =
        (struct chat_frame){ { .kind = CHAT_VALUE_RECORD }, job->scope.frame };
    job->scope.frame = room;
    return ERR_OK;
}

/* The items for which the loop's own condition holds. */
static enum err chat_render_choose(struct chat_render_job *job,
                                   const struct chat_node *node,
                                   struct chat_value *list)
{
    struct chat_frame *outside = job->scope.frame;
    struct chat_value holds, chosen;
    size_t count = 0;
    TRY(chat_value_list(job->memory, list->count, &chosen));
    for (size_t i = 0; i < list->count; i++) {
        TRY(chat_render_enter(job));
        TRY(chat_render_unpack(job, node, &list->as.list[i]));
        TRY(chat_eval(&job->scope, node->c, &holds));
        if (chat_value_true(&holds))
            chosen.as.list[count++] = list->as.list[i];
        job->scope.frame = outside;
    }
    chosen.count = count;
    *list = chosen;
    return ERR_OK;
}

/* The list is made once, before the first turn, so that `loop` can tell the
 * last item and the next one. `else` is for a list that is empty; Python's runs
 * after every loop that was not left by break. */
static enum err chat_render_for(struct chat_render_job *job,
                                const struct chat_node *node)
{
    struct chat_frame *outside = job->scope.frame;
    struct chat_value list;
    TRY(chat_eval(&job->scope, node->a, &list));
    TRY(chat_eval_iterate(&job->scope, node->line, &list, &list));
    if (node->c != NULL)
        TRY(chat_render_choose(job, node, &list));
    for (size_t i = 0; i < list.count; i++) {
        TRY(chat_render_enter(job));
        TRY(chat_render_loop(job, &list, i));
        TRY(chat_render_unpack(job, node, &list.as.list[i]));
        TRY(chat_render_body(job, node->b));
        job->scope.frame = outside;
        bool ends = job->leaves == RENDER_BREAKS;
        job->leaves = RENDER_GOES_ON;
        if (ends)
            break;
    }
    return list.count > 0 ? ERR_OK : chat_render_body(job, node->other);
}

static enum err chat_render_macro(struct chat_render_job *job,
                                  const struct chat_node *node)
{
    void *room = NULL;
    TRY(chat_value_room(job->memory, sizeof(struct chat_macro), &room));
    *(struct chat_macro *)room =
        (struct chat_macro){ .node = node, .frame = job->scope.frame };
    return chat_render_define(
        job, node->text, node->bytes,
        (struct chat_value){ .kind = CHAT_VALUE_MACRO, .as.macro = room });
}

/* What the assistant says, whose place is noted. */
static enum err chat_render_generation(struct chat_render_job *job,
                                       const struct chat_node *node)
{
    size_t begin = job->out->bytes;
    TRY(chat_render_body(job, node->b));
    if (job->turns == NULL)
        return ERR_OK;
    if (job->captures > 0 || job->turn_count == job->turns_most)
        return err_set(ERR_DATA,
                       "line %d: a generation block in a macro, or more of "
                       "them than messages, is not known here",
                       node->line);
    job->turns[job->turn_count++] =
        (struct chat_turn){ begin, job->out->bytes };
    return ERR_OK;
}

enum err chat_render_capture(struct chat_scope *scope,
                             const struct chat_node *body,
                             struct chat_value *out)
{
    assert(scope->job != NULL && out != NULL);
    struct chat_render_job *job = scope->job;
    struct chat_text text = { 0 }, *outside = job->out;
    struct chat_frame *frame = job->scope.frame;
    enum render_leaves leaves = job->leaves;
    void *room = NULL;
    job->out = &text;
    job->scope.frame = scope->frame;
    job->leaves = RENDER_GOES_ON;
    job->captures++;
    enum err rc = chat_render_body(job, body);
    job->captures--;
    job->leaves = leaves;
    job->scope.frame = frame;
    job->out = outside;
    if (rc == ERR_OK)
        rc = chat_value_room(job->memory, text.bytes, &room);
    if (rc == ERR_OK && text.bytes > 0)
        memcpy(room, text.text, text.bytes);
    free(text.text);
    *out = chat_value_string(room, text.bytes);
    return rc;
}

static enum err chat_render_print(struct chat_render_job *job,
                                  const struct chat_node *node)
{
    struct chat_value value;
    TRY(chat_eval(&job->scope, node->a, &value));
    TRY(chat_eval_printed(&job->scope, node, &value, &value));
    return chat_render_put(job, value.as.text, value.count);
}

static enum err chat_render_statement(struct chat_render_job *job,
                                      const struct chat_node *node)
{
    struct chat_value truth;
    switch (node->kind) {
    case CHAT_NODE_DATA:
        return chat_render_put(job, node->text, node->bytes);
    case CHAT_NODE_PRINT:
        return chat_render_print(job, node);
    case CHAT_NODE_IF:
        TRY(chat_eval(&job->scope, node->a, &truth));
        return chat_render_body(job,
                                chat_value_true(&truth) ? node->b : node->c);
    case CHAT_NODE_FOR:
        return chat_render_for(job, node);
    case CHAT_NODE_MACRO:
        return chat_render_macro(job, node);
    case CHAT_NODE_GENERATION:
        return chat_render_generation(job, node);
    case CHAT_NODE_LEAVE:
        job->leaves = node->value != 0 ? RENDER_CONTINUES : RENDER_BREAKS;
        return ERR_OK;
    default:
        assert(node->kind == CHAT_NODE_SET);
        return chat_render_set(job, node);
    }
}

static enum err chat_render_body(struct chat_render_job *job,
                                 const struct chat_node *body)
{
    TRY(chat_value_call(job->memory));
    for (const struct chat_node *node = body;
         node != NULL && job->leaves == RENDER_GOES_ON; node = node->next) {
        TRY(chat_value_work(job->memory, 0));
        TRY(chat_render_statement(job, node));
    }
    job->memory->calls--;
    return ERR_OK;
}

/* What a template finds. The Hugging Face library hands over none where there
 * are no tools and documents. */
static enum err chat_render_variables(struct chat_render_job *job,
                                      const struct chat_template *template,
                                      const struct chat_message *messages,
                                      size_t count, bool prompt)
{
    const struct chat_value none = { .kind = CHAT_VALUE_NONE };
    struct chat_value list;
    TRY(chat_value_list(job->memory, count, &list));
    for (size_t m = 0; m < count; m++) {
        const struct chat_message *message = &messages[m];
        struct chat_value *record = &list.as.list[m];
        *record = (struct chat_value){ .kind = CHAT_VALUE_RECORD };
        TRY(chat_value_add_field(
            job->memory, record, "content", 7,
            chat_value_string(message->content, message->bytes)));
        TRY(chat_value_add_field(
            job->memory, record, "role", 4,
            chat_value_string(message->role, strlen(message->role))));
    }
    const struct {
        const char *name;
        struct chat_value value;
    } variables[] = {
        { "bos_token", template->bos },
        { "eos_token", template->eos },
        { "tools", none },
        { "documents", none },
        { "add_generation_prompt", chat_value_boolean(prompt) },
        { "messages", list },
    };
    for (size_t v = 0; v < sizeof variables / sizeof *variables; v++)
        TRY(chat_render_define(job, variables[v].name,
                               strlen(variables[v].name), variables[v].value));
    return ERR_OK;
}

enum err chat_render_turns(const struct chat_template *template,
                           const struct chat_message *messages, size_t count,
                           bool prompt, struct chat_memory *memory,
                           struct chat_text *out, struct chat_turn *turns,
                           size_t *turn_count)
{
    enum err rc = ERR_OK;
    assert(template->name != NULL && (messages != NULL || count == 0));
    struct chat_frame frame = { .own.kind = CHAT_VALUE_RECORD };
    struct chat_render_job job = { .memory = memory,
                                   .scope = { memory, &frame, NULL },
                                   .out = out,
                                   .turns = turns,
                                   .turns_most = count };
    job.scope.job = &job;
    out->bytes = 0;
    TRY_OUT(chat_render_put(&job, "", 0));
    TRY_OUT(chat_render_variables(&job, template, messages, count, prompt));
    TRY_OUT(chat_render_body(&job, template->tree.body));
out:
    if (turn_count != NULL)
        *turn_count = job.turn_count;
    chat_value_release(memory);
    return rc == ERR_OK ? rc
                        : err_prefix(rc, "chat template %s", template->name);
}
