/* Operators, items and tests. Functions are in chat_eval_call.c. */
#include "src/text/chat_eval.h"

#include <assert.h>
#include <string.h>

static enum err chat_eval_name(struct chat_scope *scope,
                               const struct chat_node *node,
                               struct chat_value *out)
{
    *out = (struct chat_value){ 0 };
    size_t steps = 0;
    for (struct chat_field *field = scope->first; field != NULL;
         field = field->next, steps++)
        if (field->bytes == node->bytes &&
            memcmp(field->name, node->text, node->bytes) == 0) {
            *out = field->value;
            break;
        }
    return chat_value_work(scope->memory, steps);
}

static enum err chat_eval_list(struct chat_scope *scope,
                               const struct chat_node *node,
                               struct chat_value *out)
{
    size_t count = 0;
    void *room = NULL;
    for (struct chat_node *item = node->a; item != NULL; item = item->next)
        count++;
    TRY(chat_value_room(scope->memory, count * sizeof(struct chat_value),
                        &room));
    struct chat_value *list = room;
    for (struct chat_node *item = node->a; item != NULL; item = item->next)
        TRY(chat_eval(scope, item->a, list++));
    *out = (struct chat_value){ .kind = CHAT_VALUE_LIST,
                                .as.list = room,
                                .count = count };
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
    if (of.kind == CHAT_VALUE_RECORD && key.kind == CHAT_VALUE_STRING) {
        const struct chat_field *field =
            chat_value_field(&of, key.as.text, key.count);
        if (field != NULL)
            *out = field->value;
        return ERR_OK;
    }
    if (of.kind == CHAT_VALUE_LIST && key.kind == CHAT_VALUE_INTEGER) {
        int64_t index = key.as.integer;
        index += index < 0 ? (int64_t)of.count : 0;
        if (index >= 0 && index < (int64_t)of.count)
            *out = of.as.list[index];
        return ERR_OK;
    }
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

static enum err chat_eval_slice(struct chat_scope *scope,
                                const struct chat_node *node,
                                struct chat_value *out)
{
    struct chat_value of, step = chat_value_integer(1);
    int64_t from = 0, to = 0;
    void *room = NULL;
    TRY(chat_eval(scope, node->a, &of));
    if (node->d != NULL)
        TRY(chat_eval(scope, node->d, &step));
    bool back = step.kind == CHAT_VALUE_INTEGER && step.as.integer == -1;
    if (of.kind != CHAT_VALUE_LIST ||
        (!back && !(step.kind == CHAT_VALUE_INTEGER && step.as.integer == 1)))
        return err_set(ERR_DATA,
                       "line %d: only lists have [from:to] here, with steps of "
                       "1 or -1",
                       node->line);
    int64_t count = (int64_t)of.count, low = back ? -1 : 0;
    int64_t high = back ? count - 1 : count;
    TRY(chat_eval_bound(scope, node->b, count, back ? high : low, low, high,
                        &from));
    TRY(chat_eval_bound(scope, node->c, count, back ? low : high, low, high,
                        &to));
    int64_t found = back ? from - to : to - from;
    found = found < 0 ? 0 : found;
    TRY(chat_value_room(scope->memory,
                        (size_t)found * sizeof(struct chat_value), &room));
    struct chat_value *list = room;
    for (int64_t i = 0; i < found; i++)
        list[i] = of.as.list[back ? from - i : from + i];
    *out = (struct chat_value){ .kind = CHAT_VALUE_LIST,
                                .as.list = list,
                                .count = (size_t)found };
    return ERR_OK;
}

static bool chat_eval_is_test(const struct chat_node *node, const char *name)
{
    return node->bytes == strlen(name) &&
           memcmp(node->text, name, node->bytes) == 0;
}

static enum err chat_eval_test(struct chat_scope *scope,
                               const struct chat_node *node,
                               struct chat_value *out)
{
    struct chat_value value;
    TRY(chat_eval(scope, node->a, &value));
    enum chat_value_kind kind = value.kind;
    bool truth = kind == CHAT_VALUE_BOOLEAN && value.as.integer != 0;
    const struct {
        const char *name;
        bool holds;
    } tests[] = {
        { "defined", kind != CHAT_VALUE_UNDEFINED },
        { "undefined", kind == CHAT_VALUE_UNDEFINED },
        { "none", kind == CHAT_VALUE_NONE },
        { "string", kind == CHAT_VALUE_STRING },
        /* a truth value is a number in Python, but no integer in Jinja */
        { "number", kind == CHAT_VALUE_INTEGER || kind == CHAT_VALUE_BOOLEAN },
        { "integer", kind == CHAT_VALUE_INTEGER },
        { "boolean", kind == CHAT_VALUE_BOOLEAN },
        { "true", truth },
        { "false", kind == CHAT_VALUE_BOOLEAN && !truth },
        { "mapping", kind == CHAT_VALUE_RECORD },
        { "iterable", kind == CHAT_VALUE_STRING || kind == CHAT_VALUE_LIST ||
                          kind == CHAT_VALUE_RECORD ||
                          kind == CHAT_VALUE_UNDEFINED },
        { "sequence", kind == CHAT_VALUE_STRING || kind == CHAT_VALUE_LIST ||
                          kind == CHAT_VALUE_RECORD ||
                          kind == CHAT_VALUE_UNDEFINED },
    };
    for (size_t t = 0; t < sizeof tests / sizeof *tests; t++)
        if (chat_eval_is_test(node, tests[t].name))
            *out = chat_value_boolean(tests[t].holds);
    return ERR_OK;
}

static enum err chat_eval_in(const struct chat_node *node,
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
            TRY(chat_value_equal(item, &of->as.list[i], &found));
    } else if (of->kind == CHAT_VALUE_RECORD &&
               item->kind == CHAT_VALUE_STRING) {
        found = chat_value_field(of, item->as.text, item->count) != NULL;
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
        value = (a % b + b) % b;
    if (sign == '/')
        value = a / b - (a % b != 0 && (a < 0) != (b < 0));
    *out = chat_value_integer(value);
    return ERR_OK;
}

static enum err chat_eval_compare(const struct chat_node *node,
                                  const struct chat_value *a,
                                  const struct chat_value *b,
                                  struct chat_value *out)
{
    const char *sign = node->text;
    if (*sign == '=' || *sign == '!') {
        bool equal = false;
        if (chat_value_equal(a, b, &equal) != ERR_OK)
            return err_set(ERR_DATA, "line %d: %s", node->line, err_text());
        *out = chat_value_boolean(equal == (*sign == '='));
        return ERR_OK;
    }
    if (a->kind != CHAT_VALUE_INTEGER || b->kind != CHAT_VALUE_INTEGER)
        return err_set(ERR_DATA, "line %d: %s %.*s %s", node->line,
                       chat_value_name(a), (int)node->bytes, sign,
                       chat_value_name(b));
    int64_t x = a->as.integer, y = b->as.integer;
    bool equal = node->bytes == 2 && x == y;
    *out = chat_value_boolean(equal || (*sign == '<' ? x < y : x > y));
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
        return chat_eval_in(node, &a, &b, out);
    }
    if (sign == '=' || sign == '!' || sign == '<' || sign == '>')
        return chat_eval_compare(node, &a, &b, out);
    if (sign == '~') {
        enum err rc = chat_value_text(scope->memory, &a, &a);
        rc = rc == ERR_OK ? chat_value_text(scope->memory, &b, &b) : rc;
        if (rc != ERR_OK)
            return err_prefix(ERR_DATA, "line %d", node->line);
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
    return err_set(ERR_DATA, "line %d: %s %.*s %s is not known here",
                   node->line, chat_value_name(&a), (int)node->bytes,
                   node->text, chat_value_name(&b));
}

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

enum err chat_eval(struct chat_scope *scope, const struct chat_node *node,
                   struct chat_value *out)
{
    TRY(chat_value_work(scope->memory, 0));
    switch (node->kind) {
    case CHAT_NODE_NAME:
        return chat_eval_name(scope, node, out);
    case CHAT_NODE_STRING:
        *out = chat_value_string(node->text, node->bytes);
        return ERR_OK;
    case CHAT_NODE_INTEGER:
        *out = chat_value_integer(node->value);
        return ERR_OK;
    case CHAT_NODE_BOOLEAN:
        *out = chat_value_boolean(node->value != 0);
        return ERR_OK;
    case CHAT_NODE_NONE:
        *out = (struct chat_value){ .kind = CHAT_VALUE_NONE };
        return ERR_OK;
    case CHAT_NODE_LIST:
        return chat_eval_list(scope, node, out);
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
