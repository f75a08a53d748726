/* Operators and items. Functions are in chat_eval_call.c, tests in
 * chat_eval_text.c.
 *
 * The tree is walked as it stands: a node evaluates its parts, then itself.
 * Anything faster would not be worth it, as a template has a hundred nodes and
 * a conversation a few messages; what takes time is copying text.
 *
 * Jinja makes Python of a template, so most rules are Python's: what is empty,
 * 0, or none is false; `and` and `or` give one of their sides, not a truth
 * value; // and % round down, so that -1 // 2 is -1; an index below 0 counts
 * from the end; True equals 1. Where Jinja departs from Python templates rely
 * on it:
 *   a.b       is also a['b'], so that a message's fields are read either way;
 *   x         that nobody has set is "undefined", which prints as nothing, is
 *             false and has no items; only to ask something of it is an error,
 *             so {{ a.b }} may lack b, but {{ a.b.c }} may not;
 *   a ~ b     joins whatever can be printed, where + takes two of a kind
 *             (https://jinja.palletsprojects.com/templates).
 * There are no floats and none of Python's dates; a template that reaches one
 * is refused, rather than answered with something that is nearly right. */
#include "src/text/chat/chat_eval.h"

#include <assert.h>
#include <string.h>

/* From the innermost frame outwards. Frames have a handful of variables, which
 * are sooner gone through than any table of them is made. */
enum err chat_eval_variable(struct chat_scope *scope, const char *name,
                            size_t bytes, struct chat_value *out)
{
    assert(name != NULL && out != NULL);
    size_t steps = 0;
    *out = (struct chat_value){ 0 };
    for (const struct chat_frame *frame = scope->frame; frame != NULL;
         frame = frame->outer)
        for (const struct chat_field *field = frame->own.as.record;
             field != NULL; field = field->next, steps++)
            if (field->bytes == bytes &&
                memcmp(field->name, name, bytes) == 0) {
                *out = field->value;
                return chat_value_work(scope->memory, steps);
            }
    return chat_value_work(scope->memory, steps);
}

enum err chat_eval_printed(struct chat_scope *scope,
                           const struct chat_node *node,
                           const struct chat_value *value,
                           struct chat_value *out)
{
    assert(node != NULL);
    return err_prefix(chat_value_text(scope->memory, value, out), "line %d",
                      node->line);
}

static enum err chat_eval_items_of(struct chat_scope *scope,
                                   const struct chat_node *node,
                                   struct chat_value *out)
{
    size_t count = 0;
    for (struct chat_node *item = node->a; item != NULL; item = item->next)
        count++;
    struct chat_value all;
    TRY(chat_value_list(scope->memory, count, &all));
    all.tuple = node->value != 0;
    count = 0;
    for (struct chat_node *item = node->a; item != NULL; item = item->next)
        TRY(chat_eval(scope, item->a, &all.as.list[count++]));
    *out = all;
    return ERR_OK;
}

static enum err chat_eval_dict(struct chat_scope *scope,
                               const struct chat_node *node,
                               struct chat_value *out)
{
    struct chat_value record = { .kind = CHAT_VALUE_RECORD }, key, value;
    for (struct chat_node *item = node->a; item != NULL;
         item = item->next->next) {
        TRY(chat_eval(scope, item->a, &key));
        TRY(chat_eval(scope, item->next->a, &value));
        TRY(err_prefix(chat_value_key(scope->memory, &key, &key), "line %d",
                       node->line));
        TRY(chat_value_set_field(scope->memory, &record, key.as.text, key.count,
                                 value));
    }
    *out = record;
    return ERR_OK;
}

static enum err chat_eval_undefined(const struct chat_node *of, int line)
{
    if (of->kind == CHAT_NODE_NAME || of->kind == CHAT_NODE_ATTRIBUTE)
        return err_set(ERR_DATA, "line %d: '%.*s' is not defined", line,
                       of->bytes < 40 ? (int)of->bytes : 40, of->text);
    return err_set(ERR_DATA, "line %d: something of what is not defined", line);
}

static enum err chat_eval_attribute(struct chat_scope *scope,
                                    const struct chat_node *node,
                                    struct chat_value *out)
{
    struct chat_value of;
    TRY(chat_eval(scope, node->a, &of));
    if (of.kind == CHAT_VALUE_UNDEFINED)
        return chat_eval_undefined(node->a, node->line);
    const struct chat_field *field =
        chat_value_field(&of, node->text, node->bytes);
    *out = field != NULL ? field->value : (struct chat_value){ 0 };
    return ERR_OK;
}

static enum err chat_eval_item(struct chat_scope *scope,
                               const struct chat_node *node,
                               struct chat_value *out)
{
    struct chat_value of, key;
    TRY(chat_eval(scope, node->a, &of));
    TRY(chat_eval(scope, node->b, &key));
    *out = (struct chat_value){ 0 };
    if (of.kind == CHAT_VALUE_UNDEFINED)
        return chat_eval_undefined(node->a, node->line);
    if (key.kind == CHAT_VALUE_INTEGER && of.kind == CHAT_VALUE_RECORD)
        TRY(chat_value_key(scope->memory, &key, &key));
    if (key.kind == CHAT_VALUE_STRING) { /* others have no items of a name */
        const struct chat_field *field =
            chat_value_field(&of, key.as.text, key.count);
        if (field != NULL)
            *out = field->value;
        return chat_value_work(scope->memory, key.count);
    }
    if (of.kind == CHAT_VALUE_STRING && key.kind == CHAT_VALUE_INTEGER)
        TRY(chat_eval_iterate(scope, node->line, &of, &of));
    if (of.kind == CHAT_VALUE_LIST && key.kind == CHAT_VALUE_INTEGER) {
        int64_t index = key.as.integer;
        index += index < 0 ? (int64_t)of.count : 0;
        if (index >= 0 && index < (int64_t)of.count)
            *out = of.as.list[index];
        return ERR_OK;
    }
    if (of.kind == CHAT_VALUE_RECORD || of.kind == CHAT_VALUE_NONE)
        return ERR_OK;
    return err_set(ERR_DATA, "line %d: %s[%s] is not known here", node->line,
                   chat_value_name(&of), chat_value_name(&key));
}

/* A bound of a slice within [low, high]; a missing one is `otherwise`. */
static enum err chat_eval_bound(struct chat_scope *scope,
                                const struct chat_node *node, int64_t count,
                                int64_t otherwise, int64_t low, int64_t high,
                                int64_t *out)
{
    struct chat_value value;
    *out = otherwise;
    if (node == NULL)
        return ERR_OK;
    TRY(chat_eval(scope, node, &value));
    if (value.kind == CHAT_VALUE_NONE)
        return ERR_OK;
    if (value.kind != CHAT_VALUE_INTEGER)
        return err_set(ERR_DATA, "line %d: %s as a bound", node->line,
                       chat_value_name(&value));
    int64_t at = value.as.integer;
    at += at < 0 ? count : 0;
    *out = at < low ? low : at > high ? high : at;
    return ERR_OK;
}

/* As in Python bounds that are beyond an end mean that end, and never fail. A
 * step below 0 goes backwards, for which the missing bounds are the other ends.
 * Texts are divided by characters, so they become lists of them first. */
static enum err chat_eval_slice(struct chat_scope *scope,
                                const struct chat_node *node,
                                struct chat_value *out)
{
    struct chat_value of, step = chat_value_integer(1), found;
    int64_t from = 0, to = 0;
    TRY(chat_eval(scope, node->a, &of));
    if (node->d != NULL)
        TRY(chat_eval(scope, node->d, &step));
    bool text = of.kind == CHAT_VALUE_STRING;
    bool known = step.kind == CHAT_VALUE_INTEGER && step.as.integer != 0 &&
                 step.as.integer >= -INT32_MAX && step.as.integer <= INT32_MAX;
    if ((of.kind != CHAT_VALUE_LIST && !text) || !known)
        return err_set(ERR_DATA, "line %d: no [from:to] of %s", node->line,
                       chat_value_name(&of));
    if (text)
        TRY(chat_eval_iterate(scope, node->line, &of, &of));
    bool back = step.as.integer < 0;
    int64_t by = step.as.integer, count = (int64_t)of.count;
    int64_t low = back ? -1 : 0, high = back ? count - 1 : count;
    TRY(chat_eval_bound(scope, node->b, count, back ? high : low, low, high,
                        &from));
    TRY(chat_eval_bound(scope, node->c, count, back ? low : high, low, high,
                        &to));
    int64_t size = back ? from - to : to - from, pace = back ? -by : by;
    size = size <= 0 ? 0 : (size + pace - 1) / pace;
    TRY(chat_value_list(scope->memory, (size_t)size, &found));
    found.tuple = of.tuple;
    for (int64_t i = 0; i < size; i++)
        found.as.list[i] = of.as.list[from + i * by];
    *out = found;
    return text ? chat_eval_apply(scope, node, chat_eval_join, 0, found,
                                  (struct chat_value){ 0 }, out)
                : ERR_OK;
}

/* A part of a text, an item of a list, a key of a dictionary; nothing is in
 * what is undefined, so that "'x' in message.y" may be asked where there is no
 * y. */
static enum err chat_eval_in(struct chat_memory *memory,
                             const struct chat_node *node,
                             const struct chat_value *item,
                             const struct chat_value *of,
                             struct chat_value *out)
{
    bool found = false;
    if (of->kind == CHAT_VALUE_STRING && item->kind == CHAT_VALUE_STRING) {
        found = item->count == 0 || memmem(of->as.text, of->count,
                                           item->as.text, item->count) != NULL;
    } else if (of->kind == CHAT_VALUE_LIST) {
        for (size_t i = 0; i < of->count && !found; i++)
            TRY(chat_value_equal(memory, item, &of->as.list[i], &found));
    } else if (of->kind == CHAT_VALUE_RECORD) {
        struct chat_value key = { 0 };
        if (item->kind == CHAT_VALUE_STRING || item->kind == CHAT_VALUE_INTEGER)
            TRY(chat_value_key(memory, item, &key));
        found = key.kind == CHAT_VALUE_STRING &&
                chat_value_field(of, key.as.text, key.count) != NULL;
    } else if (of->kind != CHAT_VALUE_UNDEFINED) {
        return err_set(ERR_DATA, "line %d: %s in %s", node->line,
                       chat_value_name(item), chat_value_name(of));
    }
    *out = chat_value_boolean(found);
    return ERR_OK;
}

static enum err chat_eval_number(const struct chat_node *node, char sign,
                                 int64_t a, int64_t b, struct chat_value *out)
{
    int64_t value = 0;
    bool wrong = sign == '+'   ? __builtin_add_overflow(a, b, &value)
                 : sign == '-' ? __builtin_sub_overflow(a, b, &value)
                 : sign == '*' ? __builtin_mul_overflow(a, b, &value)
                               : b == 0 || (b == -1 && a == INT64_MIN);
    if (wrong)
        return err_set(ERR_DATA, "line %d: a number without a value",
                       node->line);
    if (sign == '%') /* has the sign of b */
        value = a % b != 0 && (a < 0) != (b < 0) ? a % b + b : a % b;
    if (sign == '/')
        value = a / b - (a % b != 0 && (a < 0) != (b < 0));
    *out = chat_value_integer(value);
    return ERR_OK;
}

enum err chat_eval_order(int line, const struct chat_value *a,
                         const struct chat_value *b, int *out)
{
    if (a->kind == CHAT_VALUE_STRING && b->kind == CHAT_VALUE_STRING) {
        size_t both = a->count < b->count ? a->count : b->count;
        int order = both > 0 ? memcmp(a->as.text, b->as.text, both) : 0;
        *out =
            order != 0 ? order : (a->count > b->count) - (a->count < b->count);
        return ERR_OK;
    }
    if ((a->kind != CHAT_VALUE_INTEGER && a->kind != CHAT_VALUE_BOOLEAN) ||
        (b->kind != CHAT_VALUE_INTEGER && b->kind != CHAT_VALUE_BOOLEAN))
        return err_set(ERR_DATA, "line %d: %s is not compared with %s", line,
                       chat_value_name(a), chat_value_name(b));
    *out = (a->as.integer > b->as.integer) - (a->as.integer < b->as.integer);
    return ERR_OK;
}

static enum err chat_eval_compare(struct chat_scope *scope,
                                  const struct chat_node *node,
                                  const struct chat_value *a,
                                  const struct chat_value *b,
                                  struct chat_value *out)
{
    const char *sign = node->text;
    if (*sign == '=' || *sign == '!') {
        bool equal = false;
        TRY(err_prefix(chat_value_equal(scope->memory, a, b, &equal), "line %d",
                       node->line));
        *out = chat_value_boolean(equal == (*sign == '='));
        return ERR_OK;
    }
    int order = 0;
    TRY(chat_value_work(scope->memory, a->count));
    TRY(chat_eval_order(node->line, a, b, &order));
    bool equal = node->bytes == 2 && order == 0;
    *out = chat_value_boolean(equal || (*sign == '<' ? order < 0 : order > 0));
    return ERR_OK;
}

/* What + makes of lists and * of a text. */
static enum err chat_eval_repeat(struct chat_scope *scope,
                                 const struct chat_node *node,
                                 const struct chat_value *a,
                                 const struct chat_value *b,
                                 struct chat_value *out)
{
    char sign = *node->text;
    void *room = NULL;
    if (sign == '+' && a->kind == CHAT_VALUE_LIST &&
        b->kind == CHAT_VALUE_LIST && a->tuple == b->tuple) {
        struct chat_value both;
        TRY(chat_value_list(scope->memory, a->count + b->count, &both));
        for (size_t i = 0; i < both.count; i++)
            both.as.list[i] =
                i < a->count ? a->as.list[i] : b->as.list[i - a->count];
        both.tuple = a->tuple;
        *out = both;
        return ERR_OK;
    }
    if (sign != '*' || node->bytes != 1 || a->kind != CHAT_VALUE_STRING ||
        b->kind != CHAT_VALUE_INTEGER)
        return err_set(ERR_DATA, "line %d: %s %.*s %s is not known here",
                       node->line, chat_value_name(a), (int)node->bytes,
                       node->text, chat_value_name(b));
    size_t times = b->as.integer > 0 ? (size_t)b->as.integer : 0;
    if (a->count > 0 && times > CHAT_VALUE_BYTES_MAX / a->count)
        return err_set(ERR_DATA, "line %d: '*' makes too much text",
                       node->line);
    times = a->count > 0 ? times : 0;
    TRY(chat_value_room(scope->memory, times * a->count, &room));
    for (size_t i = 0; i < times; i++)
        memcpy((char *)room + i * a->count, a->as.text, a->count);
    *out = chat_value_string(room, times * a->count);
    return ERR_OK;
}

static enum err chat_eval_binary(struct chat_scope *scope,
                                 const struct chat_node *node,
                                 struct chat_value *out)
{
    struct chat_value a, b;
    TRY(chat_eval(scope, node->a, &a));
    TRY(chat_eval(scope, node->b, &b));
    char sign = *node->text;
    if (sign == 'i') {
        TRY(chat_value_work(scope->memory, b.count));
        return chat_eval_in(scope->memory, node, &a, &b, out);
    }
    if (sign == '=' || sign == '!' || sign == '<' || sign == '>')
        return chat_eval_compare(scope, node, &a, &b, out);
    if (sign == '~') {
        TRY(chat_eval_printed(scope, node, &a, &a));
        TRY(chat_eval_printed(scope, node, &b, &b));
        return chat_value_join(scope->memory, &a, &b, out);
    }
    if (sign == '+' && a.kind == CHAT_VALUE_STRING &&
        b.kind == CHAT_VALUE_STRING)
        return chat_value_join(scope->memory, &a, &b, out);
    bool known = strchr("+-%", sign) != NULL ||
                 (sign == '*' && node->bytes == 1) ||
                 (sign == '/' && node->bytes == 2);
    if (known && a.kind == CHAT_VALUE_INTEGER && b.kind == CHAT_VALUE_INTEGER)
        return chat_eval_number(node, sign, a.as.integer, b.as.integer, out);
    return chat_eval_repeat(scope, node, &a, &b, out);
}

/* The second side is not evaluated where the first one decides: templates write
 * "x is defined and x.y". */
static enum err chat_eval_logic(struct chat_scope *scope,
                                const struct chat_node *node,
                                struct chat_value *out)
{
    struct chat_value truth;
    switch (node->kind) {
    case CHAT_NODE_AND:
    case CHAT_NODE_OR:
        TRY(chat_eval(scope, node->a, out));
        return chat_value_true(out) == (node->kind == CHAT_NODE_AND)
                   ? chat_eval(scope, node->b, out)
                   : ERR_OK;
    case CHAT_NODE_NOT:
        TRY(chat_eval(scope, node->a, &truth));
        *out = chat_value_boolean(!chat_value_true(&truth));
        return ERR_OK;
    default:
        assert(node->kind == CHAT_NODE_CONDITIONAL);
        TRY(chat_eval(scope, node->b, &truth));
        *out = (struct chat_value){ 0 };
        return chat_value_true(&truth) ? chat_eval(scope, node->a, out)
               : node->c != NULL       ? chat_eval(scope, node->c, out)
                                       : ERR_OK;
    }
}

static enum err chat_eval_minus(struct chat_scope *scope,
                                const struct chat_node *node,
                                struct chat_value *out)
{
    TRY(chat_eval(scope, node->a, out));
    if (out->kind != CHAT_VALUE_INTEGER)
        return err_set(ERR_DATA, "line %d: -%s", node->line,
                       chat_value_name(out));
    return chat_eval_number(node, '-', 0, out->as.integer, out);
}

static enum err chat_eval_node(struct chat_scope *scope,
                               const struct chat_node *node,
                               struct chat_value *out)
{
    switch (node->kind) {
    case CHAT_NODE_NAME:
        TRY(chat_eval_variable(scope, node->text, node->bytes, out));
        if (out->kind == CHAT_VALUE_UNDEFINED &&
            chat_eval_is_function(node->text, node->bytes))
            *out = (struct chat_value){ .kind = CHAT_VALUE_MACRO };
        return ERR_OK;
    case CHAT_NODE_STRING:
        *out = chat_value_string(node->text, node->bytes);
        return ERR_OK;
    case CHAT_NODE_INTEGER:
        *out = chat_value_integer(node->value);
        return ERR_OK;
    case CHAT_NODE_REAL:
        return err_set(ERR_DATA,
                       "line %d: the number %.*s: only whole decimal ones are "
                       "known here",
                       node->line, node->bytes < 40 ? (int)node->bytes : 40,
                       node->text);
    case CHAT_NODE_BOOLEAN:
        *out = chat_value_boolean(node->value != 0);
        return ERR_OK;
    case CHAT_NODE_NONE:
        *out = (struct chat_value){ .kind = CHAT_VALUE_NONE };
        return ERR_OK;
    case CHAT_NODE_LIST:
        return chat_eval_items_of(scope, node, out);
    case CHAT_NODE_DICT:
        return chat_eval_dict(scope, node, out);
    case CHAT_NODE_CAPTURE:
        return chat_render_capture(scope, node->b, out);
    case CHAT_NODE_ITEM:
        return chat_eval_item(scope, node, out);
    case CHAT_NODE_ATTRIBUTE:
        return chat_eval_attribute(scope, node, out);
    case CHAT_NODE_SLICE:
        return chat_eval_slice(scope, node, out);
    case CHAT_NODE_CALL:
        return chat_eval_call(scope, node, out);
    case CHAT_NODE_FILTER:
        return chat_eval_filter(scope, node, out);
    case CHAT_NODE_TEST:
        return chat_eval_test(scope, node, out);
    case CHAT_NODE_MINUS:
        return chat_eval_minus(scope, node, out);
    case CHAT_NODE_BINARY:
        return chat_eval_binary(scope, node, out);
    default:
        return chat_eval_logic(scope, node, out);
    }
}

enum err chat_eval(struct chat_scope *scope, const struct chat_node *node,
                   struct chat_value *out)
{
    TRY(chat_value_work(scope->memory, 0));
    TRY(chat_value_call(scope->memory));
    enum err rc = chat_eval_node(scope, node, out);
    scope->memory->calls--;
    return rc;
}
